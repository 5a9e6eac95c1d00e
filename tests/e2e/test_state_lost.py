"""What a node does whose state folder was lost or damaged while it was down: it ends with a sentence, or it catches up; it
never begins anew in silence, and no job waits without a reason."""
import glob
import os
import shutil
import tempfile

from cluster import Claims, Cluster

claims = Claims()


def write_job(folder, steps, every):
    data = os.path.join(folder, "data.csv")
    with open(data, "w") as f:
        f.write("a,b,c,d,y\n")
        for i in range(500):
            x = [(i * 7 % 13) / 13, (i * 5 % 11) / 11, (i * 3 % 17) / 17, (i % 19) / 19]
            f.write(",".join(f"{v:.6f}" for v in x) + f",{x[0] - x[1] + 2 * x[2]:.6f}\n")
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as f:
        f.write(f"name: lost\ndata: {{path: {data}, format: csv, header: yes, target: y}}\n"
                f"optimizer: {{rate: 0.01, steps: {steps}}}\ncheckpoint: {{every: {every}}}\n")
    return path


def wipe(node):
    shutil.rmtree(node.state)
    os.makedirs(node.state)


def cut_last_batch(node):
    segment = sorted(glob.glob(os.path.join(node.state, "log", "segment-*")))[-1]
    os.truncate(segment, os.path.getsize(segment) - 1)


def remove(*parts):
    def action(node):
        shutil.rmtree(os.path.join(node.state, *parts))
    return action


def ended(cluster, node, what, status, sentence):
    """It ends by itself with the status and the sentence; started again it does the same."""
    for again in ("", ", started again"):
        node.process = None
        node.start()
        cluster.wait_for(lambda: not node.alive(), 20, f"node {node.name} to end: {what}{again}")
        claims.claim(node.process.returncode == status, f"{what}{again}: exit status {node.process.returncode}")
        claims.claim(sentence in node.log_text(), f"{what}{again}: the log says '{sentence}'")
    node.process = None


def reason_of(cluster, job_id, node):
    job = cluster.job(job_id, node=node)
    return job if job["state"] in ("paused", "failed") and job["reason"] else None


with tempfile.TemporaryDirectory() as folder:
    long_job = write_job(folder, steps=2000000, every=400)
    for what, damage, status, sentence in (("an empty folder", wipe, 7, "knows this node"),
                                           ("a folder without log", remove("log"), 7, "the log of node")):
        for leads in (False, True):
            with Cluster(nodes=3) as cluster:
                job_id = cluster.submit(long_job)
                cluster.wait_for(lambda: (cluster.job(job_id)["epoch"] or 0) >= 1, 60, "a checkpoint")
                leader = cluster.wait_leader()
                node = leader if leads else next(n for n in cluster.nodes if n is not leader)
                other = next(n for n in cluster.nodes if n is not node)
                node.kill()
                damage(node)
                ended(cluster, node, what, status, sentence)
                job = cluster.wait_for(lambda: reason_of(cluster, job_id, other), 15, "the job's reason")
                claims.claim(node.name in job["reason"], f"{what}: the job says why: {job['reason']}")

    with Cluster(nodes=3) as cluster:
        job_id = cluster.submit(long_job)
        cluster.wait_for(lambda: (cluster.job(job_id)["epoch"] or 0) >= 1, 60, "a checkpoint")
        node = next(n for n in cluster.nodes if n is not cluster.leader())
        node.kill()
        remove("jobs")(node)
        node.start()
        cluster.wait_for(lambda: "publish.repaired" in node.log_text(), 30, "its shards to come back from the copies")
        before = cluster.job(job_id)["epoch"] or 0
        cluster.wait_for(lambda: (cluster.job(job_id)["epoch"] or 0) > before, 30, "the job to go on")

    short_job = write_job(folder, steps=3000, every=400)
    with Cluster(nodes=3) as cluster:
        undisturbed = cluster.wait_job(cluster.submit(short_job), seconds=60)
        job_id = cluster.submit(short_job)
        cluster.wait_for(lambda: (cluster.job(job_id)["epoch"] or 0) >= 1, 60, "a checkpoint")
        leader = cluster.wait_leader()
        node = next(n for n in cluster.nodes if n is not leader)
        node.kill()
        cut_last_batch(node)  # Not to be told from a torn tail: what it had acknowledged comes back from the leader.
        node.start()
        job = cluster.wait_job(job_id, seconds=60)
        claims.claim(job["parameter_sha256"] == undisturbed["parameter_sha256"], "a cut log: the same digest")

    # CURRENT damaged: it names the newest epoch again. What hinders a publication is the job's reason, and it goes on after.
    with Cluster(nodes=3) as cluster:
        job_id = cluster.submit(short_job)
        cluster.wait_for(lambda: (cluster.job(job_id)["epoch"] or 0) >= 1, 60, "a checkpoint")
        node = next(n for n in cluster.nodes if n is not cluster.leader())
        hindrance = os.path.join(node.job_folder(job_id), "CURRENT.new", "x")
        node.kill()
        with open(os.path.join(node.job_folder(job_id), "CURRENT"), "w") as f:
            f.write("epoch-00009999\n")
        os.makedirs(hindrance)
        node.start()
        job = cluster.wait_for(lambda: (lambda j: j if j and "get no further" in (j["reason"] or "") else None)(
            cluster.job_or_none(job_id)),
                               20, "the job's reason")
        claims.claim(f"node {node.name}: " in job["reason"], f"what hinders it is named: {job['reason']}")
        shutil.rmtree(os.path.dirname(hindrance))
        job = cluster.wait_job(job_id, seconds=60)
        claims.claim(job["parameter_sha256"] == undisturbed["parameter_sha256"], "a damaged CURRENT: the same digest")
        with open(os.path.join(node.job_folder(job_id), "CURRENT")) as f:
            text = f.read()
        claims.claim(text == f"epoch-{job['epoch']:08d}\n", f"a damaged CURRENT is right again: {text!r}")

    # A cluster whose first start is spread over time: who comes late is no stranger.
    with Cluster(nodes=3, start=False) as cluster:
        cluster.nodes[0].start()
        cluster.nodes[1].start()
        cluster.wait_leader(20)
        cluster.nodes[2].start()
        cluster.wait_job(cluster.submit(short_job), seconds=60)
claims.end()
