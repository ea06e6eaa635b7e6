"""Which trainings local.py does, as its command line says: arms, and the stacks that they make."""

from __future__ import annotations

import ast

EVERY = 30
OUTERS = {"ddp": [None], "topk": [None], "plain": [1.0], "senders": [1.0], "rising": [1.0]}


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
