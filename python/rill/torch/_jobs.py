"""Buckets of DistributedDataParallel and their exchanges; the hook is in ``_hook.py``."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Union

import torch

from .._buffers import Type
from .._comm import Comm
from .._steps import Step
from ._groups import Flight, Group, Member
from ._progress import Job
from ._staging import Place, place_of
from ._tensors import from_stream, to_stream


class Bucket:
    """The groups of one of DDP's buckets: one, or one for each rule."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.key: tuple[
            Any, ...
        ] = ()  # name, size and rule of each parameter; () while it was only loaded
        self.places: list[list[int]] = []  # which parameters of the bucket each group has
        self.job: Optional[BucketJob] = None
        self._kept: tuple[
            Any, ...
        ] = ()  # what the job is for, so that nothing else gets its address or ids
        self._address, self._dtype, self._ids = 0, torch.float32, [0]

    def arrange(self, key: tuple[Any, ...], kind: Type) -> bool:
        """Takes parameters in this order; False if its groups are not made for them."""
        if not self.groups or any(group.reducer.type is not kind for group in self.groups):
            return False
        if self.key == key:
            return True
        places = [
            [i for i, (_, _, rule) in enumerate(key) if rule == group.rule] for group in self.groups
        ]
        for group, place in zip(self.groups, places):
            if group.members != [Member(*key[i][:2]) for i in place]:
                return False
        if sum(len(place) for place in places) != len(key):
            return False
        self.key, self.places = key, places
        return True

    def holds(self, buffer: torch.Tensor, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether these are its memory and its parameters as they were in the last step. This is
        all that a step usually has to look at: the backward pass has driven Python's objects out of
        the caches, where each that is touched costs a tenth of a microsecond and more.
        """
        return (
            self._address == buffer.data_ptr()
            and self._dtype is buffer.dtype
            and self._ids == [*map(id, parameters)]
        )

    def bind(self, buffer: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
        """Takes this memory, and parameters that it is arranged for."""
        place = place_of(buffer, self.groups[0].device)
        parts = place.memory.split([count for _, count, _ in self.key])
        flights = [
            Flight(group, [parts[i] for i in own], [parameters[i] for i in own])
            for group, own in zip(self.groups, self.places)
        ]
        if len(flights) == 1:
            steps = [self.groups[0].prepare([place.memory])]
        else:
            steps = [flight.group.prepare(flight.parts) for flight in flights]
        self.job = BucketJob(steps, flights, place)
        self._kept = (buffer, parameters)
        self._address, self._dtype, self._ids = (
            buffer.data_ptr(),
            buffer.dtype,
            [*map(id, parameters)],
        )

    def release(self) -> None:
        """Holds the memory no longer: it is bound anew where it comes again."""
        self.job, self._kept = None, ()
        self._address, self._ids = 0, [0]


class BucketJob(Job):
    """The exchange of a bucket, in each step anew."""

    def __init__(self, steps: Sequence[Step], flights: Sequence[Flight], place: Place) -> None:
        super().__init__(steps)
        self._steps, self.flights, self._place = steps, flights, place
        self.alone = flights[0].group.device is not None

    def start(self, buffer: torch.Tensor) -> Any:
        """A future of the bucket's mean."""
        self._place.fetch(buffer)
        for flight, step in zip(self.flights, self._steps):
            flight.group.start(step)
        self.begin()
        self._buffer, self.future = buffer, self._place.future()
        return self.future

    def finished(self, failure: Optional[Exception]) -> None:
        _deliver(self._place, self._buffer, self.future, failure)

    def voided(self) -> bool:
        return any([flight.group.reducer._voided() for flight in self.flights])

    def spoil(self) -> None:
        self._place.spoil(self._buffer)


class HeldJob(Job):
    """The exchange of several buckets by groups that were made for others."""

    def __init__(self) -> None:
        super().__init__([])
        self.flights: list[Flight] = []
        self.buckets: list[
            tuple[int, Sequence[torch.Tensor], torch.Tensor, Place, Any]
        ] = []  # index, parameters, memory, future

    def hold(
        self,
        index: int,
        parameters: Sequence[torch.Tensor],
        buffer: torch.Tensor,
        device: Optional[torch.device],
    ) -> Any:
        """device: where the reducers are."""
        place = place_of(buffer, device)
        place.fetch(buffer)
        future = place.future()
        self.buckets.append((index, parameters, buffer, place, future))
        return future

    def start(self, flights: list[Flight]) -> None:
        self.flights = flights
        self.alone = any(flight.group.device is not None for flight in flights)
        self._pending = [f.group.start(f.group.prepare(f.parts)) for f in flights]
        self.begin()

    def finished(self, failure: Optional[Exception]) -> None:
        for _, _, buffer, place, future in self.buckets:
            _deliver(place, buffer, future, failure)

    def voided(self) -> bool:
        return any([flight.group.reducer._voided() for flight in self.flights])

    def spoil(self) -> None:
        for _, _, buffer, place, _ in self.buckets:
            place.spoil(buffer)


class SparseJob(Job):
    """The exact sum of a bucket that is one sparse gradient."""

    flights: Sequence[Flight] = ()

    def __init__(
        self, comm: Comm, index: int, buffer: torch.Tensor, options: Mapping[str, Any]
    ) -> None:
        self.index = index
        self._stream, self._like = to_stream(buffer.cpu()), buffer
        self._divisor = comm.size if options.get("average", True) else 1
        self._void = options.get("nonfinite") in (None, "void")
        self._request = comm.iallreduce(self._stream, self._stream)
        super().__init__([self._request])
        self.future = (
            torch.futures.Future(devices=[buffer.device])
            if buffer.is_cuda
            else torch.futures.Future()
        )

    def finished(self, failure: Optional[Exception]) -> None:
        if failure is None:
            try:
                total = from_stream(self._stream, self._like.shape, self._like.dense_dim())
                self._mean = (total / self._divisor).to(self._like.device)
                self.stats = self._request.stats
                self.future.set_result(self._mean)
                return
            except Exception as error:
                failure = error
        self.future.set_exception(failure)

    def voided(self) -> bool:
        return self._void and not bool(torch.isfinite(self._mean._values()).all())

    def spoil(self) -> None:
        self._mean._values().fill_(float("nan"))
        if self._like.is_cuda:
            torch.cuda.synchronize(self._like.device)


def _deliver(place: Place, buffer: torch.Tensor, future: Any, failure: Optional[Exception]) -> None:
    if failure is None:
        try:
            place.deliver(buffer, future)
            return
        except Exception as error:
            failure = error
    future.set_exception(failure)


AnyJob = Union[BucketJob, HeldJob, SparseJob]
