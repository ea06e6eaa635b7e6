"""rill.torch.attach on modules of fully_shard: two replicas of two shards."""

import pytest
import torch
from test_ddp import batch
from torch import nn
from torch.utils.checkpoint import checkpoint

import rill
import rill.torch

fsdp = pytest.importorskip("torch.distributed.fsdp") if torch.__version__[0] > "1" else None
if not hasattr(fsdp, "fully_shard"):
    pytest.skip("PyTorch 2.6 or newer", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("process_group", "four")
DENSITY = 0.05


@pytest.fixture(scope="module")
def four(comm):
    if comm.size != 4:
        pytest.skip("needs 4 ranks")


@pytest.fixture(scope="module")
def mesh(comm, process_group, four):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))


class Net(nn.Module):
    """Sizes that shards divide unevenly, and a layer that is not always used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(20, 33), nn.Linear(33, 5)
        self.middle = nn.ModuleDict({"a": nn.Linear(33, 33), "b": nn.Linear(33, 33)})
        self.use_b = True

    def forward(self, x):
        x = self.middle["a"](self.first(x).tanh()).tanh()
        return self.last(self.middle["b"](x).tanh() if self.use_b else x)


def sharded(mesh, model=None, **options):
    model = Net() if model is None else model
    fsdp.fully_shard(model.first, mesh=mesh, **options)
    return fsdp.fully_shard(model, mesh=mesh, **options)


def loss_of(model, rank, step):
    x, y = batch(rank, step)
    return nn.functional.cross_entropy(model(x), y)


def train(model, rank, steps=4, accumulate=1, clip=None, optimizer=None, first=0):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        model.use_b = step % 2 == 0
        for part in range(accumulate):
            model.set_requires_gradient_sync(part == accumulate - 1)
            loss_of(model, rank, accumulate * step + part).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


def flat(model):
    return torch.cat([p.full_tensor().detach().reshape(-1) for p in model.parameters()])


def same_on_all_ranks(comm, model):
    return len(set(comm.mpi.allgather(flat(model).numpy().tobytes()))) == 1


def attach(model, mesh, method, **options):
    options = {"density": DENSITY, "small": 0, "warmup_steps": 0, **options}
    return rill.torch.attach(model, method, replicas=mesh["replicate"], **options)


@pytest.mark.parametrize("how", [{}, {"accumulate": 2}, {"clip": 0.05}])
def test_dense_equals_hsdp(comm, mesh, how):
    plain, ours = sharded(mesh), sharded(mesh["shard"])
    state = attach(ours, mesh, "dense", warmup_steps=0)
    train(plain, comm.rank, **how)
    train(ours, comm.rank, **how)
    assert torch.allclose(flat(plain), flat(ours), atol=1e-6) and state.steps == 4
    assert state.comm.size == 2 and same_on_all_ranks(comm, ours)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_nothing_is_lost_in_any_shard(comm, mesh, accumulate):
    """Weights and residuals add up to all gradients, those of layers that are sometimes unused
    too."""
    model = sharded(mesh["shard"])
    state = attach(model, mesh, "oktopk")
    twin = Net()
    before, fed = flat(model), 0
    for step in range(4):
        with torch.no_grad():
            weights = [p.full_tensor() for p in model.parameters()]
            for p, now in zip(twin.parameters(), weights):
                p.copy_(now)
        twin.zero_grad()
        twin.use_b = step % 2 == 0
        for part in range(accumulate):
            loss_of(twin, comm.rank, accumulate * step + part).backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in twin.parameters()]
        fed = fed + torch.cat([g.reshape(-1) for g in grads]).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        train(model, comm.rank, 1, accumulate, optimizer=optimizer, first=step)
    residuals = state.state_dict()["residuals"]
    kept = torch.cat(
        [residuals[name].full_tensor().reshape(-1) for name, _ in model.named_parameters()]
    )
    total = sum(comm.mpi.allgather(fed)) / 2  # shards average theirs
    moved = (before - flat(model)).double() * 2
    assert torch.allclose(moved + kept, total, atol=1e-4) and kept.abs().max() > 1e-3
    assert same_on_all_ranks(comm, model)


# ---- ways of training ----


def recomputed(model):
    """Activation checkpointing of the first layer."""
    inner = model.first.forward
    model.first.forward = lambda x: checkpoint(inner, x, use_reentrant=False)
    return model


def compiled(model):
    model.middle["a"].compile(backend="eager")
    return model


def adapted(model):
    """Most is frozen, as with LoRA."""
    model.first.requires_grad_(False)
    model.middle.requires_grad_(False)
    model.middle["a"].bias.requires_grad_(True)
    return model


def grouped(model):
    of_last = [*model.last.parameters()]
    others = [p for p in model.parameters() if all(p is not one for one in of_last)]
    return torch.optim.SGD([{"params": others, "lr": 0.2}, {"params": of_last}], 0.05, 0.9)


WAYS = {
    "activation checkpointing": {"change": recomputed},
    "compiled module": {"change": compiled},
    "frozen parameters": {"change": adapted},
    "parameter groups": {"optimize": grouped},
    "mixed precision": {"policy": dict(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_of_training(comm, mesh, way):
    """Dense ends where plain HSDP ends; sparse has the same weights on all ranks, and learns."""
    change, optimize, policy = (WAYS[way].get(key) for key in ("change", "optimize", "policy"))
    options = {"mp_policy": fsdp.MixedPrecisionPolicy(**policy)} if policy else {}
    ended = {}
    for method in ("plain", "dense", "oktopk"):
        model = change(Net()) if change else Net()
        model = sharded(mesh if method == "plain" else mesh["shard"], model, **options)
        start = flat(model)
        state = None if method == "plain" else attach(model, mesh, method)
        train(model, comm.rank, optimizer=optimize(model) if optimize else None)
        ended[method] = flat(model)
        assert same_on_all_ranks(comm, model) and not torch.equal(start, ended[method])
    close = torch.allclose(ended["plain"], ended["dense"], atol=1e-3 if policy else 1e-6)
    assert close and state.steps == 4
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    kept = state.state_dict()["residuals"]
    assert set(kept) == trained and any(part.full_tensor().any() for part in kept.values())


def test_frozen_parameters_take_no_part(comm, mesh):
    """The density is of what is trained; and what is no longer frozen joins in."""
    model = sharded(mesh["shard"], adapted(Net()))
    state = attach(model, mesh, "topk")
    train(model, comm.rank, 2)
    dims = [group.reducer.dim for _, group in state._all_groups()]
    assert dims == [-(-33 // 2) + 3 * 33 + 3]  # of one bias, and of the last layer's shards
    before = model.first.weight.full_tensor()
    model.first.requires_grad_(True)
    train(model, comm.rank, 2, first=2)
    assert len(state.stats) == 2 and not torch.equal(before, model.first.weight.full_tensor())
    assert "first.weight" in state.state_dict()["residuals"]
    model.last.requires_grad_(False)
    before = model.last.weight.full_tensor()
    train(model, comm.rank, 2, first=4)
    assert torch.equal(before, model.last.weight.full_tensor())
    assert same_on_all_ranks(comm, model) and state.steps == 6


def test_a_step_that_is_not_finite_is_void_everywhere(comm, mesh):
    model = sharded(mesh["shard"])
    state = attach(model, mesh, "topk")
    train(model, comm.rank, 2)
    before = {name: part.full_tensor() for name, part in state.state_dict()["residuals"].items()}
    model.zero_grad()
    bad = comm.rank == 3  # in a layer that is a unit of its own, on one of four ranks
    handle = model.first.register_full_backward_hook(
        lambda _, given, __: tuple(g if g is None else g * float("inf") for g in given)
    )
    x, y = batch(comm.rank, 7)
    x.requires_grad_(True)
    loss = nn.functional.cross_entropy(model(x), y)
    if bad:
        loss = loss * float("inf")
    loss.backward()
    handle.remove()
    grads = [p.grad.to_local() for p in model.parameters() if p.grad is not None]
    assert all(torch.isnan(g).all() for g in grads)
    after = {name: part.full_tensor() for name, part in state.state_dict()["residuals"].items()}
    assert all(torch.allclose(after[name], part, atol=1e-5) for name, part in before.items())


def test_adam_and_checkpoints(comm, mesh, shared_folder):
    import torch.distributed.checkpoint as dcp

    model, other = sharded(mesh["shard"]), sharded(mesh["shard"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.99))
    state = attach(model, mesh, "topk", optimizer=optimizer)
    train(model, comm.rank, optimizer=optimizer)
    assert {g.reducer.options["momentum"] for _, g in state._all_groups()} == {0.8}
    dcp.save({"model": model.state_dict(), "rill": state}, checkpoint_id=shared_folder)
    fresh = attach(other, mesh, "topk", optimizer=torch.optim.AdamW(other.parameters()))
    weights = other.state_dict()
    dcp.load({"model": weights, "rill": fresh}, checkpoint_id=shared_folder)
    other.load_state_dict(weights)
    assert torch.equal(flat(other), flat(model))
    for kind in ("residuals", "momenta"):
        kept, loaded = state.state_dict()[kind], fresh.state_dict()[kind]
        for name, part in kept.items():
            assert torch.allclose(loaded[name].full_tensor(), part.full_tensor(), atol=1e-6)
        assert any(part.full_tensor().any() for part in kept.values())
    with pytest.raises(NotImplementedError, match="torch.distributed.checkpoint"):
        state.save(shared_folder)


def test_the_optimizer_s_checkpoint(comm, mesh):
    """By PyTorch's own functions for it: the first beta is in it, whatever is done first."""
    from torch.distributed.checkpoint.state_dict import (
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    model = sharded(mesh["shard"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.99))
    attach(model, mesh, "topk", optimizer=optimizer)
    train(model, comm.rank, optimizer=optimizer)
    saved = get_optimizer_state_dict(model, optimizer)
    for attached_first in (True, False):
        other = sharded(mesh["shard"])
        fresh = torch.optim.AdamW(other.parameters(), lr=0.01, betas=(0.8, 0.99))
        if attached_first:
            state = attach(other, mesh, "topk", optimizer=fresh)
        set_optimizer_state_dict(other, fresh, saved)
        if not attached_first:
            state = attach(other, mesh, "topk", optimizer=fresh)
        train(other, comm.rank, 2, optimizer=fresh)
        assert {g.reducer.options["momentum"] for _, g in state._all_groups()} == {0.8}
        assert fresh.param_groups[0]["betas"] == (0.0, 0.99)
        rill.torch.detach(other)
        assert fresh.param_groups[0]["betas"] == (0.8, 0.99)


@pytest.mark.parametrize("by", ["mesh", "communicator"])
def test_detach_leaves_what_pytorch_does(comm, mesh, by):
    plain, ours = sharded(mesh), sharded(mesh["shard"])
    if by == "mesh":
        state = attach(ours, mesh, "topk")
    else:
        replicas = comm.mpi.Split(comm.rank % 2, comm.rank)
        state = rill.torch.attach(ours, "topk", comm=rill.Comm(replicas))
    rill.torch.detach(ours)
    train(plain, comm.rank)
    train(ours, comm.rank)
    assert torch.allclose(flat(plain), flat(ours), atol=1e-6) and state.steps == 0


def test_errors_say_what_to_do(mesh):
    with pytest.raises(ValueError, match=r'mesh=mesh\["shard"\].*replicas=mesh\["replicate"\]'):
        attach(sharded(mesh), mesh, "topk")
    with pytest.raises(ValueError, match="replicas="):
        rill.torch.attach(sharded(mesh["shard"]), "topk")
