"""The end of a program that runs on several ranks. No rank may wait for ever for one that is gone.

An uncaught exception, or an exit with a status other than 0, ends all ranks by MPI_Abort, with that
rank's traceback. Without this it would wait in MPI_Finalize for the others, and they in a call for
it.

A rank that just ends says so, and waits for the others. Those that are in a call of rill, or make
one later, get a RillError; those that make none go on as long as they like, up to RILL_EXIT_TIMEOUT
seconds.

Without MPI nobody can end the others: an uncaught exception, or such a status, ends this rank, and
their calls are a PeerError (torchrun ends them besides). A rank that just ends says so and waits,
as above.

How a rank says it: it aborts the call that it would make next, and then takes part in calls that
nobody else makes but here. These complete when all have come to the end, and are a mismatch for who
is in another call.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
import threading
import time
import traceback
from typing import Any, Callable, NamedTuple, Optional

from ._library import END_DIM, lib, refuse
from ._op import op_handle
from ._structs import SMALL_CALL

DEFAULT_TIMEOUT_S = 1800.0  # that of PyTorch's process groups
_FIRST_TRACEBACK_S = 1.0  # for the rank whose failure it was
_POLL_S = 0.002

_process = 0  # the one that this was installed in, not a fork of it
_mpi: Any = None  # mpi4py's module, where it has started the ranks
_failed = False  # by an exception that nobody caught
_status: Any = None  # of an exit that nobody caught


class OpenComm(NamedTuple):
    """A communicator, for as long as the handle is not NULL."""

    handle: ctypes.c_void_p
    checks: bool  # it agrees on arguments before each call


_open: list[OpenComm] = []


def remember(handle: ctypes.c_void_p, checks: bool) -> None:
    """The communicator is to be left in order."""
    _open[:] = [comm for comm in _open if comm.handle]
    _open.append(OpenComm(handle, checks))


def install(mpi: Any) -> None:
    """With mpi4py's module, which does nothing before MPI is up; None without MPI."""
    global _process, _mpi
    if mpi is not None:
        if not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() == 1:
            return
        _mpi = mpi
    if _process == os.getpid():
        return
    _process = os.getpid()
    sys.excepthook = _uncaught(sys.excepthook)
    threading.excepthook = _uncaught_in_thread(threading.excepthook)
    sys.exit = _exit  # type: ignore[assignment]
    atexit.register(_at_exit)


def _applies() -> bool:
    """In a prompt or a notebook an exception ends nothing."""
    interactive = bool(sys.flags.interactive) or hasattr(sys, "ps1")
    return _process == os.getpid() and not interactive and not _finalized()


def _finalized() -> bool:
    return _mpi is not None and bool(_mpi.Is_finalized())


def _abort(status: int, why: str) -> None:
    who = f"rank {_mpi.COMM_WORLD.Get_rank()}" if _mpi is not None else "this rank"
    ended = "all ranks are ended" if _mpi is not None else "it is ended"
    print(f"rill: {who} {why}: {ended}\n", end="", file=sys.stderr)  # at once, as above
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # nobody reads it any more
    if _mpi is not None:
        _mpi.COMM_WORLD.Abort(status)
    os._exit(status)


# ---- exceptions ----


def _of_another_rank(error: Optional[BaseException]) -> bool:
    """By its text, as PyTorch may have made a RuntimeError of it."""
    return re.search(r"\brank \d+: ", str(error)) is not None


def _show(kind: Any, error: Any, trace: Any) -> None:
    """In one piece: Python itself writes a traceback bit by bit, and what mpirun says of the end
    comes in between."""
    print("".join(traceback.format_exception(kind, error, trace)), end="", file=sys.stderr)


def _uncaught(previous: Callable[..., Any]) -> Callable[..., None]:
    if previous is sys.__excepthook__:
        previous = _show

    def hook(kind: Any, error: Any, trace: Any) -> None:
        global _failed
        applies = _applies()
        _failed = applies
        if applies and _of_another_rank(error):
            time.sleep(_FIRST_TRACEBACK_S)
        try:
            previous(kind, error, trace)
        finally:
            if applies and _mpi is not None:
                _abort(
                    130 if issubclass(kind, KeyboardInterrupt) else 1, f"ended by {kind.__name__}"
                )

    return hook


def _uncaught_in_thread(previous: Callable[..., Any]) -> Callable[..., None]:
    """Other threads may end without the program."""

    def hook(arguments: Any) -> None:
        previous(arguments)
        if arguments.thread is not None and arguments.thread.name == "rill" and _applies():
            _abort(
                1, f"ended by {arguments.exc_type.__name__} in the thread that advances exchanges"
            )

    return hook


# ---- exits ----


class _Exit(SystemExit):
    """Notes its status when the interpreter asks for it: then nobody has caught it."""

    @property
    def code(self) -> Any:  # type: ignore[override]
        global _status
        code = SystemExit.code.__get__(self)  # type: ignore
        try:
            sys._getframe(1)
        except ValueError:  # no Python code asks
            _status = code
        return code

    def __reduce__(self) -> tuple[Any, ...]:
        return SystemExit, self.args


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"
_Exit.__module__ = "builtins"


def _exit(status: Any = None, /) -> None:
    """Exits by raising SystemExit(status), as sys.exit does."""
    raise _Exit(*status) if isinstance(status, tuple) else _Exit(status)


def _timeout() -> float:
    try:
        return float(os.environ["RILL_EXIT_TIMEOUT"])
    except (KeyError, ValueError):
        return DEFAULT_TIMEOUT_S


def _at_exit() -> None:
    if _process != os.getpid() or _finalized():
        return
    if _status is not None and _status != 0 and _applies():
        if _mpi is None:
            return
        status = _status if isinstance(_status, int) else 1
        _abort(status & 0xFF or 1, f"ended with status {status}")
    if _failed:
        return  # without MPI: the others see that this rank is gone
    try:
        _farewell(_timeout())
    except KeyboardInterrupt:
        _abort(130, "was interrupted while it waited for the end of the others")


class _Leaving:
    """A communicator that this rank makes no more calls on."""

    def __init__(self, comm: OpenComm) -> None:
        self.comm = comm
        self.request = ctypes.c_void_p()
        self.stream = ctypes.c_void_p()
        lib.rill_stream_create(0, END_DIM, ctypes.byref(self.stream))
        if not comm.checks:  # it would wait for the others there
            refuse("its program has ended", lib.rill_allreduce, comm.handle, None, None, None, None)
        self.left = not self._start()

    def _start(self) -> bool:
        status = lib.rill_iallreduce(
            self.comm.handle,
            self.stream,
            self.stream,
            op_handle("sum"),
            ctypes.byref(SMALL_CALL),
            ctypes.byref(self.request),
        )
        return bool(status >= 0)

    def advance(self) -> bool:
        """Whether all ranks have left."""
        done = ctypes.c_int(0)
        if self.left:
            return True
        status = lib.rill_test(self.request, ctypes.byref(done))
        if done.value:
            lib.rill_request_free(ctypes.byref(self.request))
            self.left = status >= 0 or self._lacks_a_rank() or not self._start()
        return self.left

    def _lacks_a_rank(self) -> bool:
        """Nobody waits on a communicator that has lost a rank."""
        n = ctypes.c_int(0)
        known = lib.rill_comm_failed(self.comm.handle, 0, None, ctypes.byref(n))
        return bool(known >= 0 and n.value > 0)


def _farewell(seconds: float) -> None:
    """Waits until all ranks have come here, so that calls under way are completed too."""
    leaving = [_Leaving(comm) for comm in _open if comm.handle]
    end = time.monotonic() + seconds
    while not all([each.advance() for each in leaving]):
        if time.monotonic() > end:
            _abort(1, f"has ended, but another has not for {seconds:g} s (RILL_EXIT_TIMEOUT)")
        time.sleep(_POLL_S)
