"""Gradients on a CUDA device stay there: reducers work in its memory.

An exchange starts behind the kernels that have filled the gradients, and the host goes on: a thread
of the reducer selects once they are there, exchanges, and writes the update. The host waits for
exchanges where it needs their end, at the end of the backward pass. It waits for no kernel but
these, and no stream of the device waits for the host.
"""

from __future__ import annotations

import warnings
from typing import Any, Mapping, Optional, Sequence

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

    def stream(self, device: torch.device) -> int:
        """The current stream's handle."""
        return torch.cuda.current_stream(device).cuda_stream

    def spoil(self, tensor: torch.Tensor) -> None:
        """NaN everywhere, for all streams."""
        tensor.fill_(float("nan"))
        torch.cuda.current_stream(tensor.device).synchronize()

    def future(self, device: torch.device) -> Any:
        return torch.futures.Future(devices=[device])

    def tensor(self, array: DeviceArray, kind: Type, device: torch.device) -> torch.Tensor:
        """The memory of an array as a tensor."""
        if not len(array):
            from ._tensors import torch_dtype

            return torch.empty(0, dtype=torch_dtype(kind), device=device)
        made = torch.as_tensor(array, device=device)
        return made.view(torch.bfloat16) if kind is Type.BF16 else made


runtime = Cuda()


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
            if why is not None and self._comm.rank == 0:
                warnings.warn(
                    f"gradients on {device} go through the memory of the host: {why}", stacklevel=2
                )
        return device if self._usable[tensor.dtype] else None

    def move(self, comm: Comm) -> None:
        """To other ranks, which have the same devices."""
        self._comm = comm

    def known(self, tensor: torch.Tensor) -> Optional[torch.device]:
        """As of, where that was asked before for this type; not collective."""
        device = runtime.device(tensor)
        return device if device is not None and self._usable.get(tensor.dtype) else None

    def _why_not(self, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        """The same on all ranks."""
        mine = None
        try:
            Stream(1, memory="cuda", device=runtime.number(device))
        except RillError as error:
            mine = str(error)
        for rank, reason in enumerate(self._comm._gather(mine)):
            if reason is not None:
                return reason if rank == 0 else f"rank {rank}: {reason}"
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
            reducer.start_on(torch.zeros(1024, dtype=dtype, device=device)).wait()
        finally:
            reducer.free()


def reducer_memory(device: Optional[torch.device]) -> dict[str, Any]:
    """Options of reducers for it."""
    if device is None:
        return {}
    return {"memory": "cuda", "device": runtime.number(device)}
