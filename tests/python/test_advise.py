"""rill.plan and rill.torch.advise: what the planner expects, and what follows from it."""

import re
import runpy

import pytest
import torch

import rill
import rill.torch
from rill import _plan
from rill.torch import _advise

MODEL = torch.nn.Sequential(
    torch.nn.Embedding(20000, 256), torch.nn.Linear(256, 256), torch.nn.Linear(256, 20000)
)


@pytest.fixture(autouse=True)
def quiet(monkeypatch, request):
    """A selection takes the same here however busy the machine is."""
    if "timed" not in request.node.name:
        monkeypatch.setattr(_advise, "_selection_s", lambda count, density: 2e-10 * count)


def test_the_selection_is_timed():
    assert 0 < _advise._selection_s(1 << 16, 0.01) < 10


def advise(network, **how):
    return rill.torch.advise(MODEL, network, ranks=how.pop("ranks", 8), profile="none", **how)


def test_plan_has_the_rows_of_the_table():
    rows = rill.plan(8, 1 << 24, 0.01, rate="1gbit", profile="none")
    assert {row.algorithm for row in rows} <= set(rill.algorithms("allreduce"))
    assert [row.seconds for row in rows] == sorted(row.seconds for row in rows)
    assert sum(row.chosen for row in rows) == 1 and rows[0].seconds > 0
    slow = rill.plan(8, 1 << 24, 0.01, rate=1e8, profile="none")
    assert slow[0].seconds > 5 * rows[0].seconds
    names = {row.algorithm for row in rill.plan(8, 1000, collective="reducer", profile="none")}
    assert names == set(rill.algorithms("reducer"))


@pytest.mark.parametrize("rate", ["1gbit", "1 Gbit/s", "1Gbps", "1000 Mb/s", "1000000Kbit", 1e9])
def test_spellings_of_a_rate(rate):
    assert _plan.bits_per_second(rate) == 1e9


@pytest.mark.parametrize(
    "given, says",
    [
        ({"rate": "fast"}, "'fast'"),
        ({"rate": "0gbit"}, "'0gbit'"),
        ({"rate": ".gbit"}, "'.gbit'"),
        ({"rate": "1GBps"}, "'1GBps'"),
        ({"rate": float("nan")}, "nan"),
        ({"density": 0}, "density 0"),
        ({"density": "1%"}, "density '1%'"),
        ({"rate": None}, "rate None"),
        ({"collective": "sum"}, "'sum'"),
        ({"ranks": 10**12}, "ranks = 1000000000000 does not fit"),
        ({"hosts": 2**40}, "hosts = 1099511627776 does not fit"),
        ({"dim": 2**64}, "2.64"),
    ],
)
def test_plan_names_what_is_wrong(given, says):
    with pytest.raises(ValueError, match=says):
        rill.plan(**{"ranks": 8, "dim": 1000, "density": 0.01, **given})
    with pytest.raises(TypeError, match="ranks = '8': a whole number"):
        rill.plan("8", 1000)
    with pytest.raises(rill.RillError, match="ranks"):
        rill.plan(0, 1000)


def test_slower_networks_gain_more():
    gains = [
        {row.method: row.gain for row in advise(network).rows}
        for network in ("10gbit", "1gbit", "100mbit")
    ]
    assert gains[0]["oktopk"] < gains[1]["oktopk"] < gains[2]["oktopk"]
    assert gains[2]["oktopk"] > 10 and gains[2]["dense"] == 1
    assert gains[2]["topk+qsgd4"] > gains[2]["topk"]


def test_what_is_advised():
    sparse = advise("1gbit")
    assert sparse.method in ("oktopk", "spardl", "topk", "gtopk") and sparse.density == 0.01
    assert f'"{sparse.method}"' in sparse.line and sparse.gain > 5
    assert str(sparse.parameters // 1000000) in str(sparse) and sparse.line in str(sparse)
    assert advise(1e15).method == "dense"
    assert "LocalUpdates" in advise("1gbit", step_s=1e-4).line
    assert advise("100mbit", step_s=1e4).method == sparse.method
    # The line is what attach takes, and LocalUpdates has the defaults that were counted with.
    assert rill.method(sparse.method)


def test_few_ranks_take_topk():
    """It is closest to dense. With each rank more it sends more, so that many take another."""
    assert [advise("1gbit", ranks=ranks).method == "topk" for ranks in (2, 4, 8, 32)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert advise("1gbit", ranks=32).method in ("oktopk", "spardl")
    seconds = {row.method: row.seconds for row in advise("100mbit", ranks=4).rows}
    between = (seconds["spardl"] + seconds["topk"]) / 2  # topk takes longer than a step
    assert advise("100mbit", ranks=4, step_s=between).method in ("oktopk", "spardl")
    chosen = _advise._chosen
    times = {"dense": 50.0, "topk": 1.9, "oktopk": 1.0, "spardl": 0.95, "gtopk": 3.0}
    assert chosen(times, 10) == "topk" and chosen({**times, "topk": 2.1}, 10) == "oktopk"
    assert chosen({**times, "topk": 2.1, "spardl": 0.8}, 10) == "spardl"
    assert chosen(times, 0.97) == "spardl" and chosen(times, 0.9) == "local"
    assert chosen({**times, "dense": 1.2}, 10) == "dense"
    assert chosen({**times, "dense": 1.6}, 10) == "oktopk"  # topk gains nothing there


@pytest.mark.once
def test_the_table_of_the_guide(repository):
    """Its methods, and its gains but for the time of the selection, which is the machine's."""
    made = list(runpy.run_path(f"{repository}/bench/python/gains")["lines"]())
    with open(f"{repository}/docs/guide/advise.md") as file:
        shown = [line for line in file.read().splitlines() if line in made or " | `" in line]
    assert len(shown) >= 8

    def cells(lines):
        found = [re.findall(r"`(\w+)` ([\d,]+)x", line) for line in lines]
        return [(name, float(gain.replace(",", ""))) for row in found for name, gain in row]

    made, shown = cells(made), cells(shown)
    assert [name for name, _ in made] == [name for name, _ in shown] and len(made) == 24
    for (_, gain), (_, said) in zip(made, shown):
        assert said == pytest.approx(gain, rel=0.35)


def test_the_optimizer_counts():
    parameters = list(MODEL.parameters())
    adam, sgd = torch.optim.AdamW(parameters), torch.optim.SGD(parameters, lr=1, momentum=0.9)
    assert advise("1gbit", optimizer=adam).optimizer.startswith("Adam: give optimizer=")
    assert advise("1gbit", optimizer=sgd).optimizer.startswith("SGD: as it is")
    both = advise("1gbit").optimizer
    assert "SGD" in both and "Adam" in both


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match="'quick'.*\"internet\""):
        advise("quick")
    for nothing in (0, -1):
        with pytest.raises(ValueError, match=f"{nothing}.*\"internet\""):
            advise(nothing)
    with pytest.raises(ValueError, match="ranks = 1"):
        advise("1gbit", ranks=1)
    with pytest.raises(ValueError, match="no parameters"):
        rill.torch.advise(torch.nn.ReLU(), "1gbit")
    with pytest.raises(TypeError, match="model = list: a torch.nn.Module"):
        rill.torch.advise(list(MODEL.parameters()), "1gbit")
    with pytest.raises(TypeError, match="optimizer=str"):
        advise("1gbit", optimizer="adam")
    for name, wrong in ("step_s", -1), ("step_s", "1"), ("density", 2), ("density", "1%"):
        with pytest.raises(ValueError, match=f"{name} = {wrong!r}"):
            advise("1gbit", **{name: wrong})


def test_it_counts_with_the_defaults_of_local_updates():
    import inspect

    defaults = inspect.signature(rill.torch.LocalUpdates).parameters
    assert defaults["every"].default == _advise._EVERY
    assert defaults["keep"].default / defaults["chunk"].default == _advise._SHARE
    assert defaults["value_bits"].default == _advise._BITS
