#!/usr/bin/env python3
"""bench/cuda/local.py [--out FOLDER] [--seconds 150] [--data FOLDER] [--rates 0.002,8:0.003]
                       [--arms METHOD:WORKERS:RATE[:OPTION=VALUE[,...]],...] [...]:
rill.torch.LocalUpdates beside DiLoCo and DDP, a GPT over the bytes of WikiText-2, on one GPU.

  ddp      the rows of all workers in one, which is what dense sums give
  diloco   LocalUpdates(keep=None, outer="nesterov", outer_lr=...)
  plain    LocalUpdates with its defaults
  senders  the same with warmup_rounds=4
  rising   the same with warmup_steps=
  topk     rill.Reducer(comm, "topk" at 1 %) in each step, with what attach(optimizer=) gives it
Of each method, number of workers, rate and seed there is an arm; --arms has more, with options of
LocalUpdates, and last=N: N rounds more after the last step. All have the same tokens.

One process trains all: arms of as many workers that have rounds at the same time are one stack
(stacked.py), with a CUDA graph, a stream and a thread of its own. The rounds of an arm are in a
process of its own (rounds.py), while other stacks train. No stack runs ahead of the others. All try
some rounds first, and then train for as many steps as they can do in --seconds. An arm that fails
takes no other along.
FOLDER gets records.jsonl, a line for each training; points.jsonl, a line for each check in the
course of it; and log. Bytes are those of a worker, per way: of dense sums as a ring has them.
"""

from __future__ import annotations

import argparse
import ast
import json
import lzma
import math
import os
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERY = 30
TRIAL = 8  # rounds by which stacks find out how fast they are
AHEAD = 2 * EVERY  # steps that a stack may be ahead of the others
OUTERS = {"ddp": [None], "topk": [None], "plain": [1.0], "senders": [1.0], "rising": [1.0]}
RATES = "0.004,1:0.002,1:0.004,1:0.006,8:0.003"
MOMENTUM = 0.9
AGAIN_S = 6  # until all begin again, and the last check
LAST_S = 5  # of a training that has no time left: for its last round and check
WRITE_S = 2  # what has not come by then is left out
SAFE = 0.9  # share of the time that is planned for


def arms_of(given):
    made = list(given.arms)
    for method in given.methods:
        for workers in [1] if method == "ddp" else given.workers:
            for rate in given.rates.get(workers, given.rates.get(0, [])):
                for outer in OUTERS.get(method, given.outer):
                    one = {"method": method, "workers": workers, "rate": rate}
                    made.append({**one, "outer_lr": outer, "options": {}})
    return [{**one, "seed": seed} for one in made for seed in given.seeds]


def options_of(arm, warmup_steps, trial):
    """Of its LocalUpdates. In a trial rounds are those of a training's later course."""
    options = {"every": EVERY, "outer_lr": arm["outer_lr"]}
    if arm["method"] == "diloco":
        options |= {"keep": None, "outer": "nesterov"}
    elif arm["method"] == "senders":
        options["warmup_rounds"] = 4
    elif arm["method"] == "rising":
        options["warmup_steps"] = warmup_steps
    options |= {name: value for name, value in arm["options"].items() if name != "last"}
    return {**options, "warmup_steps": 0, "warmup_rounds": 0} if trial else options


def stacks_of(given):
    """{name: arms}: those that have rounds after the same steps."""
    made = {}
    for arm in arms_of(given):
        if arm["method"] in ("ddp", "topk"):
            name = f"{arm['method']} {arm['workers']}"
        else:
            options = options_of(arm, given.warmup_steps, False)
            rounds = [options.get(name, 0) for name in ("warmup_steps", "every")]
            name = f"local {arm['workers']}" + "".join(f" {n}" for n in rounds if n != EVERY)
        made.setdefault(name, []).append(arm)
    return made


def drive(given):
    """In a process that the limit ends, whatever hangs."""
    end = time.time() + given.seconds
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    for name in ("records.jsonl", "points.jsonl", "log"):
        (out / name).write_text("")
    env = {"OMP_NUM_THREADS": "1", **os.environ}
    env["PYTHONPATH"] = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    settings = json.dumps({**vars(given), "end": end})
    with open(out / "log", "a") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, "--job", settings], env=env, stdout=log, stderr=log
        )
    try:
        status = process.wait(timeout=max(end + 8 - time.time(), 1))
    except subprocess.TimeoutExpired:
        process.kill()
        status = "killed, its time was over"
    print((out / "log").read_text())
    print(f"bench/cuda/local.py: {status}")
    return 0 if (out / "records.jsonl").stat().st_size else 1


# ---- the process that trains ----


def text_of(folder, part):
    import torch

    with lzma.open(Path(folder) / f"wikitext-2.{part}.txt.xz") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()


def starts_of(arms, steps, rows, last):
    """Where the rows of each replica begin. Those of all workers are the same whoever has them."""
    import torch

    made = []
    for one in arms:
        draw = torch.Generator().manual_seed(one["seed"])
        whole = torch.randint(0, last, (steps, rows), generator=draw)
        made += [whole[:, worker :: one["workers"]] for worker in range(one["workers"])]
    return torch.stack(made, 1)


def factors_of(steps):
    """Of the rates: rise, and fall linearly to nearly 0."""
    import torch

    rise = max(min(100, steps // 20), 1)
    at = torch.arange(steps + 1.0)
    return torch.minimum((at + 1) / rise, (steps - at) / (steps - rise)).clamp(min=0)


class Arm:
    """One training, whose workers are replicas from `first` on."""

    def __init__(self, about, given, shape, first):
        from rounds import Rounds

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
        import rill

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

    def wait(self, name, step, limit):
        with self._changed:
            self._steps[name] = step
            self._changed.notify_all()
            while min(self._steps.values()) < step - AHEAD and time.time() < limit:
                self._changed.wait(1)

    def leave(self, name):
        with self._changed:
            self._steps.pop(name, None)
            self._changed.notify_all()


class Group:
    """A stack and its arms, in a thread."""

    def __init__(self, name, arms, given, shape, text, valid, steps):
        from stacked import Stack

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

    def trial(self, pace):
        """Seconds of so many steps and a round beside the others, and of the round alone."""
        with self.stack.running():
            self.begin(True)
            step = self.advance(0, EVERY, pace)
            self.spent = dict.fromkeys(self.spent, 0.0)
            began = time.monotonic()
            while step < EVERY * (TRIAL + 1) and self.live():
                step = self.advance(step, EVERY * (TRIAL + 1), pace)
            self.each_s = (time.monotonic() - began) / TRIAL
            self.round_s = self.spent["rounds"] / TRIAL

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


def job(given):
    import torch
    from stacked import Shape

    begun = time.time()
    given.rates = {int(workers): rates for workers, rates in given.rates.items()}
    device = torch.device(given.device)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    shape = Shape(given.layers, given.width, given.heads, given.length)
    text, valid = (text_of(given.data, part).to(device) for part in ("train", "valid"))
    most = max(given.steps, EVERY * (TRIAL + 1))
    groups = []
    for name, arms in stacks_of(given).items():
        try:
            groups.append(Group(name, arms, given, shape, text, valid, most))
        except Exception:
            print(f"{name}:", traceback.format_exc(), file=sys.stderr, flush=True)
    step_s = single_step(given, shape, text)
    print(f"{len(groups)} stacks after {time.time() - begun:.0f} s, memory of rounds pinned:",
          {a.rounds.pinned for g in groups for a in g.arms if a.rounds}, flush=True)  # fmt: skip
    together([(g.name, g.trial, ()) for g in groups])
    groups = [group for group in groups if group.live() and hasattr(group, "each_s")]
    steps = steps_for(given, groups)
    say = Saying(given, shape, step_s, steps)
    together([(g.name, g.train, (steps, say)) for g in groups])
    sys.stdout.flush()
    os._exit(0)  # nothing that hangs at the end hides the result


def together(calls):
    """Each in a thread."""
    pace = Pace([name for name, _, _ in calls])

    def one(name, call, more):
        try:
            call(pace, *more)
        except Exception:
            print(f"{name}:", traceback.format_exc(), file=sys.stderr, flush=True)
        finally:
            pace.leave(name)

    threads = [threading.Thread(target=one, args=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def steps_for(given, groups):
    """As many as all can do, with the rounds that a warm-up has more."""
    left = SAFE * (given.end - AGAIN_S - time.time())
    longest = math.inf
    for group in groups:
        print(f"{group.name}: {len(group.arms)} arms, {1e3 * group.each_s:.0f} ms for {EVERY} steps"
              f" beside the others, of it {1e3 * group.round_s:.0f} ms for a round; "
              f"{ {k: round(1e3 * v / TRIAL) for k, v in group.spent.items()} }")  # fmt: skip
        # Growing evenly from 1 to EVERY, rounds have log(EVERY) times as many, and one.
        asked = [options_of(one.about, given.warmup_steps, False) for one in group.arms]
        warm = max(one.get("warmup_steps", 0) for one in asked)
        more = warm / EVERY * math.log(EVERY) * group.round_s
        longest = min(longest, (left - more) / group.each_s)
    rounds = max(int(min(longest, given.steps // EVERY)) // given.check, 1) * given.check
    print(f"{EVERY * rounds} steps", flush=True)
    return EVERY * rounds


def single_step(given, shape, text):
    """Seconds of a step of one worker of four, alone on the device."""
    import torch
    from stacked import Stack

    steps = 200 if text.is_cuda else 5
    starts = torch.zeros(steps, 1, max(given.rows // 4, 1), dtype=torch.int64)
    stack = Stack(shape, [1], [1e-3], text, starts.to(text.device), factors_of(steps))
    stack.prepare()
    with stack.running():
        began = time.monotonic()
        for _ in range(steps):
            stack.step()
        stack.synchronize()
        return (time.monotonic() - began) / steps


class Saying:
    """Lines to files: each at once, so that none is lost."""

    def __init__(self, given, shape, step_s, steps):
        import torch

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


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",") if part]


def rates_of(text):
    """ "A,B,8:C": rates A and B, and C for 8 workers; 1 is DDP. {0 or workers: rates}"""
    made = {0: []}
    for part in text.split(","):
        workers, _, rate = part.rpartition(":")
        made.setdefault(int(workers or 0), []).append(float(rate))
    return made


def arm_of(text):
    """ "METHOD:WORKERS:RATE:OPTION=VALUE,..." """
    method, workers, rate, options = (text.split(":", 3) + [""])[:4]
    named = dict(part.split("=") for part in options.split(",") if part)
    for name, value in named.items():
        try:
            named[name] = ast.literal_eval(value)
        except ValueError:
            pass  # a word
    outer = named.pop("outer_lr", OUTERS.get(method, [0.7])[0])
    one = {"method": method, "workers": int(workers), "rate": float(rate)}
    return {**one, "outer_lr": outer, "options": named}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="build/local-gpu")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--data", default=os.environ.get("RILL_DATA", "../shared/data"))
    parser.add_argument("--device", default="cuda")
    methods = ["ddp", "rising", "diloco"]
    parser.add_argument("--methods", type=numbers(str), default=methods)
    parser.add_argument("--workers", type=numbers(int), default=[4, 8])
    parser.add_argument("--arms", type=arm_of, nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=60000, help="at most")
    parser.add_argument("--seeds", type=numbers(int), default=[1, 2, 3])
    parser.add_argument("--rates", type=rates_of, default=rates_of(RATES))
    parser.add_argument("--outer", type=numbers(float), default=[0.7], help="of DiLoCo")
    parser.add_argument("--rows", type=int, default=16, help="of all workers in a step")
    parser.add_argument("--warmup-steps", type=int, default=900, help='of "rising"')
    parser.add_argument("--check", type=int, default=15, help="rounds between checks of the loss")
    parser.add_argument("--check-rows", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        return job(argparse.Namespace(**json.loads(given.job)))
    known = [*OUTERS, "diloco"]
    asked = [*given.methods, *(arm["method"] for arm in given.arms)]
    wrong = [method for method in asked if method not in known]
    if wrong:
        parser.error(f"{wrong[0]}: the methods are {', '.join(known)}")
    return drive(given)


if __name__ == "__main__":
    sys.exit(main())
