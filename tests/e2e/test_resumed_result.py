"""What is said of a job's end is about the job: an interruption changes nothing in it."""
import os
import tempfile

from cluster import Claims, Cluster

ROWS = 20000
claims = Claims()
with tempfile.TemporaryDirectory() as folder:
    data = os.path.join(folder, "data.csv")
    with open(data, "w") as f:
        # The first step's loss is large, the last one's small, those between are nothing.
        f.write("a,b,y\n")
        for i in range(ROWS):
            f.write(f"{i % 7},{i % 5},{1000 if i == 0 else 1 if i == ROWS - 1 else 0}\n")
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as f:
        f.write(f"name: one\ndata: {{path: {data}, format: csv, header: yes, target: y}}\n"
                f"optimizer: {{rate: 1e-9, batch: 1, steps: {ROWS}}}\ncheckpoint: {{every: 1000}}\n")
    with Cluster(nodes=2) as cluster:
        undisturbed = cluster.wait_job(cluster.submit(path), seconds=60)
        claims.claim(undisturbed["reason"] is None, f"undisturbed: {undisturbed['reason']}")
        job_id = cluster.submit(path)
        cluster.wait_for(lambda: (cluster.job(job_id)["epoch"] or 0) >= 1, 30, "a checkpoint")
        cluster.ctl("job", "pause", str(job_id))
        cluster.wait_job(job_id, states=("paused",), seconds=20)
        cluster.ctl("job", "resume", str(job_id))
        job = cluster.wait_job(job_id, seconds=60)
        for key in ("reason", "loss_hex", "first_loss", "parameter_sha256"):
            claims.claim(job[key] == undisturbed[key], f"paused and resumed: {key} is {job[key]}, undisturbed {undisturbed[key]}")

        job_id = cluster.submit(path)
        cluster.wait_for(lambda: (cluster.job(job_id)["epoch"] or 0) >= 1, 30, "a checkpoint")
        for node in cluster.nodes:
            node.kill()
        for node in cluster.nodes:
            node.start()
        cluster.wait_leader()
        job = cluster.wait_job(job_id, seconds=60)
        for key in ("reason", "loss_hex", "first_loss", "parameter_sha256"):
            claims.claim(job[key] == undisturbed[key], f"killed: {key} is {job[key]}, undisturbed {undisturbed[key]}")
claims.end()
