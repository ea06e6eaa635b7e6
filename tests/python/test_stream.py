import numpy as np
import pytest
import torch

import rill


BACKENDS = pytest.mark.parametrize("make", [np.array, lambda x: torch.from_numpy(np.array(x))], ids=["numpy", "torch"])


@BACKENDS
def test_pairs_are_sorted_and_summed(make):
    s = rill.Stream(100).set_pairs(make(np.array([7, 3, 7])), make(np.array([1, 2, 4], np.float32)))
    assert s.indices.tolist() == [3, 7] and s.values.tolist() == [2, 5]
    assert (s.nnz, s.dim, s.type, s.is_dense, s.fill) == (2, 100, rill.Type.F32, False, 0)
    s.validate()


@BACKENDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dense_round_trip(make, dtype):
    x = np.zeros(50, dtype)
    x[[3, 40]] = 1.5, -2
    s = rill.as_stream(make(x))
    assert s.nnz == 2 and (s.dense() == x).all()
    out = make(np.empty(50, dtype))
    assert s.dense(out) is out and (np.asarray(out) == x).all()


def test_bfloat16():
    x = torch.zeros(20, dtype=torch.bfloat16)
    x[4] = 1.5
    s = rill.as_stream(x)
    assert s.type is rill.Type.BF16 and s.values.dtype == np.uint16
    assert torch.equal(s.torch().to_dense(), x)


def test_blocks():
    s = rill.Stream(12).set_blocks(4, [2, 0, 2], np.arange(12, dtype=np.float32))
    assert s.block == 4 and s.blocks.tolist() == [0, 2]
    assert s.values.tolist() == [4, 5, 6, 7, 8, 10, 12, 14]
    with pytest.raises(ValueError, match="has no indices"):
        s.indices
    assert s.to_sparse().indices.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]


def test_large_dimension():
    s = rill.Stream(2**40).set_pairs([2**39, 5], np.ones(2, np.float32))
    assert s.indices.dtype == np.uint64 and s.indices.tolist() == [5, 2**39]


def test_operations():
    a = rill.Stream(1000).set_pairs([1, 2], np.ones(2, np.float32))
    b = rill.Stream(1000).set_pairs([2, 3], np.ones(2, np.float32))
    assert rill.sum_streams([a, b]).values.tolist() == [1, 2, 1]
    with pytest.raises(rill.RillError) as caught:
        a.copy().concat(b)
    assert caught.value.name == "OVERLAP" and caught.value.status == -7 and "both streams" in caught.value.detail
    assert a.add(b, "max").values.tolist() == [1, 1, 1]
    assert a.clear().nnz == 0


def test_scipy_round_trip():
    sparse = pytest.importorskip("scipy.sparse")
    m = sparse.random(7, 9, 0.2, "csr", np.float32, random_state=1)
    back = rill.as_stream(m).scipy((7, 9))
    assert (back.toarray() == m.toarray()).all()


@pytest.mark.parametrize(
    "values, error, words",
    [
        (np.ones(2, np.int32), TypeError, "values: dtype int32 is not supported"),
        (np.ones(2, np.float64), TypeError, "values has values of type f64: f32 is needed"),
        (np.ones(4, np.float32)[::2], ValueError, "values is not contiguous"),
        (np.ones(3, np.float32), ValueError, "values has 3 values: 2 are needed"),
        ([1.0, 2.0], TypeError, "values is of type list"),
        (np.ones(2, ">f4"), TypeError, "byte order|not supported"),
    ],
)
def test_what_cannot_be_borrowed_is_an_error(values, error, words):
    with pytest.raises(error, match=words):
        rill.Stream(10).set_pairs([1, 2], values)


def test_wrong_tensors():
    with pytest.raises(TypeError, match="dense: dtype torch.int64 is not supported"):
        rill.Stream(4).set_dense(torch.ones(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="dense is not contiguous"):
        rill.Stream(4).set_dense(torch.ones(2, 2).t())
    with pytest.raises(ValueError, match="read-only"):
        x = np.ones(4, np.float32)
        x.flags.writeable = False
        rill.Stream(4).dense(x)


def test_wrong_indices():
    one = np.ones(1, np.float32)
    with pytest.raises(ValueError, match="negative index -1"):
        rill.Stream(4).set_pairs([-1], one)
    with pytest.raises(TypeError, match="whole numbers"):
        rill.Stream(4).set_pairs([0.5], one)
    with pytest.raises(rill.RillError) as caught:
        rill.Stream(4).set_pairs([4], one)
    assert caught.value.name == "RANGE"


def test_a_view_keeps_its_stream_alive():
    view = rill.Stream(1000).set_pairs(np.arange(0, 1000, 50), np.ones(20, np.float32)).values
    rill.Stream(1000).set_pairs(np.arange(0, 1000, 50), np.full(20, 7, np.float32))
    assert view.tolist() == [1.0] * 20


def test_selector():
    x = np.arange(100, dtype=np.float32)
    assert rill.Selector(100, k=3).select(x).indices.tolist() == [97, 98, 99]
    residual = np.zeros(100, np.float32)
    sent = rill.Selector(100, density=0.02).select_residual(x, residual)
    assert sent.values.tolist() == [98, 99] and residual[97] == 97 and residual[98] == 0


def test_what_there_is():
    assert "dense" in rill.algorithms() and "oktopk" in rill.algorithms("reducer")
    assert "elias_fano" in rill.codecs() and "topk" in rill.selectors()
    assert rill.method("topk+qsgd4") == {"algorithm": "split_allgather", "select": "topk", "value_bits": 4}
    with pytest.raises(ValueError):
        rill.method("topk+zip")
