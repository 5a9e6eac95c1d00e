"""A node dies between the votes and the renames, and at each other point of its publication, leader and follower alike; it
comes back, the job ends with the digest of the undisturbed run, and the reader never sees anything half."""
import os
import tempfile

from cluster import BIN, Claims, Cluster, skip
from killing import start_readers, stop_readers, write_job

SHIM = os.path.join(BIN, "tests", "e2e", "libcrash_shim.so")
if not os.path.exists(SHIM):
    skip(f"{SHIM} is not built")

# operation, moment, nth, pattern. /staging/ is where the shard and the manifest are written.
POINTS = [("fsync", moment, nth, "/staging/epoch") for moment in ("before", "after") for nth in (1, 2, 3, 4)]
POINTS += [("renameat", moment, nth, "/epoch-") for moment in ("before", "after") for nth in (1, 2)]
POINTS += [("renameat", moment, nth, "CURRENT") for moment in ("before", "after") for nth in (1, 2)]
POINTS += [("fsync", moment, nth, "CURRENT.new") for moment in ("before", "after") for nth in (1,)]

claims = Claims()
with tempfile.TemporaryDirectory() as folder:
    path = write_job(folder, steps=300, every=100)
    with Cluster(nodes=3) as cluster:
        undisturbed = cluster.wait_job(cluster.submit(path), seconds=120)
    with Cluster(nodes=3) as cluster:
        readers = start_readers(cluster)
        for number, (operation, moment, nth, pattern) in enumerate(POINTS):
            leader = cluster.wait_leader()
            victim = leader if number % 2 == 0 else next(n for n in cluster.nodes if n is not leader)
            victim.kill()
            victim.environment = {"LD_PRELOAD": SHIM, "COPPELIUS_SHIM": f"{operation}:{moment}:{nth}:{pattern}"}
            victim.start()
            cluster.wait_leader()
            job_id = cluster.submit(path, node=next(n for n in cluster.nodes if n is not victim))
            what = f"{moment} {operation} {nth} of {pattern}"
            try:
                cluster.wait_for(lambda: not victim.alive(), 60, f"node {victim.name} to die {what}")
                died = True
            except Exception as error:
                died = False
                print(error)
            claims.claim(died, f"{what}: the node was to die there")
            victim.kill()
            victim.environment = {}
            victim.start()
            job = cluster.wait_job(job_id, seconds=120)
            for key in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective"):
                claims.claim(job[key] == undisturbed[key], f"{what}: {key} differs")
            print(f"{what}, node {victim.name}: generation {job['generation']}", flush=True)
        stop_readers(claims, readers)
claims.end()
