"""Checkpoints of hook and optimizer, and of fewer ranks than wrote them."""

import pytest
import torch
from test_ddp import batch, flat, network, train, wrapped
from torch import nn

import rill
import rill.torch

pytestmark = pytest.mark.usefixtures("process_group")
OPTIONS = dict(density=0.02, momentum=0.5)


def trained(comm, steps=4):
    model = network()
    state = rill.torch.State("oktopk", module=model, **OPTIONS)
    ddp = wrapped(state, model)
    train(ddp, comm.rank, steps)
    return model, state, ddp


def mass(comm, state):
    """Sum of the residuals of all ranks, by parameter."""
    return {
        name: sum(comm.mpi.allgather(part)) for name, part in sorted(state._residuals().items())
    }


def momenta_of(comm, state):
    return {name: sum(comm.mpi.allgather(part)) for name, part in sorted(state._momenta().items())}


def close(a, b):
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], atol=1e-5) for name in a)


@pytest.mark.parametrize("method", ["oktopk", "gtopk", "topk", "spardl", "s2"])
def test_files_go_on_bit_by_bit(comm, shared_folder, method):
    """In a new DDP, whose first backward pass has other buckets."""
    options = dict(OPTIONS, rules={"*.bias": "dense", "4.*": {"density": 0.1}})
    model = network()
    state = rill.torch.State(method, module=model, **options)
    ddp = wrapped(state, model)
    train(ddp, comm.rank, 3)
    state.save(shared_folder)
    resumed = network()
    resumed.load_state_dict(model.state_dict())
    again = rill.torch.State(method, module=resumed, **options)
    other = wrapped(again, resumed)
    again.load(shared_folder)
    for step in range(3):
        train(ddp, comm.rank, 1, first=10 + step)
        train(other, comm.rank, 1, first=10 + step)
        assert torch.equal(flat(model), flat(resumed)), f"step {step}"
    mine, theirs = state._residuals(), again._residuals()
    assert (
        all(torch.equal(mine[name], theirs[name]) for name in mine) and again.steps == state.steps
    )


def test_files_for_other_rules(comm, shared_folder):
    """Groups that do not fit any more: residuals and momenta move, and nothing is lost."""
    model, state, _ = trained(comm)
    state.save(shared_folder)
    before, moves = mass(comm, state), momenta_of(comm, state)
    resumed = network()
    again = rill.torch.State("gtopk", module=resumed, density=0.05)
    with pytest.raises(rill.RillError, match="oktopk"):
        again.load(shared_folder)
    again = rill.torch.State(
        "oktopk", module=resumed, rules={"0.weight": {"momentum": 0.5}}, **OPTIONS
    )
    again.load(shared_folder)
    assert close(mass(comm, again), before)
    ddp = wrapped(again, resumed)
    ddp(torch.zeros(1, 20)).sum().mul(
        0
    ).backward()  # gradients of zeros: updates and residuals are what was loaded
    received = {name: p.grad.reshape(-1) * comm.size for name, p in resumed.named_parameters()}
    after = mass(comm, again)
    fed = {name: before[name] + 0.5 * moves[name] for name in after}
    assert close({name: after[name] + received[name] for name in after}, fed)
    assert len({group.rule for _, group in again._all_groups()}) == 2


def test_what_was_loaded_is_saved_before_a_step(comm, shared_folder):
    _, state, _ = trained(comm)
    before = mass(comm, state)
    again, third = (rill.torch.State("oktopk", module=network(), **OPTIONS) for _ in range(2))
    again.load_state_dict(state.state_dict())
    again.save(shared_folder)
    third.load(shared_folder)
    assert close(mass(comm, third), before)


ORDERS = [
    "build follow optimizer rill",
    "build optimizer rill follow",
    "rill follow optimizer",
    "rill optimizer follow",
    "follow rill optimizer",
]


@pytest.mark.parametrize("way", ["state_dict", "files", "state_dict of an older version"])
@pytest.mark.parametrize("order", ORDERS)
def test_rate_and_scale_in_any_order(comm, shared_folder, order, way):
    """Residuals count with rate 0.5 and scale 8 when saved. The next step has rate 0.125, as the
    optimizer that is loaded, and scale 16."""

    class Scaler:
        scale = 8.0

        def get_scale(self):
            return self.scale

    def built():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 5))
        state = rill.torch.State("gtopk", module=model, density=0.02)
        return model, state, torch.optim.SGD(model.parameters(), lr=0.5), Scaler()

    model, state, optimizer, scaler = built()
    state.follow(scaler)
    state.follow(optimizer)
    train(wrapped(state, model), comm.rank, 2)
    saved = state.state_dict()
    state.save(shared_folder)
    optimizer.param_groups[0]["lr"] = 0.125

    resumed, again, fresh, other = built()
    fresh.param_groups[0]["lr"] = 64.0
    other.scale = 65536.0
    if way.endswith("version"):
        del saved["rate"], saved["scale"]
    for what in order.split():
        if what == "follow":
            again.follow(fresh)
            again.follow(other)
        elif what == "optimizer":
            fresh.load_state_dict(optimizer.state_dict())
            other.scale = 16.0
        elif what == "rill":
            again.load(shared_folder) if way == "files" else again.load_state_dict(saved)
    before = mass(comm, again)
    again._begin_step(list(resumed.parameters()))
    factor = 1.0 if way.endswith("version") else (0.5 / 0.125) * (16 / 8)
    assert close(mass(comm, again), {name: factor * part for name, part in before.items()})
    assert max(part.abs().max() for part in before.values()) > 1e-4
    again._begin_step(list(resumed.parameters()))  # nothing has changed any more
    assert close(mass(comm, again), {name: factor * part for name, part in before.items()})


def test_state_dict_keeps_the_mass(comm, tmp_path):
    model, state, _ = trained(comm)
    before = mass(comm, state)
    torch.save(state.state_dict(), tmp_path / "state")
    again = rill.torch.State("oktopk", module=network(), **OPTIONS)
    resumed = network()
    again = rill.torch.State("oktopk", module=resumed, **OPTIONS)
    again.load_state_dict(torch.load(tmp_path / "state"))
    assert close(mass(comm, again), before)
    train(wrapped(again, resumed), comm.rank, 3)
    assert not again._kept
    with pytest.raises(ValueError, match="format 9"):
        again.load_state_dict({"format": 9})
    with pytest.raises(ValueError, match="format 'NoneType'"):
        again.load_state_dict(None)
    saved = torch.load(tmp_path / "state")
    name = next(iter(saved["residuals"]))
    wrong = {**saved, "residuals": {name: torch.zeros(3)}}
    with pytest.raises(ValueError, match=f"another model: the residual of {name} has 3 values"):
        again.load_state_dict(wrong)


@pytest.mark.parametrize("way", ["state_dict", "files of it", "another layout"])
def test_momenta_are_kept(comm, shared_folder, way):
    _, state, ddp = trained(comm)
    before = momenta_of(comm, state)
    assert max(part.abs().max() for part in before.values()) > 1e-3
    again = rill.torch.State("oktopk", module=network(), **OPTIONS)
    saved = state.state_dict()
    assert close({name: part.reshape(-1) for name, part in saved["momenta"].items()}, before)
    again.load_state_dict(saved)
    if way == "files of it":
        again.save(shared_folder)
        again = rill.torch.State("oktopk", module=network(), **OPTIONS)
        again.load(shared_folder)
    elif way == "another layout":
        state._collect(0)
        assert not state._all_groups()
        again = state
    assert close(momenta_of(comm, again), before)


def test_what_is_loaded_is_no_gradient(comm):
    """It waits in the residual: the momentum, which would send it again and again, has not seen
    it."""
    _, state, _ = trained(comm)
    saved = state.state_dict()
    del saved["momenta"]  # of an older version
    resumed = network()
    again = rill.torch.State("topk", module=resumed, density=0.2, momentum=0.9)
    ddp = wrapped(again, resumed)
    again.load_state_dict(saved)
    received = {name: 0 for name, _ in resumed.named_parameters()}
    for _ in range(4):
        ddp.zero_grad()
        ddp(torch.zeros(1, 20)).sum().mul(0).backward()
        for name, p in resumed.named_parameters():
            received[name] = received[name] + p.grad.reshape(-1) * comm.size
    after = mass(comm, again)
    total = {name: after[name] + received[name] for name in after}
    assert close(total, {name: part.reshape(-1) for name, part in saved["residuals"].items()})


def test_momenta_have_the_scale_of_gradients(comm):
    class Scaler:
        scale = 8.0

        def get_scale(self):
            return self.scale

    model, scaler = network(), Scaler()
    state = rill.torch.State("oktopk", module=model, **OPTIONS)
    state.follow(scaler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    state.follow(optimizer)
    train(wrapped(state, model), comm.rank, 3)
    before = momenta_of(comm, state)
    scaler.scale, optimizer.param_groups[0]["lr"] = 2.0, 0.125  # the rate is no part of them
    state._begin_step(list(model.parameters()))
    assert close(momenta_of(comm, state), {name: part / 4 for name, part in before.items()})


@pytest.mark.parametrize("way", ["files", "state_dict"])
def test_four_ranks_to_three(comm, shared_folder, way):
    if comm.size != 4:
        pytest.skip("runs on 4 ranks")
    _, state, _ = trained(comm)
    before = mass(comm, state)
    state.save(shared_folder)
    saved = state.state_dict()
    some = comm.mpi.Split(0 if comm.rank < 3 else 1)
    group = torch.distributed.new_group([0, 1, 2])
    if comm.rank < 3:
        with rill.Comm(some) as three:
            resumed = network()
            again = rill.torch.State("oktopk", module=resumed, comm=three, **OPTIONS)
            again.load(shared_folder) if way == "files" else again.load_state_dict(saved)
            assert close(mass(three, again), before)
            train(wrapped(again, resumed, process_group=group), three.rank, 3)
            assert len(set(some.allgather(flat(resumed).numpy().tobytes()))) == 1
    comm.mpi.Barrier()
    some.Free()


def optimizer_of(model, **options):
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    return rill.torch.DistributedOptimizer(
        inner, model.named_parameters(), "gtopk", density=0.05, **options
    )


def step_of(comm, model, optimizer, step):
    x, y = batch(comm.rank, step)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def test_optimizer(comm, shared_folder):
    model = network()
    optimizer = optimizer_of(model)
    for step in range(3):
        step_of(comm, model, optimizer, step)
    optimizer.save(shared_folder)
    saved = optimizer.reducers_state_dict()
    resumed = network()
    resumed.load_state_dict(model.state_dict())
    other = optimizer_of(resumed)
    other.load_state_dict(optimizer.state_dict())
    other.load_reducers_state_dict(saved)
    assert close(
        mass(comm, other), {n: p for n, p in saved["residuals"].items() if n in mass(comm, other)}
    )
    other.load(shared_folder)
    for step in range(3, 6):
        step_of(comm, model, optimizer, step)
        step_of(comm, resumed, other, step)
        assert torch.equal(flat(model), flat(resumed))
