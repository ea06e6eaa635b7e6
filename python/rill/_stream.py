"""Streams: vectors that are sparse, dense or block-sparse. Operations on them."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from ._buffers import Type, buffer_of, indices_of, is_scipy_sparse, is_torch, numpy_dtype, type_of, view
from ._library import check, lib

ArrayLike = Any  # a NumPy array or a CPU tensor

_OP_FN = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p
)


class Op:
    """An operation of your own: ``fn(lower, upper)`` on arrays, commutative and associative.

    ``neutral`` is the value with ``fn(x, neutral) == x``; ``name`` must be the same on all ranks. fn sees
    float32, float64 or float16 arrays, comes from whatever thread advances the call, and must not
    keep the arrays. An exception in it makes the result NaN, and is kept in ``error``.
    """

    def __init__(self, name: str, fn: Callable[[Any, Any], Any], neutral: float) -> None:
        self.name = name
        self.error: Optional[BaseException] = None
        self._fn = fn
        self._callback = _OP_FN(self._run)
        self._handle = ctypes.c_void_p()
        types = sum(1 << kind for kind in (Type.F32, Type.F64, Type.F16))
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
            self.error = error
            out[:] = math.nan

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            lib.rill_op_free(ctypes.byref(handle))


def _built_in(name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(lib, f"rill_op_{name}"))


_BUILT_IN = {name: _built_in(name) for name in ("sum", "min", "max", "prod")}


def op_handle(op: Union[str, Op]) -> Any:
    if isinstance(op, Op):
        return op._handle
    if op not in _BUILT_IN:
        raise ValueError(f"op {op!r} is none of {', '.join(_BUILT_IN)}, nor a rill.Op")
    return _BUILT_IN[op]


class Stream:
    """A vector of dimension ``dim`` that is sparse, dense or block-sparse, and switches by itself.

    ``Stream(1000)`` is empty; ``set_pairs``, ``set_blocks`` and ``set_dense`` fill it, and ``rill.as_stream`` makes
    one from an array, a ``scipy.sparse`` vector or a tensor. Views (``indices``, ``values``, ``blocks``) show the
    stream's own memory until it is next changed. A stream is used by one thread at a time.
    """

    def __init__(self, dim: int, dtype: Any = Type.F32) -> None:
        self._handle = ctypes.c_void_p()
        self._type = type_of(dtype)
        if dim < 0:
            raise ValueError(f"dim {dim} is negative")
        check(lib.rill_stream_create(int(self._type), dim, ctypes.byref(self._handle)))
        self._dim = int(dim)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            lib.rill_stream_free(ctypes.byref(handle))

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
            return view(narrow, self.nnz, np.uint32, self)
        return view(lib.rill_stream_indices64(self._handle), self.nnz, np.uint64, self)

    @property
    def values(self) -> Any:
        """View of the stored values; of bf16 as uint16."""
        return view(lib.rill_stream_values(self._handle), self.nnz, numpy_dtype(self._type), self)

    @property
    def blocks(self) -> Any:
        """View of the sorted numbers of the blocks of a block-sparse stream."""
        count = ctypes.c_uint64()
        address = lib.rill_stream_blocks(self._handle, ctypes.byref(count))
        return view(address, count.value, np.uint64, self)

    # ---- in ----

    def set_pairs(self, indices: Any, values: ArrayLike) -> "Stream":
        """Replaces the contents. Indices may be unsorted and repeat: values of equal ones are summed."""
        idx = indices_of(indices, "indices")
        buffer = buffer_of(values, "values", self._type, idx.size)
        call = lib.rill_stream_set_pairs if idx.dtype == np.uint32 else lib.rill_stream_set_pairs64
        check(call(self._handle, idx.size, idx.ctypes.data, buffer.address))
        return self

    def set_blocks(self, block: int, blocks: Any, values: ArrayLike) -> "Stream":
        """Replaces the contents by blocks of ``block`` entries, such as rows of an embedding."""
        numbers = indices_of(blocks, "blocks").astype(np.uint64, copy=False)
        buffer = buffer_of(values, "values", self._type, numbers.size * block)
        check(lib.rill_stream_set_blocks(self._handle, block, numbers.size, numbers.ctypes.data, buffer.address))
        return self

    def set_dense(self, dense: ArrayLike) -> "Stream":
        """Replaces the contents by the non-zeros of an array, or by all of it where that is cheaper."""
        buffer = buffer_of(dense, "dense", self._type, self._dim)
        check(lib.rill_stream_set_dense(self._handle, buffer.address))
        return self

    def clear(self) -> "Stream":
        """No entries, fill 0."""
        check(lib.rill_stream_clear(self._handle))
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
        return sparse.coo_matrix((pairs.values.copy(), (idx // columns, idx % columns)), shape=(rows, columns))

    def torch(self, shape: Optional[Sequence[int]] = None) -> Any:
        """A sparse COO tensor; with ``shape`` of that, else of one dimension."""
        from .torch import from_stream

        return from_stream(self, shape if shape is not None else (self._dim,))

    # ---- form, operations ----

    def to_dense(self) -> "Stream":
        """Switches to the dense form."""
        check(lib.rill_stream_to_dense(self._handle))
        return self

    def to_sparse(self) -> "Stream":
        """Switches to pairs: the entries that differ from the fill."""
        check(lib.rill_stream_to_sparse(self._handle))
        return self

    def to_blocks(self, block: int) -> "Stream":
        """Switches to blocks of ``block`` entries: those that have an entry that differs from the fill."""
        check(lib.rill_stream_to_blocks(self._handle, block))
        return self

    def add(self, other: "Stream", op: Union[str, Op] = "sum") -> "Stream":
        """self = self op other."""
        check(lib.rill_stream_add(self._handle, other._handle, op_handle(op)))
        return self

    def concat(self, other: "Stream") -> "Stream":
        """Union of disjoint supports; an index in both is an error, and self is unchanged."""
        check(lib.rill_stream_concat(self._handle, other._handle))
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
    return out


def as_stream(obj: Any) -> Stream:
    """A stream of a stream (itself), a NumPy array, a ``scipy.sparse`` matrix or a dense or sparse tensor.

    Matrices and tensors count in row order; contents are copied.
    """
    if isinstance(obj, Stream):
        return obj
    if is_scipy_sparse(obj):
        coo = obj.tocoo()
        idx = coo.row.astype(np.uint64) * np.uint64(coo.shape[1]) + coo.col.astype(np.uint64)
        return Stream(coo.shape[0] * coo.shape[1], coo.dtype).set_pairs(idx, np.ascontiguousarray(coo.data))
    if is_torch(obj) and obj.is_sparse:
        from .torch import to_stream

        return to_stream(obj)
    buffer = buffer_of(obj, "array")
    return Stream(buffer.count, buffer.type).set_dense(obj)
