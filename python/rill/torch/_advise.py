"""Which method, density and optimizer at which network, by what the planner expects."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import torch
import torch.distributed as dist

from .._plan import bits_per_second, plan
from .._selector import Selector
from ._moment import check_optimizer, is_adam

_RANKS = 8  # where nobody says how many
_NETWORKS = {"internet": (100e6, 30e-3)}  # rate, latency; others are rates
_CLOSEST = 2.0  # topk, which is closest to dense, is taken where oktopk is at most so much faster
_ALIKE = 1.1  # oktopk is taken where another is at most so much faster
_WORTH = 1.5  # a gain of the exchange from which a sparse one is advised
_PATIENCE_S = 1.0  # of a sparse exchange, where the time of a step is not known
_SAMPLE = 1 << 20  # entries that a selection is timed on
# As LocalUpdates has it by default.
_EVERY, _SHARE, _BITS = 30, 64 / 4096, 2


class Row(NamedTuple):
    """A method, the seconds that it adds to a step, and how many times less that is than dense."""

    method: str
    seconds: float
    gain: float


@dataclass
class Advice:
    """What ``advise`` found. ``print`` shows it; ``line`` is the line to write."""

    method: str
    density: float
    optimizer: str
    gain: float
    line: str
    parameters: int
    ranks: int
    rows: list[Row]

    def __str__(self) -> str:
        table = [
            f"  {row.method:<12} {row.seconds * 1e3:12.2f} ms a step  {row.gain:8.1f}x"
            for row in self.rows
        ]
        return "\n".join(
            [
                f"{self.parameters:,} parameters on {self.ranks} ranks: {self.method}",
                *table,
                f"optimizer: {self.optimizer}",
                self.line,
            ]
        )


def _network(network: Union[str, float]) -> tuple[float, float]:
    if isinstance(network, str) and network in _NETWORKS:
        return _NETWORKS[network]
    try:
        if not (rate := bits_per_second(network)):
            raise ValueError(f"rate {network!r} carries nothing")
        return rate, 0.0
    except ValueError as error:
        known = ", ".join(f'"{name}"' for name in _NETWORKS)
        raise ValueError(f"network: {error}, or {known}") from None


def _selection_s(count: int, density: float) -> float:
    """Of this machine's processor, timed on a part and scaled up."""
    part = min(count, _SAMPLE)
    sample = np.random.default_rng(1).standard_normal(part).astype(np.float32)
    selector = Selector(part, density=density, method="topk")
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        selector.select(sample)
        seconds.append(time.perf_counter() - start)
    return min(seconds) * count / part


def _optimizer_text(optimizer: Any, method: str) -> str:
    if method == "dense":
        return "any, as it is"
    if method == "local":
        return "AdamW on each rank, which stays local"
    adam = "Adam: give optimizer=, so that its first moment goes to the reducers"
    sgd = "SGD: as it is, with its momentum"
    if optimizer is None:
        return f"{sgd}; {adam}"
    return adam if is_adam(optimizer) else sgd


def _line(method: str, density: float) -> str:
    if method == "dense":
        return "DistributedDataParallel(model)  # without rill"
    if method == "local":
        made = f"local = rill.torch.LocalUpdates(model, every={_EVERY})"
        return f"{made}  # local.step() after each step"
    return f'rill.torch.attach(ddp, "{method}", density={density:g}, optimizer=optimizer)'


def _ring_s(count: int, ranks: int, network: dict[str, Any]) -> float:
    """Of a dense sum that takes nothing but its bytes on the network, as good as gloo's and
    NCCL's may be."""
    hosts = network["hosts"] or ranks
    return 2 * (hosts - 1) / hosts * count * 32 / network["rate"]


def _rows(
    count: int, ranks: int, density: float, select_s: float, network: dict[str, Any]
) -> list[Row]:
    exact = plan(ranks, count, density, **network)
    largest = plan(ranks, count, density, collective="reducer", **network)
    quantized = plan(ranks, count, density, value_bits=4, **network)
    rounds = plan(ranks, count, _SHARE, value_bits=_BITS, **network)
    whole = {row.algorithm: row.seconds for row in plan(ranks, count, 1.0, **network)}
    dense = min(whole["dense"], _ring_s(count, ranks, network) or whole["dense"])
    seconds = {"dense": dense, "topk": exact[0].seconds + select_s}
    for row in largest:
        if row.algorithm != "s2":  # for gradients that are zero in whole blocks
            seconds[row.algorithm] = row.seconds + select_s
    seconds["topk+qsgd4"] = quantized[0].seconds + select_s
    seconds["local"] = (rounds[0].seconds + select_s) / _EVERY
    return [Row(name, value, dense / value) for name, value in seconds.items()]


def _chosen(seconds: dict[str, float], patience_s: float) -> str:
    sparse = [name for name in ("topk", "gtopk", "oktopk", "spardl") if name in seconds]
    method = min(sparse, key=lambda name: seconds[name])
    if seconds["dense"] < _WORTH * seconds[method]:
        return "dense"
    if seconds[method] > patience_s:
        return "local"
    most = min(patience_s, seconds["dense"] / _WORTH)
    if seconds["topk"] <= min(_CLOSEST * seconds["oktopk"], most):
        return "topk"
    if seconds["oktopk"] <= min(_ALIKE * seconds[method], most):
        return "oktopk"
    return method


def advise(
    model: torch.nn.Module,
    network: Union[str, float],
    *,
    ranks: Optional[int] = None,
    hosts: Optional[int] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
    density: float = 0.01,
    step_s: Optional[float] = None,
    profile: Optional[str] = None,
) -> Advice:
    """Which method to train the model with: ``print(rill.torch.advise(model, "1gbit", ranks=8))``.

    network: the rate of each host's connection ("100mbit", "1gbit", or bits in a second), or
    "internet". ranks: those of the process group, else 8; each on a host of its own unless hosts
    says otherwise. step_s: what a step takes without any exchange, if you know it: then
    LocalUpdates is advised where a sparse exchange takes longer than that, else where it takes over
    a second. Density 0.01 is the one that our results are for. ``profile`` is as in ``rill.plan``.

    Times are what the planner expects of one exchange of all gradients, and, for sparse ones, of a
    selection, which is timed here. A dense one is at most that of a ring at the network's rate.
    What is hidden behind the backward pass is not subtracted. No other rank is needed, and nothing
    is changed.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model = {type(model).__name__}: a torch.nn.Module is needed")
    check_optimizer(optimizer, None)
    if not isinstance(density, Real) or not 0 < density <= 1:
        raise ValueError(f"density = {density!r}: a share in (0, 1] is needed")
    if step_s is not None and (not isinstance(step_s, Real) or not 0 <= step_s < math.inf):
        raise ValueError(f"step_s = {step_s!r}: seconds are needed")
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if count == 0:
        raise ValueError("the model has no parameters that require gradients")
    rate, latency = _network(network)
    if ranks is None:
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else _RANKS
    if isinstance(ranks, Real) and ranks < 2:
        raise ValueError(f"ranks = {ranks}: one rank has nothing to exchange")
    how = {"rate": rate, "latency_s": latency, "hosts": hosts, "profile": profile}
    rows = _rows(count, ranks, density, _selection_s(count, density), how)
    seconds = {row.method: row.seconds for row in rows}
    method = _chosen(seconds, _PATIENCE_S if step_s is None else step_s)
    return Advice(
        method=method,
        density=1.0 if method == "dense" else _SHARE if method == "local" else density,
        optimizer=_optimizer_text(optimizer, method),
        gain=seconds["dense"] / seconds[method],
        line=_line(method, density),
        parameters=count,
        ranks=ranks,
        rows=rows,
    )
