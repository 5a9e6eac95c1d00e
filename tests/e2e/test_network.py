"""Real daemons in network namespaces: 5 nodes cut 2 | 3 with the leader on the smaller side, one-way cuts, flapping links, a
frozen leader that returns, 100 ms between all of them; and a storm of kill -9, pauses longer than an election, full
disks and cuts, while an independent reader looks at every node's CURRENT. A minority publishes nothing; the majority
goes on (elastic); whoever returns is fenced by its generation; every job ends with the digest of the undisturbed run.

COPPELIUS_LONG=1: 300 kills, 100 pauses, 50 full disks. COPPELIUS_SEED repeats a storm."""
import json
import os
import random
import signal
import subprocess
import tempfile
import time

import network
from cluster import LONG, Claims, Cluster, Failed, free_ports
from killing import start_readers, stop_readers, write_job
from proxy import DelayProxy

network.enter()

KEYS = ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective")
STORM = {"kill": 300, "pause": 100, "full": 50, "cut": 50} if LONG else {"kill": 3, "pause": 1, "full": 2, "cut": 1}
DISK = 96 << 20
seed = int(os.environ.get("COPPELIUS_SEED", random.randrange(1 << 30)))
random.seed(seed)
print(f"seed {seed} (COPPELIUS_SEED repeats it)", flush=True)
claims = Claims()


def same(job, undisturbed, what):
    for key in KEYS:
        claims.claim(job[key] == undisturbed[key], f"{what}: {key} is {job[key]}, undisturbed {undisturbed[key]}")


def epochs(node, job_id):
    folder = node.job_folder(job_id)
    return sorted(f for f in os.listdir(folder) if f.startswith("epoch-")) if folder else []


def current(node, job_id):
    try:
        with open(os.path.join(node.job_folder(job_id) or "", "CURRENT")) as f:
            return int(f.read().strip().rpartition("-")[2])
    except FileNotFoundError:
        return 0


def running(cluster, job_id, node=None, step=1):
    def trains():
        nodes = [node] if node else cluster.nodes
        for n in nodes:
            run = cluster.ctl("job", "show", str(job_id), "--json", node=n, check=False)
            if run.returncode == 0:
                job = json.loads(run.stdout)
                if job["state"] in ("running", "succeeded") and (job["step"] or 0) >= step:
                    return job
        return None
    return cluster.wait_for(trains, 60, f"job {job_id} to train")


def ended(cluster, job_id):
    """The job's end, as a node tells it that took part in it to the end and so has its last checkpoint."""
    cluster.wait_job(job_id, seconds=180)

    def told():
        for node in cluster.nodes:
            job = cluster.job(job_id, node=node)
            if job["state"] == "succeeded" and job["parameter_sha256"] and job["epoch"] == max(current(n, job_id) for n in cluster.nodes):
                return job
        return None
    return cluster.wait_for(told, 30, f"a node with the last checkpoint of job {job_id}")


def two_of_five(cluster, path, undisturbed):
    job_id = cluster.submit(path)
    running(cluster, job_id, step=200)
    leader = cluster.wait_leader()
    others = [n for n in cluster.nodes if n is not leader]
    few, many = [leader, others[0]], others[1:]
    generation = cluster.job(job_id)["generation"]
    begin = time.monotonic()
    cluster.cut(few, many)
    time.sleep(0.3)  # What was under way between them has come.
    before = {n.name: current(n, job_id) for n in few}

    def goes_on():
        job = cluster.ask("job", "show", str(job_id), node=many[0])
        return job if job["generation"] > generation and job["state"] in ("running", "succeeded") and job["nodes"] == 3 else None
    job = cluster.wait_for(goes_on, 30, "the three to go on")
    seconds = time.monotonic() - begin
    print(f"cut 2 | 3: three nodes train again after {seconds:.1f} s, generation {generation} -> {job['generation']}", flush=True)
    claims.claim(seconds <= 15.0, f"cut 2 | 3: within 15 s the three go on: {seconds:.1f}")
    newest = max(current(n, job_id) for n in many)
    cluster.wait_for(lambda: all(current(n, job_id) > newest for n in many), 30, "the three to publish")
    after = {n.name: current(n, job_id) for n in few}
    claims.claim(after == before, f"cut 2 | 3: the two publish nothing: {before} -> {after}")
    for node in few:
        run = cluster.ctl("cluster", "status", node=node, check=False)
        claims.claim(run.returncode == 3 and "no leader" in run.stdout + run.stderr, f"cut 2 | 3: {node.name} says that it has no leader: "
                     f"{run.returncode} {run.stdout}{run.stderr}")
    cluster.heal()
    cluster.wait_alive(30)
    same(ended(cluster, job_id), undisturbed, "cut 2 | 3")
    cluster.wait_for(lambda: len({current(n, job_id) for n in many}) == 1, 30, "one newest checkpoint")


def flapping(cluster, path, undisturbed):
    """Short cuts are carried by TCP; long ones end generations. The job gets on all the same."""
    job_id = cluster.submit(path)
    generation = running(cluster, job_id, step=200)["generation"]
    a, b = random.sample(cluster.nodes, 2)
    for _ in range(4):
        cluster.cut([a], [b], one_way=random.random() < 0.5)
        time.sleep(0.4)
        cluster.heal()
        time.sleep(0.4)
    job = cluster.job_or_none(job_id)
    print(f"flapping link {a.name}-{b.name}: generation {generation} -> {job['generation']}", flush=True)
    claims.claim(job["generation"] == generation, "cuts shorter than every deadline end no generation")
    cluster.cut([a], [b])
    time.sleep(4)
    cluster.heal()
    same(ended(cluster, job_id), undisturbed, "flapping link")


def frozen_leader(cluster, path, undisturbed):
    job_id = cluster.submit(path)
    generation = running(cluster, job_id, step=200)["generation"]
    leader = cluster.wait_leader()
    others = [n for n in cluster.nodes if n is not leader]
    leader.signal(signal.SIGSTOP)

    def goes_on():
        job = cluster.ask("job", "show", str(job_id), node=others[0])
        return job["generation"] > generation and job["state"] in ("running", "succeeded")
    cluster.wait_for(goes_on, 30, "the others to go on")
    newest = max(current(n, job_id) for n in others)
    held = epochs(leader, job_id)
    leader.signal(signal.SIGCONT)
    time.sleep(0.2)
    claims.claim(set(epochs(leader, job_id)) >= set(held[-1:]), "the returned leader keeps what it had")
    job = ended(cluster, job_id)
    same(job, undisturbed, "frozen leader")
    claims.claim(job["epoch"] > newest, "epochs go on from the newest one")
    claims.claim(leader.alive(), "the frozen leader is the same process still")


def far_apart(folder, path, undisturbed_small):
    """50 ms each way between all nodes, over a proxy."""
    cluster = Cluster(nodes=3, start=False)
    ports = free_ports(3)
    ways = {}
    for node, port in zip(cluster.nodes, ports):
        node.advertise = f"127.0.0.1:{port}"
        ways[port] = ("127.0.0.1", node.port)
    for node in cluster.nodes:
        node.write_config()
    with DelayProxy(ways, 0.05), cluster:
        cluster.start()
        begin = time.monotonic()
        job = cluster.wait_job(cluster.submit(path), seconds=180)
        print(f"100 ms: {job['steps']} steps in {time.monotonic() - begin:.1f} s, generation {job['generation']}", flush=True)
        claims.claim(job["generation"] == 1, f"100 ms end no generation: {job['generation']}")
        same(job, undisturbed_small, "100 ms")


class Storm:
    def __init__(self, cluster, path, undisturbed):
        self.cluster, self.path, self.undisturbed = cluster, path, undisturbed
        self.job_id, self.jobs, self.seen = None, 0, {}

    def job(self):
        job = self.cluster.job_or_none(self.job_id) if self.job_id else None
        if job and job["state"] in ("failed", "cancelled"):
            raise Failed(f"job {job['job']} {job['state']}: {job['reason']}")
        if job is None or job["state"] == "succeeded":
            if job:
                same(job, self.undisturbed, f"storm, job {job['job']}")

            def submit():
                try:
                    return self.cluster.submit(self.path, node=random.choice(self.cluster.nodes))
                except Failed:
                    return None
            self.job_id = self.cluster.wait_for(submit, 60, "a node to take the job")
            self.jobs += 1
        return self.job_id

    def revive(self):
        """A daemon whose log found no room has ended, with its sentence; as systemd would, it is started again."""
        for node in self.cluster.nodes:
            if not node.alive():
                node.kill()
                node.start()

    def strike(self, kind):
        cluster = self.cluster
        node = cluster.leader() if random.random() < 0.4 else random.choice(cluster.nodes)
        node = node or random.choice(cluster.nodes)
        if kind == "kill":
            node.kill()
            time.sleep(random.uniform(0, 0.5))
            node.start()
        elif kind == "pause":
            node.signal(signal.SIGSTOP)
            time.sleep(random.uniform(1.2, 4.0))
            node.signal(signal.SIGCONT)
        elif kind == "cut":
            some = random.sample(cluster.nodes, random.choice([1, 2]))
            cluster.cut(some, [n for n in cluster.nodes if n not in some], one_way=random.random() < 0.5)
            time.sleep(random.uniform(0.5, 4.0))
            cluster.heal()
        elif kind == "full":
            filler = os.path.join(node.state, "filler")
            size = 0
            with open(filler, "wb", buffering=0) as f:
                try:
                    while True:
                        size += f.write(b"\0" * 65536)
                except OSError:
                    pass
            time.sleep(random.uniform(0.5, 2.5))
            os.unlink(filler)
            self.seen["filled MB"] = self.seen.get("filled MB", 0) + size // (1 << 20)
        self.seen[kind] = self.seen.get(kind, 0) + 1

    def run(self):
        strikes = [kind for kind, count in STORM.items() for _ in range(count)]
        random.shuffle(strikes)
        for number, kind in enumerate(strikes):
            self.revive()
            job_id = self.job()
            if random.random() < 0.7:
                def trains():
                    self.revive()
                    job = self.cluster.job_or_none(job_id)
                    return job and job["state"] in ("running", "succeeded")
                self.cluster.wait_for(trains, 90, f"job {job_id} to train before strike {number}, {kind}")
            time.sleep(random.uniform(0, 0.5))
            self.revive()
            self.strike(kind)

        def ended():
            self.revive()
            job = self.cluster.job_or_none(self.job_id)
            return job if job and job["state"] in ("succeeded", "failed") else None
        same(self.cluster.wait_for(ended, 180, "the last job to end"), self.undisturbed, "storm, the last job")
        print(f"storm: {self.seen}, {self.jobs} jobs", flush=True)


def storm(folder, path, undisturbed):
    with network.NetCluster(nodes=3, start=False) as cluster:
        for node in cluster.nodes:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", node.state], check=True)
        try:
            cluster.start()
            readers = start_readers(cluster)
            Storm(cluster, path, undisturbed).run()
            stop_readers(claims, readers)
            for node in cluster.nodes:
                text = node.log_text()
                claims.claim("Assertion" not in text and "SIGSEGV" not in text, f"{node.name} has no assertion in its log")
        finally:
            for node in cluster.nodes:
                node.kill()
                subprocess.run(["umount", "-l", node.state], check=False)


with tempfile.TemporaryDirectory() as folder:
    # Two nodes are lost at once: each shard is on three.
    path = write_job(folder, steps=8000, every=250, more="elastic: yes\n", replicas=2)
    small = write_job(folder, steps=16, every=8, name="small")
    plain = write_job(folder, steps=4000, every=100, name="plain")
    with Cluster(nodes=3) as cluster:
        undisturbed = cluster.wait_job(cluster.submit(path), seconds=120)
        undisturbed_small = cluster.wait_job(cluster.submit(small), seconds=120)
        undisturbed_plain = cluster.wait_job(cluster.submit(plain), seconds=120)
    with network.NetCluster(nodes=5) as cluster:
        two_of_five(cluster, path, undisturbed)
        flapping(cluster, path, undisturbed)
        frozen_leader(cluster, path, undisturbed)
    far_apart(folder, small, undisturbed_small)
    storm(folder, plain, undisturbed_plain)
claims.end()
