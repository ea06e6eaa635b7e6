"""A process group for ``torch.distributed``: ``dist.init_process_group("rill")``.

It gives everything to an inner group but sums of sparse tensors: those are rill's. Tensors of the
CPU, objects among them, go to gloo, and those of CUDA devices to NCCL. rill's communicator is made
at the first sparse sum, by the group's own store, over UCX.

``"cpu:rill,cuda:nccl"`` is the same group: PyTorch takes a group that is written in Python for all
devices. Up to 2.13 it lets nobody write in Python what would be for one device only
(``torch._C._distributed_c10d.Backend`` has no constructor there).
"""

from __future__ import annotations

from typing import Any, Iterator, Optional

import torch
import torch.distributed as dist

from .._comm import Comm
from .._rendezvous import StoreMeeting
from .._world import _over_ucx
from ._tensors import from_stream, is_known, to_stream

NAME = "rill"
Backend: Any = getattr(torch._C._distributed_c10d, "Backend", ())  # since PyTorch 2


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
        inner = dist.PrefixStore("inner", store)
        self._inners: dict[str, Any] = _inner_groups(inner, rank, size, timeout)
        if hasattr(self, "_register_backend"):  # PyTorch 2: by these a group has a name and an end
            kinds = dist.ProcessGroup.BackendType
            for device, made in self._inners.items():
                if isinstance(made, Backend):
                    kind = kinds.NCCL if made is not self._inners["cpu"] else kinds.GLOO
                    self._register_backend(torch.device(device), kind, made)
            if hasattr(self, "_set_default_backend"):  # from 2.6 on
                self._set_default_backend(kinds.GLOO)
        self._meeting = StoreMeeting(dist.PrefixStore("rill", store), rank, size)
        self._comm: Optional[Comm] = None

    @property
    def comm(self) -> Comm:
        """The communicator of the sums. The first use is collective."""
        if self._comm is None:
            self._comm = _over_ucx(self._meeting.rank, self._meeting.ranks, self._meeting)
        return self._comm

    def _inner(self, device: str) -> Any:
        """Of tensors there."""
        return self._inners.get(device, self._inners["cpu"])

    def allreduce(self, tensors: Any, options: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        options = dist.AllreduceOptions() if options is None else options
        ours = all(t.layout is torch.sparse_coo and is_known(t.dtype) for t in tensors)
        # In this order: the other one is False for PyTorch 2, whose operation is no enum.
        mean = options.reduceOp == dist.ReduceOp.AVG
        if not ours or not (mean or options.reduceOp == dist.ReduceOp.SUM):
            # NCCL has no sums of sparse tensors.
            sparse = any(t.layout is not torch.strided for t in tensors)
            device = "cpu" if sparse or not tensors else tensors[0].device.type
            return self._inner(device).allreduce(tensors, options)
        for tensor in tensors:
            stream = to_stream(tensor)
            self.comm.allreduce(stream, stream)
            total = from_stream(stream, tensor.shape, tensor.dense_dim()).to(tensor.device)
            if mean:
                total = total / self.comm.size
            tensor.data = total  # the same tensor for others; copy_ would copy its entries
        return _Done(tensors)

    def barrier(self, options: Any = None, **more: Any) -> Any:
        """Gloo's, unless the caller names a device: NCCL would have to guess one."""
        options = more.pop("opts", options)
        options = dist.BarrierOptions() if options is None else options
        device = getattr(options, "device", None)
        kind = device.type if device is not None else "cuda" if options.device_ids else "cpu"
        return self._inner(kind).barrier(options)

    def monitored_barrier(self, *arguments: Any, **options: Any) -> Any:
        return self._inners["cpu"].monitored_barrier(*arguments, **options)

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME


def _tensors_in(arguments: Any) -> Iterator[torch.Tensor]:
    """A root has lists of them where others have empty ones."""
    for one in arguments:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from _tensors_in(one)


def _forward(name: str) -> Any:
    def call(self: ProcessGroup, *arguments: Any, **options: Any) -> Any:
        first = next(_tensors_in([*arguments, *options.values()]), None)
        inner = self._inner("cpu" if first is None else first.device.type)
        return getattr(inner, name)(*arguments, **options)

    call.__name__ = name
    return call


for _name in (
    "allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced",
    "allreduce_coalesced", "alltoall", "alltoall_base", "broadcast", "gather", "recv",
    "recv_anysource", "reduce", "reduce_scatter",
    "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "scatter", "send",
):  # fmt: skip
    if hasattr(dist.ProcessGroup, _name):
        setattr(ProcessGroup, _name, _forward(_name))


def _inner_groups(store: Any, rank: int, size: int, timeout: Any) -> dict[str, Any]:
    """Of each kind of device: gloo, and NCCL where there are devices for it."""
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu", store), rank, size, timeout)
    if not torch.cuda.is_available():
        return {"cpu": gloo}
    if not dist.is_nccl_available():
        return {"cpu": gloo, "cuda": gloo}
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    nccl = dist.ProcessGroupNCCL(dist.PrefixStore("cuda", store), rank, size, options)
    return {"cpu": gloo, "cuda": nccl}


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
