"""SIGTERM in every phase of a job: import, load, connect, first step, exchange, preparing, deciding, publishing, paused; once
and twice in a row; of a follower and of the leader. The node exits with 0 within 10 s, the others are told, the last
step is published where there is one, and the job goes on by itself when the node is back, to the digest of the
undisturbed run. Where no majority is left the node says what is kept."""
import os
import re
import signal
import subprocess
import tempfile
import time

from cluster import Claims, Cluster, Failed, need_preload
from killing import write_job

SHIM = need_preload("fault_shim")

STOP_S = 10.0
KEYS = ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective")
claims = Claims()

# phase, the victim's call that raises SIGTERM, whether the job has done a step by then
PHASES = [
    ("import", "write:term:2:cache/", False),
    ("load", "open:term:1:cache/", False),
    ("exchange", "send:term:1500:", True),
    ("exchange, twice", "send:term2:1500:", True),
    ("preparing", "write:term:1:.part", True),
    ("deciding", "dirsync:term:1:/staging/epoch-", True),
    ("publishing", "create:term:1:manifest.json", True),
    ("publishing, twice", "rename:term2:1:CURRENT", True),
]


def exits(node, what, begin, frozen=None):
    """Status 0 in time, from a SIGTERM that is on its way; the others know why it is gone."""
    try:
        status = node.process.wait(3 * STOP_S)
    except subprocess.TimeoutExpired:
        claims.claim(False, f"{what}: node {node.name} does not end")
        node.kill()
        return
    node.process = None
    seconds = time.monotonic() - begin
    claims.claim(status == 0, f"{what}: node {node.name} exits with {status}")
    claims.claim(seconds < STOP_S, f"{what}: node {node.name} takes {seconds:.1f} s")
    print(f"{what}: {node.name} exits with {status} after {seconds:.2f} s", flush=True)
    others = [n for n in node.cluster.nodes if n not in (node, frozen) and n.alive()]

    def told():
        return all(f"node {node.name} is gone: it was asked to stop" in "".join(n.log_text().splitlines(True)[-60:]) for n in others)
    try:
        node.cluster.wait_for(told, 8, f"{what}: the others to say that it was asked to stop")
    except Failed as error:
        claims.claim(False, str(error))


def job_told(cluster, victim, job_id, what, since):
    def told():
        return all(re.search(rf"node {victim.name} is stopping|\"(paused|succeeded)", n.log_text()[since[n.name]:])
                   for n in cluster.nodes if n is not victim)
    try:
        cluster.wait_for(told, 5, f"{what}: the others to be told")
    except Failed as error:
        claims.claim(False, str(error))


def kept(cluster, victim, job_id, what):
    """The job is paused with the last step published, on the stopped node's disk too."""
    def paused():
        job = cluster.job_or_none(job_id)
        return job if job and job["state"] in ("paused", "succeeded") and job["epoch"] is not None else None
    job = cluster.wait_for(paused, 10, f"{what}: the job to be paused with its checkpoint")
    claims.claim(job["step"] > 0 and (job["state"] == "succeeded" or victim.name in (job["reason"] or "")),
                 f"{what}: {job['state']} at step {job['step']}: {job['reason']}")  # It may have been the very last step.
    with open(os.path.join(victim.job_folder(job_id), "CURRENT")) as f:
        claims.claim(f.read().strip() == f"epoch-{job['epoch']:08d}", f"{what}: its own CURRENT is the last one")
    epoch = next(e for e in cluster.ask("checkpoint", "list", str(job_id))["checkpoints"] if e["epoch"] == job["epoch"])
    claims.claim(epoch["step"] == job["step"], f"{what}: the last step {job['step']} is published, not {epoch['step']}")


def goes_on(cluster, job_id, undisturbed, what):
    job = cluster.wait_job(job_id, seconds=120)
    for key in KEYS:
        claims.claim(job[key] == undisturbed[key], f"{what}: {key} is {job[key]}, undisturbed {undisturbed[key]}")


def at_calls(path, folder, undisturbed):
    with Cluster(nodes=3) as cluster:
        for number, (phase, plan, stepped) in enumerate(PHASES):
            leader = cluster.wait_leader()
            victim = leader if number % 2 else next(n for n in cluster.nodes if n is not leader)
            report = os.path.join(folder, f"report-{number}")
            victim.kill()
            if phase == "import":
                subprocess.run(["rm", "-rf", os.path.join(victim.state, "cache")], check=True)
            victim.environment = {"LD_PRELOAD": SHIM, "COPPELIUS_FAULT": plan, "COPPELIUS_FAULT_ROOT": victim.state,
                                  "COPPELIUS_FAULT_ASIDE": folder, "COPPELIUS_FAULT_REPORT": report}
            victim.start()
            victim.environment = {}
            cluster.wait_leader()
            cluster.wait_alive()
            what = f"SIGTERM while {phase} ({'the leader' if number % 2 else 'a follower'})"
            since = {n.name: len(n.log_text()) for n in cluster.nodes}
            job_id = cluster.submit(path, node=next(n for n in cluster.nodes if n is not victim))
            cluster.wait_for(lambda: os.path.exists(report), 30, f"{what}: the call to come", every=0.005)
            exits(victim, what, time.monotonic())
            job_told(cluster, victim, job_id, what, since)
            if stepped:
                kept(cluster, victim, job_id, what)
            else:
                job = cluster.job_or_none(job_id)
                claims.claim(job["state"] == "paused" and victim.name in job["reason"], f"{what}: {job['state']}: {job['reason']}")
            victim.start()
            goes_on(cluster, job_id, undisturbed, what)


def at_states(path, undisturbed):
    with Cluster(nodes=3) as cluster:
        # Connect: the others wait for one that stands still.
        first, second, third = cluster.nodes
        job_id = cluster.submit(path)
        cluster.wait_for(lambda: "phase=load" in third.log_text(), 30, "load", every=0.001)
        third.signal(signal.SIGSTOP)
        cluster.wait_for(lambda: "phase=connect" in first.log_text(), 30, "connect", every=0.001)
        begin = time.monotonic()
        first.signal(signal.SIGTERM)
        exits(first, "SIGTERM while connecting", begin, frozen=third)
        third.signal(signal.SIGCONT)
        first.start()
        goes_on(cluster, job_id, undisturbed, "SIGTERM while connecting")

        # The first step.
        since = len(second.log_text())
        job_id = cluster.submit(path)
        cluster.wait_for(lambda: "phase=step" in second.log_text()[since:], 30, "a step", every=0.001)
        begin = time.monotonic()
        second.signal(signal.SIGTERM)
        exits(second, "SIGTERM at the first step", begin)
        kept(cluster, second, job_id, "SIGTERM at the first step")
        second.start()
        goes_on(cluster, job_id, undisturbed, "SIGTERM at the first step")

        # Paused by a person: the node just goes; the job stays paused, and goes on when it is let.
        job_id = cluster.submit(path)
        cluster.wait_for(lambda: (cluster.job(job_id)["step"] or 0) > 100, 30, "steps")
        cluster.ctl("job", "pause", str(job_id))
        cluster.wait_job(job_id, states=("paused",), seconds=20)
        begin = time.monotonic()
        second.signal(signal.SIGTERM)
        exits(second, "SIGTERM while paused", begin)
        second.start()
        cluster.wait_alive()
        claims.claim(cluster.job(job_id)["state"] == "paused", "a job that a person paused stays paused")
        cluster.ctl("job", "resume", str(job_id))
        goes_on(cluster, job_id, undisturbed, "SIGTERM while paused")

        # No majority: what is kept is said.
        job_id = cluster.submit(path)
        cluster.wait_for(lambda: (cluster.job(job_id)["epoch"] or 0) > 0, 30, "an epoch")
        second.kill()
        third.kill()
        begin = time.monotonic()
        first.signal(signal.SIGTERM)
        exits(first, "SIGTERM without a majority", begin)
        said = re.findall(r"daemon.kept .*", first.log_text())[-1:]
        claims.claim(bool(said) and "no majority" in said[0] and re.search(r"epoch \d+ of step \d+ is kept", said[0]) is not None,
                     f"without a majority it says what is kept: {said}")
        for node in cluster.nodes:
            node.start()
        goes_on(cluster, job_id, undisturbed, "SIGTERM without a majority")


with tempfile.TemporaryDirectory() as folder:
    path = write_job(folder, steps=4000, every=2000)
    with Cluster(nodes=3) as cluster:
        undisturbed = cluster.wait_job(cluster.submit(path), seconds=120)
    at_calls(path, folder, undisturbed)
    at_states(path, undisturbed)
claims.end()
