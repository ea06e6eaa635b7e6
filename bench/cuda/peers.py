#!/usr/bin/env python3
"""peers.py [REPS]: what PyTorch takes for the work of bench_cuda, on the same GPU.
One JSON record a case. Status 77 where PyTorch finds no GPU."""
import json
import statistics
import sys

import torch

REPS = int(sys.argv[1]) if len(sys.argv) > 1 else 31


def measure(run):
    times = []
    for i in range(3 + REPS):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        run()
        b.record()
        b.synchronize()
        if i >= 3:
            times.append(a.elapsed_time(b))
    return statistics.median(times)


def record(kernel, n, k, run):
    print(
        json.dumps(
            {
                "kernel": kernel,
                "data": "gauss",
                "n": n,
                "k": k,
                "median_ms": round(measure(run), 5),
                "reps": REPS,
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
            }
        ),
        flush=True,
    )


def main():
    if not torch.cuda.is_available():
        print("skipped: PyTorch finds no GPU", file=sys.stderr)
        return 77
    n = 133_500_000
    x = torch.randn(n, device="cuda")
    for k in (n // 1000, n // 100, n // 10):

        def topk():
            index = torch.topk(x.abs(), k, sorted=False).indices.sort().values
            return index, x[index]

        record("peer: torch.topk, sorted by index", n, k, topk)
        record("peer: torch.topk alone", n, k, lambda: torch.topk(x.abs(), k, sorted=False))
        least = float(torch.topk(x.abs(), k, sorted=False).values.min())

        def threshold(least=least):
            index = (x.abs() >= least).nonzero().squeeze(1)
            return index, x[index]

        record("peer: torch threshold + nonzero + gather", n, k, threshold)
    x = None  # its memory is free for the next
    n = 124_000_000
    k = n // 100
    g, r = torch.randn(n, device="cuda"), torch.zeros(n, device="cuda")

    def step():
        r.add_(g)
        index = torch.topk(r.abs(), k, sorted=False).indices.sort().values
        values = r[index]
        r.index_fill_(0, index, 0)
        return values

    record("peer: torch add + topk + zeroing", n, k, step)

    def threshold_step():  # 2.6: 0.93 % of a normal distribution, from a residual of zeros
        r.zero_().add_(g)
        index = (r.abs() >= 2.6).nonzero().squeeze(1)
        values = r[index]
        r.index_fill_(0, index, 0)
        return values

    record("peer: torch zero + add + threshold + nonzero + zeroing", n, k, threshold_step)
    index = torch.topk(g.abs(), k, sorted=False).indices.sort().values
    values = g[index]
    record("peer: torch zero + index_put", n, k, lambda: r.zero_().index_put_((index,), values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
