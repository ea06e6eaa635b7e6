"""Gradients on a CUDA device stay there: reducers work in its memory, in the order of its streams.

Each group has a stream of its own, a lane. An exchange starts on it behind the kernels that have
filled the gradients, so that the rest of the backward pass does not wait for it, nor one exchange
for another. At the end of the step the current stream waits for all lanes; the host waits nowhere.
The next step finds out how this one went: it waits until its exchanges are known to be complete,
which they are long before, since the device has to compute the next gradients behind them.

A step that is void in one reducer is void as a whole. The host does not know of it in time, but the
device does: the update is NaN. A number that is 0 or NaN is computed from the updates and added to
all of them. What the others had sent goes back to their residuals later.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Iterable, Mapping, Optional, Sequence

import torch

from .._buffers import DeviceArray, Type
from .._comm import Comm
from .._library import RillError
from .._reducer import Reducer
from .._stream import Stream


class Cuda:
    """What is needed of PyTorch. Tests put another in its place, with tensors of the host in the
    part of those of a device."""

    def device(self, tensor: torch.Tensor) -> Optional[torch.device]:
        """Of the tensor; None: the host."""
        return tensor.device if tensor.is_cuda else None

    def number(self, device: torch.device) -> int:
        return torch.cuda.current_device() if device.index is None else device.index

    def lane(self, device: torch.device) -> Any:
        return torch.cuda.Stream(device)

    def enter(self, lane: Any, device: torch.device) -> None:
        """The lane goes on behind the current stream."""
        lane.wait_stream(torch.cuda.current_stream(device))

    def leave(self, lane: Any, device: torch.device) -> None:
        """The current stream goes on behind the lane."""
        torch.cuda.current_stream(device).wait_stream(lane)

    def future(self, device: torch.device) -> Any:
        return torch.futures.Future(devices=[device])

    def tensor(self, array: DeviceArray, kind: Type, device: torch.device) -> torch.Tensor:
        """The memory of an array as a tensor."""
        if not len(array):
            from ._tensors import torch_dtype

            return torch.empty(0, dtype=torch_dtype(kind), device=device)
        made = torch.as_tensor(array, device=device)
        return made.view(torch.bfloat16) if kind is Type.BF16 else made

    def arrived(self, jobs: Iterable[Any]) -> None:
        """After leave: the order of streams is all that is needed."""


runtime = Cuda()

# Steps in a device's memory are asked for until they are proven under DDP: the first launch of a
# kernel of PyTorch's waits for all streams, also for those that wait for an exchange.
NOT_ASKED = "RILL_DEVICE_STEPS is not 1"


class Devices:
    """Whether gradients of a type can be reduced where they are. Else they go through the memory of
    the host."""

    def __init__(self, comm: Comm, options: Sequence[Mapping[str, Any]]) -> None:
        self._comm, self._options = comm, options
        self._usable: dict[torch.dtype, bool] = {}

    def of(self, tensor: torch.Tensor) -> Optional[torch.device]:
        """The device whose memory reducers of the tensor work in; None: that of the host.
        Collective for each new type, with nothing under way.
        """
        device = runtime.device(tensor)
        if device is None:
            return None
        if tensor.dtype not in self._usable:
            why = self._why_not(device, tensor.dtype)
            self._usable[tensor.dtype] = why is None
            if why is not None and NOT_ASKED not in why and self._comm.rank == 0:
                warnings.warn(
                    f"gradients on {device} go through the memory of the host: {why}", stacklevel=2
                )
        return device if self._usable[tensor.dtype] else None

    def move(self, comm: Comm) -> None:
        """To other ranks, which have the same devices."""
        self._comm = comm
        if any(self._usable.values()):
            comm.start_thread()

    def known(self, tensor: torch.Tensor) -> Optional[torch.device]:
        """As of, where that was asked before for this type; not collective."""
        device = runtime.device(tensor)
        return device if device is not None and self._usable.get(tensor.dtype) else None

    def _why_not(self, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        """The same on all ranks."""
        mine = None
        try:
            if os.environ.get("RILL_DEVICE_STEPS") != "1":
                raise RillError(-4, NOT_ASKED)
            if not self._comm.threads:
                raise RillError(-4, "MPI was not initialised with MPI_THREAD_MULTIPLE")
            Stream(1, memory="cuda", device=runtime.number(device))
        except RillError as error:
            mine = str(error)
        for rank, reason in enumerate(self._comm._gather(mine)):
            if reason is not None:
                return reason if rank == 0 else f"rank {rank}: {reason}"
        self._comm.start_thread()
        for options in self._options:
            plain = {name: value for name, value in options.items() if name != "k"}
            try:
                self._try(device, dtype, {**plain, **reducer_memory(device)})
            except RillError as error:
                if error.name != "UNSUPPORTED":
                    raise
                return str(error)
        return None

    def _try(self, device: torch.device, dtype: torch.dtype, options: dict[str, Any]) -> None:
        """A step of a small reducer."""
        reducer = Reducer(self._comm, 1024, dtype, **options)
        try:
            reducer.step_on(torch.zeros(1024, dtype=dtype, device=device)).wait()
        finally:
            reducer.free()


def reducer_memory(device: Optional[torch.device]) -> dict[str, Any]:
    """Options of reducers for it."""
    if device is None:
        return {}
    return {"memory": "cuda", "device": runtime.number(device)}


@torch.no_grad()
def land(
    jobs: Sequence[Any], flights: Sequence[Any], tensors: Sequence[torch.Tensor], void: bool
) -> Any:
    """The current streams go on behind the exchanges. tensors: all memory of these; it is NaN if
    one of the updates is void, or if the step is void by what else is known. Gives the number that
    was added, None if there was none."""
    for flight in flights:
        runtime.leave(flight.group.lane, flight.group.device)
    runtime.arrived(jobs)
    watched = [f for f in flights if f.group.voids and f.parts[0].numel()]
    if not watched and not void:
        return None
    taint = torch.full((), -0.0, device=tensors[0].device)  # which leaves every number as it is
    if watched:
        firsts = [f.parts[0].reshape(-1)[:1].float().to(taint.device) for f in watched]
        taint = taint.masked_fill(torch.isnan(torch.cat(firsts)).any(), float("nan"))
    if void:
        taint.fill_(float("nan"))
    for tensor in tensors:
        tensor.add_(taint.to(dtype=tensor.dtype, device=tensor.device))
    return taint


def give_back_late(flights: Sequence[Any]) -> None:
    """The exchanges are complete and the step is void: what a reducer has sent that is not void
    itself goes back. Its update is asked for once more: the memory that it was in has other
    contents by now. Over MPI reducers do not keep it: it is dropped there, as plain DDP drops the
    gradients of a step that is skipped."""
    for flight in flights:
        reducer = flight.group.reducer
        if reducer.comm.mpi is None and flight.group.keeps and not reducer._voided():
            like = flight.parts[0]
            update = torch.empty(reducer.dim, dtype=like.dtype, device=like.device)
            reducer.give_back(0, reducer.update(update))
