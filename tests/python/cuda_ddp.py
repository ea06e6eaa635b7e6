#!/usr/bin/env python3
"""tests/python/cuda_ddp.py [--ranks 2,4] [--parts reducers,ddp,steps,hosts] [--seconds 240]:
gradients on a GPU, as one command on a machine that has one. Ranks share it.

  reducers  reducers in device memory against those in the host's, to the bit; what is lost
  ddp       DistributedDataParallel: the same weights as with staged gradients, no synchronisation
            of the device in the backward pass, void steps, unused parameters, curves of the loss;
            beside it CUDA graphs, shards of FSDP2, LocalUpdates
  steps     time of a step of a model as large as GPT-2 small: without an exchange, gloo, rill
  hosts     the same with each rank on an emulated host of its own (lab/cluster, --rate; root); it
            is not run unless it is named

Each part is a job of its own under mpirun, with a limit of time. Prints one JSON record a line;
status 1 if a part failed. Environment: RILL_LIBRARY, RILL_CUDA_LIBRARY, PYTHONPATH as the package
needs them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/cuda"))
from gpu_jobs import leave, run_job, say  # noqa: E402

# Of the time of a number of ranks.
SHARE = {"reducers": 0.15, "ddp": 0.25, "steps": 0.6, "hosts": 0.6}
HOSTS = {"GLOO_SOCKET_IFNAME": "eth0"}  # of an emulated host


def say_once(mpi, **record):
    if mpi.Get_rank() == 0:
        say(**record)


# ---- the jobs ----


def drive(options):
    """Starts each part as a job, and ends it when its time is over."""
    counts = [int(n) for n in options.ranks.split(",")]
    parts = options.parts.split(",")
    end = time.monotonic() + options.seconds
    failed = False
    for i, ranks in enumerate(counts):
        for j, part in enumerate(parts):
            left = end - time.monotonic()
            rest = sum(SHARE[p] for p in parts[j:]) + (len(counts) - i - 1) * sum(
                SHARE[p] for p in parts
            )
            limit = left * SHARE[part] / rest
            failed |= not run(part, ranks, limit, options)
    return 1 if failed else 0


def run(part, ranks, limit, options):
    settings = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if part == "ddp" else {}  # same sums again
    arguments = ["--job", "steps" if part == "hosts" else part, "--seconds", str(limit - 12)]
    if options.methods:
        arguments += ["--methods", options.methods]
    rate = options.rate if part == "hosts" else None
    settings = {**settings, **(HOSTS if rate else {})}
    code, took = run_job(__file__, ranks, arguments, limit, rate, **settings)
    say(part=part, ranks=ranks, status="time is over" if code is None else code, seconds=took)
    return code == 0


class Clock:
    """The same decisions on all ranks about how much time is left."""

    def __init__(self, comm, seconds):
        self.comm, self.end = comm, time.monotonic() + seconds

    def left(self):
        return self.comm.bcast(self.end - time.monotonic())


# ---- reducers ----


def reducers(comm, mpi, clock):
    import torch

    import rill

    dim, good = (1 << 20) + 3, True
    methods = ["dense", "topk", "oktopk", "spardl", "gtopk", "topk+qsgd4"]
    for kind in (torch.float32, torch.bfloat16):
        for method in methods:
            if clock.left() < 4:
                say_once(mpi, part="reducers", skipped=f"{method} {kind}: no time")
                continue
            record = compare(comm, mpi, method, kind, dim)
            good &= record["update_bits"] and record["residual_bits"]
            good &= record.get("lost", 0) < 1e-4 and record["void"]
            say_once(mpi, part="reducers", ranks=comm.size, **record)
    say_once(mpi, part="reducers", in_flight=(flying := in_flight(comm, mpi, rill, torch)))
    grown = growth(comm, mpi, rill, torch, clock)
    say_once(mpi, part="reducers", ranks=comm.size, **grown)
    return good and flying and grown["grown_bytes"] == 0


def growth(comm, mpi, rill, torch, clock, most=10_000):
    """Device memory after 10,000 steps, or as many as there is time for, against that after 100."""
    dim, steps = 100_000, 0
    reducer = rill.Reducer(comm, dim, density=0.01, **rill.method("oktopk"), memory="cuda")
    gradient = torch.randn(dim, device="cuda")
    update = torch.empty_like(gradient)
    while steps < most and (steps % 100 or clock.left() > 3):
        reducer.start_on(gradient, update).wait()
        steps += 1
        if steps == 100:
            mpi.Barrier()
            free = torch.cuda.mem_get_info()[0]
    mpi.Barrier()
    grown = free - torch.cuda.mem_get_info()[0]
    reducer.free()
    return {"steps": steps, "grown_bytes": mpi.allreduce(int(grown)) // comm.size}


def compare(comm, mpi, method, kind, dim, steps=5):
    import torch

    import rill

    density = {} if method == "dense" else {"density": 0.01}
    options = {**rill.method(method), **density, "seed": 3}
    here = rill.Reducer(comm, dim, kind, **options)
    there = rill.Reducer(comm, dim, kind, **options, memory="cuda", device=0)
    noise = torch.Generator().manual_seed(comm.rank)
    fed, got = torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
    record = {"method": method, "type": str(kind)[6:], "update_bits": True, "residual_bits": True}
    for step in range(steps):
        gradient = torch.randn(dim, generator=noise).to(kind)
        void = step == 3
        if void and comm.rank == comm.size - 1:
            gradient[17] = float("nan")
        if not void:
            fed += gradient.double()
        device = gradient.cuda()
        here.step(gradient)
        there.start_on(device).wait()
        update = device.cpu()
        if void:
            record["void"] = bool(update.isnan().all() and gradient.isnan().all())
            continue
        got += update.double()
        record["update_bits"] &= same(update, gradient)
        if method != "dense":  # which keeps nothing
            residual = on_host(there, kind)
            record["residual_bits"] &= same(residual, torch_residual(here, kind))
    if method != "dense":
        total = mpi.allreduce(fed.numpy()) - comm.size * got.numpy()
        kept = mpi.allreduce(residual.double().numpy())
        scale = abs(mpi.allreduce(fed.numpy())).max()
        record["lost"] = float(abs(total - kept).max() / scale)
        if kind is torch.bfloat16:
            record["rounded"] = record.pop("lost")
    here.free()
    there.free()
    record["update_bits"] = mpi.allreduce(int(record["update_bits"])) == comm.size
    record["residual_bits"] = mpi.allreduce(int(record["residual_bits"])) == comm.size
    return record


def same(a, b):
    import torch

    kind = torch.int16 if a.element_size() == 2 else torch.int32
    return bool((a.view(kind) == b.view(kind)).all())


def torch_residual(reducer, kind):
    import torch

    array = reducer.residual
    return torch.from_numpy(array.view("i2")).view(kind) if array.itemsize == 2 else (
        torch.from_numpy(array)
    )  # fmt: skip


def on_host(reducer, kind):
    import torch

    return torch.as_tensor(reducer.residual, device="cuda").view(kind).cpu()


def in_flight(comm, mpi, rill, torch):
    """Eight reducers on a stream each, three steps queued on each before anybody waits."""
    dim, good = 300_001, True
    noise = torch.Generator().manual_seed(comm.rank + 50)
    inputs = [[torch.randn(dim, generator=noise) for _ in range(3)] for _ in range(8)]
    options = {**rill.method("oktopk"), "density": 0.02}
    expected = []
    for own in inputs:
        reducer = rill.Reducer(comm, dim, **options)
        expected.append([reducer.step(gradient.clone()) for gradient in own])
        reducer.free()
    made = [rill.Reducer(comm, dim, **options, memory="cuda", device=0) for _ in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    device = [[gradient.cuda() for gradient in own] for own in inputs]
    torch.cuda.synchronize()
    last = []
    for step in range(3):
        for reducer, stream, own in zip(made, streams, device):
            last.append(reducer.start_on(own[step], stream=stream))
    for step in last[-8:]:
        step.wait()
    for own, wanted in zip(device, expected):
        good &= all(same(a.cpu(), b) for a, b in zip(own, wanted))
    for reducer in made:
        reducer.free()
    return mpi.allreduce(int(good)) == comm.size


# ---- DistributedDataParallel ----


def network(width=512):
    import torch
    from torch import nn

    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    ).cuda()


def wrapped(model, state, **options):
    import rill.torch
    from torch.nn.parallel import DistributedDataParallel

    ddp = DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=0.3, **options)
    if state is not None:
        ddp.register_comm_hook(state, rill.torch.hook)
    return ddp


def train(ddp, rank, steps, strict=False, lr=0.1):
    import torch
    from torch import nn

    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(9)).cuda()
    noise = torch.Generator().manual_seed(100 + rank)
    batches = [torch.randn(32, 64, generator=noise).cuda() for _ in range(steps)]
    optimizer = torch.optim.SGD(ddp.parameters(), lr=lr)
    losses = []
    for step, x in enumerate(batches):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(x), (x @ teacher).argmax(1))
        if strict and step > 2:
            torch.cuda.set_sync_debug_mode("error")
        try:
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        optimizer.step()
        losses.append(loss.detach())
    return [round(float(loss), 4) for loss in losses]


def flat(model):
    import torch

    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()


def ddp(comm, mpi, clock):
    import cuda_beside
    import torch

    import rill.torch
    from rill.torch import _device

    good, methods = True, ["dense", "topk", "oktopk", "spardl", "topk+qsgd4"]
    torch.use_deterministic_algorithms(True)
    for method in methods:
        if clock.left() < 6:
            say_once(mpi, part="ddp", skipped=f"{method}: no time")
            continue
        models, curves = [], []
        for staged in (False, True):
            model = network()
            density = {} if method == "dense" else {"density": 0.02}
            own = rill.Comm()  # whose planner has not seen the other's steps
            state = rill.torch.State(method, module=model, comm=own, seed=3, **density)
            if staged:
                state._devices.of = lambda tensor: None
                state._devices.known = lambda tensor: None
            curves.append(train(wrapped(model, state), comm.rank, 24, strict=not staged))
            state.wait()
            if not staged:
                on_device = all(g.device is not None for _, g in state._all_groups())
                on_device &= bool(state._all_groups()) and isinstance(_device.runtime, _device.Cuda)
            models.append(flat(model))
        record = {
            "method": method,
            "on_device": on_device,
            "same_weights": same(*models),
            "apart": float((models[0] - models[1]).abs().max()),
            "alike": len(set(mpi.allgather(models[0].numpy().tobytes()))) == 1,
            "loss": curves[0][::6] + curves[0][-1:],
            "loss_staged": curves[1][::6] + curves[1][-1:],
        }
        good &= on_device and record["alike"] and record["same_weights"]
        say_once(mpi, part="ddp", ranks=comm.size, **record)
    torch.use_deterministic_algorithms(False)
    checks = {
        "void": void_step,
        "unused": unused,
        "optimizer": optimizer_alone,
        "graphs": beside_graphs,
        "local_updates": cuda_beside.local_updates,
        "shards": cuda_beside.shards,
    }
    for name, check in checks.items():
        result = check(comm, mpi) if clock.left() > 4 else "no time"
        say_once(mpi, part="ddp", ranks=comm.size, **{name: result})
        good &= result is not False
    sums = [torch.ones(5).cuda(), torch.eye(4).cuda().to_sparse()]
    totals = [rill.torch.allreduce(tensor, comm=comm) for tensor in sums]
    exact = all(t.is_cuda for t in totals) and float(totals[0].sum()) == 5 * comm.size
    exact &= float(totals[1].to_dense().sum()) == 4 * comm.size
    say_once(mpi, part="ddp", ranks=comm.size, allreduce=exact)
    return good and exact


def void_step(comm, mpi):
    """A NaN on one rank in one bucket: all gradients of the step are NaN on all ranks, and
    residuals stay finite."""
    import torch

    import rill.torch

    model = network()
    state = rill.torch.State("topk", density=0.05, module=model, comm=comm)
    wrapper = wrapped(model, state)
    train(wrapper, comm.rank, 3, lr=0.0)
    factor = float("nan") if comm.rank == comm.size - 1 else 1.0
    wrapper.zero_grad()
    out = wrapper(torch.zeros(4, 64).cuda())
    # Only the last layer's bias gets a NaN; the gradients of the other layers are finite.
    model[-1].bias.register_hook(lambda gradient: gradient * factor)
    out.sum().backward()
    spoiled = all(bool(p.grad.isnan().all()) for p in model.parameters())
    state.wait()
    kept = all(bool(part.isfinite().all()) for part in state.state_dict()["residuals"].values())
    return mpi.allreduce(int(spoiled and kept)) == comm.size


def unused(comm, mpi):
    """Parameters that no rank uses: their gradients stay away, and what waits for them stays."""
    import torch
    from torch import nn

    import rill.torch

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.left, self.right, self.out = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 5)

        def forward(self, x, left):
            return self.out((self.left if left else self.right)(x))

    model = Branches().cuda()
    state = rill.torch.State("topk", density=0.1, module=model, comm=comm)
    wrapper = wrapped(model, state, find_unused_parameters=True)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(comm.rank)).cuda()
    for left in (True, False, True):
        wrapper(x, left).square().sum().backward()
        wrapper.zero_grad(set_to_none=True)
    before = state.state_dict()["residuals"]["right.weight"]
    wrapper(x, True).square().sum().backward()
    after = state.state_dict()["residuals"]["right.weight"]
    absent = model.right.weight.grad is None
    return absent and torch.allclose(before, after, atol=1e-4) and bool(before.any())


def beside_graphs(comm, mpi):
    import cuda_beside

    import rill.torch

    model = network()
    state = rill.torch.State("topk", density=0.05, module=model, comm=comm)
    good = cuda_beside.graphs(comm, mpi, wrapped(model, state))
    state.wait()
    return good


def optimizer_alone(comm, mpi):
    import torch

    import rill.torch

    model = network()
    rill.torch.broadcast_parameters(model, comm=comm)
    optimizer = rill.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        "oktopk",
        density=0.05,
        comm=comm,
    )
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(comm.rank)).cuda()
    for _ in range(5):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    optimizer.wait()
    return len(set(mpi.allgather(flat(model).numpy().tobytes()))) == 1


# ---- a job ----


def job(part, seconds, methods):
    import torch
    from mpi4py import MPI

    import rill
    import rill.torch
    from cuda_steps import METHODS, steps

    mpi = MPI.COMM_WORLD
    if not torch.cuda.is_available():
        say_once(mpi, part=part, skipped="there is no GPU")
        return
    torch.cuda.set_device(0)
    comm = rill.Comm()
    rill.torch.init_process_group()
    clock = Clock(mpi, seconds)
    if part == "steps":
        good = steps(comm, mpi, clock, methods.split(",") if methods else METHODS)
    else:
        good = {"reducers": reducers, "ddp": ddp}[part](comm, mpi, clock)
    say_once(mpi, part=part, ranks=comm.size, good=bool(good))
    comm.free()
    leave(mpi, 0 if good else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--parts", default="reducers,ddp,steps")
    parser.add_argument("--seconds", type=float, default=230)
    parser.add_argument("--rate", default="1gbit", help="of the links of emulated hosts")
    parser.add_argument("--job", help="of one rank, where a launcher starts them: a part")
    parser.add_argument("--methods", help="of steps and hosts: none,gloo,topk,...")
    options = parser.parse_args()
    if options.job:
        job(options.job, options.seconds, options.methods)
        return 0
    return drive(options)


if __name__ == "__main__":
    sys.exit(main())
