"""A stream among arrays: NumPy, DLPack, equality, sums."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from ._buffers import Type

if TYPE_CHECKING:
    from ._stream import Stream

_CPU, _CUDA = 1, 2  # kinds of devices of DLPack


def numbers(values: Any, kind: Type) -> Any:
    """Values as NumPy can count with them: it has no bfloat16, which becomes float32."""
    if kind is Type.BF16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


class Arrays:
    """What makes a Stream an array to others. All entries are written out, so that what comes of it
    is a copy, as large as the dimension."""

    __array_ufunc__ = None  # array + stream is for __radd__: not all entries, one by one
    __hash__ = None  # type: ignore[assignment]

    def __array__(self: Any, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        """All entries, for ``numpy.asarray``. bfloat16 comes as float32."""
        if copy is False:
            raise ValueError("a stream as an array is a copy: copy=False can't be")
        dense = numbers(self.dense(), self.type)
        return dense if dtype is None else dense.astype(dtype, copy=False)

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        return (_CPU, 0) if self._device is None else (_CUDA, max(self._device, 0))

    def __dlpack__(self: Any, **how: Any) -> Any:
        """All entries, for ``torch.from_dlpack`` and its like."""
        if self._device is not None:
            raise BufferError(
                "the stream is on a CUDA device: its values have the CUDA array interface, "
                'or to("host") copies it'
            )
        if self._type is not Type.BF16:
            return self.dense().__dlpack__(**how)
        if "torch" not in sys.modules:
            raise BufferError("bfloat16 goes by DLPack only where PyTorch is imported")
        return self.torch().to_dense().__dlpack__(**how)

    def __eq__(self: Any, other: Any) -> bool:
        """Whether dimension and type are the same, and the value at every place, in whatever
        form."""
        if not isinstance(other, Arrays):
            return NotImplemented
        theirs: Any = other
        if (self.dim, self.type) != (theirs.dim, theirs.type):
            return False
        (places, values, fill), (others, values2, fill2) = _entries(self), _entries(theirs)
        full = places.size == self.dim and others.size == self.dim  # no place has the fill
        same = full or fill == fill2 or bool(np.isnan(fill) and np.isnan(fill2))
        return same and np.array_equal(places, others) and np.array_equal(values, values2)

    def __add__(self: Any, other: Any) -> "Stream":
        """A new stream; of an array or a tensor, too."""
        from ._stream import as_stream

        return self.copy().add(as_stream(other))

    def __radd__(self: Any, other: Any) -> "Stream":
        if isinstance(other, int) and other == 0:  # as sum() begins
            return self.copy()
        return self + other

    def __iadd__(self: Any, other: Any) -> "Stream":
        from ._stream import as_stream

        return self.add(as_stream(other))


def _entries(stream: Any) -> tuple[Any, Any, float]:
    """Places and values that differ from the fill, and the fill."""
    pairs = stream.to("host")
    if pairs.is_dense or pairs.block:
        pairs.to_sparse()
    values, fill = numbers(pairs.values, pairs.type), pairs.fill
    there = np.flatnonzero(~np.isnan(values) if np.isnan(fill) else values != fill)
    return pairs.indices[there], values[there], fill
