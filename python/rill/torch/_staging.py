"""Where reducers find the gradients of a bucket: in place, or for a bucket on a GPU in page-locked memory of the host.

MPI and the reducers work in the host's memory. A bucket on a GPU is copied there on a stream of its own once the kernels that
fill it are done, and its update is copied back on that stream, so that neither copy waits for later kernels of the backward pass.
The future is one of the device: whoever waits for it makes its stream wait, not the host.
"""

from __future__ import annotations

from typing import Any

import torch


class Place:
    """A bucket in the host's memory: used as it is."""

    def fits(self, buffer: torch.Tensor) -> bool:
        return buffer.device.type == "cpu"

    def future(self, buffer: torch.Tensor) -> Any:
        return torch.futures.Future()

    def fetch(self, buffer: torch.Tensor) -> torch.Tensor:
        """Memory of the host with the gradients, where the update is to be written."""
        return buffer

    def deliver(self, buffer: torch.Tensor, future: Any) -> None:
        """The update is there: it goes to the bucket, and the future is complete."""
        future.set_result(buffer)


class PinnedPlace(Place):
    """A bucket on a GPU."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self.device = buffer.device
        self.host = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
        self.stream = torch.cuda.Stream(buffer.device)

    def fits(self, buffer: torch.Tensor) -> bool:
        same = buffer.device == self.device and buffer.dtype == self.host.dtype
        return same and buffer.shape == self.host.shape

    def future(self, buffer: torch.Tensor) -> Any:
        return torch.futures.Future(devices=[buffer.device])

    def fetch(self, buffer: torch.Tensor) -> torch.Tensor:
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            self.host.copy_(buffer, non_blocking=True)
        self.stream.synchronize()
        return self.host

    def deliver(self, buffer: torch.Tensor, future: Any) -> None:
        with torch.cuda.stream(self.stream):
            buffer.copy_(self.host, non_blocking=True)
            future.set_result(buffer)  # notes where this stream is


_IN_PLACE = Place()


def place_of(buffer: torch.Tensor) -> Place:
    if buffer.device.type == "cpu":
        return _IN_PLACE
    if buffer.device.type == "cuda":
        return PinnedPlace(buffer)
    raise TypeError(f"gradients are on {buffer.device}: CPU and CUDA tensors are supported")
