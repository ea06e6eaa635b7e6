import copy

import numpy as np
import pytest
import torch
from torch import nn

import rill
import rill.torch


class Words(nn.Module):
    """An embedding with sparse gradients, a large layer and small ones."""

    def __init__(self, sparse=True):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(500, 16, sparse=sparse)
        self.large = nn.Linear(16, 512)
        self.out = nn.Linear(512, 3)

    def forward(self, words):
        return self.out(torch.relu(self.large(self.embedding(words).mean(1))))


def words(rank, step):
    made = torch.Generator().manual_seed(100 * rank + step)
    x = torch.randint(0, 500, (6, 5), generator=made)
    return x, x.sum(1) % 3


def loss_of(model, rank, step):
    x, y = words(rank, step)
    return nn.functional.cross_entropy(model(x), y)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def wrap(model, algorithm="dense", inner=torch.optim.SGD, **options):
    return rill.torch.DistributedOptimizer(
        inner(model.parameters(), lr=0.1), model.named_parameters(), algorithm, **options
    )


def one_rank(comm, steps):
    """The same training in one process: the mean of all ranks' losses."""
    model = Words(sparse=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        (sum(loss_of(model, rank, step) for rank in range(comm.size)) / comm.size).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("sparse", [True, False])
def test_dense_equals_one_process(comm, sparse):
    model = Words(sparse)
    optimizer = wrap(model)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, comm.rank, step).backward()
        optimizer.step()
        assert model.embedding.weight.grad.is_sparse == sparse
    assert torch.allclose(flat(model), flat(one_rank(comm, 4)), atol=1e-6)
    assert optimizer.steps == 4 and "out.weight" not in optimizer._groups


def test_each_gradient_its_way(comm):
    model = Words()
    optimizer = wrap(model, "gtopk", density=0.01, small=4096)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, comm.rank, step).backward()
        optimizer.step()
    stats = optimizer.stats
    assert set(stats) == {
        "embedding.weight",
        "large.weight",
        "large.bias",
    }  # large.bias: with all small ones
    assert stats["large.weight"].algorithm == "gtopk" and stats["large.bias"].algorithm == "dense"
    rows = model.embedding.weight.grad.coalesce().indices()[0]
    expected = np.unique(
        np.concatenate([words(rank, 2)[0].reshape(-1).numpy() for rank in range(comm.size)])
    )
    assert rows.tolist() == expected.tolist()


def test_residuals_follow_the_rate(comm):
    """As with State: nothing is lost of gradients times their rates."""
    model = Words(sparse=False)
    before = flat(model)
    optimizer = wrap(model, "gtopk", density=0.05)
    optimizer.follow()
    fed = torch.zeros_like(before)
    for step, rate in enumerate([0.1, 0.1, 0.02, 0.05]):
        optimizer.param_groups[0]["lr"] = rate
        twin = copy.deepcopy(model)
        twin.zero_grad()
        loss_of(twin, comm.rank, step).backward()
        fed += rate * torch.cat([p.grad.reshape(-1) for p in twin.parameters()])
        optimizer.zero_grad()
        loss_of(model, comm.rank, step).backward()
        optimizer.step()
    residuals = optimizer.reducers_state_dict()["residuals"]
    kept = torch.cat([residuals[name] for name, _ in model.named_parameters()])
    moved = (before - flat(model)) * comm.size
    assert torch.allclose(moved + 0.05 * kept, sum(comm.mpi.allgather(fed)), atol=1e-5)
    assert kept.abs().max() > 1e-4


def test_planner_chooses(comm):
    model = Words(sparse=False)
    optimizer = wrap(model, "auto", density=0.01)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, comm.rank, step).backward()
        optimizer.step()
    assert all(stats.algorithm for stats in optimizer.stats.values())
    assert len(set(comm.mpi.allgather(flat(model).numpy().tobytes()))) == 1


@pytest.mark.parametrize("sparse", [True, False])
def test_a_rank_without_gradients(comm, sparse):
    model, expected = Words(sparse), Words(sparse=False)
    optimizer = wrap(model)
    if comm.rank == 0:
        loss_of(model, 0, 0).backward()
    optimizer.step()
    (loss_of(expected, 0, 0) / comm.size).backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    assert torch.allclose(flat(model), flat(expected), atol=1e-6)


def test_gradients_of_nobody_stay_none(comm):
    model = Words()
    model.unused = nn.Linear(3, 3)
    model.unused_large = nn.Linear(100, 100)
    optimizer = wrap(model, "gtopk")
    loss_of(model, comm.rank, 0).backward()
    optimizer.step()
    assert model.unused.weight.grad is None and model.unused_large.weight.grad is None
    optimizer.zero_grad(set_to_none=True)
    before = flat(model)
    optimizer.step()
    assert torch.equal(before, flat(model))


@pytest.mark.parametrize("overlap", ["thread", "hook"])
def test_exchanges_start_behind_the_backward_pass(comm, overlap):
    model = Words()
    optimizer = wrap(model, overlap=overlap)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, comm.rank, step).backward()
        # The first step finds out which gradients there are; then all of them start, embedding
        # (sparse) included.
        assert len(optimizer._exchanges) == (3 if step else 0)
        if step:
            with pytest.raises(RuntimeError, match="zero_grad"):
                optimizer.zero_grad()
        optimizer.step()
    assert torch.allclose(flat(model), flat(one_rank(comm, 4)), atol=1e-6)


def test_overlap_does_not_change_results(comm):
    results = []
    for overlap in ("step", "auto"):
        model = Words()
        optimizer = wrap(model, "gtopk", density=0.05, overlap=overlap)
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, comm.rank, step).backward()
            assert overlap == "auto" or not optimizer._exchanges
            optimizer.step()
        results.append(flat(model))
    assert torch.equal(*results)


class Branches(nn.Module):
    """Two large layers whose gradients come in an order that the caller chooses; either may be left
    out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.ModuleList(nn.Linear(80, 80) for _ in range(3))

    def forward(self, x, order):
        for i in order:
            x = torch.tanh(self.layers[i](x))
        return x.pow(2).mean()


@pytest.mark.parametrize("without", [None, "rank 0", "all"])
def test_orders_and_gradients_that_differ(comm, without):
    """Gradients become ready in another order on each rank, and from the third step on one layer
    has none on rank 0, or on no rank."""

    def order(rank, step):
        order = [(rank + i) % 3 for i in range(3)]
        if step >= 2 and (without == "all" or (without == "rank 0" and rank == 0)):
            order.remove(1)
        return order

    def batch(rank, step):
        return torch.randn(4, 80, generator=torch.Generator().manual_seed(10 * rank + step))

    model, alone = Branches(), Branches()
    optimizer, plain = wrap(model), torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad(set_to_none=True)
        model(batch(comm.rank, step), order(comm.rank, step)).backward()
        optimizer.step()
        plain.zero_grad(set_to_none=True)
        (
            sum(alone(batch(r, step), order(r, step)) for r in range(comm.size)) / comm.size
        ).backward()
        plain.step()
        assert torch.allclose(flat(model), flat(alone), atol=1e-6), step
        if without == "all" and step >= 2:
            assert model.layers[1].weight.grad is None


def test_a_layout_that_changes(comm):
    """An embedding whose gradients are sparse in one step and dense in the next, on rank 0
    alone."""
    weight = nn.Parameter(torch.zeros(600, 10))
    optimizer = rill.torch.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), algorithm="dense"
    )
    expected = torch.zeros(600, 10)
    for step in range(5):
        optimizer.zero_grad(set_to_none=True)
        rows = torch.tensor([step, comm.rank + 10])
        sparse = step % 2 == 0 or comm.rank != 0
        nn.functional.embedding(rows, weight, sparse=sparse).sum().backward()
        optimizer.step()
        for rank in range(comm.size):
            expected[[step, rank + 10]] -= 1 / comm.size
        assert torch.allclose(weight.detach(), expected, atol=1e-6), step


def test_several_backward_passes(comm):
    model, once = Words(), Words()
    optimizer, plain = wrap(model, backward_passes=2), wrap(once, overlap="step")
    for step in range(3):
        for wrapped, m in ((optimizer, model), (plain, once)):
            wrapped.zero_grad()
            loss_of(m, comm.rank, 2 * step).backward()
            assert not wrapped._exchanges
            loss_of(m, comm.rank, 2 * step + 1).backward()
            wrapped.step()
    assert torch.allclose(flat(model), flat(once), atol=1e-6)
    loss_of(model, comm.rank, 0).backward()
    loss_of(model, comm.rank, 1).backward()
    with pytest.raises(RuntimeError, match="backward_passes=3"):
        loss_of(model, comm.rank, 2).backward()
    optimizer.step()


def test_non_contiguous_gradients(comm):
    weight = nn.Parameter(torch.zeros(80, 90))
    optimizer = rill.torch.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), algorithm="dense"
    )
    weight.grad = torch.arange(7200.0).reshape(90, 80).t() * (comm.rank + 1)
    assert not weight.grad.is_contiguous()
    optimizer.step()
    expected = torch.arange(7200.0).reshape(90, 80).t() * (comm.size + 1) / 2
    assert torch.allclose(-weight.detach(), expected)


def test_adam_schedulers_and_clipping(comm):
    model = Words(sparse=False)
    optimizer = wrap(model, "oktopk", torch.optim.Adam, density=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, comm.rank, step).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
    assert optimizer.steps == 3 and optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 8)
    assert len(set(comm.mpi.allgather(flat(model).numpy().tobytes()))) == 1


def test_broadcast_parameters(comm):
    torch.manual_seed(comm.rank)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    rill.torch.broadcast_parameters(model)
    assert len(set(comm.mpi.allgather(flat(model).numpy().tobytes()))) == 1


def test_names_must_cover_all(comm):
    model = Words()
    with pytest.raises(ValueError, match="lacks"):
        rill.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.out.named_parameters()
        )
