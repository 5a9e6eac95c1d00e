"""The losses of a job's steps outlive every daemon: what `watch` and `job show` print of them is, text for text, that of the undisturbed
run when all daemons were killed (SIGKILL) and started again: after the end, between 20 and 40 steps, and in the middle; also saved on 4
nodes and gone on with on 2. A damaged shard costs no job and no loss: it is named, and another's are taken."""
import json
import os
import re
import struct
import tempfile

from cluster import ROOT, Claims, Cluster

LONG_STEPS = 9000  # more than are kept of every step
JOB = """name: history
data: {{path: {data}, format: csv, header: yes, target: ArrDelay, test: 0.2, shuffle: 7, storage: dense, standardize: yes}}
model: {{l2: 0.1}}
optimizer: {{rate: {rate}, decay: 0.9, batch: {batch}, steps: {steps}}}
checkpoint: {{every: {every}, keep: 2}}
"""
claims = Claims()


def told(cluster, job_id, node=None):
    """What people see of the losses: the points as they are printed, and the first one. Of an ended job; a node that was
    started just now learns first that it has ended."""
    def knows():
        shown = cluster.ctl("job", "show", str(job_id), "--json", node=node, check=False)
        return shown.returncode == 0 and json.loads(shown.stdout)["state"] == "succeeded"
    cluster.wait_for(knows, 60, f"the end of job {job_id} to be known")
    events = cluster.ctl("watch", str(job_id), "-o", "jsonl", node=node).stdout.splitlines()
    points = re.search(r'"points":\s*(\[\[.*?\]\])', events[0])
    shown = cluster.ctl("job", "show", str(job_id), "--json", node=node).stdout
    first = re.search(r'"first_loss":\s*[^,\n]*', shown)
    return points and points.group(1), first and first.group(0)


def same(got, whole, what):
    for one, other, name in zip(got, whole, ("the losses", "the first loss")):
        claims.claim(one == other, f"{what}: {name} differ: {str(one)[:200]} and undisturbed {str(other)[:200]}")


def restart(cluster):
    """All of them at once, by SIGKILL."""
    for node in cluster.nodes:
        node.process.kill()
    for node in cluster.nodes:
        node.kill()
    cluster.start()


def run(cluster, path, *more):
    job_id = cluster.submit(path, *more)
    cluster.wait_job(job_id, seconds=300)
    return job_id


def shards(node, job_id):
    folder = os.path.join(node.job_folder(job_id), "latest")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".safetensors")]


def flip_a_loss(path):
    """One bit of the last loss: that tensor is the last one."""
    with open(path, "r+b") as file:
        data = file.read()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        claims.claim(header["losses"]["data_offsets"][1] + 8 + struct.unpack("<Q", data[:8])[0] == len(data),
                     "the losses are the last tensor")
        file.seek(len(data) - 8)
        file.write(bytes([data[-8] ^ 1]))


with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(ROOT, "deploy/examples/hflights/hflights.csv")
    short, long = os.path.join(folder, "short.yaml"), os.path.join(folder, "long.yaml")
    with open(short, "w") as file:
        file.write(JOB.format(data=data, rate=0.05, batch=22500, steps=40, every=1000000))
    with open(long, "w") as file:
        file.write(JOB.format(data=data, rate=0.0005, batch=256, steps=LONG_STEPS, every=500))
    saved = os.path.join(folder, "saved")
    with Cluster(nodes=4) as cluster:
        job_id = run(cluster, short)
        whole = told(cluster, job_id)
        claims.claim([step for step, _ in json.loads(whole[0])] == list(range(1, 41)), f"every step has its loss: {whole[0]}")
        half = run(cluster, short, "--set", "optimizer.steps=20")
        before = told(cluster, half)
        cluster.ctl("checkpoint", "fetch", "0", "--job", str(half), "--output", saved, "-q")
        restart(cluster)
        for node in cluster.nodes:
            same(told(cluster, job_id, node), whole, f"after the end, killed and started, node {node.name}")
            same(told(cluster, half, node), before, f"the half, killed and started, node {node.name}")
        more = run(cluster, short, "--from", saved)
        for node in cluster.nodes:
            same(told(cluster, more, node), whole, f"20 + 20, all killed between, node {node.name}")
        print("40 = 20 + 20, all killed between", flush=True)

        # A run that is killed in the middle goes on by itself; more steps than are kept.
        undisturbed = run(cluster, long)
        whole_long = told(cluster, undisturbed)
        steps = [step for step, _ in json.loads(whole_long[0])]
        claims.claim(steps[0] == 1 and steps[-1] == LONG_STEPS and len(steps) > 400, f"bounded, from the first to the last: {steps[:3]} … {steps[-3:]}")
        job_id = cluster.submit(long)
        cluster.wait_for(lambda: (cluster.job_or_none(job_id) or {}).get("step", 0) > 1000, 120, "1000 steps")
        restart(cluster)
        job = cluster.wait_job(job_id, seconds=300)
        claims.claim(job["parameter_sha256"] == cluster.job(undisturbed)["parameter_sha256"], "the same bits")
        for node in cluster.nodes:
            same(told(cluster, job_id, node), whole_long, f"all killed in the middle (generation {job['generation']}), node {node.name}")
        print(f"all killed in the middle: generation {job['generation']}", flush=True)

        # Damage: one shard of a node, then all that it has.
        node = cluster.nodes[1]
        for count in (1, 2):
            paths = shards(node, more)
            claims.claim(len(paths) == 2, f"its own shard and a copy: {paths}")
            for other in cluster.nodes:
                other.process.kill()
                other.kill()
            for path in paths[:count]:
                flip_a_loss(path)
            begin = len(node.log_text())
            cluster.start()
            got = told(cluster, more, node)
            if count == 1:
                same(got, whole, "one shard damaged")
            cluster.wait_for(lambda: node.log_text()[begin:].count("publish.repaired") >= count, 120, "the repair of what was damaged")
            cluster.wait_for(lambda: told(cluster, more, node) == whole, 120, "the losses of the repaired shards")
            log = node.log_text()[begin:]
            claims.claim("history.unread" in log and os.path.basename(paths[0]) in log, "the damaged shard is named")
        claims.claim(cluster.job(more)["state"] == "succeeded", "no job has failed")
        print("damaged and repaired", flush=True)
    with Cluster(nodes=2) as cluster:
        job_id = run(cluster, short, "--from", saved)
        for node in cluster.nodes:
            same(told(cluster, job_id, node), whole, f"saved on 4 and gone on with on 2, node {node.name}")
        restart(cluster)
        for node in cluster.nodes:
            same(told(cluster, job_id, node), whole, f"saved on 4 and gone on with on 2, killed and started, node {node.name}")
        print("saved on 4, gone on with on 2", flush=True)
claims.end()
