"""Operations of collectives and sums."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Callable, Optional, Union

from ._buffers import Type, numpy_dtype, view
from ._library import check, lib

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

    ``neutral`` is the value with ``fn(x, neutral) == x``; ``name`` must be the same on all ranks.
    fn sees float32, float64 or float16 arrays, comes from whatever thread advances the call, and
    must not keep the arrays. An exception in it is raised by the call, and is an error on the other
    ranks.
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
    """After a call with the operation, also one that failed: raises what a function of the user's
    raised."""
    if isinstance(op, Op):
        op._check()


def op_handle(op: Union[str, Op]) -> Any:
    if isinstance(op, Op):
        return op._handle
    if op not in _BUILT_IN:
        raise ValueError(f"op {op!r} is none of {', '.join(_BUILT_IN)}, nor a rill.Op")
    return _BUILT_IN[op]
