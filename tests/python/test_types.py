"""Type hints: what a type checker says of a user's typos, and that names are the library's."""

import os
import shutil
import subprocess
import typing

import pytest

import rill
from rill import _names

pytestmark = pytest.mark.once
COLLECTIVES = ("allreduce", "reduce", "reduce_scatter", "allgather", "bcast")
RIGHT = """
import numpy as np
import rill
import rill.torch
import torch
comm = rill.local(1, check=True, learn="frozen", timeout_s=None)[0]
total = comm.allreduce(np.ones(3), algorithm="dsar", codec="rice", value_bits=4)
reducer = rill.Reducer(comm, 3, algorithm="oktopk", density=0.01, select="topk", nonfinite="zero")
planned = rill.Reducer(comm, 3, select="auto")
both = total + total
same: bool = both == total
model = torch.nn.Linear(3, 3)
made = torch.optim.AdamW(model.parameters())
state = rill.torch.attach(model, "topk+qsgd4", density=0.01, optimizer=made, overlap="hook")
state = rill.torch.State("oktopk", density=0.01, value_bits=4, rules={"*.bias": "dense"})
rill.torch.DistributedOptimizer(made, model.named_parameters(), "auto", overlap="step")
local = rill.torch.LocalUpdates(model, keep=None, average="all", outer="nesterov", clip=None)
local = rill.torch.LocalUpdates(model, value_bits=4, average="senders", clip="median")
"""
WRONG = [  # a line, and what is wrong in it
    ('comm.allreduce(np.ones(3), algoritm="dsar")', "algoritm"),
    ('comm.allreduce(np.ones(3), algorithm="dsra")', "dsra"),
    ('comm.iallreduce(np.ones(3), codec="elias")', "elias"),
    ("comm.allreduce(np.ones(3), value_bits=3)", "3"),
    ("rill.Reducer(comm, 3, densty=0.01)", "densty"),
    ('rill.Reducer(comm, 3, select="top")', "top"),
    ('rill.Reducer(comm, 3, nonfinite="ignore")', "ignore"),
    ('rill.local(1, learn="perhaps")', "perhaps"),
    ("rill.local(1, chek=True)", "chek"),
    ('rill.torch.attach(model, "oktpok")', "oktpok"),
    ('rill.torch.attach(model, "topk+qsgd3")', "qsgd3"),
    ('rill.torch.attach(model, "topk", densty=0.01)', "densty"),
    ('rill.torch.attach(model, "topk", overlap="treads")', "treads"),
    ('rill.torch.State("top_k")', "top_k"),
    ('rill.torch.State("topk", nonfinite="skip")', "skip"),
    ('rill.torch.DistributedOptimizer(made, None, "gtop")', "gtop"),
    ('rill.torch.DistributedOptimizer(made, None, "gtopk", overlap="steps")', "steps"),
    ('rill.torch.LocalUpdates(model, average="sender")', "sender"),
    ('rill.torch.LocalUpdates(model, outer="adam")', "adam"),
    ('rill.torch.LocalUpdates(model, clip="mean")', "mean"),
    ("rill.torch.LocalUpdates(model, value_bits=3)", "3"),
    ("rill.torch.LocalUpdates(model, evry=30)", "evry"),
    ('total.set_pairs([1], np.ones(1)).dnse()', "dnse"),
]


def names(literal, *without):
    return [name for name in typing.get_args(literal) if name not in without]


def test_names_are_those_of_the_tables():
    of_collectives = {name for each in COLLECTIVES for name in rill.algorithms(each)}
    assert set(names(_names.Algorithm, "auto")) == of_collectives
    allreduce, more = rill.algorithms("allreduce"), rill.algorithms("reducer")
    assert names(_names.Method, "auto") == allreduce + more
    plain = names(_names.ShortMethod)[:15]
    assert set(plain) == {"topk", *names(_names.Method)}
    coded = [f"{name}+qsgd{bits}" for bits in (8, 4, 2) for name in plain[2:]]
    assert names(_names.ShortMethod)[15:] == coded
    for name in names(_names.ShortMethod):
        rill.Reducer(rill.local(1)[0], 64, density=0.1, **rill.method(name)).free()
    for name in plain[:2]:  # send values as they are
        with pytest.raises(rill.RillError, match="value_bits"):
            rill.Reducer(rill.local(1)[0], 64, density=0.1, **rill.method(f"{name}+qsgd4"))
    assert names(_names.Codec, "auto") == rill.codecs()
    assert names(_names.Select, "auto", "nonzero") == rill.selectors()
    for name in names(_names.Learn):
        rill.local(1, learn=name)[0].free()
    settings = {setting.name: setting.description for setting in rill.settings()}
    for name, literal in (
        ("partition", _names.Partition),
        ("value_scope", _names.ValueScope),
        ("nonfinite", _names.Nonfinite),
    ):
        assert settings[name].endswith(": " + ", ".join(names(literal))), settings[name]


def test_mypy_finds_typos(tmp_path, repository):
    mypy = shutil.which("mypy")
    if mypy is None:
        pytest.skip("mypy is not installed")
    script = tmp_path / "script.py"
    script.write_text(RIGHT + "\n".join(line for line, _ in WRONG) + "\n")
    version = subprocess.run([mypy, "--version"], capture_output=True, text=True).stdout
    before = any(f"mypy 1.{minor}." in version for minor in range(7))
    unpack = ["--enable-incomplete-feature=Unpack"] * before
    config = os.path.join(repository, "python", "mypy.ini")
    done = subprocess.run(
        [mypy, "--config-file", config, *unpack, "--cache-dir", tmp_path / "cache", script],
        capture_output=True, text=True, env={**os.environ, "MYPYPATH": f"{repository}/python"},
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    first = RIGHT.count("\n") + 1
    for number, (line, typo) in enumerate(WRONG):
        mine = [text for text in found if text.startswith(f"{script}:{first + number}: ")]
        assert mine and typo in " ".join(mine), f"{line}: {done.stdout}"
    assert len(found) == len(WRONG), done.stdout
