"""Elastic jobs on real daemons: a lost node's coordinates go to the others, one that returns or joins is used from a step
boundary, a drained or removed one is worked around, a spare stands in; without `elastic` the job waits and says for whom. The
digest is the undisturbed run's every time. The disturbed jobs are longer than the test: their newest checkpoint is held against
the undisturbed run's of the same step."""
import os
import tempfile
import time

from cluster import Claims, Cluster, Failed

claims = Claims()
STEPS, EVERY = 150000, 5000


def write_job(folder, name, elastic):
    data = os.path.join(folder, "data.csv")
    with open(data, "w") as f:
        f.write("a,b,c,d,e,f,y\n")
        for i in range(6000):
            x = [(i * k % m) / m for k, m in ((7, 13), (5, 11), (3, 17), (1, 19), (11, 23), (13, 29))]
            f.write(",".join(f"{v:.6f}" for v in x) + f",{x[0] - x[1] + 2 * x[2]:.6f}\n")
    path = os.path.join(folder, f"{name}.yaml")
    with open(path, "w") as f:
        f.write(f"name: {name}\ndata: {{path: {data}, format: csv, header: yes, target: y}}\n"
                f"elastic: {'yes' if elastic else 'no'}\n"
                f"optimizer: {{rate: 0.01, steps: {STEPS}}}\ncheckpoint: {{every: {EVERY}, keep: 32}}\n")
    return path


def workers(cluster, job_id):
    """The names of those that work on it now; None while nobody does, and once it has ended."""
    job = cluster.job_or_none(job_id)
    if job and job["state"] in ("succeeded", "failed", "cancelled"):
        raise Failed(f"job {job_id} {job['state']} too early: {job['reason']}")
    return [p["node"] for p in job["participants"]] if job and job["state"] == "running" else None


def wait_workers(cluster, job_id, names, seconds=45):
    cluster.wait_for(lambda: workers(cluster, job_id) == names, seconds, f"{names} to work on job {job_id}", every=0.1)


def digests(cluster, job_id):
    """By step, of the published checkpoints."""
    node = next(n for n in cluster.nodes if n.alive())
    listed = cluster.ask("checkpoint", "list", str(job_id), node=node)["checkpoints"]
    return {c["step"]: c["parameter_sha256"] for c in listed if c["state"] == "published" and c["step"] % EVERY == 0}


def wait_checkpoint(cluster, job_id):
    """One more; its step and digest."""
    before = max(digests(cluster, job_id), default=0)
    def newer():
        found = digests(cluster, job_id)
        return max(found.items()) if max(found, default=0) > before else None
    return cluster.wait_for(newer, 40, "a checkpoint", every=0.2)


def same(cluster, job_id, what):
    step, digest = wait_checkpoint(cluster, job_id)
    claims.claim(digest == whole[step], f"{what}: step {step} has digest {digest} instead of {whole[step]}")


def end(cluster, job_id):
    cluster.ctl("job", "cancel", str(job_id))
    cluster.wait_job(job_id, ("cancelled",), seconds=30)


with tempfile.TemporaryDirectory() as folder:
    elastic = write_job(folder, "elastic", True)
    waiting = write_job(folder, "waiting", False)
    with Cluster(nodes=1) as cluster:
        job_id = cluster.submit(elastic)
        cluster.wait_job(job_id, seconds=600)  # a sanitizer takes its time
        whole = digests(cluster, job_id)
    claims.claim(len(whole) == STEPS // EVERY, f"the undisturbed run keeps all its checkpoints: {len(whole)}")

    with Cluster(nodes=3) as cluster:
        a, b, c = cluster.nodes

        # A node is lost: the others go on, with its coordinates, from the last checkpoint. It returns and is used again.
        job_id = cluster.submit(elastic)
        wait_workers(cluster, job_id, ["a", "b", "c"])
        wait_checkpoint(cluster, job_id)
        lost = c if cluster.leader() is not c else b
        rest = sorted(n.name for n in cluster.nodes if n is not lost)
        begin = time.monotonic()
        lost.kill()
        wait_workers(cluster, job_id, rest)
        print(f"two of three went on {time.monotonic() - begin:.1f} s after the kill", flush=True)
        same(cluster, job_id, "one was lost")
        lost.start()
        begin = time.monotonic()
        wait_workers(cluster, job_id, ["a", "b", "c"])
        print(f"three again {time.monotonic() - begin:.1f} s after its start", flush=True)
        same(cluster, job_id, "it returned")

        # Drained: worked around; undrained: used. Then it is removed for good.
        cluster.ctl("node", "drain", lost.name)
        wait_workers(cluster, job_id, rest)
        claims.claim(cluster.member(lost.name)["drained"], "it is said to be drained")
        same(cluster, job_id, "it was drained")
        cluster.ctl("cluster", "undrain", lost.name)
        wait_workers(cluster, job_id, ["a", "b", "c"])
        other = next(n for n in cluster.nodes if n is not lost)
        cluster.ctl("cluster", "remove", lost.name, node=other)
        wait_workers(cluster, job_id, rest)
        same(cluster, job_id, "it was removed")
        end(cluster, job_id)

    # A node whose device does not pass its self-test works on nothing; the others do not wait for it where they need not.
    with Cluster(nodes=3, device=["cpu", "cpu", "GPU-00112233-4455-6677-8899-aabbccddeeff"]) as cluster:
        a, b, c = cluster.nodes
        cluster.wait_for(lambda: "selftest.failed" in c.log_text(), 30, "c's self-test to fail")

        def known():  # b has said what it is, and is heard: else the job would wait for it too
            seen = next(n for n in cluster.ask("nodes", node=a)["nodes"] if n["name"] == b.name)
            return seen["incarnation"] is not None and seen["state"] == "alive"
        cluster.wait_for(known, 30, "a to know b")
        said = cluster.ctl("submit", waiting, node=a).stdout
        claims.claim(said.rstrip().endswith("submitted: waits for node c"), f"submit says who is missing: {said}")
        job_id = cluster.job("waiting", node=a)["job"]
        for node in (a, b):  # whoever leads
            def waits():
                job = cluster.job(job_id, node=node)
                return job["state"] == "submitted" and job["reason"] == "waits for node c"
            cluster.wait_for(waits, 20, f"the job to say at {node.name} that it waits for the node without a device")
        cluster.ctl("job", "cancel", str(job_id), node=a)
        job_id = cluster.submit(elastic, node=a)
        wait_workers(cluster, job_id, ["a", "b"])
        wait_checkpoint(cluster, job_id)
        time.sleep(5)  # More than who comes has to be there for.
        claims.claim(workers(cluster, job_id) == ["a", "b"] and cluster.job(job_id, node=a)["generation"] == 1 and c.alive(),
                     f"nor does it join later: {workers(cluster, job_id)}")
        c.kill()
        cluster.devices[2] = "cpu"
        c.write_config()
        c.start()
        wait_workers(cluster, job_id, ["a", "b", "c"])
        same(cluster, job_id, "with the device it is used")
        end(cluster, job_id)

    # A spare stands in where a job is elastic; without `elastic` the job waits for its node and says so.
    with Cluster(nodes=3, roles={"c": "spare"}) as cluster:
        a, b, c = cluster.nodes
        job_id = cluster.submit(elastic)
        wait_workers(cluster, job_id, ["a", "b"])
        claims.claim(not cluster.member("c")["votes"], "a spare does not vote")
        wait_checkpoint(cluster, job_id)
        cluster.ctl("node", "drain", "b", node=a)
        wait_workers(cluster, job_id, ["a", "c"])
        same(cluster, job_id, "a spare stands in")
        cluster.ctl("node", "undrain", "b", node=a)
        wait_workers(cluster, job_id, ["a", "b"])
        same(cluster, job_id, "and goes again")
        end(cluster, job_id)

        job_id = cluster.submit(waiting)
        wait_workers(cluster, job_id, ["a", "b"])
        wait_checkpoint(cluster, job_id)
        cluster.ctl("node", "drain", "b", node=a)
        job = cluster.wait_job(job_id, ("paused",), seconds=40)
        claims.claim("'b' is drained" in job["reason"], f"without elastic it waits and says for whom: {job['reason']}")
        time.sleep(2)
        claims.claim(cluster.job(job_id)["state"] == "paused", "and goes on waiting")
        cluster.ctl("node", "undrain", "b", node=a)
        wait_workers(cluster, job_id, ["a", "b"])
        same(cluster, job_id, "after the wait")
        end(cluster, job_id)
claims.end()
