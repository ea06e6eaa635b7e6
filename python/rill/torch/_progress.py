"""Exchanges behind the backward pass.

The library's progress thread advances what is under way while this process computes further
gradients; each new exchange delivers those before it that are complete. Whoever has nothing left to
compute completes the rest itself: handing that to the thread would cost two switches between
threads. Without the thread each new exchange advances those before it.

The thread polls. That is nothing where it has a core to itself, and little where messages come over
a network that would stand still otherwise. On one host whose cores all compute it would take from
the computation what it gives to the exchange, which is copying between ranks there; so "auto" has
no thread then, and none where MPI does not allow it.
"""

from __future__ import annotations

import collections
import os
import socket
from typing import Optional, Sequence

from .._comm import Comm
from .._pending import Pending


class Job:
    """Steps and requests whose results belong together."""

    alone = False  # whether threads of the library advance it without anybody's help

    def __init__(self, pending: Sequence[Pending]) -> None:
        self._pending = pending
        self.begin()

    def begin(self) -> None:
        """All of it was started (once more)."""
        self._complete = 0
        self.failure: Optional[Exception] = None

    def advance(self, wait: bool) -> bool:
        """Whether all of it is complete; with ``wait`` it is. ``finished`` was called then."""
        while self._complete < len(self._pending):
            try:
                if wait:
                    self._pending[self._complete].wait()
                elif not self._pending[self._complete].test():
                    return False
            except (
                Exception
            ) as error:  # the rest is still to be completed: the others wait for this rank
                self.failure = self.failure or error
            self._complete += 1
        self.finished(self.failure)
        return True

    def finished(self, failure: Optional[Exception]) -> None:
        raise NotImplementedError


class Progress:
    """Jobs under way, in the order of their starts."""

    def __init__(self, comm: Comm, overlap: str) -> None:
        if overlap not in ("auto", "thread", "hook"):
            raise ValueError(f"overlap {overlap!r} is none of auto, thread, hook")
        threads = comm.threads
        if overlap == "thread" and not threads:
            raise ValueError(
                "overlap 'thread' needs an MPI that was initialised with MPI_THREAD_MULTIPLE"
            )
        self._overlap = overlap if threads else "hook"
        self._comm: Optional[Comm] = None
        self.threaded = False
        self._jobs: collections.deque[Job] = collections.deque()

    def choose(self, comm: Comm, compute_threads: int, alone: bool = False) -> None:
        """Before the first job: whether a thread advances those of this communicator, on ranks that
        compute with so many threads. alone: it is one that needs no such thread. Collective."""
        if self._comm is not None:
            return
        self._comm = comm
        if self._overlap == "thread" or (
            self._overlap == "auto" and not alone and _thread_pays(comm, compute_threads)
        ):
            comm.start_thread()
            self.threaded = True

    def add(self, job: Job, last: bool = False) -> None:
        """With ``last``, complete() comes next."""
        assert self._comm is not None
        self._jobs.append(job)
        if last or job.alone:  # complete() delivers: meanwhile the gradients after it are computed
            return
        if self.threaded:
            self._advance(wait=False)
        else:
            self._comm.progress()

    def complete(self) -> None:
        """Completes all; failures were given to ``finished``."""
        self._advance(wait=True)

    def _advance(self, wait: bool) -> None:
        while self._jobs and self._jobs[0].advance(wait):
            self._jobs.popleft()


def _thread_pays(comm: Comm, compute_threads: int) -> bool:
    """Whether there are ranks on other hosts, or cores to spare on this one. Collective."""
    if comm.size == 1:
        return False
    everyone = comm._gather([socket.gethostname(), sorted(_cores())])
    if len({host for host, _ in everyone}) > 1:
        return True
    cores = {core for _, own in everyone for core in own}
    return len(cores) >= comm.size * (compute_threads + 1)


def _cores() -> set[int]:
    """That this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))
