"""Real daemons on loopback for the end-to-end tests: start, ask, kill, look at their files.

Every test program uses it like this:

    with Cluster(nodes=3) as cluster:
        job = cluster.submit("job.yaml")
        ...

Each cluster has its own loopback addresses and folder; nothing outlives the `with`.
"""
import json
import os
import re
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from ports import free_ports, release

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("COPPELIUS_BIN") or os.path.join(ROOT, "build", "release")
SHARED = os.environ.get("COPPELIUS_SHARED") or os.path.join(ROOT, "..", "shared")
LONG = bool(os.environ.get("COPPELIUS_LONG"))
SKIP = 77


def program(name):
    folder = {"coppeliusd": "daemon", "coppeliusctl": "ctl"}[name]
    return os.path.join(BIN, folder, name)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def need_shared(*parts):
    path = os.path.join(SHARED, *parts)
    if not os.path.exists(path):
        skip(f"{os.path.join('shared', *parts)} is not there")
    return path


def sanitized():
    """Whether the daemons have a sanitizer in them, which keeps what was freed for a while."""
    cache = os.path.join(BIN, "CMakeCache.txt")
    if not os.path.exists(cache):
        return False
    with open(cache) as f:
        return re.search(r"^COPPELIUS_SANITIZE:\w+=.+$", f.read(), re.M) is not None


def need_preload(name):
    """The path of a library to preload into the daemons; a sanitizer's own must come first, so not there."""
    path = os.path.join(BIN, "tests", "e2e", f"lib{name}.so")
    if not os.path.exists(path):
        skip(f"{path} is not built")
    if sanitized():
        skip("a preloaded library does not go together with a sanitizer")
    return path


class Failed(Exception):
    pass


class Node:
    def __init__(self, cluster, index, port, http):
        self.cluster, self.index, self.port, self.http = cluster, index, port, http
        self.name = "abcdefgh"[index]
        self.folder = os.path.join(cluster.folder, self.name)
        self.state = os.path.join(self.folder, "state")
        self.socket = os.path.join(self.folder, "ctl.sock")
        self.config = os.path.join(self.folder, "coppeliusd.yaml")
        self.log = os.path.join(self.folder, "log.txt")
        self.process = None
        self.environment = {}
        self.cwd = None  # the daemon's; /proc/self/cwd/… is then a path of its own for each node
        self.config_lines = []
        self.host = "127.0.0.1"
        self.token = None  # of its HTTP
        self.prefix = []  # what starts the daemon: a network namespace, say
        self.tls = "off"
        self.advertise = None  # where the others find it, if not at its endpoint: a proxy, say
        self.joins, self.role = None, "trainer"  # addresses of members that let it in, instead of peers

    @property
    def endpoint(self):
        return f"{self.host}:{self.port}"

    def write_config(self):
        os.makedirs(self.state, exist_ok=True)
        lines = [f"cluster: {self.cluster.name}", f"name: {self.name}", f"listen: {self.endpoint}",
                 f"advertise: {self.advertise or self.endpoint}", f"device: {self.cluster.devices[self.index]}",
                 f"device_share: {self.cluster.share}",
                 f"threads: {self.cluster.threads}", f"state_dir: {self.state}", f"socket: {self.socket}", f"tls: {self.tls}",
                 "http:", f"  listen: {self.host}:{self.http}"]
        if self.token:
            path = os.path.join(self.folder, "token")
            with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
                f.write(self.token + "\n")
            lines.append(f"  token_file: {path}")
        if self.joins:
            lines += [f"join: {self.joins}", f"role: {self.role}"]
        else:
            lines.append("peers:")
        for node in self.cluster.nodes if not self.joins else []:
            if node.joins:
                continue
            role = self.cluster.roles.get(node.name, "trainer")
            lines.append(f"  - {{name: {node.name}, address: \"{node.advertise or node.endpoint}\", role: {role}}}")
        lines += self.config_lines
        with open(self.config, "w") as f:
            f.write("\n".join(lines) + "\n")

    def start(self):
        assert self.process is None
        environment = dict(os.environ, **self.environment)
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([*self.prefix, program("coppeliusd"), "--config", self.config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=environment, cwd=self.cwd)
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def terminate(self, seconds=15):
        """SIGTERM; returns (exit status, seconds it took)."""
        begin = time.monotonic()
        self.process.terminate()
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"node {self.name} did not stop within {seconds} s of SIGTERM")
        self.process = None
        return status, time.monotonic() - begin

    def signal(self, number):
        os.kill(self.process.pid, number)

    def log_text(self):
        try:
            with open(self.log, errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def says(self, *parts, seconds=20):
        """Whether all of these are in its log before the time is over: another node or thread knows earlier."""
        end = time.monotonic() + seconds
        while not all(part in self.log_text() for part in parts):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def metrics(self):
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request("http" + f"://{self.host}:{self.http}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode()

    def cpu_seconds(self):
        """What the daemon has used so far, user and system."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def job_folder(self, job_id):
        jobs = os.path.join(self.state, "jobs")
        for name in os.listdir(jobs) if os.path.isdir(jobs) else []:
            if name.startswith(f"{job_id}-"):
                return os.path.join(jobs, name)
        return None


class Cluster:
    def __init__(self, nodes=3, threads=1, device="cpu", share="no", keep=None, roles=None, start=True,
                 secure=False):
        """device: one for all nodes, or a list with one for each. secure: TLS by an authority of their own."""
        self.folder = tempfile.mkdtemp(prefix="coppelius-e2e-")
        self.keep = keep if keep is not None else bool(os.environ.get("COPPELIUS_KEEP"))
        self.name, self.threads, self.share = "test", threads, share
        self.devices = device if isinstance(device, list) else [device] * nodes
        self.roles = roles or {}
        self.failed = False
        ports = free_ports(2 * nodes)
        self.nodes = []
        for i in range(nodes):
            self.nodes.append(Node(self, i, ports[2 * i], ports[2 * i + 1]))
        if secure:
            self.make_certificates()
        for node in self.nodes:
            node.write_config()
        if start:
            self.start()

    def make_certificates(self):
        """The authority is on the first node; every node's files where `tls: {}` looks for them."""
        self.authority = os.path.join(self.folder, "authority")
        for node in self.nodes:
            output = os.path.join(node.state, "tls")
            made = (["cluster", "init", "--cluster", self.name, "--name", node.name] if node is self.nodes[0]
                    else ["pki", "bundle", node.name])
            self.offline(*made, "--authority", self.authority, "--output", output)
            node.tls = f"{{authority: {self.authority}}}" if node is self.nodes[0] else "{}"

    def offline(self, *arguments, check=True, input=None, env=None):
        """coppeliusctl without a daemon."""
        run = subprocess.run([program("coppeliusctl"), *arguments], capture_output=True, text=True, timeout=60,
                             input=input, env=env)
        if check and run.returncode != 0:
            raise Failed(f"coppeliusctl {' '.join(arguments)}: exit {run.returncode}\n{run.stdout}{run.stderr}")
        return run

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for node in self.nodes:
            if node.alive():
                node.kill()
        if kind is not None:
            for node in self.nodes:
                print(f"--- the end of node {node.name}'s log", file=sys.stderr)
                print("\n".join(node.log_text().splitlines()[-40:]), file=sys.stderr)
        release(port for node in self.nodes for port in (node.port, node.http))
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            print(f"kept: {self.folder}", file=sys.stderr)

    def start(self, seconds=20):
        try:
            for node in self.nodes:
                node.start()
            self.wait_leader(seconds)
        except Exception:  # Nobody has entered the `with` yet.
            self.__exit__(*sys.exc_info())
            raise

    def ctl(self, *arguments, node=None, check=True, timeout=60, input=None):
        """Runs coppeliusctl against a node (the first that is alive); returns the finished process."""
        node = node or next((n for n in self.nodes if n.alive()), self.nodes[0])
        run = subprocess.run([program("coppeliusctl"), "--endpoint", f"unix:{node.socket}", *arguments],
                             capture_output=True, text=True, timeout=timeout, input=input)
        if check and run.returncode != 0:
            raise Failed(f"coppeliusctl {' '.join(arguments)}: exit {run.returncode}\n{run.stdout}{run.stderr}")
        return run

    def ask(self, *arguments, node=None, timeout=60):
        return json.loads(self.ctl(*arguments, "--json", node=node, timeout=timeout).stdout)

    def newcomer(self, joins, role="trainer"):
        """One more node, not started, that asks the node `joins` to let it in."""
        port, http = free_ports(2)
        self.devices.append("cpu")
        node = Node(self, len(self.nodes), port, http)
        node.joins, node.role = joins.endpoint, role
        node.tls = joins.tls if joins.tls == "off" else "{}"
        self.nodes.append(node)
        node.write_config()
        return node

    def member(self, name, node=None):
        """What a node says of the member of that name; None where it is none."""
        run = self.ctl("cluster", "status", "--json", node=node, check=False)
        members = json.loads(run.stdout)["members"] if run.stdout.strip() else []
        return next((m for m in members if m["name"] == name), None)

    def wait_leader(self, seconds=20):
        return self.wait_for(lambda: self.leader(), seconds, "a leader")

    def leader(self):
        for node in self.nodes:
            if not node.alive():
                continue
            run = self.ctl("cluster", "status", "--json", node=node, check=False)
            if run.returncode in (0, 3) and run.stdout.strip():
                name = json.loads(run.stdout).get("leader")
                for other in self.nodes:
                    if other.name == name and other.alive():
                        return other
        return None

    def wait_for(self, condition, seconds, what, every=0.05):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(every)
        raise Failed(f"waited {seconds} s for {what}")

    def wait_alive(self, seconds=20):
        """Until every node says that all are alive: whoever was started just now can be asked then."""
        def alive():
            for node in self.nodes:
                run = self.ctl("nodes", "--json", node=node, check=False)
                if run.returncode != 0 or any(n["state"] != "alive" for n in json.loads(run.stdout)["nodes"]):
                    return False
            return True
        return self.wait_for(alive, seconds, "all nodes to be alive")

    def submit(self, path, *arguments, node=None):
        return self.ask("submit", *arguments, path, node=node)["job"]

    def job(self, job_id, node=None):
        return self.ask("job", "show", str(job_id), node=node)

    def job_or_none(self, job_id):
        for node in self.nodes:
            if node.alive():
                run = self.ctl("job", "show", str(job_id), "--json", node=node, check=False)
                if run.returncode == 0:
                    return json.loads(run.stdout)
        return None

    def wait_job(self, job_id, states=("succeeded",), seconds=120):
        def reached():
            job = self.job_or_none(job_id)
            if job and job["state"] in ("failed", "cancelled") and job["state"] not in states:
                raise Failed(f"job {job_id} {job['state']}: {job['reason']}")
            return job if job and job["state"] in states else None
        return self.wait_for(reached, seconds, f"job {job_id} to be {' or '.join(states)}", every=0.1)


def golden_cases():
    path = need_shared("numerics", "golden.json")
    with open(path) as f:
        return json.load(f)["cases"], os.path.dirname(path)


def golden_job(case, base, storage="auto", every=None, name="golden"):
    """A job file's text for a case of golden.json: its arguments are reference.py's."""
    import argparse
    import shlex
    p = argparse.ArgumentParser()
    p.add_argument("data")
    p.add_argument("--format")
    p.add_argument("--target", default="last")
    p.add_argument("--header", action="store_true")
    p.add_argument("--drop-columns", default="")
    p.add_argument("--test", default="0")
    p.add_argument("--shuffle")
    p.add_argument("--standardize", action="store_true")
    p.add_argument("--rate")
    p.add_argument("--decay", default="0.9")
    p.add_argument("--batch", default="all")
    p.add_argument("--steps")
    p.add_argument("--l2", default="0")
    a = p.parse_args(shlex.split(case["arguments"]))
    path = os.path.abspath(os.path.join(base, a.data))
    lines = [f"name: {name}", "kind: regression", "data:", f"  path: {json.dumps(path)}", f"  format: {a.format}"]
    if a.format != "svm":
        lines += [f"  header: {'yes' if a.header else 'no'}", f"  target: {a.target}", "  missing: drop-row"]
    if a.drop_columns:
        lines.append(f"  drop: [{a.drop_columns}]")
    lines += [f"  storage: {storage}", f"  test: {a.test}", f"  standardize: {'yes' if a.standardize else 'no'}"]
    if a.shuffle is not None:
        lines.append(f"  shuffle: {a.shuffle}")
    lines += ["model:", f"  l2: {a.l2}", "optimizer:", f"  rate: {a.rate}", f"  decay: {a.decay}",
              f"  batch: {a.batch}", f"  steps: {a.steps}"]
    if every:
        lines += ["checkpoint:", f"  every: {every}"]
    return "\n".join(lines) + "\n"


def same_as_golden(case, job):
    wrong = []
    for key in ("parameter_sha256", "accumulator_sha256"):
        if job[key] != case[key]:
            wrong.append(f"{key}: {job[key]} instead of {case[key]}")
    if job["loss_hex"] is None or float.fromhex(job["loss_hex"]) != float.fromhex(case["last_loss"]):
        wrong.append(f"loss: {job['loss_hex']} instead of {case['last_loss']}")
    return wrong


class Claims:
    """Counts what a test program claims; ends it with a status."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def claim(self, holds, what):
        if holds:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}", flush=True)
        return holds

    def end(self):
        print(f"{self.passed} claims hold, {self.failed} do not", flush=True)
        sys.exit(1 if self.failed or not self.passed else 0)
