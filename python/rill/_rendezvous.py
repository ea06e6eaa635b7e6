"""How processes find each other without MPI: an allgather of bytes, while communicators are
made."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Optional, Sequence

from . import _launch
from ._library import check, lib

Allgather = Callable[[bytes], Sequence[bytes]]

C_ALLGATHER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
)


class CBootstrap(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("allgather", C_ALLGATHER),
        ("context", ctypes.c_void_p),
    ]


class Meeting:
    """At an address of rank 0. ``meeting(bytes)`` gives the bytes of all ranks, which bring equally
    many, as often as wanted. What is not given comes from the environment."""

    def __init__(
        self,
        rank: Optional[int] = None,
        ranks: Optional[int] = None,
        address: Optional[str] = None,
    ) -> None:
        self._bootstrap = CBootstrap(ctypes.sizeof(CBootstrap))
        place = None if address is None else address.encode()
        numbers = [-1 if number is None else int(number) for number in (rank, ranks)]
        check(lib.rill_bootstrap_create(place, *numbers, ctypes.byref(self._bootstrap)))
        self.rank: int = self._bootstrap.rank
        self.ranks: int = self._bootstrap.ranks

    def __call__(self, mine: bytes) -> Sequence[bytes]:
        everyone = ctypes.create_string_buffer(max(len(mine) * self.ranks, 1))
        own = ctypes.create_string_buffer(mine, max(len(mine), 1))
        context = self._bootstrap.context
        if self._bootstrap.allgather(
            ctypes.addressof(own), len(mine), ctypes.addressof(everyone), context
        ):
            detail = lib.rill_last_error() or b"ranks have not met"
            raise ConnectionError(detail.decode(errors="replace"))
        size = len(mine)
        return [everyone.raw[i * size : (i + 1) * size] for i in range(self.ranks)]

    def __del__(self) -> None:
        if getattr(self, "ranks", 0):
            lib.rill_bootstrap_free(ctypes.byref(self._bootstrap))


class StoreMeeting:
    """The same by a store of PyTorch, as torchrun has one."""

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self._store, self.rank, self.ranks = store, rank, ranks
        self._calls = 0

    def __call__(self, mine: bytes) -> Sequence[bytes]:
        self._calls += 1
        key = f"rill/{self._calls}/"
        self._store.set(f"{key}{self.rank}", mine)
        return [bytes(self._store.get(f"{key}{number}")) for number in range(self.ranks)]


def torchrun_store() -> StoreMeeting:
    """By the store of torchrun itself, so that no process group is needed."""
    from torch import distributed as dist

    store, rank, ranks = next(dist.rendezvous("env://"))
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return StoreMeeting(dist.PrefixStore(f"rill-{restart}", store), rank, ranks)


def meet(
    rank: Optional[int] = None, ranks: Optional[int] = None, address: Optional[str] = None
) -> Any:
    """An allgather of bytes, with ``rank`` and ``ranks``; what is not given comes from the
    environment."""
    if address or os.environ.get("RILL_RENDEZVOUS"):
        return Meeting(rank, ranks, address)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return torchrun_store()
    count = ranks or _launch.world_size()
    why = (
        f"{count or 'Several'} processes were started without MPI, and nothing says where they "
        "meet: set RILL_RENDEZVOUS=host:port, an address of rank 0, or call "
        "torch.distributed.init_process_group first"
    )
    raise RuntimeError(_launch.message(count or 2, why))
