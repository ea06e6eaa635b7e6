"""The hook of DistributedDataParallel, on models of several buckets."""

import copy
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rill
import rill.torch

pytestmark = pytest.mark.usefixtures("process_group")
WIDTH = 400


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(20, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(),
        nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 5),
    )  # fmt: skip


def batch(rank, step):
    made = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(8, 20, generator=made)
    return x, (x[:, :5].argmax(1))


def wrapped(state, model=None, **options):
    model = network() if model is None else model
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.5, **options)
    if state is not None:
        ddp.register_comm_hook(state, rill.torch.hook)
    return ddp


def train(ddp, rank, steps, first=0, lr=0.1, same_batch=False):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=lr)
    losses = []
    for step in range(first, first + steps):
        x, y = batch(rank, 0 if same_batch else step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def same_on_all_ranks(comm, model):
    return len(set(comm.mpi.allgather(flat(model).numpy().tobytes()))) == 1


@pytest.mark.parametrize("overlap", ["thread", "hook"])
def test_dense_equals_plain_ddp(comm, overlap):
    plain, ours = wrapped(None), wrapped(rill.torch.State("dense", overlap=overlap))
    train(plain, comm.rank, 4)
    train(ours, comm.rank, 4)
    assert torch.allclose(flat(plain), flat(ours), atol=1e-6)


@pytest.mark.parametrize("spare", [True, False])
def test_a_thread_where_there_are_cores_to_spare(comm, monkeypatch, spare):
    cores = comm.size * (torch.get_num_threads() + 1) - (not spare)
    monkeypatch.setattr(rill.torch._progress, "_cores", lambda: set(range(cores)))
    state = rill.torch.State("dense")
    train(wrapped(state), comm.rank, 2)
    assert state._progress.threaded == (spare and comm.size > 1)


@pytest.mark.parametrize("overlap", ["thread", "hook"])
@pytest.mark.parametrize("method", ["oktopk", "topk+qsgd4"])
def test_sparse_methods_train(comm, method, overlap):
    state = rill.torch.State(method, density=0.02, overlap=overlap)
    ddp = wrapped(state)
    losses = train(ddp, comm.rank, 12, lr=0.3, same_batch=True)
    assert same_on_all_ranks(comm, ddp)
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])
    assert len(state._buckets) > 1 and state.steps == 12
    assert all(s.selected_k < 0.1 * 2 * WIDTH * WIDTH for s in state.stats)
    if method == "oktopk":
        assert {s.algorithm for s in state.stats} == {"oktopk"}


def test_nothing_is_lost(comm):
    """SGD without momentum: weights and residuals add up to all gradients, whichever buckets they
    were in."""
    model = network()
    before = flat(model)
    state = rill.torch.State("gtopk", density=0.05, module=model)
    ddp = wrapped(state, model)
    fed = torch.zeros_like(before, dtype=torch.float64)
    for step in range(4):
        x, y = batch(comm.rank, step)
        twin = copy.deepcopy(model)
        twin.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
        fed += torch.cat([p.grad.reshape(-1) for p in twin.parameters()])
        train(ddp, comm.rank, 1, first=step, lr=1.0)
    residuals = state.state_dict()["residuals"]
    kept = torch.cat([residuals[name] for name, _ in model.named_parameters()]).double()
    total = sum(comm.mpi.allgather(fed))
    moved = (before - flat(model)).double() * comm.size
    assert torch.allclose(moved + kept, total, atol=1e-4)
    assert kept.abs().max() > 1e-3


def test_a_layout_that_changes_keeps_residuals(comm):
    """dense_steps 0: DDP lays out its buckets anew while reducers have residuals."""
    model = network()
    state = rill.torch.State("gtopk", density=0.01, module=model, dense_steps=0)
    ddp = wrapped(state, model)
    train(ddp, comm.rank, 1)
    first = {name: part.clone() for name, part in state.state_dict()["residuals"].items()}
    layout = {i: bucket.key for i, bucket in state._buckets.items()}
    collected = []
    original = state._collect
    state._collect = lambda index: (original(index), collected.append(dict(state._kept)))
    train(ddp, comm.rank, 1, first=1)
    assert {i: bucket.key for i, bucket in state._buckets.items()} != layout
    assert set(collected[0]) == set(first) and not state._kept
    for name, part in collected[0].items():
        assert torch.allclose(sum(comm.mpi.allgather(part)), first[name], atol=1e-5)


def test_rules(comm):
    model = network()
    rules = {"*.bias": "dense", "2.*": {"density": 0.001}}
    state = rill.torch.State("gtopk", density=0.05, rules=rules, module=model)
    ddp = wrapped(state, model)
    train(ddp, comm.rank, 3)
    groups = [group for _, group in state._all_groups()]
    by_name = {member.name: group for group in groups for member in group.members}
    assert set(by_name) == {name for name, _ in model.named_parameters()}
    assert by_name["0.bias"].reducer.stats.algorithm == "dense"
    narrow, wide = by_name["2.weight"].reducer, by_name["4.weight"].reducer
    assert narrow.stats.algorithm == wide.stats.algorithm == "gtopk"
    assert narrow.stats.selected_k == round(narrow.dim * 0.001)
    assert same_on_all_ranks(comm, ddp)
    with pytest.raises(ValueError, match="module=model"):
        rill.torch.State(rules=rules)


def test_small_parameters_are_dense(comm):
    model = network()
    state = rill.torch.State(
        "gtopk", density=0.05, small=WIDTH + 1, rules={"2.bias": {"density": 0.5}}, module=model
    )
    ddp = wrapped(state, model)
    train(ddp, comm.rank, 3)
    by_name = {
        member.name: group.reducer for _, group in state._all_groups() for member in group.members
    }
    dense = {name for name, reducer in by_name.items() if reducer.stats.algorithm == "dense"}
    assert dense == {"0.bias", "4.bias", "6.bias"}  # 2.bias is larger, and has a rule
    assert not any(by_name[name].residual.any() for name in dense)
    assert same_on_all_ranks(comm, ddp)


@pytest.mark.parametrize("follows", [True, False])
def test_residuals_follow_the_rate(comm, follows):
    """What waits counts with the rate that it was computed at: weights and it add up to all
    gradients times their rates."""
    model = network()
    before = flat(model)
    state = rill.torch.State("gtopk", density=0.05, module=model)
    ddp = wrapped(state, model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    if follows:
        state.follow(optimizer)
    fed = torch.zeros_like(before, dtype=torch.float64)
    for step, rate in enumerate([1.0, 1.0, 0.5, 0.0, 0.125, 0.2]):  # at 0 everything waits
        optimizer.param_groups[0]["lr"] = rate
        x, y = batch(comm.rank, step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        twin = copy.deepcopy(model)
        twin.zero_grad()
        nn.functional.cross_entropy(twin(x), y).backward()
        if rate:
            optimizer.step()
            fed += rate * torch.cat([p.grad.reshape(-1) for p in twin.parameters()])
        else:  # what was sent is not applied
            fed += (0.5 * torch.cat([p.grad.reshape(-1) for p in twin.parameters()])).double()
            fed -= 0.5 * torch.cat([p.grad.reshape(-1) for p in model.parameters()]).double()
    residuals = state.state_dict()["residuals"]
    kept = torch.cat([residuals[name] for name, _ in model.named_parameters()]).double()
    moved = (before - flat(model)).double() * comm.size
    close = torch.allclose(moved + 0.2 * kept, sum(comm.mpi.allgather(fed)), atol=1e-4)
    assert close == follows and kept.abs().max() > 1e-3


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.out = nn.Linear(20, 50), nn.Linear(20, 50), nn.Linear(50, 5)

    def forward(self, x, left):
        return self.out((self.left if left else self.right)(x))


@pytest.mark.parametrize("method", ["dense", "gtopk"])
def test_a_parameter_unused_on_one_rank(comm, method):
    torch.manual_seed(1)
    model = Branches()
    plain = DistributedDataParallel(copy.deepcopy(model), find_unused_parameters=True)
    ours = wrapped(rill.torch.State(method, density=0.3), model, find_unused_parameters=True)
    for ddp in (plain, ours):
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for step in range(3):
            x, y = batch(comm.rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(ddp(x, left=comm.rank == 0), y).backward()
            optimizer.step()
    assert same_on_all_ranks(comm, ours)
    if method == "dense":
        assert torch.allclose(flat(plain), flat(ours), atol=1e-6)


def test_double(comm):
    ddp = wrapped(rill.torch.State("gtopk", density=0.1), nn.Linear(20, 5).double())
    for step in range(3):
        ddp(batch(comm.rank, step)[0].double()).pow(2).mean().backward()
    assert len(set(comm.mpi.allgather(ddp.module.weight.grad.numpy().tobytes()))) == 1


def test_wrong_dtype(comm):
    """A bucket of complex numbers; gloo refuses them as well, so DDP itself can't be asked."""
    values = torch.zeros(4, dtype=torch.complex64)
    bucket = SimpleNamespace(
        buffer=lambda: values,
        index=lambda: 0,
        is_last=lambda: True,
        parameters=lambda: [nn.Parameter(values)],
    )
    with pytest.raises(TypeError, match="complex64 is not supported"):
        rill.torch.hook(rill.torch.State("gtopk"), bucket)


def test_buckets_that_change_their_memory_or_their_parameters(comm):
    """Residuals stay with the parameters, also where the new bucket has the same memory."""
    model = nn.ParameterDict(
        {"a": nn.Parameter(torch.zeros(300)), "b": nn.Parameter(torch.zeros(300))}
    )
    state = rill.torch.State("gtopk", density=0.1, dense_steps=0, module=model)

    def step(memory, names, gradient):
        memory.copy_(gradient)
        parameters = [model[name] for name in names]
        bucket = SimpleNamespace(
            buffer=lambda: memory,
            index=lambda: 0,
            is_last=lambda: True,
            parameters=lambda: parameters,
        )
        return dict(zip(names, rill.torch.hook(state, bucket).wait().clone().split(300)))

    here, there = torch.empty(600), torch.empty(600)
    step(
        here,
        "ab",
        torch.randn(600, generator=torch.Generator().manual_seed(comm.rank)).mul(64).round(),
    )
    for memory, names in ((here, "ba"), (there, "ba"), (there, "ab"), (there, "ab")):
        before = state.state_dict()["residuals"]
        update = step(memory, names, torch.zeros(600))
        after = state.state_dict()["residuals"]
        assert update["a"].any() or update["b"].any()
        for name in names:
            assert torch.allclose(before[name], after[name] + comm.size * update[name])


def test_the_first_buckets_go_when_ddp_makes_new_ones(comm):
    """Else a model's gradients would lie in memory twice for a step."""
    state, seen = rill.torch.State("topk", density=0.1, comm=comm), []

    def spy(state, bucket):
        seen.append(weakref.ref(bucket.buffer()))
        return rill.torch.hook(state, bucket)

    spy.__annotations__ = rill.torch.hook.__annotations__
    ddp = DistributedDataParallel(network(), gradient_as_bucket_view=True)
    ddp.register_comm_hook(state, spy)
    for step in range(3):
        ddp.zero_grad(set_to_none=True)
        loss = ddp(batch(comm.rank, step)[0]).sum()
        gc.collect()
        alive = [ref() is not None for ref in seen]
        assert step != 1 or alive == [False] * len(seen)
        loss.backward()
    state.wait()


def test_gradient_accumulation_without_sync(comm):
    state = rill.torch.State("gtopk", density=0.1)
    ddp = wrapped(state)
    for step in range(4):
        x, y = batch(comm.rank, step)
        with ddp.no_sync():
            nn.functional.cross_entropy(ddp(x), y).backward()
        nn.functional.cross_entropy(ddp(x), y).backward()
        ddp.zero_grad()
    assert state.steps == 4


class Bags(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(6)
        self.words = nn.EmbeddingBag(300, 8, sparse=sparse)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.words(x))


@pytest.mark.parametrize("overlap", ["thread", "hook"])
def test_sparse_gradients(comm, overlap):
    """A bucket of DDP's that is one sparse gradient: the exact mean, in the rows that any rank
    has."""
    models = Bags(True), Bags(False)
    states = [rill.torch.State("dense", overlap=overlap, module=model) for model in models]
    ddps = [wrapped(state, model) for state, model in zip(states, models)]
    for step in range(4):
        bags = [
            torch.randint(0, 300, (4, 3), generator=torch.Generator().manual_seed(10 * step + rank))
            for rank in range(comm.size)
        ]
        for ddp in ddps:
            ddp.zero_grad(set_to_none=True)
            ddp(bags[comm.rank]).pow(2).sum().backward()
        gradient = models[0].words.weight.grad
        assert gradient.is_sparse and torch.allclose(
            gradient.to_dense(), models[1].words.weight.grad, atol=1e-6
        )
        assert gradient.coalesce().indices()[0].tolist() == sorted(
            {int(row) for bag in bags for row in bag.reshape(-1)}
        )
        assert torch.allclose(models[0].out.weight.grad, models[1].out.weight.grad, atol=1e-6)
    assert len(states[0].stats) == 2
    assert "words.weight" not in states[0].state_dict()["residuals"]


def test_sparse_gradients_with_a_sparse_method(comm, shared_folder):
    model = Bags(True)
    state = rill.torch.State("gtopk", density=0.2, module=model)
    ddp = wrapped(state, model)
    x = torch.randint(0, 300, (4, 3), generator=torch.Generator().manual_seed(comm.rank))
    for _ in range(3):
        ddp(x).pow(2).sum().backward()
    state.save(shared_folder)
    state.load(shared_folder)
    ddp.zero_grad(set_to_none=True)
    ddp(x).pow(2).sum().backward()
    assert len(set(comm.mpi.allgather(model.words.weight.grad.to_dense().numpy().tobytes()))) == 1
    assert {s.algorithm for s in state.stats} >= {"gtopk"} and len(state.stats) == 2


def test_bad_arguments(comm):
    with pytest.raises(ValueError, match="overlap 'never'"):
        rill.torch.State(overlap="never")
    with pytest.raises(ValueError, match="needs the names"):
        rill.torch.State("gtopk").state_dict()
