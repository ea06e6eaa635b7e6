"""The options of local updates: what is wrong with them is said before anything is exchanged."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, Iterable, Mapping

import torch
from torch.nn.parallel import DistributedDataParallel

from .._codes import VALUE_BITS
from .._comm import Comm
from ._ddp import named_parameters, unwrapped

_KINDS: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (Integral, "a whole number", ("every", "chunk", "value_bits", "parts", "delay", "minimum")),
    (Integral, "a whole number", ("small", "warmup_steps", "warmup_rounds")),
    ((Integral, type(None)), "a whole number, or None", ("keep",)),
    (Real, "a number", ("decay", "outer_momentum")),
    ((Real, type(None)), "a number, or None", ("outer_lr", "deadline_s")),
)


def trained(module: Any) -> dict[str, torch.Tensor]:
    """Its parameters that take part; none of what is no module, which ``check`` refuses."""
    known = named_parameters(module) if isinstance(module, torch.nn.Module) else {}
    return {name: p for name, p in known.items() if p.requires_grad}


def _whole(module: Any) -> None:
    """Rounds are of whole tensors: a shard of one rank is not comparable to that of another."""
    sharded = [name for name, p in module.named_parameters() if type(p).__name__ == "DTensor"]
    wrapped = [m for m in module.modules() if type(m).__name__ == "FullyShardedDataParallel"]
    if sharded or wrapped:
        what = f"parameter {sharded[0]} is a DTensor" if sharded else "it is a module of FSDP"
        raise ValueError(
            f"LocalUpdates needs a model that is whole on each rank, but {what}: give the module "
            "as it is before fully_shard; or keep it sharded, and have each step exchanged by "
            'rill.torch.attach(module, "topk", replicas=mesh["replicate"])'
        )


def check(
    options: Mapping[str, Any], named: Mapping[str, torch.Tensor], comm: Comm, module: Any
) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module = {module!r:.60}: a torch.nn.Module is needed")
    inner, parameters = unwrapped(module), len(named)
    if isinstance(inner, DistributedDataParallel) and inner.process_group.size() >= comm.size > 1:
        raise ValueError(
            "the module is a DistributedDataParallel, which has all ranks exchange every gradient: "
            "give the model itself, and train that"
        )
    _whole(inner)
    if parameters == 0:
        raise ValueError(f"{type(inner).__name__} has no parameters to train")
    for name, p in named.items():
        if p.is_complex():
            raise ValueError(f"parameter {name} is complex: only real ones are exchanged")

    def need(good: bool, name: str, what: str) -> None:
        if not good:
            raise ValueError(f"{name} = {options[name]!r}: {what}")

    for kinds, what, names in _KINDS:
        for name in names:
            if not isinstance(options[name], kinds):
                raise TypeError(f"{name} = {options[name]!r}: {what} is needed")
    need(options["every"] >= 1, "every", "at least one step is needed")
    keep, parts = options["keep"], options["parts"]
    need(options["chunk"] >= 1, "chunk", "a number of entries is needed")
    need(keep is None or 1 <= keep <= options["chunk"], "keep", "entries of a chunk, or None")
    need(options["value_bits"] in VALUE_BITS, "value_bits", "0, 16, 8, 4 or 2")
    need(0 <= options["decay"] <= 1, "decay", "a share in [0, 1] is needed")
    need(options["average"] in ("all", "senders"), "average", "'all' or 'senders'")
    rate = options["outer_lr"]
    need(rate is None or 0 < rate < math.inf, "outer_lr", "a rate over 0 is needed")
    need(0 <= options["outer_momentum"] < 1, "outer_momentum", "a share in [0, 1) is needed")
    need(options["outer"] in ("sgd", "nesterov"), "outer", "'sgd' or 'nesterov'")
    need(options["clip"] in (None, "median"), "clip", "None or 'median'")
    need(1 <= parts <= parameters, "parts", f"there are {parameters} parameters")
    need(parts <= options["every"], "parts", "each needs a step of its own")
    need(0 <= options["delay"] < max(options["every"] // parts, 1), "delay", "rounds overlap")
    need(not options["delay"] or comm.threads, "delay", "MPI allows no threads here")
    for name in ("warmup_steps", "warmup_rounds"):
        need(options[name] >= 0, name, "0 or more are needed")
    need(0 < options["minimum"] <= comm.size, "minimum", f"there are {comm.size} ranks")
    deadline = options["deadline_s"]
    need(deadline is None or deadline > 0, "deadline_s", "seconds are needed")
    if keep is None:
        need(options["clip"] is None, "clip", "contributions are summed on the way with keep=None")
        need(options["average"] == "all", "average", "all entries are sent with keep=None")


def rising(interval: int, warmup_steps: int) -> tuple[list[int], list[int]]:
    """Of the first rounds the steps before each: they grow evenly with the steps done, up to
    interval, where the warm-up ends. Numbers of rounds, the steps of those below each, and of the
    rest."""
    ends: list[int] = []
    lengths: list[int] = []
    done = 0
    for length in range(1, interval if warmup_steps else 1):
        until = -(-(length + 1) * warmup_steps // interval)
        rounds = max(-(-(until - done) // length), 0)
        done += rounds * length
        ends.append((ends[-1] if ends else 0) + rounds)
        lengths.append(length)
    return ends, [*lengths, interval]


def check_state(state: Mapping[str, Any], known: int, named: Mapping[str, torch.Tensor]) -> None:
    """Before anything of it is loaded."""
    if not isinstance(state, Mapping) or state.get("format") != known:
        found = state.get("format") if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"the state has format {found!r}, {known} is known")
    check_shapes({n: part.shape for n, part in state["common"].items()}, named, "the state")


def check_shapes(
    saved: Mapping[str, Iterable[int]], named: Mapping[str, torch.Tensor], where: str
) -> None:
    own = {name: tuple(p.shape) for name, p in named.items()}
    there = {name: tuple(shape) for name, shape in saved.items()}
    for name in sorted({*own, *there}):
        shapes = own.get(name), there.get(name)
        if shapes[0] != shapes[1]:
            shown = ["absent" if shape is None else f"of shape {shape}" for shape in shapes]
            raise ValueError(f"parameter {name} is {shown[0]} here and {shown[1]} in {where}")
