"""Copies of shards on real nodes: one is killed and its checkpoints are wiped at many moments, it comes back, and every published
checkpoint is whole again; a flipped bit is found, named and repaired; all copies are listed; the job ends with the digest of
the undisturbed run."""
import glob
import json
import os
import random
import shutil
import tempfile
import time

from cluster import LONG, Claims, Cluster
from killing import write_job

claims = Claims()
WIPES = 30 if LONG else 8


def copies(cluster, job_id, check=False):
    run = cluster.ctl("checkpoint", "verify", "--job", str(job_id), "--json", check=check, timeout=60)
    return run, json.loads(run.stdout) if run.stdout.strip() else None


def whole(cluster, job_id):
    run, document = copies(cluster, job_id)
    return document if run.returncode == 0 and document["verified"] > 0 else None


def published(cluster, job_id):
    return [c for c in cluster.ask("checkpoint", "list", str(job_id))["checkpoints"] if c["state"] == "published"]


def newest_epoch(cluster, job_id):
    return max([c["epoch"] for c in published(cluster, job_id)], default=0)


with tempfile.TemporaryDirectory() as folder:
    path = write_job(folder, steps=3000, every=100)
    with Cluster(nodes=3) as cluster:
        undisturbed = cluster.wait_job(cluster.submit(path), seconds=120)

    # Killed and wiped at chance moments of its publications, leader and follower alike.
    with Cluster(nodes=3) as cluster:
        seed = random.randrange(1 << 30)
        chance = random.Random(seed)
        print(f"seed {seed}", flush=True)
        wipes = 0
        jobs = []
        while wipes < WIPES:
            job_id = cluster.submit(path)
            jobs.append(job_id)
            while wipes < WIPES:
                before = newest_epoch(cluster, job_id)
                job = cluster.wait_for(lambda: (lambda j: j if j and (
                    j["state"] == "succeeded" or newest_epoch(cluster, job_id) > before) else None)(
                        cluster.job_or_none(job_id)), 60, f"job {job_id}: an epoch after {before}")
                if job["state"] == "succeeded":
                    break
                time.sleep(chance.random() * 0.3)
                victim = chance.choice(cluster.nodes)
                victim.kill()
                shutil.rmtree(os.path.join(victim.state, "jobs"), ignore_errors=True)
                others = [n for n in cluster.nodes if n is not victim]
                if chance.random() < 0.5:
                    time.sleep(chance.random() * 2)
                victim.start()
                cluster.wait_leader()
                wipes += 1
                claims.claim(bool(cluster.wait_for(lambda: whole(cluster, job_id), 60,
                                                   f"wipe {wipes} of {victim.name}: all copies to be whole again")),
                             f"wipe {wipes}: all copies are whole")
                claims.claim(all("publish.lost" not in n.log_text() for n in cluster.nodes),
                             f"wipe {wipes}: nothing is lost")
            job = cluster.wait_job(job_id, seconds=120)
            for key in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective"):
                claims.claim(job[key] == undisturbed[key], f"job {job_id}: {key} differs")
            print(f"job {job_id}: {wipes} wipes so far, generation {job['generation']}", flush=True)
        document = cluster.wait_for(lambda: whole(cluster, job_id), 60, "all copies to be whole at the end")
        seen = {}
        for copy in document["copies"]:
            claims.claim(copy["state"] == "verified", f"a copy is {copy['state']}: {copy}")
            seen.setdefault((copy["epoch"], copy["file"]), set()).add(copy["node"])
        kept = published(cluster, job_id)
        claims.claim(len(seen) == 3 * len(kept), f"{len(seen)} shards of {len(kept)} epochs are listed")
        claims.claim(all(len(nodes) >= 2 for nodes in seen.values()), f"each shard is on two nodes: {seen}")
        claims.claim(all(c["replicas"] >= 1 for c in kept), "the list says how many copies there are")

        # Any one node's folder gone: fetch makes a whole checkpoint out of the others.
        for victim in cluster.nodes:
            victim.kill()
            target = os.path.join(folder, f"fetched-{victim.name}")
            cluster.wait_leader()
            cluster.ctl("checkpoint", "fetch", "0", "--job", str(job_id), "--output", target, timeout=60)
            verdict = cluster.ask("checkpoint", "verify", target)
            claims.claim(verdict["whole"] and verdict["parameter_sha256"] == undisturbed["parameter_sha256"],
                         f"without {victim.name} the checkpoint is whole")
            run, document = copies(cluster, job_id)
            claims.claim(run.returncode == 5 and any(c["state"] == "unreachable" and c["node"] == victim.name
                                                     for c in document["copies"]),
                         f"without {victim.name} its copies are unreachable: exit {run.returncode}")
            victim.start()
            cluster.wait_leader()
            cluster.wait_for(lambda: whole(cluster, job_id), 60, "all copies after the return")

        # A bit flips, in a node's own shard and in a copy.
        for number, node in enumerate(cluster.nodes[:2]):
            current = open(os.path.join(node.job_folder(job_id), "CURRENT")).read().strip()
            files = sorted(glob.glob(os.path.join(node.job_folder(job_id), current, "shard-*.safetensors")))
            file = files[number % len(files)]
            with open(file, "r+b") as f:
                f.seek(-20, 2)
                byte = f.read(1)[0]
                f.seek(-20, 2)
                f.write(bytes([byte ^ 8]))
            run, document = copies(cluster, job_id)
            claims.claim(run.returncode == 7, f"a flipped bit: verify ends with {run.returncode}")
            claims.claim(any(c["state"] == "damaged" and c["node"] == node.name and c["file"] == os.path.basename(file)
                             for c in document["copies"]), f"a flipped bit is named: {document}")
            claims.claim(node.says("publish.damaged", os.path.basename(file)),
                         "a flipped bit is in the log")
            cluster.wait_for(lambda: whole(cluster, job_id), 30, "the damaged copy to be repaired")
            claims.claim(node.says("publish.repaired"), "the repair is in the log")

        cluster.ctl("checkpoint", "prune", str(job_id), "1")
        cluster.wait_for(lambda: len(published(cluster, job_id)) == 1, 20, "older checkpoints to be collected")
        cluster.wait_for(lambda: all(len(glob.glob(os.path.join(n.job_folder(job_id), "epoch-*"))) == 1
                                     for n in cluster.nodes), 20, "their folders to go")

    # A whole disk is lost, its log too: the successor takes another place and gets all copies; the job ends as if nothing was.
    with Cluster(nodes=3) as cluster:
        job_id = cluster.submit(path)
        for number in range(2):
            before = newest_epoch(cluster, job_id)
            cluster.wait_for(lambda: newest_epoch(cluster, job_id) > before or
                             cluster.job_or_none(job_id)["state"] == "succeeded", 60, f"an epoch after {before}")
            time.sleep(chance.random() * 0.3)
            victim = cluster.nodes[number % 3]
            other = cluster.nodes[(number + 1) % 3]
            victim.kill()
            shutil.rmtree(victim.state)
            os.makedirs(victim.state)
            victim.start()
            cluster.wait_for(lambda: not victim.alive(), 30, f"{victim.name} without its disk to be refused")
            victim.process = None
            cluster.wait_leader()
            cluster.ctl("cluster", "add", victim.name, node=other)
            victim.start()
            cluster.wait_for(lambda: whole(cluster, job_id), 60, f"{victim.name}'s successor to have its copies")
            claims.claim(all("publish.lost" not in n.log_text() for n in cluster.nodes), "a lost disk loses nothing")
        job = cluster.wait_job(job_id, seconds=120)
        for key in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective"):
            claims.claim(job[key] == undisturbed[key], f"lost disks: {key} differs")
        cluster.wait_for(lambda: whole(cluster, job_id), 60, "all copies to be whole at the end")

    # Two nodes' copies of the newest epoch are gone: the job goes on from the one before, and says so.
    with Cluster(nodes=3) as cluster:
        path = write_job(folder, steps=20000, every=200)
        job_id = cluster.submit(path)
        cluster.wait_for(lambda: newest_epoch(cluster, job_id) >= 3, 60, "three epochs")
        for node in cluster.nodes:
            node.kill()
        newest = max(int(os.path.basename(f).split("-")[1]) for n in cluster.nodes
                     for f in glob.glob(os.path.join(n.job_folder(job_id), "epoch-*")))
        for node in cluster.nodes:
            for file in glob.glob(os.path.join(node.job_folder(job_id), f"epoch-{newest:08d}", "shard-00001-*")):
                with open(file, "r+b") as f:
                    f.truncate(100)
            shutil.rmtree(os.path.join(node.job_folder(job_id), "staging"), ignore_errors=True)
        for node in cluster.nodes:
            node.start()
        cluster.wait_leader()
        cluster.wait_for(lambda: newest_epoch(cluster, job_id) > newest, 60, "the job to go on")
        claims.claim(all(n.says("publish.lost") for n in cluster.nodes), "the loss is told on every node")
        job = cluster.job(job_id)
        claims.claim(job["state"] in ("running", "finishing", "succeeded"), f"the job goes on: {job['state']}")
        cluster.ctl("job", "cancel", str(job_id))
claims.end()
