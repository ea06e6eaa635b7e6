"""MPI, as mpi4py has it."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Optional

from . import _exit
from ._library import lib

# Whether the library itself uses MPI. Else MPI only brings ranks together, and they talk over UCX.
NATIVE = hasattr(lib, "rill_comm_create")
_MPI_TEXT = 8192  # at least MPI_MAX_LIBRARY_VERSION_STRING of Open MPI and MPICH


class _Mpi:
    """mpi4py's handles as C values: Open MPI's are pointers, MPICH's are numbers."""

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ModuleNotFoundError as error:
            raise ImportError(
                "communicators of MPI need mpi4py, which is not installed; rill.init() and "
                "torchrun do without"
            ) from error
        self.module = MPI
        if not NATIVE:
            return
        pointers = MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_void_p)
        self.handle_type: Any = ctypes.c_void_p if pointers else ctypes.c_int
        lib.rill_comm_create.argtypes = [self.handle_type, ctypes.c_void_p, ctypes.c_void_p]
        self._same_library()
        _exit.install(MPI)

    def _same_library(self) -> None:
        # Looked up through librill, so that it is the MPI that librill is linked with.
        text, length = ctypes.create_string_buffer(_MPI_TEXT), ctypes.c_int()
        try:
            lib.MPI_Get_library_version(text, ctypes.byref(length))
        except AttributeError:
            return
        ours, theirs = text.value.decode(errors="replace"), self.module.Get_library_version()
        if ours.strip("\0\n ") != theirs.strip("\0\n "):
            # Open MPI's text has commas, MPICH's lines and tabs.
            ours, theirs = (
                " ".join(text.splitlines()[0].split(",")[0].split()) for text in (ours, theirs)
            )
            raise ImportError(f"librill.so uses {ours!r}, mpi4py {theirs!r}")

    def handle(self, obj: Any) -> Any:
        return self.handle_type.from_address(self.module._addressof(obj))


_mpi: Optional[_Mpi] = None
_mpi_lock = threading.Lock()


def mpi() -> _Mpi:
    global _mpi
    with _mpi_lock:
        if _mpi is None:
            _mpi = _Mpi()
        return _mpi
