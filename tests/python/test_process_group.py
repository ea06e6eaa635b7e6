"""dist.init_process_group("rill"): sums of sparse tensors are rill's, the rest is gloo's, or on
CUDA devices NCCL's. NCCL is played by a group for tensors of "meta", which have no values."""

import types

import pytest
import torch
import torch.distributed as dist
from test_ddp import same_on_all_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rill
import rill.torch
from rill.torch import _backend

OLD = torch.__version__.startswith("1.")


@pytest.fixture(scope="module")
def group(process_group):
    try:
        rill.Comm.ucx(0, 1, lambda mine: [mine]).free()
    except rill.RillError as error:
        pytest.skip(str(error))
    return dist.new_group(backend="rill")


@pytest.mark.parametrize("shape,dense", [((1000,), 0), ((40, 25), 0), ((40, 25), 1)])
def test_sums_of_sparse_tensors(comm, group, shape, dense):
    made = torch.Generator().manual_seed(comm.rank)
    whole = torch.zeros(shape)
    rows = torch.randperm(shape[0], generator=made)[:7]
    whole[rows] = torch.randint(1, 9, (7, *shape[1:]), generator=made).float()
    tensor = whole.to_sparse(len(shape) - dense)
    expected = sum(comm.mpi.allgather(whole))
    dist.all_reduce(tensor, group=group)
    assert tensor.is_sparse and torch.equal(tensor.to_dense(), expected)
    work = dist.all_reduce(whole.to_sparse(), group=group, async_op=True)
    work.wait()
    assert torch.equal(work.get_future().value()[0].to_dense(), expected)


def test_it_is_rill_that_sums(comm, group, monkeypatch):
    """Gloo gives the same sums, and much later."""
    calls, whole = [], rill.Comm.allreduce
    monkeypatch.setattr(rill.Comm, "allreduce", lambda *a, **o: calls.append(1) or whole(*a, **o))
    tensor = torch.sparse_coo_tensor([[comm.rank, 7]], [1.0, 2.0], (9,))
    expected = sum(comm.mpi.allgather(tensor.to_dense()))
    dist.all_reduce(tensor, group=group)
    assert len(calls) == 1 and torch.equal(tensor.to_dense(), expected)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group)
    assert len(calls) == 2 and torch.allclose(tensor.to_dense(), expected)
    dist.all_reduce(torch.ones(3), group=group)
    assert len(calls) == 2


def test_the_rest_is_the_inner_group(comm, group):
    tensor = torch.full((3,), float(comm.rank + 1))
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [comm.size * (comm.size + 1) / 2] * 3
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
    parts = [torch.zeros(1) for _ in range(comm.size)]
    dist.all_gather(parts, torch.tensor([float(comm.rank)]), group=group)
    assert torch.cat(parts).tolist() == list(range(comm.size))
    everyone = [None] * comm.size
    dist.all_gather_object(everyone, {"rank": comm.rank}, group=group)
    assert [one["rank"] for one in everyone] == list(range(comm.size))
    tensor = torch.tensor([float(comm.rank)])
    dist.broadcast(tensor, comm.size - 1, group=group)
    assert tensor.item() == comm.size - 1
    counts = torch.sparse_coo_tensor([[comm.rank, 7]], [1, 2], (9,))  # of integers
    dist.all_reduce(counts, group=group)
    expected = torch.zeros(9, dtype=torch.int64)
    expected[: comm.size], expected[7] = 1, 2 * comm.size
    assert torch.equal(counts.to_dense(), expected)
    dist.barrier(group=group)


def test_under_ddp(comm, group, monkeypatch):
    """Gradients of embeddings are sparse tensors, which DDP sums by the group."""
    if OLD:
        pytest.skip("DDP of PyTorch 1 takes no work that was written in Python")
    calls, whole = [], rill.Comm.allreduce
    monkeypatch.setattr(rill.Comm, "allreduce", lambda *a, **o: calls.append(1) or whole(*a, **o))
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 3))
    ddp = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        made = torch.Generator().manual_seed(10 * step + comm.rank)
        optimizer.zero_grad()
        ddp(torch.randint(0, 50, (4, 3), generator=made)).square().sum().backward()
        optimizer.step()
    assert same_on_all_ranks(comm, ddp) and len(calls) == 3


class Device:
    """An inner group that notes what it is asked for, and by which kind of tensors."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append(name)
            return _backend._Done(None)

        return call


@pytest.fixture
def two_devices(group, monkeypatch):
    """A group of two kinds of devices, and the inner one of the second kind."""
    device, made = Device(), _backend._inner_groups
    monkeypatch.setattr(_backend, "_inner_groups", lambda *a: {**made(*a), "meta": device})
    return dist.new_group(backend="rill"), device


def test_the_device_of_tensors_chooses_the_inner_group(comm, two_devices):
    group, device = two_devices
    there = torch.empty(4, device="meta")
    parts = [torch.empty(4, device="meta") for _ in range(comm.size)]
    dist.all_reduce(there, group=group)
    dist.broadcast(there, 0, group=group)
    dist.all_gather(parts, there, group=group)
    dist.reduce(there, 0, group=group)
    dist.reduce_scatter(there, parts, group=group)
    dist.scatter(there, parts if comm.rank == 0 else None, group=group)
    dist.gather(there, parts if comm.rank == 0 else None, group=group)
    called = ["allreduce", "broadcast", "allgather", "reduce", "reduce_scatter"]
    assert device.calls == [*called, "scatter", "gather"]
    here = torch.ones(4)
    dist.all_reduce(here, group=group)
    assert here.tolist() == [comm.size] * 4
    rows = torch.sparse_coo_tensor([[comm.rank]], [1], (9,))  # NCCL can't; of integers
    dist.all_reduce(rows, group=group)
    assert rows.to_dense().sum() == comm.size
    assert len(device.calls) == 7


def test_objects_are_the_cpu_s(comm, two_devices):
    group, device = two_devices
    everyone = [None] * comm.size
    dist.all_gather_object(everyone, {"rank": comm.rank}, group=group)
    assert [one["rank"] for one in everyone] == list(range(comm.size))
    told = ["so", 1] if comm.rank == 0 else [None, None]
    dist.broadcast_object_list(told, 0, group=group)
    assert told == ["so", 1]
    dist.barrier(group=group)  # NCCL's would have to guess the device
    assert device.calls == []
    options = dist.BarrierOptions()
    if not OLD:
        options.device = torch.device("meta")
        group.barrier(options)
        assert device.calls == ["barrier"]


@pytest.mark.once
def test_nccl_is_made_where_there_is_a_device(monkeypatch):
    class Nccl:
        Options = types.SimpleNamespace

        def __init__(self, store, rank, size, options):
            self.made = store, rank, size, options._timeout

    monkeypatch.setattr(dist, "PrefixStore", lambda name, store: f"{store}/{name}")
    monkeypatch.setattr(dist, "ProcessGroupGloo", lambda *made: made)
    monkeypatch.setattr(dist, "ProcessGroupNCCL", Nccl, raising=False)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _backend._inner_groups("s", 1, 2, 3) == {"cpu": ("s/cpu", 1, 2, 3)}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    made = _backend._inner_groups("s", 1, 2, 3)
    assert list(made) == ["cpu", "cuda"]
    assert made["cpu"] == ("s/cpu", 1, 2, 3) and made["cuda"].made == ("s/cuda", 1, 2, 3)


def test_named_with_devices(comm, group):
    """The group is for all devices, whatever stands beside it."""
    if OLD:
        pytest.skip("PyTorch 1 takes one name")
    group = dist.new_group(backend="cpu:rill,cuda:nccl")
    assert isinstance(group, _backend.ProcessGroup)
    tensor = torch.sparse_coo_tensor([[comm.rank, 7]], [1.0, 2.0], (9,))
    expected = sum(comm.mpi.allgather(tensor.to_dense()))
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor.to_dense(), expected) and group._comm is not None
    everyone = [None] * comm.size
    dist.all_gather_object(everyone, comm.rank, group=group)
    assert everyone == list(range(comm.size))


def test_its_name_and_end(comm, group):
    if OLD:
        pytest.skip("groups of PyTorch 1 have no name")
    first, second = dist.new_group(backend="rill"), dist.new_group(backend="rill")
    assert first.group_name != second.group_name
    assert first._get_backend(torch.device("cpu")) is first._inners["cpu"]
    dist.destroy_process_group(first)
    dist.all_reduce(torch.ones(3), group=second)
    dist.destroy_process_group(second)


def test_with_nccl(comm, group):
    """Each rank with a GPU of its own."""
    if not dist.is_nccl_available() or torch.cuda.device_count() < comm.size:
        pytest.skip("there is no GPU for each rank")
    torch.cuda.set_device(comm.rank)
    both = dist.new_group(backend="rill")
    for device in ("cuda", "cpu", "cuda"):
        tensor = torch.full((3,), comm.rank + 1.0, device=device)
        dist.all_reduce(tensor, group=both)
        assert tensor.tolist() == [comm.size * (comm.size + 1) / 2] * 3
        rows = torch.sparse_coo_tensor([[comm.rank, 7]], [1.0, 2.0], (9,), device=device)
        expected = sum(comm.mpi.allgather(rows.to_dense().cpu()))
        dist.all_reduce(rows, group=both)
        assert rows.device.type == device and torch.equal(rows.to_dense().cpu(), expected)
        everyone = [None] * comm.size
        dist.all_gather_object(everyone, comm.rank, group=both)
        assert everyone == list(range(comm.size))
        dist.barrier(group=both)
    dist.barrier(group=both, device_ids=[comm.rank])
    if not OLD:
        dist.destroy_process_group(both)
