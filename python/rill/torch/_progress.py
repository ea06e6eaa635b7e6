"""Exchanges behind the backward pass.

A thread advances what is under way now and then, while this process computes further gradients. Whoever has nothing left to
compute completes the rest itself: handing that to the thread would cost two switches between threads. Where MPI does not
allow threads, each new exchange advances those before it.
"""

from __future__ import annotations

import collections
import threading
import time
from typing import Optional, Sequence

from .._comm import Pending, mpi

_POLL_S = 1e-4


class Job:
    """Steps and requests whose results belong together."""

    def __init__(self, pending: Sequence[Pending]) -> None:
        self._pending = list(pending)
        self._failure: Optional[Exception] = None

    def advance(self, wait: bool) -> bool:
        """Whether all of it is complete; with ``wait`` it is. ``finished`` was called then."""
        while self._pending:
            try:
                if wait:
                    self._pending[0].wait()
                elif not self._pending[0].test():
                    return False
            except Exception as error:  # the rest is still to be completed: the others wait for this rank
                self._failure = self._failure or error
            self._pending.pop(0)
        self.finished(self._failure)
        return True

    def finished(self, failure: Optional[Exception]) -> None:
        raise NotImplementedError


class Progress:
    """Jobs under way, in the order of their starts."""

    def __init__(self, overlap: str) -> None:
        if overlap not in ("auto", "thread", "hook"):
            raise ValueError(f"overlap {overlap!r} is none of auto, thread, hook")
        threads = mpi().module.Query_thread() == mpi().module.THREAD_MULTIPLE
        if overlap == "thread" and not threads:
            raise ValueError("overlap 'thread' needs an MPI that was initialised with MPI_THREAD_MULTIPLE")
        self._jobs: collections.deque[Job] = collections.deque()
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._thread: Optional[threading.Thread] = None
        if threads and overlap != "hook":
            self._thread = threading.Thread(target=self._run, name="rill", daemon=True)
            self._thread.start()

    def add(self, job: Job) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._thread is None:
                self._advance(wait=False)
        self._some.set()

    def complete(self) -> None:
        """Completes all; failures were given to ``finished``."""
        with self._lock:
            self._advance(wait=True)

    def _advance(self, wait: bool) -> None:
        while self._jobs and self._jobs[0].advance(wait):
            self._jobs.popleft()
        if not self._jobs:
            self._some.clear()

    def _run(self) -> None:
        while True:
            self._some.wait()
            with self._lock:
                self._advance(wait=False)
            time.sleep(_POLL_S)
