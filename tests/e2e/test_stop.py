"""SIGTERM stops a node cleanly with a published checkpoint, in whatever phase; the job goes on by itself when the node is
back. Pause, resume, cancel; a job handed to a follower; queueing. Always the digest of the undisturbed run."""
import os
import tempfile
import time

from cluster import Claims, Cluster
from killing import write_job

claims = Claims()
KEYS = ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective")


def same(job, undisturbed, what):
    for key in KEYS:
        claims.claim(job[key] == undisturbed[key], f"{what}: {key} is {job[key]}, undisturbed {undisturbed[key]}")


def running(cluster, job_id, step=1):
    def reached():
        job = cluster.job_or_none(job_id)
        return job if job and job["state"] == "running" and (job["step"] or 0) >= step else None
    return cluster.wait_for(reached, 60, f"job {job_id} to run")


def paused(cluster, job_id):
    """It is paused by the entry of the last vote; the asked node's own CURRENT follows within moments."""
    def reached():
        job = cluster.job_or_none(job_id)
        return job if job and job["state"] == "paused" and job["epoch"] is not None else None
    return cluster.wait_for(reached, 20, f"job {job_id} to be paused with its checkpoint here")


with tempfile.TemporaryDirectory() as folder:
    path = write_job(folder, steps=6000, every=3000)
    with Cluster(nodes=3) as cluster:
        undisturbed = cluster.wait_job(cluster.submit(path), seconds=120)

        for name in ("a follower", "the leader"):
            job_id = cluster.submit(path)
            running(cluster, job_id, 500)
            leader = cluster.wait_leader()
            node = leader if name == "the leader" else next(n for n in cluster.nodes if n is not leader)
            status, seconds = node.terminate()
            claims.claim(status == 0, f"SIGTERM of {name}: exit status {status}")
            claims.claim(seconds < 10, f"SIGTERM of {name}: {seconds:.1f} s")
            print(f"SIGTERM of {name}: exit {status} after {seconds:.2f} s", flush=True)
            job = paused(cluster, job_id)
            claims.claim(job["epoch"] is not None and 500 <= job["step"] < 6000 and node.name in (job["reason"] or ""),
                         f"SIGTERM of {name}: a checkpoint of the last step and the reason: {job['step']}, {job['reason']}")
            current = os.path.join(node.job_folder(job_id), "CURRENT")
            claims.claim(open(current).read().strip() == f"epoch-{job['epoch']:08d}",
                         f"SIGTERM of {name}: its own CURRENT is the last one")
            node.start()
            same(cluster.wait_job(job_id, seconds=120), undisturbed, f"SIGTERM of {name}")

        job_id = cluster.submit(path)
        running(cluster, job_id, 300)
        stopping = [(node, node.process.terminate()) for node in cluster.nodes]
        for node, _ in stopping:
            begin = time.monotonic()
            status = node.process.wait(15)
            node.process = None
            claims.claim(status == 0, f"SIGTERM of all: node {node.name} exits {status}")
        for node in cluster.nodes:
            node.start()
        cluster.wait_leader()
        job = cluster.wait_job(job_id, seconds=120)
        same(job, undisturbed, "SIGTERM of all nodes at once")

        for phase in (0.0, 0.05, 0.15, 0.3):
            job_id = cluster.submit(path)
            time.sleep(phase)
            node = cluster.nodes[1]
            status, seconds = node.terminate()
            claims.claim(status == 0 and seconds < 10, f"SIGTERM {phase} s after submission: exit {status}, {seconds:.1f} s")
            node.start()
            same(cluster.wait_job(job_id, seconds=120), undisturbed, f"SIGTERM {phase} s after submission")

        job_id = cluster.submit(path)
        running(cluster, job_id, 300)
        cluster.ctl("job", "pause", str(job_id))
        cluster.wait_job(job_id, states=("paused",), seconds=20)
        job = paused(cluster, job_id)
        claims.claim(job["epoch"] is not None, f"a paused job has a checkpoint: {job['reason']}")
        waiting = cluster.submit(path, node=next(n for n in cluster.nodes if n is not cluster.leader()))
        cluster.ctl("job", "resume", str(job_id))
        same(cluster.wait_job(job_id, seconds=120), undisturbed, "paused and resumed")
        same(cluster.wait_job(waiting, seconds=120), undisturbed, "handed to a follower, queued")

        job_id = cluster.submit(path)
        running(cluster, job_id, 100)
        cluster.ctl("job", "cancel", str(job_id))
        job = cluster.wait_job(job_id, states=("cancelled",), seconds=10)
        claims.claim(job["state"] == "cancelled", "a cancelled job is cancelled")
        same(cluster.wait_job(cluster.submit(path), seconds=120), undisturbed, "after a cancelled one")
claims.end()
