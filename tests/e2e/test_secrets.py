"""How the programs are linked, and where secrets are: in files of mode 0600 only, refused otherwise; not in logs, argv,
the environment that children see, documents, metrics or core dumps."""
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request

from cluster import Claims, Cluster, program

claims = Claims()


def read(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=True).stdout


def linked(path):
    """Position independent, all relocations read-only before main, no executable stack, stack protector, fortified calls."""
    name = os.path.basename(path)
    header, segments, dynamic, symbols = read("-h", path), read("-l", path), read("-d", path), read("--dyn-syms", path)
    if "__asan_init" in symbols or "__tsan_init" in symbols or "__stack_chk_fail" not in symbols and "Debug" in path:
        print(f"{name}: a sanitizer's build is not hardened")
        return
    claims.claim("DYN (" in header and re.search(r"FLAGS_1.*PIE", dynamic), f"{name} is position independent")
    claims.claim("GNU_RELRO" in segments, f"{name}: RELRO")
    claims.claim(re.search(r"BIND_NOW|FLAGS_1.*NOW", dynamic), f"{name}: all symbols are bound at the start (full RELRO)")
    stack = re.search(r"GNU_STACK.*", segments).group()
    claims.claim(re.search(r"\bRW\b", stack) and "RWE" not in stack, f"{name}: the stack is not executable: {stack}")
    claims.claim(not re.search(r"LOAD.*RWE", segments), f"{name}: nothing is writable and executable")
    claims.claim("__stack_chk_fail" in symbols, f"{name}: stack protector")
    fortified = set(re.findall(r"\b(__\w+_chk)\b", symbols)) - {"__stack_chk"}
    claims.claim(len(fortified) >= 3, f"{name}: fortified calls: {sorted(fortified)}")
    claims.claim("RPATH" not in dynamic and "RUNPATH" not in dynamic, f"{name} looks for libraries where the system does only")
    claims.claim("TEXTREL" not in dynamic, f"{name}: no relocation in code")


def refused(cluster, node, path, mode, text):
    """The daemon does not start with a secret that others may read."""
    os.chmod(path, mode)
    run = subprocess.run([program("coppeliusd"), "--config", node.config], capture_output=True, text=True, timeout=30,
                         stdin=subprocess.DEVNULL)
    claims.claim(run.returncode == 2 and text in run.stderr and "chmod 600" in run.stderr,
                 f"{os.path.basename(path)} of mode {mode:o}: exit {run.returncode}: {run.stderr.strip()[-300:]}")
    os.chmod(path, 0o600)


def http_beyond_loopback(node):
    """An HTTP address that others can reach is no config without a token; with one it guards all that tells something."""
    with open(node.config) as f:
        text = f.read()
    bare = "".join(line for line in text.splitlines(True) if "token_file" not in line)
    own, path = f"  listen: 127.0.0.1:{node.http}", os.path.join(node.folder, "other.yaml")
    for listen, token, status in (("0.0.0.0", False, 2), ("192.0.2.1", False, 2), ("0.0.0.0", True, 0), ("127.0.0.1", False, 0)):
        with open(path, "w") as f:
            f.write((text if token else bare).replace(own, f"  listen: {listen}:{node.http}"))
        run = subprocess.run([program("coppeliusd"), "--check-config", "--config", path], capture_output=True, text=True, timeout=30)
        claims.claim(run.returncode == status and (status == 0 or "so http.token_file must name a file with a token" in run.stderr),
                     f"HTTP on {listen} {'with' if token else 'without'} a token: exit {run.returncode}: {run.stderr}")


def http_with_token(node):
    def get(path, token=None):
        request = urllib.request.Request(f"http://127.0.0.1:{node.http}{path}", headers={"Authorization": token} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code

    for path in ("/metrics", "/api/v1/status", "/api/v1/targets", "/readyz?verbose"):
        for token in (None, "Bearer ", "Bearer " + node.token[:-1], "Bearer " + node.token + "x", "Basic " + node.token, node.token):
            claims.claim(get(path, token) == 401, f"{path} by '{token}': {get(path, token)}")
        claims.claim(get(path, "Bearer " + node.token) in (200, 503), f"{path} by the token: {get(path, 'Bearer ' + node.token)}")
    for path in ("/healthz", "/livez", "/readyz", "/"):  # yes or no, and a page that is the same everywhere
        claims.claim(get(path) in (200, 503), f"{path} is for everybody: {get(path)}")


def files_with_secrets(folder):
    for parent, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(parent, name)
            try:
                with open(path, "rb") as f:
                    data = f.read(1 << 20)
            except OSError:
                continue
            if b"PRIVATE KEY" in data:
                yield path


def main():
    for name in ("coppeliusd", "coppeliusctl"):
        if shutil.which("readelf"):
            linked(program(name))
    with Cluster(nodes=2, secure=True, start=False) as cluster:
        a, b = cluster.nodes
        for node in cluster.nodes:
            node.token = "0123456789abcdef-the-secret-of-" + node.name
            node.write_config()
        for mode in (0o640, 0o604, 0o660):
            refused(cluster, b, os.path.join(b.folder, "token"), mode, "may be read or changed by others")
            refused(cluster, b, os.path.join(b.state, "tls", "node.key"), mode, "may be read or changed by others")
        http_beyond_loopback(b)
        cluster.start()
        http_with_token(a)
        join = cluster.offline("cluster", "token", "--ttl", "1h", "--uses", "1", "--authority", cluster.authority).stdout.split()
        join = next(word for word in join if word.startswith("cpl2."))
        newcomer = cluster.newcomer(a)
        newcomer.token = "0123456789abcdef-the-secret-of-c"
        newcomer.write_config()
        newcomer.environment["COPPELIUSD_TOKEN"] = join
        newcomer.start()
        cluster.wait_alive(60)
        cluster.ctl("doctor", node=a, check=False)
        secrets = {"the token to join": join.rsplit(".", 1)[1]}
        for node in cluster.nodes:
            secrets[f"the HTTP token of {node.name}"] = node.token
        for path in files_with_secrets(cluster.folder):
            mode = os.stat(path).st_mode & 0o777
            claims.claim(mode == 0o600, f"{os.path.relpath(path, cluster.folder)} has mode {mode:o}")
            with open(path) as f:
                secrets[path] = f.read().splitlines()[1]
        claims.claim(len(secrets) >= 4 + 3 + 1, f"keys of three nodes and the authority were found: {len(secrets)}")
        seen = {}
        for node in cluster.nodes:
            process = f"/proc/{node.process.pid}"
            with open(f"{process}/coredump_filter") as f:
                claims.claim(int(f.read(), 16) == 0x10, f"{node.name}: a core dump has no memory")
            with open(f"{process}/cmdline") as f:
                seen[f"{node.name}'s argv"] = f.read()
            if node is newcomer:
                with open(f"{process}/environ") as f:
                    seen[f"{node.name}'s environment"] = f.read()
            seen[f"{node.name}'s log"] = node.log_text()
            seen[f"{node.name}'s metrics"] = node.metrics()
            for ask in (["doctor"], ["cluster", "status"], ["nodes"]):
                seen[f"{node.name}'s {' '.join(ask)}"] = cluster.ctl(*ask, "--json", node=node, check=False).stdout
        for place, text in seen.items():
            found = [what for what, secret in secrets.items() if secret in text]
            claims.claim(not found, f"{place} has {found}")
        stored = open(os.path.join(cluster.authority, "tokens")).read()
        claims.claim(secrets["the token to join"] not in stored, "the authority keeps a token's hash only")
    claims.end()


main()
