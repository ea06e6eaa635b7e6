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
    return {name: sum(comm.mpi.allgather(part)) for name, part in sorted(state._residuals().items())}


def close(a, b):
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], atol=1e-5) for name in a)


def test_files_go_on_bit_by_bit(comm, shared_folder):
    model, state, ddp = trained(comm)
    state.save(shared_folder)
    resumed = network()
    resumed.load_state_dict(model.state_dict())
    again = rill.torch.State("oktopk", module=resumed, **OPTIONS)
    again.load(shared_folder)
    other = wrapped(again, resumed)
    # DDP's first backward pass is summed densely: both do the same one.
    state._dense_steps = state.steps + 1
    for step in range(3):
        train(ddp, comm.rank, 1, first=10 + step)
        train(other, comm.rank, 1, first=10 + step)
        assert torch.equal(flat(model), flat(resumed)), f"step {step}"
    assert close(mass(comm, state), mass(comm, again))


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
    return rill.torch.DistributedOptimizer(inner, model.named_parameters(), "gtopk", density=0.05, **options)


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
    assert close(mass(comm, other), {n: p for n, p in saved["residuals"].items() if n in mass(comm, other)})
    other.load(shared_folder)
    for step in range(3, 6):
        step_of(comm, model, optimizer, step)
        step_of(comm, resumed, other, step)
        assert torch.equal(flat(model), flat(resumed))
