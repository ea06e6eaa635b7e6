"""Adam behind a sparse exchange: its first moment goes to the reducers.

Entries that come rarely and all at once count as large ones in Adam's second moment, so Adam must
not average them once more. ``Moment`` sets the first beta of an optimizer to 0 and remembers it in
the optimizer's own groups of parameters, under ``rill_beta1``: the optimizer's state_dict has it,
and whoever loads that finds the beta that the reducers are to have.
"""

from __future__ import annotations

from typing import Any, Optional

KEY = "rill_beta1"


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

    def undo(self) -> None:
        for group in self.optimizer.param_groups:
            if KEY in group:
                group["betas"] = (group.pop(KEY), *group["betas"][1:])


def moment_of(optimizer: Optional[Any]) -> Optional[Moment]:
    """None for an optimizer that has no first moment."""
    if optimizer is None or not is_adam(optimizer):
        return None
    made = Moment(optimizer)
    return made if made.beta else None
