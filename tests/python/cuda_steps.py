"""Time of a step of a model as large as GPT-2 small, on a GPU that ranks share; see cuda_ddp.py."""

from __future__ import annotations

import gc
import statistics
import time

import torch
import torch.distributed as dist
from gpu_jobs import gpt2, say
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

import rill.torch

WORDS = 50257


def say_once(**record):
    if MPI.COMM_WORLD.Get_rank() == 0:
        say(**record)


def alone(_state, bucket):
    """A hook that exchanges nothing."""
    future = torch.futures.Future(devices=[bucket.buffer().device])
    future.set_result(bucket.buffer())
    return future


METHODS = ("none", "topk", "oktopk", "spardl", "none", "gloo", "topk+qsgd4")
SECONDS = 8  # of a method, but for its first two steps: dense ones, and buckets laid out anew


def steps(comm, mpi, clock, methods=METHODS, most=40):
    noise = torch.Generator().manual_seed(comm.rank)
    tokens = torch.randint(0, WORDS, (4, 257), generator=noise).cuda()
    good, base = True, None
    # Without an exchange twice: the second shows how much times vary here.
    for method in methods:
        if clock.left() < 10:
            say_once(part="steps", skipped=f"{method}: no time")
            continue
        model = gpt2(WORDS)  # a new one: hooks of a DDP stay with its parameters
        count = sum(p.numel() for p in model.parameters())
        torch.cuda.reset_peak_memory_stats()
        wrapper = DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=True)
        state = None
        if method == "none":
            wrapper.register_comm_hook(None, alone)
        elif method != "gloo":
            state = rill.torch.State(method, density=0.01, module=model, comm=comm)
            wrapper.register_comm_hook(state, rill.torch.hook)
        optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.01)
        times, losses, begun = [], [], time.monotonic()
        while len(times) < most + 4:
            mpi.Barrier()
            began = time.perf_counter()
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = wrapper(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
            losses.append(float(loss.detach()))
            if len(times) == 2:
                begun = time.monotonic()
            if mpi.bcast(time.monotonic() - begun) > SECONDS and len(times) > 3:
                break
        first = 4 if len(times) > 8 else 2
        median = mpi.allreduce(statistics.median(times[first:]), op=MPI.MAX)
        base = median if base is None and method == "none" else base
        record = {
            "method": method, "parameters": count, "step_ms": round(1e3 * median, 2),
            "added_ms": round(1e3 * (median - base), 2) if base is not None else None,
            "steps": len(times) - first, "loss": [round(x, 3) for x in (losses[0], losses[-1])],
            "device_peak_gb": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        }  # fmt: skip
        if state is not None:
            state.wait()
            stats = state.stats
            groups = [g for _, g in state._all_groups()]
            record["on_device"] = all(g.device is not None for g in groups)
            record["sent_mb"] = round(sum(s.sent_bytes for s in stats) / 2**20, 2)
            record["select_ms"] = round(1e3 * sum(s.select_s for s in stats), 2)
            record["exchange_ms"] = round(1e3 * sum(s.elapsed_s for s in stats), 2)
            good &= record["on_device"]
            for group in groups:
                group.reducer.free()
        say_once(part="steps", ranks=comm.size, **record)
        del wrapper, state, optimizer, model, loss
        gc.collect()
        torch.cuda.empty_cache()
        dist.barrier()
    return good
