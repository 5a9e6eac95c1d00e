"""What is wrong is refused in one sentence that says where and what to do, with the exit status that docs/operations.md
and `coppeliusctl help` name: bad jobs, bad configurations, taken ports, state folders of others or damaged ones,
endpoints where nobody is, checkpoints that do not fit."""
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile

from cluster import Claims, Cluster, ROOT, free_ports, program

DAEMON, CTL = program("coppeliusd"), program("coppeliusctl")
DATA = os.path.join(ROOT, "deploy", "examples", "hflights", "hflights.csv")
claims = Claims()
folder = tempfile.mkdtemp(prefix="coppelius-refuse-")
environment = dict(os.environ, TMPDIR=folder, COPPELIUSD=DAEMON)
environment.pop("COPPELIUS_ENDPOINT", None)


def path(*parts):
    return os.path.join(folder, *parts)


def write(name, text):
    with open(path(name), "w") as f:
        f.write(text)
    return path(name)


def expect(status, says, command, *arguments, lines=None):
    """The program ends with that status and says it once; lines: how many of standard error are no hint and no log."""
    done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=60, cwd=folder, env=environment)
    what = f"{os.path.basename(command)} {' '.join(arguments)}"
    claims.claim(done.returncode == status, f"{what}: exit {done.returncode}, not {status}: {done.stderr}")
    claims.claim(says in done.stderr, f"{what}: says {says!r}: {done.stderr}")
    told = [line for line in done.stderr.splitlines() if not line.startswith(("hint:", "<5>", "<6>"))]
    claims.claim(lines is None or len(told) == lines, f"{what}: {len(told)} lines: {done.stderr}")
    return done


# ---- the daemon ----

def config(name="a", port=0, http=0, state="state", more=""):
    port, http = port or free_ports(1)[0], http or free_ports(1)[0]
    return write(f"{name}.yaml", f"cluster: test\nname: {name}\nlisten: 127.0.0.1:{port}\ndevice: cpu\nthreads: 1\n"
                 f"state_dir: {path(state)}\nsocket: {path(name + '.sock')}\ntls: off\nhttp: {{listen: 127.0.0.1:{http}}}\n{more}")


def test_configurations():
    for text, place in (("bogus: 1\n", ":10:1: bogus: unknown key"), ("streams: many\n", ":10:10: streams: "),
                        ("streams: 4\nstreams: 5\n", ":11:1: streams: duplicate key")):
        file = config(more=text)
        for check in ([], ["--check-config"]):
            expect(2, file + place, DAEMON, *check, "--config", file, lines=1)
        expect(2, place, CTL, "config", "check", file)
    expect(2, "absent.yaml: cannot be opened: No such file", DAEMON, "--config", "absent.yaml", lines=1)
    file = write("yaml.yaml", "cluster: [\n")
    expect(2, "not YAML", DAEMON, "--config", file)
    expect(2, "", DAEMON, "--no-such-option")
    expect(1, "coppeliusd: no ", DAEMON, "--bench-tiles", "absent", lines=1)  # driver, kernels, or none built in
    expect(1, "coppeliusd: no ", DAEMON, "--list-images", "absent", lines=1)
    expect(1, "coppeliusd: no ", CTL, "bench", "tiles", "absent", lines=1)
    for word in ("tiles", "images"):
        expect(1, "coppeliusd: no ", CTL, "bench", word, lines=1)
    test_images()
    file = config(more=f"tile_choices: {path('absent.choices')}\n")
    expect(2, f"{file}:10:15: tile_choices: {path('absent.choices')}: cannot be opened", DAEMON, "--config", file, lines=1)
    file = config(more=f"tile_choices: {write('damaged.choices', '# a table' + chr(10) + 'sm_86 1 tiled-rr tile=1 split=x' + chr(10))}\n")
    expect(2, f"{path('damaged.choices')}:2: not a choice: 'sm_86 1 tiled-rr tile=1 split=x'", DAEMON, "--check-config", "--config",
           file, lines=1)
    claims.claim(not os.path.exists(path("state")), "a bad configuration makes no state folder")


def test_images():
    """The device images of the program, or in one line that it has none."""
    done = subprocess.run([CTL, "images", "--json"], capture_output=True, text=True, timeout=60, env=environment)
    if done.returncode != 0:
        expect(1, "no GPU kernels in this build", CTL, "images", lines=1)
        return
    images = json.loads(done.stdout)["images"]
    claims.claim(any(image["name"] == "forward-dense" for image in images), f"the regression's images: {len(images)}")
    claims.claim(all(image["registers"] > 0 and image["threads"] > 0 for image in images), "each image has its record")
    for architecture in sorted({image["architecture"] for image in images}):
        few = json.loads(subprocess.run([CTL, "images", architecture, "--json"], capture_output=True, text=True, timeout=60,
                                        env=environment).stdout)
        claims.claim(few["images"] == [image for image in images if image["architecture"] == architecture], f"those of {architecture}")


def test_ports():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        os.mkdir(path("state"))
        done = expect(5, f"cannot listen on 127.0.0.1:{port}", DAEMON, "--config", config(port=port), lines=1)
        claims.claim(f"process {os.getpid()}" in done.stderr, f"who has the port is named: {done.stderr}")
        expect(2, f"http.listen: port {port} of 127.0.0.1 is taken", DAEMON, "--config", config(http=port), lines=1)


def test_state_folders():
    shutil.rmtree(path("state"), ignore_errors=True)
    with Cluster(nodes=1) as cluster:
        cluster.nodes[0].terminate()
        node = cluster.nodes[0]
        shutil.copytree(node.state, path("kept"))

    def folder_with(change):
        shutil.rmtree(path("state"), ignore_errors=True)
        shutil.copytree(path("kept"), path("state"))
        change()

    def replace(name, old, new):
        with open(path("state", name)) as f:
            text = f.read()
        assert old in text, text
        with open(path("state", name), "w") as f:
            f.write(text.replace(old, new))

    def flip():
        name = sorted(n for n in os.listdir(path("state", "log")) if n.startswith("segment"))[0]
        with open(path("state", "log", name), "r+b") as f:
            f.seek(30)
            byte = f.read(1)[0]
            f.seek(30)
            f.write(bytes([byte ^ 1]))

    cases = [(1, "belongs to node 'a' of cluster 'test', not to 'b' of 'test'", lambda: None, config("b")),
             (1, "has format 9, this version knows 1", lambda: replace("node.json", '"format": 1', '"format": 9'), config()),
             (7, "node.json' cannot be read", lambda: write("state/node.json", '{"format'), config()),
             (1, "has a log but no node.json", lambda: os.unlink(path("state", "node.json")), config()),
             (7, "the log in 'log' is '77'", lambda: write("state/log/format", "77\n"), config()),
             (7, "its header is damaged", flip, config()),
             (7, "a node that forgot its votes must not vote", lambda: shutil.rmtree(path("state", "log")), config())]
    for status, says, change, file in cases:
        folder_with(change)
        before = sorted((root, sorted(files)) for root, _, files in os.walk(path("state")))
        expect(status, says, DAEMON, "--config", file, lines=1)
        after = sorted((root, sorted(f for f in files if f != "lock")) for root, _, files in os.walk(path("state")))
        claims.claim([(root, [f for f in files if f != "lock"]) for root, files in before] == after, f"{says}: nothing is changed")
    shutil.rmtree(path("state"))
    write("state", "a file\n")
    expect(2, "Not a directory", DAEMON, "--config", config(), lines=1)
    expect(2, "its parent folder is not there", DAEMON, "--config", config(state="no/such"), lines=1)
    os.unlink(path("state"))
    if os.geteuid() == 0 and shutil.which("setpriv"):
        test_unreadable()
    else:
        print("skipped: a state folder that may not be read: needs root and setpriv")
    with Cluster(nodes=1) as cluster:  # In use.
        node = cluster.nodes[0]
        with open(node.config) as f:
            text = f.read()
        for port in (node.port, node.http):
            text = text.replace(str(port), str(free_ports(1)[0]))
        other = write("other.yaml", text.replace("ctl.sock", "other.sock"))
        expect(1, f"is in use by another daemon (pid {node.process.pid})", DAEMON, "--config", other, lines=1)


def test_unreadable():
    """As root everything may be read: another user tries."""
    shutil.copytree(path("kept"), path("state"))
    for name in ("", "log"):
        os.chmod(path("state", name), 0o700)
    os.chmod(folder, 0o755)
    home = path("home")  # What the other user may read: the program and its file.
    os.mkdir(home)
    binary = shutil.copy(DAEMON, home)
    file = shutil.copy(config(), home)
    try:
        expect(2, "cannot be written: Permission denied", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", binary,
               "--config", file, lines=1)
    finally:
        shutil.rmtree(path("state"))


# ---- jobs, checkpoints, endpoints ----

JOB = f"""name: flights
data: {{path: {DATA}, format: csv, header: yes, target: ArrDelay, test: 0.2, standardize: yes}}
optimizer: {{rate: 0.1, steps: 5}}
"""


def test_job_files():
    cases = [("optimizer: {rate: 0.1, steps: 5}\n", "bad.yaml: data: is missing"),
             (JOB + "elastik: no\n", 'elastik: unknown key (did you mean "elastic"?)'),
             (JOB.replace("rate: 0.1", "rate: fast"), "optimizer.rate: expected a number"),
             (JOB.replace("steps: 5", "steps: 5, passes: 1"), "passes"),
             (JOB.replace("steps: 5", "decay: 0.5"), "steps"),
             (JOB.replace("test: 0.2", "test: 1.5"), "data.test: "),
             (JOB.replace("format: csv", "format: xls"), "data.format: "),
             (JOB.replace("name: flights", "name: ../x"), "name: "),
             ("name: [\n", "not YAML"), ("", "name: is missing")]
    for text, says in cases:
        file = write("bad.yaml", text)
        for command in ("submit", "local"):
            done = expect(2, says, CTL, command, file)
            if "missing" not in done.stderr:  # What is not there has no place.
                claims.claim(re.search(r"bad\.yaml:\d+:\d+: ", done.stderr), f"{says}: with its place: {done.stderr}")
    expect(2, "nofile.yaml': no such file", CTL, "local", "nofile.yaml", lines=1)
    expect(2, "--nodes 99", CTL, "local", "--nodes", "99", write("job.yaml", JOB), lines=1)
    expect(2, "--set optimizer.rate: ", CTL, "local", "--set", "optimizer.rate=abc", path("job.yaml"))


def test_jobs_that_fail(cluster):
    """What only the data tell: the job fails with the reason, status 6, on every node."""
    cases = [("data.path=/nowhere.csv", "No such file or directory"),
             ("data.target=Delay", "Delay"), ("data.drop=[Nope]", "no column 'Nope' to drop"),
             ("data.separator=;", "hflights.csv:1:1: "), ("data.path=/etc", "/etc")]
    for number, (override, says) in enumerate(cases):
        done = cluster.ctl("submit", "--watch", path("job.yaml"), "--set", override, "--set", f"name=f{number}", check=False)
        claims.claim(done.returncode == 6 and says in done.stderr, f"{override}: exit {done.returncode}: {done.stderr}")
        for node in cluster.nodes:
            job = cluster.wait_for(lambda: (j := cluster.job(f"f{number}", node=node))["state"] == "failed" and j, 10, "failed")
            claims.claim(says in job["reason"], f"{override}, node {node.name}: {job['reason']}")
    claims.claim(cluster.ctl("job", "show", "nope", check=False).returncode == 4, "no such job")


def test_checkpoints(cluster):
    job = cluster.submit(path("job.yaml"), "--set", "name=whole")
    cluster.wait_job(job)
    whole = path("whole")
    cluster.ctl("checkpoint", "fetch", "0", "--job", str(job), "--output", whole, "-q")
    local = ["local", "--from", whole, path("job.yaml")]
    done = subprocess.run([CTL, *local, "--json"], capture_output=True, text=True, env=environment, cwd=folder, timeout=60)
    again = json.loads(done.stdout or "{}")
    claims.claim(again.get("parameter_sha256") == cluster.job(job)["parameter_sha256"] and
                 again.get("loss_hex") == cluster.job(job)["loss_hex"], f"no step to do: the checkpoint's bits and loss: {done.stderr}")
    expect(6, "it is of another job", CTL, *local, "--set", "optimizer.rate=0.2")
    expect(6, "it is of another job", CTL, *local, "--set", "data.drop=[Month]")
    expect(6, "the checkpoint is at step 5, beyond the job's 3 steps", CTL, *local, "--set", "optimizer.steps=3")
    expect(4, "'nowhere': No such file", CTL, "local", "--from", "nowhere", path("job.yaml"), lines=1)
    expect(4, "manifest.json", CTL, "checkpoint", "verify", folder, lines=1)
    predict = ["predict", "--data", DATA, "--format", "csv", "--header", "yes", "--target", "ArrDelay", "--output", path("y.txt")]
    expect(2, "columns", CTL, *predict, "--checkpoint", whole, "--drop", "Month", lines=1)
    expect(4, "manifest.json", CTL, *predict, "--checkpoint", folder, lines=1)

    def damaged(name, change):
        copy = path("damaged")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        change(os.path.join(copy, name))
        return copy

    def edit(file):
        with open(file) as f:
            text = f.read()
        with open(file, "w") as f:
            f.write(text.replace('"step": 5', '"step": 6'))

    shard = sorted(n for n in os.listdir(whole) if n.startswith("shard"))[0]
    for name, change in ((shard, lambda file: os.truncate(file, os.path.getsize(file) - 3)), (shard, os.unlink),
                         ("manifest.json", lambda file: os.truncate(file, 40)), ("manifest.json", edit)):
        copy = damaged(name, change)
        expect(7, "manifest" if name == "manifest.json" else name, CTL, "checkpoint", "verify", copy, lines=1)
    copy = damaged(shard, lambda file: os.truncate(file, os.path.getsize(file) - 3))
    expect(7, shard, CTL, *predict, "--checkpoint", copy, lines=1)
    expect(6, shard, CTL, "local", "--from", copy, "--set", "optimizer.steps=9", path("job.yaml"))
    claims.claim(not os.path.exists(path("y.txt")) and not os.path.exists(path("y.txt.part")), "no prediction is half-written")


def test_endpoints():
    free = free_ports(1)[0]
    for endpoint in (f"127.0.0.1:{free}", f"unix:{path('none.sock')}"):
        for command in (["jobs"], ["submit", path("job.yaml")], ["watch"]):
            expect(5, f"cannot reach {endpoint}", CTL, *command, "--endpoint", endpoint, lines=1)
    expect(2, "'what' is not an endpoint", CTL, "jobs", "--endpoint", "what", lines=1)
    with socket.socket() as silent:  # It listens and says nothing.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        expect(124, "no answer from", CTL, "jobs", "--timeout", "1s", "--endpoint", f"127.0.0.1:{silent.getsockname()[1]}", lines=1)


try:
    test_configurations()
    test_ports()
    test_state_folders()
    test_job_files()
    test_endpoints()
    with Cluster(nodes=2) as running:
        test_jobs_that_fail(running)
        test_checkpoints(running)
    left = [name for name in os.listdir(folder) if name.startswith("coppelius-")
            and os.listdir(os.path.join(folder, name)) != ["logs"]]  # of runs that failed
    claims.claim(not left, f"left behind: {left}")
finally:
    shutil.rmtree(folder, ignore_errors=True)
claims.end()
