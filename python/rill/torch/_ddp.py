"""What the hook has to know of the DistributedDataParallel that calls it, which does not introduce
itself.

With ``find_unused_parameters`` (or ``static_graph``) DDP leaves the gradient of a parameter alone
that no rank used in a backward pass, and drops the slice of the bucket that would go there. A
reducer may well send something of such a parameter: what it kept from steps before. DDP's ranks
agree on what was used, in a sum of their own that is there when the backward pass ends; what was
dropped then goes back to the residuals, the same on all ranks.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any, Callable, Iterable, Optional, Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ._groups import Flight

_ADAM = (
    "{name} with momentum of its own loses accuracy behind a sparse exchange: entries that come "
    "rarely and all at once count as large ones in its second moment. Give the momentum to the "
    "reducers: {cure}; see docs/guide/pytorch.md, Method and density"
)
_BY_HAND = (
    "{name}(..., betas=(0, {beta})) and {where}(..., momentum={momentum}, warmup_steps=100, "
    "small=16384)"
)
_BY_ATTACH = "rill.torch.attach(..., optimizer=optimizer)"
# What wrappers put before the names of parameters.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


class Wrapper:
    """The DistributedDataParallel, as far as it can be known."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        self._ddp = weakref.ref(ddp)
        self._places = {id(p): i for i, p in enumerate(ddp._build_params_for_reducer()[0])}

    def drops(self) -> bool:
        """Whether it drops slices of parameters that were not used."""
        ddp = self._ddp()
        return ddp is not None and (ddp.find_unused_parameters or ddp.static_graph)

    def ranks(self) -> Optional[int]:
        """Of its process group."""
        ddp = self._ddp()
        return None if ddp is None else dist.get_world_size(ddp.process_group)

    def return_unused(self, flights: Iterable[Flight], void: bool, joined: bool) -> None:
        """What was dropped goes back to its reducers. After the backward pass. void: the whole step
        was given back already. joined: this rank had no backward pass (its inputs have ended before
        the others'), and gave zeros."""
        ddp = self._ddp()
        if ddp is None:
            return
        used = ddp.reducer._get_local_used_map().tolist()
        if all(used):
            return
        for flight in flights:
            first = 0
            for part, parameter in zip(flight.parts, flight.parameters):
                place = self._places.get(id(parameter))
                # A gradient that is a view of the bucket has got the update.
                delivered = ddp.gradient_as_bucket_view and parameter.grad is not None
                if place is not None and not used[place] and not delivered:
                    dropped = torch.zeros_like(part) if void else part.clone()
                    if parameter.grad is not None and not joined:
                        _subtract(
                            dropped,
                            parameter,
                            flight.group.reducer.options.get("average", True)
                            or flight.group.reducer.comm.size,
                        )
                    if dropped.any():
                        flight.group.reducer.give_back(first, dropped)
                first += part.numel()


@torch.no_grad()
def _subtract(dropped: torch.Tensor, parameter: torch.Tensor, factor: float) -> None:
    """A gradient of earlier passes went into the bucket, and is still where it was: it must not
    count twice."""
    gradient = parameter.grad.detach()  # type: ignore[union-attr]
    gradient = gradient.to(dropped.device) * float(factor)
    if gradient.stride() == parameter.stride() and not parameter.is_contiguous():
        gradient = torch.as_strided(
            gradient, (gradient.numel(),), (1,)
        )  # buckets have it in the order of memory
    dropped.sub_(gradient.reshape(-1))


def after_backward(call: Callable[[], None]) -> bool:
    """Has ``call`` called when the backward pass and DDP are done; False where there is no backward
    pass."""
    engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
    try:
        # DDP's own end of the pass is put in this queue when the last hook returns: behind this,
        # and before what this puts there.
        engine.queue_callback(lambda: engine.queue_callback(call))
    except RuntimeError:
        return False
    return True


def look_around(
    parameter: torch.Tensor, given: Optional[torch.nn.Module]
) -> tuple[Optional[Wrapper], Sequence[torch.optim.Optimizer]]:
    """The wrapper of a module with this parameter, and its optimizers. ``given``: a module that may
    be the wrapper."""
    if isinstance(unwrapped(given), DistributedDataParallel):
        wrappers = [unwrapped(given)]
    else:
        wrappers = _with_parameter(parameter)
    optimizers = [
        thing for thing in _instances(torch.optim.Optimizer)
        if any(
            p is parameter for group in getattr(thing, "param_groups", ()) for p in group["params"]
        )
    ]  # fmt: skip
    if len(wrappers) > 1:  # one that was replaced is no longer in use
        wrappers.clear()
        gc.collect()
        wrappers = _with_parameter(parameter)
    if len(wrappers) > 1 or (not wrappers and gc.get_freeze_count()):
        warnings.warn(
            f"{len(wrappers) or 'no'} DistributedDataParallel modules have these parameters: give "
            "State(module=ddp), for parameters that are not used in a step",
            stacklevel=3,
        )
        return None, optimizers
    return (Wrapper(wrappers[0]) if wrappers else None), optimizers


def find_scalers() -> list[Any]:
    """All GradScalers in use."""
    places = [getattr(torch, "amp", None), torch.cuda.amp]
    kinds = {getattr(place, "GradScaler") for place in places if hasattr(place, "GradScaler")}
    found = {id(one): one for kind in kinds for one in _instances(kind)}
    return [one for one in found.values() if one.is_enabled()]


def group_of(ddp: DistributedDataParallel) -> Any:
    """Its process group, where that has a part of the ranks; None: it has all."""
    group = ddp.process_group
    return None if dist.get_world_size(group) == dist.get_world_size() else group


def unwrapped(module: Any) -> Any:
    """The module that a compiled one is of."""
    return getattr(module, "_orig_mod", module)


def named_parameters(module: Optional[torch.nn.Module]) -> dict[str, torch.Tensor]:
    """Names as the model has them without wrappers, so that rules and checkpoints fit with and
    without these."""
    inner: Any = unwrapped(module)
    if isinstance(inner, DistributedDataParallel):
        inner = unwrapped(inner.module)
    named = {}
    for name, parameter in inner.named_parameters() if inner is not None else ():
        for wrapper in _WRAPPERS:
            name = name.replace(wrapper, "")
        named[name] = parameter
    return named


def counts_of(module: Optional[torch.nn.Module]) -> dict[str, int]:
    """Sizes of the parameters that have residuals: not of those whose gradients are sparse."""
    parts: Any = module.modules() if module is not None else ()
    rows = {id(part.weight) for part in parts if getattr(part, "sparse", False) is True}
    return {
        name: parameter.numel()
        for name, parameter in named_parameters(module).items()
        if parameter.requires_grad and id(parameter) not in rows
    }


def _with_parameter(parameter: torch.Tensor) -> list[Any]:
    return [
        ddp
        for ddp in _instances(DistributedDataParallel)
        if any(p is parameter for p in ddp.parameters())
    ]


def _instances(kind: type) -> list[Any]:
    """All objects of a class or a class made from it. Objects refer to their classes. A list of all
    objects would be no way: it would hold tensors that other threads are about to free."""
    kinds: list[Any] = [kind]
    for known in kinds:
        kinds.extend(made for made in known.__subclasses__() if made not in kinds)
    return [thing for thing in gc.get_referrers(*kinds) if type(thing) in kinds]


def warn_of_adam(optimizers: Iterable[Any], options: Any, where: str = "State") -> bool:
    """Warns, once, of an optimizer whose own momentum does not go with a sparse exchange."""
    if options.get("momentum"):
        return False
    for optimizer in optimizers:
        for group in getattr(optimizer, "param_groups", ()):
            betas = group.get("betas")
            if isinstance(betas, (tuple, list)) and len(betas) > 1 and float(betas[0]) > 0:
                name = type(optimizer).__name__
                cure = _BY_ATTACH if where == "attach" else _BY_HAND
                cure = cure.format(
                    name=name, where=where, beta=float(betas[1]), momentum=float(betas[0])
                )
                warnings.warn(_ADAM.format(name=name, cure=cure), stacklevel=3)
                return True
    return False
