"""Mutual TLS between real daemons: the same bits as in plain text, nobody in who should not be, joining by a
token, people with certificates of their own, renewal without a restart."""
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

from cluster import Claims, Cluster, golden_cases, golden_job, program, same_as_golden

claims = Claims()


def remote(cluster, node, identity, *arguments, input=None):
    more = ["--identity", os.path.join(cluster.folder, identity)] if identity else []
    return subprocess.run([program("coppeliusctl"), "--endpoint", node.endpoint, *more, *arguments],
                          capture_output=True, text=True, timeout=60, input=input)


def metric(node, name):
    for line in node.metrics().splitlines():
        if line.startswith(name + " ") or line.startswith(name + "{"):
            yield line[len(name):].rsplit(" ", 1)[0].strip(), float(line.rsplit(" ", 1)[1])


def one(node, name, labels=""):
    return next(value for found, value in metric(node, name) if found == labels)


def says(run, status, *texts, what):
    text = run.stdout + run.stderr
    good = run.returncode == status and all(t in text for t in texts)
    claims.claim(good, f"{what}: exit {run.returncode}, said: {text.strip()}")


def trains(cluster):
    cases, base = golden_cases()
    case = next(c for c in cases if c["name"].startswith("california"))
    path = os.path.join(cluster.folder, "job.yaml")
    with open(path, "w") as f:
        f.write(golden_job(case, base))
    job = cluster.wait_job(cluster.submit(path))
    wrong = same_as_golden(case, job)
    claims.claim(not wrong, f"three daemons over TLS give the reference's bits: {wrong}")
    claims.claim(job["nodes"] == 3, f"all three took part: {job['nodes']}")
    for node in cluster.nodes:
        claims.claim(one(node, "coppelius_tls_enabled") == 1, f"node {node.name} says that TLS is on")
        claims.claim(one(node, "coppelius_tls_insecure") == 0, f"node {node.name} is not insecure")
    done = sum(one(node, "coppelius_peer_handshakes_total") for node in cluster.nodes)
    claims.claim(done >= 2 * (3 + 3 * 4), f"control, bulk and data connections shook hands: {done}")


def people(cluster):
    a, b = cluster.nodes[:2]
    for name, role in (("ann", "admin"), ("vic", "viewer")):
        cluster.offline("pki", "user", name, "--role", role, "--authority", cluster.authority, "--output",
                        os.path.join(cluster.folder, name))
    for name in ("ann", "vic"):
        run = remote(cluster, b, name, "nodes", "--json")
        claims.claim(run.returncode == 0 and len(json.loads(run.stdout)["nodes"]) == 3,
                     f"{name} may look: {run.stderr}")
    says(remote(cluster, b, "vic", "job", "cancel", "1"), 5, "your certificate lets you look and not change",
         "--role admin", what="a viewer may not change")
    says(remote(cluster, b, "ann", "job", "cancel", "no-such"), 4, "there is no job 'no-such'",
         what="an admin gets as far as the job")
    says(remote(cluster, b, None, "nodes"), 5, "closed the connection", "--identity DIR",
         what="without a certificate nobody may look")
    run = remote(cluster, a, "ann", "checkpoint", "fetch", "0", "--output", os.path.join(cluster.folder, "whole"))
    claims.claim(run.returncode == 0, f"a checkpoint is fetched from all nodes over TLS: {run.stderr}")
    mode = os.stat(os.path.join(cluster.folder, "ann", "node.key")).st_mode & 0o777
    claims.claim(mode == 0o600, f"a key's mode is 600: {mode:o}")
    os.chmod(os.path.join(cluster.folder, "ann", "node.key"), 0o644)
    says(remote(cluster, b, "ann", "nodes"), 2, "may be read or changed by others", what="a key that all may read")
    os.chmod(os.path.join(cluster.folder, "ann", "node.key"), 0o600)


def strangers(cluster):
    a, b = cluster.nodes[:2]
    before = dict(metric(b, "coppelius_peer_handshake_failures_total"))
    # Plain text, a frame that would be a HELLO.
    with socket.create_connection(("127.0.0.1", b.port), 5) as s:
        s.sendall(b"\x10\0\0\0\1\0\0\0" + b"\0" * 40)
        s.settimeout(5)
        got = b""
        try:
            while part := s.recv(100):
                got += part
        except OSError:
            pass
    claims.claim(len(got) <= 7, f"plain text gets an alert at most, and the end: {got!r}")
    # TLS without a certificate, TLS 1.2, another program's TLS, a certificate of another authority.
    shutil.rmtree(os.path.join(cluster.folder, "else"), ignore_errors=True)
    cluster.offline("cluster", "init", "--cluster", cluster.name, "--name", "a", "--authority",
                    os.path.join(cluster.folder, "else"), "--output", os.path.join(cluster.folder, "else-a"))

    def dial(**with_):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if with_.get("most"):
            context.maximum_version = with_["most"]
        context.set_alpn_protocols([with_.get("alpn", "coppelius/1")])
        if with_.get("folder"):
            context.load_cert_chain(os.path.join(with_["folder"], "node.crt"), os.path.join(with_["folder"], "node.key"))
        try:
            with socket.create_connection(("127.0.0.1", b.port), 5) as s, context.wrap_socket(s) as t:
                t.settimeout(5)
                t.sendall(b"\x10\0\0\0\1\0\0\0" + b"\0" * 40)
                return t.recv(100)
        except (ssl.SSLError, OSError) as e:
            return str(e)

    claims.claim("certificate required" in str(dial()).lower(), f"no certificate: {dial()}")
    old = dial(most=ssl.TLSVersion.TLSv1_2)
    claims.claim("version" in str(old).lower(), f"TLS 1.2: {old}")
    other = dial(alpn="http/1.1")
    claims.claim("application protocol" in str(other).lower() or "alert" in str(other).lower(), f"other ALPN: {other}")
    foreign = dial(folder=os.path.join(cluster.folder, "else-a"))
    claims.claim("unknown ca" in str(foreign).lower(), f"another authority: {foreign}")
    joiner = dial(alpn="coppelius-join/2")
    claims.claim("application protocol" in str(joiner).lower() or "alert" in str(joiner).lower(),
                 f"a node without the authority takes no joiner: {joiner}")
    ours = dial(folder=os.path.join(b.state, "tls"))
    claims.claim(not ours, f"a member's certificate with a HELLO that is none: {ours}")
    after = dict(metric(b, "coppelius_peer_handshake_failures_total"))
    for reason, least in (("plain", 2), ("authority", 2)):
        key = f'{{reason="{reason}"}}'
        claims.claim(after[key] - before[key] >= least, f"{reason} is counted: {before[key]} to {after[key]}")
    log = b.log_text()
    claims.claim("peer.refused from=127.0.0.1:" in log and "it does not speak TLS" in log, "the log says who came and why not")
    says(remote(cluster, b, "else-a", "nodes"), 5, "was signed by another authority", what="another authority's ctl")
    cluster.wait_alive()


def false_peers(cluster):
    """A node with another authority's certificate, one with another node's, one with none."""
    a, c = cluster.nodes[0], cluster.nodes[2]
    tls = os.path.join(c.state, "tls")
    c.terminate()
    os.rename(tls, tls + ".own")
    cluster.offline("pki", "bundle", "c", "--authority", os.path.join(cluster.folder, "else"), "--output", tls)
    c.start()
    cluster.wait_for(lambda: "was signed by another authority" in a.log_text(), 20, "a to say why c is refused")
    # c may have been the leader: until there is another one, status answers with exit 3.
    cluster.wait_for(lambda: (cluster.member("c", node=a) or {}).get("state") == "down", 20, "c to be down")
    claims.claim(c.alive() and "a leads" not in c.log_text().rsplit("daemon.ready", 1)[1],
                 "a node with another authority's certificate stays out")
    c.kill()
    shutil.rmtree(tls)
    shutil.copytree(os.path.join(cluster.nodes[1].state, "tls"), tls)
    c.start()
    claims.claim(c.process.wait(20) == 2 and "is of the node 'b', and this is the node 'c'" in c.log_text(),
                 "a daemon with another node's certificate does not start")
    c.process = None
    shutil.rmtree(tls)
    c.start()
    claims.claim(c.process.wait(20) == 2 and "tls.ca '" in c.log_text() and "cannot be read" in c.log_text(),
                 "a daemon without its files does not start, and says which")
    c.process = None
    os.rename(tls + ".own", tls)
    c.start()
    cluster.wait_alive()


def renewal(cluster):
    """By hand: another file and SIGHUP. By itself: a certificate that ends soon."""
    a, b, c = cluster.nodes[:3]
    ends = 'coppelius_tls_certificate_not_after_timestamp_seconds'
    label = '{kind="certificate"}'
    before = one(a, ends, label)
    new = os.path.join(cluster.folder, "a-new")
    cluster.offline("pki", "bundle", "a", "--days", "60", "--authority", cluster.authority, "--output", new)
    connects = a.log_text().count("is connected")
    pid = a.process.pid
    for name in ("node.key", "node.crt"):
        os.replace(os.path.join(new, name), os.path.join(a.state, "tls", name))
    a.signal(1)
    cluster.wait_for(lambda: one(a, ends, label) > before + 86400 * 20, 10, "the new certificate to be in use")
    claims.claim(a.process.pid == pid and a.log_text().count("is connected") == connects,
                 "SIGHUP takes the new certificate, and every connection lives on")
    with open(os.path.join(a.state, "tls", "node.crt"), "w") as f:
        f.write("no certificate\n")
    a.signal(1)
    cluster.wait_for(lambda: "has no PEM certificate in it" in a.log_text(), 10, "the wrong file to be refused")
    claims.claim(one(a, "coppelius_config_last_reload_successful") == 0, "a refused reload is shown")
    claims.claim(one(a, ends, label) > before, "and the certificate before stays in use")
    cluster.offline("pki", "bundle", "a", "--authority", cluster.authority, "--output", new + "2")
    for name in ("node.key", "node.crt"):
        os.replace(os.path.join(new + "2", name), os.path.join(a.state, "tls", name))
    a.signal(1)
    cluster.wait_for(lambda: one(a, "coppelius_config_last_reload_successful") == 1, 10, "the right file again")

    for node in (a, b):  # a signs for itself, b asks a
        short = os.path.join(cluster.folder, node.name + "-short")
        cluster.offline("pki", "bundle", node.name, "--days", "5", "--authority", cluster.authority, "--output", short)
        for name in ("node.key", "node.crt"):
            os.replace(os.path.join(short, name), os.path.join(node.state, "tls", name))
        key = open(os.path.join(node.state, "tls", "node.key")).read()
        node.signal(1)
        cluster.wait_for(lambda: "trust.renewed" in node.log_text(), 90, f"{node.name} to renew its certificate")
        left = one(node, ends, label) - time.time()
        claims.claim(left > 29 * 86400, f"{node.name}'s certificate was renewed: {left / 86400:.1f} days left")
        claims.claim(open(os.path.join(node.state, "tls", "node.key")).read() == key, "with the same key")
    claims.claim(a.says("trust.signed node=b"), "the node with the authority says what it signed")
    cluster.wait_alive()


def tokens(cluster):
    a, b, c = cluster.nodes[:3]
    authority = ["--authority", cluster.authority]

    def token(ttl="1h", uses=1):
        return cluster.offline("cluster", "token", "--ttl", ttl, "--uses", str(uses), *authority).stdout.strip()

    good = token()
    claims.claim(re.fullmatch(r"cpl2\.[\w-]{43}\.[\w-]{12}\.[\w-]{43}", good) is not None, f"a token: {good}")
    secret = good.rsplit(".", 1)[1]
    stored = open(os.path.join(cluster.authority, "tokens")).read()
    claims.claim(secret not in stored and good.split(".")[2] in stored, "only what checks the secret is stored")
    claims.claim(os.stat(os.path.join(cluster.authority, "tokens")).st_mode & 0o777 == 0o600, "in a file of mode 600")

    def join(name, given, node=a, folder=None):
        folder = folder or os.path.join(cluster.folder, f"join-{name}-{time.monotonic_ns()}")
        run = cluster.offline("cluster", "join", "-", node.endpoint, "--name", name, "--advertise", d.endpoint,
                              "--output", folder, "--json", check=False, input=given + "\n")
        return run, folder

    d = cluster.newcomer(joins=a)
    run, _ = join("c", good)
    says(run, 1, "the cluster has a node 'c' already", what="a token does not give somebody else's name")
    run, folder = join("d", good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB"))
    says(run, 5, "cannot prove that it knows this token", "nothing of the secret was sent", what="another secret")
    claims.claim(not os.path.exists(os.path.join(folder, "node.key")), "nothing is left of a join that failed")
    pin = good.split(".")[1]
    run, folder = join("d", good.replace(pin, ("A" if pin[0] != "A" else "B") + pin[1:]))
    says(run, 5, "does not show the authority that the token pins", "nothing secret was sent", what="another pin")
    run, folder = join("d", good, node=b)
    says(run, 5, "must be the daemon with the authority", what="a node without the authority")
    # A daemon without its files does not start; then with what the token gives it is a member.
    d.start()
    claims.claim(d.process.wait(20) == 2 and "tls.ca '" in d.log_text(), "without certificates d does not start")
    d.process = None
    run, folder = join("d", good, folder=os.path.join(d.state, "tls"))
    claims.claim(run.returncode == 0, f"the token lets in: {run.stderr}")
    made = json.loads(run.stdout) if run.returncode == 0 else {}
    claims.claim(made.get("cluster") == cluster.name and [m["name"] for m in made.get("members", [])] == ["a", "b", "c"],
                 f"the joiner learns the members: {made}")
    claims.claim(os.stat(os.path.join(folder, "node.key")).st_mode & 0o777 == 0o600, "its key has mode 600")
    d.start()
    cluster.wait_for(lambda: (cluster.member("d", node=b) or {}).get("state") == "alive", 30, "d to be a member")
    claims.claim(True, "the node that joined by a token is in")
    run, _ = join("x", good)
    says(run, 5, "this token is used up", what="a token that is used up")
    brief = token("1s")
    time.sleep(2.1)
    run, _ = join("x", brief)
    says(run, 5, "this token has expired", what="a token that has expired")
    run, _ = join("x", "cpl2.half")
    says(run, 2, "this is no token", what="half a token")

    # As containers do it: all by the environment.
    e = cluster.newcomer(joins=a)
    e.environment = {"COPPELIUSD_TOKEN": token()}
    other = e.environment["COPPELIUSD_TOKEN"].rsplit(".", 1)[1]
    e.start()
    cluster.wait_for(lambda: (cluster.member("e", node=b) or {}).get("state") == "alive", 30, "e to be a member")
    claims.claim(True, "a daemon with a token in its environment is in")
    environ = open(f"/proc/{e.process.pid}/environ", errors="replace").read()
    claims.claim(other not in environ, "its token is not in its environment any more")
    e.terminate()
    e.environment = {}
    e.start()  # the second time without a token
    cluster.wait_for(lambda: (cluster.member("e", node=b) or {}).get("state") == "alive", 30, "e to be back")
    for node in cluster.nodes:
        claims.claim(secret not in node.log_text() and other not in node.log_text(),
                     f"no secret is in {node.name}'s log")


def removal(cluster):
    """A removed node is out at once, with everything that it has."""
    a, b = cluster.nodes[:2]
    d, e = cluster.nodes[3:5]
    # e's own certificate, for a connection that only listens: it must be cut, not only refused later.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["coppelius/1"])
    context.load_cert_chain(os.path.join(e.state, "tls", "node.crt"), os.path.join(e.state, "tls", "node.key"))
    with socket.create_connection(("127.0.0.1", b.port), 5) as plain, context.wrap_socket(plain) as held:
        held.settimeout(10)
        begin = time.monotonic()
        cluster.ctl("cluster", "remove", "e", node=a)
        try:
            ended = held.recv(1) == b""
        except (ssl.SSLError, OSError) as error:
            ended = "timed out" not in str(error)
        took = time.monotonic() - begin
    claims.claim(ended and took < 3, f"a removed node's connection is cut at once: {ended}, {took:.1f} s")
    cluster.wait_for(lambda: sum(one(node, "coppelius_peer_connections_cut_total") for node in (a, b)) >= 1, 10,
                     "the cut to be counted")
    claims.claim(b.says("trust.cut connections="), "the log says so")
    # Its connections may be cut before it has heard of the removal; then it is refused, says so, and waits on.
    cluster.wait_for(lambda: not e.alive() or "standing.refused" in e.log_text(), 40, "the removed daemon to end, or to be refused")
    if e.alive():
        claims.claim("no member of the cluster, or was removed" in e.log_text(), "it says why it is out")
        e.kill()
    else:
        claims.claim(e.process.wait() != 0 and "was removed from the cluster" in e.log_text(), "it says why it ends")
    e.process = None
    says(subprocess.run([program("coppeliusctl"), "--endpoint", b.endpoint, "--identity", os.path.join(e.state, "tls"),
                         "nodes"], capture_output=True, text=True), 5, "no member of the cluster, or was removed",
         what="its certificate is of no use")
    shutil.move(os.path.join(e.state, "tls"), os.path.join(e.folder, "tls"))
    shutil.rmtree(e.state)
    os.makedirs(e.state)
    shutil.move(os.path.join(e.folder, "tls"), os.path.join(e.state, "tls"))
    e.start()  # another identity, the old certificate
    time.sleep(3)
    claims.claim(cluster.member("e", node=b) is None or cluster.member("e", node=b)["state"] != "alive",
                 "nor with another identity")
    e.kill()
    cluster.nodes.remove(e)
    cluster.wait_for(lambda: (cluster.member("d", node=b) or {}).get("state") == "alive", 20, "the others to go on")


def insecure():
    """Plain text between machines is possible when it is meant, and everything says so."""
    with Cluster(nodes=1, start=False) as cluster:
        node = cluster.nodes[0]
        text = open(node.config).read().replace(f"listen: 127.0.0.1:{node.port}", f"listen: 0.0.0.0:{node.port}", 1)
        with open(node.config, "w") as f:
            f.write(text)
        run = subprocess.run([program("coppeliusd"), "--check-config", "--config", node.config], capture_output=True, text=True)
        says(run, 2, "tls: off, and not all addresses are loopback", "insecure: yes", what="plain text must be meant")
        with open(node.config, "a") as f:
            f.write("insecure: yes\n")
        for _ in range(2):
            cluster.start()
            node.terminate()
        claims.claim(node.log_text().count("tls: off and insecure: yes: whoever reaches") == 2, "every start says so")
        cluster.start()
        def verbose():
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{node.http}/readyz?verbose").read().decode()
            except urllib.error.HTTPError:
                return None  # not ready yet
        ready = cluster.wait_for(verbose, 20, "the node to be ready")
        claims.claim("[+]tls ok: off: insecure: yes; whoever reaches this node may join and command it" in ready,
                     f"/readyz?verbose says so: {ready}")
        doctor = cluster.ctl("doctor", check=False).stdout
        claims.claim(re.search(r"warning +tls +off: insecure: yes", doctor) is not None, f"doctor says so: {doctor}")
        claims.claim(one(node, "coppelius_tls_insecure") == 1, "a metric says so")
        claims.claim("; tls is off" in cluster.ctl("cluster", "status").stdout, "status says so")


def main():
    with Cluster(nodes=3, secure=True, start=False) as cluster:
        # Two lead already when the third of the first nodes comes: its place is its own all the same.
        a, b, c = cluster.nodes
        a.start()
        c.start()
        cluster.wait_leader()
        b.start()
        cluster.wait_alive()
        claims.claim(cluster.member("b")["node"] == 2, f"a late one has its own place: {cluster.member('b')}")
        again = cluster.offline("cluster", "init", "--authority", cluster.authority, "--output",
                                os.path.join(cluster.folder, "again"), check=False)
        says(again, 1, "is in", "already; it was left as it is", what="an authority is not made twice")
        trains(cluster)
        people(cluster)
        strangers(cluster)
        false_peers(cluster)
        renewal(cluster)
        tokens(cluster)
        removal(cluster)
        for node in cluster.nodes:
            status, _ = node.terminate()
            claims.claim(status == 0, f"node {node.name} stops cleanly: {status}")
    insecure()
    claims.end()


main()
