"""One line that makes the gradient exchange of a module sparse, and the one that undoes it."""

from __future__ import annotations

import logging
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Optional, Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ._checks import agree, check_options
from ._ddp import find_scalers, group_of, named_parameters, unwrapped
from ._groups import default_comm
from ._hook import State
from ._moment import Moment, bare_optimizer, check_optimizer, is_adam, moment_of
from ._rules import Rules
from ._sharded import attach_sharded, detach_sharded, replicas_of

if TYPE_CHECKING:
    from .._names import Overlap, ShortMethod
    from .._structs import AttachOptions, Unpack

_log = logging.getLogger("rill")
_SMALL = 16384
_WARMUP_STEPS = 100
_ARGUMENTS = ("optimizer", "replicas", "rules", "small", "follow", "overlap", "comm")


def attach(
    module: torch.nn.Module,
    algorithm: ShortMethod,
    density: Optional[float] = 0.01,
    *,
    optimizer: Optional[torch.optim.Optimizer] = None,
    replicas: Any = None,
    rules: Optional[Rules] = None,
    small: Optional[int] = None,
    follow: bool = True,
    overlap: Overlap = "auto",
    comm: Any = None,
    **options: Unpack[AttachOptions],
) -> State:
    """Makes the gradient exchange of a DistributedDataParallel sparse: ``state =
    rill.torch.attach(ddp, "topk", density=0.01, optimizer=optimizer)``.

    optimizer: the optimizer of the parameters. The first moment of Adam goes to the reducers, and
    its first beta becomes 0; the optimizer's state_dict remembers it. Without ``optimizer=`` an
    Adam is noticed at the first step, and warned about. replicas: for FSDP2, see below. comm: as in
    ``State``; without it the ranks of the module's process group.

    Unlike in ``State`` these are on: ``warmup_steps=100`` (100 steps each at 25, 7.25, 1.5 and
    0.4 %, as far as that is over the density), ``small=16384`` (parameters of fewer values are
    summed densely), and ``follow=True``: the rate of an optimizer that is no Adam, and the scale of
    a GradScaler, both as they are found at the first step; see ``State.follow``. ``repr(state)``
    says what is on, and the logger "rill" at the first step. Other arguments are as in ``State``.

    FSDP2: shard on one dimension of the mesh, and give the other one: ``fully_shard(module,
    mesh=mesh["shard"])`` for each module and ``attach(module, ..., replicas=mesh["replicate"])``.
    The shards' gradients are then averaged over the replicas by rill.

    ``detach(module)`` undoes it. Collective.
    """
    bare = unwrapped(module)
    if not isinstance(bare, torch.nn.Module):
        raise TypeError(f"{bare!r} is no module: DistributedDataParallel, or one of fully_shard")
    is_ddp = isinstance(bare, DistributedDataParallel)
    optimizer = bare_optimizer(optimizer)
    if is_ddp and comm is None:
        comm = group_of(bare)
    ranks = default_comm(comm) if is_ddp else replicas_of(bare, replicas, comm)
    sparse = algorithm != "dense" and density != 1

    def check() -> Optional[Moment]:
        if _attached(bare) is not None:
            raise ValueError("the module is attached already: rill.torch.detach it before")
        if is_ddp and bare not in _relays and _foreign_hooks(bare):
            hook = getattr(_foreign_hooks(bare)[0][0], "__qualname__", "one")
            raise ValueError(
                f"the DistributedDataParallel has a communication hook, {hook}, and can have no "
                "second one: wrap the model again, without it"
            )
        if not isinstance(algorithm, str):
            raise TypeError(f"algorithm = {algorithm!r}: the name of a method is needed")
        for name, p in named_parameters(bare).items():
            if p.is_complex():
                raise ValueError(f"parameter {name} is complex: only real ones are exchanged")
        check_options({k: v for k, v in options.items() if k != "dense_steps"}, _ARGUMENTS)
        if is_ddp and replicas is not None:
            raise ValueError(
                "replicas= is for modules of fully_shard, not for DistributedDataParallel"
            )
        check_optimizer(optimizer, bare if is_ddp else None)
        made = moment_of(optimizer) if sparse else None
        if made is not None and options.get("momentum"):
            raise ValueError("momentum= comes from optimizer=: give one of them")
        return made

    moment = agree(ranks, check, _beta_of)
    if moment is not None:
        options["momentum"] = moment.beta
    if sparse:
        options.setdefault("warmup_steps", _WARMUP_STEPS)
    given: dict[str, Any] = dict(
        density=density, rules=rules, small=_SMALL if small is None else small, overlap=overlap,
        module=module, **options,
    )  # fmt: skip
    if is_ddp:
        state = State(algorithm, comm=None if comm is None else ranks, **given)
        _relay_to(bare, state)
    else:
        state = attach_sharded(bare, algorithm, replicas, ranks, given)
    state._attached = Attached(optimizer, moment, follow)
    if optimizer is not None:
        state._attached.begin(state)
    return state


def _beta_of(moment: Optional[Moment]) -> dict[str, str]:
    return {} if moment is None else {"first beta": str(moment.beta)}


def detach(module: torch.nn.Module) -> State:
    """Undoes ``attach``: gradients are averaged as PyTorch does, and the optimizer has its first
    moment back. What waits to be sent stays in the state that this returns. Collective."""
    bare = unwrapped(module)
    state = _attached(bare)
    if state is None:
        raise ValueError("the module is not attached")
    state.wait()
    if isinstance(bare, DistributedDataParallel):
        _relays[bare].state = None
    else:
        detach_sharded(bare)
    if state._attached is not None:
        state._attached.undo()
        state._attached = None
    return state


class Attached:
    """What attach does besides: the optimizer's first moment, and whom residuals follow."""

    def __init__(
        self, optimizer: Optional[torch.optim.Optimizer], moment: Optional[Moment], follow: bool
    ) -> None:
        self._optimizer, self._moment, self._follow = optimizer, moment, follow
        self._said: list[str] = []

    def begin(self, state: State) -> None:
        """The optimizer was given."""
        assert self._optimizer is not None
        if self._moment is not None:
            self._moment.take()
        elif self._follow and not is_adam(self._optimizer):
            self._follow_one(state, self._optimizer)

    def _follow_one(self, state: State, what: Any) -> None:
        state._followed.follow(what)
        self._said.append(type(what).__name__)

    def look(self, state: State, optimizers: Sequence[Any]) -> None:
        """Before the first step, with the optimizers that were found."""
        if self._follow:
            if self._optimizer is None and not state._followed.has_rate():
                plain = [one for one in optimizers if not is_adam(one)]
                if plain:
                    self._follow_one(state, plain[0])
            scalers = find_scalers()
            if len(scalers) == 1 and not state._followed.has_scale():
                self._follow_one(state, scalers[0])
            elif len(scalers) > 1 and not state._followed.has_scale() and state.comm.rank == 0:
                warnings.warn(
                    f"there are {len(scalers)} GradScalers: state.follow(scaler) says which "
                    f"one residuals follow",
                    stacklevel=3,
                )
        if state.comm.rank == 0:
            _log.info("%r", state)

    def keep(self) -> None:
        """Before each step."""
        if self._moment is not None:
            self._moment.keep()

    def undo(self) -> None:
        if self._moment is not None:
            self._moment.undo()

    def shown(self) -> str:
        follows = f" follows={'+'.join(self._said)}" if self._said else ""
        if self._moment is None:
            return follows
        return f"{follows} momentum_of={type(self._moment.optimizer).__name__}"


# ---- DistributedDataParallel, whose hook can't be taken away again ----


class _Relay:
    def __init__(self, group: Any) -> None:
        self.group = group
        self.state: Optional[State] = None

    def __reduce__(self) -> Any:
        """A DistributedDataParallel is copied or pickled with its hooks: the copy, which has a
        reducer of its own, is not attached."""
        return _Relay, (None,)


_relays: "weakref.WeakKeyDictionary[Any, _Relay]" = weakref.WeakKeyDictionary()


def _foreign_hooks(ddp: DistributedDataParallel) -> list[Any]:
    """A copy lists the hook of its original (PyTorch 2), which its own reducer does not have."""
    return [one for one in getattr(ddp, "_comm_hooks", ()) if one[0] is not _relayed]


def _relay_to(ddp: DistributedDataParallel, state: State) -> None:
    relay = _relays.get(ddp)
    if relay is None:
        relay = _Relay(ddp.process_group)
        if hasattr(ddp, "_comm_hooks"):
            ddp._comm_hooks = _foreign_hooks(ddp)
        ddp.register_comm_hook(relay, _relayed)
        _relays[ddp] = relay
    relay.state = state


def _relayed(relay: _Relay, bucket: Any) -> Any:
    if relay.state is not None:
        return relay.state.reduce_bucket(bucket)
    buffer = bucket.buffer()  # as DDP has it
    buffer.div_(relay.group.size())
    work = dist.all_reduce(buffer, group=relay.group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


_relayed.__annotations__ = {
    "relay": _Relay,
    "bucket": dist.GradBucket,
    "return": torch.futures.Future[torch.Tensor],
}


def _attached(module: Any) -> Optional[State]:
    if isinstance(module, DistributedDataParallel):
        relay = _relays.get(module)
        return None if relay is None else relay.state
    state: Optional[State] = getattr(module, "_rill_state", None)
    return state
