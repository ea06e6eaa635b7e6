"""dist.init_process_group("rill"): sums of sparse tensors are rill's, the rest is gloo's."""

import pytest
import torch
import torch.distributed as dist
from test_ddp import same_on_all_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rill
import rill.torch


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


def test_under_ddp(comm, group):
    """Gradients of embeddings are sparse tensors, which DDP sums by the group."""
    if torch.__version__.startswith("1."):
        pytest.skip("DDP of PyTorch 1 takes no work that was written in Python")
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 3))
    ddp = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(3):
        made = torch.Generator().manual_seed(10 * step + comm.rank)
        optimizer.zero_grad()
        ddp(torch.randint(0, 50, (4, 3), generator=made)).square().sum().backward()
        optimizer.step()
    assert same_on_all_ranks(comm, ddp)
