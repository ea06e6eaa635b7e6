"""A process group for ``torch.distributed``: ``dist.init_process_group("rill")``.

It gives everything to an inner group, gloo or NCCL, but sums of sparse tensors: those are rill's.
Its communicator is made at the first of them, by the group's own store, over UCX.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.distributed as dist

from .._comm import Comm
from .._rendezvous import StoreMeeting
from .._world import _over_ucx
from ._tensors import from_stream, is_known, to_stream

NAME = "rill"


class _Done(dist._Work):  # type: ignore[misc,name-defined]
    """Of what is complete."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._future: Any = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def get_future(self) -> Any:
        return self._future


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """``dist.all_reduce(tensor)`` of a sparse COO tensor of floating point is rill's, the rest the
    inner group's."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)
        self._inner = _inner_group(dist.PrefixStore("inner", store), rank, size, timeout)
        self._meeting = StoreMeeting(dist.PrefixStore("rill", store), rank, size)
        self._comm: Optional[Comm] = None

    @property
    def comm(self) -> Comm:
        """The communicator of the sums. The first use is collective."""
        if self._comm is None:
            self._comm = _over_ucx(self._meeting.rank, self._meeting.ranks, self._meeting)
        return self._comm

    def allreduce(self, tensors: Any, options: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        options = dist.AllreduceOptions() if options is None else options
        ours = all(t.layout is torch.sparse_coo and is_known(t.dtype) for t in tensors)
        # In this order: the other one is False for PyTorch 2, whose operation is no enum.
        mean = options.reduceOp == dist.ReduceOp.AVG
        if not ours or not (mean or options.reduceOp == dist.ReduceOp.SUM):
            return self._inner.allreduce(tensors, options)
        for tensor in tensors:
            stream = to_stream(tensor)
            self.comm.allreduce(stream, stream)
            total = from_stream(stream, tensor.shape, tensor.dense_dim()).to(tensor.device)
            if mean:
                total = total / self.comm.size
            tensor.data = total  # the same tensor for others; copy_ would copy its entries
        return _Done(tensors)

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME


def _forward(name: str) -> Any:
    def call(self: ProcessGroup, *arguments: Any, **options: Any) -> Any:
        return getattr(self._inner, name)(*arguments, **options)

    call.__name__ = name
    return call


for _name in (
    "allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced",
    "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather",
    "monitored_barrier", "recv", "recv_anysource", "reduce", "reduce_scatter",
    "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "scatter", "send",
):  # fmt: skip
    if hasattr(dist.ProcessGroup, _name):
        setattr(ProcessGroup, _name, _forward(_name))


def _inner_group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    """NCCL where there is a device for it, else gloo."""
    if torch.cuda.is_available() and dist.is_nccl_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, size, options)
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    return ProcessGroup(store, rank, size, timeout)


def register() -> None:
    """Makes the name known to torch.distributed."""
    if hasattr(dist.Backend, NAME.upper()):
        return
    try:
        dist.Backend.register_backend(NAME, _create, devices=["cpu", "cuda"])
    except TypeError:  # PyTorch 1
        dist.Backend.register_backend(NAME, _create)
