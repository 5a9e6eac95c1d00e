"""A kernel that faults on a node's GPU in the middle of a job: the others name the node with step, phase and bytes, in log,
`nodes` and metric; a job that is not elastic is paused with the reason, an elastic one goes on without the node; no self-test
passes while the GPU faults; when it works again the node is used again, without anybody restarting it, and the bits are those
of an undisturbed run. The GPU is real and so is the fault (tests/lib/faulty_cuda.c launches a kernel that traps). Needs a GPU:
exits 77 without one.

    COPPELIUS_BIN=build/release python3 tests/parity/device_faults.py
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from cluster import BIN, ROOT, Claims, Cluster, skip  # noqa: E402

# Where the real driver is: what the loader knows, else where containers get it.
known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines()
REAL = [line.split("=> ")[1].strip() for line in known if "libcuda.so.1 " in line and "x86-64" in line]
REAL += [path for path in ("/usr/local/nvidia/lib64/libcuda.so.1", "/usr/local/nvidia/lib/libcuda.so.1") if os.path.exists(path)]
FAULTY = os.path.join(BIN, "tests", "parity", "faulty_cuda")
if not REAL:
    skip("there is no GPU here")
if not os.path.exists(os.path.join(FAULTY, "libcuda.so.1")):
    skip("faulty_cuda is not built")
JOB = """name: faulty
data: {{path: {data}, format: csv, header: yes, target: ArrDelay, test: 0.2, shuffle: 7, standardize: yes}}
model: {{l2: 0.1}}
optimizer: {{rate: 0.0005, decay: 0.9, batch: 2048, steps: {steps}}}
checkpoint: {{every: 500}}
elastic: {elastic}
"""
STEPS = 20000
claims = Claims()


def failures(node, begin):
    return [int(n) for n in re.findall(r"device\.failed node=b failures=(\d+)", node.log_text()[begin:])]


with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(ROOT, "deploy/examples/hflights/hflights.csv")
    fault = os.path.join(folder, "fault")
    paths = {}
    for elastic, steps in (("yes", 100000000), ("no", STEPS)):
        paths[elastic] = os.path.join(folder, f"{elastic}.yaml")
        with open(paths[elastic], "w") as file:
            file.write(JOB.format(data=data, elastic=elastic, steps=steps))
    with Cluster(nodes=3, device=["cpu", "0", "cpu"], start=False) as cluster:
        victim = cluster.nodes[1]
        path = ":".join(part for part in (FAULTY, os.environ.get("LD_LIBRARY_PATH")) if part)
        victim.environment = {"LD_LIBRARY_PATH": path, "COPPELIUS_REAL_CUDA": REAL[0], "COPPELIUS_CUDA_FAULT": fault}
        cluster.start(60)
        cluster.wait_alive(60)

        def running(job_id, nodes):
            job = cluster.job(job_id)
            return job if job["state"] == "running" and job["nodes"] == nodes and (job["step"] or 0) > 0 else None

        def named(job_id, begin):
            for node in (cluster.nodes[0], cluster.nodes[2]):
                said = cluster.wait_for(lambda: re.findall(r'text="node b has failed: [^"]*', node.log_text()[begin[node.name]:]), 60,
                                        f"node {node.name} to name b")[0]
                claims.claim(re.search(r"CUDA_ERROR_LAUNCH_FAILED.*step [1-9]\d*, phase \w+, \d+ bytes", said) is not None,
                             f"{node.name}: {said}")
                listed = next(n for n in cluster.ask("nodes", node=node)["nodes"] if n["name"] == "b")
                claims.claim("CUDA_ERROR_LAUNCH_FAILED" in (listed["reason"] or "") and listed["lost"], f"`nodes` at {node.name}: {listed}")
                claims.claim(f'coppelius_peer_lost{{peer="b",job="{job_id}"' in node.metrics(), f"the metric of {node.name}")

        # Not elastic.
        began = time.monotonic()
        whole = cluster.wait_job(cluster.submit(paths["no"]), seconds=120)
        claims.claim(whole["nodes"] == 3, f"undisturbed on three: {whole['nodes']}")
        print(f"undisturbed: {time.monotonic() - began:.1f} s", flush=True)
        begin = {n.name: len(n.log_text()) for n in cluster.nodes}
        job_id = cluster.submit(paths["no"])
        cluster.wait_for(lambda: running(job_id, 3), 60, "steps on three")
        open(fault, "w").close()
        began = time.monotonic()
        job = cluster.wait_job(job_id, states=("paused",), seconds=60)
        print(f"paused after {time.monotonic() - began:.1f} s: {job['reason']}", flush=True)
        claims.claim(re.match(r"node b: its device failed: step [1-9]\d*, phase \w+: .*CUDA_ERROR_LAUNCH_FAILED", job["reason"]) is not None,
                     f"the reason: {job['reason']}")
        named(job_id, begin)
        cluster.wait_for(lambda: len(failures(victim, begin["b"])) >= 2, 120, "a self-test that fails")
        claims.claim(victim.alive(), "the daemon with the faulty GPU stays")
        os.remove(fault)
        began = time.monotonic()
        job = cluster.wait_job(job_id, seconds=120)
        print(f"succeeded {time.monotonic() - began:.1f} s after the GPU worked again, generation {job['generation']}", flush=True)
        for key in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective", "nodes"):
            claims.claim(job[key] == whole[key], f"{key} is {job[key]}, undisturbed {whole[key]}")

        # Elastic: goes on without it, and with it again.
        begin = {n.name: len(n.log_text()) for n in cluster.nodes}
        job_id = cluster.submit(paths["yes"])
        cluster.wait_for(lambda: running(job_id, 3), 60, "steps on three")
        open(fault, "w").close()
        began = time.monotonic()
        cluster.wait_for(lambda: running(job_id, 2), 60, "two to go on")
        print(f"goes on with two after {time.monotonic() - began:.1f} s", flush=True)
        named(job_id, begin)
        os.remove(fault)
        began = time.monotonic()
        cluster.wait_for(lambda: running(job_id, 3), 120, "all three again")
        print(f"all three again after {time.monotonic() - began:.1f} s", flush=True)
        cluster.ctl("job", "pause", str(job_id))
        cluster.wait_job(job_id, states=("paused",), seconds=60)
        listed = cluster.ask("checkpoint", "list", str(job_id))["checkpoints"]
        newest = max((c for c in listed if c["state"] == "published"), key=lambda c: c["epoch"])
        cluster.ctl("job", "cancel", str(job_id))
        again = cluster.wait_job(cluster.submit(paths["no"], "--set", f"optimizer.steps={newest['step']}"), seconds=300)
        claims.claim(again["parameter_sha256"] == newest["parameter_sha256"], f"the bits of {newest['step']} undisturbed steps")
        print(json.dumps({"steps": newest["step"], "sha256": newest["parameter_sha256"]}), flush=True)
claims.end()
