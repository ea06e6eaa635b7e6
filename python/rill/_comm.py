"""Communicators, the collectives in their three forms, and what is under way."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, NoReturn, Optional, Sequence, Union

from . import _exit, _launch
from ._library import AGREE_DIM, COLLECTIVES, RillError, Sharing, c_int, check, check_shared, lib
from ._mpi import mpi
from ._stream import Op, Stream, as_stream, check_op, op_handle
from ._structs import SMALL_CALL, CConfig, Stats, call_options, empty_stats, stats_of

if TYPE_CHECKING:
    from ._structs import Options, Unpack


class Part(NamedTuple):
    """What reduce_scatter gives this rank: entries [first, first + count) of the result."""

    stream: Stream
    first: int
    count: int  # type: ignore[assignment]


class Pending:
    """Something under way. The constructor and ``_began`` are the one place that keeps memory alive:
    ``kept`` lives as long as this object, and the communicator holds this object until completion. So do the streams that it reads
    and writes, which can't be changed in between."""

    def __init__(
        self, comm: "Comm", kept: tuple[Any, ...], result: Callable[[], Any],
        reads: Sequence[Stream] = (), writes: Sequence[Stream] = (),
    ) -> None:  # fmt: skip
        self.comm = comm
        self._kept = kept
        self._result = result
        self._reads, self._writes = reads, writes

    def _began(self) -> None:
        self.comm._under_way.add(self)
        for stream in self._reads:
            stream._readers.add(self)
        for stream in self._writes:
            stream._writers.add(self)

    def _ended(self) -> None:
        self.comm._under_way.discard(self)
        for stream in self._reads:
            stream._readers.discard(self)
        for stream in self._writes:
            stream._writers.discard(self)

    def _is_complete(self) -> bool:
        """Whether it has ended, or would if somebody waited for it."""
        return self not in self.comm._under_way

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} can't be copied or pickled: it is under way in this process; its result can")

    def _c_request(self) -> Optional[int]:
        """Its address; None where nothing was started."""
        raise NotImplementedError

    def _c_test(self, done: Any) -> int:
        raise NotImplementedError

    def _c_wait(self) -> int:
        raise NotImplementedError

    def test(self) -> bool:
        """Advances what is under way, and says whether this is complete. A failure is raised once it is."""
        done = ctypes.c_int(1)
        status = self._c_test(ctypes.byref(done))
        if done.value or status < 0:
            self._ended()
        self._check(status)
        return bool(done.value)

    def wait(self) -> Any:
        """Waits for completion and returns the result; the GIL is released."""
        status = self._c_wait()
        self._ended()
        self._check(status)
        return self._result()

    def _check(self, status: int) -> None:
        check_shared(status)


class Request(Pending):
    """A non-blocking or persistent call. Streams must stay untouched from start to completion."""

    def __init__(
        self, comm: "Comm", name: str, call: "_Call", arguments: tuple[Any, ...], options: Any, started: bool
    ) -> None:
        super().__init__(comm, (call, options), call.result, call.reads, call.writes)
        self._name, self._call, self._options = name, call, options
        self._symbol = f"rill_i{name}" if started else f"rill_{name}_init"
        self._handle = ctypes.c_void_p()
        self._make(arguments)
        comm._children.add(self)
        if started:
            self._began()

    def _make(self, arguments: tuple[Any, ...]) -> None:
        self._arguments = arguments
        self._bound = [(stream, stream._handle) for stream in (*self._reads, *self._writes)]
        options, handle = ctypes.byref(self._options), ctypes.byref(self._handle)
        check_shared(getattr(lib, self._symbol)(self.comm._live(), *arguments, options, handle))

    def start(self) -> "Request":
        """Starts a persistent request (once more)."""
        for stream, handle in self._bound:
            if stream._export is not None or stream._handle is not handle:
                self._rebind()
                break
        check(lib.rill_start(self._handle))
        self._began()
        return self

    def _rebind(self) -> None:
        """A stream may have gone on in other memory, or has to, and leaves this to its views."""
        if self in self.comm._under_way:
            return
        with self.comm._shares_errors[self._name]:
            arguments = self._call.arguments()
        if not all(map(operator.is_, arguments, self._arguments)):
            check(lib.rill_request_free(ctypes.byref(self._handle)))
            self._make(arguments)

    def _is_complete(self) -> bool:
        done = ctypes.c_int(1)
        if self._handle:
            lib.rill_test(self._handle, ctypes.byref(done))
        if done.value:
            self._ended()
        return bool(done.value)

    def _check(self, status: int) -> None:
        check_op(self._call.op)
        check_shared(status)

    def _c_request(self) -> Optional[int]:
        return self._handle.value

    def _c_test(self, done: Any) -> int:
        return int(lib.rill_test(self._handle, done))

    def _c_wait(self) -> int:
        return int(lib.rill_wait(self._handle))

    @property
    def stats(self) -> Stats:
        """Of the last completed run."""
        stats = empty_stats()
        check(lib.rill_request_stats(self._handle, ctypes.byref(stats)))
        return stats_of(stats)

    def free(self) -> None:
        """Frees the request, after completion if it is under way. Without it, garbage collection does."""
        if self._handle:
            status = lib.rill_request_free(ctypes.byref(self._handle))
            self._ended()
            check(status)

    def __del__(self) -> None:
        # Not under way: the communicator would hold a reference.
        if getattr(self, "_handle", None) and not self.comm.freed:
            lib.rill_request_free(ctypes.byref(self._handle))


def _request_array(requests: Sequence[Pending]) -> Any:
    return (ctypes.c_void_p * len(requests))(*(r._c_request() for r in requests))


def waitall(requests: Sequence[Pending]) -> list[Any]:
    """Waits for all, requests and steps, of any communicators; returns their results, or raises
    the first failure after all ended."""
    status = lib.rill_waitall(len(requests), _request_array(requests))
    for request in requests:
        request._ended()
    for request in requests:
        request._check(0)  # a Python operation's own exception comes first
    check_shared(status)
    return [request._result() for request in requests]


def waitany(requests: Sequence[Pending]) -> Optional[int]:
    """The place of the first complete request or step; None if none was ever started."""
    index = ctypes.c_int(-1)
    status = lib.rill_waitany(len(requests), _request_array(requests), ctypes.byref(index))
    if index.value >= 0:
        requests[index.value]._ended()
        requests[index.value]._check(status)
    check(status)
    return None if index.value < 0 else index.value


class _Call(NamedTuple):
    """What a collective call is about."""

    arguments: Callable[[], tuple[Any, ...]]  # for C, after the communicator; streams that are written are ready for that
    reads: tuple[Stream, ...]
    writes: tuple[Stream, ...]
    op: Any
    result: Callable[[], Any]


# The same, of which blocking calls need no object.
_Made = tuple[Callable[[], tuple[Any, ...]], tuple[Stream, ...], tuple[Stream, ...], Any, Callable[[], Any]]
_SHARES_NOTHING: Any = contextlib.nullcontext()


class Comm:
    """A communicator: a duplicate of an mpi4py one, ``MPI.COMM_WORLD`` by default. Creating one is collective.

    The collectives take streams, or whatever ``as_stream`` takes. Each has three forms: ``allreduce`` returns the result,
    ``iallreduce`` a started Request, ``allreduce_init`` one to start as often as wanted. Options such as
    ``algorithm="dsar"`` or ``value_bits=4`` are keywords; all ranks give the same.

    ``check=True`` compares the arguments of all ranks before each call; ``progress_thread=True`` has a thread of the library
    advance requests and steps while the program computes (rill.torch starts it where it pays).
    ``free()``, which is collective too, or a
    ``with`` block gives the memory back; garbage collection does not, since ranks would disagree on when.
    """

    def __init__(
        self, comm: Any = None, *, check: Optional[bool] = None, info: Any = None, split_limit: int = 0,
        progress_thread: Optional[bool] = None,
    ) -> None:  # fmt: skip
        m = mpi()
        self.mpi: Any = m.module.COMM_WORLD if comm is None else comm
        if not isinstance(self.mpi, m.module.Comm):
            raise TypeError(f"comm is of type {type(comm).__name__}: an mpi4py communicator is needed")
        config = CConfig(
            ctypes.sizeof(CConfig),
            None if info is None else m.module._addressof(info),
            -1 if check is None else int(check),
            split_limit,
            -1 if progress_thread is None else int(progress_thread),
        )
        handle = ctypes.c_void_p()
        _check(lib.rill_comm_create(m.handle(self.mpi), ctypes.byref(config), ctypes.byref(handle)))
        self._take(handle)
        if self.mpi == m.module.COMM_WORLD:
            try:
                _launch.check(lambda: self.size)
            except RuntimeError:
                self.free()
                raise
        _exit.install(m.module)
        _exit.remember(self._handle, bool(check) if check is not None else os.environ.get("RILL_CHECK", "0") != "0")

    def _take(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle
        self._shares_errors = {name: self._sharing_of(name) for name in COLLECTIVES}
        self._aside: Optional[Comm] = None
        self._under_way: set[Pending] = set()
        self._children: weakref.WeakSet[Any] = weakref.WeakSet()
        self.rank: int = lib.rill_comm_rank(handle)
        self.size: int = lib.rill_comm_size(handle)

    @classmethod
    def _local(cls, handle: ctypes.c_void_p) -> "Comm":
        comm = cls.__new__(cls)
        comm.mpi = None
        comm._take(handle)
        return comm

    def __enter__(self) -> "Comm":
        return self

    def __exit__(self, *_: Any) -> None:
        self.free()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Comm can't be copied or pickled: it belongs to this process; use it as it is, or create one on each rank")

    def __repr__(self) -> str:
        return f"<rill.Comm rank {self.rank} of {self.size}{', freed' if self.freed else ''}>"

    @property
    def freed(self) -> bool:
        """Whether free() was called."""
        return not self._handle

    def free(self) -> None:
        """Frees it with its requests and reducers. Collective; also works after a failed call."""
        if self.freed:
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
        return self._handle

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
        """Another one of the same ranks, for calls that come before those of this one on some ranks and after them on others. The first call is
        collective."""
        if self.mpi is None:
            raise ValueError("a communicator of rill.local can't have another one beside it")
        if self._aside is None:
            self._aside = Comm(self.mpi)
        return self._aside

    # ---- the collectives ----

    def _run(self, form: str, name: str, prepare: Callable[..., _Made], given: tuple[Any, ...], options: Any) -> Any:
        """form: "" blocking, "i" non-blocking, "init" persistent."""
        self._live()
        with self._shares_errors[name] if form != "init" else _SHARES_NOTHING:  # it starts nothing
            call = prepare(*given)
            c_options = call_options(options)
            arguments = call[0]()
        if form != "":
            return Request(self, name, _Call(*call), arguments, c_options, started=form == "i")
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
        return (lambda: (*_handles(x, out), *rest), (x,), (out,), op, lambda: Part(out, first.value, count.value))

    def _allgather(self, x: Any, out: Any) -> _Made:
        x, out = _pair(x, out)
        return (lambda: _handles(x, out), (x,), (out,), None, lambda: out)

    def _bcast(self, x: Stream, root: int) -> _Made:
        if not isinstance(x, Stream):
            raise TypeError(f"bcast needs a rill.Stream on every rank, not {type(x).__name__}")
        return (lambda: (x._change(), root), (), (x,), None, lambda: x)

    # ---- blocking ----

    def allreduce(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", **options: Unpack[Options]
    ) -> Stream:
        """The sum (or another op) over all ranks, bitwise the same on each. ``out`` may be ``x``."""
        return self._run("", "allreduce", self._allreduce, (x, out, op), options)

    def reduce(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", root: int = 0, **options: Unpack[Options]
    ) -> Optional[Stream]:
        """As allreduce, for the root; None elsewhere."""
        return self._run("", "reduce", self._reduce, (x, out, op, root), options)

    def reduce_scatter(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", **options: Unpack[Options]
    ) -> Part:
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
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", **options: Unpack[Options]
    ) -> Request:
        """Non-blocking allreduce."""
        return self._run("i", "allreduce", self._allreduce, (x, out, op), options)

    def ireduce(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", root: int = 0, **options: Unpack[Options]
    ) -> Request:
        """Non-blocking reduce."""
        return self._run("i", "reduce", self._reduce, (x, out, op, root), options)

    def ireduce_scatter(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", **options: Unpack[Options]
    ) -> Request:
        """Non-blocking reduce_scatter."""
        return self._run("i", "reduce_scatter", self._reduce_scatter, (x, out, op), options)

    def iallgather(self, x: Any, out: Optional[Stream] = None, **options: Unpack[Options]) -> Request:
        """Non-blocking allgather."""
        return self._run("i", "allgather", self._allgather, (x, out), options)

    def ibcast(self, x: Stream, root: int = 0, **options: Unpack[Options]) -> Request:
        """Non-blocking bcast."""
        return self._run("i", "bcast", self._bcast, (x, root), options)

    # ---- persistent ----

    def allreduce_init(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", **options: Unpack[Options]
    ) -> Request:
        """Persistent allreduce."""
        return self._run("init", "allreduce", self._allreduce, (x, out, op), options)

    def reduce_init(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", root: int = 0, **options: Unpack[Options]
    ) -> Request:
        """Persistent reduce."""
        return self._run("init", "reduce", self._reduce, (x, out, op, root), options)

    def reduce_scatter_init(
        self, x: Any, out: Optional[Stream] = None, op: Union[str, Op] = "sum", **options: Unpack[Options]
    ) -> Request:
        """Persistent reduce_scatter."""
        return self._run("init", "reduce_scatter", self._reduce_scatter, (x, out, op), options)

    def allgather_init(self, x: Any, out: Optional[Stream] = None, **options: Unpack[Options]) -> Request:
        """Persistent allgather."""
        return self._run("init", "allgather", self._allgather, (x, out), options)

    def bcast_init(self, x: Stream, root: int = 0, **options: Unpack[Options]) -> Request:
        """Persistent bcast."""
        return self._run("init", "bcast", self._bcast, (x, root), options)


_check = check  # Comm.__init__ has an argument of that name


def _pair(x: Any, out: Optional[Stream]) -> tuple[Stream, Stream]:
    x = as_stream(x)
    if out is not None and not isinstance(out, Stream):
        raise TypeError(f"out is of type {type(out).__name__}: a rill.Stream is needed")
    return x, Stream(x.dim, x.type) if out is None else out


def _handles(x: Stream, out: Stream) -> tuple[Any, Any]:
    """For a call that reads x and writes out."""
    written = out._change(keep=out is x)
    return x._handle, written


_world: Optional[Comm] = None
_world_lock = threading.Lock()


def local(
    n: int, *, check: Optional[bool] = None, split_limit: int = 0, progress_thread: Optional[bool] = None
) -> list[Comm]:
    """n ranks in this process, without MPI and mpi4py: a list of their communicators.

    Each is used by a thread of its own; or one thread (a notebook) uses all of them with the non-blocking calls::

        comms = rill.local(4)
        requests = [comm.iallreduce(x) for comm, x in zip(comms, vectors)]
        sums = rill.waitall(requests)

    A blocking call needs the other ranks' calls in other threads. What MPI sums elsewhere ("dense", "s2") goes by messages of rill's own.
    ``free()`` them one by one, in any order.
    """
    config = CConfig(
        ctypes.sizeof(CConfig), None, -1 if check is None else int(check), split_limit,
        -1 if progress_thread is None else int(progress_thread),
    )  # fmt: skip
    handles = (ctypes.c_void_p * max(n, 1))()
    _check(lib.rill_comm_create_local(n, ctypes.byref(config), handles))
    return [Comm._local(ctypes.c_void_p(handle)) for handle in handles]


def world() -> Comm:
    """The communicator over ``MPI.COMM_WORLD`` that is used where none is given; made at the first call, which
    is collective."""
    global _world
    with _world_lock:
        if _world is None or _world.freed:
            _world = Comm()
        return _world
