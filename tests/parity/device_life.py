"""A daemon's life on a real GPU: what `session` prints while a job runs; who waits for whom at boot; a GPU that is hidden,
held or not there; a matrix that is larger than the card, and one that is larger than what is free; no CPU in its place.
Needs a GPU: exits 77 without one. PyTorch, if there, plays the other program that fills the card.

    COPPELIUS_BIN=build/release COPPELIUS_SHARED=../shared python3 tests/parity/device_life.py
"""
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from cluster import Claims, Cluster, golden_cases, golden_job, same_as_golden, skip  # noqa: E402

try:
    listing = subprocess.run(["nvidia-smi", "--query-gpu=uuid,pci.bus_id,memory.total", "--format=csv,noheader,nounits"],
                             capture_output=True, text=True, timeout=60)
except FileNotFoundError:
    skip("there is no GPU here (nvidia-smi is absent)")
if listing.returncode != 0 or "GPU-" not in listing.stdout:
    skip("there is no GPU here")
uuid, pci, memory_mib = [field.strip() for field in listing.stdout.splitlines()[0].split(",")]
memory = int(memory_mib) << 20
print(uuid, pci, memory_mib, "MiB", flush=True)
claims = Claims()
cases, base = golden_cases()


def refusals(node):
    return re.findall(r'selftest\.failed reason="([^"]*)"', node.log_text())


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def npy(path, descr, shape, size):
    """NumPy's header, then `size` bytes of zeros as a hole."""
    text = f"{{'descr': '{descr}', 'fortran_order': True, 'shape': {shape}, }}"
    text += " " * (127 - 10 - len(text)) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        f.truncate(128 + size)


def holes(folder, rows, features):
    """A native dataset of zeros that takes no disk. Nobody reads x.npy before it is known to fit, so its digest is made up."""
    os.makedirs(folder)
    npy(os.path.join(folder, "x.npy"), "<f4", (rows, features), 4 * rows * features)
    npy(os.path.join(folder, "y.npy"), "<f8", (rows,), 8 * rows)
    with open(os.path.join(folder, "y.npy"), "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    manifest = {"format": "coppelius-dataset", "schema": 1, "storage": "dense", "rows": rows, "features": features,
                "nonzeros": rows * features, "target": None, "names": "numbers", "rows_dropped": 0,
                "files": {"x.npy": {"bytes": 128 + 4 * rows * features, "sha256": "11" * 32},
                          "y.npy": {"bytes": 128 + 8 * rows, "sha256": digest}}}
    write(folder, "manifest.json", json.dumps(manifest))
    return (f"name: holes\nkind: regression\ndata:\n  path: {folder}\n  format: native\n"
            "optimizer: {rate: 0.0001, batch: all, steps: 3}\n")


def binding_of(text):
    return text.replace("GPU-", "").replace("-", "")


def bound(cluster):
    """The node's entry, once its self-test has told the others what it bound."""
    def told():
        node = cluster.ask("nodes")["nodes"][0]
        return node if node["backend"] and (node["binding"] or "0").strip("0") else None
    return cluster.wait_for(told, 60, "a binding")


def uuid_of_driver():
    """The GPU that a daemon gets here: CUDA_VISIBLE_DEVICES hides some from it, and none from nvidia-smi."""
    with Cluster(nodes=1, threads=2, device=["auto"]) as cluster:
        b = bound(cluster)["binding"]
        return f"GPU-{b[:8]}-{b[8:12]}-{b[12:16]}-{b[16:20]}-{b[20:]}"


def names_of_the_gpu():
    """Every way to name the one GPU binds the same 16 bytes."""
    for device in ("auto", "0", uuid, uuid.upper().replace("GPU", "gpu"), pci, pci[-7:]):
        with Cluster(nodes=1, threads=2, device=[f'"{device}"']) as cluster:
            node = bound(cluster)
            claims.claim(node["backend"] == "cuda" and binding_of(uuid) == binding_of(node["binding"] or ""),
                         f"device {device}: {node['backend']}, {node['binding']}")
            print(f"device {device}: {node['device']}, binding {node['binding']}", flush=True)


def session_prints_regions(folder):
    for name, storage, region in (("casp", "dense", "tiles"), ("a9a", "sparse", "row_entries")):
        case = next(c for c in cases if c["name"].startswith(name))
        text = re.sub(r"steps: \d+", "steps: 400000", golden_job(case, base))
        with Cluster(nodes=1, threads=2, device=["auto"]) as cluster:
            job = cluster.submit(write(folder, "long.yaml", text.replace("storage: auto", f"storage: {storage}")))
            session = cluster.wait_for(lambda: (lambda s: s if s["arena"]["regions"] and s["issues"]["retired"] else None)(cluster.ask("session")),
                                       60, "a session with regions")
            print(cluster.ctl("session").stdout, flush=True)
            end = 0
            for r in sorted(session["arena"]["regions"], key=lambda r: (r["offset"], r["bytes"])):
                claims.claim(r["offset"] % r["alignment"] == 0 and r["offset"] >= end, f"region {r} begins before {end}")
                end = r["offset"] + r["bytes"]
            names = [r["name"] for r in session["arena"]["regions"]]
            claims.claim(end <= session["arena"]["bytes"], f"{end} bytes of {session['arena']['bytes']}")
            claims.claim({"parameter", "accumulator", "captured_parameter", "issues", region} <= set(names), f"regions {names}")
            claims.claim(session["device_uuid"] is None or session["device_uuid"] == uuid, f"device_uuid {session['device_uuid']}")
            claims.claim(session["generation"] == 1 and session["arena"]["alignment"] == 256, f"generation and alignment: {session}")
            claims.claim(0 < session["issues"]["retired"] <= session["issues"]["expected"], f"issues {session['issues']}")
            cluster.ctl("job", "cancel", str(job))


def waits_at_boot():
    """A GPU that is held for some seconds, then released: the second daemon was refused in one line, tried again, and is ready."""
    with Cluster(nodes=1, threads=1, device=["0"]) as first, Cluster(nodes=1, threads=1, device=[uuid], start=False) as second:
        node = second.nodes[0].start()
        said = second.wait_for(lambda: refusals(node), 30, "a refusal")[0]
        print(said, flush=True)
        claims.claim(said == f"device '{uuid}': {uuid} is held by another daemon; stop that daemon, name another GPU, or set "
                     "device_share: yes on both", said)
        time.sleep(7)
        began = time.monotonic()
        status, _ = first.nodes[0].terminate()
        claims.claim(status == 0, f"the first daemon's exit: {status}")
        second.wait_for(lambda: "daemon.ready" in node.log_text(), 15, "the second daemon to be ready")
        print(f"ready {time.monotonic() - began:.1f} s after the first let go, {len(refusals(node))} refusals", flush=True)
        claims.claim(len(refusals(node)) >= 2, "it was tried again meanwhile")
        claims.claim("cpu (" not in node.log_text(), "no CPU in its place")


def hidden():
    with Cluster(nodes=1, threads=1, device=["auto"], start=False) as cluster:
        node = cluster.nodes[0]
        node.environment = {"CUDA_VISIBLE_DEVICES": ""}
        node.start()
        said = cluster.wait_for(lambda: refusals(node), 30, "a refusal")[0]
        print(said, flush=True)
        claims.claim(said == "the NVIDIA driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or set device: cpu", said)
        claims.claim("daemon.ready" not in node.log_text(), "hidden: not ready, no CPU in its place")
    for device in ("7", "MIG-00000000-0000-0000-0000-000000000000", "0000:ff:1f.7"):
        with Cluster(nodes=1, threads=1, device=[f'"{device}"'], start=False) as cluster:
            node = cluster.nodes[0].start()
            said = cluster.wait_for(lambda: refusals(node), 30, "a refusal")[0]
            print(said, flush=True)
            claims.claim("no such GPU among the" in said or "finds no GPU" in said, said)
            claims.claim("daemon.ready" not in node.log_text(), f"{device}: not ready")


def refused_job(cluster, folder, text, what):
    job = cluster.wait_job(cluster.submit(write(folder, "large.yaml", text)), states=("failed", "succeeded"), seconds=120)
    print(f"{what}: {job['state']}: {job['reason']}", flush=True)
    claims.claim(job["state"] == "failed", f"{what}: {job['state']}")
    return job["reason"] or ""


def too_large(folder):
    # More than the whole card: 1.1 times its memory.
    features = memory * 11 // 10 // 4 // 40000
    text = holes(os.path.join(folder, "larger"), 40000, features)
    with Cluster(nodes=1, threads=2, device=["auto"]) as cluster:
        reason = refused_job(cluster, folder, text, "a matrix of 1.1 cards")
        claims.claim("about 2 times as many nodes would do" in reason and f"columns 1 to {features} take" in reason, reason)
        room = int(re.search(r"room for (\d+)", reason)[1]) if "room for" in reason else 0
        claims.claim(0.95 * memory < room <= memory, f"room for {room} of {memory}")

    # More than what another program leaves free, by the arena's own bytes; with what is free again it runs.
    rows, features = 100000, 5000
    text = holes(os.path.join(folder, "two-gigabytes"), rows, features)
    text = text.replace("format: native", "format: native\n  # no digest is kept of x.npy")
    os.remove(os.path.join(folder, "two-gigabytes", "manifest.json"))
    filler = ("import torch, sys\nfree, total = torch.cuda.mem_get_info()\nx = torch.empty(free - (2 << 30), dtype=torch.uint8, "
              "device='cuda')\nprint('filled', flush=True)\nsys.stdin.read()\n")
    with Cluster(nodes=1, threads=4, device=["auto"]) as cluster:
        other = subprocess.Popen([sys.executable, "-c", filler], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if other.stdout.readline().strip() == "filled":
                reason = refused_job(cluster, folder, text, "a matrix of 2 GB where another program fills the card")
                numbers = re.search(r"need (\d+) MiB on this node, the device has (\d+) MiB; about (\d+) times as many nodes would do", reason)
                claims.claim(numbers is not None and int(numbers[1]) > int(numbers[2]) and int(numbers[3]) >= 2, reason)
            else:
                print("PyTorch is not here: nobody fills the card", flush=True)
        finally:
            other.stdin.close()
            other.wait(60)
        job = cluster.wait_job(cluster.submit(write(folder, "large.yaml", text)), seconds=120)
        claims.claim(job["state"] == "succeeded", "the same job once the card is free")

    # The number of nodes that the sentence says does do.
    text = holes(os.path.join(folder, "eighty-megabytes"), 20000, 1000)
    os.remove(os.path.join(folder, "eighty-megabytes", "manifest.json"))
    nodes = 1
    for _ in range(2):
        with Cluster(nodes=nodes, threads=1, device="0", share="yes", start=False) as cluster:
            for node in cluster.nodes:
                node.config_lines = ["limits:", "  memory: 64M"]
                node.write_config()
            cluster.start()
            if nodes == 1:
                reason = refused_job(cluster, folder, text, "one node that may take 64 MiB")
                numbers = re.search(r"about (\d+) times as many nodes would do", reason)
                if not claims.claim(numbers is not None and int(numbers[1]) > 1, reason):
                    return
                nodes = int(numbers[1])
            else:
                job = cluster.wait_job(cluster.submit(write(folder, "small.yaml", text)), states=("failed", "succeeded"), seconds=120)
                print(f"{nodes} nodes that may take 64 MiB each: {job['state']} {job['reason'] or ''}", flush=True)
                claims.claim(job["state"] == "succeeded", f"{nodes} nodes: {job['reason']}")


uuid = uuid_of_driver()
pci = next((line.split(",")[1].strip() for line in listing.stdout.splitlines() if line.startswith(uuid)), pci)
print("bound here:", uuid, pci, flush=True)
steps = {"names": lambda folder: names_of_the_gpu(), "session": session_prints_regions, "boot": lambda folder: waits_at_boot(),
         "hidden": lambda folder: hidden(), "large": too_large}
for name, step in steps.items():
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(f"== {name}", flush=True)
            step(folder)
        except Exception as error:  # noqa: BLE001: the other steps' claims are wanted too
            claims.claim(False, f"{name}: {type(error).__name__}: {error}")
claims.end()
