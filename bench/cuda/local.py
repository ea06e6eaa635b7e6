#!/usr/bin/env python3
"""bench/cuda/local.py [--out FOLDER] [--seconds 460] [--data FOLDER] [--layers 6 --width 384 ...]:
rill.torch.LocalUpdates beside DiLoCo and DDP, a GPT over the bytes of WikiText-2, on one GPU.

First rates are tried with the first seed and --tune-steps; then every method is trained at its best
rates with all seeds, by 4 and by 8 workers, for as many steps as --seconds leave, at equal tokens.
  ddp     one process with the rows of all workers, which is what dense sums give
  diloco  LocalUpdates(keep=None, outer="nesterov", outer_lr=...)
  local   LocalUpdates(outer_lr=..., warmup_rounds=...)
  topk    rill.Reducer(comm, "topk" at 1 %) in each step, with what attach(optimizer=) gives it
Workers are replicas in one process (stacked.py); each has a LocalUpdates of its own over
rill.local(workers), whose rounds are calls of as many threads. Jobs are processes that share the
GPU; each ends by itself in time, and one that fails takes no other along.
FOLDER gets records.jsonl, a line for each training; points.jsonl, a line for each check in the
course of it; and log. Bytes are those of a worker, per way: of dense sums as a ring has them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERY = 30
CHECK = 5  # rounds between checks of the loss
RATES = (0.0007, 0.0014, 0.0028)
OUTERS = (0.5, 0.7, 0.9)  # of DiLoCo
WARMUPS = (0, 4)
MOMENTUM = 0.9
START_S = 25  # until a job trains
SAFE = 0.75  # share of the time that is planned for


def arm(method, workers, seed, rate, outer=None, warmup=0, **options):
    return {
        "method": method, "workers": workers, "seed": seed, "rate": rate, "outer_lr": outer,
        "warmup_rounds": warmup, "options": options,
    }  # fmt: skip


# ---- what is trained ----


def trials(given):
    """Jobs of the first part: {name: arms}"""
    seed = given.seeds[0]
    local = [arm("diloco", 4, seed, given.rates[1], outer) for outer in OUTERS]
    local += [arm("diloco", 4, seed, rate, 0.7) for rate in given.rates if rate != given.rates[1]]
    local += [
        arm("local", 4, seed, rate, 1.0, warmup) for warmup in WARMUPS for rate in given.rates
    ]
    local += [arm("local", 4, seed, given.rates[1], outer, WARMUPS[1]) for outer in (0.7, 1.4)]
    return {"ddp": [arm("ddp", 1, seed, rate) for rate in given.rates], **apart("four", local)}


def apart(name, arms):
    """Rounds of local updates are work for the host: in a job of their own others don't wait."""
    jobs = {}
    for one in arms:
        warm = f" {one['warmup_rounds']}" if one["method"] == "local" else ""
        jobs.setdefault(f"{name} {one['method']}{warm}", []).append(one)
    return jobs


def finals(given, found):
    """Jobs of the second part, at the rates that were best in the first."""

    def best(method, warmup=0):
        own = [r for r in found if (r["method"], r["warmup_rounds"]) == (method, warmup)]
        one = min(own, key=lambda r: r["loss"], default=None)
        default = {"ddp": None, "diloco": 0.7, "local": 1.0}[method]
        if one is None:
            return {"rate": given.rates[1], "outer": default}
        return {"rate": one["rate"], "outer": one["outer_lr"], **one["options"]}

    jobs = {"ddp": [arm("ddp", 1, seed, **best("ddp")) for seed in given.seeds]}
    for name, workers in (("four", 4), ("eight", 8)):
        arms = [arm("diloco", workers, seed, **best("diloco")) for seed in given.seeds]
        for warmup in WARMUPS:
            of = {"warmup": warmup, **best("local", warmup)}
            arms += [arm("local", workers, seed, **of) for seed in given.seeds]
        jobs |= apart(name, arms)
    jobs["four topk"] = [arm("topk", 4, seed, best("ddp")["rate"]) for seed in given.seeds]
    return jobs


# ---- the driver ----


def drive(given):
    end = time.monotonic() + given.seconds
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    for name in ("records.jsonl", "points.jsonl", "log"):
        (out / name).write_text("")
    began = time.monotonic()
    jobs = trials(given)
    run_jobs(given, "trial", jobs, given.tune_steps, min(end, began + given.seconds * 0.45))
    found = [r for r in records(out) if r["part"] == "trial" and r["steps"] == given.tune_steps]
    took = max((r["train_s"] for r in found), default=None)
    work = sum(map(work_of, found)) * given.tune_steps
    jobs = finals(given, found)
    steps = given.steps
    if took:
        left = end - time.monotonic() - START_S
        cost = sum(work_of(one) for arms in jobs.values() for one in arms)
        possible = SAFE * left * work / took / cost
        unit = CHECK * EVERY
        steps = int(min(given.steps, max(possible // unit * unit, 2 * unit)))
        note(out, f"{took:.0f} s for the trials; {left:.0f} s are left: {steps} steps")
    run_jobs(given, "final", jobs, steps, end)
    return 0 if any(r["part"] == "final" for r in records(out)) else 1


def work_of(one):
    """How long an arm takes, to that of DDP: a stack of more workers has more weights to update."""
    return {1: 1, 4: 1.2, 8: 1.5}[one["workers"]]


def run_jobs(given, part, jobs, steps, end):
    """All at once. Ends what has not ended by itself some seconds after its time."""
    running = {}
    for name, arms in jobs.items():
        settings = dict(vars(given), part=part, name=name, arms=arms, steps=steps, job=None)
        settings["end"] = time.time() + end - time.monotonic()
        env = {"OMP_NUM_THREADS": "2", **os.environ}
        env["PYTHONPATH"] = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
        with open(Path(given.out) / "log", "a") as log:
            running[name] = subprocess.Popen(
                [sys.executable, __file__, "--job", json.dumps(settings)],
                env=env, stdout=log, stderr=log,
            )  # fmt: skip
    for name, process in running.items():
        try:
            status = process.wait(timeout=max(end + 8 - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            process.kill()
            status = "killed, its time was over"
        note(Path(given.out), f"{part} {name}: {status}")


def note(out, text):
    print(time.strftime("%X"), text, flush=True)
    with open(out / "log", "a") as log:
        print(time.strftime("%X"), text, file=log)


def records(out):
    with open(out / "records.jsonl") as file:
        return [json.loads(line) for line in file if line.strip()]


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
    """One training, whose workers are replicas from `first` on."""

    def __init__(self, about, shape, stack, first, pool):
        import rill
        import rill.torch
        from stacked import Replica

        weights = stack.weights
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

        def made(worker):
            module = Replica(shape, weights[first + worker])
            options = dict(about["options"], every=EVERY, outer_lr=about["outer_lr"])
            if self.method == "diloco":
                options.update(keep=None, outer="nesterov")
            else:
                options.update(warmup_rounds=about["warmup_rounds"])
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

    def round(self):
        """After EVERY steps of all its workers."""

        def call(local):
            return [local.step() for _ in range(EVERY)][-1]

        if not self.locals:
            return
        assert all(self.pool.map(call, self.locals)), "a round had too few contributions"
        last = self.locals[0].last
        self.sent += self.ring if self.method == "diloco" else last.sent_bytes
        self.received += self.ring if self.method == "diloco" else last.received_bytes


def job(given):
    import torch
    from stacked import Shape, Stack

    out, device = Path(given.out), torch.device(given.device)
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("high")
    shape = Shape(given.layers, given.width, given.heads, given.length)
    text, valid = (text_of(given.data, part).to(device) for part in ("train", "valid"))
    arms = given.arms
    starts = starts_of(arms, given.steps, given.rows, len(text) - shape.length - 1).to(device)
    each = [one for one in arms for _ in range(one["workers"])]
    factors = factors_of(given.steps)
    settings = [shape, [o["seed"] for o in each], [o["rate"] for o in each], text, starts, factors]
    exchanging = arms[0]["method"] == "topk"
    stack = Stack(*settings, *((0.0, lambda: exchange(made, stack)) if exchanging else ()))
    pool, made, first = ThreadPoolExecutor(max(one["workers"] for one in arms)), [], 0
    for one in arms:
        made.append(Arm(one, shape, stack, first, pool))
        first += one["workers"]
    step_s = single_step(given, shape, text, factors) if given.name == "ddp" else None
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    began, rounds_s, step = time.monotonic(), 0.0, 0
    most = (len(valid) - 1) // shape.length
    say = Saying(given, shape, out, step_s)
    while step < given.steps:
        for _ in range(EVERY):
            stack.step()
        step += EVERY
        synchronize()
        before = time.monotonic()
        for one in made:
            if one.failed is None:
                try:
                    one.round()
                except Exception:
                    one.failed = traceback.format_exc()
                    print(one.about, one.failed, file=sys.stderr, flush=True)
        synchronize()
        rounds_s += time.monotonic() - before
        over = time.time() > given.end - 4
        ended = over or step >= given.steps
        if step // EVERY % CHECK == 0 or ended:
            live = [one for one in made if one.failed is None]
            firsts = [one.first for one in live]
            losses = stack.validate(firsts, valid, min(most, given.check_rows))
            spent = time.monotonic() - began
            say.points(live, losses, step, spent)
            if ended and not over:
                losses = stack.validate(firsts, valid, min(most, 16 * given.check_rows))
                for one, loss in zip(live, losses):
                    one.loss = round(loss, 4)
            shown = " ".join(f"{loss:.3f}" for loss in losses)
            print(f"{given.part} {given.name}: step {step}, {spent:.0f} s, {shown}", flush=True)
        if over:
            break
    equal = [equal_workers(one, stack.weights) for one in made]
    say.records(made, equal, step, time.monotonic() - began, rounds_s)
    sys.stdout.flush()
    os._exit(0)  # nothing that hangs at the end hides the result


def exchange(arms, stack):
    if stack.weights.is_cuda:
        import torch

        torch.cuda.synchronize()
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

    def __init__(self, given, shape, out, step_s):
        import torch

        self.out, self.given = out, given
        self.common = {
            "bench": "local", "part": given.part, "asked": given.steps, "every": EVERY,
            "batch": given.rows, "length": shape.length, "layers": shape.layers,
            "width": shape.width, "parameter_bytes": 4 * shape.count, "torch": torch.__version__,
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
                    "part": self.given.part, **one.about, "step": step, "loss": round(loss, 4),
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=460)
    parser.add_argument("--data", default=os.environ.get("RILL_DATA", "../shared/data"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=3600, help="at most")
    parser.add_argument("--tune-steps", type=int, default=900)
    parser.add_argument("--seeds", type=numbers(int), default=[1, 2, 3])
    parser.add_argument("--rates", type=numbers(float), default=list(RATES))
    parser.add_argument("--rows", type=int, default=16, help="of all workers in a step")
    parser.add_argument("--check-rows", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        return job(argparse.Namespace(**json.loads(given.job)))
    return drive(given)


if __name__ == "__main__":
    sys.exit(main())
