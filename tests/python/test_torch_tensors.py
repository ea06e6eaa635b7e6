import pytest
import torch

import rill
import rill.torch


def rows(comm, dtype=torch.float32):
    """An embedding's gradient: rows of 4, one of them twice; whole numbers, so that sums are
    exact."""
    indices = torch.tensor([[comm.rank, 9, 9]])
    values = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (10, 4))


def summed(comm, tensor):
    return sum(comm.mpi.allgather(tensor.to_dense().to(torch.float64)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_dense(comm, dtype):
    x = torch.full((3, 5), comm.rank + 1, dtype=dtype)
    total = comm.size * (comm.size + 1) / 2
    result = rill.torch.allreduce(x)
    assert result.shape == x.shape and result.dtype == dtype and (result == total).all()
    assert (rill.torch.allreduce(x, "max") == comm.size).all()
    assert torch.equal(
        rill.torch.allreduce(x, "mean"), torch.full((3, 5), total, dtype=dtype) / comm.size
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_of_an_embedding(comm, dtype):
    x = rows(comm, dtype)
    result = rill.torch.allreduce(x)
    assert (
        result.is_sparse
        and result.is_coalesced()
        and result.dense_dim() == 1
        and result.dtype == dtype
    )
    assert torch.equal(result.to_dense().to(torch.float64), summed(comm, x))


def test_pairs_of_a_matrix(comm):
    x = torch.sparse_coo_tensor([[0, 2, 2, 0], [1, 4, 4, comm.rank]], [1.0, 2.0, 3.0, 4.0], (3, 5))
    result = rill.torch.allreduce(x)
    assert result.is_coalesced() and result.dense_dim() == 0
    assert torch.equal(result.to_dense().double(), summed(comm, x))
    assert torch.equal(result.indices(), result.to_dense().nonzero().t())


def test_empty_contributions(comm):
    empty = torch.sparse_coo_tensor(
        torch.empty((1, 0), dtype=torch.int64), torch.empty((0, 4)), (10, 4)
    )
    assert rill.torch.allreduce(empty)._nnz() == 0
    x = rows(comm) if comm.rank == 0 else empty
    assert torch.equal(rill.torch.allreduce(x).to_dense().double(), summed(comm, x))
    assert rill.torch.allreduce(torch.empty(0)).numel() == 0


def test_round_trip(comm):
    x = rows(comm).coalesce()
    stream = rill.torch.to_stream(x)
    assert stream.block == 4
    assert torch.equal(
        rill.torch.from_stream(stream, (10, 4), dense_dim=1).to_dense(), x.to_dense()
    )
    assert torch.equal(stream.torch((10, 4)).to_dense(), x.to_dense())
    with pytest.raises(ValueError, match="has 41 entries, the stream 40"):
        rill.torch.from_stream(stream, (41,))


def test_what_cannot_be_summed(comm):
    with pytest.raises(TypeError, match="torch.int32 is not supported"):
        rill.torch.allreduce(torch.ones(3, dtype=torch.int32))
    with pytest.raises(ValueError, match="not contiguous"):
        rill.torch.allreduce(torch.ones(3, 4).t())
    with pytest.raises(ValueError, match="op 'max' is none of sum, mean"):
        rill.torch.allreduce(rows(comm), "max")
    with pytest.raises(TypeError, match="layout torch.sparse_csr"):
        rill.torch.allreduce(torch.eye(3).to_sparse_csr())


def test_gradients_are_not_tracked(comm):
    x = torch.ones(3, requires_grad=True)
    assert not rill.torch.allreduce(x).requires_grad
