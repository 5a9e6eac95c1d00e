"""What a hostile peer may try at the peer port's TLS: certificates that are nearly right, handshakes that are too long,
half, old or many, a join without its token, an authority of before, SIGHUP meanwhile. None is let in, nothing leaks, and
who belongs there is served."""
import datetime
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

from cluster import Claims, Cluster, program, sanitized

claims = Claims()
rand = random.Random(6)


def openssl(*arguments, input=None):
    return subprocess.run(["openssl", *arguments], capture_output=True, check=True, input=input).stdout


class Forge:
    """Certificates by the cluster's own authority (and others) as no coppeliusctl would make them."""

    def __init__(self, cluster):
        self.cluster, self.folder = cluster, os.path.join(cluster.folder, "forge")
        os.makedirs(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def leaf(self, name, uris, key="ec", usage="serverAuth,clientAuth", ca=None, more="", first=-1, last=30, flags="CA:FALSE",
             key_usage="digitalSignature"):
        """NAME.pem with key and certificate; by `ca` (a folder with ca.crt and ca.key; "self": by itself; another leaf's name)."""
        config = self.path(name + ".cnf")
        with open(config, "w") as f:
            names = ",".join(f"URI:{u}" for u in uris)
            f.write(f"[v3]\nbasicConstraints=critical,{flags}\nkeyUsage=critical,{key_usage}\n"
                    + (f"extendedKeyUsage={usage}\n" if usage else "") + (f"subjectAltName={names}\n" if names else "") + more)
        kind = {"ec": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
                "p384": ["EC", "-pkeyopt", "ec_paramgen_curve:P-384"]}[key]
        openssl("genpkey", "-algorithm", *kind, "-out", self.path(name + ".key"))
        openssl("req", "-new", "-key", self.path(name + ".key"), "-subj", f"/O=coppelius/CN={name}", "-out", self.path(name + ".csr"))
        now = datetime.datetime.now(datetime.timezone.utc)
        times = [(now + datetime.timedelta(days=d)).strftime("%Y%m%d%H%M%SZ") for d in (first, last)]
        # `openssl ca` is what takes both times.
        ca = ca or self.cluster.authority
        own = ca == "self"
        with open(self.path(name + ".ca"), "w") as f:
            f.write(f"[ca]\ndefault_ca=d\n[d]\nnew_certs_dir={self.folder}\ndatabase={self.path(name + '.db')}\nrand_serial=yes\n"
                    "default_md=sha256\npolicy=p\nunique_subject=no\nemail_in_dn=no\n[p]\nO=optional\nCN=optional\n")
        open(self.path(name + ".db"), "w").close()
        signer = (["-selfsign", "-keyfile", self.path(name + ".key")] if own else
                  ["-cert", os.path.join(ca, "ca.crt"), "-keyfile", os.path.join(ca, "ca.key")])
        openssl("ca", "-batch", "-notext", "-config", self.path(name + ".ca"), "-extfile", config, "-extensions", "v3", "-startdate",
                times[0], "-enddate", times[1], "-in", self.path(name + ".csr"), "-out", self.path(name + ".crt"), *signer)
        with open(self.path(name + ".pem"), "w") as f:
            for part in (".key", ".crt"):
                with open(self.path(name + part)) as g:
                    f.write(g.read())
        return self.path(name + ".pem")

    def under(self, name):
        """What that leaf would be as an authority."""
        folder = self.path(name + "-authority")
        os.makedirs(folder)
        shutil.copy(self.path(name + ".key"), os.path.join(folder, "ca.key"))
        shutil.copy(self.path(name + ".crt"), os.path.join(folder, "ca.crt"))
        return folder


def context(pem=None, alpn="coppelius/1", most=None):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols([alpn])
    if most:
        made.maximum_version = most
    if pem:
        made.load_cert_chain(pem)
    return made


def let_in(node, pem=None, say=b"", **kind):
    """None where it was let in (the other side waits, or answers), else how it ended."""
    try:
        with socket.create_connection(("127.0.0.1", node.port), 10) as s, context(pem, **kind).wrap_socket(s) as t:
            t.settimeout(1.5)
            t.sendall(say or b"\x10\0\0\0")  # the beginning of a frame: a peer would wait for the rest
            try:
                got = t.recv(4096)
            except socket.timeout:
                return None
            return "the end" if not got else None
    except (ssl.SSLError, OSError) as e:
        return str(e)


def failures(node):
    return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in node.metrics().splitlines()
            if line.startswith("coppelius_peer_handshake_failures_total{")}


def certificates(cluster, forge):
    b = cluster.nodes[1]
    node, other = f"coppelius://{cluster.name}/node/a", f"coppelius://{cluster.name}/node/b"
    good = forge.leaf("good", [node])
    claims.claim(let_in(b, good) is None, f"a certificate as it should be is let in: {let_in(b, good)}")
    forge.leaf("boss", [node], flags="CA:TRUE", key_usage="digitalSignature,keyCertSign")
    cases = {
        "expired": dict(uris=[node], first=-40, last=-1),
        "not yet valid": dict(uris=[node], first=1, last=30),
        "of another cluster": dict(uris=["coppelius://prod/node/a"]),
        "of an unknown kind": dict(uris=[f"coppelius://{cluster.name}/king/a"]),
        "without a name": dict(uris=[]),
        "with two names": dict(uris=[node, other]),
        "with a path in its name": dict(uris=[f"coppelius://{cluster.name}/node/a/../b"]),
        "with a blank in its name": dict(uris=[f"coppelius://{cluster.name}/node/a%20b"]),
        "for a server only": dict(uris=[node], usage="serverAuth"),
        "for mail": dict(uris=[node], usage="emailProtection"),
        "for anything": dict(uris=[node], usage=None),
        "whose key may not sign": dict(uris=[node], key_usage="keyEncipherment"),
        "with an RSA key": dict(uris=[node], key="rsa"),
        "on P-384": dict(uris=[node], key="p384"),
        "signed by itself": dict(uris=[node], ca="self"),
        "signed by a leaf": dict(uris=[node], ca=forge.under("good")),
        "signed by a leaf that says it is an authority": dict(uris=[node], ca=forge.under("boss")),
    }
    before = failures(b)
    for what, how in cases.items():
        pem = forge.leaf(what.replace(" ", "-"), **how)
        if "signed by a leaf" in what:  # the whole chain is shown
            with open(pem, "a") as f, open(os.path.join(how["ca"], "ca.crt")) as g:
                f.write(g.read())
        claims.claim(let_in(b, pem) is not None, f"a certificate {what} is refused")
    after = failures(b)
    claims.claim(sum(after.values()) - sum(before.values()) >= len(cases), f"all were counted: {before} to {after}")
    for reason, least in (("expired", 2), ("name", 5), ("authority", 2)):
        claims.claim(after[reason] - before[reason] >= least, f"... by reason {reason}: {before} to {after}")
    # More than OpenSSL's bound for a chain, and more than ours for a handshake.
    for size in (20000, 40000):
        names = ",".join(f"DNS:{rand.getrandbits(400):x}.example" for _ in range(size // 110))
        pem = forge.leaf(f"huge-{size}", [], more=f"subjectAltName=URI:{node},{names}\n")
        claims.claim(let_in(b, pem) is not None, f"a certificate of {size} bytes is refused")
    with open(good) as f:
        text = f.read()
    with open(forge.path("chain.pem"), "w") as f:
        f.write(text + text[text.index("-----BEGIN CERT"):] * 40)
    claims.claim(let_in(b, forge.path("chain.pem")) is not None, "a chain of 41 certificates is refused")


def hello_record(size=None, body=None):
    """A TLS record with the beginning of a ClientHello that says it is so long."""
    body = os.urandom(200) if body is None else body
    size = len(body) if size is None else size
    message = b"\x01" + size.to_bytes(3, "big") + b"\x03\x03" + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def ends(s, seconds):
    """How long until the other side closed; None: it did not."""
    s.settimeout(seconds)
    begin = time.monotonic()
    try:
        while s.recv(65536):
            pass
    except socket.timeout:
        return None
    except OSError:
        pass
    return time.monotonic() - begin


def rss(node):
    with open(f"/proc/{node.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) << 10


def descriptors(node):
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def handshakes(cluster):
    a, b = cluster.nodes[:2]
    before, fds = rss(b), descriptors(b)
    for what, data in (
            ("a ClientHello of 16 MiB", hello_record(0xffffff) + b"".join(hello_record(0xffffff, os.urandom(16000)) for _ in range(4))),
            ("empty handshake records without end", b"\x16\x03\x01\0\0" * 20000),
            ("one byte a record", b"".join(b"\x16\x03\x01\0\1" + bytes([c]) for c in os.urandom(8000))),
            ("alerts without end", b"\x15\x03\x01\0\2\1\x5a" * 8000),
            ("change cipher specs without end", b"\x14\x03\x03\0\1\1" * 8000),
            ("application data before all", b"\x17\x03\x03\x40\0" + os.urandom(16384) * 3)):
        with socket.create_connection(("127.0.0.1", b.port), 10) as s:
            try:
                s.sendall(data)
            except OSError:
                pass
            took = ends(s, 60)
            claims.claim(took is not None, f"{what}: the connection ended after {took} s")
    old = let_in(b, most=ssl.TLSVersion.TLSv1_2)
    claims.claim(old is not None and "version" in old.lower(), f"TLS 1.2 is refused: {old}")
    # Tickets, early data, renegotiation: what OpenSSL's own client sees.
    tls = os.path.join(a.state, "tls")
    run = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{b.port}", "-alpn", "coppelius/1", "-cert", f"{tls}/node.crt",
                          "-key", f"{tls}/node.key", "-CAfile", f"{tls}/ca.crt", "-msg", "-sess_out", os.path.join(cluster.folder, "session")],
                         input="R\nK\n", capture_output=True, text=True, timeout=30)
    said = run.stdout + run.stderr
    claims.claim("NewSessionTicket" not in said and not os.path.exists(os.path.join(cluster.folder, "session")),
                 "no session ticket is given")
    claims.claim("Secure Renegotiation IS NOT supported" in said and "Early data was not sent" in said, "no renegotiation, no early data")
    claims.claim("TLSv1.3" in said and "Verify return code: 0" in said, "and the handshake itself was good")
    # Half a handshake each, faster than they are cut; who belongs there gets in meanwhile.
    halves, begun = [], time.monotonic()
    hello = hello_record()
    while time.monotonic() - begun < 4:
        s = socket.create_connection(("127.0.0.1", b.port), 5, source_address=(f"127.0.0.{rand.randrange(50, 250)}", 0))
        s.sendall(hello[:rand.randrange(1, len(hello))])
        halves.append(s)
        time.sleep(0.005)
    most = descriptors(b)
    answer = subprocess.run([program("coppeliusctl"), "--identity", os.path.join(cluster.folder, "vic"), "--endpoint", b.endpoint,
                             "nodes"], capture_output=True, text=True, timeout=30)
    claims.claim(answer.returncode == 0, f"who belongs there gets in among {len(halves)} half handshakes: {answer.stderr}")
    claims.claim(most < fds + 256 + 16, f"at most 256 are held: {fds} descriptors before, {most} then")
    cluster.wait_for(lambda: descriptors(b) <= fds + 2, 20, "the half handshakes to be cut")
    for s in halves:
        s.close()
    claims.claim(sanitized() or rss(b) < before + (40 << 20), f"memory: {before >> 20} MiB before, {rss(b) >> 20} MiB after")


def joiners(cluster):
    """At the node with the authority: everybody may begin to join, and nobody gets anywhere without a token."""
    a = cluster.nodes[0]
    for what, data in (("nothing", b""), ("another version", b"cpj1" + b"A" * 55), ("no such token", b"cpj2" + b"A" * 12),
                       ("a frame", b"\x10\0\0\0\1\0\0\0" + b"\0" * 40)):
        with socket.create_connection(("127.0.0.1", a.port), 10) as s, context(alpn="coppelius-join/2").wrap_socket(s) as t:
            try:
                t.sendall(data)
            except OSError:
                pass
            took = ends(t, 60)
            claims.claim(took is not None, f"a joiner that says {what} is cut: {took}")
    # With the token's id, but without its secret: a wrong proof, a wish behind it.
    token = cluster.offline("cluster", "token", "--ttl", "1h", "--uses", "1", "--authority", cluster.authority).stdout.strip()
    identity = token.split(".")[2].encode()
    with socket.create_connection(("127.0.0.1", a.port), 10) as s, context(alpn="coppelius-join/2").wrap_socket(s) as t:
        t.settimeout(10)
        t.sendall(b"cpj2" + identity)
        answer = t.recv(4096)
        claims.claim(int.from_bytes(answer[4:8], "little") == 0 and len(answer) >= 4 + 4 + 4 + 32, f"the host proves itself: {len(answer)}")
        wish = os.urandom(64) + b"\1\0\0\0x" + b"\x0d\0\0\x0010.0.0.9:7620" + b"\7\0\0\0trainer" + b"\0\0\0\0"
        t.sendall(len(wish).to_bytes(4, "little") + wish)
        answer = t.recv(4096)
        claims.claim(b"does not hold" in answer, f"without the secret nobody joins: {answer[8:80]}")
    # The places are four: while they are taken the fifth is told to come again, and 4 s later there is room.
    held = []
    for _ in range(6):
        s = socket.create_connection(("127.0.0.1", a.port), 10)
        held.append(context(alpn="coppelius-join/2").wrap_socket(s))
    cluster.wait_for(lambda: "join already" in a.log_text(), 10, "the fifth joiner to be refused")
    def joins():
        run = cluster.offline("cluster", "join", "-", a.endpoint, "--name", "j", "--advertise", "127.0.0.1:1", "--output",
                              os.path.join(cluster.folder, f"j-{time.monotonic_ns()}"), input=token + "\n", check=False)
        return run.returncode == 0
    cluster.wait_for(joins, 20, "a place for who has the token")
    claims.claim(True, "who has the token gets in when the idle ones were cut")
    for t in held:
        t.close()
    cluster.ctl("cluster", "remove", "j", node=a, check=False)


def hangups(cluster):
    """SIGHUP again and again while handshakes are under way: each is good by the files of before or after."""
    b = cluster.nodes[1]
    over, failed, done = threading.Event(), [], []

    def dial():
        while not over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", b.port), 10) as s:
                    with context(os.path.join(cluster.folder, "good.pem")).wrap_socket(s) as t:
                        t.sendall(b"\x10")
                done.append(1)
            except (ssl.SSLError, OSError) as e:
                failed.append(str(e))
            time.sleep(0.05)

    threads = [threading.Thread(target=dial) for _ in range(4)]
    for t in threads:
        t.start()
    reloads = b.log_text().count("config.reloaded")
    for _ in range(60):
        b.signal(signal.SIGHUP)
        time.sleep(0.05)
    over.set()
    for t in threads:
        t.join()
    claims.claim(b.alive() and b.log_text().count("config.reloaded") > reloads + 5, "files are read again meanwhile")
    claims.claim(done and not failed, f"{len(done)} handshakes during SIGHUPs, failed: {failed[:3]}")


def another_authority(cluster, forge):
    """The authority is replaced without a restart: what was made under the old one is cut, and is refused from then on."""
    nodes = cluster.nodes
    b = nodes[1]
    old = forge.path("good.pem")
    new = os.path.join(cluster.folder, "authority-new")
    with socket.create_connection(("127.0.0.1", b.port), 10) as s, context(old).wrap_socket(s) as held:
        held.sendall(b"\x10\0\0\0")  # a frame's beginning: within 5 s the HELLO is due
        for node in nodes:
            output = os.path.join(cluster.folder, node.name + "-of-new")
            made = ["cluster", "init", "--cluster", cluster.name, "--name", node.name] if node is nodes[0] else ["pki", "bundle", node.name]
            cluster.offline(*made, "--authority", new, "--output", output)
            for name in ("ca.crt", "node.key", "node.crt"):
                os.replace(os.path.join(output, name), os.path.join(node.state, "tls", name))
        for node in nodes:
            node.signal(signal.SIGHUP)
        took = ends(held, 4)
        claims.claim(took is not None and took < 3, f"a connection by the old authority is cut: {took}")
    cluster.wait_leader()
    cluster.wait_alive(30)
    claims.claim(True, "the nodes find each other by the new authority without a restart")
    claims.claim(let_in(b, old) is not None, "the old authority's certificate is refused")
    run = subprocess.run([program("coppeliusctl"), "--identity", os.path.join(cluster.folder, "vic"), "--endpoint", b.endpoint, "nodes"],
                         capture_output=True, text=True, timeout=30)
    claims.claim(run.returncode == 5, f"a person's of the old authority too: {run.returncode}: {run.stderr}")
    cut = sum(float(line.rsplit(" ", 1)[1]) for node in nodes for line in node.metrics().splitlines()
              if line.startswith("coppelius_peer_connections_cut_total"))
    claims.claim(cut >= 2, f"the cut ones are counted: {cut}")


def main():
    if not shutil.which("openssl"):
        from cluster import skip
        skip("there is no openssl to forge certificates with")
    with Cluster(nodes=3, secure=True) as cluster:
        cluster.wait_alive()
        forge = Forge(cluster)
        cluster.offline("pki", "user", "vic", "--role", "viewer", "--authority", cluster.authority, "--output",
                        os.path.join(cluster.folder, "vic"))
        certificates(cluster, forge)
        shutil.copy(forge.path("good.pem"), os.path.join(cluster.folder, "good.pem"))
        handshakes(cluster)
        joiners(cluster)
        hangups(cluster)
        another_authority(cluster, forge)
        for node in cluster.nodes:
            status, _ = node.terminate()
            claims.claim(status == 0, f"node {node.name} stops cleanly: {status}")
    claims.end()


main()
