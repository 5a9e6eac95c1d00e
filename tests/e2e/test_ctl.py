"""What coppeliusctl promises, with real daemons: local and its exit statuses, predictions, checkpoints that are shown,
verified, fetched and exported, refused input, and that nothing is left behind, Ctrl-C included."""
import csv
import fcntl
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from cluster import BIN, Claims, Cluster, ROOT, program

CTL = program("coppeliusctl")
DATA = os.path.join(ROOT, "deploy", "examples", "hflights", "hflights.csv")
NAMES = ["job", "name", "state", "step", "steps", "loss", "loss_hex", "objective", "nodes", "generation", "checkpoint",
         "epoch", "parameter_sha256", "accumulator_sha256", "reason"]
FLAGS = ["--format", "csv", "--header", "yes", "--target", "ArrDelay", "--test", "0.2"]
JOB = f"""name: flights
data: {{path: {DATA}, format: csv, header: yes, target: ArrDelay, test: 0.2, standardize: yes}}
model: {{l2: 0.1}}
optimizer: {{rate: 0.1, steps: 30}}
checkpoint: {{every: 10}}
"""

claims = Claims()
folder = tempfile.mkdtemp(prefix="coppelius-ctl-")
environment = dict(os.environ, TMPDIR=folder, COPPELIUSD=program("coppeliusd"))
environment.pop("COPPELIUS_ENDPOINT", None)


def run(*arguments, timeout=120, **more):
    return subprocess.run([CTL, *arguments], capture_output=True, text=True, timeout=timeout, cwd=folder,
                          env=environment, **more)


def status(expected, *arguments, says=""):
    done = run(*arguments)
    claims.claim(done.returncode == expected and says in done.stderr,
                 f"{' '.join(arguments)}: exit {done.returncode}, not {expected}; {done.stderr}")
    return done


def left_behind():
    """Throw-away folders, but for the logs of runs that failed, and daemons that were started out of them."""
    left = [name for name in os.listdir(folder) if name.startswith("coppelius-")
            and os.listdir(os.path.join(folder, name)) != ["logs"]]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if folder.encode() in f.read() and int(pid) != os.getpid():
                    left.append(f"process {pid}")
        except OSError:
            pass
    return left


def write(name, text):
    with open(os.path.join(folder, name), "w") as f:
        f.write(text)
    return name


def test_local():
    job = write("job.yaml", JOB)
    results = []
    for nodes in (1, 3):
        done = run("local", "--nodes", str(nodes), "--dir", f"out{nodes}", "--json", job)
        claims.claim(done.returncode == 0, f"local --nodes {nodes}: exit {done.returncode}: {done.stderr}")
        result = json.loads(done.stdout)
        results.append(result)
        missing = [name for name in NAMES if name not in result]
        claims.claim(not missing, f"local's document lacks {missing}")
        claims.claim(result["state"] == "succeeded" and result["step"] == 30 and result["nodes"] == nodes and
                     result["epoch"] == 3, f"local --nodes {nodes}: {result}")
        claims.claim(float.fromhex(result["loss_hex"]) == result["loss"], "loss and loss_hex are one number")
        claims.claim(os.path.isdir(result["checkpoint"]) and not os.path.exists(os.path.join(folder, f"out{nodes}", "nodes")),
                     "the checkpoint stays, the nodes' folders go")
        sums = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=result["checkpoint"],
                              capture_output=True, text=True)
        claims.claim(sums.returncode == 0 and sums.stdout.count(": OK") == nodes + 1, f"SHA256SUMS: {sums.stdout}{sums.stderr}")
    for name in ("parameter_sha256", "accumulator_sha256", "loss_hex", "objective"):
        claims.claim(results[0][name] == results[1][name], f"{name} of 1 and of 3 nodes")
    status(2, "local", "--dir", "out3", job, says="is there from another run")

    longer = run("local", "--nodes", "2", "--from", results[1]["checkpoint"], "--set", "optimizer.steps=50", "--json", job)
    whole = run("local", "--set", "optimizer.steps=50", "--json", job)
    claims.claim(longer.returncode == 0 and whole.returncode == 0, f"continued: {longer.stderr}{whole.stderr}")
    if longer.returncode == 0 and whole.returncode == 0:
        a, b = json.loads(longer.stdout), json.loads(whole.stdout)
        claims.claim(a["parameter_sha256"] == b["parameter_sha256"], "30 steps on 3 nodes and 20 on 2 are 50 on 1")
    diverged = run("local", "--nodes", "2", "--set", "optimizer.rate=1e30", "--json", job)
    claims.claim(diverged.returncode == 6, f"a diverging job: exit {diverged.returncode}: {diverged.stderr}")
    if diverged.stdout:
        result = json.loads(diverged.stdout)
        claims.claim(result["state"] == "failed" and result["reason"], f"a diverging job says why: {result}")
    return results[1]["checkpoint"]


def test_interrupt():
    job = write("long.yaml", JOB.replace("steps: 30", "steps: 1000000"))
    for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 130)):
        process = subprocess.Popen([CTL, "local", "--nodes", "3", "--json", job], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, cwd=folder, env=environment)
        for line in process.stderr:
            if "running" in line:
                break
        begin = time.monotonic()
        process.send_signal(number)
        process.communicate(timeout=40)
        claims.claim(process.returncode == expected and time.monotonic() - begin < 20,
                     f"signal {number}: exit {process.returncode} after {time.monotonic() - begin:.1f} s")
        claims.claim(not left_behind(), f"signal {number} leaves {left_behind()}")
    process = subprocess.Popen([CTL, "local", "--nodes", "2", "--quiet", job], cwd=folder, env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while any("process" in item for item in left_behind()) and time.monotonic() < end:
        time.sleep(0.2)
    claims.claim(not any("process" in item for item in left_behind()), f"a killed coppeliusctl leaves {left_behind()}")
    for name in os.listdir(folder):
        if name.startswith("coppelius-"):
            shutil.rmtree(os.path.join(folder, name))


def test_predict(checkpoint):
    done = status(0, "predict", "--checkpoint", checkpoint, "--data", DATA, *FLAGS, "--rows", "test", "--metrics",
                  "--output", "y.txt", "--json")
    document = json.loads(done.stdout or "{}")
    with open(os.path.join(folder, "y.txt")) as f:
        values = [float(line) for line in f]
    with open(DATA) as f:
        rows = [row for row in csv.DictReader(f)]
    truth = [float(row["ArrDelay"]) for row in rows[len(rows) - int(len(rows) * 0.2):]]
    claims.claim(len(values) == len(truth) == document.get("rows"), f"{len(values)} predictions for {len(truth)} rows")
    mean = sum(truth) / len(truth)
    left = sum((v - t) ** 2 for v, t in zip(values, truth))
    r2 = 1 - left / sum((t - mean) ** 2 for t in truth)
    claims.claim(abs(r2 - document.get("r2", 9)) < 1e-9, f"R^2 is {r2}, predict says {document.get('r2')}")
    claims.claim(abs((left / len(truth)) ** 0.5 - document.get("rmse", 9)) < 1e-6, "RMSE by an independent sum")
    status(2, "predict", "--checkpoint", checkpoint, "--data", DATA, "--format", "csv", "--rows", "test", says="--test")
    status(2, "predict", "--checkpoint", checkpoint, "--data", "nofile", *FLAGS, says="No such file")
    status(4, "predict", "--checkpoint", "nowhere", "--data", DATA, *FLAGS, says="No such file")
    parent = os.path.dirname(checkpoint)
    for command in (("predict", "--data", DATA, *FLAGS, "--checkpoint"), ("checkpoint", "show")):
        status(4, *command, parent, says=f"'{parent}' has checkpoints in it; name one, such as {checkpoint}\n")
    for verb in ("info", "verify"):
        status(2, "data", verb, DATA, says=f"'{DATA}' is a file, not a native folder\nhint: read it first: coppeliusctl data import")


def test_failed_local():
    """What is said of a failed run points to what is there when its daemons are gone."""
    write("bad.csv", "a;y\n1,5;2\n")
    write("bad.yaml", JOB.replace(DATA, "bad.csv").replace("ArrDelay", "y"))
    done = status(6, "local", "bad.yaml", says='set data.separator: ";" (--separator \';\')')
    found = re.search(r"hint: the daemons' logs are in (\S+)", done.stderr)
    claims.claim(found and os.path.getsize(os.path.join(found.group(1), "node-1.log")) > 0, f"the logs are there: {done.stderr}")
    claims.claim("coppeliusctl logs bad" not in done.stderr, "no daemon that is gone is to be asked")
    if found:
        base = os.path.dirname(found.group(1))
        claims.claim(os.listdir(base) == ["logs"], f"nothing but the logs is left: {os.listdir(base)}")
        shutil.rmtree(base)
    status(6, "local", "--dir", "failed", "bad.yaml", says=f"logs are in {os.path.realpath(folder)}/failed/logs")
    status(6, "local", "--dir", "failed", "bad.yaml", says="logs are in")  # What is left is not in the next run's way.


def test_exchange_threads():
    """It only makes a run faster or slower: the throw-away daemons hear it, and refuse what they cannot read."""
    write("threads.yaml", JOB)
    environment["COPPELIUSD_EXCHANGE_THREADS"] = "many"
    done = run("local", "--nodes", "2", "threads.yaml")
    claims.claim(done.returncode != 0 and "COPPELIUSD_EXCHANGE_THREADS" in done.stderr, f"they hear it: {done.returncode} {done.stderr}")
    environment["COPPELIUSD_EXCHANGE_THREADS"] = "1"
    status(0, "local", "--nodes", "2", "threads.yaml")
    del environment["COPPELIUSD_EXCHANGE_THREADS"]


def test_checkpoints(checkpoint):
    shown = json.loads(status(0, "checkpoint", "show", checkpoint, "--json").stdout)
    for name in ("parameter_sha256", "accumulator_sha256", "epoch", "step", "policy", "shards"):
        claims.claim(name in shown, f"checkpoint show --json lacks {name}")
    status(0, "checkpoint", "verify", checkpoint, says="agree with the manifest")
    status(0, "checkpoint", "export", checkpoint, "--format", "csv", "--output", "weights.csv")
    status(0, "checkpoint", "export", checkpoint, "--format", "npz", "--output", "weights.npz")
    with open(os.path.join(folder, "weights.csv")) as f:
        weights = [float(row["parameter"]) for row in csv.DictReader(f)]
    import hashlib
    import zipfile
    raw = struct.pack(f"<{len(weights)}d", *weights)
    claims.claim(hashlib.sha256(raw).hexdigest() == shown["parameter_sha256"], "the exported CSV has the parameter's bits")
    with zipfile.ZipFile(os.path.join(folder, "weights.npz")) as z:
        claims.claim(z.testzip() is None and z.read("parameter.npy").endswith(raw), "the exported NPZ has the parameter's bits")
    damaged = os.path.join(folder, "damaged")
    shutil.copytree(checkpoint, damaged)
    shard = sorted(n for n in os.listdir(damaged) if n.startswith("shard"))[1]
    with open(os.path.join(damaged, shard), "r+b") as f:
        f.seek(-9, os.SEEK_END)
        byte = f.read(1)
        f.seek(-9, os.SEEK_END)
        f.write(bytes([byte[0] ^ 1]))
    status(7, "checkpoint", "verify", "damaged", says=shard)
    status(7, "checkpoint", "export", "damaged", "--format", "json", "--output", "no.json", says=shard)
    claims.claim(not os.path.exists(os.path.join(folder, "no.json")), "a damaged checkpoint exports nothing")
    os.unlink(os.path.join(damaged, shard))
    status(7, "checkpoint", "verify", "damaged", says=shard)
    status(4, "checkpoint", "verify", "nowhere", says="No such file")


def test_refusals():
    write("bad.yaml", "name: x\ndata: {path: a.csv, fromat: csv}\noptimizer: {rate: -1, steps: 3}\n")
    for command in (["local", "bad.yaml"], ["submit", "bad.yaml"]):
        done = status(2, *command, says='bad.yaml:2:21: data.fromat: unknown key (did you mean "data.format"?)')
        claims.claim("bad.yaml:3:19: optimizer.rate: must be" in done.stderr and done.stdout == "", "all faults in one pass")
    status(5, "jobs", "--endpoint", "127.0.0.1:1", says="cannot reach 127.0.0.1:1")
    status(2, "jbos", says="did you mean 'coppeliusctl jobs'?")
    write("missing.yaml", JOB.replace(DATA, "missing.csv"))
    done = run("local", "--json", "missing.yaml")
    claims.claim(done.returncode in (2, 6) and "missing.csv" in done.stderr + done.stdout,
                 f"data that is not there: exit {done.returncode}: {done.stderr}")


def test_taken_port():
    """The port that was free is taken when the daemon comes: the first start fails, the second one does not."""
    script = write("coppeliusd-late", f"""#!/bin/sh
if mkdir {folder}/was-late 2>/dev/null; then
    echo "<3>daemon.failed reason=\\"cannot listen on 127.0.0.1:1: Address already in use\\"" >&2
    exit 5
fi
exec {program("coppeliusd")} "$@"
""")
    os.chmod(os.path.join(folder, script), 0o755)
    more = dict(environment, COPPELIUSD=os.path.join(folder, script))
    done = subprocess.run([CTL, "local", "--nodes", "2", "-q", "job.yaml"], capture_output=True, text=True, cwd=folder,
                          env=more, timeout=120)
    claims.claim(done.returncode == 0 and os.path.isdir(os.path.join(folder, "was-late")),
                 f"a taken port is tried again: exit {done.returncode}: {done.stderr}")
    broken = dict(environment, COPPELIUSD="/bin/false")
    done = subprocess.run([CTL, "local", "-q", "job.yaml"], capture_output=True, text=True, cwd=folder, env=broken,
                          timeout=120)
    claims.claim(done.returncode == 1 and "throw-away node-1 ended with status 1" in done.stderr, f"no daemon: {done.stderr}")


def test_rows_of_a_prediction(checkpoint):
    """A prediction takes no more memory than it may: refused before its rows are read, with how many would do."""
    with Cluster(nodes=1, start=False) as cluster:
        cluster.nodes[0].config_lines.append("limits: {memory: 4M}")
        cluster.nodes[0].write_config()
        cluster.start()
        cluster.wait_alive()
        asked = ("predict", "--checkpoint", os.path.join(folder, checkpoint), *FLAGS, "--data")
        done = cluster.ctl(*asked, DATA, check=False)
        said = re.search(r"(\d+) rows take (\d+) bytes, a prediction on node a may take 4194304 \(limits.memory\): predict about (\d+) rows "
                         r"at once", done.stderr)
        claims.claim(done.returncode != 0 and said is not None, f"too many rows: exit {done.returncode}: {done.stderr}")
        if said is not None:
            rows, needed, fewer = (int(n) for n in said.groups())
            claims.claim(rows == 223874 and needed > 4 << 20 and 0 < fewer < rows, said.group(0))
            few = os.path.join(folder, "few.csv")
            with open(DATA) as whole, open(few, "w") as part:
                part.writelines(line for _, line in zip(range(fewer + 1), whole))
            done = cluster.ctl(*asked, few, "--output", os.path.join(folder, "few.txt"), "--json")
            claims.claim(json.loads(done.stdout)["rows"] == fewer, f"as many as it said: {done.stdout[:200]}")


def test_parts(cluster, job):
    """What is made beside its place: one process makes it, and what a dead one has left is made anew."""
    place = os.path.join(folder, "twice")
    os.mkdir(place + ".part")
    with open(os.path.join(place + ".part", "left"), "w") as file:
        file.write("by a dead one")
    fetch = ("checkpoint", "fetch", "0", "--job", str(job), "--output", place, "-q")
    held = os.open(place + ".part", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = cluster.ctl(*fetch, check=False)
    claims.claim(done.returncode != 0 and f"'{place}' is being made by another process" in done.stderr and "--output" in done.stderr,
                 f"a second fetch: exit {done.returncode}: {done.stderr}")
    claims.claim(os.listdir(place + ".part") == ["left"], "which leaves what the first one has alone")
    os.close(held)
    done = cluster.ctl(*fetch, check=False)
    claims.claim(done.returncode == 0 and "left" not in os.listdir(place) and not os.path.exists(place + ".part"),
                 f"what a dead one has left: exit {done.returncode}: {done.stderr}")
    output = os.path.join(folder, "twice.txt")
    with open(output + ".part", "w") as file:
        file.write("by a dead one\n" * 1000000)
        file.flush()
        predict = ("predict", "--checkpoint", place, "--data", DATA, *FLAGS, "--rows", "test", "--output", output)
        fcntl.flock(file, fcntl.LOCK_EX)
        done = cluster.ctl(*predict, check=False)
        claims.claim(done.returncode != 0 and "is being made by another process" in done.stderr, f"a second predict: {done.stderr}")
    done = cluster.ctl(*predict, check=False)
    with open(output) as file:
        claims.claim(done.returncode == 0 and "dead" not in file.read(), f"predictions anew: {done.stderr}")


def test_cluster():
    with Cluster(nodes=3) as cluster:
        path = os.path.join(folder, "job.yaml")
        job = cluster.submit(path)
        end = cluster.ctl("watch", str(job), "--json", timeout=120)
        claims.claim(json.loads(end.stdout)["state"] == "succeeded", "watch --json ends with the job's document")
        cluster.wait_job(job)
        listed = cluster.ask("checkpoint", "list")["checkpoints"]
        claims.claim([c["epoch"] for c in listed if c["state"] == "published"] == [1, 2, 3], f"published: {listed}")
        fetched = os.path.join(folder, "fetched")
        cluster.ctl("checkpoint", "fetch", "0", "--job", str(job), "--output", fetched, "-q")
        test_parts(cluster, job)
        done = run("checkpoint", "verify", fetched, "--json")
        claims.claim(done.returncode == 0 and json.loads(done.stdout)["whole"], f"the fetched one is whole: {done.stderr}")
        shown = cluster.ask("checkpoint", "show", fetched)["shards"]
        claims.claim(all(shard["node"] in shard["copies"] for shard in shown), f"show names who holds the shards: {shown}")
        claims.claim("COPIES" in cluster.ctl("checkpoint", "show", fetched).stdout, "in its table too")
        shown = json.loads(run("checkpoint", "show", fetched, "--json").stdout)["shards"]
        claims.claim(all(shard["copies"] is None for shard in shown), "which nobody knows without a daemon")
        claims.claim(cluster.ctl("jobs", "-o", "name").stdout == "flights\n", "jobs -o name")
        claims.claim(cluster.ctl("job", "show", "nope", check=False).returncode == 4, "no such job")
        claims.claim(cluster.ctl("nodes").stdout.count("alive") == 3, "three nodes are alive")
        claims.claim(cluster.ctl("doctor", check=False).returncode in (0, 3), "doctor")
        for arguments in (["jobs"], ["nodes"], ["session"], ["cluster", "status"], ["checkpoint", "list"], ["job", "show"],
                          ["doctor"]):
            document = json.loads(cluster.ctl(*arguments, "--json", check=False).stdout)
            claims.claim(document.get("schema") == 1, f"{arguments} --json has schema 1")
        lines = [json.loads(line) for line in io.StringIO(cluster.ctl("watch", str(job), "-o", "jsonl").stdout)]
        claims.claim(lines[0]["event"] == "history" and lines[-1]["event"] == "end", "watch -o jsonl: history first, end last")
        long = cluster.submit(path, "--set", "name=long", "--set", "optimizer.steps=1000000")
        claims.claim(cluster.ctl("job", "wait", str(long), "--for", "running", "--timeout", "30s").returncode == 0, "wait")
        claims.claim(cluster.ctl("job", "wait", "long", "--timeout", "500ms", check=False).returncode == 124, "wait times out")
        cluster.ctl("job", "cancel", "long")
        claims.claim(cluster.ctl("job", "wait", "long", "--timeout", "30s", check=False).returncode == 6, "a cancelled job")
        for node in cluster.nodes[1:]:
            node.kill()
        lone = cluster.wait_for(lambda: cluster.ctl("cluster", "status", check=False).returncode == 3, 20, "status 3")
        claims.claim(lone, "one of three is not healthy")


try:
    newest = test_local()
    test_predict(newest)
    test_rows_of_a_prediction(newest)
    test_checkpoints(newest)
    test_refusals()
    test_taken_port()
    test_failed_local()
    test_exchange_threads()
    claims.claim(not left_behind(), f"left behind: {left_behind()}")
    test_interrupt()
    test_cluster()
finally:
    shutil.rmtree(folder, ignore_errors=True)
claims.end()
