"""What the killing tests share: their job, and the independent readers."""
import json
import os
import subprocess

from cluster import BIN, ROOT, skip

JOB = """name: kill
data:
  path: {data}
  format: csv
  header: yes
  target: ArrDelay
  test: 0.2
  standardize: yes
model: {{l2: 0.1}}
optimizer: {{rate: 0.05, batch: 4096, steps: {steps}}}
checkpoint: {{every: {every}, replicas: {replicas}}}
"""


def write_job(folder, steps, every, more="", name="job", replicas=1):
    path = os.path.join(folder, f"{name}.yaml")
    with open(path, "w") as f:
        f.write(more + JOB.format(data=os.path.join(ROOT, "deploy/examples/hflights/hflights.csv"), steps=steps, every=every,
                                  replicas=replicas))
    return path


def start_readers(cluster, *options):
    reader = os.path.join(BIN, "tests", "e2e", "reader")
    if not os.path.exists(reader):
        skip(f"{reader} is not built")
    return [subprocess.Popen([reader, *options, node.state], stdout=subprocess.PIPE, text=True) for node in cluster.nodes]


def stop_readers(claims, readers):
    """Each saw nothing wrong, and looked a thousand times a second of the time that it had a processor."""
    for reader in readers:
        reader.terminate()
        text = reader.communicate()[0].strip().splitlines()[-1]
        print(f"reader: {text}", flush=True)
        claims.claim(reader.returncode == 0, f"the reader saw no torn checkpoint: {text}")
        if reader.returncode == 0:
            seen = json.loads(text)
            claims.claim(seen["epochs"] > 0, f"the reader saw published epochs: {text}")
            claims.claim(seen["looks"] >= 1000 * (seen["seconds"] - seen["starved_s"]),
                         f"the reader looks a thousand times a second: {text}")
