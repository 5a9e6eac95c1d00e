"""Who may do what through the admin socket, by what the kernel says of who dials: root and the group may change, others are
refused, or may look where the config says so. Needs root, to be somebody else."""
import os
import stat
import subprocess

from cluster import Claims, Cluster, program, skip

claims = Claims()
OTHER, GROUP = 65534, "daemon"


def ctl(node, groups, *arguments):
    return subprocess.run([program("coppeliusctl"), "--endpoint", f"unix:{node.socket}", *arguments], capture_output=True, text=True,
                          timeout=30, user=OTHER, group=OTHER, extra_groups=groups, cwd="/")


def says(run, status, text, what):
    claims.claim(run.returncode == status and text in run.stdout + run.stderr,
                 f"{what}: exit {run.returncode}: {(run.stdout + run.stderr).strip()[-300:]}")


def main():
    if os.geteuid() != 0:
        skip("only root can be somebody else")
    import grp
    try:
        member = [grp.getgrnam(GROUP).gr_gid]
    except KeyError:
        skip(f"there is no group {GROUP}")
    if subprocess.run([program("coppeliusctl"), "version"], capture_output=True, user=OTHER, group=OTHER, extra_groups=[], cwd="/").returncode:
        skip("others may not run the build's coppeliusctl here")
    with Cluster(nodes=2, start=False) as cluster:
        a, b = cluster.nodes  # b lets others look
        os.chmod(cluster.folder, 0o755)
        for node in cluster.nodes:
            node.config_lines.append(f"group: {GROUP}")
        b.config_lines.append("socket_others: look")
        for node in cluster.nodes:
            node.write_config()
        cluster.start()
        cluster.wait_alive()
        for node, mode in ((a, 0o660), (b, 0o666)):
            found = stat.S_IMODE(os.stat(node.socket).st_mode)
            claims.claim(found == mode, f"node {node.name}'s socket has mode {found:o}")
        cancel = ("job", "cancel", "no-such")
        for node in cluster.nodes:
            says(cluster.ctl(*cancel, node=node, check=False), 4, "there is no job", f"{node.name}: root may change")
            says(ctl(node, member, *cancel), 4, "there is no job", f"{node.name}: the group may change")
            says(ctl(node, member, "nodes"), 0, "a", f"{node.name}: the group may look")
        says(ctl(a, [], "nodes"), 5, "", "a: others are refused")
        says(ctl(a, [], *cancel), 5, "", "a: others may not change")
        says(ctl(b, [], "nodes"), 0, "b", "b: others may look")
        for verb in (cancel, ("job", "pause", "no-such"), ("node", "drain", "a"), ("checkpoint", "prune", "1"),
                     ("cluster", "remove", "a")):
            run = ctl(b, [], *verb)
            claims.claim(run.returncode == 5, f"b: others may not {' '.join(verb)}: exit {run.returncode}: {run.stderr.strip()[-300:]}")
        # What the mode of the file does not keep out, the credentials do.
        os.chmod(a.socket, 0o666)
        says(ctl(a, [], "nodes"), 5, "you may not command this daemon", "a: refused with a sentence")
    claims.end()


main()
