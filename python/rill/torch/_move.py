"""Training goes on when a rank has died: reducers move to a communicator of those that live.

Ranks may be apart by a part of a step: one has the updates of all its reducers, another was waiting
for one of them. No rank is a whole step ahead, since nothing completes without the others. So
either some rank has completed the step, and then all can get its updates; or none has, and the step
is void everywhere: what single reducers have completed of it goes back to their residuals.
"""

from __future__ import annotations

from typing import Iterable, Sequence

import torch

from .._comm import Comm
from ._groups import Flight, Group
from ._tensors import torch_dtype


@torch.no_grad()
def move(
    comm: Comm,
    steps: int,
    groups: Sequence[Group],
    flights: Sequence[Flight],
    sums: bool = False,
) -> bool:
    """Takes the groups to comm. steps: those that this rank has completed; flights: those of the
    step that was broken off; sums: it had exact sums of sparse gradients as well. Whether it is to
    be repeated; else the parameters have its updates as gradients. Collective."""
    again = [group.reducer.move(comm) for group in groups]
    everyone = comm._gather([steps, sums])
    if any(used for _, used in everyone) and len({done for done, _ in everyone}) > 1:
        raise RuntimeError(
            "a rank has completed the step in which another died, and the sums of sparse gradients "
            "can't be had once more: load a checkpoint"
        )
    everyone = [done for done, _ in everyone]
    if max(everyone) > steps:
        for flight in flights:
            _take(flight)
        return False
    if min(everyone) == steps:
        for group, void in zip(groups, again):
            if group.begun and group.keeps and not void:
                group.reducer.give_back(0, group.reducer.update(_memory(group)))
    return True


def _memory(group: Group) -> torch.Tensor:
    dtype = torch_dtype(group.reducer.type)
    return torch.empty(group.reducer.dim, dtype=dtype, device=group.device or "cpu")


def _take(flight: Flight) -> None:
    """The update of the step becomes the gradient."""
    update = flight.group.reducer.update(_memory(flight.group))
    parts = update.split([part.numel() for part in flight.parts])
    for parameter, part in zip(flight.parameters, parts):
        gradient = torch.empty_like(parameter)  # buckets have it in the order of memory
        dense = gradient.is_contiguous() or gradient.is_contiguous(
            memory_format=torch.channels_last
        )
        if dense:
            torch.as_strided(gradient, (gradient.numel(),), (1,)).copy_(part)
        else:
            gradient.copy_(part.view(parameter.shape))
        parameter.grad = gradient


def forget(groups: Iterable[Group]) -> None:
    """A new step begins."""
    for group in groups:
        group.begun = False
