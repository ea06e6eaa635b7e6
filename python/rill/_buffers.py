"""Borrowed memory: arrays and tensors, of the host or of a CUDA device, as pointers, without a
copy."""

from __future__ import annotations

import ctypes
import enum
import operator
import sys
from typing import Any, NamedTuple, Optional

import numpy as np

from ._foreign import UNKNOWN_DEVICE, foreign


class Type(enum.IntEnum):
    """Types of values. NumPy has no bfloat16: views of it are uint16, and PyTorch's are
    bfloat16."""

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


MEMORIES = {"host": 0, "cuda": 1}


class Buffer(NamedTuple):
    address: int
    count: int  # type: ignore[assignment]
    type: Type
    owner: Any  # keeps the memory alive
    device: Optional[int] = None  # number of the CUDA device; None: the host


def type_of(dtype: Any) -> Type:
    """The Type of a NumPy or PyTorch dtype, of a name such as "f32" or "bfloat16", or of a Type."""
    if isinstance(dtype, Type):
        return dtype
    name = str(dtype).replace("torch.", "") if not isinstance(dtype, type) else np.dtype(dtype).name
    if name in _NAMES:
        return _NAMES[name]
    raise TypeError(f"dtype {dtype} is not supported: use float32, float64, float16 or bfloat16")


def dim_of(dim: Any) -> int:
    """A dimension as C takes it; ctypes would cut off what does not fit."""
    whole = operator.index(dim)
    if whole < 0:
        raise ValueError(f"dim {dim} is negative")
    if whole >= 2**64:
        raise ValueError(f"dim {dim} is not below 2^64")
    return whole


def numpy_dtype(kind: Type) -> Any:
    return _NUMPY[kind]


def is_torch(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.Tensor)


def is_scipy_sparse(obj: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(obj))


def memory_of(name: Any) -> int:
    """The number of "host" or "cuda"."""
    if name is None:
        return MEMORIES["host"]
    if name not in MEMORIES:
        raise ValueError(f"memory {name!r} is none of {', '.join(MEMORIES)}")
    return MEMORIES[name]


def device_number(tensor: Any) -> Optional[int]:
    """Of the CUDA device that a tensor of PyTorch is on; None: the host."""
    if tensor.device.type == "cuda":
        return int(tensor.device.index or 0)
    return None


def order(buffer: Buffer) -> Buffer:
    """What PyTorch has queued for a tensor comes before what rill does in the order of the legacy
    stream."""
    if buffer.device is not None and is_torch(buffer.owner) and buffer.owner.is_cuda:
        cuda = sys.modules["torch"].cuda
        current = cuda.current_stream(buffer.owner.device)
        if current != cuda.default_stream(buffer.owner.device):
            cuda.default_stream(buffer.owner.device).wait_stream(current)
    return buffer


def _torch_buffer(tensor: Any, name: str) -> Buffer:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name} has layout {tensor.layout}: a dense tensor is needed here")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{name} is on {tensor.device}: CPU and CUDA tensors are supported")
    try:
        kind = type_of(tensor.dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    if not tensor.is_contiguous():
        raise ValueError(
            f"{name} is not contiguous (shape {tuple(tensor.shape)}, strides {tensor.stride()}): "
            "pass tensor.contiguous()"
        )
    return Buffer(tensor.data_ptr(), tensor.numel(), kind, tensor, device_number(tensor))


def _foreign_buffer(
    obj: Any, name: str, writable: bool, stream: Optional[int], device: Optional[int]
) -> Buffer:
    found = foreign(obj, name, stream, device)
    if found is None:
        raise TypeError(
            f"{name} is of type {type(obj).__name__}: a NumPy array or a tensor is needed"
        )
    if writable and not found.writable:
        raise ValueError(f"{name} is read-only")
    try:
        kind = type_of(found.dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    return Buffer(found.address, found.count, kind, found.owner, found.device)


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
    device: Optional[int] = None,
    stream: Optional[int] = None,
) -> Buffer:
    """The memory of an array or tensor, which must be that of the CUDA device of this number, or of
    the host (None). Never copies: what can't be borrowed is an error that says why. stream: the
    cudaStream_t that it is used on, by default the legacy one."""
    if is_torch(obj):
        buffer = _torch_buffer(obj, name)
    elif isinstance(obj, np.ndarray):
        if kind is Type.BF16 and obj.dtype == np.uint16:
            buffer = _numpy_buffer(obj.view(np.float16), name, writable)._replace(type=Type.BF16)
        else:
            buffer = _numpy_buffer(obj, name, writable)
    else:
        buffer = _foreign_buffer(obj, name, writable, stream, device)
    _check_place(buffer, name, device)
    if kind is not None and buffer.type is not kind:
        raise TypeError(
            f"{name} has values of type {buffer.type.name.lower()}: {kind.name.lower()} is needed"
        )
    if count is not None and buffer.count != count:
        raise ValueError(f"{name} has {buffer.count} values: {count} are needed")
    return buffer


def _check_place(buffer: Buffer, name: str, device: Optional[int]) -> None:
    if buffer.device is None and device is not None:
        wanted = "the device" if device == UNKNOWN_DEVICE else f"cuda:{device}"
        raise TypeError(f"{name} is in the memory of the host: a tensor of {wanted} is needed")
    if buffer.device is not None and device is None:
        raise TypeError(f'{name} is {_called(buffer.device)}: memory="cuda" takes it')
    if UNKNOWN_DEVICE not in (buffer.device, device) and buffer.device != device:
        raise TypeError(f"{name} is {_called(buffer.device or 0)}: cuda:{device} is needed")


def _called(device: int) -> str:
    return "on a CUDA device" if device == UNKNOWN_DEVICE else f"on cuda:{device}"


class DeviceArray:
    """Memory of the library on a CUDA device, with the CUDA array interface: ``cupy.asarray`` and
    ``torch.as_tensor`` take it without a copy. bf16 comes as int16."""

    def __init__(self, address: Optional[int], count: int, dtype: Any, owner: Any) -> None:
        self._owner = owner
        self.size = count
        self.dtype = np.dtype(dtype)
        self.address = address or 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size,),
            "typestr": self.dtype.str,
            "data": (self.address if self.size else 0, False),
            "version": 3,
        }

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<rill.DeviceArray of {self.size} {self.dtype}>"


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
