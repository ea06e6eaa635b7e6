"""Accelerate: accelerate launch --num_processes 2 with_accelerate.py, or by torchrun. Accelerate
wraps the model in DistributedDataParallel: attach after prepare."""

import torch
from accelerate import Accelerator

import rill.torch
from task import Pairs, model_of, report

accelerator = Accelerator(cpu=True)
model = model_of()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(Pairs(), batch_size=64)
ddp, wrapped, loader = accelerator.prepare(model, optimizer, loader)
state = rill.torch.attach(ddp, "topk", density=0.01, optimizer=optimizer, warmup_steps=5)
losses = []
for x, y in loader:
    wrapped.zero_grad()
    loss = torch.nn.functional.mse_loss(ddp(x), y)
    accelerator.backward(loss)
    wrapped.step()
    losses.append(loss.item())
report(losses, state)
accelerator.end_training()
