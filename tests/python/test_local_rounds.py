"""rill.torch.LocalUpdates: parts behind training, newcomers, checkpoints by PyTorch, and modules
that it can't take. Ranks are threads of this process, but where it says otherwise."""

import numpy as np
import pytest
import torch
from test_local_updates import Net, alone, flat, made, run, train  # noqa: F401
from torch import nn

import rill
import rill.torch

OLD = torch.__version__.startswith("1.")


@pytest.mark.parametrize("keep", [4, None])
@pytest.mark.parametrize("parts,delay", [(2, 1), (2, 2), (3, 1)])
def test_parts_behind_training(alone, parts, delay, keep):  # noqa: F811
    """Each part has its round every 6 steps, which ends after so many. Nothing is lost: what all
    ranks have trained is in the common weights, in errors, or in their own weights still."""

    def work(comm, rank):
        options = {"every": 6, "parts": parts, "delay": delay, "keep": keep}
        model, local = made(comm, rank, decay=1.0, average="all", **options)
        begin = [part.common.clone() for part in local._parts]
        trained = [torch.zeros_like(one, dtype=torch.float64) for one in begin]
        whole = local.step

        def step():
            for part, total, last in zip(local._parts, trained, weights):
                total += (part.layout.read(part.layout.parameters) - last).double()
            done = whole()
            weights[:] = [part.layout.read(part.layout.parameters) for part in local._parts]
            return done

        weights, local.step = [one.clone() for one in begin], step
        losses, applied = train(model, local, rank, 6 * 6 + delay)
        assert local._flight is None
        own = [now - part.common for part, now in zip(local._parts, weights)]
        moved = [part.common - one for part, one in zip(local._parts, begin)]
        errors = [part.error for part in local._parts]
        return losses, applied, moved, [t - o for t, o in zip(trained, own)], errors

    results = run(3, work)
    between = 6 // parts
    wanted = [step % between == delay and step > between for step in range(1, 37 + delay)]
    for losses, applied, moved, _, _ in results:
        assert applied == wanted and np.mean(losses[-6:]) < 0.9 * np.mean(losses[:6])
        assert all(map(torch.equal, moved, results[0][2]))
    for part in range(parts):
        given = sum(trained[part] for _, _, _, trained, _ in results)
        kept = sum(errors[part].double() for *_, errors in results)
        total = 3 * results[0][2][part].double() + kept
        assert torch.allclose(total, given, atol=1e-4) and given.abs().max() > 0.01


class WithNorm(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.norm = nn.Linear(20, 30), nn.BatchNorm1d(30)
        self.last = nn.Linear(30, 5)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


@pytest.mark.parametrize("buffers", [True, False])
def test_a_newcomer_has_the_buffers(alone, buffers):  # noqa: F811
    """Running means, and the number of batches, of the rank that is ahead; those who were there
    keep theirs."""
    first, later = rill.local(2), rill.local(3)

    def work(_, rank):
        torch.manual_seed(rank)
        model = WithNorm(rank)
        comm = first[rank] if rank < 2 else rill.local(1)[0]
        options = {"every": 2, "keep": 4, "chunk": 64, "small": 100, "buffers": buffers}
        local = rill.torch.LocalUpdates(model, comm=comm, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(5 if rank < 2 else 0):
            model(torch.randn(8, 20)).square().mean().backward()
            optimizer.step()
            local.step()
        before = [buffer.clone() for buffer in model.buffers()]
        local.move(later[rank])
        return before, [buffer.clone() for buffer in model.buffers()]

    (before, after), (mine, still), (_, new) = run(3, work)
    assert all(map(torch.equal, before, after)) and all(map(torch.equal, mine, still))
    assert not torch.equal(before[0], mine[0])  # the step since the last round
    assert all(map(torch.equal, new, before)) and new[2] == 5


@pytest.mark.usefixtures("process_group")
def test_distributed_checkpoints(comm, shared_folder):
    """Over the ranks of the job. By torch.distributed.checkpoint the state is taken as it is, or as
    the dictionary."""
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    if not hasattr(dcp, "save"):
        pytest.skip("PyTorch 2.2 or newer")
    model, local = made(comm, comm.rank, outer="nesterov")
    train(model, local, comm.rank, 6)
    state = local.state_dict()
    assert state["rounds"] == 2 and any(part.any() for part in state["error"].values())
    dcp.save({"local": local}, checkpoint_id=shared_folder)
    other, again = made(comm, comm.rank, outer="nesterov")
    dcp.load({"local": again}, checkpoint_id=shared_folder)
    assert torch.equal(flat(other), flat(model)) and again.rounds == 2 and again.steps == 6
    third, plain = made(comm, comm.rank, outer="nesterov")
    loaded = plain.state_dict()
    dcp.load({"local": loaded}, checkpoint_id=shared_folder)
    plain.load_state_dict(loaded)
    for one in (again, plain):
        found = one.state_dict()
        for kind in ("common", "error", "velocity"):
            for name, part in state[kind].items():
                assert torch.allclose(found[kind][name], part, atol=1e-6), (kind, name)
    losses = [train(one, its, comm.rank, 3)[0] for one, its in ((other, again), (third, plain))]
    assert losses[0] == losses[1]
    assert torch.equal(flat(other), flat(third))


@pytest.mark.usefixtures("process_group")
def test_a_sharded_module(comm):
    """Shards are not whole parameters: it says what to do instead."""
    fsdp = pytest.importorskip("torch.distributed.fsdp") if not OLD else None
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("PyTorch 2.6 or newer")
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (comm.size,))
    model = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 5))
    fsdp.fully_shard(model[1], mesh=mesh)
    with pytest.raises(ValueError, match=r"parameter 1\.weight is a DTensor.*replicas=mesh"):
        rill.torch.LocalUpdates(model, comm=comm)
    rill.torch.LocalUpdates(Net(), comm=comm)


def test_models_and_states_that_it_cannot_take():
    own = rill.local(1)[0]
    for wrong in (None, [nn.Linear(2, 2)], nn.Linear):
        with pytest.raises(TypeError, match="module = .* a torch.nn.Module is needed"):
            rill.torch.LocalUpdates(wrong, comm=own)
    with pytest.raises(ValueError, match="parameter weight is complex"):
        rill.torch.LocalUpdates(nn.Linear(2, 2, dtype=torch.complex64), comm=own)
    local = rill.torch.LocalUpdates(nn.Linear(4, 4), comm=own)
    saved = local.state_dict()
    other = rill.torch.LocalUpdates(nn.Linear(4, 5), comm=own)
    with pytest.raises(ValueError, match=r"parameter bias is of shape \(5,\) here and.*\(4,\)"):
        other.load_state_dict(saved)
    with pytest.raises(ValueError, match=r"parameter 0\.bias is of shape \(4,\) here and absent"):
        rill.torch.LocalUpdates(nn.Sequential(nn.Linear(4, 4)), comm=own).load_state_dict(saved)
    for wrong in (None, {}, {**saved, "format": 2}):
        with pytest.raises(ValueError, match="format.* 1 is known"):
            local.load_state_dict(wrong)
