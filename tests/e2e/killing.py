"""What the killing tests share: their job, and the independent readers."""
import os
import subprocess
import sys

from cluster import ROOT

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
checkpoint: {{every: {every}}}
"""


def write_job(folder, steps, every):
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as f:
        f.write(JOB.format(data=os.path.join(ROOT, "deploy/examples/hflights/hflights.csv"), steps=steps, every=every))
    return path


def start_readers(cluster):
    return [subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "reader.py"), node.state],
                             stdout=subprocess.PIPE, text=True) for node in cluster.nodes]


def stop_readers(claims, readers):
    for reader in readers:
        reader.terminate()
        text = reader.communicate()[0]
        print(f"reader: {text.strip()}", flush=True)
        claims.claim(reader.returncode == 0 and "looks" in text, f"the reader saw no torn checkpoint: {text}")
