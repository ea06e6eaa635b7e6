"""Arrays of other libraries, on the host or on a CUDA device: the CUDA array interface and DLPack.
Never copied.

What fills or reads such an array may be on a stream of its own. rill's work comes behind that: with
DLPack the producer sees to it, with the interface the host waits for the stream that it names.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Sequence

import numpy as np

from ._library import check, lib

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # kinds of devices of DLPack
_FLOAT, _BFLOAT = 2, 4  # kinds of numbers of DLPack
_LEGACY_STREAM = 1  # as both interfaces call it; 0 would be ambiguous
UNKNOWN_DEVICE = -1  # a CUDA device, but which is not said


class Foreign(NamedTuple):
    address: int
    count: int  # type: ignore[assignment]
    dtype: str  # its name, such as "float32" or "bfloat16"
    device: Optional[int]  # number of the CUDA device; None: the host
    writable: bool
    owner: Any


def foreign(
    obj: Any, name: str, stream: Optional[int] = None, device: Optional[int] = UNKNOWN_DEVICE
) -> Optional[Foreign]:
    """The memory of an object that has one of the interfaces; None if it has none. What is given to
    the stream (a cudaStream_t; None: the legacy one) from now on may use it. device: where it ought
    to be; None: in the host's memory."""
    ours = stream or _LEGACY_STREAM
    if hasattr(obj, "__cuda_array_interface__"):
        return _from_interface(obj, obj.__cuda_array_interface__, name, ours, device)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _from_dlpack(obj, name, ours)
    return None


def _check_contiguous(
    shape: Sequence[int], strides: Optional[Sequence[int]], unit: int, name: str
) -> int:
    """How many entries there are."""
    count, expected = 1, unit
    for extent, stride in zip(reversed(shape), reversed(strides or [0] * len(shape))):
        if strides and extent > 1 and stride != expected:
            raise ValueError(
                f"{name} is not contiguous (shape {tuple(shape)}, strides {tuple(strides)})"
            )
        count, expected = count * extent, expected * extent
    return count


def _producer(about: Any, name: str) -> Optional[int]:
    """The stream that an array is used on, where its owner says that one must wait for it."""
    stream = about.get("stream")
    if stream == 0:
        raise ValueError(f"{name}: 0 is no stream of the CUDA array interface: 1 is the legacy one")
    return None if stream is None else int(stream)


def _wait(stream: int, device: int) -> None:
    handle = None if stream == _LEGACY_STREAM else stream
    check(lib.rill_device_wait(device, handle))


def _from_interface(obj: Any, about: Any, name: str, ours: int, device: Optional[int]) -> Foreign:
    producer = _producer(about, name)
    if producer is not None and producer != ours and device is not None:
        _wait(producer, device)
    dtype = np.dtype(about["typestr"])
    count = _check_contiguous(about["shape"], about.get("strides"), dtype.itemsize, name)
    address, read_only = about["data"]
    return Foreign(address or 0, count, dtype.name, UNKNOWN_DEVICE, not read_only, obj)


class _DLTensor(ctypes.Structure):
    """The start of a DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def _from_dlpack(obj: Any, name: str, ours: int) -> Foreign:
    kind, number = obj.__dlpack_device__()
    if kind in (_CUDA, _CUDA_MANAGED):
        capsule = obj.__dlpack__(stream=ours)  # what it was given comes first there
        device: Optional[int] = number
    elif kind in (_CPU, _CUDA_HOST):
        capsule, device = obj.__dlpack__(), None
    else:
        raise TypeError(f"{name} is on a device of kind {kind} of DLPack: host or CUDA is needed")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(get(capsule, b"dltensor"))
    if tensor.lanes != 1 or tensor.code not in (_FLOAT, _BFLOAT):
        raise TypeError(f"{name} has values that are no floating-point numbers")
    shape = tensor.shape[: tensor.ndim]
    strides = tensor.strides[: tensor.ndim] if tensor.strides else None
    count = _check_contiguous(shape, strides, 1, name)
    dtype = "bfloat16" if tensor.code == _BFLOAT else f"float{tensor.bits}"
    address = (tensor.data or 0) + tensor.byte_offset
    # The capsule was not taken over, so that it frees what it holds when it goes.
    return Foreign(address, count, dtype, device, True, (obj, capsule))


# ---- devices and their streams ----


def device_of(options: Any) -> Optional[int]:
    """The CUDA device that options name; None: the host."""
    if options.get("memory") in (None, "host"):
        return None
    number = options.get("device")
    return UNKNOWN_DEVICE if number is None else int(number)


def stream_handle(stream: Any, like: Any) -> Optional[int]:
    """The cudaStream_t of a stream of PyTorch or CuPy, or of a number; by default the current one
    of PyTorch if it is its tensor, or the one that the CUDA array interface names."""
    if stream is None and getattr(like, "is_cuda", False):
        import torch

        stream = torch.cuda.current_stream(like.device)
    elif stream is None and hasattr(like, "__cuda_array_interface__"):
        stream = _producer(like.__cuda_array_interface__, "gradient")
    if stream is None or stream == _LEGACY_STREAM:
        return None
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name)) or None
    return int(stream) or None
