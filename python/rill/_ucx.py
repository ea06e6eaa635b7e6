"""Communicators over UCX: ranks that find each other by an allgather of bytes, without MPI."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from ._library import check, lib
from ._rendezvous import C_ALLGATHER, Allgather, CBootstrap


def create(rank: int, ranks: int, allgather: Allgather, config: Any) -> ctypes.c_void_p:
    """A communicator's handle. What allgather raises is raised here."""
    failure: Optional[BaseException] = None

    def gather(mine: int, count: int, everyone: int, _context: Any) -> int:
        nonlocal failure
        try:
            parts = allgather(ctypes.string_at(mine, count))
            if len(parts) != ranks or any(len(part) != count for part in parts):
                have = [len(part) for part in parts]
                raise ValueError(
                    f"allgather gave parts of {have} bytes: {ranks} of {count} are needed"
                )
            ctypes.memmove(everyone, b"".join(map(bytes, parts)), ranks * count)
            return 0
        except BaseException as error:  # nothing may pass through the C library
            failure = error
            return 1

    bootstrap = CBootstrap(ctypes.sizeof(CBootstrap), rank, ranks, C_ALLGATHER(gather), None)
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
