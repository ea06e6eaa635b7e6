"""An optimizer whose step first exchanges the gradients, for code without DistributedDataParallel.

Each gradient goes the way that suits it (Kim et al., Parallax, EuroSys 2019). Sparse ones (``nn.Embedding(sparse=True)``) are summed
exactly, as blocks of whole rows. Small dense ones go dense, fused into one message per type. Large ones have a reducer each, and
with algorithm "auto" the planner decides for each between all of it, its non-zeros and its largest entries.

Before that the ranks agree on who has which gradient, in one small MPI call: a parameter without a gradient on some ranks counts as
zero there, and one without a gradient on any rank is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Sequence

import numpy as np
import torch

from .._comm import Request, mpi
from .._reducer import Step
from .._structs import Stats
from ._groups import Checkpointed, Chooser, Group, Member, Rules, default_comm, names_of
from ._tensors import from_stream, to_stream

if TYPE_CHECKING:
    from .._structs import ReducerOptions, Unpack

_DENSE, _SPARSE = 1, 2
_FUSED = -2  # in place of the number of a rule: small tensors


class DistributedOptimizer(torch.optim.Optimizer, Checkpointed):
    """Wraps an optimizer: ``optimizer = rill.torch.DistributedOptimizer(optimizer, model.named_parameters(), algorithm="oktopk")``.

    ``step()`` replaces each gradient by the mean over the ranks, or what the method makes of it, and then calls the
    optimizer's own step; momentum and Adam are thus applied after the exchange. ``synchronize()`` does the first half alone, for
    code that clips in between; the next step() does not exchange again.

    small: dense tensors of fewer values are fused and summed densely. Other arguments are as in ``State``. The optimizer's
    own state_dict is untouched (and local); residuals are in ``reducers_state_dict`` or ``save``, which are collective.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
        algorithm: Optional[str] = "auto",
        *,
        density: Optional[float] = None,
        value_bits: Optional[int] = None,
        rules: Optional[Rules] = None,
        small: int = 4096,
        comm: Any = None,
        **options: Unpack[ReducerOptions],
    ) -> None:
        # Not Optimizer.__init__: groups, state and defaults are those of the wrapped one, see __getattr__.
        self.optimizer = optimizer
        self.comm = default_comm(comm)
        self.steps = 0
        self._parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        named = named_parameters if named_parameters is not None else _numbered(self._parameters)
        self._names = names_of(named)
        missing = [tuple(p.shape) for p in self._parameters if id(p) not in self._names]
        if missing:
            raise ValueError(f"named_parameters lacks {len(missing)} parameters of the optimizer, such as one of shape {missing[0]}")
        general = {"algorithm": algorithm, "density": density, "value_bits": value_bits, **options}
        self._chooser = Chooser(general, rules)
        self._average = bool(self._chooser.general.get("average", True))
        self._small = small
        self._kept = {}
        self._by_name = {self._names[id(p)]: p for p in self._parameters}
        self._groups: dict[tuple[str, ...], Group] = {}
        self._fused = self._find_fused()
        self._exchanged = False
        self._sparse_stats: dict[str, Stats] = {}

    # ---- what an optimizer has ----

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not yet there
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"

    def __getstate__(self) -> Any:
        raise TypeError("a DistributedOptimizer can't be pickled; save its state_dict and reducers_state_dict")

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's."""
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

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Exchanges the gradients, unless synchronize() just did, and makes the optimizer's step."""
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
        sparse: list[tuple[torch.Tensor, torch.Tensor, Request]] = []
        dense: list[tuple[Step, list[tuple[torch.Tensor, torch.Tensor]]]] = []
        for parameter, kind in zip(self._parameters, kinds):
            if kind == _SPARSE:
                sparse.append(self._start_sparse(parameter))
            elif kind and self._names[id(parameter)] not in self._fused:
                dense.append(self._start_dense([(parameter, kind)]))
        for names in dict.fromkeys(self._fused.values()):
            members = [(p, kind) for p, kind in zip(self._parameters, kinds) if self._names[id(p)] in names]
            if any(kind & _DENSE for _, kind in members):
                dense.append(self._start_dense(members))
        self._finish(sparse, dense)
        self.steps += 1
        self._exchanged = True

    def _agree(self) -> list[int]:
        mine = np.zeros(len(self._parameters), np.uint8)
        for i, p in enumerate(self._parameters):
            if p.grad is not None:
                mine[i] = _SPARSE if p.grad.is_sparse else _DENSE
        self.comm.mpi.Allreduce(mpi().module.IN_PLACE, mine, op=mpi().module.BOR)
        return [int(kind) for kind in mine]

    def _start_sparse(self, parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Request]:
        gradient = parameter.grad
        if gradient is None:
            # Rows of the last dimensions are what embeddings have; the other ranks' blocks decide, ours are none.
            gradient = torch.sparse_coo_tensor(
                torch.empty((1, 0), dtype=torch.int64), parameter.new_empty((0, *parameter.shape[1:])), parameter.shape
            )
        stream = to_stream(gradient)
        return parameter, gradient, self.comm.iallreduce(stream, stream)

    def _start_dense(self, members: Sequence[tuple[torch.Tensor, int]]) -> tuple[Step, list[tuple[torch.Tensor, torch.Tensor]]]:
        group = self._group(tuple(self._names[id(p)] for p, _ in members))
        gradients = [self._dense_gradient(p, kind) for p, kind in members]
        step = group.start(gradients)
        return step, [(p, g) for (p, kind), g in zip(members, gradients) if kind & _DENSE]

    def _dense_gradient(self, parameter: torch.Tensor, kind: int) -> torch.Tensor:
        """Contiguous memory: the gradient's own where that can be, zeros where there is none."""
        gradient = parameter.grad
        if gradient is None or not kind & _DENSE:
            return torch.zeros(parameter.shape, dtype=parameter.dtype)
        if gradient.is_sparse:
            return gradient.to_dense()
        return gradient if gradient.is_contiguous() else gradient.contiguous()

    def _finish(self, sparse: Any, dense: Any) -> None:
        failure: Optional[Exception] = None
        for step, pairs in dense:
            try:
                step.wait()
                for parameter, update in pairs:
                    if parameter.grad is not update:
                        parameter.grad = update.view(parameter.shape)
            except Exception as error:  # the rest is still to be completed: the others wait for this rank
                failure = failure or error
        for parameter, gradient, request in sparse:
            try:
                total = from_stream(request.wait(), parameter.shape, gradient.dense_dim())
                parameter.grad = total / self.comm.size if self._average else total
                self._sparse_stats[self._names[id(parameter)]] = request.stats
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # ---- groups ----

    def _find_fused(self) -> dict[str, tuple[str, ...]]:
        """Names of small parameters that no rule is for, with the names of those that they are fused with."""
        by_type: dict[torch.dtype, list[str]] = {}
        for p in self._parameters:
            name = self._names[id(p)]
            if p.numel() < self._small and self._chooser.number(name, p) < 0:
                by_type.setdefault(p.dtype, []).append(name)
        return {name: tuple(names) for names in by_type.values() for name in names}

    def _group(self, names: tuple[str, ...]) -> Group:
        if names not in self._groups:
            parameters = [self._by_name[name] for name in names]
            rule = _FUSED if names[0] in self._fused else self._chooser.number(names[0], parameters[0])
            members = [Member(name, p.numel()) for name, p in zip(names, parameters)]
            self._make_group(0, parameters[0].dtype, members, rule).feed(self._kept)
        return self._groups[names]

    def _make_group(self, bucket: int, dtype: Any, members: Sequence[Member], rule: int) -> Group:
        general = self._chooser.general
        fused = {"algorithm": "dense", **{name: general[name] for name in ("average", "clip") if name in general}}
        options = fused if rule == _FUSED else self._chooser.options(rule)
        group = Group(self.comm, dtype, members, rule, options)
        self._groups[tuple(m.name for m in members)] = group
        return group

    def _all_groups(self) -> list[tuple[int, Group]]:
        return [(0, group) for group in self._groups.values()]

    def _drop_groups(self) -> None:
        for group in self._groups.values():
            group.reducer.free()
        self._groups.clear()

    @property
    def stats(self) -> dict[str, Stats]:
        """Of the last exchange: by the name of the parameter, or of the first of those that are fused."""
        return {**{names[0]: group.reducer.stats for names, group in self._groups.items()}, **self._sparse_stats}


def _numbered(parameters: Sequence[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    return [(f"parameter.{i}", p) for i, p in enumerate(parameters)]


@torch.no_grad()
def broadcast_parameters(module: torch.nn.Module, root: int = 0, comm: Any = None) -> None:
    """Gives all ranks the root's parameters and buffers, as DistributedDataParallel does when it is made. Collective."""
    from .._comm import world

    ranks = comm if comm is not None else world().mpi
    ranks = getattr(ranks, "mpi", ranks)
    for tensor in [*module.parameters(), *module.buffers()]:
        memory = tensor.detach().contiguous()
        ranks.Bcast(memory.view(-1).view(torch.uint8).numpy() if memory.numel() else np.empty(0, np.uint8), root=root)
        tensor.copy_(memory)
