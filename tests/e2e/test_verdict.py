"""The flight recorder: when a job pauses or fails, every node has one verdict: who, when, at what step, in what phase,
why, with the records of all that answered; as a file, in `job show` for people and as JSON. It is written although the
leader is the one that died, and it is there after a restart."""
import json
import os
import re
import signal
import tempfile
import time

from cluster import BIN, Claims, Cluster, sanitized
from killing import write_job

claims = Claims()
SHIM = os.path.join(BIN, "tests", "e2e", "libfault_shim.so")


def slow_logs(cluster):
    """A line of the log takes 3 ms: what is recorded before and after it has another time."""
    for node in cluster.nodes if os.path.exists(SHIM) and not sanitized() else []:
        node.environment = {"LD_PRELOAD": SHIM, "COPPELIUS_FAULT": "write:slow:1:log.txt", "COPPELIUS_FAULT_ROOT": node.folder,
                            "COPPELIUS_FAULT_SLOW_MS": "3", "COPPELIUS_FAULT_REPORT": os.path.join(node.folder, "report")}


def training(cluster, job_id):
    def steps():
        job = cluster.job_or_none(job_id)
        return job if job and job["state"] == "running" and (job["step"] or 0) > 200 else None
    job = cluster.wait_for(steps, 60, "the job to train")
    time.sleep(1.2)  # A pulse of each node.
    return job


def verdict_of(cluster, job_id, node, generation):
    """The newest verdict at that node, once it is of that generation or a later one."""
    run = cluster.ctl("job", "show", str(job_id), "--json", node=node, check=False)
    verdict = json.loads(run.stdout).get("verdict") if run.returncode == 0 else None
    return verdict if verdict and verdict["generation"] >= generation and verdict["file"] else None


def check(cluster, job_id, nodes, generation, who, what, state="paused", phase="step"):
    found = {}
    for node in nodes:
        verdict = cluster.wait_for(lambda: verdict_of(cluster, job_id, node, generation), 15, f"{what}: a verdict at {node.name}")
        found[node.name] = verdict
        claims.claim(verdict["generation"] == generation and verdict["state"] == state, f"{what}: of that pause: {verdict}")
        claims.claim(verdict["who"] == who, f"{what}: {node.name} says who: {verdict['who']}, not {who}: {verdict['why']}")
        claims.claim(verdict["phase"] == phase and (phase != "step" or verdict["step"] > 0 and verdict["sent_bytes"] > 0),
                     f"{what}: step, phase, bytes: {verdict['step']} {verdict['phase']} {verdict['sent_bytes']}")
        claims.claim(bool(verdict["why"]) and verdict["at_ms"] > 0, f"{what}: why and when: {verdict['why']}")
        with open(verdict["file"]) as f:
            file = json.load(f)
        claims.claim(file["who"] == who and file["job"] == job_id, f"{what}: the file says the same")
        for entry in file["nodes"]:
            records = entry["records"]
            claims.claim(entry["answered"] == bool(records), f"{what}: who answers has records: {entry['name']}")
            claims.claim(all(a["at_ms"] <= b["at_ms"] for a, b in zip(records, records[1:])), f"{what}: in order of time")
    by = {(v["by"], v["at_ms"], v["step"]) for v in found.values()}
    claims.claim(len(by) == 1, f"{what}: it is one verdict: {by}")
    print(f"{what}: {next(iter(found.values()))['who']} at step {next(iter(found.values()))['step']}, by {by.pop()[0]}: "
          f"{next(iter(found.values()))['why']}", flush=True)
    return found


with tempfile.TemporaryDirectory() as folder:
    path = write_job(folder, steps=10000000, every=2000)
    with Cluster(nodes=3, start=False) as cluster:
        slow_logs(cluster)
        cluster.start()
        job_id = cluster.submit(path)
        for what in ("a follower killed", "the leader killed"):
            job = training(cluster, job_id)
            leader = cluster.wait_leader()
            victim = leader if "leader" in what else next(n for n in cluster.nodes if n is not leader)
            others = [n for n in cluster.nodes if n is not victim]
            victim.kill()
            found = check(cluster, job_id, others, job["generation"], victim.name, what)
            for verdict in found.values():
                answered = {n["name"] for n in verdict["nodes"] if n["answered"]}
                claims.claim(answered >= {n.name for n in others}, f"{what}: the survivors' records are in it: {answered}")
                pulses = [n for n in verdict["nodes"] if n["name"] != victim.name and n["step"]]
                claims.claim(len(pulses) == 2, f"{what}: how far the others were: {pulses}")
            victim.start()

            def told():
                return verdict_of(cluster, job_id, victim, job["generation"])
            cluster.wait_for(told, 20, f"{what}: the returning node to be told")

        shown = cluster.ctl("job", "show", str(job_id)).stdout
        claims.claim(re.search(rf"^verdict +node {victim.name} at step \d+, phase step, .* UTC: ", shown, re.M) is not None
                     and "LAST WORDS" in shown, f"job show prints it: {shown}")

        # A restart of everybody keeps it.
        before = verdict_of(cluster, job_id, cluster.nodes[0], 0)
        job = training(cluster, job_id)
        for node in cluster.nodes:
            node.signal(signal.SIGKILL)
            node.kill()
            node.start()
        cluster.wait_leader()
        after = cluster.wait_for(lambda: verdict_of(cluster, job_id, cluster.nodes[0], before["generation"]), 20, "a verdict")
        claims.claim(after["generation"] >= before["generation"], "the verdict outlives the processes")

        # Somebody wanted it: nobody is to blame.
        job = training(cluster, job_id)
        cluster.ctl("job", "pause", str(job_id))
        check(cluster, job_id, cluster.nodes, job["generation"], None, "paused by a person", phase="publish")
        claims.claim("nobody is to blame" in cluster.ctl("job", "show", str(job_id)).stdout, "job show says that nobody is to blame")
        cluster.ctl("job", "cancel", str(job_id))

    # The leader dies before it has written what it saw: the next one writes it.
    with Cluster(nodes=5) as cluster:
        job_id = cluster.submit(path)
        job = training(cluster, job_id)
        leader = cluster.wait_leader()
        victim = next(n for n in cluster.nodes if n is not leader)
        others = [n for n in cluster.nodes if n not in (leader, victim)]
        victim.kill()

        def paused():
            return cluster.ask("job", "show", str(job_id), node=others[0])["state"] == "paused"
        cluster.wait_for(paused, 10, "the job to be paused", every=0.01)
        leader.kill()
        found = check(cluster, job_id, others, job["generation"], victim.name, "the leader dies with it")
        claims.claim(all(v["by"] in [n.name for n in others] for v in found.values()), "the next leader has written it")

    # A failure, in the import already.
    with Cluster(nodes=2) as cluster:
        bad = os.path.join(folder, "bad.csv")
        with open(bad, "w") as f:
            f.write("1,2\n3,x\n")
        text = f"name: bad\ndata: {{path: {bad}, format: csv, target: last}}\noptimizer: {{rate: 0.1, steps: 10}}\n"
        with open(os.path.join(folder, "bad.yaml"), "w") as f:
            f.write(text)
        job_id = cluster.submit(os.path.join(folder, "bad.yaml"))
        job = cluster.wait_job(job_id, states=("failed",), seconds=20)
        who = re.match(r"node (\w)", job["reason"])[1]
        check(cluster, job_id, cluster.nodes, job["generation"], who, "bad data", state="failed", phase="import")
claims.end()
