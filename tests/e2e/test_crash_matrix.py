"""The crash matrix on real processes. A node's nth creation, reservation, write, fsync, folder's fsync, rename, removal or send kills it
(before or after the call), and its file system forgets what was not synced; or the call fails (EIO, ENOSPC, a short write,
a failing fsync). Afterwards all nodes agree on the newest published checkpoint, it verifies, there never was a moment
without one (an independent reader looks all the time), leftovers are collected, and the job ends with the digest of the
undisturbed run.

COPPELIUS_LONG=1 takes every call of the matrix, in any order; else a sample of the points that matter most.
COPPELIUS_SECONDS ends either earlier, COPPELIUS_SEED repeats; COPPELIUS_PART=1/3 takes a third of them, so that several
processes with one seed take all."""
import os
import random
import re
import signal
import tempfile
import time

from cluster import LONG, Claims, Cluster, Failed, need_preload
from killing import start_readers, stop_readers, write_job

SHIM = need_preload("fault_shim")

NTH = {"create": 14, "reserve": 6, "write": 40, "fsync": 30, "dirsync": 20, "rename": 10, "unlink": 12, "send": 60}
ERRORS = {"create": ("enospc", "eio"), "reserve": ("enospc", "eio"), "write": ("eio", "enospc", "short"), "fsync": ("eio",), "dirsync": ("eio",),
          "rename": ("eio",), "send": ("eio",)}
# What of a node's files each point of the sample is about.
SAMPLE = [("fsync", "CURRENT.new"), ("rename", "CURRENT"), ("dirsync", "jobs/"), ("rename", "/epoch-"), ("write", "manifest"),
          ("fsync", "manifest"), ("write", ".part"), ("fsync", ".part"), ("reserve", ".part"), ("rename", ".safetensors"), ("create", "staging"),
          ("dirsync", "staging"), ("write", "log/"), ("fsync", "log/"), ("create", "log/"), ("dirsync", "log"),
          ("rename", "log/"), ("rename", "verdicts/"), ("unlink", ""), ("send", "")]
BUDGET_S = float(os.environ.get("COPPELIUS_SECONDS", "inf" if LONG else "35"))
PART, PARTS = (int(n) for n in os.environ.get("COPPELIUS_PART", "1/1").split("/"))
seed = int(os.environ.get("COPPELIUS_SEED", random.randrange(1 << 30)))
random.seed(seed)
print(f"seed {seed} (COPPELIUS_SEED repeats it)", flush=True)
claims = Claims()


def matrix():
    """(kind, action, nth, pattern, what is forgotten)"""
    points = []
    for kind, most in NTH.items():
        for nth in range(1, most + 1):
            for moment in ("before", "after"):
                points.append((kind, moment, nth, "", random.choice(["all", "all", str(random.randrange(1 << 30)), "none"])))
            for error in ERRORS.get(kind, ()):
                points.append((kind, error, nth, "", "none"))
    random.shuffle(points)
    return points


def sample():
    points = []
    for kind, pattern in SAMPLE:
        rare = kind in ("create", "dirsync", "rename") and pattern.startswith("log") or pattern == "verdicts/"
        nth = 1 if rare else random.choice([1, 1, 2, 3])
        points.append((kind, random.choice(["before", "after"]), nth, pattern, random.choice(["all", str(random.randrange(1 << 30))])))
        if kind in ERRORS:
            points.append((kind, random.choice(ERRORS[kind]), nth, pattern, "none"))
    random.shuffle(points)
    return points


def current(node, job_id):
    folder = node.job_folder(job_id)
    try:
        with open(os.path.join(folder or "", "CURRENT")) as f:
            name = re.fullmatch(r"epoch-(\d{8})\n", f.read())
            return int(name[1]) if name else -1
    except FileNotFoundError:
        return 0


def torn(node, job_id):
    path = os.path.join(node.job_folder(job_id) or "", "CURRENT")
    return os.path.exists(path) and not re.fullmatch(r"epoch-\d{8}\n", open(path).read())


def struck(report):
    try:
        with open(report) as f:
            found = re.search(r"^struck (.*)$", f.read(), re.M)
        return found and found[1]
    except FileNotFoundError:
        return None


def leftovers(node, job_id, keep=3):
    """What a finished job must not leave behind."""
    folder = node.job_folder(job_id)
    bad = []
    for path, folders, files in os.walk(folder):
        bad += [os.path.join(path, f) for f in files if f.endswith((".new", ".part", ".tmp"))]
        if os.path.basename(path) == "staging":
            bad += [os.path.join(path, f) for f in folders + files]
    epochs = [f for f in os.listdir(folder) if f.startswith("epoch-")]
    if len(epochs) > keep:
        bad.append(f"{len(epochs)} epochs")
    return bad


class Trials:
    def __init__(self, cluster, path, undisturbed, folder):
        self.cluster, self.path, self.undisturbed, self.folder = cluster, path, undisturbed, folder
        self.job_id = None
        self.number = self.died = self.failed = self.missed = self.jobs = 0
        self.torn = False
        self.hit = {}

    def job(self):
        """The job under way; a new one where there is none. Those that have ended are judged."""
        cluster = self.cluster
        job = cluster.job_or_none(self.job_id) if self.job_id else None
        if job is None or job["state"] == "succeeded":
            if job:
                self.judge(job)
            self.job_id = cluster.wait_for(self.submit, 30, "a node to take the job")
            self.jobs += 1
        return self.job_id

    def submit(self):
        try:
            return self.cluster.submit(self.path)
        except Failed:
            return None  # That node has only just started.

    def judge(self, job):
        cluster = self.cluster
        for key in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective"):
            claims.claim(job[key] == self.undisturbed[key], f"job {job['job']}: {key} is {job[key]}, not {self.undisturbed[key]}")
        cluster.wait_for(lambda: len({current(n, job["job"]) for n in cluster.nodes}) == 1, 30, "one newest checkpoint everywhere")

        def collected():
            return not any(leftovers(n, job["job"]) for n in cluster.nodes)
        try:
            cluster.wait_for(collected, 30, "the leftovers to be collected")
        except Failed:
            claims.claim(False, f"leftovers: {[leftovers(n, job['job']) for n in cluster.nodes]}")
        for node in cluster.nodes:
            verified = cluster.ctl("checkpoint", "verify", f"{node.job_folder(job['job'])}/latest", node=node, check=False)
            claims.claim(verified.returncode == 0, f"job {job['job']} on {node.name} verifies: {verified.stdout}{verified.stderr}")

    def revive(self):
        """Those that a failing call has ended a little later."""
        for node in self.cluster.nodes:
            if not node.alive():
                node.kill()
                node.start()

    def wait_training(self, job_id, seconds):
        """Until it has published again: else each try waits longer, and the nth call does not come."""
        before = max(current(n, job_id) for n in self.cluster.nodes)

        def trains():
            self.revive()
            job = self.cluster.job_or_none(job_id)
            return job and (job["state"] == "succeeded" or max(current(n, job_id) for n in self.cluster.nodes) > before)
        try:
            self.cluster.wait_for(trains, seconds, "the job to publish")
        except Failed:
            claims.claim(not LONG, f"the job does not publish within {seconds} s: {self.cluster.job_or_none(job_id)}")

    def trial(self, kind, action, nth, pattern, forget, lie=""):
        cluster = self.cluster
        began = time.monotonic()
        self.revive()
        job_id = self.job()
        self.wait_training(job_id, 60 if LONG else 4)
        leader = cluster.leader()
        victim = leader if leader and self.number % 2 == 0 else next(n for n in cluster.nodes if n is not leader)
        self.number += 1
        report, aside = (os.path.join(self.folder, f"{name}-{self.number}") for name in ("report", "aside"))
        os.mkdir(aside)
        what = f"{action} {kind} {nth} of '{pattern}', {victim.name}{' (leader)' if victim is leader else ''}, forgets {forget}"
        victim.kill()
        victim.environment = {"LD_PRELOAD": SHIM, "COPPELIUS_FAULT": f"{kind}:{action}:{nth}:{pattern}",
                              "COPPELIUS_FAULT_ROOT": victim.state, "COPPELIUS_FAULT_ASIDE": aside,
                              "COPPELIUS_FAULT_LIE": lie, "COPPELIUS_FAULT_REPORT": report, "COPPELIUS_FAULT_FORGET": forget}
        victim.start()
        victim.environment = {}  # Of its next start.
        newest = max(current(n, job_id) for n in cluster.nodes)

        def over():
            job = cluster.job_or_none(job_id) if not victim.alive() or random.random() < 0.1 else None
            return not victim.alive() or struck(report) or (job and job["state"] == "succeeded")
        begin = time.monotonic()
        while not over() and time.monotonic() - begin < (6 if LONG else 4):
            time.sleep(0.02)
        point = struck(report)
        if point:
            self.hit[kind] = self.hit.get(kind, 0) + 1
            lethal = action in ("before", "after")
            begin = time.monotonic()
            while victim.alive() and time.monotonic() - begin < (10 if lethal else 0.5):
                time.sleep(0.02)
            claims.claim(not lethal or not victim.alive(), f"{what}: the node was to die at {point}")
            self.torn = lethal and torn(victim, job_id)
            self.died += lethal
            self.failed += not lethal
            if not lethal and action != "short" and kind in ("write", "fsync") and "log/segment" in point:
                try:  # Nothing is known any more of a log that could not be written.
                    cluster.wait_for(lambda: not victim.alive(), 10, f"{what}: the node to end")
                    claims.claim(victim.process.returncode == 1 and "daemon.failed" in victim.log_text(),
                                 f"{what}: it ends with a sentence: {victim.process.returncode}")
                except Failed as error:
                    claims.claim(False, str(error))
            if not lethal and kind in ("create", "reserve", "write", "fsync") and "/staging/" in point:
                claims.claim(victim.alive(), f"{what}: a shard that cannot be written ends no node")
            if action == "enospc" and kind == "reserve" and "/staging/" in point:
                try:
                    cluster.wait_for(lambda: re.search(r"no room for '.*': it needs \d+ bytes, \d+ are free on the disk of '",
                                                       victim.log_text()), 30, f"{what}: a full disk to be told with its numbers")
                except Failed as error:
                    claims.claim(False, str(error))
            if not victim.alive() and not lethal:
                claims.claim(victim.process.returncode not in (-signal.SIGSEGV, -signal.SIGABRT),
                             f"{what}: it ends by itself, with a sentence: {victim.process.returncode}")
        else:
            self.missed += 1
        if not (point and victim.alive()):
            victim.kill()
            victim.start()

        def caught_up():
            self.revive()
            return all(current(n, job_id) >= newest for n in cluster.nodes)
        try:
            cluster.wait_for(caught_up, 30, f"{what}: every node to have published epoch {newest}")
        except Failed as error:
            print("\n".join(victim.log_text().splitlines()[-15:]))
            claims.claim(False, str(error))
        print(f"{time.monotonic() - began:.1f} s: {what}: {point or 'not reached'}", flush=True)


with tempfile.TemporaryDirectory() as folder:
    path = write_job(folder, steps=20000 if LONG else 4000, every=250)
    with Cluster(nodes=3) as cluster:
        undisturbed = cluster.wait_job(cluster.submit(path), seconds=120)
    points = matrix() if LONG else sample()
    size = len(matrix())
    points = points[PART - 1::PARTS]
    with Cluster(nodes=3) as cluster:
        readers = start_readers(cluster, "--may-forget")
        trials = Trials(cluster, path, undisturbed, cluster.folder)
        begin = time.monotonic()
        for point in points:
            trials.trial(*point)
            if time.monotonic() - begin > BUDGET_S:
                break
        def ended():
            trials.revive()
            job = cluster.job_or_none(trials.job_id)
            return job if job and job["state"] in ("succeeded", "failed") else None
        try:
            trials.judge(cluster.wait_for(ended, 120, "the last job to end"))
        except Failed:
            print(cluster.job_or_none(trials.job_id), [n.alive() for n in cluster.nodes])
            raise
        stop_readers(claims, readers)
        # Would all this notice a missing fsync? A disk that lies about CURRENT.new's leaves it empty.
        trials.trial("create", "before", 2, "CURRENT.new", "all", lie="CURRENT.new")
        claims.claim(trials.torn, "without its fsync CURRENT is torn: the file system does forget")
    print(f"the matrix has {size} points ({', '.join(f'{k} 1..{n}' for k, n in NTH.items())}; before, after and errors); "
          f"part {PART}/{PARTS} with seed {seed}: {trials.number} run: {trials.died} deaths, {trials.failed} failing calls, {trials.missed} not reached; by kind {trials.hit}; "
          f"{trials.jobs} jobs", flush=True)
    claims.claim(trials.died + trials.failed >= trials.number // 2, "at least half of the points were reached")
claims.end()
