"""Training that outlives a rank: four plain processes train a classifier, one is killed in the
middle, the others go on. Needs no MPI and no torchrun:

    python3 examples/python/outlive.py --ranks 4 --steps 60 --kill 2 --at 20
"""

import argparse
import os
import signal
import socket
import subprocess
import sys

import torch
from torch import nn

import rill
import rill.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--ranks", type=int, default=4)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--kill", type=int, default=2, help="the rank that dies")
parser.add_argument("--at", type=int, default=20, help="the step in which it dies")
arguments = parser.parse_args()


def start():
    """Starts a process for each rank, and waits for all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    common = {**os.environ, "RILL_RENDEZVOUS": address, "WORLD_SIZE": str(arguments.ranks)}
    workers = [
        subprocess.Popen([sys.executable, *sys.argv], env={**common, "RANK": str(rank)})
        for rank in range(arguments.ranks)
    ]
    codes = [worker.wait() for worker in workers]
    good = all(code == 0 for rank, code in enumerate(codes) if rank != arguments.kill)
    return 0 if good else 1


def work():
    comm = rill.init()
    first = comm.rank
    torch.manual_seed(0)
    centres = torch.randn(10, 64)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    rill.torch.broadcast_parameters(model, comm=comm)
    optimizer = rill.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model.named_parameters(),
        "oktopk",
        density=0.05,
        comm=comm,
    )
    torch.manual_seed(1 + first)
    step = 0
    while step < arguments.steps:
        labels = torch.randint(0, 10, (32,))
        inputs = centres[labels] + torch.randn(32, 64)
        if first == arguments.kill and step == arguments.at:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        except rill.PeerError as error:
            print(f"step {step + 1}  rank {first}: {error}", flush=True)
            comm, again = recover(comm, optimizer)
            if again:  # nobody has completed the step
                continue
            optimizer.step()  # with the gradients that another rank has
        step += 1
        if comm.rank == 0 and step % 10 == 0:
            print(f"step {step}  ranks {comm.size}  loss {loss.item():.4f}", flush=True)
    same = comm.allreduce(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()]) * comm.size
    assert torch.allclose(torch.from_numpy(same.dense()), mine, atol=1e-4), "ranks have parted"
    comm.free()


def recover(comm, optimizer):
    """The communicator of those that live, and whether the step is to be repeated."""
    old = [comm]
    while True:
        try:
            old.append(old[-1].shrink())
            again = optimizer.move(old[-1])
            for one in old[:-1]:
                one.free()
            return old[-1], again
        except rill.PeerError:  # another rank died meanwhile
            continue


if __name__ == "__main__":
    sys.exit(work() if "RILL_RENDEZVOUS" in os.environ else start())
