"""What a person sees, in a real terminal (a pty): bars of import, load and prediction that fill and go away again, the share of
compute, exchange and publication in a step, rows a second, first and last loss, and the figures and first rows of a prediction."""
import os
import pty
import re
import select
import subprocess
import tempfile
import time

from cluster import Claims, Cluster, program

claims = Claims()
ROWS = 5_600_000  # some 150 MB: import takes more than the quarter of a second before which no bar shows, on fast machines too
JOB = """name: seen
data: {{path: {data}, format: csv, header: yes, test: 0.2, standardize: yes}}
model: {{l2: 0.1}}
optimizer: {{rate: 0.02, batch: 65536, steps: {steps}}}
checkpoint: {{every: 100}}
"""


def in_terminal(cluster, *arguments, columns=100, seconds=180):
    """coppeliusctl with its outputs on a terminal of so many columns; all that it wrote, and the exit status."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    subprocess.run(["stty", "rows", "30", "columns", str(columns)], stdin=slave, check=True)
    environment = dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8")
    command = [program("coppeliusctl"), "--endpoint", f"unix:{cluster.nodes[0].socket}", *arguments]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    text, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        ended = process.poll() is not None
        if select.select([master], [], [], 0.1)[0]:
            try:
                text += os.read(master, 65536)
                continue
            except OSError:  # The other end is closed.
                pass
        if ended:
            break
    process.kill()
    os.close(master)
    return text.decode("utf-8", "replace").replace("\u2800", " "), process.wait()


def bars(text, phase):
    """The percentages that a phase's bar showed, in order."""
    return [int(percent) for percent in re.findall(rf"{phase} [^\r\n]*?(\d+) %", text)]


def check_bar(text, phase, where):
    seen = bars(text, phase)
    claims.claim(seen, f"{where}: a bar of {phase}: {text[-600:]!r}")
    claims.claim(seen == sorted(seen) and all(0 <= s <= 100 for s in seen), f"{where}: the bar of {phase} fills: {seen}")


with tempfile.TemporaryDirectory() as folder, Cluster(nodes=2) as cluster:
    data = os.path.join(folder, "big.csv")
    with open(data, "w") as f:
        f.write("a,b,c,d,y\n")
        block = "".join(f"{i % 97}.25,{i % 89}.5,-{i % 83},{i % 7},{(i % 97) * 2 - i % 83}\n" for i in range(100_000))
        for _ in range(ROWS // 100_000):
            f.write(block)

    text, status = in_terminal(cluster, "data", "import", data, "--format", "csv", "--header", "yes", "--output", folder + "/native")
    claims.claim(status == 0, f"import: exit {status}: {text[-300:]}")
    check_bar(text, "reading", "import")
    last = text.rsplit("\r\x1b[K", 1)[-1]
    claims.claim("%" not in last and len(last) > 20, f"import: the bar is gone and the report is there: {last!r}")
    text, status = in_terminal(cluster, "data", "verify", folder + "/native", columns=40)
    claims.claim(status == 0 and "%" not in text, f"a narrow terminal gets no bar: {text!r}")

    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as f:
        f.write(JOB.format(data=data, steps=600))
    text, status = in_terminal(cluster, "submit", "--watch", path)
    claims.claim(status == 0, f"watch: exit {status}: {text[-500:]!r}")
    for what, pattern in (("steps", r"step \d+/600"),  # The import's bar may be over between two looks: `data import` shows it, above.
                          ("rows a second", r"rows/s"), ("the time that is left", r"ETA"),
                          ("shares of a step", r"compute \d+ %.*exchange \d+ %.*publication \d+ %"),
                          ("a curve in braille dots", r"[\u2801-\u28ff]"), ("the checkpoint", r"checkpoint: epoch [1-9]")):
        claims.claim(re.search(pattern, text, re.S), f"watch shows {what}: {text[-500:]!r}")
    claims.claim(re.search(r"first loss [\d.e+-]+, last loss [\d.e+-]+[^\r]*\r\n[^\r]*rows/s  compute \d+ %", text), f"watch ends with first and last loss: {text[-500:]!r}")

    small = os.path.join(folder, "small.yaml")
    with open(data) as f, open(os.path.join(folder, "small.csv"), "w") as g:
        g.writelines(f.readline() for _ in range(500))
    with open(small, "w") as f:
        f.write(JOB.format(data=os.path.join(folder, "small.csv"), steps=300).replace("65536", "all").replace("every: 100", "every: 300"))
    for i in range(12):  # Over before the next heartbeat: the end has figures all the same, whoever is asked.
        node = cluster.nodes[i % len(cluster.nodes)]
        run = cluster.offline("--endpoint", f"unix:{node.socket}", "submit", "--watch", small, "--set", f"name=short{i}", check=False)
        claims.claim(run.returncode == 0 and re.search(r"\n +[\d.]+s  [\d.]+[kMG]? rows/s  compute \d+ %  exchange \d+ %", run.stdout + run.stderr),
                     f"a short job's end has rows/s and shares: {run.stdout!r} {run.stderr[-300:]!r}")

    job = cluster.wait_job(1)
    checkpoint = os.path.join(folder, "checkpoint")
    cluster.ctl("checkpoint", "fetch", "0", "--job", "1", "--output", checkpoint, "-q")
    text, status = in_terminal(cluster, "predict", "--checkpoint", checkpoint, "--data", data, "--format", "csv", "--header", "yes",
                               "--rows", "all", "--metrics", "--output", os.path.join(folder, "out.txt"))
    claims.claim(status == 0, f"predict: exit {status}: {text[-500:]!r}")
    claims.claim(re.search(r"(reading|computing|loading|writing)[^\r\n]* after ", text), f"predict shows progress: {text[:800]!r}")
    for what in (r"RMSE +[\d.]+", r"MAE +[\d.]+", r"R\^?[2²] +[\d.-]+"):
        claims.claim(re.search(what, text), f"predict prints {what}: {text[-500:]!r}")
    first = text.partition("PREDICTED  ACTUAL\r\n")[2]
    claims.claim(len(re.findall(r"-?[\d.]+ +-?[\d.]+\r\n", first)) >= 3, f"predict prints the first rows: {text[-500:]!r}")
claims.end()
