"""Selectors: which entries of a dense vector are worth sending."""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn, Optional

from ._buffers import Type, buffer_of, dim_of, order, type_of
from ._foreign import device_of
from ._library import check, lib
from ._stream import Stream
from ._structs import select_options


class Selector:
    """Picks the entries of a dense vector that are worth sending: ``Selector(dim, density=0.01,
    method="topk")``. With ``memory="cuda"`` vectors and streams are on a CUDA device."""

    def __init__(self, dim: int, dtype: Any = Type.F32, **options: Any) -> None:
        self.dim = dim_of(dim)
        self.type = type_of(dtype)
        self._handle = ctypes.c_void_p()
        self.device = device_of(options)
        c_options = select_options(options)
        check(
            lib.rill_selector_create(
                int(self.type), self.dim, ctypes.byref(c_options), ctypes.byref(self._handle)
            )
        )

    def select(self, dense: Any, out: Optional[Stream] = None) -> Stream:
        """The selected entries of an array."""
        out = self._out() if out is None else out
        source = self._buffer(dense, "dense")
        check(lib.rill_select(self._handle, source.address, out._change(keep=False)))
        return out

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Selector can't be copied or pickled: it has a state that is not to be seen; "
            "Selector(dim, dtype, **options) makes another"
        )

    def _out(self) -> Stream:
        if self.device is None:
            return Stream(self.dim, self.type)
        return Stream(self.dim, self.type, memory="cuda", device=self.device)

    def _buffer(self, obj: Any, name: str, writable: bool = False) -> Any:
        return order(buffer_of(obj, name, self.type, self.dim, writable, self.device))

    def select_residual(self, gradient: Any, residual: Any, out: Optional[Stream] = None) -> Stream:
        """residual += gradient; returns what is selected of it, and those entries of residual
        become 0."""
        out = self._out() if out is None else out
        source = self._buffer(gradient, "gradient")
        kept = self._buffer(residual, "residual", writable=True)
        check(
            lib.rill_select_residual(
                self._handle, source.address, kept.address, out._change(keep=False)
            )
        )
        return out

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle:
            lib.rill_selector_free(ctypes.byref(handle))
