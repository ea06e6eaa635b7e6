"""Communicators over UCX: ranks that find each other by an allgather of bytes, without MPI."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from ._library import check, lib, needs
from ._rendezvous import Allgather

_ALLGATHER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
)


class CBootstrap(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("allgather", _ALLGATHER),
        ("context", ctypes.c_void_p),
    ]


def create(rank: int, ranks: int, allgather: Allgather, config: Any) -> ctypes.c_void_p:
    """A communicator's handle. What allgather raises is raised here."""
    needs("rill_comm_create_ucx", "ranks without MPI")
    failure: Optional[BaseException] = None

    def gather(mine: int, count: int, everyone: int, _context: Any) -> int:
        nonlocal failure
        try:
            parts = allgather(ctypes.string_at(mine, count))
            if len(parts) != ranks or any(len(part) != count for part in parts):
                raise ValueError(
                    f"allgather gave parts of {[len(part) for part in parts]} bytes: {ranks} of {count} are needed"
                )
            ctypes.memmove(everyone, b"".join(map(bytes, parts)), ranks * count)
            return 0
        except BaseException as error:  # nothing may pass through the C library
            failure = error
            return 1

    bootstrap = CBootstrap(ctypes.sizeof(CBootstrap), rank, ranks, _ALLGATHER(gather), None)
    handle = ctypes.c_void_p()
    status = lib.rill_comm_create_ucx(
        ctypes.byref(bootstrap), ctypes.byref(config), ctypes.byref(handle)
    )
    if failure is not None:
        if handle:
            lib.rill_comm_free(ctypes.byref(handle))
        raise failure
    check(status)
    return handle
