"""A part of a daemon that is slower than the others. A loop slower than the job: a run of a few steps has ended before the
loop's first turn could say that it runs, and the job still ends. A disk slower than a stop: while the stop waits for a write
under way, questions are answered, and the node exits with 0."""
import os
import signal
import tempfile
import time

from cluster import Claims, Cluster, Failed, need_preload
from killing import write_job

SHIM = need_preload("fault_shim")
claims = Claims()


def slow(node, kind, pattern, milliseconds):
    node.environment = {"LD_PRELOAD": SHIM, "COPPELIUS_FAULT": f"{kind}:slow:1:{pattern}", "COPPELIUS_FAULT_ROOT": node.folder,
                        "COPPELIUS_FAULT_SLOW_MS": str(milliseconds), "COPPELIUS_FAULT_REPORT": os.path.join(node.folder, "report")}


def slow_loop(folder):
    path = write_job(folder, steps=1, every=1000, name="short")
    with Cluster(nodes=1, start=False) as cluster:
        for node in cluster.nodes:
            slow(node, "write", "log.txt", 400)  # Each line that the loop logs: "phase=step" among them.
        cluster.start(seconds=60)
        jobs = [cluster.submit(path)]
        for _ in range(3):
            try:
                job = cluster.wait_job(jobs[-1], seconds=60)
                claims.claim(job["state"] == "succeeded", f"a short job under slow loops ends as {job['state']}")
            except Failed as error:
                claims.claim(False, f"a short job under slow loops: {error}")
                break
            jobs.append(cluster.submit(path))
        print(f"{len(jobs)} short jobs", flush=True)


def slow_disk(folder):
    path = write_job(folder, steps=1000000, every=200, name="long")
    with Cluster(nodes=1, start=False) as cluster:
        node = cluster.nodes[0]
        slow(node, "fsync", ".part", 4000)
        cluster.start()
        job_id = cluster.submit(path)
        report = os.path.join(node.folder, "report")
        cluster.wait_for(lambda: os.path.exists(report) and "struck" in open(report).read(), 60, "a shard's fsync")
        node.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        node.process.send_signal(signal.SIGINT)  # Hurry: everything closes that can.
        asked = 0
        begin = time.monotonic()
        while node.process.poll() is None and time.monotonic() - begin < 30:
            for question in (["job", "show", str(job_id)], ["nodes"], ["cluster", "status"], ["doctor"]):
                answer = cluster.ctl(*question, "--json", node=node, check=False)
                asked += answer.returncode in (0, 3)
        status = node.process.wait(1)
        node.process = None
        claims.claim(status == 0, f"asked while its stop waits for the disk, the node exits with {status}")
        claims.claim(asked > 0, "it answered in that time")
        print(f"{asked} answers while the stop waited {time.monotonic() - begin:.1f} s", flush=True)


with tempfile.TemporaryDirectory() as folder:
    slow_disk(folder)
    slow_loop(folder)
claims.end()
