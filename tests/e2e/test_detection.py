"""A node that is killed, cut off (both ways, either way alone), out of memory, or whose data connections alone die: within
5 s every survivor names it, with step, phase and bytes, in its log, in `coppeliusctl nodes` and in a metric; within 15 s
the job runs on or is paused with the reason, and nobody burns CPU meanwhile. Under 30 % loss a node is named only where it
missed a deadline. (Frozen nodes: test_frozen.)"""
import json
import re
import tempfile
import time

import network
from cluster import Claims
from killing import write_job

network.enter()

NAMED_S = 5.0
ASKED_S = 8.0  # seen by somebody who asks: each question starts a program, on a machine that may be busy
SETTLED_S = 15.0
WATCHED_S = 2.0
BUSY = 0.2  # of a core: a daemon that waits
claims = Claims()


def named_in_log(node, victim, since):
    found = re.findall(rf'text="node {victim.name} (?:is gone|is lost to the exchange|has failed): [^"]*', node.log_text()[since:])
    return found[0] if found else None


def lost_metric(node, victim):
    """(phase, step, bytes) that the metrics of the node have of the lost one, or None."""
    text = node.metrics()
    phase = re.search(rf'^coppelius_peer_lost{{peer="{victim.name}",job="\d+",phase="([a-z]*)"}} 1$', text, re.M)
    step = re.search(rf'^coppelius_peer_lost_step{{peer="{victim.name}"}} (\d+)$', text, re.M)
    size = re.search(rf'^coppelius_peer_lost_sent_bytes{{peer="{victim.name}"}} (\d+)$', text, re.M)
    return (phase[1], int(step[1]), int(size[1])) if phase and step and size else None


def lost_listed(cluster, node, victim):
    listed = next(n for n in cluster.ask("nodes", node=node)["nodes"] if n["name"] == victim.name)
    return listed if listed["lost"] and listed["reason"] else None


def training(cluster, job_id, nodes=None):
    first = [None]

    def steps():
        for node in nodes or cluster.nodes:
            run = cluster.ctl("job", "show", str(job_id), "--json", node=node, check=False)
            if run.returncode == 0:
                job = json.loads(run.stdout)
                step = job["step"] or 0
                if job["state"] != "running":
                    first[0] = None
                elif first[0] is None:
                    first[0] = step
                elif step > first[0]:
                    return job
        return None
    return cluster.wait_for(steps, 60, f"job {job_id} to train", every=0.1)


def watch(cluster, victim, what, begin, since, in_step=True):
    """Every survivor names the victim in time; what it says has step, phase and bytes."""
    survivors = [n for n in cluster.nodes if n is not victim]
    logged, metric, listed = {}, {}, {}
    while min(len(listed), len(logged)) < len(survivors) and time.monotonic() - begin < 4 * NAMED_S:
        for node in survivors:
            if node.name not in logged:
                said = named_in_log(node, victim, since[node.name])
                if said:
                    logged[node.name] = (time.monotonic() - begin, said)
            if node.name not in metric and lost_metric(node, victim):
                metric[node.name] = (time.monotonic() - begin, lost_metric(node, victim))
            if node.name in metric and node.name not in listed:
                found = lost_listed(cluster, node, victim)
                if found:
                    listed[node.name] = (time.monotonic() - begin, found)
        time.sleep(0.05)
    begin_ms = 1000 * (time.time() - (time.monotonic() - begin))
    for node in survivors:
        seconds, said = logged.get(node.name, (float("inf"), ""))
        if node.name in listed:  # When it was named, rather than when this program came to look.
            seconds = min(seconds, (listed[node.name][1]["lost"]["at_ms"] - begin_ms) / 1000)
        print(f"{what}: {node.name} names {victim.name} after {seconds:.1f} s: {said!r}", flush=True)
        claims.claim(seconds <= NAMED_S, f"{what}: the log of {node.name} names {victim.name} within {NAMED_S} s: {seconds:.1f}")
        words = (r"step \d+", r"phase [a-z]+" if "last heard" in said else r"(values|answer|owes|residual|connect)", r"\d+ (of \d+ )?bytes")
        for word in words:
            claims.claim(re.search(word, said) is not None, f"{what}: the log of {node.name} tells '{word}': {said}")
        seconds, values = metric.get(node.name, (float("inf"), ("", 0, 0)))
        claims.claim(seconds <= ASKED_S, f"{what}: the metric of {node.name} within {ASKED_S} s: {seconds:.1f}")
        claims.claim(not in_step or (values[0] == "step" and values[1] > 0 and values[2] > 0),
                     f"{what}: the metric of {node.name} has phase, step, bytes: {values}")
        seconds, entry = listed.get(node.name, (float("inf"), None))
        claims.claim(seconds <= ASKED_S + 2, f"{what}: `nodes` at {node.name}: {seconds:.1f} s")
        told = (entry["lost"]["at_ms"] - begin_ms) / 1000 if entry else float("inf")
        claims.claim(told <= NAMED_S, f"{what}: `nodes` and the metrics of {node.name} have it within {NAMED_S} s: {told:.1f}")
        claims.claim(entry is not None and entry["lost"]["phase"] and entry["lost"]["sent_bytes"] is not None,
                     f"{what}: `nodes` at {node.name} has phase and bytes: {entry and entry['lost']}")


def settled(cluster, job_id, victim, what, begin, generation):
    survivors = [n for n in cluster.nodes if n is not victim]

    def is_settled():
        job = cluster.ask("job", "show", str(job_id), node=survivors[0])
        ended = job["state"] in ("paused", "failed") and job["reason"]
        return job if ended or job["generation"] > generation else None
    job = cluster.wait_for(is_settled, 2 * SETTLED_S, f"{what}: the job to be settled")
    seconds = time.monotonic() - begin
    print(f"  {job['state']} after {seconds:.1f} s: {job['reason']}", flush=True)
    claims.claim(seconds <= SETTLED_S, f"{what}: runs on or is paused within {SETTLED_S} s: {seconds:.1f}")
    return job


def no_busy_loop(cluster, what):
    """Daemons that wait for another do not compute; CPU time does not depend on who else is there."""
    alive = [n for n in cluster.nodes if n.alive()]
    before = {n.name: n.cpu_seconds() for n in alive}
    begin = time.monotonic()
    time.sleep(WATCHED_S)
    took = time.monotonic() - begin
    for node in alive:
        used = (node.cpu_seconds() - before[node.name]) / took
        claims.claim(used < BUSY, f"{what}: {node.name} uses {used:.2f} of a core while it waits")


def trial(cluster, job_id, victim, what, strike, mend, waits=True):
    job = training(cluster, job_id)
    time.sleep(0.6)  # The others hear how far it is four times a second.
    since = {n.name: len(n.log_text()) for n in cluster.nodes}
    begin = time.monotonic()
    strike()
    watch(cluster, victim, what, begin, since)
    after = settled(cluster, job_id, victim, what, begin, job["generation"])
    if waits:
        claims.claim(after["state"] != "paused" or victim.name in after["reason"], f"{what}: the reason names it: {after['reason']}")
        no_busy_loop(cluster, what)
    mend()
    training(cluster, job_id)


def bulk_flows(cluster, node, control):
    return {f for f in cluster.flows(node) if f not in control}


def data_connections(cluster, job_id, control):
    """Only the data connections of one node die: without a word, or with a reset."""
    victim = next(n for n in cluster.nodes if n is not cluster.wait_leader())
    training(cluster, job_id)
    trial(cluster, job_id, victim, "data connections silent",
          lambda: cluster.silence(victim, bulk_flows(cluster, victim, control[victim.name])), cluster.heal, waits=False)
    job = training(cluster, job_id)
    flows = sorted(bulk_flows(cluster, victim, control[victim.name]))
    since = {n.name: len(n.log_text()) for n in cluster.nodes}
    begin = time.monotonic()
    if not flows or not cluster.reset(victim, flows[0]):
        print("skipped: one data connection reset: this kernel does not kill a connection")
        return
    other = next(n for n in cluster.nodes if n.host == flows[0][1])

    def pair_named():
        return all(any(named_in_log(node, n, since[node.name]) for n in (other, victim) if n is not node) for node in cluster.nodes)
    cluster.wait_for(pair_named, NAMED_S, "a reset data connection to be named by all three")
    print(f"one data connection reset: named after {time.monotonic() - begin:.1f} s", flush=True)
    settled(cluster, job_id, victim, "one data connection reset", begin, job["generation"])
    training(cluster, job_id)


def loss(cluster, job_id):
    """30 % of one node's packets are lost for a while: named only where it was silent past a deadline."""
    victim = cluster.nodes[-1]
    since = {n.name: len(n.log_text()) for n in cluster.nodes}
    training(cluster, job_id)
    cluster.lossy([victim], 30)
    time.sleep(8)
    cluster.heal()
    named = 0
    for node in cluster.nodes:
        text = node.log_text()[since[node.name]:]
        for said in re.findall(r'text="node [a-z] (?:is gone|is lost to the exchange|has failed): [^"]*', text):
            named += 1
            seconds = re.search(r"(?:nothing was heard|silent) for (\d+\.\d+) s", said)
            told = re.search(r"ended the exchange|closed|left|broke|reset", said)
            claims.claim(told is not None or (seconds is not None and float(seconds[1]) >= 3.0),
                         f"30 % loss: {node.name} names one that missed a deadline, or whose other side did: {said}")
    print(f"30 % loss: named {named} times", flush=True)
    training(cluster, job_id)


def out_of_memory(folder):
    """A node whose device memory is too small for its part: the job fails, and everybody says whose it was."""
    with network.NetCluster(nodes=3, start=False) as cluster:
        victim = cluster.nodes[1]
        victim.config_lines += ["limits:", "  memory: 1M"]
        victim.write_config()
        cluster.start()
        since = {n.name: 0 for n in cluster.nodes}
        begin = time.monotonic()
        job_id = cluster.submit(write_job(folder, steps=1000, every=100), node=cluster.nodes[0])
        watch(cluster, victim, "out of memory", begin + 2, since, in_step=False)  # 2 s to import.
        job = cluster.wait_job(job_id, states=("failed",), seconds=SETTLED_S)
        print(f"  {job['state']}: {job['reason']}", flush=True)
        claims.claim(f"node {victim.name}" in job["reason"] and "this node has room for" in job["reason"], f"the failed job names it: {job['reason']}")
        no_busy_loop(cluster, "out of memory")


with tempfile.TemporaryDirectory() as folder:
    with network.NetCluster(nodes=3) as cluster:
        cluster.wait_for(lambda: all(len(cluster.flows(n)) == 2 for n in cluster.nodes), 20, "the control connections")
        control = {n.name: cluster.flows(n) for n in cluster.nodes}
        job_id = cluster.submit(write_job(folder, steps=10000000, every=2000))
        data_connections(cluster, job_id, control)
        loss(cluster, job_id)
        for what in ("cut off", "cut off one way (nothing of it comes)", "cut off one way (nothing reaches it)", "killed"):
            leader = cluster.wait_leader()
            victim = leader if "nothing of it" in what else next(n for n in cluster.nodes if n is not leader)
            others = [n for n in cluster.nodes if n is not victim]
            if what == "killed":
                trial(cluster, job_id, victim, what, victim.kill, victim.start)
            elif "reaches" in what:
                trial(cluster, job_id, victim, what, lambda: cluster.cut(others, [victim], one_way=True), cluster.heal)
            else:
                trial(cluster, job_id, victim, what, lambda: cluster.cut([victim], others, one_way="one way" in what), cluster.heal)
    out_of_memory(folder)
claims.end()
