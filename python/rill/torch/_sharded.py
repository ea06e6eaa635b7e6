"""FSDP2: the shards' gradients are averaged over replicas by rill.

PyTorch's own all-reduce between replicas, under a mesh of two dimensions, runs before the hook of
``set_all_reduce_hook`` and can't be left out. So modules are sharded on one dimension, and the hook
averages over the other one, in place. Each module of ``fully_shard`` has a hook of its own: its
parameters are one flat tensor.

That tensor has only the parameters that had gradients, one after the other, and no list of them.
Hooks on the unsharded parameters record them. The reducer is for all parameters of the module that
are not frozen: a missing one counts as zero, and what the ranks send of it goes back to the
residuals.

A step that is void in one module (a gradient was not finite) is void as a whole, on all shards:
when the backward pass ends the other reducers take their updates back, and all gradients are NaN.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist

from .._comm import Comm
from ._ddp import look_around
from ._groups import default_comm
from ._hook import State
from ._jobs import BucketJob
from ._move import forget
from ._tensors import allreduce

_KINDS = ("residuals", "momenta")  # in a state_dict, by parameter


def _is_sharded(module: Any) -> bool:
    """By fully_shard. Who has called that has imported it."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(fsdp, "FSDPModule", None)  # since PyTorch 2.6
    return kind is not None and isinstance(module, kind)


def replicas_of(module: Any, replicas: Any, comm: Any) -> Comm:
    """The ranks that have the same shards."""
    if not any(_is_sharded(part) for part in module.modules()):
        raise TypeError(
            f"a {type(module).__name__} can't be attached: DistributedDataParallel, or "
            f"modules of fully_shard, are needed"
        )
    for unit in _units(module):
        if unit.param_group._is_hsdp:
            raise ValueError(
                "the module is sharded on a mesh of two dimensions, whose all-reduce "
                "between replicas is PyTorch's own and can't be left out: "
                'shard with fully_shard(module, mesh=mesh["shard"]) and give attach(..., '
                'replicas=mesh["replicate"])'
            )
    if comm is not None:
        return default_comm(comm)
    if replicas is None:
        raise ValueError(
            "modules of fully_shard need the ranks that have the same shards: attach(..., "
            'replicas=mesh["replicate"])'
        )
    return default_comm(_group_of(replicas))


def _group_of(replicas: Any) -> Any:
    """Of a mesh of one dimension, or a process group itself."""
    return replicas.get_group() if hasattr(replicas, "get_group") else replicas


def attach_sharded(
    module: Any, algorithm: str, replicas: Any, comm: Comm, options: Any
) -> "ShardedState":
    options = {**options, "dense_steps": options.get("dense_steps", 0)}
    state = ShardedState(algorithm, comm=comm, **options)
    state.group = _group_of(replicas)
    module._rill_state = state
    return state


def detach_sharded(module: Any) -> None:
    module._rill_state.remove()
    del module._rill_state


class _Unit:
    """One module of fully_shard."""

    def __init__(self, module: Any, param_group: Any) -> None:
        self.module, self.param_group = module, param_group
        self.had_gradients: set[int] = set()  # ids of parameters, since the last exchange
        self.handles: list[Any] = []
        self.watched: set[int] = set()  # ids of parameters
        self.parameters: list[Any] = []  # those that are not frozen
        self.counts: list[int] = []
        self.memory: Optional[torch.Tensor] = None  # of these
        self.look()

    @property
    def all_parameters(self) -> Sequence[Any]:
        parameters: Sequence[Any] = self.param_group.fsdp_params
        return parameters

    def look(self) -> None:
        """Which parameters are frozen may change from step to step."""
        trained = [
            p
            for p in self.all_parameters
            if p.sharded_param.requires_grad or id(p) in self.had_gradients
        ]
        if [*map(id, trained)] != [*map(id, self.parameters)]:
            self.parameters, self.memory = trained, None
            self.counts = [p.padded_sharded_param_size.numel() for p in trained]

    def watch(self, *_: Any) -> None:
        """Before forward: unsharded parameters are made at the first one, and stay."""
        for parameter in self.all_parameters:
            unsharded = getattr(parameter, "_unsharded_param", None)
            if (
                id(parameter) not in self.watched
                and unsharded is not None
                and unsharded.requires_grad
            ):
                note = functools.partial(self._note, id(parameter))
                self.handles.append(unsharded.register_post_accumulate_grad_hook(note))
                self.watched.add(id(parameter))

    def _note(self, parameter: int, _: torch.Tensor) -> None:
        self.had_gradients.add(parameter)

    def present(self, flat: torch.Tensor) -> list[int]:
        """Numbers of the parameters that the flat tensor has."""
        counts, everyone = self.counts, list(range(len(self.counts)))
        numbers = [n for n in everyone if id(self.parameters[n]) in self.had_gradients]
        if getattr(self.param_group, "reduce_scatter_unused_params", False):
            numbers = everyone
        if sum(counts[n] for n in numbers) != flat.numel():
            numbers = everyone
        if sum(counts[n] for n in numbers) != flat.numel():
            raise RuntimeError(
                f"{type(self.module).__name__} brings a gradient of {flat.numel()} values, "
                f"its parameters have others: {counts}"
            )
        return numbers


def _units(module: Any) -> list[_Unit]:
    found = []
    for part in module.modules():
        if not _is_sharded(part):
            continue
        state = part._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
        if len(groups) > 1:
            raise ValueError("modules with several meshes (shard_placement_fn) can't be attached")
        found += [_Unit(part, group) for group in groups]
    return found


class ShardedState(State):
    """What the hooks of a module of FSDP2 keep; made by ``attach``. ``state_dict`` has this
    shard's residuals as DTensors, for torch.distributed.checkpoint."""

    def __init__(self, algorithm: Any, *, module: Any, comm: Comm, **options: Any) -> None:
        super().__init__(algorithm, module=module, comm=comm, **options)
        self._units = _units(module)
        self._known: dict[str, Any] = {}
        for index, unit in enumerate(self._units):
            for parameter in unit.all_parameters:
                self._known[self._names[id(parameter.sharded_param)]] = parameter
            hook = _hook_of(weakref.ref(self), index)
            unit.module.set_all_reduce_hook(hook)
            unit.handles.append(unit.module.register_forward_pre_hook(unit.watch))
        self._counts = {
            name: parameter.padded_sharded_param_size.numel()
            for name, parameter in self._known.items()
            if parameter.sharded_param.requires_grad
        }
        self._begun = False
        self.group: Any = None  # PyTorch's, of the replicas

    def remove(self) -> None:
        """Replicas are averaged by PyTorch from now on: without it they would part ways."""

        group, comm = self.group, self.comm

        def average(flat: torch.Tensor) -> None:
            if group is None:  # attach had a communicator alone
                flat.copy_(allreduce(flat, "mean", comm=comm, algorithm="dense"))
                return
            dist.all_reduce(flat, group=group)
            flat.div_(group.size())

        for unit in self._units:
            unit.param_group._all_reduce_hook = average
            for handle in unit.handles:
                handle.remove()

    # ---- the hook ----

    def reduce_shard(self, index: int, flat: torch.Tensor) -> None:
        """Replaces this shard's gradients of a module by their mean over the replicas."""
        unit = self._units[index]
        unit.look()
        numbers = unit.present(flat)
        unit.had_gradients.clear()
        if not self._begun:
            self._begin()
        if unit.memory is None or unit.memory.dtype is not flat.dtype:
            unit.memory = torch.zeros(sum(unit.counts), dtype=flat.dtype, device=flat.device)
        parts = unit.memory.split(unit.counts)
        if len(numbers) < len(parts):
            unit.memory.zero_()
        given = flat.split([unit.counts[n] for n in numbers])
        for number, part in zip(numbers, given):
            parts[number].copy_(part)
        job = self._ready(index, unit.memory, [p.sharded_param for p in unit.parameters])
        job.start(unit.memory)
        self._fly(job, last=True)
        self._progress.complete()
        if job.failure is not None:
            raise job.failure
        for number, part in zip(numbers, given):
            part.copy_(parts[number])
        if len(numbers) < len(parts) and not job.voided():
            self._return_missing(job, unit, set(numbers))

    def _return_missing(self, job: BucketJob, unit: _Unit, present: set[int]) -> None:
        """What was sent of parameters that nobody steps here goes back. Replicas must agree, so a
        parameter is missing on all of them or on none, as with PyTorch's own all-reduce."""
        names = {self._names[id(unit.parameters[n].sharded_param)] for n in present}
        for flight in job.flights:
            first = 0
            for member, part in zip(flight.group.members, flight.parts):
                if member.name not in names and part.any():
                    flight.group.reducer.give_back(first, part)
                    part.zero_()
                first += member.count

    def _begin(self) -> None:
        self._settle()
        self._flying.clear()
        forget(group for _, group in self._all_groups())
        if not self._looked:
            self._looked = True
            _, optimizers = look_around(self._units[0].parameters[0].sharded_param, self._module())
            self._see(optimizers)
        if self._attached is not None:
            self._attached.keep()
        self._follow()
        self._begun = True
        engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
        # Behind what FSDP has queued for the end of the pass.
        engine.queue_callback(lambda: engine.queue_callback(self._end))

    def _end(self) -> None:
        """The backward pass is complete."""
        self._begun = False
        dense = self.steps < self._dense_steps
        self.steps += 1
        jobs = self._flying
        if not jobs or not self._somewhere(any([job.voided() for job in jobs])):
            return
        for job in jobs:
            for flight in job.flights:
                if not dense and not flight.group.reducer._voided():
                    flight.give_back()
        for unit in self._units:
            for parameter in unit.parameters:
                if parameter.sharded_param.grad is not None:
                    parameter.sharded_param.grad._local_tensor.fill_(float("nan"))

    def _somewhere(self, void: bool) -> bool:
        """On one of the shards."""
        group = self._units[0].param_group._reduce_scatter_process_group
        if group.size() == 1:
            return void
        flag = torch.tensor([float(void)], device=self._units[0].param_group.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=group)
        return bool(flag.item())

    def _describe(self, parameter: torch.Tensor, dense: bool) -> tuple[str, int, int]:
        """The rule is that of the whole parameter, the size this shard's."""
        known = self._described.get(id(parameter))
        if known is None:
            name = self._names[id(parameter)]
            count = self._known[name].padded_sharded_param_size.numel()
            known = (name, count, self._chooser.number(name, parameter))
            self._described[id(parameter)] = known
        return (*known[:2], -1) if dense else known

    def _collect(self, index: int) -> None:
        """Modules keep their parameters; only their type may change."""
        if index in self._buckets:
            self._move_to_kept(self._buckets.pop(index))

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        for kind in _KINDS:
            if kind in state:
                parts = state[kind].items()
                state[kind] = {name: self._sharded(name, part) for name, part in parts}
        return state

    state_dict.__doc__ = State.state_dict.__doc__

    def _sharded(self, name: str, part: torch.Tensor) -> Any:
        parameter = self._known[name]
        own = part[: parameter.sharded_size.numel()].reshape(parameter.sharded_size)
        return parameter.to_sharded_dtensor(own.to(parameter.sharded_param.device))

    def load_state_dict(self, state: Any) -> None:
        flat = {kind: self._flat(state[kind]) for kind in _KINDS if kind in state}
        super().load_state_dict({**state, **flat})

    load_state_dict.__doc__ = State.load_state_dict.__doc__

    def _flat(self, parts: Any) -> dict[str, torch.Tensor]:
        flat = {}
        for name, part in parts.items():
            own = part.to_local() if hasattr(part, "to_local") else part
            flat[name] = torch.zeros(self._known[name].padded_sharded_param_size.numel())
            flat[name][: own.numel()] = own.reshape(-1).to("cpu", torch.float32)
        return flat

    def save(self, folder: Any) -> None:
        """Not for shards: their files would be one over the other."""
        raise NotImplementedError(
            "modules of FSDP2: torch.distributed.checkpoint saves state_dict()"
        )

    load = save


def _hook_of(state: Any, index: int) -> Callable[[torch.Tensor], None]:
    def hook(flat: torch.Tensor) -> None:
        living = state()
        if living is not None:
            living.reduce_shard(index, flat)

    return hook
