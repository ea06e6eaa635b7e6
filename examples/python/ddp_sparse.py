"""Stock DistributedDataParallel: a classifier of random clusters.

Start it by torchrun, or as any DDP script."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import rill.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--checkpoint", default="")
arguments = parser.parse_args()

rill.torch.set_environment()
dist.init_process_group("gloo")
torch.manual_seed(0)
centres = torch.randn(10, 64)
model = nn.Sequential(
    nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
ddp = DistributedDataParallel(model)
state = rill.torch.State("oktopk", density=0.01, module=model)
ddp.register_comm_hook(state, rill.torch.hook)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)

torch.manual_seed(1 + dist.get_rank())
for step in range(arguments.steps):
    labels = torch.randint(0, 10, (32,))
    inputs = centres[labels] + torch.randn(32, 64)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(ddp(inputs), labels)
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0 and step % 10 == 9:
        print(f"step {step + 1}  loss {loss.item():.4f}", flush=True)

checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
checkpoint["rill"] = state.state_dict()
if dist.get_rank() == 0 and arguments.checkpoint:
    torch.save(checkpoint, arguments.checkpoint)
dist.destroy_process_group()
