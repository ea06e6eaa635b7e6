#!/usr/bin/env python3
"""bench/cuda/gpt2.py [--ranks 4] [--methods dense,topk,oktopk,spardl,topk+qsgd4] [--steps 1000]
[--seconds 540] [--at-once 1] [--data FOLDER]: GPT-2 small trained on WikiText-2 by ranks that share
a GPU.

Each method is a job of its own under mpirun: DistributedDataParallel, AdamW at one rate for all,
`rill.torch.attach(ddp, method, density=0.01, optimizer=optimizer)`. "dense" is one process with the
batches of all ranks: what an exchange of whole gradients would give. Prints a JSON record a line:
loss of the validation set in the course of training, seconds, bytes that a rank sent.
"""

from __future__ import annotations

import argparse
import collections
import lzma
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_jobs import gpt2, leave, run_job, say

LENGTH = 256  # tokens of a row


# ---- the jobs ----


def drive(options):
    """Jobs in the order of the methods, so many at once. They take the GPU in turns, but not the
    processor: dense steps of the warm-up go there."""
    end = time.monotonic() + options.seconds
    with ThreadPoolExecutor(options.at_once) as pool:
        jobs = [
            pool.submit(train, method, seed, options, end)
            for seed in options.seeds
            for method in options.methods.split(",")
        ]
    return 0 if all(job.result() for job in jobs) else 1


def train(method, seed, options, end):
    left = end - time.monotonic()
    if left < 20:
        say(method=method, skipped="no time")
        return True
    ranks = 1 if method == "dense" else options.ranks
    passed = "steps rows lr rise beta2 masking dropout density warmup layers width heads data"
    arguments = ["--job", method, "--ranks", str(options.ranks), "--seconds", str(left - 15)]
    arguments += ["--seeds", str(seed)]
    for name in passed.split():
        arguments += [f"--{name}", str(getattr(options, name))]
    code, _ = run_job(__file__, ranks, arguments, left)
    if code != 0:
        say(method=method, status="time is over" if code is None else code)
    return code == 0


# ---- the data ----


def tokens_of(folder):
    """Words of the training and of the validation set as numbers."""
    parts = []
    for part in ("train", "valid"):
        with lzma.open(Path(folder) / f"wikitext-2.{part}.txt.xz", "rt", encoding="utf-8") as file:
            parts.append(file.read().replace("\n", " <eos> ").split())
    words = [w for w, _ in collections.Counter(parts[0]).most_common()]
    number = {w: i for i, w in enumerate(words)}
    unknown = number["<unk>"]
    return len(words), [[number.get(w, unknown) for w in part] for part in parts]


# ---- a job ----


def rate(step, options):
    """Rises for a share of the steps, then a half cosine down to a tenth."""
    rise = max(1, round(options.steps * options.rise))
    if step < rise:
        return (step + 1) / rise
    done = (step - rise) / max(1, options.steps - rise)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * done))


class Run:
    def __init__(self, method, options, mpi):
        import torch
        from torch.nn.parallel import DistributedDataParallel

        import rill.torch

        self.torch, self.mpi, self.options, self.state = torch, mpi, options, None
        words, (train, valid) = tokens_of(options.data)
        self.train, self.valid = torch.tensor(train).cuda(), torch.tensor(valid).cuda()
        self.bare = self.model = gpt2(
            words, LENGTH, options.dropout, options.layers, options.width, options.heads,
            seed=options.seed + 3,
        )  # fmt: skip
        self.shares = [mpi.Get_rank()] if mpi.Get_size() > 1 else range(options.ranks)
        torch.manual_seed(100 * options.seed + mpi.Get_rank())  # of dropout
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=options.lr, betas=(0.9, options.beta2), weight_decay=0.1,
            fused=True,
        )  # fmt: skip
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: rate(step, options)
        )
        if method != "dense":
            self.model = DistributedDataParallel(
                self.bare, device_ids=[0], gradient_as_bucket_view=True
            )
            self.state = rill.torch.attach(
                self.model, method, density=options.density, optimizer=self.optimizer,
                warmup_steps=options.warmup, masking=bool(options.masking),
            )  # fmt: skip

    def rows(self, step):
        """Those of all ranks are the same whoever takes them."""
        torch, options = self.torch, self.options
        chosen = torch.Generator().manual_seed(1_000_003 * options.seed + step)
        last = len(self.train) - LENGTH - 1
        starts = torch.randint(0, last, (options.ranks, options.rows), generator=chosen)
        own = starts[list(self.shares)].flatten().cuda()
        return self.train[own[:, None] + torch.arange(LENGTH + 1, device="cuda")]

    def loss(self, rows):
        with self.torch.autocast("cuda", dtype=self.torch.bfloat16):
            return self.model(rows[:, :-1], rows[:, 1:])

    def step(self, step):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.rows(step))
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def validate(self):
        """The mean over the whole validation set."""
        torch = self.torch
        n = (len(self.valid) - 1) // LENGTH
        x = self.valid[: n * LENGTH].view(n, LENGTH)
        y = self.valid[1 : n * LENGTH + 1].view(n, LENGTH)
        own = slice(self.mpi.Get_rank(), None, self.mpi.Get_size())
        x, y, total = x[own], y[own], 0.0
        self.bare.eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            for at in range(0, len(x), 32):
                part = slice(at, at + 32)
                total += float(self.bare(x[part], y[part])) * len(x[part])
        self.bare.train()
        return self.mpi.allreduce(total) / n

    def sent(self):
        return sum(s.sent_bytes for s in self.state.stats) if self.state else 0


def job(method, options):
    import torch
    from mpi4py import MPI

    import rill.torch

    mpi = MPI.COMM_WORLD
    torch.cuda.set_device(0)
    if mpi.Get_size() > 1:
        rill.torch.init_process_group()
    run = Run(method, options, mpi)
    begun, busy, points, bytes_sent, shown = time.monotonic(), 0.0, [], [], 0.0
    for step in range(options.steps):
        before = time.monotonic()
        loss = run.step(step)
        if step % 50 == 0 or step == options.steps - 1:
            torch.cuda.synchronize()
            busy += time.monotonic() - before
            bytes_sent.append(run.sent())
            valid = run.validate()
            points.append([step + 1, round(valid, 4), round(busy, 2), bytes_sent[-1]])
            over = mpi.bcast(time.monotonic() - begun > options.seconds)
            if mpi.Get_rank() == 0 and time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"{method}: step {step + 1}, {float(loss):.3f}, {valid:.3f}", file=sys.stderr)
            if over:
                break
        else:
            busy += time.monotonic() - before
    if mpi.Get_rank() == 0:
        say(
            bench="gpt2", method=method, ranks=options.ranks, density=options.density,
            steps=points[-1][0], asked=options.steps, rows=options.rows, length=LENGTH,
            layers=options.layers, width=options.width,
            parameters=sum(p.numel() for p in run.bare.parameters()), lr=options.lr,
            beta2=options.beta2, masking=options.masking,
            rise=options.rise, dropout=options.dropout, warmup=options.warmup, seed=options.seed,
            loss=points[-1][1], best=min(p[1] for p in points),
            seconds=round(busy, 1), points=points, device=torch.cuda.get_device_name(),
            torch=torch.__version__,
        )  # fmt: skip
    leave(mpi)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--methods", default="dense,topk,oktopk,spardl,topk+qsgd4")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=8, help="of a rank in a step")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--rise", type=float, default=0.05, help="share of steps of rising rates")
    parser.add_argument("--beta2", type=float, default=0.999, help="of AdamW")
    parser.add_argument("--masking", type=int, default=1, help="of the reducers")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--warmup", type=int, default=100, help="steps at each of four densities")
    parser.add_argument("--seeds", default="1", help="a training of each method for each")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--at-once", type=int, default=1, help="jobs that share the GPU")
    parser.add_argument("--data", default=os.environ.get("RILL_DATA", "../shared/data"))
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.seed = options.seeds[0]
    if options.job:
        return job(options.job, options)
    return drive(options)


if __name__ == "__main__":
    sys.exit(main())
