"""What is under way: requests and steps."""

from __future__ import annotations

import ctypes
import operator
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, NoReturn, Optional, Sequence

from ._library import Fork, check, check_shared, lib
from ._op import check_op
from ._stream import Stream
from ._structs import Stats, empty_stats, stats_of

if TYPE_CHECKING:
    from ._comm import Comm


class Part(NamedTuple):
    """What reduce_scatter gives this rank: entries [first, first + count) of the result."""

    stream: Stream
    first: int
    count: int  # type: ignore[assignment]


class Pending:
    """Something under way. The constructor and ``_began`` are the one place that keeps memory
    alive: ``kept`` lives as long as this object, and the communicator holds this object until
    completion. So do the streams that it reads and writes, which can't be changed in between."""

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
        raise TypeError(
            f"a {type(self).__name__} can't be copied or pickled: it is under way in this process; "
            "its result can"
        )

    def _c_request(self) -> Optional[int]:
        """Its address; None where nothing was started."""
        raise NotImplementedError

    def _c_test(self, done: Any) -> int:
        raise NotImplementedError

    def _c_wait(self) -> int:
        raise NotImplementedError

    def test(self) -> bool:
        """Advances what is under way, and says whether this is complete. A failure is raised once
        it is."""
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
        self, comm: "Comm", name: str, call: "Call", arguments: tuple[Any, ...], options: Any,
        started: bool,
    ) -> None:  # fmt: skip
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
        """Frees the request, after completion if it is under way. Without it, garbage collection
        does."""
        if self._handle:
            status = lib.rill_request_free(ctypes.byref(self._handle))
            self._ended()
            check(status)

    def __del__(self) -> None:
        # Not under way: the communicator would hold a reference.
        if getattr(self, "_handle", None) and not self.comm.freed and not Fork.forked:
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


class Call(NamedTuple):
    """What a collective call is about."""

    # For C, after the communicator; streams that are written are ready for that.
    arguments: Callable[[], tuple[Any, ...]]
    reads: tuple[Stream, ...]
    writes: tuple[Stream, ...]
    op: Any
    result: Callable[[], Any]
