"""Arrays of other libraries, by DLPack and the CUDA array interface."""

import numpy as np
import pytest

import rill
from rill import _buffers, _foreign

pytestmark = pytest.mark.once


class Interface:
    """As CuPy and Numba have it; the memory is the host's, and nobody looks into it."""

    def __init__(self, array, read_only=False):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "strides": None if array.flags.c_contiguous else array.strides,
            "data": (array.ctypes.data, read_only),
            "version": 3,
        }


class Pack:
    """Anything that has only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dlpack_of_the_host(dtype):
    array = np.arange(12, dtype=dtype).reshape(3, 4)
    found = _buffers.buffer_of(Pack(array), "x")
    assert (found.address, found.count, found.device) == (array.ctypes.data, 12, None)
    stream = rill.as_stream(Pack(array))
    assert stream.dense().tolist() == array.reshape(-1).tolist()


def test_dlpack_of_torch():
    torch = pytest.importorskip("torch")
    values = torch.arange(4.0).to(torch.bfloat16)
    found = _foreign.foreign(Pack(values), "x")
    assert (found.dtype, found.count, found.address) == ("bfloat16", 4, values.data_ptr())
    with pytest.raises(ValueError, match="not contiguous"):
        rill.as_stream(Pack(torch.ones(4, 4).t()))
    with pytest.raises(TypeError, match="no floating-point numbers"):
        rill.as_stream(Pack(torch.ones(4, dtype=torch.int64)))


def test_the_interface_is_of_a_device():
    array = np.ones((2, 3), np.float32)
    found = _buffers.buffer_of(Interface(array), "x", device=0)
    assert (found.address, found.count, found.type) == (array.ctypes.data, 6, rill.Type.F32)
    with pytest.raises(TypeError, match=r'x is on a CUDA device: memory="cuda" takes it'):
        _buffers.buffer_of(Interface(array), "x")
    with pytest.raises(ValueError, match="not contiguous"):
        _buffers.buffer_of(Interface(array.T), "x", device=0)
    with pytest.raises(ValueError, match="read-only"):
        _buffers.buffer_of(Interface(array, read_only=True), "x", writable=True, device=0)
    with pytest.raises(TypeError, match="not supported"):
        _buffers.buffer_of(Interface(array.astype(int)), "x", device=0)
    with pytest.raises(TypeError, match="x is in the memory of the host: a tensor of cuda:1"):
        _buffers.buffer_of(array, "x", device=1)


def test_an_array_on_the_device_has_the_interface():
    array = _buffers.DeviceArray(4096, 3, np.float32, None)
    about = array.__cuda_array_interface__
    assert (about["shape"], about["typestr"], about["data"]) == ((3,), "<f4", (4096, False))
    assert len(array) == 3
