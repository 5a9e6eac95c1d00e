#!/usr/bin/env python3
"""Training steps on the GPU against the same work in PyTorch (binary32), in one run.

    bench_gpu.py PATH/TO/bench_session [dense | sparse]

Needs PyTorch with CUDA. A step: z = X w + b, r = z - y, g = X^T r / n (+ l2 w), momentum, update. PyTorch's is timed
eagerly and replayed from a CUDA graph, median of repeated runs; ours is the session's local step. Ratio: PyTorch's
better time over ours (above 1: we are faster, and ours accumulates in binary64 and keeps its bits)."""
import re, subprocess, sys, time
import torch

SHAPES = [  # rows, columns, density, steps
    (1048576, 1024, 1.0, 40), (515345, 90, 1.0, 1000), (10000, 64, 1.0, 4000),
    (1048576, 1024, 0.01, 200), (1048576, 8192, 0.01, 60)]


def median(values):
    return sorted(values)[len(values) // 2]


def timed(body, repeats):
    for _ in range(3):
        body()
    out = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            body()
        torch.cuda.synchronize()
        out.append((time.perf_counter() - begin) / repeats)
    return median(out) * 1e6


def torch_step(rows, columns, density):
    y = torch.randn(rows, device="cuda")
    w, a = torch.zeros(columns, device="cuda"), torch.zeros(columns, device="cuda")
    if density < 1:
        per_row = int(columns * density)
        column = torch.randint(0, columns, (rows, per_row), device="cuda").sort(1).values.flatten().int()
        start = (torch.arange(rows + 1, device="cuda") * per_row).int()
        x = torch.sparse_csr_tensor(start, column, torch.rand(rows * per_row, device="cuda"), (rows, columns))
        row = torch.arange(rows, device="cuda").repeat_interleave(per_row)
        order = column.long().argsort(stable=True)  # the transpose, made once, as its own CSR
        counts = torch.bincount(column.long(), minlength=columns)
        begin = torch.cat([torch.zeros(1, dtype=torch.long, device="cuda"), counts.cumsum(0)]).int()
        xt = torch.sparse_csr_tensor(begin, row[order].int(), x.values()[order], (columns, rows))
    else:
        x = torch.rand(rows, columns, device="cuda") - 0.5
        xt = x.t()

    def step():
        r = torch.mv(x, w) - y
        loss = r.dot(r)
        g = torch.mv(xt, r) / rows + 1e-3 * w
        a.mul_(0.9).add_(g)
        w.sub_(a, alpha=1e-4)
        return loss

    return step


def main():
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    big = torch.empty(1 << 30, device="cuda")
    other = torch.empty_like(big)
    copy_us = timed(lambda: other.copy_(big), 5)
    print(f"copy of 4 GiB: {2 * big.nbytes / copy_us * 1e-6:.2f} TB/s read and written")
    del big, other
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    for rows, columns, density, steps in SHAPES:
        if only and only != ("dense" if density >= 1 else "sparse"):
            continue
        step = torch_step(rows, columns, density)
        eager = timed(step, max(3, steps // 8))
        try:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            replay = timed(graph.replay, max(3, steps // 8))
        except RuntimeError:
            replay = float("inf")
        del step
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        said = subprocess.run([sys.argv[1], "auto", str(rows), str(columns), str(density), str(steps)],
                              capture_output=True, text=True)
        if said.returncode != 0:
            print(said.stderr.strip())
            continue
        ours = float(re.search(r"step ([0-9.]+) us", said.stdout)[1])
        entries = int(re.search(r"\((\d+) entries\)", said.stdout)[1])
        load = re.search(r"load ([0-9.]+) s", said.stdout)[1]
        size = entries * (4 if density >= 1 else 16)  # sparse: 8 bytes an entry in each of two forms
        print(f"{rows} x {columns} density {density}: ours {ours:.2f} us ({size / ours * 1e-6:.2f} TB/s of the matrix), "
              f"PyTorch eager {eager:.2f} us, graph {replay:.2f} us, ratio {min(eager, replay) / ours:.2f}; load {load} s", flush=True)


if __name__ == "__main__":
    main()
