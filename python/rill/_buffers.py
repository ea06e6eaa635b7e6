"""Borrowed memory: NumPy arrays and CPU tensors of PyTorch as pointers, without a copy."""

from __future__ import annotations

import ctypes
import enum
import sys
from typing import Any, NamedTuple, Optional

import numpy as np


class Type(enum.IntEnum):
    """Types of values. NumPy has no bfloat16: views of it are uint16, and PyTorch's are bfloat16."""

    F32 = 0
    F64 = 1
    F16 = 2
    BF16 = 3


_NUMPY = {
    Type.F32: np.dtype(np.float32),
    Type.F64: np.dtype(np.float64),
    Type.F16: np.dtype(np.float16),
    Type.BF16: np.dtype(np.uint16),
}
_NAMES = {
    "f32": Type.F32, "float32": Type.F32, "float": Type.F32,
    "f64": Type.F64, "float64": Type.F64, "double": Type.F64,
    "f16": Type.F16, "float16": Type.F16, "half": Type.F16,
    "bf16": Type.BF16, "bfloat16": Type.BF16,
}  # fmt: skip


class Buffer(NamedTuple):
    address: int
    count: int  # type: ignore[assignment]
    type: Type
    owner: Any  # keeps the memory alive


def type_of(dtype: Any) -> Type:
    """The Type of a NumPy or PyTorch dtype, of a name such as "f32" or "bfloat16", or of a Type."""
    if isinstance(dtype, Type):
        return dtype
    name = str(dtype).replace("torch.", "") if not isinstance(dtype, type) else np.dtype(dtype).name
    if name in _NAMES:
        return _NAMES[name]
    raise TypeError(f"dtype {dtype} is not supported: use float32, float64, float16 or bfloat16")


def numpy_dtype(kind: Type) -> Any:
    return _NUMPY[kind]


def is_torch(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def is_scipy_sparse(obj: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(obj))


def _torch_buffer(tensor: Any, name: str) -> Buffer:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name} has layout {tensor.layout}: a dense tensor is needed here")
    if tensor.device.type != "cpu":
        raise TypeError(f"{name} is on {tensor.device}: only CPU tensors are supported")
    try:
        kind = type_of(tensor.dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    if not tensor.is_contiguous():
        raise ValueError(
            f"{name} is not contiguous (shape {tuple(tensor.shape)}, strides {tensor.stride()}): "
            "pass tensor.contiguous()"
        )
    return Buffer(tensor.data_ptr(), tensor.numel(), kind, tensor)


def _numpy_buffer(array: Any, name: str, writable: bool) -> Buffer:
    try:
        kind = type_of(array.dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    if not array.dtype.isnative:
        raise TypeError(f"{name} has dtype {array.dtype.str}: the byte order is not this machine's")
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{name} is not contiguous (shape {array.shape}, strides {array.strides}): "
            "pass numpy.ascontiguousarray(array)"
        )
    if writable and not array.flags.writeable:
        raise ValueError(f"{name} is read-only")
    return Buffer(array.ctypes.data, array.size, kind, array)


def buffer_of(
    obj: Any,
    name: str,
    kind: Optional[Type] = None,
    count: Optional[int] = None,
    writable: bool = False,
) -> Buffer:
    """The memory of an array or tensor. Never copies: what can't be borrowed is an error that says why."""
    if is_torch(obj):
        buffer = _torch_buffer(obj, name)
    elif isinstance(obj, np.ndarray):
        if kind is Type.BF16 and obj.dtype == np.uint16:
            buffer = _numpy_buffer(obj.view(np.float16), name, writable)._replace(type=Type.BF16)
        else:
            buffer = _numpy_buffer(obj, name, writable)
    else:
        raise TypeError(
            f"{name} is of type {type(obj).__name__}: a NumPy array or a tensor is needed"
        )
    if kind is not None and buffer.type is not kind:
        raise TypeError(
            f"{name} has values of type {buffer.type.name.lower()}: {kind.name.lower()} is needed"
        )
    if count is not None and buffer.count != count:
        raise ValueError(f"{name} has {buffer.count} values: {count} are needed")
    return buffer


def view(address: Optional[int], count: int, dtype: Any, owner: Any) -> Any:
    """A read-only array over memory of the library, which keeps its owner alive."""
    dtype = np.dtype(dtype)
    if not count:
        return np.empty(0, dtype)
    assert address
    memory = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address)
    memory._owner = owner  # type: ignore[attr-defined]
    array = np.frombuffer(memory, dtype)
    array.flags.writeable = False
    return array


def indices_of(obj: Any, name: str) -> Any:
    """Indices as uint32 or uint64; others are converted, and negative ones refused."""
    if is_torch(obj):
        obj = obj.detach().numpy()
    array = np.asarray(obj)
    if array.size == 0:
        return np.empty(0, np.uint64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}: whole numbers are needed")
    if array.dtype.kind == "i" and array.min() < 0:
        raise ValueError(f"{name} has the negative index {array.min()}")
    if array.dtype == np.int64:
        array = array.view(np.uint64)
    elif array.dtype not in (np.uint32, np.uint64):
        array = array.astype(np.uint64)
    return np.ascontiguousarray(array)
