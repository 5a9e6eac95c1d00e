"""An independent reader: as often as it can, at most a thousand times a second, it reads each job's CURRENT below a state
folder and checks all that it names: manifest, SHA256SUMS, every file's digest. Ends on SIGTERM with status 0, or at
once with status 1 and a sentence when it sees a torn, vanished or older checkpoint."""
import hashlib
import json
import os
import signal
import sys
import time

state = sys.argv[1]
looks = 0
newest = {}
checked = {}
stop = False


def on_term(*_):
    global stop
    stop = True


signal.signal(signal.SIGTERM, on_term)


def fail(text):
    print(f"{state}: {text}", flush=True)
    sys.exit(1)


def check(folder, name):
    """Every file that the epoch's SHA256SUMS names, by digest; what was checked once is checked by size and time."""
    epoch = os.path.join(folder, name)
    with open(os.path.join(epoch, "SHA256SUMS")) as f:
        lines = f.read().splitlines()
    files = []
    for line in lines:
        digest, _, file = line.partition("  ")
        path = os.path.join(epoch, file)
        status = os.stat(path)
        files.append(file)
        key = (path, status.st_size, status.st_mtime_ns, status.st_ino)
        if checked.get(path) != key:
            with open(path, "rb") as f:
                if hashlib.sha256(f.read()).hexdigest() != digest:
                    fail(f"{path} has another digest")
            checked[path] = key
    with open(os.path.join(epoch, "manifest.json")) as f:
        manifest = json.load(f)
    if not any(file.endswith(".safetensors") for file in files):
        fail(f"{epoch} has no shard")
    return manifest["epoch"]


parent = os.getppid()
while not stop and os.getppid() == parent:  # It does not outlive the test.
    begin = time.monotonic()
    jobs = os.path.join(state, "jobs")
    for job in os.listdir(jobs) if os.path.isdir(jobs) else []:
        folder = os.path.join(jobs, job)
        try:
            with open(os.path.join(folder, "CURRENT")) as f:
                name = f.read()
        except FileNotFoundError:
            if job in newest:
                fail(f"{folder}/CURRENT has vanished")
            continue
        if not name.endswith("\n") or not name.startswith("epoch-"):
            fail(f"{folder}/CURRENT is {name!r}")
        try:
            epoch = check(folder, name.strip())
        except FileNotFoundError as error:
            # It may have been collected between the two looks: then CURRENT names another one now.
            with open(os.path.join(folder, "CURRENT")) as f:
                if f.read() == name:
                    fail(f"{folder}: CURRENT names {name.strip()}, and {error}")
            continue
        if epoch < newest.get(job, 0):
            fail(f"{folder}: CURRENT went back from {newest[job]} to {epoch}")
        newest[job] = epoch
        looks += 1
    time.sleep(max(0.0, 0.001 - (time.monotonic() - begin)))
print(f"{looks} looks at {len(newest)} jobs, newest {newest}", flush=True)
