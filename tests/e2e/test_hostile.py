"""Hostile connections of every kind to the peer port, the HTTP port and the admin socket of three daemons that
train over TLS: the job goes on at its speed, whoever belongs there is still served, nothing leaks, nothing crashes.

About 1,000 connections; 10,000 with COPPELIUS_LONG=1. The attackers share the machine with the daemons, so they are
paced (60 a second), and the speed is judged by what the daemons pay: the CPU that the strangers' share of it takes away from training."""
import ctypes
import ctypes.util
import os
import random
import socket
import ssl
import statistics
import subprocess
import threading
import time
import urllib.request

from cluster import LONG, Claims, Cluster, golden_cases, golden_job, program

CONNECTIONS = 10000 if LONG else 1000
A_SECOND = 60
SLICES = 20 if LONG else 8
QUIET_SECONDS = 1.5

claims = Claims()
rand = random.Random(20)


# ---- what the attackers know ----

def frame(kind, body, sequence=0):
    """A frame of ours with its check; None where no libxxhash is here to make it."""
    name = ctypes.util.find_library("xxhash")
    if name is None:
        return None
    library = ctypes.CDLL(name)
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    head = len(body).to_bytes(4, "little") + kind.to_bytes(2, "little") + bytes(2) + bytes(8) + sequence.to_bytes(8, "little")
    return head + library.XXH3_64bits(head + body, len(head + body)).to_bytes(8, "little") + body


def spoken_hello(cluster):
    """The HELLO of a real coppeliusctl, overheard on a socket of our own."""
    path = os.path.join(cluster.folder, "ear.sock")
    with socket.socket(socket.AF_UNIX) as ear:
        ear.bind(path)
        ear.listen(1)
        run = subprocess.Popen([program("coppeliusctl"), "--endpoint", f"unix:{path}", "nodes"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        talk, _ = ear.accept()
        with talk:
            talk.settimeout(5)
            hello = talk.recv(65536)
        run.wait()
    return hello


def overheard(cluster, node):
    """Every byte that an admin's coppeliusctl sent in a whole TLS connection that was let in."""
    cluster.offline("pki", "user", "ann", "--role", "admin", "--authority", cluster.authority, "--output",
                    os.path.join(cluster.folder, "ann"))
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as ear:
        run = subprocess.Popen([program("coppeliusctl"), "--identity", os.path.join(cluster.folder, "ann"), "--endpoint",
                                f"127.0.0.1:{ear.getsockname()[1]}", "nodes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        near, _ = ear.accept()
        far = socket.create_connection(("127.0.0.1", node.port))

        def back():
            try:
                while part := far.recv(65536):
                    near.sendall(part)
                near.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        thread = threading.Thread(target=back)
        thread.start()
        while part := near.recv(65536):
            heard.append(part)
            far.sendall(part)
        out, err = run.communicate()
        far.shutdown(socket.SHUT_RDWR)
        thread.join()
        near.close()
        far.close()
    claims.claim(run.returncode == 0, f"what is replayed was once let in: {err.decode()}")
    return b"".join(heard)


class Attack:
    """The kinds of hostile connections; each opens one, some keep it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.held = []  # slow ones: (until, socket)
        self.done = {}
        self.hello = spoken_hello(cluster)
        self.capture = overheard(cluster, cluster.nodes[1])
        self.old = frame(1, b"\x0a\x04test\x12\x01b\x18\x02\x20\x01\x28\x00\x30\x00") or b"\x30\0\0\0\1\0" + bytes(90)
        self.contexts = {}
        for name, of in (("wrong key", cluster.name), ("wrong cluster", "elsewhere")):
            folder = os.path.join(cluster.folder, name.replace(" ", "-"))
            cluster.offline("cluster", "init", "--cluster", of, "--name", "b", "--authority", folder, "--output", folder + "-b")
            self.contexts[name] = self.context(folder + "-b")
        self.contexts["old TLS"] = self.context(None, ssl.TLSVersion.TLSv1_2)
        self.kinds = [self.garbage, self.slow, self.wrong_key, self.wrong_cluster, self.replay, self.old_tls, self.old_frame,
                      self.http_garbage, self.http_slow, self.http_post, self.http_long,
                      self.admin_garbage, self.admin_slow, self.admin_old, self.admin_idle]

    def context(self, folder, most=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["coppelius/1"])
        if most:
            context.maximum_version = most
        if folder:
            context.load_cert_chain(os.path.join(folder, "node.crt"), os.path.join(folder, "node.key"))
        return context

    def node(self):
        return rand.choice(self.cluster.nodes)

    def dial(self, port):
        """Half of them from a member's address, half from others."""
        source = ("127.0.0.1" if rand.random() < 0.5 else f"127.0.0.{rand.randrange(20, 40)}", 0)
        s = socket.create_connection(("127.0.0.1", port), 5, source_address=source)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return s

    def admin(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(self.node().socket)
        return s

    def say(self, s, data):
        with s:
            s.sendall(data)
            s.settimeout(0.02)
            s.recv(4096)

    def hold(self, s, data=b""):
        s.sendall(data)
        self.held.append((time.monotonic() + rand.uniform(1, 4), s))

    def shake(self, name):
        with self.dial(self.node().port) as s:
            s.settimeout(2)
            with self.contexts[name].wrap_socket(s) as t:
                t.sendall(self.hello)
                t.recv(100)

    def garbage(self):
        self.say(self.dial(self.node().port), rand.randbytes(rand.randrange(1, 20000)))

    def slow(self):
        self.hold(self.dial(self.node().port), b"\x16\x03\x01")

    def wrong_key(self):
        self.shake("wrong key")

    def wrong_cluster(self):
        self.shake("wrong cluster")

    def replay(self):
        self.say(self.dial(self.node().port), self.capture)

    def old_tls(self):
        self.shake("old TLS")

    def old_frame(self):
        self.say(self.dial(self.node().port), self.old)

    def http_garbage(self):
        self.say(self.dial(self.node().http), rand.randbytes(rand.randrange(1, 9000)))

    def http_slow(self):
        self.hold(self.dial(self.node().http), b"GET /metrics HTTP/1.1\r\nHo")

    def http_post(self):
        self.say(self.dial(self.node().http), b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\njob: steal")

    def http_long(self):
        self.say(self.dial(self.node().http), b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 30000)

    def admin_garbage(self):
        self.say(self.admin(), rand.randbytes(rand.randrange(1, 9000)))

    def admin_slow(self):
        self.hold(self.admin(), self.hello[:9])

    def admin_old(self):
        self.say(self.admin(), self.old)

    def admin_idle(self):
        self.hold(self.admin(), self.hello)

    def drop(self, all_of_them=False):
        now = time.monotonic()
        for until, s in self.held:
            if all_of_them or until <= now:
                s.close()
        self.held = [] if all_of_them else [(u, s) for u, s in self.held if u > now]

    def run(self, count):
        begun = time.monotonic()
        for i in range(count):
            kind = self.kinds[i % len(self.kinds)]
            try:
                kind()
            except (OSError, ssl.SSLError):
                pass  # Cut, as it should be.
            self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
            self.drop()
            time.sleep(max(0.0, begun + (i + 1) / A_SECOND - time.monotonic()))
        return time.monotonic() - begun


# ---- what the daemons say ----

def steps(cluster):
    return min(float(line.rsplit(" ", 1)[1]) for node in cluster.nodes for line in node.metrics().splitlines()
               if line.startswith("coppelius_training_steps_total"))


def cpu(cluster):
    return sum(node.cpu_seconds() for node in cluster.nodes)


def size_of(node):
    with open(f"/proc/{node.process.pid}/status") as f:
        rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    return len(os.listdir(f"/proc/{node.process.pid}/fd")), rss * 1024


def loop_cpu(cluster):
    """CPU seconds of the threads that strangers can reach: every daemon's loop."""
    total = 0
    for node in cluster.nodes:
        pid = node.process.pid
        with open(f"/proc/{pid}/task/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Slice:
    """What the daemons did and paid while something went on."""

    def __init__(self, cluster, what):
        begun, made, used, loop = time.monotonic(), steps(cluster), cpu(cluster), loop_cpu(cluster)
        what()
        self.seconds = time.monotonic() - begun
        self.steps, self.cpu, self.loop = steps(cluster) - made, cpu(cluster) - used, loop_cpu(cluster) - loop
        self.cost = self.cpu / max(self.steps, 1)


def job_file(cluster):
    cases, base = golden_cases()
    case = next(c for c in cases if c["name"].startswith("california"))
    text = golden_job(case, base, name="attacked")
    text = "\n".join("  steps: 100000000" if line.startswith("  steps:") else line for line in text.splitlines()) + "\n"
    path = os.path.join(cluster.folder, "job.yaml")
    with open(path, "w") as f:
        f.write(text)
    return path


class Friend(threading.Thread):
    """Who belongs there, and asks twice a second by socket and by HTTP: how long each answer took."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster, self.over, self.took, self.failures = cluster, threading.Event(), [], []

    def run(self):
        while not self.over.wait(0.5):
            for ask in (lambda: self.cluster.ask("nodes"),
                        lambda: urllib.request.urlopen(f"http://127.0.0.1:{self.cluster.nodes[1].http}/healthz", timeout=10).read()):
                begun = time.monotonic()
                try:
                    ask()
                except Exception as e:  # Whatever it is, it is told.
                    self.failures.append(str(e))
                self.took.append(time.monotonic() - begun)


def crowd(cluster):
    """Ten times as many idle connections as there is room for, of one user: who comes is served at once."""
    node = cluster.nodes[1]
    idle = []
    for i in range(200):
        s = socket.socket(socket.AF_UNIX)
        s.connect(node.socket)
        h = socket.create_connection(("127.0.0.1", node.http), 5)
        idle += [s, h]
        time.sleep(0.002)
    begun = time.monotonic()
    cluster.ask("nodes", node=node)
    by_socket = time.monotonic() - begun
    begun = time.monotonic()
    node.metrics()
    by_http = time.monotonic() - begun
    claims.claim(by_socket < 4, f"200 idle connections do not shut coppeliusctl out: {by_socket:.2f} s")
    claims.claim(by_http < 4, f"200 idle connections do not shut Prometheus out: {by_http:.2f} s")
    for s in idle:
        s.close()


def main():
    with Cluster(nodes=3, secure=True) as cluster:
        job = cluster.submit(job_file(cluster))
        cluster.wait_job(job, states=("running",), seconds=60)
        cluster.wait_for(lambda: steps(cluster) > 50, 60, "50 steps")
        attack = Attack(cluster)
        attack.run(60)  # What is made once, is made: pools, arenas, the tables of libraries.
        attack.drop(True)
        time.sleep(2)
        before = [size_of(node) for node in cluster.nodes]
        pids = [node.process.pid for node in cluster.nodes]
        friend = Friend(cluster)
        friend.start()
        # Quiet and attacked in turn, since what a step costs on a busy machine drifts.
        calm = [Slice(cluster, lambda: time.sleep(QUIET_SECONDS))]
        attacked = []
        for _ in range(SLICES):
            attacked.append(Slice(cluster, lambda: attack.run(CONNECTIONS // SLICES)))
            attack.drop(True)
            calm.append(Slice(cluster, lambda: time.sleep(QUIET_SECONDS)))
        friend.over.set()
        friend.join()
        ratio = statistics.median(2 * a.cost / (p.cost + q.cost) for a, p, q in zip(attacked, calm, calm[1:]))
        loop_calm = sum(c.loop for c in calm) / sum(c.seconds for c in calm)
        seconds = sum(a.seconds for a in attacked)
        taken = (sum(a.loop for a in attacked) - loop_calm * seconds) / sum(a.cpu for a in attacked)
        print(f"{CONNECTIONS} connections in {seconds:.0f} s took {100 * taken:.1f} % of the daemons' CPU; CPU a step under attack over quiet, "
              f"median of {SLICES}: {ratio:.3f}; steps a second quiet {sum(c.steps for c in calm) / sum(c.seconds for c in calm):.0f}, attacked "
              f"{sum(a.steps for a in attacked) / seconds:.0f}; slowest answer to who belongs there {max(friend.took):.2f} s", flush=True)
        claims.claim(taken < 0.1, f"less than 10 % of the daemons' CPU goes to strangers: {taken:.3f}")
        claims.claim(ratio < 1.25, f"a step costs what it did (a busy machine's noise is 25 %): {ratio:.3f}")
        claims.claim(not friend.failures, f"who belongs there is served meanwhile: {friend.failures[:3]}")
        claims.claim(max(friend.took) < 8, f"... soon: {max(friend.took):.1f} s")
        claims.claim(len(attack.done) == len(attack.kinds) and min(attack.done.values()) >= CONNECTIONS // 30,
                     f"every kind came: {attack.done}")
        crowd(cluster)
        cluster.wait_for(lambda: all(size_of(n)[0] <= b[0] + 2 for n, b in zip(cluster.nodes, before)), 20,
                         f"the descriptors to be back at {[b[0] for b in before]}, now {[size_of(n)[0] for n in cluster.nodes]}")
        claims.claim(True, "no descriptor is left over")
        for node, (_, rss) in zip(cluster.nodes, before):
            now = size_of(node)[1]
            claims.claim(now <= rss * 1.1 + (8 << 20), f"node {node.name}: {rss >> 20} MiB before, {now >> 20} MiB after")
        claims.claim([n.process.pid for n in cluster.nodes if n.alive()] == pids, "all daemons live")
        refused = sum(float(line.rsplit(" ", 1)[1]) for node in cluster.nodes for line in node.metrics().splitlines()
                      if line.startswith("coppelius_peer_connections_refused_total"))
        claims.claim(refused >= CONNECTIONS / 20, f"they were counted: {refused}")
        lines = sum(len(node.log_text().splitlines()) for node in cluster.nodes)
        claims.claim(lines < 1000, f"the logs are not flooded: {lines} lines")
        state = cluster.job(job)
        claims.claim(state["state"] == "running" and state["generation"] == 1, f"the job runs in its first generation: {state['state']}")
        cluster.ctl("job", "cancel", str(job))
    claims.end()


main()
