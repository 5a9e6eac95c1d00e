#!/usr/bin/env python3
"""bench_model.py PARITY_MODEL FOLDER: the language model's images beside PyTorch on the same GPU, in one run.

Prints a table: image, our time, PyTorch's, the ratio (above 1: ours is faster); copies beside the copy
bandwidth. Ours come from `parity_model FOLDER time`, events around 20 launches; PyTorch's are timed alike.
"""
import subprocess
import sys

import cupy
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

LENGTH, WIDTH, HEADS, HEAD, FEED, VOCABULARY = 1024, 512, 8, 64, 1408, 12288


def times(run, runs=20):
    """Microseconds of run(), the median of five rounds of `runs`."""
    for _ in range(3):
        run()
    rounds = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(runs):
            run()
        end.record()
        torch.cuda.synchronize()
        rounds.append(begin.elapsed_time(end) * 1e3 / runs)
    return sorted(rounds)[2]


def attention(sequences):
    """The best of PyTorch's backends: (forward, forward and backward)."""
    shape = (sequences, HEADS, LENGTH, HEAD)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    best = {}
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            def forward():
                with torch.no_grad():
                    F.scaled_dot_product_attention(q, k, v, is_causal=True)

            def both():
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                torch.autograd.grad(out, (q, k, v), dout)

            one, two = times(forward), times(both)
            print(f"  {backend.name}: forward {one:.1f} us, forward + backward {two:.1f} us", flush=True)
            best["forward"] = min(best.get("forward", one), one)
            best["both"] = min(best.get("both", two), two)
    return best["forward"], best["both"]


ATOMICS = cupy.RawKernel(
    r"""
extern "C" __global__ void scatter(float4 *table, const int *tokens, const float4 *x, int quads)
{
    for (int j = threadIdx.x; j < quads; j += blockDim.x) {
        float4 v = x[(long long)blockIdx.x * quads + j];
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                     :: "l"(&table[(long long)tokens[blockIdx.x] * quads + j]), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                     : "memory");
    }
}
""",
    "scatter",
)


def scatter_atomics(table, tokens, x):
    """The peer of embedding-scatter: a block a row, 16-byte atomic additions (sm_90)."""
    ATOMICS((x.shape[0],), (128,), (table.data_ptr(), tokens.data_ptr(), x.data_ptr(), x.shape[1] // 4))


def peers(sequences):
    """PyTorch's time for what an image does, in microseconds; a number is a count of bytes moved."""
    rows = sequences * LENGTH
    x = torch.randn(rows, WIDTH, device="cuda", requires_grad=True)
    weight = torch.ones(WIDTH, device="cuda", requires_grad=True)
    bias = torch.zeros(WIDTH, device="cuda", requires_grad=True)
    table = torch.zeros(VOCABULARY, WIDTH, device="cuda")
    found = {}
    with torch.no_grad():
        found["layernorm-forward"] = times(lambda: F.layer_norm(x, (WIDTH,), weight, bias))
        distinct = torch.arange(rows, device="cuda") * 5 % VOCABULARY
        zipf = (torch.pow(VOCABULARY + 1.0, torch.rand(rows, device="cuda")) - 1).long().clamp(max=VOCABULARY - 1)
        for name, tokens in (("distinct", distinct), ("zipf", zipf), ("same", torch.full_like(zipf, 7))):
            found["index_add_ " + name] = times(lambda: table.index_add_(0, tokens, x))
            narrow = tokens.int()
            found["embedding-scatter-" + name] = times(lambda: scatter_atomics(table, narrow, x))
        logits = torch.randn(rows, VOCABULARY, device="cuda")
        found["argmax"] = times(lambda: logits.argmax(1))
    del logits
    flat = [torch.randn(64 << 20, device="cuda") for _ in range(2)]
    found["copy"] = times(lambda: flat[1].copy_(flat[0]))
    parameter = torch.nn.Parameter(flat[0])
    parameter.grad = flat[1]
    adam = torch.optim.AdamW([parameter], fused=True)
    found["adamw"] = times(adam.step)
    return found


def main():
    program, folder = sys.argv[1:3]
    for sequences in [int(word) for word in sys.argv[3:]] or (16, 64):
        print(f"== {sequences} sequences", flush=True)
        forward, both = attention(sequences)
        theirs = peers(sequences)
        theirs["attention-forward"] = forward
        theirs["attention-query + key"] = both - forward
        torch.cuda.empty_cache()
        text = subprocess.run([program, folder, "time", str(sequences)], check=True, capture_output=True, text=True).stdout
        ours = {}
        for line in text.splitlines():
            words = line.split()
            if len(words) == 5 and words[4] == "GB/s":
                ours[words[0]] = (float(words[1]), float(words[3]))
        if "attention-query" in ours:
            ours["attention-query + key"] = (ours["attention-query"][0] + ours["attention-key"][0], 0.0)
        copy = 2 * 4 * (64 << 20) / theirs["copy"] / 1e3
        print(f"copy bandwidth (PyTorch): {copy:.0f} GB/s")
        for name, (time, bandwidth) in ours.items():
            beside = f"{theirs[name]:10.1f} us {theirs[name] / time:6.2f}" if name in theirs else ""
            print(f"{name:28s} {time:10.1f} us {bandwidth:6.0f} GB/s {bandwidth / copy:5.2f} of copy {beside}")
        for name, time in theirs.items():
            if name not in ours:
                print(f"{name:28s} {'':30s} PyTorch {time:10.1f} us")


if __name__ == "__main__":
    main()
