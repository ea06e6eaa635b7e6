"""What the recipes train: a small network, on numbers that another one has made."""

import torch

STEPS = 40


def model_of():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)
    )


def batches(rank, steps=STEPS):
    torch.manual_seed(2)
    truth = torch.nn.Linear(64, 64)
    torch.manual_seed(3 + rank)
    for _ in range(steps):
        x = torch.randn(64, 64)
        yield x, truth(x).detach()


class Pairs(torch.utils.data.Dataset):
    """The same as a data set of single rows."""

    def __init__(self, steps=STEPS):
        self._x, self._y = (torch.cat(part) for part in zip(*batches(0, 2 * steps)))

    def __len__(self):
        return len(self._x)

    def __getitem__(self, i):
        return self._x[i], self._y[i]


def report(losses, state):
    """What the tests look at: the loss falls, and rill has made the exchanges."""
    first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
    sent = sum(stats.sent_bytes for stats in state.stats)
    if state.comm.rank == 0:
        print(f"loss {first:.3f} -> {last:.3f}, {sent} bytes in the last step, {state!r}")
