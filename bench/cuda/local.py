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
import json
import lzma
import math
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

from arms import EVERY, OUTERS, arm_of, options_of, rates_of, stacks_of

ROOT = Path(__file__).resolve().parents[2]
TRIAL = 8  # rounds by which stacks find out how fast they are
RATES = "0.004,1:0.002,1:0.004,1:0.006,8:0.003"
AGAIN_S = 6  # until all begin again, and the last check
SAFE = 0.9  # share of the time that is planned for


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


def job(given):
    import torch
    from groups import Group, Saying
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
    together([(g.name, g.trial, (TRIAL,)) for g in groups])
    groups = [group for group in groups if group.live() and hasattr(group, "each_s")]
    steps = steps_for(given, groups)
    say = Saying(given, shape, step_s, steps)
    together([(g.name, g.train, (steps, say)) for g in groups])
    sys.stdout.flush()
    os._exit(0)  # nothing that hangs at the end hides the result


def together(calls):
    """Each in a thread."""
    from groups import Pace

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
    from groups import factors_of
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


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",") if part]


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
