"""The communication hook of DistributedDataParallel.

DDP calls the hook for each bucket of gradients as soon as the backward pass has filled it, in the same order on all ranks. The
hook starts the bucket's reducers and returns a future at once, so that the exchange goes on behind the rest of the backward
pass, see ``_progress.py``; the last bucket's hook completes all.

Gradients on a GPU go through page-locked memory of the host, see ``_staging.py``.

DDP lays out its buckets anew after the first backward pass. Reducers carry residuals from step to step, so the first
step is summed densely (``dense_steps``), and when the layout changes later residuals move with their parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

import torch
import torch.distributed as dist

from .._buffers import Type, type_of
from .._reducer import Step
from .._structs import Stats
from ._groups import Checkpointed, Chooser, Group, Member, Rules, default_comm, names_of
from ._progress import Job, Progress
from ._staging import Place, place_of

if TYPE_CHECKING:
    from .._structs import ReducerOptions, Unpack


class _Bucket:
    """The groups of one of DDP's buckets: one, or one for each rule."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.key: tuple[Any, ...] = ()  # name, size and rule of each parameter; () while it was only loaded
        self.places: list[list[int]] = []  # which parameters of the bucket each group has
        self.job: Optional[_BucketJob] = None
        self._kept: tuple[Any, ...] = ()  # what the job is for, so that nothing else gets its address or ids
        self._address, self._dtype, self._ids = 0, torch.float32, [0]

    def arrange(self, key: tuple[Any, ...], kind: Type) -> bool:
        """Takes parameters in this order; False if its groups are not made for them."""
        if not self.groups or any(group.reducer.type is not kind for group in self.groups):
            return False
        if self.key == key:
            return True
        places = [[i for i, (_, _, rule) in enumerate(key) if rule == group.rule] for group in self.groups]
        for group, place in zip(self.groups, places):
            if group.members != [Member(*key[i][:2]) for i in place]:
                return False
        if sum(len(place) for place in places) != len(key):
            return False
        self.key, self.places = key, places
        return True

    def holds(self, buffer: torch.Tensor, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether these are its memory and its parameters as they were in the last step. This is all that a step usually has to look at: the
        backward pass has driven Python's objects out of the caches, where each that is touched costs a tenth of a microsecond and more."""
        return self._address == buffer.data_ptr() and self._dtype is buffer.dtype and self._ids == [*map(id, parameters)]

    def bind(self, buffer: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
        """Takes this memory, and parameters that it is arranged for."""
        place = place_of(buffer)
        if len(self.groups) == 1:
            steps = [self.groups[0].prepare([place.memory])]
        else:
            parts = place.memory.split([count for _, count, _ in self.key])
            steps = [group.prepare([parts[i] for i in own]) for group, own in zip(self.groups, self.places)]
        self.job = _BucketJob(steps, place)
        self._kept = (buffer, parameters)
        self._address, self._dtype, self._ids = buffer.data_ptr(), buffer.dtype, [*map(id, parameters)]


class _BucketJob(Job):
    """The exchange of a bucket, in each step anew."""

    def __init__(self, steps: Sequence[Step], place: Place) -> None:
        super().__init__(steps)
        self._steps, self._place = steps, place

    def start(self, buffer: torch.Tensor) -> Any:
        """A future of the bucket's mean."""
        self._place.fetch(buffer)
        for step in self._steps:
            step.start()
        self.begin()
        self._buffer, self.future = buffer, self._place.future()
        return self.future

    def finished(self, failure: Optional[Exception]) -> None:
        if failure is None:
            try:
                self._place.deliver(self._buffer, self.future)
                return
            except Exception as error:
                failure = error
        self.future.set_exception(failure)


class State(Checkpointed):
    """What the hook keeps: ``ddp.register_comm_hook(rill.torch.State("oktopk", density=0.01), rill.torch.hook)``.

    algorithm: a method ("dense", "topk", "gtopk", "oktopk", "spardl", "s2", "topk+qsgd4", ...; see ``rill.method``), or "auto".
    density: share of each bucket's entries that is sent in a step. value_bits: 0 raw, 16, 8, 4 or 2.
    rules: other options for some parameters, the first that fits: ``{"*.bias": "dense", "embed*": {"density": 0.001}}``, or pairs whose
    first part may be a function of name and parameter. Needs ``module``.
    small: parameters of fewer values that no rule is for are summed densely.
    module: the model, for the names of its parameters; rules and checkpoints need them.
    dense_steps: steps at the start that are summed densely; at least one is due to DDP, see above.
    overlap: "thread", "hook", or "auto", which is "thread" where MPI has MPI_THREAD_MULTIPLE and there are several hosts or cores to spare.
    comm: a rill.Comm or an mpi4py communicator with the ranks of DDP's process group.
    Other keywords are options of the reducers: ``momentum=``, ``clip=``, ``warmup_steps=``, ``select=``, ...
    """

    def __init__(
        self,
        algorithm: Optional[str] = None,
        *,
        density: Optional[float] = None,
        value_bits: Optional[int] = None,
        rules: Optional[Rules] = None,
        small: int = 0,
        module: Optional[torch.nn.Module] = None,
        dense_steps: int = 1,
        overlap: str = "auto",
        comm: Any = None,
        **options: Unpack[ReducerOptions],
    ) -> None:
        if rules and module is None:
            raise ValueError("rules need the names of the parameters: give module=model")
        self._progress = Progress(overlap)
        general = {"algorithm": algorithm, "density": density, "value_bits": value_bits, **options}
        self.comm = default_comm(comm)
        self._check_size = comm is None
        self.steps = 0  # backward passes so far
        self._chooser = Chooser(general, rules, small)
        self._names = names_of(module.named_parameters()) if module is not None else {}
        self._dense_steps = dense_steps
        self._buckets: dict[int, _Bucket] = {}
        self._dense_buckets: dict[int, _Bucket] = {}
        self._described: dict[int, tuple[str, int, int]] = {}
        self._kept = {}

    # ---- the hook ----

    def reduce_bucket(self, bucket: Any) -> Any:
        """Starts the exchange of a bucket; a future of its mean."""
        buffer, index, parameters = bucket.buffer(), bucket.index(), bucket.parameters()
        if index == 0:
            self._begin_step()
        found = (self._dense_buckets if self.steps < self._dense_steps else self._buckets).get(index)
        if found is None or not found.holds(buffer, parameters):
            found = self._bucket(index, buffer, parameters)
            found.bind(buffer, parameters)
            self._progress.choose(self.comm, torch.get_num_threads() if buffer.device.type == "cpu" else 1)
        job = found.job
        assert job is not None
        last = bucket.is_last()
        future = job.start(buffer)
        self._progress.add(job, last)
        if last:
            self._progress.complete()
            self.steps += 1
        return future

    def _begin_step(self) -> None:
        if self._check_size and self.steps == 0 and dist.is_initialized() and dist.get_world_size() != self.comm.size:
            raise RuntimeError(f"the process group has {dist.get_world_size()} ranks, the communicator {self.comm.size}")
        self._settle()
        self._follow_rate()

    def _settle(self) -> None:
        """All steps are complete: those of a backward pass that was broken off as well. DDP has the failures."""
        self._progress.complete()

    # ---- buckets ----

    def _describe(self, parameter: torch.Tensor, dense: bool) -> tuple[str, int, int]:
        """Name, size and rule."""
        known = self._described.get(id(parameter))
        if known is None:
            name = self._names.get(id(parameter), f"#{id(parameter)}")
            known = (name, parameter.numel(), self._chooser.number(name, parameter))
            self._described[id(parameter)] = known
        return (*known[:2], -1) if dense else known

    def _bucket(self, index: int, buffer: torch.Tensor, parameters: Sequence[torch.Tensor]) -> _Bucket:
        dense = self.steps < self._dense_steps
        buckets = self._dense_buckets if dense else self._buckets
        key = tuple(self._describe(p, dense) for p in parameters)
        found = buckets.get(index)
        if found is not None and found.arrange(key, type_of(buffer.dtype)):
            return found
        # Making a reducer is collective; with nothing under way there is nothing that it could wait for.
        self._settle()
        if dense:
            return self._make_dense(index, buffer, key)
        self._dense_buckets.clear()
        self._collect(index)
        for rule in dict.fromkeys(rule for _, _, rule in key):
            members = [Member(name, count) for name, count, own in key if own == rule]
            self._make_group(index, buffer.dtype, members, rule)
        made = self._buckets[index]
        made.arrange(key, type_of(buffer.dtype))
        for group in made.groups:
            group.feed(self._kept)
        return made

    def _make_dense(self, index: int, buffer: torch.Tensor, key: tuple[Any, ...]) -> _Bucket:
        members = [Member(name, count) for name, count, _ in key]
        made = self._dense_buckets[index] = _Bucket()
        made.groups.append(Group(self.comm, buffer.dtype, members, -1, self._chooser.dense_options()))
        made.arrange(key, type_of(buffer.dtype))
        return made

    def _collect(self, index: int) -> None:
        """The layout has changed: residuals of the buckets from here on wait for the parameters' new buckets. Buckets before
        were found unchanged or made anew in this step."""
        for number in [n for n in self._buckets if n >= index]:
            for group in self._buckets.pop(number).groups:
                for name, part in group.residuals().items():
                    self._kept[name] = self._kept[name] + part if name in self._kept else part
                group.reducer.free()

    # ---- checkpoints ----

    def _all_groups(self) -> list[tuple[int, Group]]:
        return [(index, group) for index, bucket in sorted(self._buckets.items()) for group in bucket.groups]

    def _drop_groups(self) -> None:
        for _, group in self._all_groups():
            group.reducer.free()
        self._buckets.clear()

    def _make_group(self, bucket: int, dtype: Any, members: Sequence[Member], rule: int) -> Group:
        group = Group(self.comm, dtype, members, rule, self._chooser.options(rule))
        self._buckets.setdefault(bucket, _Bucket()).groups.append(group)
        return group

    @property
    def stats(self) -> list[Stats]:
        """Of the last step: one for each reducer, in the order of the buckets."""
        self._settle()
        buckets = self._buckets or self._dense_buckets
        return [group.reducer.stats for _, bucket in sorted(buckets.items()) for group in bucket.groups]


def hook(state: State, bucket: Any) -> Any:
    """The function for ``ddp.register_comm_hook(state, hook)``."""
    return state.reduce_bucket(bucket)


# DDP of PyTorch 2 checks these annotations, and they must be objects.
hook.__annotations__ = {"state": State, "bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
