"""Real data, real optima: each public set, read with its job's keys by real daemons, trains to the objective of the exact
ridge optimum (within 1e-6 of it), and `predict --metrics` gives that optimum's test RMSE and R^2 (within 1e-5), where both
were computed without us. The five examples that ship are among them."""
import json
import os
import sys

from cluster import Claims, Cluster, SHARED, skip
from sets import SETS

OBJECTIVE = 1e-6
METRICS = 1e-5

claims = Claims()
only = sys.argv[1:]
sets = [s for s in SETS if not only or s.name in only]
for missing in [s for s in sets if not s.there()]:
    print(f"skipped: {missing.name}: shared/data/{missing.file} is not there", flush=True)
sets = [s for s in sets if s.there()]
if not sets:
    skip("shared/data is not there")


def off(ours, exact):
    return abs(ours - exact) / abs(exact)


def submit(cluster, item):
    path = os.path.join(cluster.folder, f"{item.name}.yaml")
    with open(path, "w") as f:
        f.write(item.job_text())
    return cluster.submit(path, "--set", f"data.path={item.path}", "--set", f"name={item.name}")


def check(cluster, item, job):
    end = cluster.wait_job(job, ("succeeded", "failed", "cancelled"), seconds=300)
    if not claims.claim(end["state"] == "succeeded", f"{item.name}: {end['state']}: {end['reason']}"):
        return
    exact, rows = item.reference()
    objective = exact["objective"] * item.scale ** 2
    claims.claim(end["dataset"]["rows"] == rows, f"{item.name}: {end['dataset']['rows']} training rows, not {rows}")
    claims.claim(off(end["objective"], objective) <= OBJECTIVE,
                 f"{item.name}: objective {end['objective']!r}, the optimum is {objective!r}: off by {off(end['objective'], objective):.2g}")
    folder = os.path.join(cluster.folder, f"{item.name}-checkpoint")
    cluster.ctl("checkpoint", "fetch", "0", "--job", str(job), "--output", folder, "-q")
    output = os.path.join(cluster.folder, f"{item.name}.txt")
    path = os.path.join(SHARED, "data", item.also) if item.also else item.path
    done = cluster.ctl("predict", "--checkpoint", folder, "--data", path, *item.flags(), "--rows", "all" if item.also else "test",
                       "--metrics", "--output", output, "--json", check=False, timeout=120)
    if not claims.claim(done.returncode == 0, f"{item.name}: predict: exit {done.returncode}: {done.stderr}"):
        return
    found = json.loads(done.stdout)
    test = exact["test"]
    with open(output) as f:
        predictions = [float(line) for line in f]
    claims.claim(len(predictions) == found["rows"], f"{item.name}: a prediction a row")
    claims.claim(off(found["rmse"], test["rmse"] * item.scale) <= METRICS,
                 f"{item.name}: test RMSE {found['rmse']!r}, the optimum's is {test['rmse'] * item.scale!r}")
    if test["r2"] is None:  # All test rows have one target: there is no R^2.
        claims.claim(found["r2"] is None, f"{item.name}: test R^2 {found['r2']!r} of targets that are all equal")
    else:  # R^2 far below 0 is a small number's quotient: there the rest that it leaves is compared.
        claims.claim(abs(found["r2"] - test["r2"]) <= METRICS * max(1, 1 - test["r2"]),
                     f"{item.name}: test R^2 {found['r2']!r}, the optimum's is {test['r2']!r}")
    claims.claim(off(found["mae"], test["mae"] * item.scale) <= METRICS,
                 f"{item.name}: test MAE {found['mae']!r}, the optimum's is {test['mae'] * item.scale!r}")
    print(f"{item.name}: objective off by {off(end['objective'], objective):.1e}, RMSE by "
          f"{off(found['rmse'], test['rmse'] * item.scale):.1e}"
          + (f", R^2 by {abs(found['r2'] - test['r2']):.1e}" if found["r2"] is not None else ""), flush=True)


with Cluster(nodes=2) as cluster:
    jobs = [(item, submit(cluster, item)) for item in sets]
    for item, job in jobs:
        check(cluster, item, job)
claims.end()
