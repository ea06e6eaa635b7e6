"""A rank of bench/python/steps: seconds per training step of a model for each method, and where
they go.

Each method starts from the same weights and sees the same batches of random data. Three kinds of
time, as in Figure 8 of Ok-Topk:
  compute        forward, backward and optimizer, from steps without any exchange (no_sync), on all
                 ranks at once
  selection      what reducers take to select and to write updates (their statistics), of the
                 slowest rank
  communication  the rest of the step: what the backward pass does not hide
A step starts at a barrier, and its time is that of the slowest rank. Steps before the timed ones:
two of the dense sums, which lets DistributedDataParallel lay out its buckets, more of the sparse
methods, whose thresholds and plans settle.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples/python")]

import torch  # noqa: E402
from mpi4py import MPI  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import rill.torch  # noqa: E402

Loss = Callable[[nn.Module], torch.Tensor]
DENSE = ("gloo", "dense")


def lstm(a: argparse.Namespace) -> tuple[nn.Module, Loss, dict[str, Any]]:
    import wikitext

    def loss(model: nn.Module) -> torch.Tensor:
        x = torch.randint(0, a.words, (a.batch, a.length + 1))
        hidden = torch.zeros(1, a.batch, a.width)
        scores, _ = model(x[:, :-1], (hidden, hidden))
        return nn.functional.cross_entropy(scores.flatten(0, 1), x[:, 1:].flatten())

    return (
        wikitext.Model(a.words, a.width, 1),
        loss,
        {"words": a.words, "width": a.width, "length": a.length},
    )


def cnn(a: argparse.Namespace) -> tuple[nn.Module, Loss, dict[str, Any]]:
    import fashion_mnist

    def loss(model: nn.Module) -> torch.Tensor:
        return nn.functional.cross_entropy(
            model(torch.randn(a.batch, 1, 28, 28)), torch.randint(0, 10, (a.batch,))
        )

    return fashion_mnist.network(), loss, {}


MODELS = {"lstm": lstm, "cnn": cnn}


def slowest(seconds: float) -> float:
    return float(MPI.COMM_WORLD.allreduce(seconds, op=MPI.MAX))


def timed(step: Callable[[], None], repetitions: int) -> list[float]:
    times = []
    for _ in range(repetitions):
        MPI.COMM_WORLD.Barrier()
        began = time.perf_counter()
        step()
        times.append(slowest(time.perf_counter() - began))
    return times


def measure(a: argparse.Namespace, method: str, original: nn.Module, loss: Loss) -> dict[str, Any]:
    torch.manual_seed(1 + MPI.COMM_WORLD.Get_rank())
    model = copy.deepcopy(original)
    # Weights are the same already. Where PyTorch can't be told so, it sends all of them before the
    # first step.
    known = "init_sync" in inspect.signature(DistributedDataParallel).parameters
    ddp = DistributedDataParallel(model, **({"init_sync": False} if known else {}))
    state = None
    if method != "gloo":
        # No step before the timed ones need be dense: nothing is learnt here.
        state = rill.torch.State(method, density=a.density, dense_steps=0, overlap=a.overlap)
        ddp.register_comm_hook(state, rill.torch.hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    selection: list[float] = []

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(ddp).backward()
        optimizer.step()

    def step_noted() -> None:
        step()
        if state is not None:
            selection.append(sum(s.select_s + s.update_s for s in state.stats))

    def step_alone() -> None:
        with ddp.no_sync():
            step()

    timed(step, min(2, a.warmup) if method in DENSE else a.warmup)
    times = timed(step_noted, a.dense_steps if method in DENSE else a.steps)
    timed(step_alone, 1)
    alone = timed(step_alone, a.steps)
    sent = sum(s.sent_bytes for s in state.stats) if state is not None else None
    select = statistics.median(slowest(s) for s in selection) if selection else 0.0
    whole, compute = statistics.median(times), statistics.median(alone)
    result = {
        "method": method,
        "step_s": whole,
        "compute_s": min(compute, whole),
        "select_s": select,
        "communicate_s": max(0.0, whole - compute - select),
        "times_s": times,
        "compute_times_s": alone,
        "sent_bytes_max": MPI.COMM_WORLD.allreduce(sent, op=MPI.MAX) if sent is not None else None,
    }
    if state is not None:
        state._drop_groups()
    return result


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--model", choices=list(MODELS), default="lstm")
    p.add_argument("--methods", default="gloo,dense,topk,gtopk,oktopk,spardl,s2,topk+qsgd4")
    p.add_argument("--density", type=float, default=0.01)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--dense-steps", type=int, default=3, help="the same for gloo and dense")
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--overlap", default="auto", help="of the hook: auto, thread, hook")
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--length", type=int, default=20, help="words of a sequence (lstm)")
    p.add_argument("--words", type=int, default=33278, help="of the embedding (lstm)")
    p.add_argument("--width", type=int, default=128, help="of embedding and LSTM")
    p.add_argument(
        "--note", type=json.loads, default={}, help="an object that goes into each record"
    )
    p.add_argument("--json", required=True, metavar="FILE", help="records, one per line")
    a = p.parse_args()
    torch.set_num_threads(1)
    rank, size = rill.torch.init_process_group()
    torch.manual_seed(0)
    model, loss, settings = MODELS[a.model](a)
    parameters = sum(p.numel() for p in model.parameters())
    with open(a.json if rank == 0 else os.devnull, "w") as file:
        for method in a.methods.split(","):
            record = {
                **a.note,
                "model": a.model,
                "parameters": parameters,
                "ranks": size,
                "batch": a.batch,
                **settings,
                "density": a.density,
                "overlap": a.overlap,
                "torch": torch.__version__,
                **measure(a, method, model, loss),
            }
            file.write(json.dumps(record) + "\n")
            file.flush()
            if rank == 0:
                print(f"{a.model} {method}: {record['step_s']:.3f} s", file=sys.stderr, flush=True)
    torch.distributed.destroy_process_group()


main()
