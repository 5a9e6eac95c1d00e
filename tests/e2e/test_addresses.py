"""Addresses that could not work are refused with the pair named, before anything is dialled: on machines (network namespaces)
with a bridge of their own. What a node advertises where it may choose: the address of its route to a remote peer, or what the
pod's host says."""
import os
import subprocess
import tempfile

import network
from cluster import Claims, program

network.enter()
claims = Claims()


def check(text, environment=None):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.yaml")
        with open(path, "w") as f:
            f.write(text + f"\nstate_dir: {folder}/state\nsocket: off\nhttp: {{listen: \"off\"}}\nname: a\ndevice: cpu\ninsecure: yes\n")
        return subprocess.run([program("coppeliusd"), "--config", path, "--show-config"], capture_output=True, text=True, timeout=20,
                              env=dict(os.environ, **(environment or {})))


def peers(*addresses):
    return "peers:\n" + "".join(f"  - {{name: {name}, address: \"{address}\"}}\n" for name, address in zip("abc", addresses))


def refused(what, text, *names):
    run = check(text)
    said = run.stdout + run.stderr
    claims.claim(run.returncode == 2 and all(name in said for name in names), f"{what}: exit {run.returncode}: {said.strip()[-500:]}")


def good(what, text, *names, environment=None):
    run = check(text, environment)
    said = run.stdout + run.stderr
    claims.claim(run.returncode == 0 and all(name in said for name in names), f"{what}: exit {run.returncode}: {said.strip()[-700:]}")


def main():
    network.sh("ip", "link", "add", "docker0", "type", "bridge")
    network.sh("ip", "addr", "add", "172.17.0.1/16", "dev", "docker0")
    network.sh("ip", "link", "set", "docker0", "up")
    network.sh("ip", "link", "add", "eth9", "type", "veth", "peer", "name", "eth10")
    network.sh("ip", "addr", "add", "10.70.0.2/24", "dev", "eth9")
    network.sh("ip", "link", "set", "eth9", "up")
    network.sh("ip", "link", "set", "eth10", "up")
    network.sh("ip", "route", "add", "default", "via", "10.70.0.1")
    listen = "listen: 0.0.0.0:7620\n"
    refused("a bridge's address beside another machine's", listen + peers("172.17.0.1:7620", "10.70.0.3:7620"),
            "a (172.17.0.1:7620)", "docker0", "b (10.70.0.3:7620)")
    refused("another node's on our bridge", listen + peers("10.70.0.2:7620", "172.17.0.9:7620"), "b (172.17.0.9:7620)", "docker0",
            "a (10.70.0.2:7620)")
    good("containers of one machine", listen + peers("172.17.0.1:7620", "172.17.0.2:7620", "172.17.0.3:7620"))
    good("two machines", listen + peers("10.70.0.2:7620", "10.70.0.3:7620"))
    refused("loopback among machines", listen + peers("10.70.0.2:7620", "127.0.0.1:7620"), "b (127.0.0.1:7620)", "a (10.70.0.2:7620)")
    refused("the same twice", listen + peers("10.70.0.2:7620", "10.70.0.3:7620", "10.70.0.3:7620"), "b and c", "10.70.0.3:7620")
    refused("a joiner on loopback", "listen: 127.0.0.1:7620\njoin: 10.70.0.3:7620\n", "127.0.0.1:7620", "10.70.0.3:7620", "loopback")
    refused("a joiner on a bridge", listen + "advertise: 172.17.0.1:7620\njoin: 10.70.0.3:7620\n", "172.17.0.1:7620", "docker0",
            "10.70.0.3:7620")
    refused("a joiner that asks itself", listen + "advertise: 10.70.0.2:7620\njoin: 10.70.0.2:7620\n", "own address")
    # What auto finds is what a member on loopback, or a second bridge, would be refused for: by the refusal it can be seen.
    refused("auto takes the route to the member", listen + "join: 172.17.0.1:7620\n", "172.17.0.1:7620 is this node's own address")
    refused("auto takes the route to the member", listen + "join: 10.70.0.2:7620\n", "10.70.0.2:7620 is this node's own address")
    for names in (("RUNPOD_PUBLIC_IP", "RUNPOD_TCP_PORT_7620"), ("PUBLIC_IPADDR", "VAST_TCP_PORT_7620")):
        run = check(listen + "join: 203.0.113.5:41234\n", {names[0]: "203.0.113.5", names[1]: "41234"})
        claims.claim("203.0.113.5:41234 is this node's own address" in run.stderr + run.stdout,
                     f"{names[0]}: the host's address and port are advertised: {run.stderr.strip()}")
    claims.end()


main()
