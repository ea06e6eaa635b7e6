"""A plain loop: torchrun --nproc_per_node 2 plain.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import rill.torch
from task import batches, model_of, report

dist.init_process_group("gloo")
ddp = DistributedDataParallel(model_of())
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
state = rill.torch.attach(ddp, "topk", density=0.01, optimizer=optimizer, warmup_steps=5)
losses = []
for x, y in batches(dist.get_rank()):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(ddp(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, state)
dist.destroy_process_group()
