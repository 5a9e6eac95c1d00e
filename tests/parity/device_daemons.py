"""Real daemons on real GPUs: the golden bits from 1 to 4 daemons that share one, from a CPU node beside a GPU node, from
two GPUs of one host where there are two; kills and clean stops on the device; who holds the card; predictions with the
CPU's bits. Needs a GPU: exits 77 without one.

    COPPELIUS_BIN=build/release COPPELIUS_SHARED=../shared python3 tests/parity/device_daemons.py
"""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from cluster import Claims, Cluster, Failed, golden_cases, golden_job, same_as_golden, skip  # noqa: E402

try:
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
except FileNotFoundError:
    skip("there is no GPU here (nvidia-smi is absent)")
if listing.returncode != 0 or "GPU 0" not in listing.stdout:
    skip("there is no GPU here")
gpus = [line.split("UUID: ")[1].split(")")[0] for line in listing.stdout.splitlines() if line.startswith("GPU")]
print(listing.stdout.strip(), flush=True)

claims = Claims()
cases, base = golden_cases()
QUICK = {"ccpp, batch 1000, ridge", "naval, constant and equal columns", "a9a, sparse", "rcv1, sparse and wide",
         "hflights, 223 874 rows"}


def run(cluster, case, storage, folder, what):
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as f:
        f.write(golden_job(case, base, storage))
    begin = time.monotonic()
    try:
        job = cluster.wait_job(cluster.submit(path), seconds=120)
    except Failed as error:
        claims.claim(False, f"{what}: {error}")
        return None
    wrong = same_as_golden(case, job)
    claims.claim(not wrong, f"{what}: {'; '.join(wrong)}")
    print(f"{what}: {'same bits' if not wrong else 'DIFFERS'}, {time.monotonic() - begin:.1f} s", flush=True)
    return job


def clusters():
    yield "1 daemon on the GPU", ["auto"], "no"
    for nodes in (2, 3, 4):
        yield f"{nodes} daemons sharing the GPU", ["0"] * nodes, "yes"
    yield "a CPU node and a GPU node", ["cpu", "0"], "no"
    yield "a GPU node and a CPU node", [gpus[0], "cpu"], "no"
    if len(gpus) > 1:
        yield "two GPUs, one daemon each", ["0", "1"], "no"
        yield "two GPUs found by auto", ["auto", "auto"], "no"


with tempfile.TemporaryDirectory() as folder:
    for number, (name, devices, share) in enumerate(clusters()):
        with Cluster(nodes=len(devices), threads=2, device=devices, share=share) as cluster:
            nodes = cluster.ask("nodes")["nodes"]
            print(name, [(n["name"], n["device"], n["binding"]) for n in nodes], flush=True)
            for node, device in zip(nodes, devices):
                claims.claim((node["backend"] == "cpu") == (device == "cpu"), f"{name}: {node['name']} is on {node['device']}")
            if len(devices) == 2 and devices[0] == "auto":
                claims.claim(nodes[0]["binding"] != nodes[1]["binding"], f"{name}: two bindings")
            for case in cases:
                if len(devices) > case["features"] + 1 or (number not in (0, 2) and case["name"] not in QUICK):
                    continue
                for storage in ("dense", "sparse") if number in (0, 2) else ("auto",):
                    run(cluster, case, storage, folder, f"{name}: {case['name']}, {storage}")

    # Predictions: the CPU's bits.
    case = next(c for c in cases if c["name"].startswith("hflights"))
    with Cluster(nodes=1, threads=2, device=["auto"]) as gpu, Cluster(nodes=1, threads=2, device=["cpu"]) as cpu:
        job = run(gpu, case, "auto", folder, "for predictions")
        path = os.path.join(base, "..", "data", "tables", "hflights", "hflights.csv")
        outputs = []
        for cluster in (gpu, cpu):
            output = os.path.join(folder, f"predictions-{len(outputs)}.txt")
            cluster.ctl("predict", "--checkpoint", job["checkpoint"], "--data", path, "--format", "csv", "--header", "yes",
                        "--target", "first", "--output", output)
            outputs.append(open(output).read())
        claims.claim(len(outputs[0]) > 1000000 and outputs[0] == outputs[1], "predictions of GPU and CPU are the same text")

    # A clean stop and a kill while the device works.
    case = next(c for c in cases if c["name"].startswith("casp"))
    with Cluster(nodes=2, threads=2, device=["0", "0"], share="yes") as cluster:
        path = os.path.join(folder, "job.yaml")
        text = golden_job(case, base).replace("steps: 300", "steps: 6000")
        with open(path, "w") as f:
            f.write(text + "checkpoint: {every: 1500}\n")
        undisturbed = cluster.wait_job(cluster.submit(path), seconds=120)
        for way in ("SIGTERM", "SIGKILL"):
            job_id = cluster.submit(path)
            cluster.wait_for(lambda: (cluster.job_or_none(job_id) or {}).get("state") == "running", 30, "the job to run")
            time.sleep(0.3)
            node = cluster.nodes[1]
            if way == "SIGTERM":
                status, seconds = node.terminate()
                claims.claim(status == 0 and seconds < 10, f"{way}: exit {status} after {seconds:.1f} s")
            else:
                node.kill()
            node.start()
            job = cluster.wait_job(job_id, seconds=120)
            same = all(job[key] == undisturbed[key] for key in ("parameter_sha256", "accumulator_sha256", "loss_hex"))
            claims.claim(same, f"{way} on the device: other bits than undisturbed")
            print(f"{way} on the device: generation {job['generation']}, {'same bits' if same else 'DIFFERS'}", flush=True)

    # Who holds the card: a second daemon without device_share is refused by a sentence, and a dead one leaves no lock.
    first = Cluster(nodes=1, threads=1, device=["0"])
    with first:
        second = Cluster(nodes=1, threads=1, device=["0"], start=False)
        with second:
            second.nodes[0].start()
            second.wait_for(lambda: "selftest.failed" in second.nodes[0].log_text(), 30, "the second daemon to be refused")
            line = next(l for l in second.nodes[0].log_text().splitlines() if "selftest.failed" in l)
            print(line, flush=True)
            claims.claim("ready" not in second.nodes[0].log_text().replace("not ready", ""), "the second daemon is not ready")
            first.nodes[0].kill()
            second.wait_for(lambda: "daemon.ready" in second.nodes[0].log_text(), 60, "the second daemon, once the first is dead")
            claims.claim(True, "a dead daemon leaves no lock")
    for device in ("99", "GPU-00000000-0000-0000-0000-000000000000"):
        with Cluster(nodes=1, threads=1, device=[device], start=False) as cluster:
            cluster.nodes[0].start()
            cluster.wait_for(lambda: "selftest.failed" in cluster.nodes[0].log_text(), 30, "a refusal")
            print(next(l for l in cluster.nodes[0].log_text().splitlines() if "selftest.failed" in l), flush=True)
            claims.claim("daemon.ready" not in cluster.nodes[0].log_text(), f"device {device}: not ready, never a silent CPU")
claims.end()
