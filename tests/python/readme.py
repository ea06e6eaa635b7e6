"""What README.md shows of PyTorch, as a program: the lines of its diff, and a training around them.

``torchrun --nproc_per_node 2 tests/python/readme.py`` runs it, over an installed rill; tests have
its text by ``program``.
"""

import os
import re

BEFORE = """
import sys
import torch, torch.distributed as dist
from torch import nn
assert "mpi4py" not in sys.modules
dist.init_process_group("gloo")
torch.manual_seed(0)
centres = torch.randn(10, 200)
model = nn.Sequential(nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 10))
"""
AFTER = """
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1 + rank)
losses = []
for step in range(20):
    labels = torch.randint(0, 10, (32,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(ddp(centres[labels] + torch.randn(32, 200)), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < 0.5 * losses[0], losses
parts = [None] * ranks
weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
dist.all_gather_object(parts, weights.numpy().tobytes())
assert len(set(parts)) == 1
kept = state.state_dict()
assert any(part.any() for part in kept["residuals"].values())
assert optimizer.param_groups[0]["betas"][0] == 0  # rill has the first moment
"""


def lines(readme):
    """The lines that the diff of README.md has, without their signs."""
    with open(readme) as file:
        found = re.findall(r"^```diff\n(.*?)^```$", file.read(), re.M | re.S)
    assert len(found) == 1, f"{readme} has {len(found)} diffs"
    signs = {line[:1] for line in found[0].splitlines() if line != "..."}
    assert signs == {" ", "+"}, f"the diff of {readme} changes lines"
    return [line if line == "..." else line[1:] for line in found[0].splitlines()]


def program(readme):
    """The dots are what the reader's script has there."""
    shown = lines(readme)
    assert shown.count("...") == 1
    dots = shown.index("...")
    return "\n".join([*shown[:dots], BEFORE, *shown[dots + 1 :], AFTER])


if __name__ == "__main__":
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    exec(program(os.path.join(root, "README.md")))
    if rank == 0:  # noqa: F821
        print(f"loss {losses[0]:.3f} {losses[-1]:.3f} {state!r}")  # noqa: F821
    dist.destroy_process_group()  # noqa: F821
