"""Models on a GPU, whose gradients stay there. cuda_ddp.py has the rest."""

import pytest
import torch
from test_ddp import WIDTH, batch, flat, network, wrapped
from torch import nn

import rill
import rill.torch

pytestmark = [
    pytest.mark.usefixtures("process_group"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


def train(ddp, rank, steps, device):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(steps):
        x, y = (part.to(device) for part in batch(rank, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()


def device_of(comm):
    return torch.device("cuda", comm.rank % torch.cuda.device_count())


@pytest.mark.parametrize("overlap", ["thread", "hook"])
def test_dense_equals_plain_ddp(comm, overlap):
    device = device_of(comm)
    plain = wrapped(None, network().to(device))
    ours = wrapped(rill.torch.State("dense", overlap=overlap), network().to(device))
    train(plain, comm.rank, 4, device)
    train(ours, comm.rank, 4, device)
    assert torch.allclose(flat(plain), flat(ours), atol=1e-5)


@pytest.mark.parametrize("rules", [None, {"*.bias": "dense"}])
def test_sparse_methods_leave_all_ranks_alike(comm, rules):
    device = device_of(comm)
    model = network().to(device)
    state = rill.torch.State("oktopk", density=0.02, module=model, rules=rules)
    ddp = wrapped(state, model)
    train(ddp, comm.rank, 6, device)
    assert len(set(comm.mpi.allgather(flat(model).cpu().numpy().tobytes()))) == 1
    assert len(state._buckets) > 1 and all(
        s.selected_k < 0.1 * 2 * WIDTH * WIDTH for s in state.stats if s.algorithm != "dense"
    )
    assert not any(part.is_cuda for part in state.state_dict()["residuals"].values())


def test_allreduce_of_a_tensor_there(comm):
    device = device_of(comm)
    ranks = comm.size * (comm.size + 1) // 2
    dense = rill.torch.allreduce(torch.full((3, 5), comm.rank + 1.0, device=device))
    assert dense.device == device and torch.equal(dense.cpu(), torch.full((3, 5), float(ranks)))
    sparse = torch.zeros(7, device=device)
    sparse[3] = comm.rank + 1.0
    summed = rill.torch.allreduce(sparse.to_sparse())
    assert summed.is_sparse and summed.device == device
    assert torch.equal(summed.to_dense().cpu(), torch.eye(7)[3] * ranks)
