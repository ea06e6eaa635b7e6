"""Rounds of local updates in a process of their own, beside the one that trains.

Rounds are work of the host's processors, and Python's; trainings side by side would wait for each
other. So each training (an arm) has a process, with a thread for each worker. The workers' weights
are in memory that both processes have: the trainer copies them there, says how many steps they are
of, and copies them back once the answer comes. Questions and answers are lines of JSON.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rows_of(memory, workers):
    import torch

    return torch.frombuffer(memory, dtype=torch.float32).view(workers, -1)


class Rounds:
    """The trainer's end. `here` has the workers' weights."""

    def __init__(self, workers, shape, log):
        import torch

        memory = os.memfd_create("rounds")
        os.ftruncate(memory, workers * shape.stride * 4)
        self._map = mmap.mmap(memory, workers * shape.stride * 4)
        self.here = rows_of(self._map, workers)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        env["PYTHONPATH"] = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
        about = {"workers": workers, "shape": shape.given, "memory": memory}
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(about)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env, pass_fds=[memory],
        )  # fmt: skip
        os.close(memory)
        self._part = b""
        self.pinned = torch.cuda.is_available() and self._pin()

    def _pin(self):
        """Copies from and to the device are faster so, but they work without it. The driver's call:
        a failure of the runtime's would be reported by whatever is called next."""
        try:
            size = ctypes.c_size_t(self.here.numel() * 4)
            call = ctypes.CDLL("libcuda.so.1").cuMemHostRegister_v2
            return call(ctypes.c_void_p(self.here.data_ptr()), size, ctypes.c_uint(1)) == 0
        except (OSError, AttributeError):
            return False

    def ask(self, **question):
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise RuntimeError(f"the process of rounds has ended: {self._process.poll()}") from None

    def answer(self, limit):
        """To the last question, or an error, at that time at the latest."""
        out = self._process.stdout.fileno()
        while b"\n" not in self._part:
            if not select.select([out], [], [], max(limit - time.time(), 0))[0]:
                raise TimeoutError("a round had no time left")
            more = os.read(out, 1 << 16)
            if not more:
                raise RuntimeError(f"the process of rounds has ended: {self._process.wait(5)}")
            self._part += more
        line, self._part = self._part.split(b"\n", 1)
        said = json.loads(line)
        if "failed" in said:
            raise RuntimeError(said["failed"])
        return said


# ---- the other end ----


class Turns:
    """How many workers of a process are at work side by side, but for what is collective: the first
    rounds try it, and the others have it as it was fastest. Threads that hand Python's lock to each
    other after each product may take longer than one."""

    TRIED = (None, 1, 2, 4, 1, 2, 4)  # the first round only takes memory

    def __init__(self):
        self.room, self.spent = threading.Semaphore(1), []

    def round(self, call):
        number = len(self.spent)
        if number < len(self.TRIED):
            width = self.TRIED[number] or 1
        else:
            width = min(zip(self.spent[1:], self.TRIED[1:]))[1]
        self.room, began = threading.Semaphore(width), time.monotonic()
        found = call()
        if number < len(self.TRIED):
            self.spent.append(time.monotonic() - began)
        return found

    def out_of(self, call):
        def made(*arguments):
            room = self.room
            room.release()
            try:
                return call(*arguments)
            finally:
                room.acquire()

        return made


TURNS = Turns()


def serve(about):
    import torch
    from stacked import Shape

    torch.set_num_threads(1)
    work_once()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to the log
    shape, workers = Shape(*about["shape"]), about["workers"]
    rows = rows_of(mmap.mmap(about["memory"], workers * shape.stride * 4), workers)
    pool, locals_, sent, received = ThreadPoolExecutor(workers), [], 0, 0
    for line in sys.stdin:
        question, began = json.loads(line), time.monotonic()
        try:
            if "options" in question:
                locals_ = made(shape, rows, question["options"], pool)
                sent = received = 0
            else:
                have_round(locals_, question["steps"], pool)
                sent += locals_[0].last.sent_bytes
                received += locals_[0].last.received_bytes
            answer = {"steps_left": locals_[0].steps_left, "rounds": locals_[0].rounds}
            answer |= {"sent": sent, "received": received}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps({**answer, "seconds": time.monotonic() - began}), file=answers, flush=True)


def made(shape, rows, options, pool):
    """A LocalUpdates for each worker: collective, so all at once."""
    from stacked import Replica

    import rill
    import rill.torch

    comms = rill.local(len(rows))

    def one(worker):
        return rill.torch.LocalUpdates(Replica(shape, rows[worker]), comm=comms[worker], **options)

    return list(pool.map(one, range(len(rows))))


def have_round(locals_, steps, pool):
    """After so many steps of all workers, also where they are the last ones."""

    def call(local):
        with TURNS.room:
            return any([local.step() for _ in range(steps)]) or local.synchronize()

    if not all(TURNS.round(lambda: list(pool.map(call, locals_)))):
        raise RuntimeError("a round had too few contributions")


def work_once():
    """The workers of a process all decode the same messages, and have the same mean of them; here
    the first one does it for all."""
    from rill.torch import _local
    from rill.torch._contribution import Coding

    Coding.decode = once(Coding.decode, lambda coding, message: message)
    # What is kept keeps its contributions, too: no others have their ids.
    _local.mean_of = once(_local.mean_of, lambda coding, given, *rest: tuple(map(id, given)))
    _local.LocalUpdates._exchange = TURNS.out_of(_local.LocalUpdates._exchange)


def once(call, key_of):
    known, lock = {}, threading.Lock()

    def found(*arguments):
        key = key_of(*arguments)
        with lock:
            if key not in known:
                if len(known) >= 64:
                    del known[next(iter(known))]
                known[key] = call(*arguments), arguments
            return known[key][0]

    return found


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
