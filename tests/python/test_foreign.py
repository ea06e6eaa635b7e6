"""Arrays of other libraries, by DLPack and the CUDA array interface."""

import numpy as np
import pytest

import rill
from rill import _buffers, _foreign, _library

pytestmark = pytest.mark.once


class Interface:
    """As CuPy and Numba have it; the memory is the host's, and nobody looks into it."""

    def __init__(self, array, read_only=False, **more):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "strides": None if array.flags.c_contiguous else array.strides,
            "data": (array.ctypes.data, read_only),
            "version": 3,
            **more,
        }


class Pack:
    """Anything that has only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        self.stream = stream
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


class There(Pack):
    """As if it were on a device."""

    def __dlpack_device__(self):
        return (_foreign._CUDA, 3)


@pytest.fixture
def waits(monkeypatch):
    """The streams that the host waits for, on device 0."""
    seen = []

    def wait(stream, device):
        assert device == 0
        seen.append(stream)

    monkeypatch.setattr(_foreign, "_wait", wait)
    return seen


# A stream of the producer's, one that is used, and whether the host waits.
@pytest.mark.parametrize(
    "theirs, ours, expected",
    [
        (None, None, []),
        (1, None, []),
        (2, None, [2]),
        (0x7F00, None, [0x7F00]),
        (0x7F00, 0x7F00, []),
        (0x7F00, 0x8F00, [0x7F00]),
        (1, 0x7F00, [1]),
        (2, 2, []),
        (None, 0x7F00, []),
    ],
)
def test_the_stream_of_the_interface_comes_first(waits, theirs, ours, expected):
    array = Interface(np.ones(4, np.float32), stream=theirs)
    _buffers.buffer_of(array, "x", device=0, stream=ours)
    assert waits == expected


def test_nobody_waits_for_an_array_that_is_refused(waits):
    with pytest.raises(TypeError, match='memory="cuda" takes it'):
        _buffers.buffer_of(Interface(np.ones(4, np.float32), stream=2), "x")
    assert waits == []


def test_an_interface_without_the_key(waits):
    _buffers.buffer_of(Interface(np.ones(4, np.float32)), "x", device=0, stream=0x7F00)
    assert waits == []
    with pytest.raises(ValueError, match="x: 0 is no stream of the CUDA array interface"):
        _buffers.buffer_of(Interface(np.ones(4, np.float32), stream=0), "x", device=0)


@pytest.mark.parametrize("ours, told", [(None, 1), (2, 2), (0x7F00, 0x7F00)])
def test_dlpack_is_told_the_stream(ours, told):
    pack = There(np.ones(4, np.float32))
    found = _buffers.buffer_of(pack, "x", device=3, stream=ours)
    assert (pack.stream, found.device) == (told, 3)


def test_dlpack_of_the_host_is_told_no_stream():
    pack = Pack(np.ones(4, np.float32))
    _buffers.buffer_of(pack, "x")
    assert pack.stream is None


def test_a_step_is_on_the_stream_of_its_gradient():
    values = np.ones(4, np.float32)
    handle = _foreign.stream_handle
    assert handle(None, Interface(values, stream=0x7F00)) == 0x7F00
    assert handle(0x8F00, Interface(values, stream=0x7F00)) == 0x8F00
    assert handle(None, Interface(values, stream=2)) == 2
    assert handle(None, Interface(values, stream=1)) is None
    assert handle(None, Interface(values)) is None
    assert handle(1, values) is None  # the legacy stream by its number
    assert handle(None, Pack(values)) is None


def test_a_wait_for_a_device_that_there_is_not():
    with pytest.raises(rill.RillError, match="rill_device_wait: "):
        _library.check(_library.lib.rill_device_wait(63, None))
