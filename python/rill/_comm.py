"""Communicators, and the collectives in their three forms."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Optional, Union

import numpy as np

from . import _exit, _launch, _rendezvous, _ucx
from ._library import (
    AGREE_DIM,
    COLLECTIVES,
    Fork,
    RillError,
    Sharing,
    c_int,
    check,
    check_shared,
    lib,
)
from ._mpi import NATIVE, mpi
from ._op import Op, check_op, op_handle
from ._pending import Call, Part, Pending, Request
from ._stream import Stream, as_stream
from ._structs import SMALL_CALL, Stats, call_options, config_of, empty_stats, stats_of

if TYPE_CHECKING:
    from ._structs import Options, Settings, Unpack


# The same, of which blocking calls need no object.
_Made = tuple[
    Callable[[], tuple[Any, ...]], tuple[Stream, ...], tuple[Stream, ...], Any, Callable[[], Any]
]
_SHARES_NOTHING: Any = contextlib.nullcontext()


class Comm:
    """A communicator: a duplicate of an mpi4py one, ``MPI.COMM_WORLD`` by default. Creating one is
    collective.

    The collectives take streams, or whatever ``as_stream`` takes. Each has three forms:
    ``allreduce`` returns the result, ``iallreduce`` a started Request, ``allreduce_init`` one to
    start as often as wanted. Options such as ``algorithm="dsar"`` or ``value_bits=4`` are keywords;
    all ranks give the same.

    Settings are keywords too, as ``rill_config`` of rill.h spells them: ``check=True`` compares the
    arguments of all ranks before each call; ``progress_thread=True`` has a thread of the library
    advance requests and steps while the program computes (rill.torch starts it where it pays);
    ``learn="on"`` has the planner learn from calls. Rank 0's are those of all. ``free()``, which is
    collective too, or a ``with`` block gives the memory back; garbage collection does not, since
    ranks would disagree on when.
    """

    _again: Optional[Callable[[], "Comm"]]

    def __init__(
        self, comm: Any = None, *, info: Any = None, **settings: Unpack[Settings]
    ) -> None:  # fmt: skip
        wrong = f"comm is of type {type(comm).__name__}: an mpi4py communicator is needed"
        if "mpi4py.MPI" not in sys.modules:
            if comm is not None:
                raise TypeError(wrong)
            _launch.check_before_mpi()
        m = mpi()
        self.mpi: Any = m.module.COMM_WORLD if comm is None else comm
        if not isinstance(self.mpi, m.module.Comm):
            raise TypeError(wrong)
        config = config_of(settings)
        if NATIVE:
            config.info = None if info is None else m.module._addressof(info)
            handle = ctypes.c_void_p()
            made = ctypes.byref(handle)
            check(lib.rill_comm_create(m.handle(self.mpi), ctypes.byref(config), made))
        elif info is not None:
            raise ValueError("info is for a library that was built with MPI; this one was not")
        else:
            ranks, gather = self.mpi.Get_size(), self.mpi.allgather
            handle = _ucx.create(self.mpi.Get_rank(), ranks, gather, config)
        self._take(handle)
        self._again = self._duplicate
        if self.mpi == m.module.COMM_WORLD:
            try:
                _launch.check(lambda: self.size)
            except RuntimeError:
                self.free()
                raise
        _exit.install(m.module)
        self._remember(settings.get("check"))

    def _duplicate(self) -> "Comm":
        return Comm(self.mpi)

    @classmethod
    def ucx(
        cls,
        rank: int,
        ranks: int,
        allgather: _rendezvous.Allgather,
        **settings: Unpack[Settings],
    ) -> "Comm":
        """A communicator of processes that are no ranks of MPI, over UCX. Collective.

        ``allgather(mine)`` gives the bytes of all ranks, in the order of the ranks; all bring
        equally many. It is called only here. ``rill.init()`` brings one that needs an address only,
        and rill.torch takes that of PyTorch's process group.
        """
        comm = cls._of(_ucx.create(rank, ranks, allgather, config_of(settings)))
        beside = settings.copy()
        beside["progress_thread"] = None  # calls there are few
        comm._again = lambda: cls.ucx(rank, ranks, allgather, **beside)
        _exit.install(None)
        comm._remember(settings.get("check"))
        return comm

    def _remember(self, checks: Optional[bool]) -> None:
        by_environment = os.environ.get("RILL_CHECK", "0") != "0"
        _exit.remember(self._handle, by_environment if checks is None else checks)

    def _take(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle
        self._shares_errors = {name: self._sharing_of(name) for name in COLLECTIVES}
        self._aside: Optional[Comm] = None
        self._again = None  # makes another one of the same ranks
        self._under_way: set[Pending] = set()
        self._children: weakref.WeakSet[Any] = weakref.WeakSet()
        self.rank: int = lib.rill_comm_rank(handle)
        self.size: int = lib.rill_comm_size(handle)

    @classmethod
    def _of(cls, handle: ctypes.c_void_p) -> "Comm":
        """One without MPI."""
        comm = cls.__new__(cls)
        comm.mpi = None
        comm._take(handle)
        return comm

    def __enter__(self) -> "Comm":
        return self

    def __exit__(self, *_: Any) -> None:
        self.free()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Comm can't be copied or pickled: it belongs to this process; use it as it is, or "
            "create one on each rank"
        )

    def __repr__(self) -> str:
        return f"<rill.Comm rank {self.rank} of {self.size}{', freed' if self.freed else ''}>"

    @property
    def freed(self) -> bool:
        """Whether free() was called."""
        return not self._handle

    def free(self) -> None:
        """Frees it with its requests and reducers. Collective; also works after a failed call."""
        if self.freed or Fork.forked:
            return
        for child in list(self._children):
            try:
                child.free()
            except RillError:
                pass  # of what was under way; it was or will be reported by its wait
        if self._aside is not None:
            self._aside.free()
        check(lib.rill_comm_free(ctypes.byref(self._handle)))

    @property
    def stats(self) -> Stats:
        """Of the last blocking call."""
        stats = empty_stats()
        check(lib.rill_comm_stats(self._live(), ctypes.byref(stats)))
        return stats_of(stats)

    def progress(self) -> None:
        """Advances all requests; never blocks."""
        check(lib.rill_progress(self._live()))

    def start_thread(self) -> None:
        """As ``progress_thread=True`` does, on this rank."""
        check(lib.rill_comm_progress_thread(self._live(), 1))

    def _live(self) -> ctypes.c_void_p:
        if self.freed:
            raise ValueError("the communicator was freed")
        if Fork.forked:
            raise RuntimeError(
                "this process is a fork of the rank, such as a worker of a DataLoader: the "
                "communicator has stayed with the rank"
            )
        return self._handle

    @property
    def threads(self) -> bool:
        """Whether several threads may communicate: always without MPI, else where it has
        MPI_THREAD_MULTIPLE."""
        if self.mpi is None or not NATIVE:
            return True
        return bool(mpi().module.Query_thread() == mpi().module.THREAD_MULTIPLE)

    # ---- ranks that are gone ----

    def failed(self) -> list[int]:
        """The ranks that are known to be gone, after a PeerError."""
        ranks, n = (ctypes.c_int * self.size)(), ctypes.c_int()
        check(lib.rill_comm_failed(self._live(), self.size, ranks, ctypes.byref(n)))
        return list(ranks[: n.value])

    def shrink(self) -> "Comm":
        """A communicator of the ranks that live, after a PeerError; this one stays, to be freed.
        Collective over those that live."""
        handle = ctypes.c_void_p()
        check_shared(lib.rill_comm_shrink(self._live(), ctypes.byref(handle)))
        made = Comm._of(handle)
        if self._again is not None:
            made._again = lambda: Comm.ucx(made.rank, made.size, made._gather_bytes)
        _exit.install(None)
        made._remember(None)
        return made

    # ---- errors of one rank ----

    def _sharing_of(self, name: str) -> Sharing:
        nothing = (0 if kind is c_int else None for kind in COLLECTIVES[name])
        return Sharing(getattr(lib, f"rill_{name}"), self._handle, *nothing, None)

    def _agree(self) -> None:
        """All ranks are here; or this raises the error that one of them shares. Collective."""
        if self.size == 1:
            return
        stream, handle = Stream(AGREE_DIM), ctypes.c_void_p()
        arguments = (stream._handle, stream._handle, op_handle("sum"), ctypes.byref(SMALL_CALL))
        check_shared(lib.rill_iallreduce(self._live(), *arguments, ctypes.byref(handle)))
        try:
            check_shared(lib.rill_wait(handle))
        finally:
            lib.rill_request_free(ctypes.byref(handle))

    def _beside(self) -> "Comm":
        """Another one of the same ranks, for calls that come before those of this one on some ranks
        and after them on others. The first call is collective."""
        if self._again is None:
            raise ValueError("a communicator of rill.local can't have another one beside it")
        if self._aside is None:
            self._aside = self._again()
        return self._aside

    def _gather(self, mine: Any) -> list[Any]:
        """Every rank's object, of what JSON has. By calls of rill, so that it fails where a rank
        has left. Collective."""
        if self.size == 1:
            return [json.loads(json.dumps(mine))]
        text = np.frombuffer(json.dumps(mine).encode(), np.uint8)
        lengths = Stream(self.size, "f64").set_pairs([self.rank], np.array([text.size], float))
        ends = np.cumsum(self.allreduce(lengths, lengths, **_EXACT).dense().astype(np.int64))
        first = int(ends[self.rank]) - text.size
        part = Stream(int(ends[-1]), "f16").set_pairs(
            np.arange(first, first + text.size, dtype=np.uint32), text.astype(np.float16)
        )
        whole = self.allreduce(part, part, **_EXACT).dense().astype(np.uint8).tobytes()
        return [json.loads(whole[a:b]) for a, b in zip([0, *ends[:-1]], ends)]

    def _gather_bytes(self, mine: bytes) -> list[bytes]:
        return [bytes.fromhex(text) for text in self._gather(mine.hex())]

    def _bcast_bytes(self, memory: Any, root: int) -> None:
        """Over an array of bytes, in pieces. Collective."""
        if self.mpi is not None:
            self.mpi.Bcast(memory, root=root)
            return
        for first in range(0, memory.size, _PIECE):
            piece = memory[first : first + _PIECE]
            stream = Stream(piece.size, "f16")  # which has all numbers that a byte has
            if self.rank == root:
                stream.set_dense(piece.astype(np.float16))
            self.bcast(stream, root=root, **_EXACT_BCAST)
            piece[:] = stream.dense()

    # ---- the collectives ----

    def _run(
        self, form: str, name: str, prepare: Callable[..., _Made], given: tuple[Any, ...],
        options: Any,
    ) -> Any:  # fmt: skip
        """form: "" blocking, "i" non-blocking, "init" persistent."""
        self._live()
        with self._shares_errors[name] if form != "init" else _SHARES_NOTHING:  # it starts nothing
            call = prepare(*given)
            c_options = call_options(options)
            arguments = call[0]()
        if form != "":
            return Request(self, name, Call(*call), arguments, c_options, started=form == "i")
        status = getattr(lib, f"rill_{name}")(self._handle, *arguments, ctypes.byref(c_options))
        _, _, _, op, result = call
        if status < 0 or isinstance(op, Op):
            check_op(op)
            check_shared(status)
        return result()

    def _allreduce(self, x: Any, out: Any, op: Any) -> _Made:
        x, out = _pair(x, out)
        handle = op_handle(op)
        return (lambda: (*_handles(x, out), handle), (x,), (out,), op, lambda: out)

    def _reduce(self, x: Any, out: Any, op: Any, root: int) -> _Made:
        x = as_stream(x)
        handle = op_handle(op)
        if self.rank != root:
            return (lambda: (x._handle, None, handle, root), (x,), (), op, lambda: None)
        x, out = _pair(x, out)
        return (lambda: (*_handles(x, out), handle, root), (x,), (out,), op, lambda: out)

    def _reduce_scatter(self, x: Any, out: Any, op: Any) -> _Made:
        x, out = _pair(x, out)
        first, count = ctypes.c_uint64(), ctypes.c_uint64()
        rest = (op_handle(op), ctypes.pointer(first), ctypes.pointer(count))
        return (
            lambda: (*_handles(x, out), *rest),
            (x,), (out,), op, lambda: Part(out, first.value, count.value),
        )  # fmt: skip

    def _allgather(self, x: Any, out: Any) -> _Made:
        x, out = _pair(x, out)
        return (lambda: _handles(x, out), (x,), (out,), None, lambda: out)

    def _bcast(self, x: Stream, root: int) -> _Made:
        if not isinstance(x, Stream):
            raise TypeError(f"bcast needs a rill.Stream on every rank, not {type(x).__name__}")
        return (lambda: (x._change(), root), (), (x,), None, lambda: x)

    # ---- blocking ----

    def allreduce(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum",
        **options: Unpack[Options],
    ) -> Stream:  # fmt: skip
        """The sum (or another op) over all ranks, bitwise the same on each. ``out`` may be
        ``x``."""
        return self._run("", "allreduce", self._allreduce, (x, out, op), options)

    def reduce(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", root: int = 0,
        **options: Unpack[Options],
    ) -> Optional[Stream]:  # fmt: skip
        """As allreduce, for the root; None elsewhere."""
        return self._run("", "reduce", self._reduce, (x, out, op, root), options)

    def reduce_scatter(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum",
        **options: Unpack[Options],
    ) -> Part:  # fmt: skip
        """Each rank gets its range of the result, in a stream of the whole dimension."""
        return self._run("", "reduce_scatter", self._reduce_scatter, (x, out, op), options)

    def allgather(self, x: Any, out: Optional[Stream] = None, **options: Unpack[Options]) -> Stream:
        """The union of disjoint supports; an overlap is an error on all ranks."""
        return self._run("", "allgather", self._allgather, (x, out), options)

    def bcast(self, x: Stream, root: int = 0, **options: Unpack[Options]) -> Stream:
        """The root's stream, into ``x``."""
        return self._run("", "bcast", self._bcast, (x, root), options)

    # ---- non-blocking ----

    def iallreduce(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum",
        **options: Unpack[Options],
    ) -> Request:  # fmt: skip
        """Non-blocking allreduce."""
        return self._run("i", "allreduce", self._allreduce, (x, out, op), options)

    def ireduce(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", root: int = 0,
        **options: Unpack[Options],
    ) -> Request:  # fmt: skip
        """Non-blocking reduce."""
        return self._run("i", "reduce", self._reduce, (x, out, op, root), options)

    def ireduce_scatter(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum",
        **options: Unpack[Options],
    ) -> Request:  # fmt: skip
        """Non-blocking reduce_scatter."""
        return self._run("i", "reduce_scatter", self._reduce_scatter, (x, out, op), options)

    def iallgather(
        self, x: Any, out: Optional[Stream] = None, **options: Unpack[Options]
    ) -> Request:
        """Non-blocking allgather."""
        return self._run("i", "allgather", self._allgather, (x, out), options)

    def ibcast(self, x: Stream, root: int = 0, **options: Unpack[Options]) -> Request:
        """Non-blocking bcast."""
        return self._run("i", "bcast", self._bcast, (x, root), options)

    # ---- persistent ----

    def allreduce_init(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum",
        **options: Unpack[Options],
    ) -> Request:  # fmt: skip
        """Persistent allreduce."""
        return self._run("init", "allreduce", self._allreduce, (x, out, op), options)

    def reduce_init(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", root: int = 0,
        **options: Unpack[Options],
    ) -> Request:  # fmt: skip
        """Persistent reduce."""
        return self._run("init", "reduce", self._reduce, (x, out, op, root), options)

    def reduce_scatter_init(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum",
        **options: Unpack[Options],
    ) -> Request:  # fmt: skip
        """Persistent reduce_scatter."""
        return self._run("init", "reduce_scatter", self._reduce_scatter, (x, out, op), options)

    def allgather_init(
        self, x: Any, out: Optional[Stream] = None, **options: Unpack[Options]
    ) -> Request:
        """Persistent allgather."""
        return self._run("init", "allgather", self._allgather, (x, out), options)

    def bcast_init(self, x: Stream, root: int = 0, **options: Unpack[Options]) -> Request:
        """Persistent bcast."""
        return self._run("init", "bcast", self._bcast, (x, root), options)


# Of calls that carry other things than numbers.
_EXACT: Any = {"algorithm": "recursive_double", "codec": "raw", "value_bits": 0, "allow_bits": 0}
_EXACT_BCAST: Any = {"value_bits": 0, "allow_bits": 0}
_PIECE = 1 << 22


def _pair(x: Any, out: Optional[Stream]) -> tuple[Stream, Stream]:
    x = as_stream(x)
    if out is not None and not isinstance(out, Stream):
        raise TypeError(f"out is of type {type(out).__name__}: a rill.Stream is needed")
    return x, Stream(x.dim, x.type) if out is None else out


def _handles(x: Stream, out: Stream) -> tuple[Any, Any]:
    """For a call that reads x and writes out."""
    written = out._change(keep=out is x)
    return x._handle, written
