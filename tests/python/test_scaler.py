"""Gradients that are not finite, and GradScaler: a step with an overflow is skipped on all ranks,
and nothing else happens to later ones."""

import copy

import pytest
import torch
from test_ddp import batch, flat, same_on_all_ranks, wrapped
from torch import nn

import rill
import rill.torch

pytestmark = pytest.mark.usefixtures("process_group")


class Scaler:
    """torch.cuda.amp.GradScaler without CUDA: half the scale after an overflow, and twice after
    some steps without."""

    def __init__(self, scale=1024.0, interval=6):
        self._scale, self._interval, self._good = scale, interval, 0
        self.skipped = 0

    def get_scale(self):
        return self._scale

    def scale(self, loss):
        return loss * self._scale

    def unscale_(self, optimizer):
        gradients = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        for gradient in gradients:
            gradient.mul_(1 / self._scale)
        self._overflow = not all(
            torch.isfinite(g._values() if g.is_sparse else g).all() for g in gradients
        )

    def step(self, optimizer):
        if not self._overflow:
            optimizer.step()

    def update(self):
        self.skipped += self._overflow
        self._good = 0 if self._overflow else self._good + 1
        if self._overflow:
            self._scale /= 2
        elif self._good == self._interval:
            self._scale, self._good = self._scale * 2, 0


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 5)
    )


def spoil(layer, step, rank, value):
    """The gradient of a layer is not finite in steps 4 and 9, on one rank. Its bucket is not that
    of the first layer."""
    layer.weight.register_hook(
        lambda gradient: gradient * value if rank and step[0] in (4, 9) else gradient
    )


def train(comm, method, steps=16, value=float("inf"), follow=True, **options):
    model = network()
    state = None if method == "plain" else rill.torch.State(method, module=model, **options)
    ddp = wrapped(state, model)
    optimizer, scaler, step = torch.optim.SGD(model.parameters(), lr=0.1), Scaler(), [0]
    spoil(model[4], step, comm.rank == comm.size - 1, value)
    if state is not None and follow:
        state.follow(scaler)
    bad = []
    for step[0] in range(steps):
        x, y = batch(comm.rank, step[0] % 4)
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(ddp(x), y)).backward()
        if not all(torch.isfinite(p.grad).all() for p in model.parameters()):
            bad.append(step[0])
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert bad == [4, 9] and scaler.skipped == 2
    assert same_on_all_ranks(comm, model) and torch.isfinite(flat(model)).all()
    with torch.no_grad():
        losses = [
            nn.functional.cross_entropy(model(x), y).item()
            for x, y in (batch(comm.rank, i) for i in range(4))
        ]
    return model, state, sum(comm.mpi.allgather(sum(losses))) / 4 / comm.size


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_dense_skips_as_plain_ddp(comm, value):
    plain, _, _ = train(comm, "plain", value=value)
    ours, state, _ = train(comm, "dense", value=value, follow=False)
    assert torch.allclose(flat(plain), flat(ours), atol=1e-6)
    assert {s.voided_total for s in state.stats} <= {0, 1, 2}


@pytest.mark.parametrize("method", ["topk", "oktopk", "topk+qsgd4"])
def test_training_ends_where_plain_ddp_ends(comm, method):
    _, _, plain = train(comm, "plain", steps=60)
    _, _, ours = train(comm, method, steps=60, density=0.1)
    assert abs(ours - plain) < 0.05, (ours, plain)


@pytest.mark.parametrize("method", ["topk", "gtopk", "oktopk", "spardl", "s2", "topk+qsgd4"])
@pytest.mark.parametrize("view", [False, True])
def test_other_buckets_take_their_updates_back(comm, method, view):
    """Nothing is lost but the gradients of buckets that were void, in that step. Gradients have the
    scale in them; residuals follow it."""
    model = network()
    state = rill.torch.State(method, density=0.05, module=model, rules={"4.*": {"density": 0.1}})
    ddp = wrapped(state, model, gradient_as_bucket_view=view)
    scaler, step = Scaler(64.0, interval=3), [0]
    state.follow(scaler)
    spoil(model[4], step, comm.rank == comm.size - 1, float("inf"))
    fed = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    received = copy.deepcopy(fed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for step[0] in range(12):
        x, y = batch(comm.rank, step[0])
        twin = network()
        nn.functional.cross_entropy(twin(x), y).backward()
        ddp.zero_grad()
        scaler.scale(nn.functional.cross_entropy(ddp(x), y)).backward()
        scaler.unscale_(optimizer)
        void = step[0] in (4, 9)
        by_name = {
            m.name: group.reducer.stats for _, group in state._all_groups() for m in group.members
        }
        for name, p in model.named_parameters():
            assert bool(torch.isfinite(p.grad).all()) != void and (
                not void or torch.isnan(p.grad).all()
            ), (step, name)
            if not void:
                received[name] += p.grad
            if not (void and by_name[name].voided):
                fed[name] += dict(twin.named_parameters())[name].grad
        if void:
            assert by_name["4.weight"].voided and not by_name["0.weight"].voided
        scaler.update()
    residuals, waited = state.state_dict(), 0.0
    for name, part in residuals["residuals"].items():
        waiting = part.view(fed[name].shape) / residuals["scale"]
        waited = max(waited, waiting.abs().max().item())
        assert torch.allclose(
            comm.size * received[name] + waiting, sum(comm.mpi.allgather(fed[name])), atol=1e-5
        ), name
    assert waited > 1e-3


@pytest.mark.parametrize("overlap", ["auto", "step"])
def test_optimizer(comm, overlap):
    """DistributedOptimizer: one reducer for each large parameter."""
    model = network()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = rill.torch.DistributedOptimizer(
        inner, model.named_parameters(), "gtopk", density=0.1, overlap=overlap, small=1000
    )
    scaler, step = Scaler(), [0]
    optimizer.follow(scaler)
    spoil(model[4], step, comm.rank == comm.size - 1, float("inf"))
    for step[0] in range(12):
        x, y = batch(comm.rank, step[0] % 4)
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        before = flat(model)
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, flat(model)) == (step[0] in (4, 9))
        if step[0] in (4, 9):
            assert all(torch.isnan(p.grad).all() for p in model.parameters())
    assert (
        scaler.skipped == 2 and same_on_all_ranks(comm, model) and torch.isfinite(flat(model)).all()
    )
    assert all(
        torch.isfinite(part).all() for part in optimizer.reducers_state_dict()["residuals"].values()
    )


@pytest.mark.parametrize("nonfinite", ["zero", "pass"])
def test_other_ways(comm, nonfinite):
    """ "zero": the value does not count, and the step does. "pass": it is there."""
    model = nn.Linear(20, 5)
    state = rill.torch.State("dense", nonfinite=nonfinite, module=model)
    ddp = wrapped(state, model)
    for _ in range(2):
        ddp.zero_grad()
        loss = ddp(torch.ones(1, 20)).sum()
        (loss * (float("nan") if comm.rank == 0 else 1.0)).backward()
    expected = (comm.size - 1) / comm.size if nonfinite == "zero" else float("nan")
    assert torch.allclose(model.weight.grad, torch.full((5, 20), expected), equal_nan=True)


def test_follows_what_has_a_scale_or_a_rate(comm):
    state = rill.torch.State("gtopk")
    with pytest.raises(TypeError, match="can't follow a int"):
        state.follow(3)


def test_sparse_gradients(comm):
    """An overflow in a sparse gradient is one of the step, too."""
    from test_ddp import Bags

    model = Bags(True)
    state = rill.torch.State("gtopk", density=0.2, module=model)
    ddp = wrapped(state, model)
    for step in range(4):
        x = torch.randint(
            0, 300, (4, 3), generator=torch.Generator().manual_seed(10 * step + comm.rank)
        )
        ddp.zero_grad(set_to_none=True)
        before = state.state_dict()["residuals"]
        loss = ddp(x).pow(2).sum()
        if step == 2:
            handle = model.words.weight.register_hook(
                lambda g: g * float("inf") if comm.rank == 0 else g
            )
        loss.backward()
        if step == 2:
            handle.remove()
            assert (
                torch.isnan(model.words.weight.grad._values()).all()
                and torch.isnan(model.out.weight.grad).all()
            )
            after = state.state_dict()["residuals"]
            assert (
                all(torch.isfinite(part).all() for part in after.values())
                and before.keys() == after.keys()
            )
        else:
            assert (
                torch.isfinite(model.words.weight.grad._values()).all()
                and torch.isfinite(model.out.weight.grad).all()
            )
