"""The independent reader of the killing tests sees what it is there for: each kind of damage ends it with a sentence."""
import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time

from cluster import BIN, Claims, skip

READER = os.path.join(BIN, "tests", "e2e", "reader")
if not os.path.exists(READER):
    skip(f"{READER} is not built")


def write(path, data):
    with open(path + ".new", "wb") as f:
        f.write(data)
    os.rename(path + ".new", path)


def publish(job, epoch, shard=b"numbers", end=8):
    folder = os.path.join(job, f"epoch-{epoch:08}")
    os.makedirs(folder)
    sha256 = hashlib.sha256(shard).hexdigest()
    manifest = {"job": 7, "epoch": epoch, "coordinates": 8,
                "shards": [{"file": "shard-00001-of-00001.safetensors", "first": 0, "end": end, "size": len(shard),
                            "sha256": sha256}]}
    files = {"shard-00001-of-00001.safetensors": shard, "manifest.json": json.dumps(manifest).encode()}
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    for name, data in list(files.items()) + [("SHA256SUMS", sums.encode())]:
        write(os.path.join(folder, name), data)
    write(os.path.join(job, "CURRENT"), f"{os.path.basename(folder)}\n".encode())
    return folder


def overwrite(path, data):
    with open(path, "r+b") as f:
        f.write(data)


def forget(job, folder):
    os.unlink(os.path.join(folder, "shard-00001-of-00001.safetensors"))


DAMAGE = {
    "torn before it was seen": (lambda job, _: overwrite(
        os.path.join(publish(job, 13), "shard-00001-of-00001.safetensors"), b"N"), "another digest", True),
    "changed later": (lambda job, folder: overwrite(os.path.join(folder, "manifest.json"), b" "), "changed", False),
    "a shard gone": (forget, "not whole", False),
    "CURRENT gone": (lambda job, _: os.unlink(os.path.join(job, "CURRENT")), "vanished", False),
    "CURRENT back": (lambda job, _: publish(job, 11), "went back", False),
    "CURRENT without an epoch": (lambda job, _: write(os.path.join(job, "CURRENT"), b"epoch-00000019\n"), "not whole", False),
    "CURRENT half": (lambda job, _: write(os.path.join(job, "CURRENT"), b"epoch-0000"), "CURRENT is", False),
    "shards that lack coordinates": (lambda job, _: publish(job, 14, end=7), "end at coordinate 7", False),
    "a job gone": (lambda job, _: os.rename(job, job + ".old"), "vanished", False),
}

claims = Claims()
for what, (damage, sentence, before) in [("nothing", (lambda *_: None, "looks", False))] + list(DAMAGE.items()):
    with tempfile.TemporaryDirectory() as state:
        job = os.path.join(state, "jobs", "7-x")
        folder = publish(job, 12)
        if before:
            damage(job, folder)
        reader = subprocess.Popen([READER, state], stdout=subprocess.PIPE, text=True)
        if not before:
            reader.stdout.readline()  # It has looked once.
            damage(job, folder)
        if what == "nothing":
            publish(job, 13)
            time.sleep(2.0)
            reader.send_signal(signal.SIGTERM)
        try:
            text, status = reader.communicate(timeout=30)[0], reader.returncode
        except subprocess.TimeoutExpired:
            reader.kill()
            text, status = reader.communicate()[0], "running"
        claims.claim(status == (0 if what == "nothing" else 1) and sentence in text, f"{what}: {status}, {text}")
        if what == "nothing":
            claims.claim(json.loads(text)["epochs"] == 2, f"two epochs were read whole: {text}")
claims.end()
