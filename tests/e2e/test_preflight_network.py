"""The pre-flight between nodes in network namespaces of their own: a port that is blocked one way, packets that are dropped
one way, packets of full size that are lost, a slow line. Each is named within 10 s with both ends, the direction and
the address; a job waits with that reason and goes on by itself when the rule is lifted."""
import os
import tempfile
import time

import network
from cluster import Claims
from killing import write_job

network.enter()
claims = Claims()
NAMED = 10.0


def pairs(cluster, node):
    return {(n["name"], pair["to"]): pair for n in cluster.ask("nodes", node=node)["nodes"] for pair in n["pairs"]}


def wait_states(cluster, node, states, seconds=60):
    """Until the lines are as `states` says; {(from, to): state}, all others work."""
    def as_said():
        now = pairs(cluster, node)
        return now if now and all(p["state"] in (states.get(key, "good"), states.get(key, "slow")) for key, p in now.items()) else None
    return cluster.wait_for(as_said, seconds, f"the lines to be {states}, all others working", every=0.1)


def start_cut(cluster, node, rule):
    """All but `node` are there and know each other; then `node` comes, behind the rule. The seconds until a node tells what
    is wrong, from when the leader heard of it."""
    others = [n for n in cluster.nodes if n is not node]
    for other in others:
        other.start()
    leader = cluster.wait_leader(30)
    cluster.wait_for(lambda: pairs(cluster, leader)[(others[0].name, others[1].name)]["state"] == "good", 30, "the first lines")
    rule()
    node.start()
    cluster.wait_for(lambda: next(n for n in cluster.ask("nodes", node=leader)["nodes"] if n["name"] == node.name)["state"] == "alive",
                     30, "the leader to hear the node")
    return leader, time.monotonic()


def held_then_runs(cluster, leader, path, words, heal):
    job_id = cluster.submit(path, node=leader)

    def held():
        job = cluster.job(job_id, node=leader)
        return job if (job["reason"] or "").startswith("pre-flight: node") else None
    job = cluster.wait_for(held, 20, "the job to be held")
    for word in words:
        claims.claim(word in job["reason"], f"the job's reason has '{word}': {job['reason']}")
    claims.claim(job["state"] == "submitted" and job["generation"] == 0, f"it is not placed: {job['state']}")
    heal()
    begin = time.monotonic()
    job = cluster.wait_job(job_id, seconds=90)
    print(f"it ran by itself {time.monotonic() - begin:.1f} s after the rule was lifted, generation {job['generation']}", flush=True)
    claims.claim(job["generation"] == 1, "it ran at once")
    wait_states(cluster, leader, {})


def blocked_port(path):
    """c may not dial a: of the two a dials for control and exchange, so that nothing else would ever notice."""
    with network.NetCluster(nodes=3, start=False) as cluster:
        a, _, c = cluster.nodes
        leader, begin = start_cut(cluster, c, lambda: cluster.rule(
            "ip", "saddr", c.host, "ip", "daddr", a.host, "tcp", "dport", str(a.port), "drop"))
        told = wait_states(cluster, leader, {("c", "a"): "failed"})
        seconds = time.monotonic() - begin
        print(f"a port that is blocked one way: named after {seconds:.1f} s", flush=True)
        claims.claim(seconds < NAMED, f"a blocked port is named within {NAMED} s: {seconds:.1f}")
        words = ["node c cannot connect to node a at", f"{a.host}:{a.port}", "no answer within 3 s", "let TCP from c in"]
        for word in words:
            claims.claim(word in told[("c", "a")]["reason"], f"'{word}' is said: {told[('c', 'a')]['reason']}")
        wide = cluster.ctl("nodes", "-o", "wide", node=leader).stdout
        claims.claim("none to a" in wide and "pre-flight: node c cannot connect" in wide, f"nodes -o wide: {wide}")
        held_then_runs(cluster, leader, path, words, cluster.heal)


def dropped_packets(path):
    """Of one direction; TCP then has no way back either, so both are named."""
    with network.NetCluster(nodes=3) as cluster:
        leader = cluster.wait_leader(30)
        cluster.wait_alive(30)
        wait_states(cluster, leader, {})
        one, two = [n for n in cluster.nodes if n is not leader]
        two.terminate()
        cluster.cut([one], [two], one_way=True)
        two.start()
        cluster.wait_for(lambda: next(n for n in cluster.ask("nodes", node=leader)["nodes"] if n["name"] == two.name)["state"] == "alive",
                         30, "the leader to hear the node")
        begin = time.monotonic()
        told = wait_states(cluster, leader, {(one.name, two.name): "failed", (two.name, one.name): "failed"})
        seconds = time.monotonic() - begin
        print(f"packets dropped one way: named after {seconds:.1f} s", flush=True)
        claims.claim(seconds < NAMED, f"dropped packets are named within {NAMED} s: {seconds:.1f}")
        for a, b in ((one, two), (two, one)):
            reason = told[(a.name, b.name)]["reason"]
            claims.claim(f"node {a.name} cannot connect to node {b.name} at {b.host}" in reason, f"{a.name} -> {b.name}: {reason}")
        held_then_runs(cluster, leader, path, ["cannot connect to node", "and 1 more"], cluster.heal)


def lost_full_size(path):
    """Small packets of c reach a, those of full size do not."""
    with network.NetCluster(nodes=3, start=False) as cluster:
        a, _, c = cluster.nodes
        leader, begin = start_cut(cluster, c, lambda: cluster.rule(
            "ip", "saddr", c.host, "ip", "daddr", a.host, "ip", "length", ">", "1300", "drop"))
        told = wait_states(cluster, leader, {("c", "a"): "failed"})
        seconds = time.monotonic() - begin
        print(f"packets of full size lost: named after {seconds:.1f} s: {told[('c', 'a')]['reason']}", flush=True)
        claims.claim(seconds < NAMED, f"a hole is named within {NAMED} s: {seconds:.1f}")
        claims.claim("%" not in told[("c", "a")]["reason"], f"a whole sentence: {told[('c', 'a')]['reason']}")
        words = ["node c reaches node a at", a.host, "small packets pass", "lower the MTU"]
        held_then_runs(cluster, leader, path, words, cluster.heal)


def slow_line():
    """What c sends is held to 20 Mbit/s."""
    with network.NetCluster(nodes=3, start=False) as cluster:
        c = cluster.nodes[2]
        try:
            network.sh("tc", "-n", c.space, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "16kb", "latency",
                       "100ms")
        except (FileNotFoundError, RuntimeError) as error:
            print(f"no slow line here: {error}", flush=True)
            return
        cluster.start()
        cluster.wait_alive(30)

        def slow():
            """What c receives may be slow as well: its answers wait behind what it sends."""
            now = pairs(cluster, cluster.nodes[0])
            known = all(pair["state"] in ("good", "slow") for pair in now.values())
            return now if known and all(now[("c", other)]["state"] == "slow" for other in "ab") else None
        told = cluster.wait_for(slow, 60, "the lines from c to be slow")
        claims.claim(all(told[key]["state"] == "good" for key in (("a", "b"), ("b", "a"))), f"the others' line is good: {told}")
        for key in (("c", "a"), ("c", "b")):
            rate = told[key]["bytes_per_s"]
            claims.claim(0.5e6 < rate < 3.2e6, f"{key}: {rate} bytes a second where 2.5e6 are possible")
        print(f"20 Mbit/s: {told[('c', 'a')]['bytes_per_s'] / 1e6:.2f} MB/s from c to a; a to c {told[('a', 'c')]['bytes_per_s'] / 1e6:.0f} MB/s",
              flush=True)
        claims.claim("preflight.slow from=c to=a" in c.log_text(), "c's log warns")
        claims.claim("the line from node c to node a is slow" in cluster.ctl("nodes").stdout, "nodes says it")


def bad_newcomer(folder):
    """An elastic job that runs does not stop for a node that comes and whose line to another one does not work."""
    path = write_job(folder, steps=20000000, every=1000000, more="elastic: yes\n", name="elastic")
    with network.NetCluster(nodes=3, start=False) as cluster:
        a, b, c = cluster.nodes
        for node in (a, b):
            node.start()
        leader = cluster.wait_leader(30)
        job_id = cluster.submit(path, node=leader)

        def runs():
            job = cluster.job(job_id, node=leader)
            return job if job["state"] == "running" and job["step"] else None
        generation = cluster.wait_for(runs, 60, "the job to run with two nodes")["generation"]
        cluster.rule("ip", "saddr", c.host, "ip", "daddr", a.host, "tcp", "dport", str(a.port), "drop")
        c.start()
        cluster.wait_for(lambda: pairs(cluster, leader).get(("c", "a"), {}).get("state") == "failed", 30, "the line to be named")
        time.sleep(6)  # A node that comes is used after 3 s.
        job = cluster.job(job_id, node=leader)
        claims.claim(job["state"] == "running" and job["generation"] == generation, f"the job runs on: {job['state']}, {job['generation']}")
        cluster.heal()
        begin = time.monotonic()

        def with_three():
            job = cluster.job(job_id, node=leader)
            return job if job["state"] == "running" and job["nodes"] == 3 else None
        cluster.wait_for(with_three, 90, "the job to go on with the third node")
        print(f"an elastic job has the newcomer {time.monotonic() - begin:.1f} s after its line was mended", flush=True)
        cluster.ctl("job", "cancel", str(job_id), node=leader)


with tempfile.TemporaryDirectory() as folder:
    job = write_job(folder, steps=16, every=8, name="held")
    blocked_port(job)
    dropped_packets(job)
    if not os.environ.get("COPPELIUS_TLS"):  # A handshake does not get through it either: the node is not there then.
        lost_full_size(job)
        os.environ["COPPELIUS_TLS"] = "1"
        blocked_port(job)
        del os.environ["COPPELIUS_TLS"]
    slow_line()
    bad_newcomer(folder)
claims.end()
