"""An optimizer whose step first exchanges the gradients, for code without DistributedDataParallel.

Each gradient goes the way that suits it (Kim et al., Parallax, EuroSys 2019). Sparse ones
(``nn.Embedding(sparse=True)``) are summed exactly, as blocks of whole rows. Small dense ones go
dense, fused into one message per type. Large ones have a reducer each, and with algorithm "auto"
the planner decides for each between all of it, its non-zeros and its largest entries.

In ``step()`` the ranks agree on who has which gradient, in one small MPI call: a parameter without
a gradient on some ranks counts as zero there, and one without a gradient on any rank is left alone.

From the second step on most exchanges are under way by then: when autograd has accumulated a
gradient, a hook starts its exchange behind the rest of the backward pass. Starts must have the same
order on all ranks, whatever the order in which a rank's gradients come; so there is one fixed
order, last parameters first, and a gradient that comes early waits for those before it. Only
parameters that had a gradient in the step before take part, in the layout (dense or sparse) that
they had then: a rank whose own gradient is missing or of the other layout catches up in ``step()``,
and gives zeros or converts.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Sequence

import numpy as np
import torch

from .._comm import Comm
from .._structs import Stats
from ._ddp import warn_of_adam
from ._device import Devices
from ._exchange import Exchange
from ._follow import Followed
from ._groups import Checkpointed, Flight, Group, Member, default_comm, names_of
from ._moment import check_optimizer
from ._move import forget, move
from ._progress import Progress
from ._rules import FUSED, Chooser, Rules
from ._tensors import coalesced, from_stream, tensor_of, to_stream

if TYPE_CHECKING:
    from .._names import OptimizerOverlap, ShortMethod, ValueBits
    from .._structs import TensorOptions, Unpack

_DENSE, _SPARSE = 1, 2


class DistributedOptimizer(torch.optim.Optimizer, Checkpointed):
    """Wraps an optimizer: ``optimizer = rill.torch.DistributedOptimizer(optimizer,
    model.named_parameters(), algorithm="oktopk")``.

    ``step()`` replaces each gradient by the mean over the ranks, or what the method makes of it,
    and then calls the optimizer's own step; momentum and Adam are thus applied after the exchange.
    ``synchronize()`` does the first half alone, for code that clips in between; the next step()
    does not exchange again.

    small: dense tensors of fewer values are fused and summed densely. backward_passes: backward
    passes whose gradients add up to a step. overlap: "thread", "hook" or "auto" as in ``State``,
    with exchanges behind the (last) backward pass; gradients must not be touched between it and
    step() or synchronize() then. "step": they start in step(). Other arguments are as in ``State``.
    The optimizer's own state_dict is untouched (and local); residuals are in
    ``reducers_state_dict`` or ``save``, which are collective.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
        algorithm: Optional[ShortMethod] = "auto",
        *,
        density: Optional[float] = None,
        value_bits: Optional[ValueBits] = None,
        rules: Optional[Rules] = None,
        small: int = 4096,
        backward_passes: int = 1,
        overlap: OptimizerOverlap = "auto",
        comm: Any = None,
        **options: Unpack[TensorOptions],
    ) -> None:
        # Not Optimizer.__init__: groups, state and defaults are those of the wrapped one, see
        # __getattr__.
        if optimizer is None:
            raise TypeError("optimizer=None: an optimizer is needed")
        check_optimizer(optimizer, None)
        self.optimizer = optimizer
        self.comm = default_comm(comm)
        self.steps = 0
        self._parameters = [
            p for group in optimizer.param_groups for p in group["params"] if p.requires_grad
        ]
        named = named_parameters if named_parameters is not None else _numbered(self._parameters)
        self._names = names_of(named)
        general: dict[str, Any] = dict(algorithm=algorithm, density=density, value_bits=value_bits)
        general.update(options)

        def check() -> None:
            self._overlap = "hook" if overlap == "step" else overlap
            self._progress = Progress(self.comm, self._overlap)
            missing = [tuple(p.shape) for p in self._parameters if id(p) not in self._names]
            if missing:
                raise ValueError(
                    f"named_parameters lacks {len(missing)} parameters of the optimizer, such as "
                    f"one of shape {missing[0]}"
                )

        own = ("rules", "small", "backward_passes", "overlap", "comm")
        self._chooser = Chooser.agreed(self.comm, general, rules, small, own, check)
        if self.comm.rank == 0:
            self._chooser.warn_of_unmatched({self._names[id(p)]: p for p in self._parameters})
            if self._chooser.is_sparse():
                warn_of_adam([optimizer], self._chooser.general, "DistributedOptimizer")
        self._followed = Followed()
        self._average = bool(self._chooser.general.get("average", True))
        self._kept, self._kept_momenta = {}, {}
        self._by_name = {self._names[id(p)]: p for p in self._parameters}
        self._groups: dict[tuple[str, ...], Group] = {}
        self._fused = self._find_fused()
        self._exchanged = False
        self._sparse_stats: dict[str, Stats] = {}
        self._exchanges: list[Exchange] = []  # of this step, in the order of their starts
        self._devices = Devices(self.comm, self._chooser.all_options())
        self._done: list[Exchange] = []  # of the last step
        self._kinds = [0] * len(self._parameters)  # of the last step
        self._units = self._find_units()
        self._early: list[
            tuple[int, ...]
        ] = []  # units that may start during the backward pass, in this order
        self._started = 0  # of them
        self._backward_passes = backward_passes
        self._passes = [0] * len(self._parameters)  # backward passes since the last step
        self._nodes = self._watch() if overlap != "step" else []

    # ---- what an optimizer has ----

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not yet there
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"

    def __getstate__(self) -> Any:
        raise TypeError(
            "a DistributedOptimizer can't be pickled; save its state_dict and reducers_state_dict"
        )

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's."""
        if self._exchanges:
            raise RuntimeError(
                "zero_grad() between backward() and step(): gradients are under way; call step() "
                "or synchronize() first"
            )
        self._exchanged = False
        self.optimizer.zero_grad(*args, **kwargs)

    def add_param_group(self, param_group: Any) -> None:
        """Not supported: the ranks have agreed on the parameters."""
        raise NotImplementedError("add parameters before the optimizer is wrapped")

    def state_dict(self) -> Any:
        """Of the wrapped optimizer; local. Residuals are in reducers_state_dict."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Of the wrapped optimizer; local."""
        self.optimizer.load_state_dict(state)

    def reducers_state_dict(self) -> dict[str, Any]:
        """What has not been sent yet, by parameter. Collective."""
        return Checkpointed.state_dict(self)

    def load_reducers_state_dict(self, state: Any) -> None:
        """Goes on with what reducers_state_dict gave, on any number of ranks. Collective."""
        Checkpointed.load_state_dict(self, state)

    def follow(self, what: Any = None) -> None:
        """As ``State.follow``; without an argument the rate is that of the wrapped optimizer."""
        Checkpointed.follow(self, self.optimizer if what is None else what)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Exchanges the gradients, unless synchronize() just did, and makes the optimizer's
        step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._exchanged:
            self.synchronize()
        self._exchanged = False
        self.optimizer.step()
        return loss

    # ---- the exchange ----

    @torch.no_grad()
    def synchronize(self) -> None:
        """Replaces the gradients by their means over the ranks. Collective."""
        kinds = self._agree()
        late = [unit for unit in self._units if unit not in self._early]
        for unit in self._early[self._started :]:
            # Where nobody has one of the gradients, nobody has started the unit.
            self._start(unit, self._kinds if all(kinds[i] for i in unit) else kinds)
        for unit in late:
            self._start(unit, kinds)
        self._kinds = kinds
        self._early = (
            [unit for unit in self._units if self._may_be_early(unit)] if self._nodes else []
        )
        self._started = 0
        self._passes = [0] * len(self._parameters)
        self._finish()
        self.steps += 1
        self._exchanged = True

    def _agree(self) -> list[int]:
        """By a call of rill, not of MPI: it fails where a rank has left. Exchanges may be under way
        on some ranks only."""
        count = len(self._parameters)
        mine = np.zeros(2 * count, np.float32)
        for i, p in enumerate(self._parameters):
            if p.grad is not None:
                mine[i + count if p.grad.is_sparse else i] = 1
        has = (
            self.comm._beside()
            .allreduce(mine, op="max", algorithm="recursive_double", codec="raw", value_bits=0)
            .dense()
            > 0
        )
        return [
            _DENSE * int(dense) | _SPARSE * int(sparse)
            for dense, sparse in zip(has[:count], has[count:])
        ]

    def _start(self, unit: tuple[int, ...], kinds: Sequence[int]) -> None:
        dense = [i for i in unit if kinds[i] & _DENSE]
        if not self._exchanges:  # the first of this step
            forget(self._groups.values())
            self._follow()
        for i in unit:
            if kinds[i] == _SPARSE:
                self._begin(self._start_sparse(self._parameters[i]))
        if dense:
            self._begin(self._start_dense(unit, dense))

    def _begin(self, exchange: Exchange) -> None:
        self._exchanges.append(exchange)
        self._progress.choose(self.comm, torch.get_num_threads(), exchange.alone)
        self._progress.add(exchange)

    def _start_sparse(self, parameter: torch.Tensor) -> Exchange:
        gradient = parameter.grad
        if gradient is None:
            # Rows of the last dimensions are what embeddings have; the other ranks' blocks decide,
            # ours are none.
            gradient = coalesced(
                torch.empty((1, 0), dtype=torch.int64, device=parameter.device),
                parameter.new_empty((0, *parameter.shape[1:])),
                parameter.shape,
            )
        elif not gradient.is_sparse:
            gradient = gradient.to_sparse(1)
        dense_dim = gradient.dense_dim()
        stream = to_stream(gradient.cpu())
        request = self.comm.iallreduce(stream, stream)

        def apply(void: bool) -> None:
            total = from_stream(stream, parameter.shape, dense_dim).to(parameter.device)
            parameter.grad = total / self.comm.size if self._average else total
            if void:
                parameter.grad._values().fill_(float("nan"))
            self._sparse_stats[self._names[id(parameter)]] = request.stats

        exchange = Exchange(request, apply)
        if self._chooser.general.get("nonfinite") in (None, "void"):
            exchange.voided = lambda: not bool(
                np.isfinite(tensor_of(stream.values, stream.type).float().numpy()).all()
            )
        return exchange

    def _start_dense(self, unit: tuple[int, ...], present: Sequence[int]) -> Exchange:
        """All of the unit take part, as zeros where no rank has a dense gradient; those keep what
        they have."""
        group = self._group(tuple(self._names[id(self._parameters[i])] for i in unit))
        gradients = [self._dense_gradient(self._parameters[i], i in present) for i in unit]
        if group.device is None:  # where they are, or a copy
            gradients = [gradient.cpu() for gradient in gradients]
        step = group.start(group.prepare(gradients))

        def apply(void: bool) -> None:
            for i, update in zip(unit, gradients):
                if void:
                    update.fill_(float("nan"))
                parameter = self._parameters[i]
                if i in present and parameter.grad is not update:
                    parameter.grad = update.view(parameter.shape).to(parameter.device)

        return Exchange(step, apply, Flight(group, gradients, [self._parameters[i] for i in unit]))

    def _dense_gradient(self, parameter: torch.Tensor, present: bool) -> torch.Tensor:
        """Contiguous memory: the gradient's own where that can be, zeros where there is none."""
        gradient = parameter.grad
        if gradient is None or not present:
            return torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
        if gradient.is_sparse:
            return gradient.to_dense()
        return gradient if gradient.is_contiguous() else gradient.contiguous()

    def _finish(self) -> None:
        """Completes all and puts the results in place; a failure is raised when nothing is under
        way any more."""
        self._progress.complete()
        done, self._exchanges = self._exchanges, []
        self._done = done
        failures = [exchange.failure for exchange in done if exchange.failure is not None]
        if failures:
            raise failures[0]
        # A step that is void in one of its exchanges is void as a whole, see _hook.py.
        voided = [exchange.voided() for exchange in done]
        for exchange, own in zip(done, voided):
            if any(voided) and not own and exchange.flight is not None:
                exchange.flight.give_back()
            exchange.apply(any(voided))

    def _settle(self) -> None:
        self._progress.complete()

    def move(self, comm: Comm) -> bool:
        """Goes on on another communicator, after a PeerError: ``optimizer.move(comm.shrink())``.
        What waits to be sent stays. True: repeat the step, forward and backward. False: another
        rank had completed it, and the parameters have its gradients: call step(). Collective."""
        self._progress.complete()
        done = self._exchanges or self._done
        self._exchanges, self._done = [], []
        flights = [exchange.flight for exchange in done if exchange.flight is not None]
        groups = [group for _, group in self._all_groups()]
        repeat = move(comm, self.steps, groups, flights, len(flights) < len(done))
        self.steps += not repeat
        self._exchanged = not repeat
        self.comm, self._progress = comm, Progress(comm, self._overlap)
        self._devices.move(comm)
        self._early, self._started = [], 0
        self._passes = [0] * len(self._parameters)
        return repeat

    # ---- behind the backward pass ----

    def _find_units(self) -> list[tuple[int, ...]]:
        """Parameters that are exchanged together, by number: large ones alone, small ones fused.
        Last parameters first, as the backward pass has them; a fused unit where its first parameter
        is, which is ready last."""
        units: list[tuple[int, ...]] = []
        numbers = {self._names[id(p)]: i for i, p in enumerate(self._parameters)}
        for i in reversed(range(len(self._parameters))):
            names = self._fused.get(self._names[id(self._parameters[i])])
            if names is None:
                units.append((i,))
            elif i == min(numbers[name] for name in names):
                units.append(tuple(numbers[name] for name in names))
        return units

    def _may_be_early(self, unit: tuple[int, ...]) -> bool:
        kinds = {self._kinds[i] for i in unit}
        return kinds == {_DENSE} or (len(unit) == 1 and kinds == {_SPARSE})

    def _watch(self) -> list[Any]:
        """Has autograd call _ready after it has accumulated a gradient. The nodes live as long as
        they are held."""
        mine = weakref.ref(self)
        nodes = []
        for i, parameter in enumerate(self._parameters):
            with torch.enable_grad():
                expanded: Any = parameter.expand_as(parameter).grad_fn
                node = expanded.next_functions[0][0]

            def ready(*_: Any, number: int = i) -> None:
                optimizer = mine()
                if optimizer is not None:
                    optimizer._ready(number)

            node.register_hook(ready)
            nodes.append(node)
        return nodes

    @torch.no_grad()
    def _ready(self, number: int) -> None:
        self._passes[number] += 1
        self._exchanged = False
        if self._passes[number] > self._backward_passes and any(
            number in unit for unit in self._early[: self._started]
        ):
            raise RuntimeError(
                f"{self._names[id(self._parameters[number])]} had backward pass "
                f"{self._passes[number]} since the last step, but its exchange "
                f'has begun: give backward_passes={self._passes[number]}, or overlap="step"'
            )
        while self._started < len(self._early) and all(
            self._is_ready(i) for i in self._early[self._started]
        ):
            self._started += 1
            self._start(self._early[self._started - 1], self._kinds)

    def _is_ready(self, number: int) -> bool:
        gradient = self._parameters[number].grad
        return self._passes[number] >= self._backward_passes and gradient is not None

    # ---- groups ----

    def _find_fused(self) -> dict[str, tuple[str, ...]]:
        """Names of small parameters that no rule is for, with the names of those that they are
        fused with."""
        by_type: dict[Any, list[str]] = {}
        for p in self._parameters:
            name = self._names[id(p)]
            if self._chooser.number(name, p) == FUSED:
                by_type.setdefault((p.dtype, p.device), []).append(name)
        return {name: tuple(names) for names in by_type.values() for name in names}

    def _group(self, names: tuple[str, ...]) -> Group:
        if names not in self._groups:
            parameters = [self._by_name[name] for name in names]
            rule = self._chooser.number(names[0], parameters[0])
            members = [Member(name, p.numel()) for name, p in zip(names, parameters)]
            device = self._devices.of(parameters[0])
            group = self._make_group(0, parameters[0].dtype, members, rule, device)
            group.feed(self._kept, self._kept_momenta)
        return self._groups[names]

    def _device_of(self, name: str) -> Optional[torch.device]:
        return self._devices.of(self._by_name[name]) if name in self._by_name else None

    def _add_group(self, bucket: int, group: Group) -> None:
        self._groups[tuple(m.name for m in group.members)] = group

    def _all_groups(self) -> list[tuple[int, Group]]:
        return [(0, group) for group in self._groups.values()]

    def _drop_groups(self) -> None:
        for group in self._groups.values():
            group.reducer.free()
        self._groups.clear()
        self._early.clear()  # new groups are made together, in step()

    @property
    def stats(self) -> dict[str, Stats]:
        """Of the last exchange: by the name of the parameter, or of the first of those that are
        fused."""
        self._settle()
        return {
            **{names[0]: group.reducer.stats for names, group in self._groups.items()},
            **self._sparse_stats,
        }


def _numbered(parameters: Sequence[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    return [(f"parameter.{i}", p) for i, p in enumerate(parameters)]
