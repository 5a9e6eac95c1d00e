"""The authority's key is never replicated by itself. Two nodes join by a token, a certificate is renewed, checkpoints with copies
are published, the log is cut by a snapshot, which the third node is given, and everything that coppeliusctl shows is asked for:
then no node's folder, log, snapshot, checkpoint or printed line has the key in any form, nor has anything that any daemon said
over TLS (heard before it was sealed), nor the memory of a daemon other than the one that signs.

That the search finds what is there is shown by each form of the key put into a node's folder, by what the nodes do have of
the authority, and by a node's own key in its own memory."""
import base64
import glob
import os
import re
import tempfile
import urllib.request

from cluster import Claims, Cluster, need_preload, sanitized
from killing import write_job

claims = Claims()
PIECE = 4 << 20
FORM_MAX = 256


def key_bytes(path):
    """(the PEM text's body, its DER, the secret number, 32 bytes, and where it begins in the DER)."""
    with open(path) as f:
        body = "".join(line.strip() for line in f if "-----" not in line)
    der = base64.b64decode(body)
    at = der.index(b"\x04\x20") + 2  # the first OCTET STRING of 32 bytes is the number, of P-256 and of Ed25519
    return body, der, der[at:at + 32], at


def base64_forms(number):
    """What base64 makes of it wherever it begins in what is written, in both alphabets, without the ends that the rest decides."""
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + number)
        sure = text[4:len(text) - 4 - (len(text) % 4)]
        yield sure
        yield sure.replace(b"+", b"-").replace(b"/", b"_")


def forms(path):
    """{what: bytes}: each form in which a key could lie in a file, a message or memory; half of the number is enough."""
    body, _, number, at = key_bytes(path)
    found = {}
    for half, part in (("first", number[:16]), ("second", number[16:])):
        found[f"{half} half"] = part
        found[f"{half} half, the other way round"] = part[::-1]  # as a big number lies in memory
        found[f"{half} half in hex"] = part.hex().encode()
        found[f"{half} half in HEX"] = part.hex().upper().encode()
        found[f"{half} half in hex with colons"] = part.hex(":").encode()
        for i, text in enumerate(base64_forms(part)):
            found[f"{half} half in base64 {i}"] = text
    for i in range(0, len(body), 64):
        if i * 3 // 4 < at + 32 and (i + 64) * 3 // 4 > at:  # else the line is of what everybody may know
            found[f"line {i // 64} of the PEM"] = body[i:i + 64].encode()
    assert all(16 <= len(form) <= FORM_MAX for form in found.values()), found
    return found


def searched(read, wanted):
    """Which of the forms are in what read(size) gives until it is empty."""
    seen, tail = set(), b""
    while piece := read(PIECE):
        data = tail + piece
        seen |= {what for what, form in wanted.items() if form in data}
        tail = data[-FORM_MAX:]
    return seen


def in_files(folder, wanted):
    """{file: forms} of all files below; and how many were read."""
    found, count = {}, 0
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as f:
                seen = searched(f.read, wanted)
            count += 1
            if seen:
                found[os.path.relpath(path, folder)] = sorted(seen)
    return found, count


def in_memory(node, wanted):
    """Which forms are in the memory of a node's daemon; None where we may not look, or where a sanitizer keeps terabytes of its own."""
    seen = set()
    if sanitized():
        return None
    try:
        with open(f"/proc/{node.process.pid}/maps") as maps, open(f"/proc/{node.process.pid}/mem", "rb", 0) as memory:
            for line in maps:
                low, high = (int(x, 16) for x in line.split()[0].split("-"))
                if "rw" not in line.split()[1]:
                    continue
                memory.seek(low)
                left = high - low

                def read(size):
                    nonlocal left
                    data = memory.read(min(size, left))
                    left -= len(data)
                    return data
                try:
                    seen |= searched(read, wanted)
                except OSError:
                    continue  # a device's, or gone meanwhile
    except PermissionError:
        return None
    return seen


def able_to_fail(cluster, node, key, wanted):
    """Each form, put into a file of a node as somebody might have written it there, is found."""
    _, der, number, _ = key_bytes(key)
    with open(key, "rb") as f:
        pem = f.read()
    planted = {
        "pem": pem, "der": der, "number": b"\0" * 77 + number, "reversed": number[::-1], "hex": number.hex().encode(),
        "HEX": number.hex().upper().encode(), "openssl": number.hex(":").encode(), "one line": b"".join(pem.split(b"\n")[1:-2]),
        "base64": base64.b64encode(der), "base64, later": base64.b64encode(b"x" + der), "url": base64.urlsafe_b64encode(b"xy" + der),
        "half": number[16:], "across the pieces": b"\0" * (PIECE - 20) + number, "in a line": b'{"key": "' + pem.replace(b"\n", b"\\n") + b'"}'}
    for what, data in planted.items():
        path = os.path.join(node.state, "planted")
        with open(path, "wb") as f:
            f.write(data)
        found, _ = in_files(cluster.folder, wanted)
        claims.claim(os.path.relpath(path, cluster.folder) in found, f"the search finds the key as {what}: {found}")
        os.remove(path)


def join_by_token(cluster, wire):
    node = cluster.newcomer(cluster.nodes[0])
    token = cluster.offline("cluster", "token", "--ttl", "1h", "--uses", "1", "--authority", cluster.authority).stdout.strip()
    node.environment = dict(wire, COPPELIUSD_TOKEN=token)
    node.start()
    cluster.wait_alive(60)
    return node


def renew(cluster, node):
    short = os.path.join(cluster.folder, "short")
    cluster.offline("pki", "bundle", node.name, "--days", "5", "--authority", cluster.authority, "--output", short)
    for name in ("node.key", "node.crt"):
        os.replace(os.path.join(short, name), os.path.join(node.state, "tls", name))
    node.signal(1)
    cluster.wait_for(lambda: "trust.renewed" in node.log_text(), 120, f"{node.name} to renew its certificate")


def snapshots(node):
    return glob.glob(os.path.join(node.state, "log", "*snapshot*"))


def everything_asked(cluster, job_id, folder):
    """What the daemons tell, in files of a folder: the same search goes through it."""
    asks = [["job", "show", str(job_id)], ["job", "logs", str(job_id)], ["job", "logs"], ["job", "list"], ["cluster", "status"],
            ["node", "list"], ["doctor"], ["session"], ["checkpoint", "list", str(job_id)]]
    for node in cluster.nodes:
        for form in ([], ["--json"]):
            for ask in asks:
                run = cluster.ctl(*ask, *form, node=node, check=False)
                with open(os.path.join(folder, "-".join([node.name, *ask, *form])), "w") as f:
                    f.write(run.stdout + run.stderr)
        run = cluster.offline("config", "show", node.config, check=False)
        with open(os.path.join(folder, f"{node.name}-config"), "w") as f:
            f.write(run.stdout + run.stderr)
        for path in ("/metrics", "/api/v1/status"):
            with urllib.request.urlopen(f"http://127.0.0.1:{node.http}{path}", timeout=30) as answer:
                with open(os.path.join(folder, node.name + path.replace("/", "-")), "wb") as f:
                    f.write(answer.read())
        for name in ("cmdline", "environ"):
            with open(f"/proc/{node.process.pid}/{name}", "rb") as f, \
                    open(os.path.join(folder, f"{node.name}-{name}"), "wb") as g:
                g.write(f.read())


def main():
    with tempfile.TemporaryDirectory() as outside, Cluster(nodes=1, secure=True, start=False) as cluster:
        # The authority's folder is beside the nodes' folders: all else that is there is looked at.
        away = os.path.join(outside, "authority")
        os.rename(cluster.authority, away)
        cluster.authority = away
        a = cluster.nodes[0]
        a.tls = f"{{authority: {away}}}"
        a.write_config()
        heard = os.path.join(cluster.folder, "heard")
        said = os.path.join(cluster.folder, "said")
        os.makedirs(heard)
        os.makedirs(said)
        wire = {} if sanitized() else {"LD_PRELOAD": need_preload("wire_shim"), "COPPELIUS_WIRE": heard}
        a.environment = wire
        cluster.start()
        key = os.path.join(away, "ca.key")
        wanted = forms(key)
        b = join_by_token(cluster, wire)
        renew(cluster, b)
        # Published at every step, until the log was cut by a snapshot; the third node then joins.
        job = cluster.submit(write_job(cluster.folder, steps=1000000, every=1))
        cluster.wait_for(lambda: snapshots(a) and snapshots(b), 300, "a snapshot of the log")
        c = join_by_token(cluster, wire)
        cluster.wait_for(lambda: snapshots(c), 60, "the third node to be given the snapshot")
        cluster.ctl("job", "pause", str(job))
        cluster.wait_job(job, states=("paused",), seconds=120)
        epoch = max(e["epoch"] for e in cluster.ask("checkpoint", "list", str(job))["checkpoints"] if e["state"] == "published")
        cluster.ctl("checkpoint", "fetch", str(epoch), "--job", str(job), "--output", os.path.join(cluster.folder, "whole"))
        identity = os.path.join(cluster.folder, "ann")  # verify reads every node's disk: an admin's
        cluster.offline("pki", "user", "ann", "--role", "admin", "--authority", away, "--output", identity)
        copies = cluster.ask("--identity", identity, "checkpoint", "verify", "--job", str(job))["copies"]
        claims.claim(len({(x["file"], x["node"]) for x in copies if x["epoch"] == epoch and x["state"] == "verified"}) >= 4, f"two shards have copies: {copies}")
        everything_asked(cluster, job, said)

        found, count = in_files(cluster.folder, wanted)
        claims.claim(not found, f"the authority's key is in no file of any node: {found}")
        claims.claim(count > 100, f"files were looked at: {count}")
        for node in cluster.nodes:
            logs = glob.glob(os.path.join(node.state, "log", "*"))
            claims.claim(snapshots(node) and len(logs) >= 2, f"{node.name} has a log and a snapshot of it: {logs}")
        authority = forms_of_certificate(os.path.join(away, "ca.crt"))
        for node in cluster.nodes:
            claims.claim(in_files(os.path.join(node.state, "tls"), authority)[0].get("ca.crt"),
                         f"what {node.name} has of the authority is found: its certificate")
        if wire:
            for node in cluster.nodes:
                words = glob.glob(os.path.join(heard, f"said-{node.process.pid}-*"))
                claims.claim(sum(os.path.getsize(w) for w in words) > 10000, f"{node.name} was heard: {words}")
            claims.claim(any(name.startswith(f"said-{a.process.pid}-") for name in in_files(heard, authority)[0]),
                         "the authority's certificate was heard when it was given to who joined")
        for node in (b, c):
            seen = in_memory(node, wanted)
            if seen is None:
                print(f"{node.name}: its memory may not be read here")
                continue
            claims.claim(not seen, f"the authority's key is not in {node.name}'s memory: {seen}")
            own = in_memory(node, forms(os.path.join(node.state, "tls", "node.key")))
            claims.claim(own, f"{node.name}'s own key is found there")
        able_to_fail(cluster, b, key, wanted)
        cluster.ctl("job", "cancel", str(job))
    claims.end()


def forms_of_certificate(path):
    with open(path, "rb") as f:
        lines = [line for line in f.read().split(b"\n") if re.fullmatch(rb"[A-Za-z0-9+/]{64}", line)]
    return {f"line {i}": line for i, line in enumerate(lines)}


main()
