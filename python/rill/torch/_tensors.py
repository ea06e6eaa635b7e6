"""Tensors as streams, and their sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Optional, Sequence

import numpy as np
import torch

from .._buffers import Type
from .._comm import Comm
from .._library import RillError
from .._stream import Stream, as_stream

if TYPE_CHECKING:
    from .._structs import Options, Unpack

_TORCH = {
    Type.F32: torch.float32,
    Type.F64: torch.float64,
    Type.F16: torch.float16,
    Type.BF16: torch.bfloat16,
}


def coalesced(indices: torch.Tensor, values: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A sparse tensor of sorted and unique indices in range, as those of streams are: PyTorch need
    not look at them, which takes longer than all else, nor warn that it does not."""
    if hasattr(torch.sparse, "check_sparse_tensor_invariants"):
        made = torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
    else:  # PyTorch 1
        made = torch._sparse_coo_tensor_unsafe(indices, values, shape)
    return made._coalesced_(True)


def is_known(dtype: torch.dtype) -> bool:
    """Whether streams may have it."""
    return dtype in _TORCH.values()


def torch_dtype(kind: Type) -> torch.dtype:
    return _TORCH[kind]


def tensor_of(array: Any, kind: Type) -> torch.Tensor:
    """A copy of a view as a tensor; bf16 comes as uint16, which PyTorch 1.13 can't take."""
    if kind is Type.BF16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _flat(indices: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Row-order numbers of index columns."""
    if not shape:
        return torch.zeros(indices.shape[1], dtype=torch.int64)
    flat = indices[0]  # as it is where there is one dimension
    for i, extent in enumerate(shape[1:], 1):
        flat = flat * extent + indices[i]
    return flat


def _unflat(flat: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    if not shape:
        return flat.new_empty((0, flat.numel()))
    if len(shape) == 1:
        return flat.unsqueeze(0)
    rows = []
    for extent in reversed(shape[1:]):  # divisions take most of the time
        above = torch.div(flat, max(extent, 1), rounding_mode="floor")
        rows.append(flat - above * max(extent, 1))
        flat = above
    return torch.stack([flat, *rows[::-1]])


def to_stream(tensor: torch.Tensor) -> Stream:
    """A stream of a tensor in row order. Of a sparse COO tensor duplicates are summed; one with
    dense dimensions, such as the gradient of an embedding, becomes block-sparse. Entries of a
    sparse one come to the memory of the host; a dense one on a CUDA device stays there.
    """
    if tensor.layout is torch.strided:
        return as_stream(tensor.detach())
    if tensor.layout is not torch.sparse_coo:
        raise TypeError(f"tensor has layout {tensor.layout}: strided or sparse_coo is needed")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"tensor is on {tensor.device}: CPU and CUDA tensors are supported")
    tensor = tensor.detach().cpu()  # of a sparse one only what is there
    shape = tuple(tensor.shape)
    sparse_shape, dense_shape = shape[: tensor.sparse_dim()], shape[tensor.sparse_dim() :]
    stream = Stream(math.prod(shape), tensor.dtype)
    numbers = _flat(tensor._indices(), sparse_shape)
    values = tensor._values().contiguous()
    block = math.prod(dense_shape)
    if not dense_shape or block == 0:
        return stream.set_pairs(numbers, values.reshape(-1)) if block else stream
    return stream.set_blocks(block, numbers, values)


def from_stream(stream: Stream, shape: Sequence[int], dense_dim: int = 0) -> torch.Tensor:
    """A coalesced sparse COO tensor of a stream; the last ``dense_dim`` dimensions are dense."""
    shape = tuple(shape)
    if math.prod(shape) != stream.dim:
        raise ValueError(f"shape {shape} has {math.prod(shape)} entries, the stream {stream.dim}")
    sparse_shape, dense_shape = shape[: len(shape) - dense_dim], shape[len(shape) - dense_dim :]
    block = math.prod(dense_shape)
    if stream.dim == 0:
        numbers, values = torch.empty(0, dtype=torch.int64), torch.empty(
            (0, *dense_shape), dtype=torch_dtype(stream.type)
        )
    elif dense_dim:
        if stream.block != block:
            stream = stream.copy().to_blocks(block)
        numbers = torch.from_numpy(stream.blocks.astype(np.int64))
        values = tensor_of(stream.values, stream.type).reshape(-1, *dense_shape)
    else:
        if stream.is_dense or stream.block:
            stream = stream.copy().to_sparse()
        numbers = torch.from_numpy(stream.indices.astype(np.int64))
        values = tensor_of(stream.values, stream.type)
    return coalesced(_unflat(numbers, sparse_shape), values, shape)


def allreduce(
    tensor: torch.Tensor,
    op: str = "sum",
    *,
    comm: Optional[Comm] = None,
    **options: Unpack[Options],
) -> torch.Tensor:
    """The sum of a tensor over all ranks: a new tensor of the same shape and layout, bitwise the
    same on all ranks.

    ``op`` is "sum" or "mean", for dense tensors also "min", "max" or "prod". Sparse COO tensors may
    have duplicates, which are summed, dense dimensions, and no entries at all on some ranks; the
    result is coalesced. Options are those of the collectives (``algorithm=``, ``value_bits=``,
    ...). Collective: all ranks give the same shape, dtype and layout.

    Of a tensor on a CUDA device the non-zeros travel through the memory of the host; the result is
    on the device, and the host waits for it.
    """
    from ._groups import default_comm

    comm = default_comm(comm)
    with comm._shares_errors["allreduce"]:
        sparse = tensor.layout is torch.sparse_coo
        known = ("sum", "mean") if sparse else ("sum", "mean", "min", "max", "prod")
        if op not in known:
            raise ValueError(f"op {op!r} is none of {', '.join(known)}")
        stream = _host_stream(tensor)
    comm.allreduce(stream, stream, op="sum" if op == "mean" else op, **options)
    if sparse:
        result = from_stream(stream, tensor.shape, tensor.dense_dim())
    else:
        result = torch.empty(tensor.shape, dtype=tensor.dtype)
        stream.dense(result)
    result = result.to(tensor.device)
    return result / comm.size if op == "mean" else result


def _host_stream(tensor: torch.Tensor) -> Stream:
    """Of a dense tensor on a device: where librill works there, only the non-zeros are copied."""
    if tensor.layout is not torch.strided or not tensor.is_cuda:
        return to_stream(tensor)
    try:
        return as_stream(tensor.detach().contiguous()).to("host")
    except RillError as error:
        if error.name != "UNSUPPORTED":
            raise
        return to_stream(tensor.cpu())
