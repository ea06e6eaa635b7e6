#!/usr/bin/env python3
"""A small convolutional network on Fashion-MNIST (Debian: dataset-fashion-mnist), with
DistributedDataParallel.

    mpirun -n 4 python3 examples/python/fashion_mnist.py --method oktopk --density 0.01 --steps 500
"""

from __future__ import annotations

import gzip
import sys

import common
import numpy as np
import rill.torch
import torch
from torch import nn


def images(part: str) -> torch.Tensor:
    return read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)


def read(name: str, header: int) -> torch.Tensor:
    path = common.find_data(f"fashion-mnist/{name}")
    if path is None:
        sys.exit(
            f"fashion-mnist/{name} was not found: install dataset-fashion-mnist, or set RILL_DATA"
        )
    return torch.from_numpy(np.frombuffer(gzip.open(path).read(), np.uint8, offset=header).copy())


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x.float().sub_(73).div_(90)


def main() -> None:
    arguments = common.parser(__doc__.split("\n\n")[0], steps=500, lr=0.05, batch=32).parse_args()
    rank, size = rill.torch.init_process_group()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    device = common.device_of(arguments)
    inputs, labels = images("train").to(device), read("train-labels-idx1-ubyte.gz", 8).long().to(
        device
    )
    test_inputs, test_labels = images("t10k").to(device), read(
        "t10k-labels-idx1-ubyte.gz", 8
    ).long().to(device)
    model = network().to(device)
    ddp, state = common.distributed(arguments, model)
    optimizer = common.optimizer_of(arguments, ddp.parameters())
    common.follow(arguments, state, optimizer)
    schedule = common.schedule_of(arguments, optimizer)
    run = common.Run(arguments, rank, size, "fashion-mnist", "test accuracy")

    @torch.no_grad()
    def accuracy() -> float:
        mine = slice(rank, None, size)
        right = 0
        for x, y in zip(test_inputs[mine].split(500), test_labels[mine].split(500)):
            right += int((model(scaled(x)).argmax(1) == y).sum())
        return float(rill.torch.allreduce(torch.tensor([right], dtype=torch.float64))) / len(
            test_labels
        )

    # All ranks draw the same global batch and take their part of it, whatever the method.
    draw = torch.Generator().manual_seed(arguments.seed)
    for step in run.steps():
        chosen = torch.randint(0, len(labels), (size * arguments.batch,), generator=draw)[
            rank::size
        ].to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(scaled(inputs[chosen])), labels[chosen])
        loss.backward()
        optimizer.step()
        schedule.step()
        run.stepped(step, loss.item(), state.stats)
        run.evaluate(step, accuracy)
    run.finish()


if __name__ == "__main__":
    main()
