"""Options are checked when State or DistributedOptimizer is made, on all ranks alike."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rill
import rill.torch


def model():
    return nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20))


WRONG = [
    (("okt0pk",), {}, ValueError, "did you mean 'oktopk'.*gtopk"),
    (("topk+qsgd3",), {}, ValueError, "qsgd3"),
    (("oktopk",), dict(densty=0.1), TypeError, "did you mean 'density'.*momentum"),
    (("oktopk",), dict(modul=None), TypeError, "did you mean 'module'"),
    (("oktopk",), dict(warmup=3), TypeError, "warmup_steps"),
    (("oktopk",), dict(density=5), ValueError, r"0.01 for 1 %"),
    (("oktopk",), dict(density=0), ValueError, r"\(0, 1\]"),
    (("oktopk",), dict(momentum="much"), TypeError, "momentum"),
    (("oktopk",), dict(value_bits=3), Exception, "3"),
    (("oktopk",), dict(select="sometimes"), Exception, "sometimes"),
    (("oktopk",), dict(overlap="never"), ValueError, "overlap 'never'"),
    (("oktopk",), dict(small=-1), ValueError, "small = -1"),
    (("oktopk",), dict(small="few"), ValueError, "small = 'few'"),
    (("oktopk",), dict(rules={"0.*": "denss"}, module=model()), ValueError, "did you mean 'dense'"),
    (
        ("oktopk",),
        dict(rules={"0.*": {"dens": 1}}, module=model()),
        TypeError,
        "did you mean 'density'",
    ),
    (("oktopk",), dict(rules={"0.*": "dense"}), ValueError, "module=model"),
]


@pytest.mark.parametrize("given, options, kind, text", WRONG)
def test_what_is_wrong(comm, given, options, kind, text):
    with pytest.raises(kind, match=text):
        rill.torch.State(*given, **options)


@pytest.mark.parametrize("given, options, kind, text", [WRONG[0], WRONG[2], WRONG[5]])
def test_what_is_wrong_on_one_rank(comm, given, options, kind, text):
    """The others learn of it, and go on."""
    if comm.size == 1:
        pytest.skip("needs several ranks")
    last = comm.rank == comm.size - 1
    with pytest.raises(
        kind if last else ValueError, match=text if last else f"rank {comm.size - 1} has failed"
    ):
        rill.torch.State(*(given if last else ("oktopk",)), **(options if last else {}))
    rill.torch.State("oktopk")


@pytest.mark.parametrize(
    "make", [lambda **o: rill.torch.State(**o), lambda **o: wrap(model(), torch.optim.SGD, **o)]
)
@pytest.mark.parametrize(
    "differs", [dict(density=0.01), dict(algorithm="gtopk"), dict(small=7), dict(momentum=0.5)]
)
def test_what_differs(comm, make, differs):
    if comm.size == 1:
        pytest.skip("needs several ranks")
    options = {"algorithm": "oktopk", "density": 0.1}
    with pytest.raises(ValueError, match=f"ranks differ: {next(iter(differs))} is"):
        make(**{**options, **(differs if comm.rank == comm.size - 1 else {})})


def test_what_is_right(comm):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rill.torch.State("oktopk", density=1)
        rill.torch.State()
        rill.torch.State(
            "topk+qsgd4", k=100, momentum=0, warmup=[0.5, 0.1], warmup_steps=3, nonfinite="zero"
        )
        rill.torch.State(
            "oktopk", density=0.01, rules=[(lambda name, p: p.dim() == 1, "dense")], module=model()
        )


def test_rules_for_nothing(comm):
    rules = {"0.*": "dense", "0.bias": {"density": 0.5}, "nothing.*": "dense"}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        rill.torch.State("oktopk", rules=rules, module=model())
    texts = [str(w.message) for w in seen]
    assert len(texts) == (2 if comm.rank == 0 else 0)
    if comm.rank == 0:
        assert "'0.bias'" in texts[0] and "'nothing.*'" in texts[1] and "1.weight" in texts[1]


def test_the_wrapper_as_module(comm, process_group):
    inner = nn.Module()
    inner.module = nn.Linear(20, 20)  # whose own name is DDP's prefix
    inner.other = nn.Linear(20, 20)
    inner.forward = lambda x: inner.other(inner.module(x))
    ddp = DistributedDataParallel(inner)
    state = rill.torch.State("gtopk", density=0.1, module=ddp, rules={"module.weight": "dense"})
    ddp.register_comm_hook(state, rill.torch.hook)
    for _ in range(2):
        ddp(torch.ones(1, 20)).sum().backward()
    assert set(state.state_dict()["residuals"]) == {
        "module.weight",
        "module.bias",
        "other.weight",
        "other.bias",
    }


def wrap(m, kind, **options):
    return rill.torch.DistributedOptimizer(
        kind(m.parameters(), lr=0.1), m.named_parameters(), **options
    )


def texts_of(make):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        make()
    return [str(w.message) for w in seen if "betas=(0, 0.999)" in str(w.message)]


@pytest.mark.parametrize("kind, options, warns", [
    (torch.optim.Adam, {}, True),
    (torch.optim.AdamW, {}, True),
    (torch.optim.SGD, {}, False),
    (torch.optim.Adam, dict(momentum=0.9), False),
    (torch.optim.Adam, dict(algorithm="dense"), False),
    (lambda p, lr: torch.optim.Adam(p, lr=lr, betas=(0.0, 0.999)), {}, False),
])  # fmt: skip
def test_adam(comm, process_group, kind, options, warns):
    """Its own momentum does not go with sparse exchanges: one warning, that says what to write."""
    options = {"algorithm": "oktopk", "density": 0.1, **options}
    expected = 1 if warns and comm.rank == 0 else 0

    def train(follow):
        m = model()
        ddp = DistributedDataParallel(m)
        optimizer = kind(ddp.parameters(), lr=0.1)
        state = rill.torch.State(**options)
        ddp.register_comm_hook(state, rill.torch.hook)
        if follow:
            state.follow(optimizer)
        for _ in range(3):
            ddp(torch.ones(1, 20)).sum().backward()
            optimizer.step()

    for follow in (False, True):
        texts = texts_of(lambda: train(follow))
        assert len(texts) == expected and all(
            "State(..., momentum=0.9, warmup_steps=100, small=16384)" in t for t in texts
        )
    assert len(texts_of(lambda: wrap(model(), kind, **options))) == expected


def test_what_is_no_optimizer(comm):
    for wrong in (None, 3, torch.optim.SGD, list(model().parameters())):
        with pytest.raises(TypeError, match="an optimizer"):
            rill.torch.DistributedOptimizer(wrong, "topk", density=0.01, comm=comm)


@pytest.mark.parametrize(
    "optimizer, kind, text",
    [
        (torch.optim.AdamW, TypeError, "optimizer=AdamW: an optimizer of the module's"),
        ("adam", TypeError, "optimizer=str"),
        (torch.optim.AdamW(model().parameters()), ValueError, "none of the module's parameters"),
    ],
)
def test_what_is_no_optimizer_of_the_module(process_group, comm, optimizer, kind, text):
    ddp = DistributedDataParallel(model())
    with pytest.raises(kind, match=text):
        rill.torch.attach(ddp, "topk", optimizer=optimizer)
    rill.torch.attach(ddp, "topk", optimizer=torch.optim.SGD(ddp.parameters(), 0.1))


def test_copies_of_a_module_are_not_attached(process_group, comm):
    """As the mean of the weights (EMA) needs them, and torch.save of a whole module."""
    ddp = DistributedDataParallel(model())
    state = rill.torch.attach(ddp, "topk", small=0)
    for other in (copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp))):
        other(torch.ones(2, 20)).sum().backward()
        with pytest.raises(ValueError, match="not attached"):
            rill.torch.detach(other)
        rill.torch.attach(other, "topk", small=0)
        other(torch.ones(2, 20)).sum().backward()
    assert state.steps == 0 and rill.torch.detach(ddp) is state
