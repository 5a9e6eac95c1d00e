"""A checkpoint folder from somebody else: flipped bits, cut and grown files, swapped shards, a replayed manifest, absurd sizes,
paths that lead away, links, pipes; and the same in the nodes' own folders, of which the others hold copies. Whoever reads one (verify, show, predict, export, submit --from) refuses it within seconds,
names the shard or the manifest, and neither follows, hangs, crashes nor takes memory for what a header only claims."""
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import tempfile

from cluster import ROOT, Claims, Cluster, program
from killing import write_job

claims = Claims()
MEMORY = 4 << 30  # of address space: a size that is believed does not fit


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def ctl(*arguments):
    try:
        return subprocess.run([program("coppeliusctl"), *arguments], capture_output=True, text=True, timeout=30,
                              preexec_fn=limited if "asan" not in os.environ.get("COPPELIUS_BIN", "") else None)
    except subprocess.TimeoutExpired:
        return None


def edit(path, change):
    with open(path, "rb") as f:
        data = bytearray(f.read())
    other = change(data)
    data = data if other is None else other
    with open(path, "wb") as f:
        f.write(data)


def flip(at, bit=1):
    def change(data):
        data[at] ^= bit
    return change


def flip_value(data):
    data[8 + int.from_bytes(data[:8], "little")] ^= 1  # of the first number behind the header


def manifest_of(folder):
    with open(os.path.join(folder, "manifest.json")) as f:
        return json.load(f)


def write_manifest(folder, manifest):
    with open(os.path.join(folder, "manifest.json"), "w") as f:
        json.dump(manifest, f, indent=2)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def resign(folder, sizes=True):
    """Manifest and SHA256SUMS agree with the shards as they are now: what somebody does who means it."""
    manifest = manifest_of(folder)
    for shard in manifest["shards"]:
        path = os.path.join(folder, shard["file"])
        shard["sha256"] = digest(path)
        assert "size" in shard  # Else what is made up below is another thing than it says.
        shard["size"] = os.path.getsize(path) if sizes else shard["size"]
    write_manifest(folder, manifest)
    lines = [f"{digest(os.path.join(folder, name))}  {name}\n" for name in sorted(os.listdir(folder)) if name != "SHA256SUMS"]
    with open(os.path.join(folder, "SHA256SUMS"), "w") as f:
        f.writelines(lines)


def hostile(folder, older):
    """(what, how to make it, what the refusal names), for a copy of the folder."""
    names = [shard["file"] for shard in manifest_of(folder)["shards"]]
    first, second = names[0], names[1]
    size = os.path.getsize(os.path.join(folder, first))

    def at(name):
        return lambda copy: os.path.join(copy, name)

    def file(name, change, signed=False):
        def make(copy):
            edit(at(name)(copy), change)
            if signed:
                resign(copy)
        return make

    def swap(copy, signed=False):
        a, b = at(first)(copy), at(second)(copy)
        os.rename(a, a + ".x")
        os.rename(b, a)
        os.rename(a + ".x", b)
        if signed:
            resign(copy)

    def instead(name, make):
        def change(copy):
            path = at(name)(copy)
            os.rename(path, os.path.join(os.path.dirname(copy), "outside"))
            make(path, os.path.join(os.path.dirname(copy), "outside"))
        return change

    def manifest(change, signed=False):
        def make(copy):
            m = manifest_of(copy)
            change(m)
            write_manifest(copy, m)
            if signed:
                resign(copy, sizes=False)
        return make

    for where in (0, 9, size // 2, size - 1):
        yield f"a bit of byte {where}", file(first, flip(where)), first
    yield "a bit of the last byte, digests made anew", file(first, flip(size - 1), True), first
    yield "a bit of a number, digests made anew", file(first, flip_value, True), "the whole parameter's digest"
    yield "cut by a byte", file(first, lambda d: d[:-1]), first
    yield "cut to nothing", file(second, lambda d: b""), second
    yield "256 GiB of holes", lambda copy: os.truncate(at(first)(copy), 1 << 38), first
    yield "a byte more", file(first, lambda d: d + b"\0"), first
    yield "a header of 2^63 bytes, digests made anew", file(first, lambda d: b"\xff" * 7 + b"\x7f" + bytes(d[8:]), True), first
    yield "a header as long as the file", file(first, lambda d: len(d).to_bytes(8, "little") + bytes(d[8:]), True), first
    yield "two shards swapped", swap, first
    yield "two shards swapped, digests made anew", lambda copy: swap(copy, True), first
    yield "an older epoch's manifest", lambda copy: shutil.copy(os.path.join(older, "manifest.json"), copy), ""
    yield "an older epoch's shard", lambda copy: shutil.copy(os.path.join(older, first), copy), first
    yield "an older epoch's shard, digests made anew", \
        lambda copy: (shutil.copy(os.path.join(older, first), copy), resign(copy)), first
    yield "a shard of 2^60 bytes by the manifest", manifest(lambda m: m["shards"][0].update(size=1 << 60), signed=True), first
    yield "2^62 coordinates", manifest(lambda m: m.update(coordinates=1 << 62)), "manifest"
    yield "a shard's name that leads away", manifest(lambda m: m["shards"][0].update(file="../outside")), "manifest"
    yield "an absolute name", manifest(lambda m: m["shards"][0].update(file="/etc/passwd")), "manifest"
    yield "a link to the shard", instead(first, lambda path, out: os.symlink(out, path)), first
    yield "a link to the manifest", instead("manifest.json", lambda path, out: os.symlink(out, path)), "manifest"
    yield "a pipe for a shard", instead(first, lambda path, out: os.mkfifo(path)), first
    yield "a pipe for the manifest", instead("manifest.json", lambda path, out: os.mkfifo(path)), "manifest"
    yield "a folder for a shard", instead(first, lambda path, out: os.mkdir(path)), first
    yield "a manifest of brackets", lambda copy: open(os.path.join(copy, "manifest.json"), "w").write("[" * 100000), "manifest"


def readers(copy, scratch, job, every):
    data = os.path.join(ROOT, "deploy/examples/hflights/hflights.csv")
    yield "verify", ("checkpoint", "verify", copy)
    yield "export", ("checkpoint", "export", copy, "--format", "json", "--output", os.path.join(scratch, "exported"))
    if every:
        yield "predict", ("predict", "--checkpoint", copy, "--data", data, "--format", "csv", "--header", "yes", "--target", "ArrDelay",
                           "--output", os.path.join(scratch, "predicted"))
        yield "local --from", ("local", "--nodes", "1", "--from", copy, job)


def in_place(path, kind):
    """What lies where a node has a shard, and is none."""
    if kind == "a link":
        os.rename(path, path + ".elsewhere")
        os.symlink(path + ".elsewhere", path)
    elif kind == "a pipe":
        os.remove(path)
        os.mkfifo(path)
    elif kind == "a folder":
        os.remove(path)
        os.mkdir(path)
    elif kind == "256 GiB of holes":
        os.truncate(path, 1 << 38)
    elif kind == "cut":
        os.truncate(path, 100)
    else:
        edit(path, flip(-1))


def holders(cluster, job_id, epoch):
    """{file: {node: path}} of the copies of an epoch."""
    found = {}
    for node in cluster.nodes:
        folder = os.path.join(node.job_folder(job_id), f"epoch-{epoch:08d}")
        for name in os.listdir(folder):
            if re.fullmatch(r"shard-\d+-of-\d+\.safetensors", name):
                found.setdefault(name, {})[node.name] = os.path.join(folder, name)
    return found


def nodes(cluster, job_id, epoch, folder):
    """The daemons' own folders: fetch takes a copy that is right, and verify names each that is not, and has it made again."""
    whole = lambda: (lambda run: json.loads(run.stdout) if run.returncode == 0 else None)(
        cluster.ctl("checkpoint", "verify", "--job", str(job_id), "--json", check=False))
    for i, kind in enumerate(("a link", "a pipe", "a folder", "256 GiB of holes", "cut", "a flipped bit")):
        copies = cluster.wait_for(lambda: all(len(c) == 2 for c in holders(cluster, job_id, epoch).values())
                                  and holders(cluster, job_id, epoch), 60, "two copies of each shard")
        file = sorted(copies)[i % len(copies)]
        names = sorted(copies[file])
        node = names[i // 3]
        in_place(copies[file][node], kind)
        output = os.path.join(folder, f"fetched-{i}")
        run = cluster.ctl("checkpoint", "fetch", str(epoch), "--job", str(job_id), "--output", output, check=False, timeout=120)
        claims.claim(run.returncode == 0, f"{kind} for {file} on {node}: another copy is fetched: {run.stderr}")
        run = cluster.ctl("checkpoint", "verify", "--job", str(job_id), "--json", check=False, timeout=120)
        # Where the fetch was told of it already, it is no copy any more: one is missing.
        claims.claim(run.returncode == 7 and any((c["state"], c["node"]) in (("damaged", node), ("missing", node), ("missing", ""))
                                                 and c["file"] == file for c in json.loads(run.stdout)["copies"]),
                     f"{kind} for {file} on {node} is named: {run.returncode} {run.stdout}")
        claims.claim(cluster.wait_for(whole, 60, f"{kind}: the copy to be made again"), f"{kind} is repaired")
    for node, path in holders(cluster, job_id, epoch)[file].items():
        in_place(path, "256 GiB of holes")
    output = os.path.join(folder, "never")
    run = cluster.ctl("checkpoint", "fetch", str(epoch), "--job", str(job_id), "--output", output, check=False, timeout=120)
    claims.claim(run.returncode == 7 and file in run.stderr and "the most is" in run.stderr,
                 f"of copies that are all too long nothing is taken, and the shard is named: {run.returncode} {run.stderr}")
    claims.claim(not os.path.exists(output), "and nothing is left of the fetch")
    claims.claim(all(n.alive() for n in cluster.nodes), "every daemon lives")


def main():
    with tempfile.TemporaryDirectory() as folder:
        job = write_job(folder, steps=200, every=100)
        older, whole = os.path.join(folder, "older"), os.path.join(folder, "whole")
        with Cluster(nodes=3) as cluster:
            job_id = cluster.submit(job)
            cluster.wait_job(job_id)
            epochs = sorted(c["epoch"] for c in cluster.ask("checkpoint", "list", str(job_id))["checkpoints"] if c["state"] == "published")
            for epoch, output in ((epochs[0], older), (epochs[-1], whole)):
                cluster.ctl("checkpoint", "fetch", str(epoch), "--job", str(job_id), "--output", output)
            nodes(cluster, job_id, epochs[-1], folder)
        run = ctl("checkpoint", "verify", whole)
        claims.claim(run.returncode == 0, f"the untouched one is good: {run.stderr}")
        for i, (what, make, names) in enumerate(hostile(whole, older)):
            scratch = os.path.join(folder, f"scratch{i}")
            copy = os.path.join(scratch, "epoch")
            shutil.copytree(whole, copy)
            make(copy)
            for reader, arguments in readers(copy, scratch, job, every=i % 5 == 0):
                run = ctl(*arguments)
                if run is None:
                    claims.claim(False, f"{reader}, {what}: hangs")
                    continue
                text = run.stdout + run.stderr
                claims.claim(run.returncode in (6, 7), f"{reader}, {what}: exit {run.returncode}: {text.strip()[-400:]}")
                claims.claim(names in text, f"{reader}, {what}: '{names}' is not named: {text.strip()[-400:]}")
                claims.claim("root:" not in text, f"{reader}, {what}: another file's content is told")
            claims.claim(not os.path.exists(os.path.join(scratch, "exported")), f"{what}: nothing was exported")
            shutil.rmtree(scratch)
    claims.end()


main()
