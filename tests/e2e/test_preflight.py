"""The pre-flight on loopback: every line of three nodes, both directions, is looked at as soon as they are there, plain and
over TLS; every node tells the whole matrix; whoever starts again is looked at again, the others are not. A node that
advertises a port that leads nowhere, which no control connection needs, holds the job with the pair, the direction, the
address and what to do, and the job goes on by itself when the port leads to it."""
import tempfile
import time

from cluster import Claims, Cluster, free_ports
from killing import write_job
from proxy import DelayProxy

claims = Claims()


def matrix(cluster, node=None):
    """{(from, to): pair} as a node tells it."""
    return {(n["name"], pair["to"]): pair for n in cluster.ask("nodes", node=node)["nodes"] for pair in n["pairs"]}


def looked_at(cluster, states=("good",), seconds=60, node=None):
    def all_known():
        pairs = matrix(cluster, node)
        return pairs if pairs and all(pair["state"] in states for pair in pairs.values()) else None
    return cluster.wait_for(all_known, seconds, f"all lines to be {' or '.join(states)}")


def plausible(cluster, tls):
    what = "tls" if tls else "plain"
    first = looked_at(cluster)
    claims.claim(set(first) == {(a, b) for a in "abc" for b in "abc" if a != b}, f"{what}: six lines: {sorted(first)}")
    for node in cluster.nodes:
        pairs = looked_at(cluster, node=node)
        for key, pair in pairs.items():
            who = f"{what}, {node.name} of {key[0]} -> {key[1]}"
            claims.claim(pair["tls"] is tls, f"{who}: tls is {pair['tls']}")
            claims.claim(0 < pair["round_trip_ms"] < 2000, f"{who}: round trip {pair['round_trip_ms']} ms")
            claims.claim(1e4 < pair["bytes_per_s"] < 1e11, f"{who}: {pair['bytes_per_s']} bytes a second")
            claims.claim(64000 < pair["measured_bytes"] <= 4 << 20, f"{who}: {pair['measured_bytes']} bytes sent")
            claims.claim(pair["bytes_per_s"] == first[key]["bytes_per_s"], f"{who}: not what another node tells")
            claims.claim(pair["reason"] is None and 0 <= pair["age_ms"] < 120000, f"{who}: {pair}")
    table = cluster.ctl("nodes", "-o", "wide").stdout
    head = table.splitlines()[0]
    claims.claim("LINE RTT" in head and "LINE RATE" in head and head.count("WORST") == 2, f"{what}: columns: {head}")
    for row in table.splitlines()[1:4]:
        claims.claim(row.count(" ms to ") == 1 and row.count(" MB/s to ") == 1, f"{what}: who is worst: {row}")
    metrics = cluster.nodes[0].metrics()
    for peer in "bc":
        claims.claim(f'coppelius_peer_line_good{{peer="{peer}"}} 1' in metrics, f"{what}: peer_line_good of {peer}")
        for name in ("round_trip_seconds", "bytes_per_second"):
            claims.claim(f'coppelius_peer_line_{name}{{peer="{peer}"}} ' in metrics, f"{what}: peer_line_{name} of {peer}")


def restarted(cluster):
    before = matrix(cluster)
    cluster.nodes[2].terminate()
    cluster.nodes[2].start()
    cluster.wait_alive(30)
    node = cluster.nodes[0]

    def again():
        pairs = matrix(cluster, node)
        new = [key for key in pairs if "c" in key]
        return pairs if all(pairs[k]["state"] == "good" and pairs[k]["bytes_per_s"] != before[k]["bytes_per_s"] for k in new) else None
    after = cluster.wait_for(again, 30, "the lines of the node that started again")
    for key in (("a", "b"), ("b", "a")):
        claims.claim(after[key]["bytes_per_s"] == before[key]["bytes_per_s"], f"{key} is not looked at again")
    looked_at(cluster, node=cluster.nodes[2])  # It has the others' rows, too.


def leads_nowhere(folder):
    """Of a pair the lower id dials for control and exchange: nothing but a fetch would ever dial node a."""
    cluster = Cluster(nodes=3, start=False)
    port, = free_ports(1)
    a, b, c = cluster.nodes
    a.advertise = f"127.0.0.1:{port}"
    for node in cluster.nodes:
        node.write_config()
    with cluster:
        cluster.start()
        cluster.wait_alive(30)
        pairs = looked_at(cluster, states=("good", "failed"), node=b)
        for key, pair in pairs.items():
            bad = key[1] == "a"
            claims.claim((pair["state"] == "failed") == bad, f"only the lines to a fail: {key}: {pair}")
        said = pairs[("b", "a")]["reason"]
        for word in ("node b cannot connect to node a at", a.advertise, "refused", "`advertise` on a"):
            claims.claim(word in said, f"'{word}' is said: {said}")
        job_id = cluster.submit(write_job(folder, steps=16, every=8, name="held"))

        def held():
            job = cluster.job(job_id, node=b)
            return job if (job["reason"] or "").startswith("pre-flight: ") else None
        job = cluster.wait_for(held, 20, "the job to say that the pre-flight holds it")
        claims.claim(job["state"] == "submitted", f"it waits: {job['state']}")
        claims.claim(said in job["reason"] and "and 1 more" in job["reason"], f"with the pair: {job['reason']}")
        claims.claim("pre-flight: node b cannot connect" in cluster.ctl("nodes").stdout, "nodes shows it below the table")
        claims.claim("pre-flight: node b cannot connect" in cluster.ctl("job", "show", str(job_id)).stdout, "job show shows it")
        doctor = cluster.ctl("doctor", node=b, check=False)
        claims.claim(doctor.returncode == 3 and "node b cannot connect to node a" in doctor.stdout, f"doctor says it: {doctor.stdout}")
        metrics = b.metrics()
        claims.claim('coppelius_peer_line_good{peer="a"} 0' in metrics, "the metric says it")
        claims.claim("preflight.failed from=b to=a" in b.log_text(), "b's log says it")
        time.sleep(3)
        claims.claim(cluster.job(job_id)["generation"] == 0, "it is not placed meanwhile")
        with DelayProxy({port: ("127.0.0.1", a.port)}, 0.0):
            job = cluster.wait_job(job_id, seconds=60)
            claims.claim(job["generation"] == 1, f"it goes on by itself, at once: {job['generation']}")


def quick(folder):
    """A job does not pay for the looks: they were before it."""
    path = write_job(folder, steps=16, every=8, name="quick")
    with Cluster(nodes=3) as cluster:
        before = looked_at(cluster)
        for _ in range(2):
            cluster.wait_job(cluster.submit(path), seconds=60)
        after = matrix(cluster)
        claims.claim(all(after[k]["bytes_per_s"] == before[k]["bytes_per_s"] for k in before), "no job looks again within 10 minutes")


def far_apart():
    """Five nodes, 50 ms each way between all of them, over a proxy."""
    cluster = Cluster(nodes=5, start=False)
    ways = {}
    for node, port in zip(cluster.nodes, free_ports(5)):
        node.advertise = f"127.0.0.1:{port}"
        ways[port] = ("127.0.0.1", node.port)
    for node in cluster.nodes:
        node.write_config()
    with DelayProxy(ways, 0.05), cluster:
        cluster.start(60)
        cluster.wait_alive(60)
        begin = time.monotonic()
        pairs = looked_at(cluster)
        seconds = time.monotonic() - begin
        trips = [pair["round_trip_ms"] for pair in pairs.values()]
        print(f"100 ms: {len(pairs)} lines: all looked at {seconds:.1f} s after all were alive; {min(trips):.0f} to {max(trips):.0f} ms",
              flush=True)
        claims.claim(len(pairs) == 20 and seconds < 10, f"within 10 s: {seconds:.1f}")
        claims.claim(min(trips) >= 100, f"no round trip below 100 ms: {min(trips)}")


def many():
    """Eight nodes, 56 lines over TLS, at once."""
    with Cluster(nodes=8, secure=True, roles={name: "spare" for name in "fgh"}) as cluster:
        cluster.wait_alive(60)
        begin = time.monotonic()
        pairs = looked_at(cluster)
        seconds = time.monotonic() - begin
        print(f"8 nodes, {len(pairs)} lines: all looked at {seconds:.1f} s after all were alive", flush=True)
        claims.claim(len(pairs) == 56 and seconds < 10, f"within 10 s: {seconds:.1f}")


with tempfile.TemporaryDirectory() as scratch:
    for secure in (False, True):
        with Cluster(nodes=3, secure=secure) as three:
            plausible(three, secure)
            if not secure:
                restarted(three)
    leads_nowhere(scratch)
    quick(scratch)
    many()
    far_apart()
claims.end()
