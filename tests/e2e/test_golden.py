"""Every case of golden.json gives its bits through the daemons: 1 to 4 nodes, dense and sparse storage,
1, 2 and 4 threads."""
import os
import tempfile

from cluster import Claims, Cluster, golden_cases, golden_job, same_as_golden

cases, base = golden_cases()
claims = Claims()
for nodes in (1, 2, 3, 4):
    for threads in (1, 2, 4):
        with Cluster(nodes=nodes, threads=threads) as cluster, tempfile.TemporaryDirectory() as folder:
            for case in cases:
                if nodes > case["features"] + 1:
                    continue
                for storage in ("dense", "sparse"):
                    path = os.path.join(folder, "job.yaml")
                    with open(path, "w") as f:
                        f.write(golden_job(case, base, storage))
                    job = cluster.wait_job(cluster.submit(path), seconds=180)
                    what = f"{case['name']}: {nodes} nodes, {storage}, {threads} threads"
                    wrong = same_as_golden(case, job)
                    claims.claim(not wrong, f"{what}: {'; '.join(wrong)}")
                    claims.claim(job["nodes"] == nodes, f"{what}: took part: {job['nodes']}")
                    # Same bits would not tell that sparse data were made dense on the way.
                    kept = storage if "--standardize" not in case["arguments"] else "dense"
                    claims.claim(job["dataset"]["storage"] == kept, f"{what}: stored {job['dataset']['storage']}")
                    print(f"{what}: {'same bits' if not wrong else 'DIFFERS'}", flush=True)
claims.end()
