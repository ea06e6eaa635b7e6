"""Streams: vectors that are sparse, dense or block-sparse. Operations on them."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any, Optional, Sequence, Union

import numpy as np

from ._arrays import Arrays
from ._buffers import (
    MEMORIES,
    DeviceArray,
    Type,
    buffer_of,
    device_number,
    dim_of,
    indices_of,
    is_scipy_sparse,
    is_torch,
    memory_of,
    numpy_dtype,
    order,
    type_of,
    view,
)
from ._foreign import foreign
from ._library import Fork, check, lib
from ._op import Op, check_op, op_handle

ArrayLike = Any  # a NumPy array or a tensor; where the stream is


class _Handle(ctypes.c_void_p):
    """Owns a stream of the library: frees it when neither a Stream nor a view needs it any more."""

    def __del__(self) -> None:
        if self and not Fork.forked:
            lib.rill_stream_free(ctypes.byref(self))


class _Export:
    """What all views of a stream's memory hold."""

    def __init__(self, handle: _Handle) -> None:
        self.handle = handle


class Stream(Arrays):
    """A vector of dimension ``dim`` that is sparse, dense or block-sparse, and switches by itself.

    ``Stream(1000)`` is empty; ``set_pairs``, ``set_blocks`` and ``set_dense`` fill it, and
    ``rill.as_stream`` makes one from an array, a ``scipy.sparse`` vector or a tensor. Views
    (``indices``, ``values``, ``blocks``) are arrays over the stream's own memory, and show what it
    held when they were taken: a stream that is changed while there are views goes on in other
    memory::

        >>> s = rill.Stream(1000).set_pairs([7, 3, 7], np.array([1, 2, 4], np.float32))
        >>> s
        <rill.Stream dim=1000 f32 sparse nnz=2>
        >>> s.indices.tolist(), s.values.tolist()
        ([3, 7], [2.0, 5.0])

    Streams add up and compare (``a + b``, ``a += b``, ``a == b``: the same type and values,
    whatever the form), and ``numpy.asarray`` and ``torch.from_dlpack`` write all entries out::

        >>> twice = s + s
        >>> twice == sum([s, s]), np.asarray(twice)[[3, 7]].tolist()
        (True, [4.0, 10.0])

    From start to completion of a call it can't be changed, nor viewed if the call writes
    it: BufferError. A stream is used by one thread at a time. ``copy`` and ``pickle`` work, by
    value.

    With ``memory="cuda"`` entries are on a CUDA device (``device=0``; the current one by default):
    so are the arrays that it takes, and its views, which have the CUDA array interface.
    ``to("host")`` and ``to("cuda")`` copy a stream from one memory to the other.
    """

    def __init__(
        self, dim: int, dtype: Any = Type.F32, *, memory: str = "host", device: int = -1
    ) -> None:
        self._type = type_of(dtype)
        self._memory = memory_of(memory)
        self._device: Optional[int] = device if self._memory else None
        if not self._memory and device != -1:
            raise ValueError(f"device {device}, but the host's memory has none (-1)")
        self._dim = dim_of(dim)
        self._export: Optional[weakref.ref[_Export]] = None  # alive while there are views
        self._readers: set[Any] = set()  # calls under way
        self._writers: set[Any] = set()
        self._handle = self._create()

    def _create(self) -> _Handle:
        handle = _Handle()
        where = -1 if self._device is None else self._device
        kind, made = int(self._type), ctypes.byref(handle)
        check(lib.rill_stream_create_in(self._memory, where, kind, self._dim, made))
        return handle

    @property
    def memory(self) -> str:
        """Where its entries are: "host" or "cuda"."""
        return next(name for name, number in MEMORIES.items() if number == self._memory)

    def to(self, memory: str, device: int = -1) -> "Stream":
        """A copy in that memory."""
        other = Stream(self._dim, self._type, memory=memory, device=device)
        check(lib.rill_stream_copy(other._handle, self._handle))
        return other

    def _buffer(
        self, obj: Any, name: str, count: Optional[int] = None, writable: bool = False
    ) -> Any:
        return order(buffer_of(obj, name, self._type, count, writable, self._device))

    def __copy__(self) -> "Stream":
        return self.copy()

    def __deepcopy__(self, memo: Any) -> "Stream":
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._device is not None:
            return _moved, (self.to("host"), self._device)
        places = (
            np.empty(0, np.uint64) if self.is_dense else self.blocks if self.block else self.indices
        )
        form = "dense" if self.is_dense else self.block
        return _restored, (
            self._dim,
            int(self._type),
            form,
            self.fill,
            places.copy(),
            self.values.copy(),
        )

    # ---- memory ----

    def _change(self, keep: bool = True) -> _Handle:
        """To be called before the contents change: the handle to change them by. Without keep they
        are about to be replaced."""
        if self._readers or self._writers:
            self._in_use("changed", self._readers | self._writers)
        if self._export is not None:
            if self._export() is not None:  # the views keep the memory
                new = self._create()
                if keep:
                    check(lib.rill_stream_copy(new, self._handle))
                self._handle = new
            self._export = None
        return self._handle

    def _in_use(self, what: str, calls: set[Any]) -> None:
        """Raises unless the calls are complete, though nobody has waited for them."""
        if not all([call._is_complete() for call in calls]):
            raise BufferError(
                f"the stream can't be {what}: a call with it is under way; wait for that first"
            )

    def _view(self, address: Optional[int], count: int, dtype: Any) -> Any:
        if self._writers:
            self._in_use("viewed", self._writers)
        export = self._export() if self._export is not None else None
        if export is None:
            export = _Export(self._handle)
            self._export = weakref.ref(export)
        if self._device is not None:
            return DeviceArray(address, count, dtype, export)
        return view(address, count, dtype, export)

    def __repr__(self) -> str:
        form = "dense" if self.is_dense else f"blocks of {self.block}" if self.block else "sparse"
        where = "" if self._device is None else " cuda"
        return f"<rill.Stream dim={self.dim} {self.type.name.lower()} {form} nnz={self.nnz}{where}>"

    def __len__(self) -> int:
        return self._dim

    # ---- what it holds ----

    @property
    def dim(self) -> int:
        """The dimension."""
        return self._dim

    @property
    def type(self) -> Type:
        """The type of its values."""
        return self._type

    @property
    def nnz(self) -> int:
        """Stored entries; the dimension when dense."""
        return int(lib.rill_stream_nnz(self._handle))

    @property
    def is_dense(self) -> bool:
        """Whether all entries are stored."""
        return bool(lib.rill_stream_is_dense(self._handle))

    @property
    def block(self) -> int:
        """Entries of a block of a block-sparse stream; else 0."""
        return int(lib.rill_stream_block(self._handle))

    @property
    def fill(self) -> float:
        """What an absent entry stands for: 0, or the neutral element of the operation that made the
        stream."""
        value = np.zeros(1, numpy_dtype(self._type))
        check(lib.rill_stream_fill(self._handle, value.ctypes.data))
        if self._type is Type.BF16:
            return float((value.astype(np.uint32) << 16).view(np.float32)[0])
        return float(value[0])

    @property
    def indices(self) -> Any:
        """View of the sorted indices (uint32, or uint64 where dim > 2^32) of a sparse stream."""
        if self.is_dense or self.block:
            raise ValueError(f"{self!r} has no indices; to_sparse() makes it sparse")
        narrow = lib.rill_stream_indices32(self._handle)
        if narrow:
            return self._view(narrow, self.nnz, np.uint32)
        return self._view(lib.rill_stream_indices64(self._handle), self.nnz, np.uint64)

    @property
    def values(self) -> Any:
        """View of the stored values; of bf16 as uint16."""
        return self._view(lib.rill_stream_values(self._handle), self.nnz, numpy_dtype(self._type))

    @property
    def blocks(self) -> Any:
        """View of the sorted numbers of the blocks of a block-sparse stream."""
        count = ctypes.c_uint64()
        address = lib.rill_stream_blocks(self._handle, ctypes.byref(count))
        return self._view(address, count.value, np.uint64)

    # ---- in ----

    def set_pairs(self, indices: Any, values: ArrayLike) -> "Stream":
        """Replaces the contents. Indices may be unsorted and repeat: values of equal ones are
        summed."""
        if self._device is not None:
            return self._set_device_pairs(indices, values)
        idx = indices_of(indices, "indices")
        buffer = buffer_of(values, "values", self._type, idx.size)
        call = lib.rill_stream_set_pairs if idx.dtype == np.uint32 else lib.rill_stream_set_pairs64
        check(call(self._change(keep=False), idx.size, idx.ctypes.data, buffer.address))
        return self

    def _set_device_pairs(self, indices: Any, values: Any) -> "Stream":
        """Whole numbers of 4 or 8 bytes, none negative: who looked would wait for the device."""
        address, count, width, owner = _device_indices(indices)
        buffer = self._buffer(values, "values", count)
        call = lib.rill_stream_set_pairs if width == 4 else lib.rill_stream_set_pairs64
        check(call(self._change(keep=False), count, address, buffer.address))
        del owner
        return self

    def set_blocks(self, block: int, blocks: Any, values: ArrayLike) -> "Stream":
        """Replaces the contents by blocks of ``block`` entries, such as rows of an embedding."""
        if self._device is not None:
            raise ValueError(
                "set_blocks takes arrays of the host: make the stream there, then to()"
            )
        numbers = indices_of(blocks, "blocks").astype(np.uint64, copy=False)
        buffer = buffer_of(values, "values", self._type, numbers.size * block)
        check(
            lib.rill_stream_set_blocks(
                self._change(keep=False), block, numbers.size, numbers.ctypes.data, buffer.address
            )
        )
        return self

    def set_dense(self, dense: ArrayLike) -> "Stream":
        """Replaces the contents by the non-zeros of an array, or by all of it where that is
        cheaper."""
        buffer = self._buffer(dense, "dense", self._dim)
        check(lib.rill_stream_set_dense(self._change(keep=False), buffer.address))
        return self

    def clear(self) -> "Stream":
        """No entries, fill 0."""
        check(lib.rill_stream_clear(self._change(keep=False)))
        return self

    def copy(self) -> "Stream":
        """A stream of its own with the same contents."""
        return self.to(self.memory, -1 if self._device is None else self._device)

    # ---- out ----

    def dense(self, out: Optional[ArrayLike] = None) -> Any:
        """All entries, in ``out`` or a new array."""
        source = self
        if out is None:
            out = np.empty(self._dim, numpy_dtype(self._type))
            source = self if self._device is None else self.to("host")
        buffer = source._buffer(out, "out", self._dim, writable=True)
        check(lib.rill_stream_get_dense(source._handle, buffer.address))
        return out

    def scipy(self, shape: Optional[tuple[int, int]] = None) -> Any:
        """A ``scipy.sparse`` COO matrix: of one row, or of a shape with dim entries in row
        order."""
        from scipy import sparse

        if self._type not in (Type.F32, Type.F64):
            raise TypeError(f"scipy.sparse has no {self._type.name.lower()}")
        rows, columns = shape or (1, self._dim)
        if rows * columns != self._dim:
            raise ValueError(f"shape {shape} has not {self._dim} entries")
        pairs = self if not (self.is_dense or self.block) else self.copy().to_sparse()
        if pairs.fill != 0:
            raise ValueError(f"absent entries stand for {pairs.fill}, not 0; use dense()")
        idx = pairs.indices.astype(np.int64)
        return sparse.coo_matrix(
            (pairs.values.copy(), (idx // columns, idx % columns)), shape=(rows, columns)
        )

    def torch(self, shape: Optional[Sequence[int]] = None) -> Any:
        """A sparse COO tensor; with ``shape`` of that, else of one dimension."""
        from .torch import from_stream

        return from_stream(self, shape if shape is not None else (self._dim,))

    # ---- form, operations ----

    def to_dense(self) -> "Stream":
        """Switches to the dense form."""
        check(lib.rill_stream_to_dense(self._change()))
        return self

    def to_sparse(self) -> "Stream":
        """Switches to pairs: the entries that differ from the fill."""
        check(lib.rill_stream_to_sparse(self._change()))
        return self

    def to_blocks(self, block: int) -> "Stream":
        """Switches to blocks of ``block`` entries: those that have an entry that differs from the
        fill."""
        check(lib.rill_stream_to_blocks(self._change(), block))
        return self

    def add(self, other: "Stream", op: Union[str, Op] = "sum") -> "Stream":
        """self = self op other."""
        into, handle = self._change(), op_handle(op)
        check(lib.rill_stream_add(into, into if other is self else other._handle, handle))
        check_op(op)
        return self

    def concat(self, other: "Stream") -> "Stream":
        """Union of disjoint supports; an index in both is an error, and self is unchanged."""
        check(lib.rill_stream_concat(self._change(), other._handle))
        return self

    def validate(self) -> None:
        """Checks every invariant; RillError names the first broken one."""
        check(lib.rill_stream_validate(self._handle, None))


def sum_streams(streams: Sequence[Stream], op: Union[str, Op] = "sum") -> Stream:
    """streams[0] op streams[1] op ..., in one pass::

    >>> a, b = (rill.as_stream(np.array(x, np.float32)) for x in ([0, 1, 5], [0, 3, 0]))
    >>> rill.sum_streams([a, b], "max").dense().tolist()
    [-inf, 3.0, 5.0]
    """
    if not streams:
        raise ValueError("streams is empty")
    out = Stream(streams[0].dim, streams[0].type)
    handles = (ctypes.c_void_p * len(streams))(*(s._handle.value for s in streams))
    check(lib.rill_stream_sum(out._handle, len(streams), handles, op_handle(op)))
    check_op(op)
    return out


class _Restoring(Op):
    """Has a neutral element, and no values to work on."""

    _types = (Type.F32, Type.F64, Type.F16, Type.BF16)  # type: ignore[assignment]


def _restored(dim: int, kind: int, form: Any, fill: float, places: Any, values: Any) -> Stream:
    """A pickled stream. form: "dense", the size of blocks, or 0."""
    stream = Stream(dim, Type(kind))
    # First an entry wherever there is to be one, or a block, of a value that is not the fill; the
    # values come last, and may be the fill.
    entries = np.full(places.size, fill == 0, numpy_dtype(stream.type))
    stream.set_pairs(places * np.uint64(form) if form and form != "dense" else places, entries)
    if fill != 0:  # as of the result of an operation whose neutral element it is
        stream = sum_streams([stream], _Restoring("restored", np.add, fill))
    _ = (
        stream.to_dense()
        if form == "dense"
        else stream.to_blocks(form)
        if form
        else stream.to_sparse()
    )
    assert stream.nnz == values.size
    if values.size:
        ctypes.memmove(lib.rill_stream_values(stream._handle), values.ctypes.data, values.nbytes)
    return stream


def as_stream(obj: Any) -> Stream:
    """A stream of a stream (itself), a NumPy array, a ``scipy.sparse`` matrix or a dense or sparse
    tensor.

    Matrices and tensors count in row order; contents are copied. Of a dense array on a CUDA device
    the stream is there too::

        >>> rill.as_stream(np.eye(10, 10))
        <rill.Stream dim=100 f64 sparse nnz=10>
    """
    if isinstance(obj, Stream):
        return obj
    if is_scipy_sparse(obj):
        coo = obj.tocoo()
        if len(coo.shape) == 1:
            return Stream(coo.shape[0], coo.dtype).set_pairs(
                coo.coords[0], np.ascontiguousarray(coo.data)
            )
        idx = coo.row.astype(np.uint64) * np.uint64(coo.shape[1]) + coo.col.astype(np.uint64)
        return Stream(coo.shape[0] * coo.shape[1], coo.dtype).set_pairs(
            idx, np.ascontiguousarray(coo.data)
        )
    if is_torch(obj) and obj.is_sparse:
        from .torch import to_stream

        return to_stream(obj)
    where: Optional[int] = None
    if is_torch(obj):
        where = device_number(obj)
    elif not isinstance(obj, np.ndarray):
        found = foreign(obj, "array")
        where = found.device if found is not None else None
    buffer = buffer_of(obj, "array", device=where)
    if where is None:
        return Stream(buffer.count, buffer.type).set_dense(obj)
    return Stream(buffer.count, buffer.type, memory="cuda", device=where).set_dense(obj)


def from_dlpack(obj: Any) -> Stream:
    """A stream of whatever has ``__dlpack__``: an array or a tensor of any library. The contents
    are copied::

        >>> rill.from_dlpack(np.eye(1, 100, 2)).indices.tolist()
        [2]
    """
    if not hasattr(obj, "__dlpack__"):
        raise TypeError(f"{type(obj).__name__} has no __dlpack__; rill.as_stream takes more")
    return as_stream(obj)


def _moved(stream: Stream, device: int) -> Stream:
    """A pickled stream of a device."""
    return stream.to("cuda", device)


def _device_indices(obj: Any) -> tuple[int, int, int, Any]:
    """Address, count and width of indices on a device, and what holds them."""
    if is_torch(obj):
        obj = obj.detach().contiguous()
        if obj.element_size() not in (4, 8) or obj.is_floating_point():
            raise TypeError(f"indices have dtype {obj.dtype}: 4 or 8 bytes a number are needed")
        return obj.data_ptr(), obj.numel(), obj.element_size(), obj
    about = getattr(obj, "__cuda_array_interface__", None)
    if about is None or np.dtype(about["typestr"]).kind not in "iu" or about.get("strides"):
        raise TypeError(f"indices of type {type(obj).__name__}: a tensor of the device is needed")
    return about["data"][0], math.prod(about["shape"]), np.dtype(about["typestr"]).itemsize, obj
