"""Any node may be killed with SIGKILL at any moment and started again, the leader included: the job ends with the digest of
the undisturbed run. All the while an independent reader on each node reads CURRENT and what it names a thousand
times a second: never torn, never gone, never backwards."""
import os
import random
import tempfile
import time

from cluster import LONG, Claims, Cluster
from killing import start_readers, stop_readers, write_job

KILLS = 100 if LONG else 30
seed = int(os.environ.get("COPPELIUS_SEED", random.randrange(1 << 30)))
random.seed(seed)
print(f"seed {seed} (COPPELIUS_SEED repeats it)", flush=True)
claims = Claims()

def wait_running(cluster, job_id):
    def running():
        job = cluster.job_or_none(job_id)
        return job if job and job["state"] in ("running", "finishing", "succeeded") else None
    return cluster.wait_for(running, 60, f"job {job_id} to run")


with tempfile.TemporaryDirectory() as folder:
    job_path = write_job(folder, steps=12000, every=200)
    with Cluster(nodes=3) as cluster:
        begin = time.monotonic()
        undisturbed = cluster.wait_job(cluster.submit(job_path), seconds=300)
        print(f"undisturbed: {time.monotonic() - begin:.1f} s", flush=True)

    kills = leaders = jobs = 0
    with Cluster(nodes=3) as cluster:
        readers = start_readers(cluster)
        while kills < KILLS:
            job_id = cluster.submit(job_path)
            jobs += 1
            while kills < KILLS:
                # Some kills hit the start, most hit the steps and the publications between them.
                job = wait_running(cluster, job_id) if random.random() < 0.7 else cluster.job_or_none(job_id)
                time.sleep(random.uniform(0.0, 1.0))
                job = cluster.job_or_none(job_id) or job
                if job and job["state"] == "succeeded":
                    break
                victim = cluster.leader() if kills % 3 == 0 else random.choice(cluster.nodes)
                victim = victim or random.choice(cluster.nodes)
                leaders += kills % 3 == 0
                victim.kill()
                kills += 1
                time.sleep(random.choice([0.0, random.uniform(0.0, 1.0)]))
                victim.start()
            job = cluster.wait_job(job_id, seconds=180)
            for key in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective"):
                claims.claim(job[key] == undisturbed[key],
                             f"job {job_id}: {key} is {job[key]}, undisturbed {undisturbed[key]}")
            print(f"job {job_id}: {kills} kills so far, generation {job['generation']}", flush=True)
        cluster.wait_for(lambda: all((cluster.job(job_id, node=n)["epoch"] or 0) == job["epoch"] for n in cluster.nodes), 30,
                         "all nodes to have published the last epoch")
        stop_readers(claims, readers)
    print(f"{kills} kills, {leaders} of the leader, {jobs} jobs", flush=True)
claims.end()
