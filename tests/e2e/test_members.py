"""Who is in a cluster of real daemons: a node joins, one is removed, one loses its disk and comes back as somebody else, two
trainers and an arbiter survive the loss of one, and a survivor goes on alone."""
import json
import os
import shutil
import tempfile

from cluster import Claims, Cluster

claims = Claims()


def write_job(folder, steps, every, name="members", elastic=True):
    data = os.path.join(folder, "data.csv")
    with open(data, "w") as f:
        f.write("a,b,c,d,e,f,y\n")
        for i in range(400):
            x = [(i * k % m) / m for k, m in ((7, 13), (5, 11), (3, 17), (1, 19), (11, 23), (13, 29))]
            f.write(",".join(f"{v:.6f}" for v in x) + f",{x[0] - x[1] + 2 * x[2]:.6f}\n")
    path = os.path.join(folder, f"{name}-{steps}.yaml")
    with open(path, "w") as f:
        f.write(f"name: {name}\ndata: {{path: {data}, format: csv, header: yes, target: y}}\n"
                f"elastic: {'yes' if elastic else 'no'}\n"
                f"optimizer: {{rate: 0.01, steps: {steps}}}\ncheckpoint: {{every: {every}}}\n")
    return path


def votes(cluster, name, node=None):
    member = cluster.member(name, node=node)
    return member is not None and member["votes"]


def unhealthy(cluster, node):
    """Why the node says that its cluster is not healthy."""
    run = cluster.ctl("cluster", "status", "--json", node=node, check=False)
    return json.loads(run.stdout)["reason"] if run.returncode == 3 and run.stdout.strip() else None


def wipe(node):
    shutil.rmtree(node.state)
    os.makedirs(node.state)


with tempfile.TemporaryDirectory() as folder:
    job = write_job(folder, steps=2000, every=500)

    # A fourth node joins three, votes, and works; a job that was there before has the same digest.
    with Cluster(nodes=3) as cluster:
        a, b, c = cluster.nodes
        first = cluster.wait_job(cluster.submit(job), seconds=60)
        d = cluster.newcomer(joins=a)
        d.start()
        cluster.wait_for(lambda: "nobody expects a node 'd'" in d.log_text(), 20, "d to be refused")
        for address, why in ((b.endpoint, f"nodes 'b' and 'd' have the same address {b.endpoint}"),
                             ("10.0.0.4:7620", "'d' (10.0.0.4:7620) cannot reach each other")):
            run = cluster.ctl("cluster", "add", "d", address, check=False)
            claims.claim(run.returncode == 2 and why in run.stderr, f"add d {address}: exit {run.returncode}: {run.stderr}")
        run = cluster.ctl("cluster", "add", "d")
        claims.claim("join" in run.stderr, f"add says what to do next: {run.stderr}")
        cluster.wait_for(lambda: votes(cluster, "d"), 30, "d to vote")
        claims.claim(d.says("join.in"), "d says that it is in")
        cluster.wait_for(lambda: cluster.ctl("job", "show", "1", node=d, check=False).returncode == 0, 20, "d to know")
        job_id = cluster.submit(job)
        second = cluster.wait_job(job_id, seconds=60)
        claims.claim(second["parameter_sha256"] == first["parameter_sha256"], "four nodes: the same digest as three")
        claims.claim(len(second["participants"]) == 4, f"all four work: {second['participants']}")

        # The leader is removed: the others lead on, it ends with a sentence, and stays out.
        leader = cluster.wait_leader()
        other = next(n for n in cluster.nodes if n is not leader)
        cluster.ctl("cluster", "remove", leader.name, node=other)
        cluster.wait_for(lambda: not leader.alive(), 20, "the removed leader to end")
        claims.claim("was removed from the cluster" in leader.log_text(), "it says why")
        cluster.wait_for(lambda: cluster.leader() not in (None, leader), 20, "another leader")
        cluster.wait_for(lambda: cluster.member(leader.name, node=other) is None, 20, "it to be off the list")
        third = cluster.wait_job(cluster.submit(job, node=other), seconds=60)
        claims.claim(third["parameter_sha256"] == first["parameter_sha256"], "without it: the same digest")

        # A disk is lost: the node is refused until a person lets its successor in, and then is somebody else.
        lost = next(n for n in cluster.nodes if n.alive() and n is not cluster.leader() and n is not d)
        others = [n for n in cluster.nodes if n.alive() and n is not lost]
        before = cluster.member(lost.name, node=others[0])["node"]
        lost.kill()
        wipe(lost)
        lost.start()
        cluster.wait_for(lambda: not lost.alive(), 20, "the node without its disk to end")
        claims.claim(f"cluster add {lost.name}" in lost.log_text(), "it says what lets it in")
        lost.process = None
        cluster.ctl("cluster", "add", lost.name, node=others[0])
        lost.start()
        cluster.wait_for(lambda: votes(cluster, lost.name, node=others[0]), 40, "its successor to vote")
        claims.claim(cluster.member(lost.name, node=others[0])["node"] != before, "it has another place")
        fourth = cluster.wait_job(cluster.submit(job, node=others[0]), seconds=60)
        claims.claim(fourth["parameter_sha256"] == first["parameter_sha256"], "with its successor: the same digest")

        # All of it is kept: everybody restarts and finds the others.
        alive = [n for n in cluster.nodes if n.alive()]
        for node in alive:
            node.kill()
        for node in alive:
            node.start()
        cluster.wait_leader(30)
        fifth = cluster.wait_job(cluster.submit(job, node=alive[0]), seconds=60)
        claims.claim(fifth["parameter_sha256"] == first["parameter_sha256"], "after a restart of all: the same digest")

    # Removed while it was away: nobody dials it any more, whatever its place; it asks, is told, and ends with a sentence.
    with Cluster(nodes=4) as cluster:
        a, b, c, d = cluster.nodes
        cluster.wait_job(cluster.submit(job), seconds=60)
        for gone in (d, a):
            gone.kill()
            cluster.wait_for(lambda: cluster.leader() not in (None, gone), 40, f"a leader without {gone.name}")
            cluster.ctl("cluster", "remove", gone.name, node=b)
            cluster.wait_for(lambda: cluster.member(gone.name, node=b) is None, 20, f"{gone.name} to be off the list")
        for gone in (d, a):
            gone.start()
            cluster.wait_for(lambda: not gone.alive(), 40, f"{gone.name} to hear that it is out")
            claims.claim("was removed from the cluster" in gone.log_text() and f"cluster add {gone.name}" in gone.log_text(),
                         f"{gone.name} says why it ends: {gone.log_text()[-400:]}")
        gone = d
        claims.claim("while it was away" in gone.log_text(), "another one told d")
        claims.claim(unhealthy(cluster, b) is None, "the others lead on")

    # Two trainers and an arbiter: one trainer is lost while they train, the other goes on. The arbiter holds no part of a job.
    with Cluster(nodes=3, roles={"c": "arbiter"}) as cluster:
        a, b, c = cluster.nodes
        whole = cluster.wait_job(cluster.submit(job), seconds=60)
        claims.claim([p["node"] for p in whole["participants"]] == ["a", "b"], f"trainers work: {whole['participants']}")
        claims.claim(whole["parameter_sha256"] == first["parameter_sha256"], "two trainers: the same digest")
        long = write_job(folder, steps=60000, every=2000, name="long")
        steady = cluster.wait_job(cluster.submit(long), seconds=120)
        job_id = cluster.submit(long)
        cluster.wait_for(lambda: (cluster.job(job_id, node=a)["epoch"] or 0) >= 1, 30, "a checkpoint of both")
        b.kill()
        cluster.wait_for(lambda: cluster.leader(), 20, "a leader without b")
        under_way = cluster.wait_job(job_id, seconds=120)
        claims.claim(under_way["generation"] > steady["generation"] + 1 and [p["node"] for p in under_way["participants"]] == ["a"],
                     f"a went on alone with what was under way: {under_way['generation']}, {under_way['participants']}")
        claims.claim(under_way["parameter_sha256"] == steady["parameter_sha256"], "b lost while they train: the same digest")
        alone = cluster.wait_job(cluster.submit(job, node=a), seconds=60)
        claims.claim(alone["parameter_sha256"] == first["parameter_sha256"], "one trainer and the arbiter: the same digest")

    # Two voters alone: one is lost, the other pauses and says why; then its survivor goes on, knowing the cost.
    with Cluster(nodes=2) as cluster:
        a, b = cluster.nodes
        done = cluster.wait_job(cluster.submit(job), seconds=60)
        b.kill()
        reason = cluster.wait_for(lambda: unhealthy(cluster, a), 20, "a to miss its majority")
        claims.claim("1 of 2 voters" in reason, f"it says why: {reason}")
        run = cluster.offline("cluster", "recover", "--state-dir", a.state, check=False)
        claims.claim(run.returncode != 0 and "runs on" in run.stderr, f"not beside a daemon: {run.stderr}")
        a.kill()
        run = cluster.offline("cluster", "recover", "--state-dir", a.state, check=False, input="")
        claims.claim(run.returncode == 2 and "may cost" in run.stdout and "Node 'b' is out" in run.stdout,
                     f"it says what it may cost, and does nothing: {run.returncode} {run.stdout}{run.stderr}")
        a.start()
        claims.claim(cluster.leader() is None, "nothing was changed")
        a.kill()
        cluster.offline("cluster", "recover", "--state-dir", a.state, "--yes")
        a.start()
        cluster.wait_for(lambda: cluster.leader() is a, 20, "a to lead alone")
        again = cluster.wait_job(cluster.submit(job, node=a), seconds=60)
        claims.claim(again["parameter_sha256"] == done["parameter_sha256"], "alone: the same digest")
        claims.claim(again["generation"] > done["generation"] + 1, f"a new generation: {again['generation']}")
        b.start()  # fenced: nobody talks to it, but it may ask
        cluster.wait_for(lambda: not b.alive(), 40, "b to hear that it is out")
        claims.claim("was removed from the cluster while it was away, as node 'a' says" in b.log_text(), "b says who told it")
        claims.claim(cluster.member("b", node=a) is None, "b is no member")
        claims.claim(unhealthy(cluster, a) is None, "a leads on")

    # With certificates: expected, it comes in by the one that bears its name; removed, it is cut at once.
    with Cluster(nodes=1, secure=True) as cluster:
        a = cluster.nodes[0]
        b = cluster.newcomer(joins=a)
        cluster.offline("pki", "bundle", b.name, "--authority", cluster.authority, "--output", os.path.join(b.state, "tls"))
        b.tls = "{}"
        b.write_config()
        b.start()
        cluster.wait_for(lambda: "nobody expects a node 'b'" in b.log_text(), 30, "b to hear that nobody expects it")
        claims.claim(cluster.member(b.name, node=a) is None, "a certificate alone lets nobody in")
        cluster.ctl("cluster", "add", b.name, node=a)
        cluster.wait_for(lambda: votes(cluster, b.name, node=a), 30, "b to vote")
        secure = cluster.wait_job(cluster.submit(job), seconds=60)
        claims.claim(secure["parameter_sha256"] == done["parameter_sha256"], "with certificates: the same digest")
        cluster.ctl("cluster", "remove", b.name, node=a)
        cluster.wait_for(lambda: not b.alive(), 20, "b to end")
        cluster.wait_for(lambda: cluster.leader() is a, 20, "a to lead alone")

    # The same with certificates, removed while it was away: its name is refused in the handshake, and its status says so.
    with Cluster(nodes=3, secure=True) as cluster:
        a, b, c = cluster.nodes
        cluster.wait_leader(30)
        c.kill()
        cluster.wait_for(lambda: cluster.leader() not in (None, c), 40, "a leader without c")
        cluster.ctl("cluster", "remove", "c", node=a)
        cluster.wait_for(lambda: cluster.member("c", node=a) is None, 20, "c to be off the list")
        c.start()
        cluster.wait_for(lambda: "was removed" in (unhealthy(cluster, c) or ""), 40, "c's status to say what the others say")
        claims.claim(c.says("standing.refused"), "its log says so")
claims.end()
