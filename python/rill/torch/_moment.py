"""Adam behind a sparse exchange: its first moment goes to the reducers.

Entries that come rarely and all at once count as large ones in Adam's second moment, so Adam must
not average them once more. ``Moment`` sets the first beta of an optimizer to 0 and remembers it in
the optimizer's own groups of parameters, under ``rill_beta1``: the optimizer's state_dict has it,
and whoever loads that finds the beta that the reducers are to have.

What reducers deliver has another unit than a gradient, and one that changes with the density, see
``unit_of``. Adam divides a unit out, but only after the steps that its second moment remembers: for
so long a change of the density would be one of the learning rate. So the second moments change
their unit along; ``rill_unit`` in the groups says which they have.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

KEY = "rill_beta1"
UNIT = "rill_unit"
# By the power of the gradient that they are made of.
_MOMENTS = {"exp_avg_sq": 2, "max_exp_avg_sq": 2, "exp_inf": 1}


def bare_optimizer(optimizer: Any) -> Any:
    """The optimizer that a framework has wrapped: Accelerate's and Lightning's have it as
    ``optimizer``."""
    inner = getattr(optimizer, "optimizer", None)
    return bare_optimizer(inner) if hasattr(inner, "param_groups") else optimizer


def check_optimizer(optimizer: Any, module: Any) -> None:
    """Whether it is one, of the module's parameters; these change with the state of FSDP2's, where
    None is given."""
    if optimizer is None:
        return
    if isinstance(optimizer, type) or not hasattr(optimizer, "param_groups"):
        shown = optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__
        raise TypeError(f"optimizer={shown}: an optimizer of the module's parameters is needed")
    own = {id(parameter) for parameter in module.parameters()} if module is not None else set()
    given = [id(p) for group in optimizer.param_groups for p in group["params"]]
    if own and given and not own.intersection(given):
        name = type(optimizer).__name__
        raise ValueError(f"optimizer={name} has none of the module's parameters")


def first_beta(group: Any) -> float:
    """Of a group of parameters of an optimizer of Adam's kind; 0 for others."""
    betas = group.get("betas")
    if isinstance(betas, (tuple, list)) and len(betas) > 1:
        return float(betas[0])
    return 0.0


def is_adam(optimizer: Any) -> bool:
    """Whether it divides by a second moment, and may have a first one."""
    return any(KEY in group or "betas" in group for group in optimizer.param_groups)


def unit_of(density: float, beta: float, masking: bool) -> float:
    """What a gradient counts, in the mean, in what a reducer with momentum delivers. Each adds
    1 + beta + beta^2 + ... to its entry, until that is sent, some 1 / density steps after the last
    time. With masking the rest is dropped then."""
    whole = 1 / (1 - beta)
    if not masking or density <= 0:
        return whole
    steps = max(1, round(1 / density))
    return whole - whole * beta * (1 - beta**steps) / (1 - beta) / steps


class Moment:
    """The first moment of an optimizer, while the reducers have it."""

    def __init__(self, optimizer: Any) -> None:
        name = type(optimizer).__name__
        if "adam" not in name.lower():
            raise ValueError(
                f"optimizer={name}: its first beta may mean something else than Adam's, and "
                f"stays where it is; give momentum= yourself, or no optimizer="
            )
        betas = {float(group.get(KEY, first_beta(group))) for group in optimizer.param_groups}
        if len(betas) > 1:
            raise ValueError(
                f"the parameter groups of {name} have different first betas, "
                f"{sorted(betas)}: the reducers take one"
            )
        self.optimizer, self.beta = optimizer, betas.pop()

    def take(self) -> None:
        """The optimizer has none from now on."""
        for group in self.optimizer.param_groups:
            if first_beta(group) or KEY not in group:
                group[KEY] = self.beta
                group["betas"] = (0.0, *group["betas"][1:])

    def keep(self) -> None:
        """Before each step: the optimizer may have loaded a state in which it has one."""
        for group in self.optimizer.param_groups:
            found = first_beta(group) or float(group.get(KEY, self.beta))
            if found != self.beta:
                raise RuntimeError(
                    f"{type(self.optimizer).__name__} has got a first beta of {found}, and "
                    f"the reducers have {self.beta}, which stays: a schedule that changes it "
                    f"(OneCycleLR, CyclicLR) needs cycle_momentum=False; for another one detach, "
                    f"and attach again"
                )
        self.take()

    @torch.no_grad()
    def measure(self, unit: float, is_sent: Callable[[torch.Tensor], bool]) -> None:
        """The gradients of some parameters have this unit from now on."""
        for group in self.optimizer.param_groups:
            factor = unit / float(group.get(UNIT, 1.0))
            if factor == 1:
                continue
            group[UNIT] = unit
            for parameter in group["params"]:
                state = self.optimizer.state.get(parameter)
                if not state or not is_sent(parameter):
                    continue
                for name, power in _MOMENTS.items():
                    if torch.is_tensor(state.get(name)):
                        state[name].mul_(factor**power)

    def undo(self) -> None:
        """measure(1, ...) comes before."""
        for group in self.optimizer.param_groups:
            if KEY in group:
                group["betas"] = (group.pop(KEY), *group["betas"][1:])
            group.pop(UNIT, None)


def moment_of(optimizer: Optional[Any]) -> Optional[Moment]:
    """None for an optimizer that has no first moment."""
    if optimizer is None or not is_adam(optimizer):
        return None
    made = Moment(optimizer)
    return made if made.beta else None
