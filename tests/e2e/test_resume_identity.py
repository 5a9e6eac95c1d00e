"""40 steps are 20 + 20, 30 + 10, 10 + 10 + 10 + 10, and stops at the first and at the last step of a pass, bit for bit: parameters,
accumulators, loss, objective, and the losses of all steps, those before the checkpoint too. Saved on 4 nodes and resumed on 1, 2, 3 and 6. Dense and
standardized, and sparse; a pass is 8 steps, the last with a short batch."""
import itertools
import json
import os
import tempfile

from cluster import ROOT, Claims, Cluster

STEPS = 40
PASS = 8
SPLITS = {"20 + 20": [20, 20], "30 + 10": [30, 10], "10 + 10 + 10 + 10": [10, 10, 10, 10],
          "the first step of a pass": [PASS + 1, STEPS - PASS - 1], "the last step of a pass": [2 * PASS, STEPS - 2 * PASS],
          "the very first and the very last step": [1, STEPS - 2, 1]}
KEYS = ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective")
JOB = """name: resume
data: {{path: {data}, format: csv, header: yes, target: ArrDelay, test: 0.2, shuffle: 7, storage: {storage}, standardize: {standardize}}}
model: {{l2: 0.1}}
optimizer: {{rate: {rate}, decay: 0.9, batch: 22500, steps: 40}}
checkpoint: {{every: 1000000}}
"""
claims = Claims()


def losses(cluster, job_id):
    """{step: loss} of a job that has ended."""
    events = cluster.ctl("watch", str(job_id), "-o", "jsonl").stdout.splitlines()
    history = next(e for e in map(json.loads, events) if e["event"] == "history")
    return {step: loss for step, loss in history["points"]}


def run(cluster, path, steps, start=None):
    """Up to that step, from a folder; the job's end and its losses."""
    more = ["--from", start] if start else []
    job_id = cluster.submit(path, "--set", f"optimizer.steps={steps}", *more)
    job = cluster.wait_job(job_id, seconds=60)
    claims.claim(job["step"] == steps, f"it ends at step {steps}: {job['step']}")
    return job, losses(cluster, job_id)


def fetch(cluster, job, folder, name):
    output = os.path.join(folder, name)
    cluster.ctl("checkpoint", "fetch", "0", "--job", str(job["job"]), "--output", output, "-q")
    return output


def same(job, seen, whole, history, what):
    for key in KEYS:
        claims.claim(job[key] == whole[key], f"{what}: {key} is {job[key]}, in one run {whole[key]}")
    claims.claim(seen == history, f"{what}: the losses differ at steps { {s: (seen.get(s), history[s]) for s in history if seen.get(s) != history[s]} }")


with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(ROOT, "deploy/examples/hflights/hflights.csv")
    kinds = {}
    for kind, storage, standardize, rate in (("dense", "dense", "yes", 0.05), ("sparse", "sparse", "no", 1e-7)):
        kinds[kind] = os.path.join(folder, f"{kind}.yaml")
        with open(kinds[kind], "w") as f:
            f.write(JOB.format(data=data, storage=storage, standardize=standardize, rate=rate))

    whole, saved = {}, {}
    with Cluster(nodes=4) as cluster:
        for kind, path in kinds.items():
            job, history = run(cluster, path, STEPS)
            whole[kind] = (job, history)
            claims.claim(sorted(history) == list(range(1, STEPS + 1)) and len(set(history.values())) > STEPS // 2,
                         f"{kind}: every step has its loss: {sorted(history)}")
            for what, parts in SPLITS.items() if kind == "dense" else [("20 + 20", [20, 20])]:
                start = None
                for end in itertools.accumulate(parts):
                    job, seen = run(cluster, path, end, start)
                    before = {step: loss for step, loss in history.items() if step <= end}
                    claims.claim(seen == before, f"{kind}, {what}: at step {end} the losses are {seen}, undisturbed {before}")
                    if end < STEPS:
                        start = fetch(cluster, job, folder, f"{kind}-{what}-{end}".replace(" ", ""))
                    if end == 20:
                        saved[kind] = start
                same(job, seen, *whole[kind], f"{kind}, {what}")
                print(f"{kind}, 4 nodes, {what}: {job['parameter_sha256'][:16]}", flush=True)
    for nodes in (1, 2, 3, 6):
        with Cluster(nodes=nodes) as cluster:
            for kind, path in kinds.items():
                job, seen = run(cluster, path, STEPS, saved[kind])
                claims.claim(job["nodes"] == nodes, f"it runs on {nodes} nodes: {job['nodes']}")
                same(job, seen, *whole[kind], f"{kind}, saved on 4 and resumed on {nodes}")
                print(f"{kind}, saved on 4, resumed on {nodes}: {job['parameter_sha256'][:16]}", flush=True)
claims.end()
