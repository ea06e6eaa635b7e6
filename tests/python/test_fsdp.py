"""rill.torch.attach on modules of fully_shard: two replicas of two shards."""

import pytest
import torch
from test_ddp import batch
from torch import nn

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


def sharded(mesh, model=None):
    model = Net() if model is None else model
    fsdp.fully_shard(model.first, mesh=mesh)
    return fsdp.fully_shard(model, mesh=mesh)


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
    kept, loaded = state.state_dict()["residuals"], fresh.state_dict()["residuals"]
    for name, part in kept.items():
        assert torch.allclose(loaded[name].full_tensor(), part.full_tensor(), atol=1e-6)
    assert any(part.full_tensor().any() for part in kept.values())
    with pytest.raises(NotImplementedError, match="torch.distributed.checkpoint"):
        state.save(shared_folder)


def test_detach_leaves_what_pytorch_does(comm, mesh):
    plain, ours = sharded(mesh), sharded(mesh["shard"])
    state = attach(ours, mesh, "topk")
    rill.torch.detach(ours)
    train(plain, comm.rank)
    train(ours, comm.rank)
    assert torch.allclose(flat(plain), flat(ours), atol=1e-6) and state.steps == 0


def test_errors_say_what_to_do(mesh):
    with pytest.raises(ValueError, match=r'mesh=mesh\["shard"\].*replicas=mesh\["replicate"\]'):
        attach(sharded(mesh), mesh, "topk")
    with pytest.raises(ValueError, match="replicas="):
        rill.torch.attach(sharded(mesh["shard"]), "topk")
