"""A cluster whose nodes live in network namespaces of their own, on one bridge, with nft between them.

    network.enter()                     # first: the program goes on in private namespaces, or is skipped
    with NetCluster(nodes=3) as cluster:
        cluster.cut([a], [b, c])        # both ways;  one_way=True: only from the first to the second
        cluster.lossy([a], 30)          # percent of the packets to and from
        cluster.heal()

Nothing of the machine's own network is touched: the namespaces, the bridge and the rules are gone with the program."""
import os
import re
import subprocess
import sys
import time

from cluster import Cluster, skip

MARK = "COPPELIUS_TEST_NAMESPACE"
TABLE = "bridge coppelius"


def sh(*words, check=True):
    run = subprocess.run(words, capture_output=True, text=True)
    if check and run.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {run.stderr.strip()}")
    return run


def enter():
    """Goes on in a network and a mount namespace of its own."""
    if os.environ.get(MARK):
        sh("mount", "-t", "tmpfs", "none", "/run")
        os.makedirs("/run/netns", exist_ok=True)
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "br0", "type", "bridge")
        sh("ip", "link", "set", "br0", "up")
        sh("ip", "addr", "add", "10.9.0.254/16", "dev", "br0")
        sh("nft", "add", "table", *TABLE.split())
        sh("nft", "add", "chain", *TABLE.split(), "forward", "{ type filter hook forward priority 0; }")
        return
    unshare = ["unshare", "--net", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        unshare.append("--map-root-user")
    trial = ("set -e; mount -t tmpfs none /run; mkdir /run/netns; ip link add br0 type bridge; ip netns add x; "
             "nft add table bridge t; nft add chain bridge t f '{ type filter hook forward priority 0; }'; "
             "nft add rule bridge t f ip saddr 10.0.0.1 numgen random mod 100 '<' 30 drop")
    try:
        run = sh(*unshare, "sh", "-c", trial, check=False)
    except FileNotFoundError as error:
        skip(f"network namespaces: {error}")
    if run.returncode != 0:
        skip(f"network namespaces with a bridge and nft are not allowed here: {run.stderr.strip().splitlines()[-1:]}")
    os.environ[MARK] = "1"
    os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])


class NetCluster(Cluster):
    made = 0

    def __init__(self, nodes=3, start=True, **more):
        secure = bool(os.environ.get("COPPELIUS_TLS"))
        super().__init__(nodes=nodes, start=False, secure=secure, **more)
        NetCluster.made += 1
        for node in self.nodes:
            number = node.index + 1
            space = f"n{NetCluster.made}-{number}"
            node.host = f"10.9.{NetCluster.made}.{number}"
            node.port, node.http = 7620, 7621
            node.space, node.token = space, "0123456789abcdef" * 4
            node.config_lines = [] if secure else ["insecure: yes"]
            node.prefix = ["nsenter", f"--net=/run/netns/{space}"]
            sh("ip", "netns", "add", space)
            sh("ip", "link", "add", f"v{NetCluster.made}-{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
            sh("ip", "link", "set", f"v{NetCluster.made}-{number}", "master", "br0", "up")
            sh("ip", "-n", space, "addr", "add", f"{node.host}/16", "dev", "eth0")
            for device in ("eth0", "lo"):
                sh("ip", "-n", space, "link", "set", device, "up")
        for node in self.nodes:
            node.write_config()
        if start:
            self.start()

    def __exit__(self, *what):
        super().__exit__(*what)
        self.heal()
        for node in self.nodes:
            sh("ip", "netns", "del", node.space, check=False)

    def rule(self, *words):
        sh("nft", "add", "rule", *TABLE.split(), "forward", *words)

    def cut(self, some, others, one_way=False):
        for a in some:
            for b in others:
                self.rule("ip", "saddr", a.host, "ip", "daddr", b.host, "drop")
                if not one_way:
                    self.rule("ip", "saddr", b.host, "ip", "daddr", a.host, "drop")

    def lossy(self, nodes, percent):
        for node in nodes:
            for side in ("saddr", "daddr"):
                self.rule("ip", side, node.host, "numgen", "random", "mod", "100", "<", str(percent), "drop")

    def heal(self):
        sh("nft", "flush", "chain", *TABLE.split(), "forward")

    def flows(self, node):
        """The established connections of a node with others: {(its port, their address, their port)}."""
        found = set()
        for line in sh("ip", "netns", "exec", node.space, "ss", "-Htn", "state", "established").stdout.splitlines():
            match = re.search(r"10\.9\.\d+\.\d+:(\d+)\s+(10\.9\.\d+\.\d+):(\d+)", line)
            if match and match[2] != "10.9.0.254":
                found.add((int(match[1]), match[2], int(match[3])))
        return found

    def silence(self, node, flows):
        """Not a packet of these connections gets through any more, either way; the others live."""
        for port, address, other in flows:
            self.rule("ip", "saddr", node.host, "tcp", "sport", str(port), "ip", "daddr", address, "tcp", "dport", str(other),
                      "drop")
            self.rule("ip", "saddr", address, "tcp", "sport", str(other), "ip", "daddr", node.host, "tcp", "dport", str(port),
                      "drop")

    def reset(self, node, flow):
        """Kills one connection, as a firewall that forgot it does. Whether the kernel allows it."""
        port, address, other = flow
        run = sh("ip", "netns", "exec", node.space, "ss", "-K", "dst", address, "dport", "=", str(other), "sport", "=",
                 str(port), check=False)
        time.sleep(0.05)
        return run.returncode == 0 and flow not in self.flows(node)
