"""Stacks of replicas in threads of one process, each with its arms: trainings and their rounds."""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from arms import EVERY, options_of
from rounds import Rounds
from stacked import Stack

import rill

AHEAD = 2 * EVERY  # steps that a stack may be ahead of the others
LAST_S = 5  # of a training that has no time left: for its last round and check
WRITE_S = 2  # what has not come by then is left out
MOMENTUM = 0.9  # of reducers


def starts_of(arms, steps, rows, last):
    """Where the rows of each replica begin. Those of all workers are the same whoever has them."""
    made = []
    for one in arms:
        draw = torch.Generator().manual_seed(one["seed"])
        whole = torch.randint(0, last, (steps, rows), generator=draw)
        made += [whole[:, worker :: one["workers"]] for worker in range(one["workers"])]
    return torch.stack(made, 1)


def factors_of(steps):
    """Of the rates: rise, and fall linearly to nearly 0."""
    rise = max(min(100, steps // 20), 1)
    at = torch.arange(steps + 1.0)
    return torch.minimum((at + 1) / rise, (steps - at) / (steps - rise)).clamp(min=0)


class Arm:
    """One training, whose workers are replicas from `first` on."""

    def __init__(self, about, given, shape, first):
        self.about, self.first = about, first
        self.workers, self.method = about["workers"], about["method"]
        self.loss = self.failed = self.late = self.there = None
        summing = 4 if self.method == "ddp" else self.workers
        self.ring = round(8 * shape.count * (1 - 1 / summing))
        self.rounds = None
        if self.method not in ("ddp", "topk"):
            self.rounds = Rounds(self.workers, shape, sys.stderr)

    def begin(self, given, trial):
        self.sent = self.received = self.count = self.rounds_s = 0
        self.curve, self.left = [], EVERY
        if self.rounds is None:
            return
        self.rounds.here.copy_(self.there)
        self.rounds.ask(options=options_of(self.about, given.warmup_steps, trial))
        self.left = self.rounds.answer(given.end - WRITE_S)["steps_left"]

    def ask(self, steps):
        self.rounds.here.copy_(self.there)
        self.rounds.ask(steps=steps)

    def answer(self, limit):
        said = self.rounds.answer(limit)
        self.there.copy_(self.rounds.here)
        self.left, self.count = said["steps_left"], said["rounds"]
        self.rounds_s += said["seconds"]
        self.sent, self.received = said["sent"], said["received"]
        if self.method == "diloco":
            self.sent = self.received = self.count * self.ring

    def attempt(self, call, *arguments):
        """Whether it went well: else only this arm has failed, or ended too soon."""
        if self.failed is None:
            try:
                call(*arguments)
            except TimeoutError as late:
                self.failed = self.late = str(late)
            except Exception:
                self.failed = traceback.format_exc()
                print(self.about, self.failed, file=sys.stderr, flush=True)
        return self.failed is None


class Exchange:
    """Of arms whose gradients are summed in each step: by reducers, with a thread for each."""

    def __init__(self, arms, shape, device):
        self.arms, self.reducers = arms, []
        self.pool = ThreadPoolExecutor(max(one.workers for one in arms))
        options = {**rill.method("topk"), "density": 0.01, "warmup_steps": 100}
        options |= {"memory": "cuda"} if device.type == "cuda" else {}

        def reducer(comm):
            return rill.Reducer(comm, shape.stride, momentum=MOMENTUM, **options)

        for one in arms:
            self.reducers.append(list(self.pool.map(reducer, rill.local(one.workers))))

    def __call__(self, stack):
        stack.synchronize()
        for one, reducers in zip(self.arms, self.reducers):
            own = stack.gradients[one.first : one.first + one.workers]
            list(self.pool.map(lambda reducer, row: reducer.step(row), reducers, own))
            stats = reducers[0].stats
            one.sent, one.received = one.sent + stats.sent_bytes, one.received + stats.recv_bytes


class Pace:
    """No stack is far ahead of the others: they share the device evenly, and end together."""

    def __init__(self, names):
        self._steps, self._changed = dict.fromkeys(names, 0), threading.Condition()

    def wait(self, name, step, limit, ahead=AHEAD):
        with self._changed:
            self._steps[name] = step
            self._changed.notify_all()
            while min(self._steps.values()) < step - ahead and time.time() < limit:
                self._changed.wait(1)

    def leave(self, name):
        with self._changed:
            self._steps.pop(name, None)
            self._changed.notify_all()


class Group:
    """A stack and its arms, in a thread."""

    def __init__(self, name, arms, given, shape, text, valid, steps):
        self.name, self.given, self.valid, self.arms = name, given, valid, []
        first = 0
        for one in arms:
            self.arms.append(Arm(one, given, shape, first))
            first += one["workers"]
        each = [one for one in arms for _ in range(one["workers"])]
        starts = starts_of(arms, steps, given.rows, len(text) - shape.length - 1).to(text.device)
        summed = arms[0]["method"] == "topk"
        self._shape, self._device, self._exchange = shape, text.device, None
        self.stack = Stack(
            shape, [o["seed"] for o in each], [o["rate"] for o in each], text, starts,
            factors_of(steps), urgent=arms[0]["method"] != "ddp",
            **({"beta1": 0.0, "between": lambda: self._exchange(self.stack)} if summed else {}),
        )  # fmt: skip
        self.summed = summed
        for one in self.arms:
            one.there = self.stack.weights[one.first : one.first + one.workers]
        self.stack.prepare()
        self.spent = {}

    def begin(self, trial):
        """From the first weights. All arms have asked before one waits for an answer."""
        self.spent = {"steps": 0.0, "rounds": 0.0, "others": 0.0, "checks": 0.0}
        if self.summed:
            self._exchange = Exchange(self.arms, self._shape, self._device)
        for one in self.arms:
            one.attempt(one.begin, self.given, trial)

    def timed(self, what, call, *arguments):
        began = time.monotonic()
        found = call(*arguments)
        self.spent[what] += time.monotonic() - began
        return found

    def steps(self, number):
        for _ in range(number):
            self.stack.step()
        self.stack.synchronize()

    def have_rounds(self, steps, last=0):
        arms = [one for one in self.live() if one.rounds]
        arms = [one for one in arms if not last or one.about["options"].get("last", 0) >= last]
        asked = [one for one in arms if one.attempt(one.ask, steps)]
        for one in asked:
            one.attempt(one.answer, self.given.end - WRITE_S)
        self.stack.synchronize()

    def live(self):
        return [one for one in self.arms if one.failed is None]

    def advance(self, step, most, pace):
        """By the steps up to the next round, and that round."""
        limit = self.given.end - LAST_S
        self.timed("others", pace.wait, self.name, step, limit)
        more = min([one.left for one in self.live()] + [most - step])
        self.timed("steps", self.steps, more)
        self.timed("rounds", self.have_rounds, more)
        return step + more

    def trial(self, pace, rounds):
        """Seconds of a round and its steps beside the others, and of the round alone."""
        with self.stack.running():
            self.begin(True)
            step = self.advance(0, EVERY, pace)
            pace.wait(self.name, step, self.given.end - LAST_S, 0)  # all have begun
            self.spent = dict.fromkeys(self.spent, 0.0)
            began = time.monotonic()
            while step < EVERY * (rounds + 1) and self.live():
                step = self.advance(step, EVERY * (rounds + 1), pace)
            self.each_s = (time.monotonic() - began) / rounds
            self.round_s = self.spent["rounds"] / rounds

    def train(self, pace, steps, say):
        with self.stack.running():
            self._train(pace, steps, say)

    def _train(self, pace, steps, say):
        self.stack.start_again(factors_of(steps))
        self.begin(False)
        began, step, often = time.monotonic(), 0, EVERY * self.given.check
        over = False
        while step < steps and not over and self.live():
            before, step = step, self.advance(step, steps, pace)
            over = time.time() > self.given.end - LAST_S
            if step >= steps:
                most = max(one.about["options"].get("last", 0) for one in self.arms)
                for last in range(1, most + 1):
                    self.timed("rounds", self.have_rounds, 1, last)
            if step // often > before // often or over or step >= steps:
                spent = time.monotonic() - began
                self.timed("checks", self.check, step, over, step >= steps, spent, say)
        say.records(self, time.monotonic() - began)

    def check(self, step, over, ended, spent, say):
        most = (len(self.valid) - 1) // self._shape.length
        live, rows = self.live(), min(most, self.given.check_rows)
        firsts = [one.first for one in live]
        if not live:
            return
        losses = self.stack.validate(firsts, self.valid, rows)
        say.points(live, losses, step, spent)
        if ended and not over:
            losses = self.stack.validate(firsts, self.valid, min(most, 8 * rows))
            for one, loss in zip(live, losses):
                one.loss = round(loss, 4)
        shown = " ".join(f"{loss:.3f}" for loss in losses)
        shares = ", ".join(f"{what} {s:.0f}" for what, s in self.spent.items())
        print(f"{self.name}: step {step}, {spent:.0f} s ({shares}): {shown}", flush=True)


class Saying:
    """Lines to files: each at once, so that none is lost."""

    def __init__(self, given, shape, step_s, steps):
        self.out, self._lock = Path(given.out), threading.Lock()
        self.common = {
            "bench": "local", "asked": steps, "every": EVERY,
            "batch": given.rows, "length": shape.length, "layers": shape.layers,
            "width": shape.width, "parameter_bytes": 4 * shape.count, "torch": torch.__version__,
            "warmup_steps": given.warmup_steps,
            "device": "cpu" if given.device == "cpu" else torch.cuda.get_device_name(),
            "step_s": step_s,
        }  # fmt: skip

    def line(self, name, about, record):
        about = {k: v for k, v in about.items() if k != "options" or v}
        with self._lock, open(self.out / name, "a") as file:
            file.write(json.dumps({**record, **about}) + "\n")

    def points(self, arms, losses, step, spent):
        for one, loss in zip(arms, losses):
            if one.method == "ddp":
                one.received = one.sent = step * one.ring
            one.curve.append([step, round(loss, 4), one.received])
            record = {"step": step, "loss": round(loss, 4), "sent_bytes": one.sent}
            record |= {"received_bytes": one.received, "seconds": round(spent, 1)}
            self.line("points.jsonl", one.about, record)

    def records(self, group, spent):
        for one in group.arms:
            if not one.curve or one.failed and not one.late:
                continue
            record = {
                **self.common, "steps": one.curve[-1][0],
                "loss": one.loss if one.loss is not None else one.curve[-1][1],
                "sent_bytes": one.sent, "received_bytes": one.received,
                "equal_bits": not one.late and bool((one.there == one.there[:1]).all()),
                "train_s": round(spent, 1), "rounds": one.count,
                "rounds_s": round(one.rounds_s, 1), "curve": one.curve,
            }  # fmt: skip
            self.line("records.jsonl", one.about, record)
