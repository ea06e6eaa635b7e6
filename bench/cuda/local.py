#!/usr/bin/env python3
"""bench/cuda/local.py [--out FOLDER] [--seconds 150] [--data FOLDER] [--rates 0.002,8:0.003] [...]:
rill.torch.LocalUpdates beside DiLoCo and DDP, a GPT over the bytes of WikiText-2, on one GPU.

  ddp      one process with the rows of all workers, which is what dense sums give
  diloco   LocalUpdates(keep=None, outer="nesterov", outer_lr=...)
  plain    LocalUpdates with its defaults
  senders  the same with warmup_rounds=4
  rising   the same with warmup_steps=
  topk     rill.Reducer(comm, "topk" at 1 %) in each step, with what attach(optimizer=) gives it
Of each method, number of workers and rate there is a job, a process that trains all seeds side by
side; with --apart each seed is a job of its own, as rounds take a core. Workers are replicas in it
(stacked.py); each has a LocalUpdates of its own over rill.local(workers), whose rounds are calls of
as many threads. All have the same tokens.
Jobs share the GPU. All try some rounds first, and then train for as many steps as the slowest
can do in --seconds. One that fails takes no other along.
FOLDER gets records.jsonl, a line for each training; points.jsonl, a line for each check in the
course of it; and log. Bytes are those of a worker, per way: of dense sums as a ring has them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERY = 30
TRIAL = 3  # rounds by which jobs find out how fast they are
OUTERS = {"ddp": [None], "topk": [None], "plain": [1.0], "senders": [1.0], "rising": [1.0]}
RATES = "0.002,0.004,1:0.002,1:0.004,1:0.008,8:0.003"
MOMENTUM = 0.9
AGAIN_S = 8  # until all begin again, and the last check
SAFE = 0.85  # share of the time that is planned for


def jobs_of(given):
    """{name: trainings of a job}"""
    made = {}
    for method in given.methods:
        for workers in [1] if method == "ddp" else given.workers:
            rates = given.rates.get(workers, given.rates[0])
            if method == "ddp":
                made["ddp"] = trainings(method, workers, rates, given.seeds, [])
                continue
            for rate in rates:
                name = f"{method} {workers} {rate:g}"
                for seeds in [[seed] for seed in given.seeds] if given.apart else [given.seeds]:
                    own = name + f" {seeds[0]}" * given.apart
                    made[own] = trainings(method, workers, [rate], seeds, given.outer)
    return made


def trainings(method, workers, rates, seeds, outers):
    return [
        {"method": method, "workers": workers, "rate": rate, "outer_lr": outer, "seed": seed}
        for rate in rates for outer in OUTERS.get(method, outers) for seed in seeds
    ]  # fmt: skip


def drive(given):
    end = time.time() + given.seconds
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    for name in ("records.jsonl", "points.jsonl", "log"):
        (out / name).write_text("")
    jobs, running, speeds = jobs_of(given), {}, tempfile.mkdtemp()
    for name, arms in jobs.items():
        settings = dict(vars(given), name=name, arms=arms, names=list(jobs), end=end)
        settings |= {"speeds": speeds, "job": None}
        env = {"OMP_NUM_THREADS": "1", **os.environ}
        env["PYTHONPATH"] = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
        with open(out / "log", "a") as log:
            running[name] = subprocess.Popen(
                [sys.executable, __file__, "--job", json.dumps(settings)],
                env=env, stdout=log, stderr=log,
            )  # fmt: skip
    for name, process in running.items():
        try:
            status = process.wait(timeout=max(end + 8 - time.time(), 1))
        except subprocess.TimeoutExpired:
            process.kill()
            status = "killed, its time was over"
        note(out, f"{name}: {status}")
    shutil.rmtree(speeds)
    return 0 if (out / "records.jsonl").stat().st_size else 1


def note(out, text):
    print(time.strftime("%X"), text, flush=True)
    with open(out / "log", "a") as log:
        print(time.strftime("%X"), text, file=log)


# ---- a job ----


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
    """One training, whose workers are replicas from `first` on. On a GPU their rounds are on copies
    in the host's memory: many jobs share it in turns, and each wait for it takes one."""

    def __init__(self, about, shape, stack, first, pool, trial, warmup_steps):
        import torch
        from stacked import Replica

        import rill
        import rill.torch

        weights = stack.weights
        self.there = weights[first : first + about["workers"]]
        self.here = None
        self.about, self.first, self.pool = about, first, pool
        self.workers, self.method = about["workers"], about["method"]
        self.sent = self.received = 0
        self.curve, self.loss, self.failed, self.locals = [], None, None, []
        self.reducers = []
        summing = 4 if self.method == "ddp" else self.workers
        self.ring = round(8 * shape.count * (1 - 1 / summing))
        if self.method == "ddp":
            return
        comms = rill.local(self.workers)

        def reducer(worker):
            given = {**rill.method("topk"), "density": 0.01, "warmup_steps": 100}
            if weights.is_cuda:
                given["memory"] = "cuda"
            return rill.Reducer(comms[worker], shape.stride, momentum=MOMENTUM, **given)

        if weights.is_cuda and self.method != "topk":
            self.here = torch.empty(self.there.shape, pin_memory=True).copy_(self.there)

        def made(worker):
            own = self.there if self.here is None else self.here
            module = Replica(shape, own[worker])
            options = {"every": EVERY, "outer_lr": about["outer_lr"]}
            if self.method == "diloco":
                options.update(keep=None, outer="nesterov")
            elif self.method == "senders" and not trial:
                options["warmup_rounds"] = 4
            elif self.method == "rising" and not trial:
                options["warmup_steps"] = warmup_steps
            return rill.torch.LocalUpdates(module, comm=comms[worker], **options)

        if self.method == "topk":
            self.reducers = list(pool.map(reducer, range(self.workers)))
        else:
            self.locals = list(pool.map(made, range(self.workers)))

    def exchange(self, gradients):
        """In each step, of what sums gradients."""
        own = gradients[self.first : self.first + self.workers]
        list(self.pool.map(lambda reducer, row: reducer.step(row), self.reducers, own))
        stats = self.reducers[0].stats
        self.sent, self.received = self.sent + stats.sent_bytes, self.received + stats.recv_bytes

    def steps_left(self):
        """Until its next round."""
        return self.locals[0].steps_left if self.locals else EVERY

    def round(self, steps):
        """After so many steps of all its workers, also where they are the last ones."""

        def call(local):
            return [local.step() for _ in range(steps)][-1] or local.synchronize()

        if not self.locals:
            return
        if self.here is not None:
            self.here.copy_(self.there)
        assert all(self.pool.map(call, self.locals)), "a round had too few contributions"
        if self.here is not None:
            self.there.copy_(self.here)
        last = self.locals[0].last
        self.sent += self.ring if self.method == "diloco" else last.sent_bytes
        self.received += self.ring if self.method == "diloco" else last.received_bytes


def job(given):
    import torch
    from stacked import Shape, Stack

    out, device = Path(given.out), torch.device(given.device)
    torch.set_num_threads(1 if given.device != "cpu" else 2)
    torch.set_float32_matmul_precision("high")
    shape = Shape(given.layers, given.width, given.heads, given.length)
    text, valid = (text_of(given.data, part).to(device) for part in ("train", "valid"))
    arms = given.arms
    most_steps = max(given.steps, EVERY * (TRIAL + 1))
    starts = starts_of(arms, most_steps, given.rows, len(text) - shape.length - 1).to(device)
    each = [one for one in arms for _ in range(one["workers"])]
    factors = factors_of(most_steps)
    settings = [shape, [o["seed"] for o in each], [o["rate"] for o in each], text, starts, factors]
    exchanging = arms[0]["method"] == "topk"
    stack = Stack(*settings, *((0.0, lambda: exchange(made, stack)) if exchanging else ()))
    pool, made = ThreadPoolExecutor(max(one["workers"] for one in arms)), []
    decode_once()
    made += arms_of(given, shape, stack, pool, True)
    step_s = single_step(given, shape, text, factors) if given.name == "ddp" else None
    rounds_s = 0.0
    for trial in range(TRIAL + 1):
        if trial == 1:
            began, rounds_s = time.monotonic(), 0.0
        rounds_s += round_of(stack, made, EVERY)
    steps = steps_for(given, (time.monotonic() - began) / TRIAL, rounds_s / TRIAL)
    stack.start_again(factors_of(steps))
    made[:] = arms_of(given, shape, stack, pool, False)
    say = Saying(given, shape, out, step_s, steps)
    began, rounds_s, step = time.monotonic(), 0.0, 0
    most = (len(valid) - 1) // shape.length
    while step < steps:
        more = min(made[0].steps_left(), steps - step)
        rounds_s += round_of(stack, made, more)
        step += more
        over = time.time() > given.end - 3
        ended = over or step >= steps
        if step // (EVERY * given.check) > (step - more) // (EVERY * given.check) or ended:
            live = [one for one in made if one.failed is None]
            firsts = [one.first for one in live]
            losses = stack.validate(firsts, valid, min(most, given.check_rows))
            spent = time.monotonic() - began
            say.points(live, losses, step, spent)
            if ended and not over:
                losses = stack.validate(firsts, valid, min(most, 8 * given.check_rows))
                for one, loss in zip(live, losses):
                    one.loss = round(loss, 4)
            shown = " ".join(f"{loss:.3f}" for loss in losses)
            print(f"{given.name}: step {step}, {spent:.0f} s, {shown}", flush=True)
        if over:
            break
    equal = [equal_workers(one, stack.weights) for one in made]
    say.records(made, equal, step, time.monotonic() - began, rounds_s)
    sys.stdout.flush()
    os._exit(0)  # nothing that hangs at the end hides the result


def arms_of(given, shape, stack, pool, trial):
    made, first = [], 0
    for one in given.arms:
        made.append(Arm(one, shape, stack, first, pool, trial, given.warmup_steps))
        first += one["workers"]
    return made


def round_of(stack, arms, steps):
    """So many steps of all, and what comes after them; the seconds of that."""
    for _ in range(steps):
        stack.step()
    stack.synchronize()
    before = time.monotonic()
    for one in arms:
        if one.failed is None:
            try:
                one.round(steps)
            except Exception:
                one.failed = traceback.format_exc()
                print(one.about, one.failed, file=sys.stderr, flush=True)
    stack.synchronize()
    return time.monotonic() - before


def steps_for(given, whole_s, round_s):
    """The same for all jobs: each writes how long its rounds take, with their steps and without,
    and waits for the others."""
    out, name = Path(given.speeds), str(given.names.index(given.name))
    # Of a warm-up: growing evenly from 1 to EVERY, rounds have log(EVERY) times as many, and one.
    more = given.warmup_steps / EVERY * math.log(EVERY) if given.name.startswith("rising") else 0
    (out / f"{name}.part").write_text(f"{whole_s} {more * round_s}")
    (out / f"{name}.part").rename(out / name)
    limit = time.time() + given.seconds * 0.2
    while time.time() < limit and len(list(out.glob("*[0-9]"))) < len(given.names):
        time.sleep(0.05)
    found = list(out.glob("*[0-9]"))
    left = SAFE * (given.end - AGAIN_S - max(path.stat().st_mtime for path in found))
    speeds = [map(float, path.read_text().split()) for path in found]
    rounds = int(min((left - first) / each for each, first in speeds)) // given.check * given.check
    return EVERY * max(min(rounds, given.steps // EVERY), given.check)


def decode_once():
    """The workers of a process all decode the same messages; here the first one does."""
    from rill.torch._contribution import Coding

    decode, known, lock = Coding.decode, {}, threading.Lock()

    def found(coding, message):
        with lock:
            if message not in known:
                if len(known) >= 64:
                    known.clear()
                known[message] = decode(coding, message)
            return known[message]

    Coding.decode = found


def exchange(arms, stack):
    stack.synchronize()
    for one in arms:
        one.exchange(stack.gradients)


def equal_workers(one, weights):
    """Whether all workers have the same bits."""
    own = weights[one.first : one.first + one.workers]
    return bool((own == own[:1]).all())


def single_step(given, shape, text, factors):
    """Seconds of a step of one worker of four, alone on the device as far as it is."""
    import torch
    from stacked import Stack

    steps = min(200, given.steps - 1)
    starts = torch.zeros(given.steps, 1, max(given.rows // 4, 1), dtype=torch.int64)
    stack = Stack(shape, [1], [1e-3], text, starts.to(text.device), factors)
    stack.step()
    if text.is_cuda:
        torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(steps - 1):
        stack.step()
    if text.is_cuda:
        torch.cuda.synchronize()
    return (time.monotonic() - began) / (steps - 1)


class Saying:
    """Lines to files: each at once, so that none is lost."""

    def __init__(self, given, shape, out, step_s, steps):
        import torch

        self.out, self.given = out, given
        self.common = {
            "bench": "local", "asked": steps, "every": EVERY,
            "batch": given.rows, "length": shape.length, "layers": shape.layers,
            "width": shape.width, "parameter_bytes": 4 * shape.count, "torch": torch.__version__,
            "warmup_steps": given.warmup_steps,
            "device": "cpu" if given.device == "cpu" else torch.cuda.get_device_name(),
            "step_s": step_s,
        }  # fmt: skip

    def line(self, name, record):
        with open(self.out / name, "a") as file:
            file.write(json.dumps(record) + "\n")

    def points(self, arms, losses, step, spent):
        for one, loss in zip(arms, losses):
            if one.method == "ddp":
                one.received = one.sent = step * one.ring
            one.curve.append([step, round(loss, 4), one.received])
            self.line(
                "points.jsonl",
                {
                    **one.about, "step": step, "loss": round(loss, 4),
                    "sent_bytes": one.sent, "received_bytes": one.received,
                    "seconds": round(spent, 1),
                },
            )  # fmt: skip

    def records(self, arms, equal, step, spent, rounds_s):
        for one, same in zip(arms, equal):
            if one.failed is None and one.curve:
                self.line(
                    "records.jsonl",
                    {
                        **self.common, **one.about, "steps": step,
                        "loss": one.loss if one.loss is not None else one.curve[-1][1],
                        "sent_bytes": one.sent, "received_bytes": one.received,
                        "equal_bits": same, "train_s": round(spent, 1),
                        "rounds_s": round(rounds_s, 1), "curve": one.curve,
                    },
                )  # fmt: skip


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def rates_of(text):
    """"A,B,8:C": rates A and B, and C for 8 workers; 1 is DDP. {0 or workers: rates}"""
    made = {0: []}
    for part in text.split(","):
        workers, _, rate = part.rpartition(":")
        made.setdefault(int(workers or 0), []).append(float(rate))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="build/local-gpu")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--data", default=os.environ.get("RILL_DATA", "../shared/data"))
    parser.add_argument("--device", default="cuda")
    methods = ["ddp", "plain", "senders", "diloco"]
    parser.add_argument("--methods", type=numbers(str), default=methods)
    parser.add_argument("--workers", type=numbers(int), default=[4, 8])
    parser.add_argument("--steps", type=int, default=12000, help="at most")
    parser.add_argument("--seeds", type=numbers(int), default=[1, 2, 3])
    parser.add_argument("--rates", type=rates_of, default=rates_of(RATES))
    parser.add_argument("--outer", type=numbers(float), default=[0.5, 0.7], help="of DiLoCo")
    parser.add_argument("--rows", type=int, default=16, help="of all workers in a step")
    parser.add_argument("--warmup-steps", type=int, default=900, help='of "rising"')
    parser.add_argument("--apart", action="store_true", help="a job for each seed")
    parser.add_argument("--check", type=int, default=10, help="rounds between checks of the loss")
    parser.add_argument("--check-rows", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        settings = json.loads(given.job)
        return job(argparse.Namespace(**settings))
    known = [*OUTERS, "diloco"]
    wrong = [method for method in given.methods if method not in known]
    if wrong:
        parser.error(f"{wrong[0]}: the methods are {', '.join(known)}")
    return drive(given)


if __name__ == "__main__":
    sys.exit(main())
