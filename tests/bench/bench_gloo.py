#!/usr/bin/env python3
"""Gloo's all-reduce between processes of this machine, as bench_exchange measures the exchange.

    bench_gloo.py [--processes N] [--seconds T] [--port P] [SIZE ...]

Needs PyTorch with Gloo (Debian: python3-torch). An all-reduce sums SIZE bytes of binary64 and gives
every process the sums in binary64; the exchange answers in binary32. Same columns.
"""

import argparse
import os
import resource
import sys
import time


def size_of(text):
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def name_of(size):
    return "%6d MiB" % (size >> 20) if size % (1 << 20) == 0 else "%6.0f KiB" % (size / 1024)


def processor_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run(rank, options):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(options.port)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", rank=rank, world_size=options.processes)
    for size in options.sizes:
        values = torch.zeros(size // 8, dtype=torch.float64)
        word = torch.zeros(1, dtype=torch.float64)
        dist.all_reduce(values)
        times = []
        start_s = processor_s()
        start = time.monotonic()
        stop = False
        while not stop:
            begin = time.monotonic()
            dist.all_reduce(values)
            times.append(time.monotonic() - begin)
            word[0] = float(rank == 0 and len(times) >= 5 and time.monotonic() - start > options.seconds)
            dist.all_reduce(word)  # All stop together.
            stop = word[0] > 0
        spent_s = processor_s() - start_s
        times.sort()
        median = times[len(times) // 2]
        if rank == 0:
            print(
                "%s  %9.3f ms median  %9.3f ms best  %6.2f GB/s  %5.2f CPU s/GB  %d steps"
                % (name_of(size), median * 1e3, times[0] * 1e3, size / median / 1e9,
                   spent_s / (len(times) * size / 1e9), len(times)),
                flush=True,
            )
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--port", type=int, default=17690)
    parser.add_argument("sizes", nargs="*", type=size_of)
    options = parser.parse_args()
    options.sizes = options.sizes or [size_of(s) for s in ("64K", "256K", "1M", "4M", "16M", "64M")]
    print("gloo: %d processes" % options.processes, flush=True)
    children = []
    for rank in range(options.processes):
        child = os.fork()
        if child == 0:
            run(rank, options)
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
