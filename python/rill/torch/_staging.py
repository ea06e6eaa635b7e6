"""Where reducers find the gradients of a bucket: in place, in the memory of the host or of a CUDA
device; or, where librill can't work there, in page-locked memory of the host.

A bucket that is staged so is copied there on a stream of its own once the kernels that
fill it are done, and its update is copied back on that stream, so that neither copy waits for later
kernels of the backward pass. The future is one of the device: whoever waits for it makes its stream
wait, not the host.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from ._device import runtime


class Place:
    """A bucket in the host's memory: used as it is."""

    def __init__(self, buffer: torch.Tensor) -> None:
        # Of the host, with the gradients once they are fetched; where the update is to be written.
        self.memory = buffer

    def future(self) -> Any:
        return torch.futures.Future()

    def fetch(self, buffer: torch.Tensor) -> None:
        pass

    def deliver(self, buffer: torch.Tensor, future: Any) -> None:
        """The update is there: it goes to the bucket, and the future is complete."""
        future.set_result(buffer)

    def spoil(self, buffer: torch.Tensor) -> None:
        """After deliver, and before anybody reads the bucket: NaN everywhere."""
        self.memory.fill_(float("nan"))


class DevicePlace(Place):
    """A bucket on a CUDA device, where the reducers work as well."""

    def __init__(self, buffer: torch.Tensor, device: torch.device) -> None:
        super().__init__(buffer)
        self.device = device

    def future(self) -> Any:
        return runtime.future(self.device)

    def spoil(self, buffer: torch.Tensor) -> None:
        runtime.spoil(self.memory)


class PinnedPlace(Place):
    """A bucket on a CUDA device that is staged."""

    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__(torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True))
        self.device = buffer.device
        self.stream = torch.cuda.Stream(buffer.device)

    def future(self) -> Any:
        return torch.futures.Future(devices=[self.device])

    def fetch(self, buffer: torch.Tensor) -> None:
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            self.memory.copy_(buffer, non_blocking=True)
        self.stream.synchronize()

    def deliver(self, buffer: torch.Tensor, future: Any) -> None:
        with torch.cuda.stream(self.stream):
            buffer.copy_(self.memory, non_blocking=True)
            future.set_result(buffer)  # notes where this stream is

    def spoil(self, buffer: torch.Tensor) -> None:
        with torch.cuda.stream(self.stream):
            buffer.fill_(float("nan"))
        self.stream.synchronize()  # the future does not know of this


def place_of(buffer: torch.Tensor, device: Optional[torch.device]) -> Place:
    """device: whose memory the reducers work in; None: the host."""
    if device is not None:
        return DevicePlace(buffer, device)
    if buffer.device.type == "cpu":
        return Place(buffer)
    if buffer.device.type == "cuda":
        return PinnedPlace(buffer)
    raise TypeError(f"gradients are on {buffer.device}: CPU and CUDA tensors are supported")
