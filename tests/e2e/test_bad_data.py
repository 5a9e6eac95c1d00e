"""Every file of shared/data/bad, through `data import` and as the data of a job: the verdict of EXPECT.tsv, one sentence
with file, line and column, the exit status for refused input, and nothing half-written."""
import os
import re
import shutil
import subprocess
import tempfile

from cluster import Claims, Cluster, need_shared, program

BAD = need_shared("data", "bad")
CTL = program("coppeliusctl")
claims = Claims()
folder = tempfile.mkdtemp(prefix="coppelius-bad-")
# Beside EXPECT.tsv's place: what the sentence says.
SAYS = {"svm_truncated.svm": "'7:'", "svm_duplicate_index.svm": "index 3 twice", "svm_descending_index.svm": "index 4 after index 7",
        "svm_index_zero.svm": "index 0", "empty.csv": "no data", "only_header.csv": "no data rows",
        "csv_ragged.csv": "expected 4 fields, found 3", "csv_target_missing.csv": "column 'y' is empty",
        "csv_no_features.csv": "no feature columns", "bin_odd.bin": "odd size 7", "bin_empty.bin": "no tokens",
        "bin_out_of_vocab.bin": "token 3 (byte offset 6) is 12288"}


def expectations():
    with open(os.path.join(BAD, "EXPECT.tsv"), encoding="utf-8") as f:
        for line in f.read().splitlines()[1:]:
            name, _, verdict, place, _ = line.split("\t")
            yield name, verdict, place


def keys(name):
    if name.endswith(".svm"):
        return {"format": "svm"}
    found = {"format": "csv", "header": "yes"}
    if name == "csv_unclosed_quote.csv":
        found["drop"] = "name"
    return found


def flags(name):
    if name.endswith(".bin"):
        return ["--format", "tokens", "--vocabulary", "12288"]
    return [part for key, value in keys(name).items() for part in (f"--{key}", value)]


def check_sentence(name, place, text, where):
    claims.claim(name in text, f"{name}, {where}: names the file: {text}")
    if place != "-":
        at = f"{name}:{place}:" if ":" in place else rf"{name}:{place}:\d+:"
        claims.claim(re.search(at, text), f"{name}, {where}: at {place}: {text}")
    claims.claim(SAYS.get(name, "") in text, f"{name}, {where}: says {SAYS.get(name)!r}: {text}")
    claims.claim(len(text) < 2000, f"{name}, {where}: {len(text)} characters")


def test_import(name, verdict, place):
    before = set(os.listdir(folder))
    done = subprocess.run([CTL, "data", "import", os.path.join(BAD, name), *flags(name), "--output", os.path.join(folder, "out")],
                          capture_output=True, timeout=60)
    text = done.stderr.decode(errors="replace")
    read = done.returncode == 0
    claims.claim(verdict == "either" or read == (verdict == "accept"), f"{name}, import: exit {done.returncode}: {text}")
    claims.claim(done.returncode in (0, 2), f"{name}, import: exit {done.returncode}: {text}")
    left = set(os.listdir(folder)) - before
    claims.claim(left == ({"out"} if read else set()), f"{name}, import: left {left}")
    if read:
        shutil.rmtree(os.path.join(folder, "out"))
    else:
        check_sentence(name, place if verdict == "refuse" else "-", text, "import")


def test_job(cluster, name, verdict, place):
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as f:
        block = "".join(f"  {key}: {f'[{value}]' if key == 'drop' else value}\n" for key, value in keys(name).items())
        f.write(f"name: {name}\ndata:\n  path: {os.path.join(BAD, name)}\n{block}  standardize: yes\n"
                "model: {l2: 0.01}\noptimizer: {rate: 0.1, steps: 60}\n")
    done = cluster.ctl("submit", "--watch", "--json", path, check=False)
    read = done.returncode == 0
    claims.claim(done.returncode in (0, 6) and (verdict == "either" or read == (verdict == "accept")),
                 f"{name}, job: exit {done.returncode}: {done.stderr}")
    job = cluster.job(name)
    if read:
        claims.claim(job["objective"] is not None and job["epoch"] == 1, f"{name}, job: {job['state']}, {job['objective']}")
    else:
        claims.claim(job["state"] == "failed" and job["epoch"] is None, f"{name}, job: {job['state']}")
        check_sentence(name, place if verdict == "refuse" else "-", job["reason"], "job")
        for node in cluster.nodes:
            epochs = os.path.join(node.state, "jobs", f"{job['job']}-{name}")
            claims.claim(not os.path.isdir(epochs) or not [e for e in os.listdir(epochs) if e.startswith("epoch-")],
                         f"{name}, job: a checkpoint on node {node.name}")
    for node in cluster.nodes:
        cache = os.path.join(node.state, "cache")
        half = [e for e in os.listdir(cache) if ".importing-" in e] if os.path.isdir(cache) else []
        claims.claim(not half, f"{name}, job: node {node.name} has {half}")


def test_each_line_alone():
    """svm_nan_inf and svm_overflow: each line by itself."""
    for name, underflows in (("svm_nan_inf.svm", set()), ("svm_overflow.svm", {3})):
        with open(os.path.join(BAD, name)) as f:
            lines = f.read().splitlines()
        for number, line in enumerate(lines, 1):
            path = os.path.join(folder, "line.svm")
            with open(path, "w") as f:
                f.write(line + "\n")
            done = subprocess.run([CTL, "data", "import", path, "--format", "svm", "--output", os.path.join(folder, "line")],
                                  capture_output=True, text=True, timeout=60)
            expected = 0 if number in underflows else 2
            claims.claim(done.returncode == expected, f"{name}, line {number} alone: exit {done.returncode}: {done.stderr}")
            shutil.rmtree(os.path.join(folder, "line"), ignore_errors=True)


def test_models(cluster):
    """What is accepted gives the fit that EXPECT.tsv names."""
    for name, l2, weights, intercept in (("csv_constant_column.csv", 0, {"a": 2.0, "k": 0.0}, -0.5),
                                         ("csv_zero_column.csv", 0, {"a": 0.9, "z": 0.0}, 0.25)):
        path = os.path.join(folder, "fit.yaml")
        with open(path, "w") as f:
            f.write(f"name: fit\ndata: {{path: {os.path.join(BAD, name)}, format: csv, header: yes, standardize: yes}}\n"
                    f"model: {{l2: {l2}}}\noptimizer: {{rate: 0.1, steps: 600}}\n")
        job = cluster.submit(path)
        cluster.wait_job(job)
        target = os.path.join(folder, f"fit-{job}")
        cluster.ctl("checkpoint", "fetch", "0", "--job", str(job), "--output", target, "-q")
        output = os.path.join(folder, f"fit-{job}.txt")
        cluster.ctl("predict", "--checkpoint", target, "--data", os.path.join(BAD, name), "--format", "csv", "--header", "yes",
                    "--output", output)
        with open(os.path.join(BAD, name)) as f:
            header, *rows = [line.split(",") for line in f.read().splitlines()]
        with open(output) as f:
            predicted = [float(line) for line in f]
        for row, value in zip(rows, predicted):
            fields = dict(zip(header, map(float, row)))
            exact = intercept + sum(w * fields[c] for c, w in weights.items())
            claims.claim(abs(value - exact) < 1e-5, f"{name}: predicts {value}, the exact fit is {exact}")


try:
    cases = list(expectations())
    claims.claim(len(cases) == 20, f"EXPECT.tsv has {len(cases)} files")
    for case in cases:
        test_import(*case)
    test_each_line_alone()
    with Cluster(nodes=2) as running:
        for case in cases:
            if not case[0].endswith(".bin"):  # Tokens are no regression's data.
                test_job(running, *case)
        test_models(running)
finally:
    shutil.rmtree(folder, ignore_errors=True)
claims.end()
