"""A dataset needs to be on one node only: the others fetch their columns from it, checked, resumed, cached.

A path below /proc/self/cwd is a path of its own for each daemon: each has its own working directory,
so that a file can be on one node and on no other, on one machine and without privileges."""
import array
import hashlib
import json
import os
import shutil
import struct
import tempfile
import time
import urllib.request

from cluster import Claims, Cluster, golden_cases, golden_job, same_as_golden

claims = Claims()
HERE = "/proc/self/cwd"


def cluster_of(nodes, more=()):
    cluster = Cluster(nodes=nodes, start=False)
    for node in cluster.nodes:
        node.cwd = os.path.join(node.folder, "cwd")
        os.makedirs(node.cwd)
        node.config_lines = list(more)
        node.write_config()
    cluster.start()
    return cluster


def write_job(folder, text, name="job.yaml"):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def fetched(node):
    """(bytes, done) of each fetch in the node's log."""
    found = []
    for line in node.log_text().splitlines():
        if "data.fetch run=" in line and " bytes=" in line:
            fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
            found.append((int(fields["bytes"]), fields["done"] == "yes", fields["from"]))
    return found


def copies(node):
    cache = os.path.join(node.state, "cache")
    return sorted(os.path.join(cache, n) for n in (os.listdir(cache) if os.path.isdir(cache) else [])
                  if n.startswith("fetched-"))


def npy(path, descr, shape, fortran, size):
    """Opens a file with NumPy's header; `size` bytes of zeros as a hole behind it."""
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += " " * (127 - 10 - len(text)) + "\n"
    f = open(path, "wb")
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
    f.truncate(128 + size)
    return f


def native(folder, rows, features):
    """A bare native folder whose columns are zeros but for a few rows."""
    os.makedirs(folder)
    with npy(os.path.join(folder, "x.npy"), "<f4", (rows, features), True, 4 * rows * features) as f:
        for j in range(features):
            f.seek(128 + 4 * rows * j)
            array.array("f", [(i * 7 + j * 3) % 11 - 5.0 for i in range(500)]).tofile(f)
    with npy(os.path.join(folder, "y.npy"), "<f8", (rows,), False, 8 * rows) as f:
        f.seek(128)
        array.array("d", [i % 5 - 2.0 for i in range(500)]).tofile(f)


def native_job(path, steps=3):
    return (f"name: fetch\nkind: regression\ndata:\n  path: {path}\n  format: native\n"
            f"optimizer:\n  rate: 0.0001\n  batch: all\n  steps: {steps}\n")


def same_as_alone(job, text, folder, data, what):
    """The bits of one node that has all."""
    with cluster_of(1) as alone:
        os.symlink(data, os.path.join(alone.nodes[0].cwd, "d"))
        one = alone.wait_job(alone.submit(write_job(folder, text, "alone.yaml")), seconds=180)
    for key in ("parameter_sha256", "accumulator_sha256", "loss_hex"):
        claims.claim(job[key] == one[key], f"{what}: {key} {job[key]} instead of {one[key]}")


def test_golden(folder):
    """Golden bits where two of three nodes have nothing; the holder is the last, then the first one."""
    cases, base = golden_cases()
    for holder, storage in ((2, "dense"), (0, "sparse")):
        with cluster_of(3) as cluster:
            for case in cases:
                if case["features"] + 1 < 3:
                    continue
                text = golden_job(case, base, storage)
                path = json.loads(text.split("path: ", 1)[1].split("\n", 1)[0])
                mine = os.path.join(cluster.nodes[holder].cwd, os.path.basename(path))
                if not os.path.exists(mine):
                    shutil.copy(path, mine)
                text = text.replace(json.dumps(path), json.dumps(f"{HERE}/{os.path.basename(path)}"))
                job = cluster.wait_job(cluster.submit(write_job(folder, text)), seconds=180)
                wrong = same_as_golden(case, job)
                claims.claim(not wrong, f"{case['name']}, {storage}, from node {holder}: {'; '.join(wrong)}")
                claims.claim(job["nodes"] == 3, f"{case['name']}: {job['nodes']} nodes took part")
            for i, node in enumerate(cluster.nodes):
                claims.claim(bool(copies(node)) == (i != holder), f"copies of node {node.name}: {copies(node)}")


def test_columns_only(folder):
    """Each fetches about its third; a second job fetches nothing."""
    data = os.path.join(folder, "columns")
    rows, features = 200000, 60
    native(data, rows, features)
    text = native_job(f"{HERE}/d")
    with cluster_of(3) as cluster:
        os.symlink(data, os.path.join(cluster.nodes[1].cwd, "d"))
        job = cluster.wait_job(cluster.submit(write_job(folder, text)), seconds=180)
        whole = 4 * rows * features + 8 * rows
        for node in (cluster.nodes[0], cluster.nodes[2]):
            got = fetched(node)
            most = 8 * rows + 4 * rows * features / 3 * 1.15 + (6 << 20)
            claims.claim(len(got) == 1 and got[0][1] and got[0][2] == "b", f"node {node.name} fetched {got}")
            claims.claim(got and got[0][0] <= most < whole * 0.75,
                         f"node {node.name} fetched {got} of {whole} bytes; at most {most}")
            copy = copies(node)[0]
            taken = sum(os.stat(os.path.join(copy, n)).st_blocks * 512 for n in os.listdir(copy))
            claims.claim(taken < most + (1 << 20), f"the copy of node {node.name} takes {taken} bytes")
        again = cluster.wait_job(cluster.submit(write_job(folder, text)), seconds=180)
        claims.claim(again["parameter_sha256"] == job["parameter_sha256"], "the second job gave other bits")
        for node in (cluster.nodes[0], cluster.nodes[2]):
            claims.claim(len(fetched(node)) == 1, f"node {node.name} fetched again: {fetched(node)}")
        holders = again["dataset"]["holders"]
        claims.claim(holders == ["b"], f"job show names the holders as {holders}")
        answer = urllib.request.urlopen(f"http://127.0.0.1:{cluster.nodes[1].http}/metrics", timeout=10)
        moved = [line for line in answer.read().decode().splitlines() if 'class="data"' in line and "sent" in line]
        claims.claim(len(moved) == 2 and all(float(m.split()[-1]) > 8 * rows for m in moved),
                     f"node b's metrics of data sent: {moved}")
    same_as_alone(job, text, folder, data, "columns only")


def test_nobody(folder):
    with cluster_of(2) as cluster:
        text = native_job(f"{HERE}/absent")
        job = cluster.wait_job(cluster.submit(write_job(folder, text)), states=("failed",), seconds=60)
        for part in ("no node can read the data", f"a: '{HERE}/absent': No such file or directory",
                     f"b: '{HERE}/absent': No such file or directory"):
            claims.claim(part in job["reason"], f"the reason '{job['reason']}' lacks '{part}'")


def test_other_bytes(folder):
    """A node whose file differs fetches instead of failing, and says so."""
    data, other = os.path.join(folder, "right"), os.path.join(folder, "wrong")
    native(data, 3000, 8)
    native(other, 3000, 8)
    with open(os.path.join(other, "y.npy"), "r+b") as f:
        f.seek(200)
        f.write(b"\1")
    text = native_job(f"{HERE}/d")
    with cluster_of(3) as cluster:
        for node, of in zip(cluster.nodes, (data, data, other)):
            os.symlink(of, os.path.join(node.cwd, "d"))
        job = cluster.wait_job(cluster.submit(write_job(folder, text)), seconds=120)
        claims.claim(cluster.nodes[2].says("data.differ"), "node c does not say that its data differ")
        claims.claim(len(fetched(cluster.nodes[2])) == 1, f"node c fetched {fetched(cluster.nodes[2])}")
    same_as_alone(job, text, folder, data, "other bytes")


def test_damaged_holder(folder):
    """A holder whose disk lies is left for another one."""
    good, bad = os.path.join(folder, "good"), os.path.join(folder, "bad")
    native(good, 100000, 12)
    text = native_job(f"{HERE}/d")
    manifest = {"format": "coppelius-dataset", "schema": 1, "files": {}}
    table = hashlib.sha256()
    for name in ("x.npy", "y.npy"):
        path = os.path.join(good, name)
        with open(path, "rb") as f:
            content = f.read()
        manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for at in range(0, len(content), 1 << 20):
            with open(os.path.join(good, "blocks.bin"), "ab") as f:
                digest = hashlib.sha256(content[at:at + (1 << 20)]).digest()
                f.write(digest)
                table.update(digest)
    manifest["blocks"] = {"bytes": 1 << 20, "sha256": table.hexdigest()}
    with open(os.path.join(good, "manifest.json"), "w") as f:
        json.dump(manifest, f)
    shutil.copytree(good, bad)
    with open(os.path.join(bad, "x.npy"), "r+b") as f:
        for block in range(5):  # In every block of it: whatever is asked of it is wrong.
            f.seek((block << 20) + 4000)
            f.write(b"\7\7\7\7")
    with cluster_of(3) as cluster:
        # Node c asks first the holder of its rank: 2 % 2 = node a.
        os.symlink(bad, os.path.join(cluster.nodes[0].cwd, "d"))
        os.symlink(good, os.path.join(cluster.nodes[1].cwd, "d"))
        cluster.wait_job(cluster.submit(write_job(folder, text)), seconds=120)
        got = fetched(cluster.nodes[2])
        log = cluster.nodes[2].log_text()
        claims.claim("do not have the SHA-256 that they should" in log, "node c does not say what was wrong")
        claims.claim([(done, of) for _, done, of in got] == [(False, "a"), (True, "b")], f"node c fetched {got}")


def test_killed(folder):
    """kill -9 in the middle of a fetch: the next one goes on from what was saved."""
    data = os.path.join(folder, "large")
    rows, features = 500000, 100
    native(data, rows, features)
    text = native_job(f"{HERE}/d", steps=1)
    with cluster_of(2) as cluster:
        os.symlink(data, os.path.join(cluster.nodes[0].cwd, "d"))
        victim = cluster.nodes[1]
        job_id = cluster.submit(write_job(folder, text))

        def saved():
            for copy in copies(victim):
                try:
                    with open(os.path.join(copy, "partial.bin"), "rb") as f:
                        bits = f.read()[17 + 32 + 8:-8]
                except FileNotFoundError:
                    return 0
                blocks = sum(bin(b).count("1") for b in bits)
                return blocks if blocks > 30 else 0
            return 0
        cluster.wait_for(saved, 120, "some blocks to be saved", every=0.002)
        victim.kill()
        had = saved() << 20
        claims.claim(had < 4 * rows * features // 2, f"the fetch was over before the kill: {had} bytes")
        claims.claim(not fetched(victim), f"the fetch was over before the kill: {fetched(victim)}")
        victim.start()
        job = cluster.wait_job(job_id, seconds=300)
        got = fetched(victim)
        whole = 8 * rows + 4 * rows * features // 2
        claims.claim(len(got) == 1 and got[0][1] and got[0][0] + had <= whole + (8 << 20),
                     f"{had} bytes were saved, and {got} fetched again, of {whole}")
    same_as_alone(job, text, folder, data, "killed")


def test_cache_limit(folder):
    """A second dataset takes the place of the first one."""
    with cluster_of(2, ["limits:", "  cache: 6M"]) as cluster:
        for name in ("one", "two"):
            data = os.path.join(folder, "limit-" + name)
            native(data, 100000, 16)  # 6.4 MB, half of it for each
            with open(os.path.join(data, "y.npy"), "r+b") as f:
                f.seek(128)
                f.write(struct.pack("<d", len(name) + ord(name[0])))
            os.symlink(data, os.path.join(cluster.nodes[0].cwd, name))
            cluster.wait_job(cluster.submit(write_job(folder, native_job(f"{HERE}/{name}"))), seconds=120)
        node = cluster.nodes[1]
        claims.claim(len(copies(node)) == 1, f"the cache of node b has {copies(node)}")
        claims.claim(node.says("cache.evict"), "node b does not say what it deleted")


with tempfile.TemporaryDirectory(prefix="coppelius-fetch-") as folder:
    for test in (test_nobody, test_columns_only, test_other_bytes, test_damaged_holder, test_cache_limit, test_killed,
                 test_golden):
        begin = time.monotonic()
        test(folder)
        print(f"{test.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
claims.end()
