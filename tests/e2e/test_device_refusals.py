"""A GPU that cannot be had, without a GPU: no driver, one that is too old, one that finds nothing or does not start. Each
is one line that says what it is and what to do, tried again until a deadline, then the daemon's failure; never a CPU run.
What came late is found, also by a process that the driver gave nothing but errors: it starts itself anew, as what it was. The
drivers are made up (tests/lib/fake_cuda.c); tests/parity/device_life.py has the real one.
"""
import os
import re
import sys
import time

from cluster import BIN, Claims, Cluster, skip

FAKE = os.path.join(BIN, "tests", "e2e", "fake_cuda")
BARE = os.path.join(BIN, "tests", "e2e", "bare_cuda")
if not os.path.exists(os.path.join(FAKE, "libcuda.so.1")):
    skip("this build has no GPU kernels")

DO = ": install driver 580 or newer, or set device: cpu"
CASES = {  # name: (device, folder of the driver, its fault, the sentence)
    "old": ("auto", FAKE, "old", "the NVIDIA driver supports CUDA 12.4, this build needs 13.0" + DO),
    "bare": ("0", BARE, "", r"libcuda.so.1 has no \w+: the NVIDIA driver is too old; install driver 580 or newer, or set device: cpu"),
    "no gpu": ("auto", FAKE, "no-gpu",
               "the NVIDIA driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or set device: cpu"),
    "broken": ("0", FAKE, "broken",
               r"initialising the NVIDIA driver: initialization error \(CUDA_ERROR_NOT_INITIALIZED, 3\)"),
    "hidden": ("GPU-00112233-4455-6677-8899-aabbccddeeff", FAKE, "",
               "device 'GPU-00112233-4455-6677-8899-aabbccddeeff': no such GPU among the 0 that the driver shows; "
               "nvidia-smi -L lists them, CUDA_VISIBLE_DEVICES may hide them"),
}
claims = Claims()


def refusals(node):
    return re.findall(r'selftest\.failed reason="([^"]*)", trying again in 5 s', node.log_text())


def start(device, folder, fault):
    cluster = Cluster(nodes=1, device=[device], start=False)
    cluster.nodes[0].environment = {"LD_LIBRARY_PATH": folder, "COPPELIUS_FAKE_CUDA": fault}
    cluster.nodes[0].start()
    return cluster


clusters = {}
try:
    began = time.monotonic()
    for name, (device, folder, fault, sentence) in CASES.items():
        clusters[name] = start(device, folder, fault)
    late = clusters["late"] = Cluster(nodes=1, device=["auto"], start=False)
    file = os.path.join(late.folder, "the-driver-is-there")
    late.nodes[0].environment = {"LD_LIBRARY_PATH": FAKE, "COPPELIUS_FAKE_CUDA": f"late:{file}"}
    late.nodes[0].start()
    lost = clusters["lost"] = Cluster(nodes=1, device=["auto"], start=False)
    works = os.path.join(lost.folder, "the-gpu-works")
    lost.nodes[0].environment = {"LD_LIBRARY_PATH": FAKE, "COPPELIUS_FAKE_CUDA": f"lost:{works}"}
    lost.nodes[0].start()
    for name, (device, folder, fault, sentence) in CASES.items():
        cluster = clusters[name]
        said = cluster.wait_for(lambda: refusals(cluster.nodes[0]), 30, f"{name}: a refusal")
        claims.claim(re.fullmatch(sentence, said[0]) is not None, f"{name}: '{said[0]}'")
    late.wait_for(lambda: refusals(late.nodes[0]), 30, "late: a refusal")
    open(file, "w").close()
    late.wait_for(lambda: "no such GPU among the 0" in refusals(late.nodes[0])[-1], 30, "late: the driver is found")
    claims.claim(True, "a driver that comes late is found")
    # A kernel's fault costs a process its GPU for good: each further try is a new process, with the same id and node.
    node = lost.nodes[0]
    lost.wait_for(lambda: "trying again in 5 s, by a new process" in node.log_text(), 30, "lost: a refusal")
    claims.claim("CUDA_ERROR_LAUNCH_FAILED, 719" in refusals(node)[0], f"lost: {refusals(node)[0]}")
    lost.wait_for(lambda: len(refusals(node)) >= 2, 30, "lost: a second try")
    open(works, "w").close()
    lost.wait_for(lambda: "no such GPU among the 0" in refusals(node)[-1], 30, "lost: the driver answers a new process")
    claims.claim(node.alive() and node.log_text().count("daemon.again") >= 1, "lost: the process has stayed, its program began anew")
    # Meanwhile and to the end: not ready, and no CPU in its place; doctor says why.
    old = clusters["old"]
    run = old.ctl("doctor", check=False)
    claims.claim(run.returncode != 0 and "supports CUDA 12.4" in run.stdout, f"doctor: {run.returncode} {run.stdout}")
    claims.claim("cpu (" not in old.ctl("nodes", check=False).stdout, "no CPU in the GPU's place")
    for name, cluster in clusters.items():
        node = cluster.nodes[0]
        cluster.wait_for(lambda: not node.alive(), 120, f"{name}: the deadline")
        text = node.log_text()
        claims.claim(node.process.returncode != 0, f"{name}: exit {node.process.returncode}")
        claims.claim(len(refusals(node)) >= 3, f"{name}: {len(refusals(node))} tries")
        claims.claim("daemon.failed" in text and "daemon.ready" not in text, f"{name}: {text[-500:]}")
    print(f"given up {time.monotonic() - began:.0f} s after the start", flush=True)
except Exception:
    for name, cluster in clusters.items():
        print(f"--- {name}\n{cluster.nodes[0].log_text()[-1500:]}", file=sys.stderr)
    raise
finally:
    for cluster in clusters.values():
        cluster.__exit__(None, None, None)
claims.end()
