"""A node that is stopped with SIGSTOP, a follower and then the leader: within 5 s every survivor names it, with step,
phase and bytes, in its log, in `coppeliusctl nodes` and in a metric; within 15 s the job is paused with the reason (it
needs all its nodes). With SIGCONT the node returns, fenced by its generation, and the job ends with the digest of the
undisturbed run. One that stands still for a moment only is not named."""
import re
import signal
import tempfile
import time
import urllib.request

from cluster import Claims, Cluster
from killing import write_job

NAMED_S = 5.0
ASKED_S = 6.0  # by somebody who asks: each question starts a program
SETTLED_S = 15.0
PAUSE_S = 1.5
BUSY = 0.2  # of a core: a daemon that waits
claims = Claims()


def names_in_log(node, victim, since):
    return re.findall(rf'node {victim.name} is gone: [^"]*', node.log_text()[since:])


def named_everywhere(cluster, node, victim, since):
    """None, or what this survivor says of the victim by now."""
    log = names_in_log(node, victim, since)
    told = node.metrics()
    if not log or f'coppelius_peer_up{{peer="{victim.name}"}} 0' not in told:
        return None
    for value in (rf'coppelius_peer_lost{{peer="{victim.name}",job="[1-9]\d*",phase="step"}} 1',
                  rf'coppelius_peer_lost_step{{peer="{victim.name}"}} [1-9]', rf'coppelius_peer_lost_sent_bytes{{peer="{victim.name}"}} [1-9]'):
        if not re.search(value, told):
            return None
    for listed in cluster.ask("nodes", node=node)["nodes"]:
        if listed["name"] == victim.name and listed["state"] != "alive" and listed["reason"]:
            return log[-1], listed["reason"]
    return None


def last_step(node):
    """When the node did its last step of the job, in seconds of the wall clock."""
    found = re.search(r'^coppelius_training_last_step_timestamp_seconds{run="[^"]*"} (\S+)$', node.metrics(), re.M)
    return float(found[1]) if found else None


def freeze(cluster, job_id, victim, what):
    survivors = [n for n in cluster.nodes if n is not victim]
    generation = cluster.job(job_id, node=survivors[0])["generation"]
    since = {n.name: len(n.log_text()) for n in survivors}
    victim.signal(signal.SIGSTOP)
    begin = time.monotonic()
    said, logged = {}, {}
    while len(said) < len(survivors) and time.monotonic() - begin < 4 * NAMED_S:
        for node in survivors:
            if node.name not in logged and names_in_log(node, victim, since[node.name]):
                logged[node.name] = time.monotonic() - begin
            if node.name not in said:
                heard = named_everywhere(cluster, node, victim, since[node.name])
                if heard:
                    said[node.name] = (time.monotonic() - begin, *heard)
        time.sleep(0.1)
    for node in survivors:
        seconds, log, reason = said.get(node.name, (float("inf"), "", ""))
        told = logged.get(node.name, float("inf"))
        print(f"{what} {victim.name} frozen: {node.name} named it after {told:.1f} s, asked {seconds:.1f} s: {log!r}", flush=True)
        claims.claim(told <= NAMED_S, f"{what}: node {node.name} names {victim.name} within {NAMED_S} s: {told:.1f}")
        claims.claim(seconds <= ASKED_S, f"{what}: {node.name}'s list and metric within {ASKED_S} s: {seconds:.1f}")
        for word in (r"step [1-9]", r"phase step", r" [1-9]\d* bytes"):
            claims.claim(re.search(word, log) is not None, f"{what}: the log of {node.name} tells '{word}': {log}")
            claims.claim(re.search(word, reason) is not None, f"{what}: `nodes` at {node.name} tells '{word}': {reason}")

    def settled():
        job = cluster.ask("job", "show", str(job_id), node=survivors[0])
        return job if job["state"] == "paused" or job["generation"] > generation else None
    job = cluster.wait_for(settled, SETTLED_S, f"the job to be paused after {what} {victim.name} froze")
    seconds = time.monotonic() - begin
    print(f"  {job['state']} after {seconds:.1f} s: {job['reason']}", flush=True)
    claims.claim(seconds <= SETTLED_S, f"{what}: the job is settled within {SETTLED_S} s: {seconds:.1f}")
    claims.claim(job["state"] == "paused" and victim.name in (job["reason"] or ""), f"{what}: the reason names it: {job}")
    before, watched = {n.name: n.cpu_seconds() for n in survivors}, time.monotonic()
    stood = {n.name: last_step(n) for n in survivors}
    time.sleep(2.0)
    for node in survivors:  # Life and progress are two signals.
        claims.claim(stood[node.name] is not None and last_step(node) == stood[node.name] < time.time() - 3,
                     f"{what}: {node.name} shows since when no step was done: {stood[node.name]}, now {time.time():.1f}")
        with urllib.request.urlopen("http" + f"://{node.host}:{node.http}/livez", timeout=10) as answer:
            claims.claim(answer.status == 200, f"{what}: and {node.name} lives")
    for node in survivors:
        used = (node.cpu_seconds() - before[node.name]) / (time.monotonic() - watched)
        claims.claim(used < BUSY, f"{what}: {node.name} uses {used:.2f} of a core while it waits")
    victim.signal(signal.SIGCONT)
    begin = time.monotonic()

    def again():
        now = cluster.ask("job", "show", str(job_id), node=survivors[0])
        return now if now["state"] in ("running", "finishing", "succeeded") and now["generation"] > generation else None
    job = cluster.wait_for(again, 30, "the job to run again")
    print(f"  generation {generation} -> {job['generation']} runs {time.monotonic() - begin:.1f} s after SIGCONT", flush=True)
    claims.claim(victim.alive(), f"{what}: {victim.name} is still the same process")


def pause(cluster, job_id, victim, what):
    """Shorter than anybody's patience: nobody is named and the generation goes on."""
    generation = cluster.job(job_id)["generation"]
    step = cluster.job(job_id)["step"]
    victim.signal(signal.SIGSTOP)
    time.sleep(PAUSE_S)
    victim.signal(signal.SIGCONT)
    cluster.wait_for(lambda: (cluster.job(job_id)["step"] or 0) > step + 200, 30, "the job to go on")
    job = cluster.job(job_id)
    claims.claim(job["generation"] == generation and job["state"] == "running",
                 f"{PAUSE_S} s without the {what} {victim.name} end no generation: {job['generation']}, not {generation}")


with tempfile.TemporaryDirectory() as folder:
    job_path = write_job(folder, steps=20000, every=500)
    with Cluster(nodes=3) as cluster:
        before = cluster.ask("cluster", "status")["last_index"]
        undisturbed = cluster.wait_job(cluster.submit(job_path), seconds=300)
        entries = cluster.ask("cluster", "status")["last_index"] - before
        # SUBMIT, PLACE, PARTITION, RUNNING, FINISH; of each epoch BEGIN, COLLECT, three votes, three publications.
        epochs = undisturbed["epoch"]
        print(f"{entries} entries of a job with {epochs} epochs", flush=True)
        claims.claim(entries <= (5 + 8 * epochs) * 11 // 10, f"the log has no flood of repetitions: {entries} entries")
    with Cluster(nodes=3) as cluster:
        job_id = cluster.submit(job_path)
        for what in ("follower", "leader"):
            first = cluster.job(job_id)["step"] or 0

            def steps():
                job = cluster.job(job_id)
                return job["state"] == "running" and (job["step"] or 0) > first + 1000
            cluster.wait_for(steps, 60, "the job to train")
            time.sleep(0.5)  # The others hear how far it is four times a second.
            for node in cluster.nodes:
                age = time.time() - (last_step(node) or 0)
                claims.claim(age < 10, f"{node.name} shows that it trains: its last step was {age:.1f} s ago")
            leader = cluster.wait_leader()
            victim = leader if what == "leader" else next(n for n in cluster.nodes if n is not leader)
            pause(cluster, job_id, victim, what)
            leader = cluster.wait_leader()
            victim = leader if what == "leader" else next(n for n in cluster.nodes if n is not leader)
            freeze(cluster, job_id, victim, what)
        job = cluster.wait_job(job_id, seconds=300)
        for key in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective"):
            claims.claim(job[key] == undisturbed[key], f"{key} is {job[key]}, undisturbed {undisturbed[key]}")
claims.end()
