"""The communication hook of DistributedDataParallel.

DDP calls the hook for each bucket of gradients as soon as the backward pass has filled it, in the
same order on all ranks. The hook starts the bucket's reducers and returns a future at once, so that
the exchange goes on behind the rest of the backward pass, see ``_progress.py``; the last bucket's
hook completes all.

Gradients on a CUDA device stay there, see ``_device.py``. Where librill can't work there they go
through page-locked memory of the host, see ``_staging.py``.

DDP lays out its buckets anew after the first backward pass. Reducers carry residuals from step to
step, so the first step is summed densely (``dense_steps``), and when the layout changes later
residuals move with their parameters. After ``load`` the first backward pass is for reducers of the
later layout: its gradients wait for the last bucket, and go to them from wherever they lie.

A gradient that is sparse has a bucket of its own; it is summed exactly, as blocks of rows, and has
no residual.

A step that is void in one of its reducers (a gradient was not finite) is void as a whole, as an
optimizer skips it as a whole: the other reducers take their updates back, and all gradients are
NaN. What DDP drops is taken back as well, see ``_ddp.py``.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence

import torch
import torch.distributed as dist
from .._buffers import type_of
from .._comm import Comm
from .._structs import Stats
from ._ddp import (
    Wrapper,
    after_backward,
    counts_of,
    look_around,
    named_parameters,
    warn_of_adam,
)
from ._device import Devices
from ._follow import Followed
from ._groups import Checkpointed, Flight, Group, Member, add_to, default_comm
from ._jobs import AnyJob, Bucket, BucketJob, HeldJob, SparseJob
from ._move import forget, move
from ._progress import Progress
from ._rules import Chooser, Rules

if TYPE_CHECKING:
    from .._names import Overlap, ShortMethod, ValueBits
    from .._structs import TensorOptions, Unpack
    from ._attach import Attached


class State(Checkpointed):
    """What the hook keeps: ``ddp.register_comm_hook(rill.torch.State("oktopk", density=0.01),
    rill.torch.hook)``.

    algorithm: a method ("dense", "topk", "gtopk", "oktopk", "spardl", "s2", "topk+qsgd4", ...; see
    ``rill.method``), or "auto". density: share of each bucket's entries that is sent in a step.
    value_bits: 0 raw, 16, 8, 4 or 2. rules: other options for some parameters, the first that fits:
    ``{"*.bias": "dense", "embed*": {"density": 0.001}}``, or pairs whose first part may be a
    function of name and parameter. Needs ``module``. small: parameters of fewer values that no rule
    is for are summed densely. module: the model, or its DistributedDataParallel, for the names of
    its parameters; rules and checkpoints need them. dense_steps: steps at the start that are summed
    densely; at least one is due to DDP, see above. overlap: "thread", "hook", or "auto", which is
    "thread" where MPI has MPI_THREAD_MULTIPLE and there are several hosts or cores to spare. comm:
    a rill.Comm or an mpi4py communicator with the ranks of DDP's process group. Other keywords are
    options of the reducers: ``momentum=``, ``clip=``, ``warmup_steps=``, ``select=``,
    ``nonfinite=``, ...

    Collective: options are checked, and must be the same on all ranks.
    """

    def __init__(
        self,
        algorithm: Optional[ShortMethod] = None,
        *,
        density: Optional[float] = None,
        value_bits: Optional[ValueBits] = None,
        rules: Optional[Rules] = None,
        small: int = 0,
        module: Optional[torch.nn.Module] = None,
        dense_steps: int = 1,
        overlap: Overlap = "auto",
        comm: Any = None,
        **options: Unpack[TensorOptions],
    ) -> None:
        self.comm = default_comm(comm)
        general: dict[str, Any] = dict(algorithm=algorithm, density=density, value_bits=value_bits)
        general.update(options)

        def check() -> None:
            self._progress = Progress(self.comm, overlap)
            self._overlap = overlap
            if rules and module is None:
                raise ValueError("rules need the names of the parameters: give module=model")

        own = ("rules", "small", "module", "dense_steps", "overlap", "comm")
        self._chooser = Chooser.agreed(self.comm, general, rules, small, own, check)
        self._check_size = comm is None
        self.steps = 0  # backward passes so far
        named = named_parameters(module)
        self._names = {id(p): name for name, p in named.items()}
        self._counts = counts_of(module)
        if self.comm.rank == 0 and module is not None:
            self._chooser.warn_of_unmatched(named)
        self._module: Any = weakref.ref(module) if module is not None else lambda: None
        self._dense_steps = dense_steps
        self._buckets: dict[int, Bucket] = {}
        self._dense_buckets: dict[int, Bucket] = {}
        self._described: dict[int, tuple[str, int, int]] = {}
        self._kept, self._kept_momenta = {}, {}
        self._followed = Followed()
        self._loaded = False  # whether the next step is the first after load
        self._held: Optional[HeldJob] = None
        self._flying: list[AnyJob] = []  # jobs of this step
        self._devices = Devices(self.comm, self._chooser.all_options())
        self._sparse_stats: dict[int, Stats] = {}
        self._first = False  # whether this is the first backward pass of a model's wrapper
        self._looked, self._warned = False, not self._chooser.is_sparse()
        self._wrapper: Optional[Wrapper] = None
        # Of a step whose unused parameters are not yet known.
        self._due: Optional[Callable[[], None]] = None
        self._attached: Optional[Attached] = None  # by rill.torch.attach

    def __repr__(self) -> str:
        options = " ".join(f"{name}={value}" for name, value in self._chooser.shown().items())
        attached = "" if self._attached is None else self._attached.shown()
        return f"<rill.torch.{type(self).__name__} {options} ranks={self.comm.size}{attached}>"

    # ---- the hook ----

    def reduce_bucket(self, bucket: Any) -> Any:
        """Starts the exchange of a bucket; a future of its mean."""
        buffer, index, parameters = bucket.buffer(), bucket.index(), bucket.parameters()
        if index == 0:
            self._begin_step(parameters)
        last = bucket.is_last()
        job: AnyJob
        if buffer.is_sparse:
            job = self._start_sparse(index, buffer)
            future = job.future
        elif self._held is not None:
            future = self._held.hold(index, parameters, buffer, self._devices.known(buffer))
            return self._end_step(future) if last else future
        else:
            job = self._ready(index, buffer, parameters)
            future = job.start(buffer)
        self._fly(job, last and self._held is None)
        return self._end_step(future) if last else future

    def _fly(self, job: AnyJob, last: bool = False) -> None:
        self._flying.append(job)
        self._progress.add(job, last)

    def _ready(
        self, index: int, buffer: torch.Tensor, parameters: Sequence[torch.Tensor]
    ) -> BucketJob:
        found = (self._dense_buckets if self.steps < self._dense_steps else self._buckets).get(
            index
        )
        if found is None or not found.holds(buffer, parameters):
            found = self._bucket(index, buffer, parameters)
            found.bind(buffer, parameters)
            self._choose_progress(buffer)
        job = found.job
        assert job is not None
        return job

    def _choose_progress(self, buffer: torch.Tensor) -> None:
        alone = self._devices.known(buffer) is not None
        threads = torch.get_num_threads() if buffer.device.type == "cpu" else 1
        self._progress.choose(self.comm, threads, alone)

    def _start_sparse(self, index: int, buffer: torch.Tensor) -> SparseJob:
        self._choose_progress(buffer)
        return SparseJob(self.comm, index, buffer, self._chooser.general)

    def _begin_step(self, parameters: Sequence[torch.Tensor]) -> None:
        if (
            self._check_size
            and self.steps == 0
            and dist.is_initialized()
            and dist.get_world_size() != self.comm.size
        ):
            raise RuntimeError(
                f"the process group has {dist.get_world_size()} ranks, the communicator "
                f"{self.comm.size}"
            )
        self._settle()
        self._flying.clear()
        forget(group for _, group in self._all_groups())
        self._first = not self._looked
        if self._first:
            self._looked = True
            self._wrapper, optimizers = look_around(parameters[0], self._module())
            self._check_ranks()
            self._see(optimizers)
        if self._attached is not None:
            self._attached.keep()
        self._follow()
        self._held = HeldJob() if self._loaded and self.steps >= self._dense_steps else None

    def _check_ranks(self) -> None:
        ranks = None if self._wrapper is None else self._wrapper.ranks()
        if ranks not in (None, self.comm.size):
            raise RuntimeError(
                f"the process group of the DistributedDataParallel has {ranks} ranks, the "
                f"communicator {self.comm.size}: give comm=ddp.process_group"
            )

    def _end_step(self, future: Any) -> Any:
        """All buckets are here."""
        if self._held is not None:
            self._start_held()
        self._progress.complete()
        jobs = self._flying
        dense = self.steps < self._dense_steps
        for job in jobs:
            if job.failure is not None:
                raise job.failure
        self.steps += 1
        self._sparse_stats = {job.index: job.stats for job in jobs if isinstance(job, SparseJob)}
        void = any([job.voided() for job in jobs])
        if void:
            for job in jobs:
                for flight in job.flights:
                    if not dense and not flight.group.reducer._voided():
                        flight.give_back()
            for job in jobs:
                job.spoil()
        if not dense and self._wrapper is not None and self._wrapper.drops():
            self._see_to_unused([flight for job in jobs for flight in job.flights], void)
        if self._first:
            self._release_buckets()
        return future

    def _release_buckets(self) -> None:
        """DDP makes its buckets anew after the first backward pass. The first ones would lie beside
        them as long as somebody holds them."""
        for bucket in (*self._buckets.values(), *self._dense_buckets.values()):
            bucket.release()
        self._flying.clear()

    def _see_to_unused(self, flights: list[Flight], void: bool) -> None:
        def see(joined: bool = False) -> None:
            assert self._wrapper is not None
            own = [f for f in flights if not (void and f.group.reducer._voided())]
            self._wrapper.return_unused(own, void, joined)

        if not after_backward(see):
            self._due = lambda: see(joined=True)

    def _settle(self) -> None:
        """All steps are complete: those of a backward pass that was broken off as well. DDP has the
        failures."""
        self._progress.complete()
        if self._due is not None and self._wrapper is not None:
            due, self._due = self._due, None
            due()

    # ---- the first step after load ----

    def _start_held(self) -> None:
        held, self._held, self._loaded = self._held, None, False
        assert held is not None
        if not held.buckets:
            return
        self._choose_progress(held.buckets[0][2])
        flights = self._held_flights(held)
        if flights is not None:
            held.start(flights)
            self._fly(held, last=True)
            return
        # The parameters or their rules are others: residuals go where they fit.
        for index, parameters, buffer, place, future in held.buckets:
            made = self._bucket(index, place.memory, parameters)
            made.bind(place.memory, parameters)
            job = HeldJob()
            job.buckets.append((index, parameters, buffer, place, future))
            assert made.job is not None
            job.start(list(made.job.flights))
            self._fly(job)

    def _held_flights(self, held: HeldJob) -> Optional[list[Flight]]:
        """Each loaded group with its members, wherever they are; None if they are not all there, or
        others are."""
        where = {}
        for _, parameters, _, place, _ in held.buckets:
            for parameter, part in zip(
                parameters, place.memory.split([p.numel() for p in parameters])
            ):
                name, _, rule = self._describe(parameter, False)
                where[name] = parameter, part, rule
        flights = []
        for _, group in self._all_groups():
            found = [where.pop(member.name, None) for member in group.members]
            for member, one in zip(group.members, found):
                if (
                    one is None
                    or one[1].numel() != member.count
                    or one[2] != group.rule
                    or type_of(one[1].dtype) is not group.reducer.type
                ):
                    return None
            flights.append(
                Flight(group, [one[1] for one in found if one], [one[0] for one in found if one])
            )
        return None if where else flights

    def _device_of(self, name: str) -> Optional[torch.device]:
        module = self._module()
        for parameter in module.parameters() if module is not None else ():
            if self._names.get(id(parameter)) == name:
                return self._devices.of(parameter)
        return None

    def load(self, folder: "os.PathLike[str] | str") -> None:
        super().load(folder)
        self._loaded = bool(self._buckets)

    load.__doc__ = Checkpointed.load.__doc__

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self._loaded = False

    load_state_dict.__doc__ = Checkpointed.load_state_dict.__doc__

    def move(self, comm: Comm) -> bool:
        """Goes on on another communicator, after a PeerError: ``state.move(comm.shrink())``. What
        waits to be sent stays. True: repeat the step, forward and backward. False: another rank had
        completed it, and the parameters have its gradients: go on with the optimizer. PyTorch's own
        process group, and a DistributedDataParallel, have lost the rank as well: make new ones, and
        register this state there. Collective."""
        self._progress.complete()
        self._progress = Progress(comm, self._overlap)
        self._held, self._due = None, None
        groups = [group for _, group in self._all_groups()]
        # The same on all ranks, also on one that has let go of its flights.
        groups += [g for _, bucket in sorted(self._dense_buckets.items()) for g in bucket.groups]
        flights = [flight for job in self._flying for flight in job.flights]
        groups += [flight.group for flight in flights if flight.group not in groups]
        sums = any(isinstance(job, SparseJob) for job in self._flying)
        repeat = move(comm, self.steps, groups, flights, sums)
        if not repeat:
            self.steps += 1
        self.comm, self._check_size = comm, False
        self._devices.move(comm)
        self._dense_buckets.clear()
        self._flying.clear()
        self._looked, self._loaded = False, bool(self._buckets)
        return repeat

    # ---- optimizers ----

    def follow(self, what: Any) -> None:
        super().follow(what)
        self._warn_of([what])

    follow.__doc__ = Checkpointed.follow.__doc__

    def _see(self, optimizers: Sequence[Any]) -> None:
        """Before the first step: these have the parameters."""
        if self._attached is not None:
            self._attached.look(self, optimizers)
        self._warn_of(optimizers)

    def _warn_of(self, optimizers: Sequence[Any]) -> None:
        if not self._warned and self.comm.rank == 0:
            where = "State" if self._attached is None else "attach"
            self._warned = warn_of_adam(optimizers, self._chooser.general, where)

    # ---- buckets ----

    def _describe(self, parameter: torch.Tensor, dense: bool) -> tuple[str, int, int]:
        """Name, size and rule."""
        known = self._described.get(id(parameter))
        if known is None:
            name = self._names.get(id(parameter), f"#{id(parameter)}")
            known = (name, parameter.numel(), self._chooser.number(name, parameter))
            self._described[id(parameter)] = known
        return (*known[:2], -1) if dense else known

    def _bucket(
        self, index: int, buffer: torch.Tensor, parameters: Sequence[torch.Tensor]
    ) -> Bucket:
        dense = self.steps < self._dense_steps
        buckets = self._dense_buckets if dense else self._buckets
        key = tuple(self._describe(p, dense) for p in parameters)
        found = buckets.get(index)
        if found is not None and found.arrange(key, type_of(buffer.dtype)):
            return found
        # Making a reducer is collective; with nothing under way there is nothing that it could wait
        # for.
        self._settle()
        if dense:
            return self._make_dense(index, buffer, key)
        self._dense_buckets.clear()
        self._collect(index)
        for rule in dict.fromkeys(rule for _, _, rule in key):
            members = [Member(name, count) for name, count, own in key if own == rule]
            self._make_group(index, buffer.dtype, members, rule, self._devices.of(buffer))
        made = self._buckets[index]
        made.arrange(key, type_of(buffer.dtype))
        for group in made.groups:
            group.feed(self._kept, self._kept_momenta)
        return made

    def _make_dense(self, index: int, buffer: torch.Tensor, key: tuple[Any, ...]) -> Bucket:
        members = [Member(name, count) for name, count, _ in key]
        made = self._dense_buckets[index] = Bucket()
        options, device = self._chooser.dense_options(), self._devices.of(buffer)
        made.groups.append(Group(self.comm, buffer.dtype, members, -1, options, device))
        made.arrange(key, type_of(buffer.dtype))
        return made

    def _collect(self, index: int) -> None:
        """The layout has changed: residuals of the buckets from here on wait for the parameters'
        new buckets. Buckets before were found unchanged or made anew in this step."""
        for number in [n for n in self._buckets if n >= index]:
            self._move_to_kept(self._buckets.pop(number))

    def _move_to_kept(self, bucket: Bucket) -> None:
        for group in bucket.groups:
            add_to(self._kept, group.residuals())
            add_to(self._kept_momenta, group.momenta())
            group.reducer.free()

    # ---- checkpoints ----

    def _all_groups(self) -> list[tuple[int, Group]]:
        return [
            (index, group)
            for index, bucket in sorted(self._buckets.items())
            for group in bucket.groups
        ]

    def _drop_groups(self) -> None:
        for _, group in self._all_groups():
            group.reducer.free()
        self._buckets.clear()

    def _add_group(self, bucket: int, group: Group) -> None:
        self._buckets.setdefault(bucket, Bucket()).groups.append(group)

    @property
    def stats(self) -> list[Stats]:
        """Of the last step: one for each reducer, in the order of the buckets."""
        self._settle()
        buckets = self._buckets or self._dense_buckets
        by_index = {
            index: [group.reducer.stats for group in bucket.groups]
            for index, bucket in buckets.items()
        }
        by_index.update((index, [stats]) for index, stats in self._sparse_stats.items())
        return [stats for _, several in sorted(by_index.items()) for stats in several]


def hook(state: State, bucket: Any) -> Any:
    """The function for ``ddp.register_comm_hook(state, hook)``."""
    return state.reduce_bucket(bucket)


# DDP of PyTorch 2 checks these annotations, and they must be objects.
hook.__annotations__ = {
    "state": State,
    "bucket": dist.GradBucket,
    "return": torch.futures.Future[torch.Tensor],
}
