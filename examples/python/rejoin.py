"""Training that a worker leaves and joins again, in the manner of torchft: each worker is a process
of its own, and they meet at a small server outside of them. One is killed, the others go on; it is
started again, and catches up with what the others have. Another may die while it does (--also).

    python3 examples/python/rejoin.py --workers 4 --steps 400 --kill 2 --at 100 --away 5

Workers on other hosts: start the server with --serve HOST:PORT, and each of them with --name N and
--hall HOST:PORT. Needs no MPI and no torchrun.
"""

import argparse
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import torch
from torch import nn

import rill
import rill.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--steps", type=int, default=400, help="at least; all come back before the end")
parser.add_argument("--kill", type=int, default=2, help="the worker that is killed; -1: none")
parser.add_argument("--at", type=int, default=100, help="the step after which it is")
parser.add_argument("--away", type=float, default=5, help="seconds until it is started again")
parser.add_argument("--also", type=int, default=-1, help="another, killed when that one joins,")
parser.add_argument("--delay", type=float, default=0, help="so many seconds later")
parser.add_argument("--look", type=int, default=10, help="steps between looks for who joins")
parser.add_argument("--serve", metavar="HOST:PORT", help="be the server, and nothing else")
parser.add_argument("--hall", metavar="HOST:PORT", help="where the server is")
parser.add_argument("--name", type=int, help="of this worker, from 0")
arguments = parser.parse_args()


# ---- the server ----------------------------------------------------------------------------------


class Hall:
    """Where workers meet. A worker that wants to join waits until all members have come, too; then
    they are one generation, with ranks: old members first, in the order of their ranks. Whoever
    closes the connection is none any more."""

    def __init__(self, address):
        self.lock = threading.Condition()
        self.members, self.waiting, self.given = set(), {}, {}
        self.ranks, self.generation, self.broken, self.deaths, self.step = [], 0, False, 0, 0
        self.stay = False  # one who is to come back is not there yet
        host, port = address.rsplit(":", 1)
        self.door = socket.create_server((host, int(port)))
        self.address = "{}:{}".format(host, self.door.getsockname()[1])
        threading.Thread(target=self.open, daemon=True).start()

    def open(self):
        while True:
            guest, _ = self.door.accept()
            threading.Thread(target=self.serve, args=(guest,), daemon=True).start()

    def serve(self, guest):
        name = None
        try:
            with guest, guest.makefile("rw") as line:
                for question in line:
                    question = json.loads(question)
                    name = question["name"]
                    with self.lock:
                        answer = getattr(self, "ask_" + question["ask"])(**question)
                    print(json.dumps(answer), file=line, flush=True)
        except (OSError, ValueError):
            pass
        with self.lock:  # it is gone
            self.deaths += name in self.members
            self.members.discard(name)
            self.waiting.pop(name, None)
            self.broken |= name in self.ranks
            self.lock.notify_all()

    def form(self):
        everybody = self.members <= set(self.waiting)
        first = self.generation == 0 and len(self.waiting) < arguments.workers
        if not self.waiting or not everybody or first:
            return
        self.ranks = sorted(self.waiting, key=lambda name: (self.waiting[name], name))
        self.members, self.waiting, self.given = set(self.ranks), {}, {}
        self.generation, self.broken = self.generation + 1, False
        self.stay = self.stay and len(self.ranks) < arguments.workers
        self.lock.notify_all()

    def ask_waiting(self, step, **_):
        self.step = step
        return [bool(set(self.waiting) - self.members), self.stay]

    def ask_enter(self, name, rank, **_):
        """Waits for the next generation. rank: of a member; a newcomer comes after all of them.
        Members that wait are sent back when another dies, who may miss them elsewhere."""
        mine, deaths = self.generation, self.deaths if rank >= 0 else None
        if mine and not self.members:
            return None  # nobody has what a newcomer would need
        self.waiting[name] = rank if rank >= 0 else 1 << 30
        self.form()
        self.lock.wait_for(lambda: self.generation > mine or deaths not in (None, self.deaths))
        if self.generation == mine:
            self.waiting.pop(name)
            return {"ranks": 0}
        return {"rank": self.ranks.index(name), "ranks": len(self.ranks)}

    def ask_gather(self, name, number, data, **_):
        """The allgather that a communicator is made with."""
        given, mine = self.given.setdefault(number, {}), self.generation
        given[name] = data
        self.lock.notify_all()
        self.lock.wait_for(lambda: len(given) == len(self.ranks) or self.broken)
        good = len(given) == len(self.ranks) and mine == self.generation
        return [given[name] for name in self.ranks] if good else None


class Connection:
    """A worker's to the hall."""

    def __init__(self, address, name):
        host, port = address.rsplit(":", 1)
        self.line = socket.create_connection((host, int(port))).makefile("rw")
        self.name, self.gathers = name, 0

    def ask(self, what, **more):
        print(json.dumps({"ask": what, "name": self.name, **more}), file=self.line, flush=True)
        return json.loads(self.line.readline())

    def enter(self, rank):
        self.gathers = 0
        place = self.ask("enter", rank=rank)
        if place is None:
            sys.exit(f"worker {self.name}: all others have ended")
        return place

    def gather(self, mine):
        self.gathers += 1
        data = base64.b64encode(mine).decode()
        everyone = self.ask("gather", number=self.gathers, data=data)
        if everyone is None:
            raise ConnectionError("a worker has gone before all had met")
        return [base64.b64decode(one) for one in everyone]


# ---- a worker ------------------------------------------------------------------------------------


class Worker:
    def __init__(self):
        self.hall = Connection(arguments.hall, arguments.name)
        torch.manual_seed(0)
        self.centres = torch.randn(10, 64)
        self.test = self.samples(2000)
        self.model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
        self.size = sum(p.numel() for p in self.model.parameters())
        # Alone until the first meeting. What it keeps then is empty.
        self.comm = rill.local(1)[0]
        self.reducer = rill.Reducer(self.comm, self.size, algorithm="oktopk", density=0.05)
        self.step, self.looked = 0, -1
        self.member = False  # it has what the others have
        self.shared = False  # and they know of each other on this communicator that they do
        torch.manual_seed(1 + arguments.name + 1000 * os.getpid())

    def samples(self, n):
        labels = torch.randint(0, 10, (n,))
        return self.centres[labels] + 3 * torch.randn(n, 64), labels

    def say(self, text):
        print(f"step {self.step}  worker {arguments.name}: {text}", flush=True)

    def gradient(self):
        self.model.zero_grad()
        inputs, labels = self.samples(32)
        nn.functional.cross_entropy(self.model(inputs), labels).backward()
        return torch.cat([p.grad.reshape(-1) for p in self.model.parameters()]).numpy()

    def apply(self, update):
        parameters = list(self.model.parameters())
        parts = torch.from_numpy(np.asarray(update)).split([p.numel() for p in parameters])
        with torch.no_grad():
            for parameter, part in zip(parameters, parts):
                parameter -= 0.05 * part.view(parameter.shape)
        self.step += 1

    def settle(self, comm):
        """Goes to that communicator, or to what is left of it. Whether a step is to be repeated."""
        old, self.shared = [self.comm, comm], False
        while True:
            try:
                again = self.reducer.move(old[-1])
                break
            except rill.PeerError:
                old.append(self.shrink(old[-1]))
        for one in old[:-1]:
            one.free()
        self.comm = old[-1]
        return again

    @staticmethod
    def shrink(comm):
        while True:
            try:
                return comm.shrink()
            except rill.PeerError:  # another died meanwhile
                continue

    def meet(self):
        """A new communicator, of all members and those who wait."""
        while True:
            place = self.hall.enter(self.comm.rank if self.member else -1)
            if not place["ranks"]:
                return
            try:
                comm = rill.Comm.ucx(place["rank"], place["ranks"], self.hall.gather)
                break
            except (ConnectionError, rill.PeerError):
                continue
        self.settle(comm)

    def share(self):
        """Newcomers get what the members have. All do this first on each communicator: if one dies
        in the middle, some may have it and others not, and on the next they ask once more."""
        first = self.comm.rank == 0
        mine = np.array([not self.member, first and self.member, first * self.step], np.float64)
        new, kept, step = self.comm.allreduce(mine).dense()
        if new and not kept and step == 0 and new == self.comm.size:
            kept = 1  # the first meeting: all begin
        if not kept:
            sys.exit(f"worker {arguments.name}: all who could tell are gone")
        if new:
            rill.torch.broadcast_parameters(self.model, comm=self.comm)
            self.comm.allreduce(np.zeros(1))  # all have it
            self.step = int(step)
            if not self.member or first:
                does = "goes on" if self.member else "joins"
                self.say(f"{does} as rank {self.comm.rank} of {self.comm.size}")
        self.looked = self.step if new else -1
        self.member = self.shared = True

    def look(self):
        """Lets those in who wait; whether this is the end."""
        flags = np.zeros(2)
        if self.comm.rank == 0:
            flags[:] = self.hall.ask("waiting", step=self.step)
        waits, stay = self.comm.allreduce(flags).dense() > 0
        self.looked = self.step
        if waits:
            self.meet()
        return self.step >= arguments.steps and not waits and not stay

    def advance(self):
        """One step; or what is left of it after a death. False: this was the last one."""
        inside = None
        try:
            if not self.shared:
                self.share()
            if self.step % arguments.look == 0 and self.looked != self.step and self.look():
                return False
            if not self.shared:  # others have come
                return True
            inside = self.gradient()
            self.apply(self.reducer.step(inside))
        except rill.PeerError as error:
            self.say(str(error))
            again = self.settle(self.shrink(self.comm))
            if inside is not None and not again:  # another worker has completed the step
                self.apply(self.reducer.update(inside))
        return True

    def run(self):
        self.meet()
        last, pause, where = time.monotonic(), 0.0, 0
        while self.advance():
            now = time.monotonic()
            if now - last > pause:
                pause, where = now - last, self.step
            last = now
        with torch.no_grad():
            inputs, labels = self.test
            loss = nn.functional.cross_entropy(self.model(inputs), labels).item()
        self.comm.allreduce(np.zeros(1))  # nobody leaves before all have made the last step
        place = f"ranks {self.comm.size}  loss {loss:.4f}"
        self.say(f"ends  {place}  longest pause {pause:.2f} s in step {where}")
        self.comm.free()


# ---- all of it on this host ----------------------------------------------------------------------


def start():
    """The server, and a process for each worker; kills one and starts it again."""
    hall = Hall(arguments.serve or "127.0.0.1:0")
    if arguments.serve:
        return threading.Event().wait()

    def worker(name):
        words = [sys.executable, *sys.argv, "--hall", hall.address, "--name", str(name)]
        return subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"})

    workers = [worker(name) for name in range(arguments.workers)]
    if 0 <= arguments.kill < arguments.workers:
        while hall.step < arguments.at and workers[0].poll() is None:
            time.sleep(0.05)
        hall.stay = True
        workers[arguments.kill].send_signal(signal.SIGKILL)
        workers[arguments.kill].wait()
        print(f"worker {arguments.kill} was killed", flush=True)
        time.sleep(arguments.away)
        workers[arguments.kill] = worker(arguments.kill)
        if 0 <= arguments.also < arguments.workers:
            before = hall.generation
            while not set(hall.waiting) - hall.members and hall.generation == before:
                time.sleep(0.001)
            time.sleep(arguments.delay)
            workers[arguments.also].send_signal(signal.SIGKILL)
            workers[arguments.also].wait()
            print(f"worker {arguments.also} was killed", flush=True)
            hall.stay = True
            time.sleep(arguments.away)
            workers[arguments.also] = worker(arguments.also)
    return max(abs(process.wait()) for process in workers)


if __name__ == "__main__":
    sys.exit(Worker().run() if arguments.name is not None else start())
