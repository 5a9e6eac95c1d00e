"""A node whose device has no memory for its part of a job: the others name it with step, phase and bytes, in log, `nodes` and metric;
an elastic job goes on without it, another is paused with the reason and is not placed again and again; when the device's
self-test passes again it is used again, and the bits are those of an undisturbed run."""
import json
import os
import re
import tempfile
import time

from cluster import ROOT, Claims, Cluster, need_preload

SHIM = need_preload("memory_shim")
JOB = """name: device
data: {{path: {data}, format: csv, header: yes, target: ArrDelay, test: 0.2, shuffle: 7, standardize: yes}}
model: {{l2: 0.1}}
optimizer: {{rate: 0.0005, decay: 0.9, batch: 2048, steps: {steps}}}
checkpoint: {{every: 2000}}
elastic: {elastic}
"""
REASON = r"node b: its device failed: step 0, phase load: cpu: no \d+ MiB of memory for the session"
claims = Claims()


def named(cluster, job_id, begin):
    """Both others name the victim with step, phase, bytes: log, listing, metric."""
    for node in (cluster.nodes[0], cluster.nodes[2]):
        said = cluster.wait_for(lambda: re.findall(r'text="node b has failed: [^"]*', node.log_text()[begin[node.name]:]), 60,
                                f"node {node.name} to name b")[0]
        claims.claim(re.search(r"no \d+ MiB of memory.*step \d+, phase load, \d+ bytes", said) is not None, f"{node.name}: {said}")
        listed = next(n for n in cluster.ask("nodes", node=node)["nodes"] if n["name"] == "b")
        claims.claim("MiB of memory" in (listed["reason"] or "") and listed["lost"], f"`nodes` at {node.name}: {listed}")
        claims.claim(re.search(rf'^coppelius_peer_lost{{peer="b",job="{job_id}",phase="load"}} 1$', node.metrics(), re.M) is not None,
                     f"the metric of {node.name}")


def failures(node, begin):
    return [int(n) for n in re.findall(r"device\.failed node=b failures=(\d+)", node.log_text()[begin:])]


with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(ROOT, "deploy/examples/hflights/hflights.csv")
    full = os.path.join(folder, "no-memory")
    paths = {}
    for elastic, steps in (("yes", 100000000), ("no", 200)):
        paths[elastic] = os.path.join(folder, f"{elastic}.yaml")
        with open(paths[elastic], "w") as file:
            file.write(JOB.format(data=data, elastic=elastic, steps=steps))
    with Cluster(nodes=3, start=False) as cluster:
        victim = cluster.nodes[1]
        victim.environment = {"LD_PRELOAD": SHIM, "COPPELIUS_NO_MEMORY": full}
        cluster.start()
        cluster.wait_alive()
        whole = cluster.wait_job(cluster.submit(paths["no"]))
        claims.claim(whole["nodes"] == 3, f"undisturbed on three: {whole['nodes']}")

        # Not elastic: paused, and left alone.
        begin = {n.name: len(n.log_text()) for n in cluster.nodes}
        open(full, "w").close()
        began = time.monotonic()
        job_id = cluster.submit(paths["no"])
        job = cluster.wait_job(job_id, states=("paused",), seconds=60)
        print(f"paused after {time.monotonic() - began:.1f} s: {job['reason']}", flush=True)
        claims.claim(re.match(REASON, job["reason"]) is not None, f"the reason: {job['reason']}")
        named(cluster, job_id, begin)
        cluster.wait_for(lambda: len(failures(victim, begin["b"])) >= 2, 120, "a self-test that fails")
        claims.claim(failures(victim, begin["b"])[:2] == [1, 2], f"failures in a row: {failures(victim, begin['b'])}")
        later = cluster.job(job_id)
        claims.claim((later["state"], later["generation"]) == ("paused", job["generation"]), f"it was not placed again: {later}")
        claims.claim("selftest" in victim.log_text() or "self-test" in victim.log_text()[begin["b"]:], "the self-test is run")
        os.remove(full)
        job = cluster.wait_job(job_id, seconds=120)
        for key in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective", "nodes"):
            claims.claim(job[key] == whole[key], f"{key} is {job[key]}, undisturbed {whole[key]}")
        for node in (cluster.nodes[0], cluster.nodes[2]):
            listed = next(n for n in cluster.ask("nodes", node=node)["nodes"] if n["name"] == "b")
            claims.claim(not listed["reason"] and not listed["lost"], f"`nodes` at {node.name} afterwards: {listed}")
        print(f"succeeded in generation {job['generation']}", flush=True)

        # Elastic: goes on without it, and with it again.
        begin = {n.name: len(n.log_text()) for n in cluster.nodes}
        open(full, "w").close()
        began = time.monotonic()
        job_id = cluster.submit(paths["yes"])

        def running(nodes):
            job = cluster.job(job_id)
            return job if job["state"] == "running" and job["nodes"] == nodes and (job["step"] or 0) > 0 else None
        job = cluster.wait_for(lambda: running(2), 120, "two to go on")
        print(f"goes on with two after {time.monotonic() - began:.1f} s", flush=True)
        named(cluster, job_id, begin)
        before = job["generation"]
        cluster.wait_for(lambda: len(failures(victim, begin["b"])) >= 2, 120, "a self-test that fails")
        claims.claim(cluster.job(job_id)["generation"] == before, "those that go on are not disturbed meanwhile")
        os.remove(full)
        cluster.wait_for(lambda: running(3), 180, "all three again")
        cluster.ctl("job", "pause", str(job_id))
        cluster.wait_job(job_id, states=("paused",), seconds=60)
        listed = cluster.ask("checkpoint", "list", str(job_id))["checkpoints"]
        newest = max((c for c in listed if c["state"] == "published"), key=lambda c: c["epoch"])
        cluster.ctl("job", "cancel", str(job_id))
        again = cluster.wait_job(cluster.submit(paths["no"], "--set", f"optimizer.steps={newest['step']}"), seconds=300)
        claims.claim(again["parameter_sha256"] == newest["parameter_sha256"], f"the bits of {newest['step']} undisturbed steps")
        print(f"all three again; {newest['step']} steps", flush=True)
claims.end()
