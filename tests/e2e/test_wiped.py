"""A node whose log is gone refuses to vote under its old identity; the others go on."""
import os
import shutil

from cluster import Claims, Cluster

claims = Claims()
with Cluster(nodes=3) as cluster:
    node = cluster.nodes[2]
    node.kill()
    shutil.rmtree(os.path.join(node.state, "log"))
    node.start()
    status = node.process.wait(10)
    node.process = None
    claims.claim(status == 1, f"exit status {status}")
    claims.claim("a node that forgot its votes must not vote" in node.log_text(), "the log says why")
    cluster.wait_leader()
claims.end()
