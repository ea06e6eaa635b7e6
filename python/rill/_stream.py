"""Streams: vectors that are sparse, dense or block-sparse. Operations on them."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from ._buffers import (
    Type,
    buffer_of,
    indices_of,
    is_scipy_sparse,
    is_torch,
    numpy_dtype,
    type_of,
    view,
)
from ._library import check, lib

ArrayLike = Any  # a NumPy array or a CPU tensor

_OP_FN = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint64,
    ctypes.c_int,
    ctypes.c_void_p,
)


class Op:
    """An operation of your own: ``fn(lower, upper)`` on arrays, commutative and associative.

    ``neutral`` is the value with ``fn(x, neutral) == x``; ``name`` must be the same on all ranks. fn sees
    float32, float64 or float16 arrays, comes from whatever thread advances the call, and must not
    keep the arrays. An exception in it is raised by the call, and is an error on the other ranks.
    """

    _types = (Type.F32, Type.F64, Type.F16)

    def __init__(self, name: str, fn: Callable[[Any, Any], Any], neutral: float) -> None:
        self.name = name
        self.error: Optional[BaseException] = None
        self._fn, self._neutral = fn, neutral
        self._callback = _OP_FN(self._run)
        self._handle = ctypes.c_void_p()
        types = sum(1 << kind for kind in self._types)
        check(
            lib.rill_op_create(
                name.encode(), ctypes.cast(self._callback, ctypes.c_void_p), None, neutral, types,
                ctypes.byref(self._handle),
            )
        )  # fmt: skip

    def _run(self, lower: int, upper: int, result: int, n: int, kind: int, _context: Any) -> None:
        dtype = numpy_dtype(Type(kind))
        out = view(result, n, dtype, None)
        out.flags.writeable = True
        try:
            out[:] = self._fn(view(lower, n, dtype, None), view(upper, n, dtype, None))
        except BaseException as error:  # nothing may pass through the C library
            self.error = self.error or error
            out[:] = math.nan
            lib.rill_error_set(0, f"{type(error).__name__}: {error}".encode())  # the call fails

    def _check(self) -> None:
        """Raises what the function raised."""
        if self.error is not None:
            error, self.error = self.error, None
            lib.rill_error_set(0, None)
            raise error

    def __reduce__(self) -> tuple[Any, ...]:
        return Op, (self.name, self._fn, self._neutral)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            lib.rill_op_free(ctypes.byref(handle))


def _built_in(name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(lib, f"rill_op_{name}"))


_BUILT_IN = {name: _built_in(name) for name in ("sum", "min", "max", "prod")}


def check_op(op: Any) -> None:
    """After a call with the operation, also one that failed: raises what a function of the user's raised."""
    if isinstance(op, Op):
        op._check()


def op_handle(op: Union[str, Op]) -> Any:
    if isinstance(op, Op):
        return op._handle
    if op not in _BUILT_IN:
        raise ValueError(f"op {op!r} is none of {', '.join(_BUILT_IN)}, nor a rill.Op")
    return _BUILT_IN[op]


class _Handle(ctypes.c_void_p):
    """Owns a stream of the library: frees it when neither a Stream nor a view needs it any more."""

    def __del__(self) -> None:
        if self:
            lib.rill_stream_free(ctypes.byref(self))


class _Export:
    """What all views of a stream's memory hold."""

    def __init__(self, handle: _Handle) -> None:
        self.handle = handle


class Stream:
    """A vector of dimension ``dim`` that is sparse, dense or block-sparse, and switches by itself.

    ``Stream(1000)`` is empty; ``set_pairs``, ``set_blocks`` and ``set_dense`` fill it, and ``rill.as_stream`` makes
    one from an array, a ``scipy.sparse`` vector or a tensor. Views (``indices``, ``values``, ``blocks``) are arrays over the
    stream's own memory, and show what it held when they were taken: a stream that is changed while there are views goes on in other
    memory. From start to completion of a call it can't be changed, nor viewed if the call writes it: BufferError. A stream is used by one
    thread at a time. ``copy`` and ``pickle`` work, by value.
    """

    def __init__(self, dim: int, dtype: Any = Type.F32) -> None:
        self._type = type_of(dtype)
        if dim < 0:
            raise ValueError(f"dim {dim} is negative")
        self._dim = int(dim)
        self._export: Optional[weakref.ref[_Export]] = None  # alive while there are views
        self._readers: set[Any] = set()  # calls under way
        self._writers: set[Any] = set()
        self._handle = self._create()

    def _create(self) -> _Handle:
        handle = _Handle()
        check(lib.rill_stream_create(int(self._type), self._dim, ctypes.byref(handle)))
        return handle

    def __copy__(self) -> "Stream":
        return self.copy()

    def __deepcopy__(self, memo: Any) -> "Stream":
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
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
        """To be called before the contents change: the handle to change them by. Without keep they are about to be replaced."""
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
        return view(address, count, dtype, export)

    def __repr__(self) -> str:
        form = "dense" if self.is_dense else f"blocks of {self.block}" if self.block else "sparse"
        return f"<rill.Stream dim={self.dim} {self.type.name.lower()} {form} nnz={self.nnz}>"

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
        """What an absent entry stands for: 0, or the neutral element of the operation that made the stream."""
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
        """Replaces the contents. Indices may be unsorted and repeat: values of equal ones are summed."""
        idx = indices_of(indices, "indices")
        buffer = buffer_of(values, "values", self._type, idx.size)
        call = lib.rill_stream_set_pairs if idx.dtype == np.uint32 else lib.rill_stream_set_pairs64
        check(call(self._change(keep=False), idx.size, idx.ctypes.data, buffer.address))
        return self

    def set_blocks(self, block: int, blocks: Any, values: ArrayLike) -> "Stream":
        """Replaces the contents by blocks of ``block`` entries, such as rows of an embedding."""
        numbers = indices_of(blocks, "blocks").astype(np.uint64, copy=False)
        buffer = buffer_of(values, "values", self._type, numbers.size * block)
        check(
            lib.rill_stream_set_blocks(
                self._change(keep=False), block, numbers.size, numbers.ctypes.data, buffer.address
            )
        )
        return self

    def set_dense(self, dense: ArrayLike) -> "Stream":
        """Replaces the contents by the non-zeros of an array, or by all of it where that is cheaper."""
        buffer = buffer_of(dense, "dense", self._type, self._dim)
        check(lib.rill_stream_set_dense(self._change(keep=False), buffer.address))
        return self

    def clear(self) -> "Stream":
        """No entries, fill 0."""
        check(lib.rill_stream_clear(self._change(keep=False)))
        return self

    def copy(self) -> "Stream":
        """A stream of its own with the same contents."""
        other = Stream(self._dim, self._type)
        check(lib.rill_stream_copy(other._handle, self._handle))
        return other

    # ---- out ----

    def dense(self, out: Optional[ArrayLike] = None) -> Any:
        """All entries, in ``out`` or a new array."""
        if out is None:
            out = np.empty(self._dim, numpy_dtype(self._type))
        buffer = buffer_of(out, "out", self._type, self._dim, writable=True)
        check(lib.rill_stream_get_dense(self._handle, buffer.address))
        return out

    def scipy(self, shape: Optional[tuple[int, int]] = None) -> Any:
        """A ``scipy.sparse`` COO matrix: of one row, or of a shape with dim entries in row order."""
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
        """Switches to blocks of ``block`` entries: those that have an entry that differs from the fill."""
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
    """streams[0] op streams[1] op ..., in one pass."""
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
    """A stream of a stream (itself), a NumPy array, a ``scipy.sparse`` matrix or a dense or sparse tensor.

    Matrices and tensors count in row order; contents are copied.
    """
    if isinstance(obj, Stream):
        return obj
    if is_scipy_sparse(obj):
        coo = obj.tocoo()
        idx = coo.row.astype(np.uint64) * np.uint64(coo.shape[1]) + coo.col.astype(np.uint64)
        return Stream(coo.shape[0] * coo.shape[1], coo.dtype).set_pairs(
            idx, np.ascontiguousarray(coo.data)
        )
    if is_torch(obj) and obj.is_sparse:
        from .torch import to_stream

        return to_stream(obj)
    buffer = buffer_of(obj, "array")
    return Stream(buffer.count, buffer.type).set_dense(obj)
