"""Streams among arrays: NumPy, SciPy, DLPack, ==, +; the examples in docstrings."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest
import torch

import rill

TYPES = [np.float32, np.float64, np.float16]


def pairs(dim, places, values, dtype=np.float32):
    return rill.Stream(dim, dtype).set_pairs(places, np.array(values, dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_numpy_takes_all_entries(dtype):
    s = pairs(5, [3, 1], [2, -1], dtype)
    array = np.asarray(s)
    assert array.dtype == dtype and array.tolist() == [0, -1, 0, 2, 0]
    array[0] = 7  # it is a copy
    assert s.nnz == 2
    assert np.asarray(s, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy=False"):
        s.__array__(copy=False)


def test_numpy_takes_the_numbers_of_bfloat16():
    s = rill.as_stream(torch.tensor([0, 1.5, -2], dtype=torch.bfloat16))
    assert np.asarray(s).dtype == np.float32 and np.asarray(s).tolist() == [0, 1.5, -2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_dlpack_there_and_back(dtype):
    x = torch.zeros(50, dtype=dtype)
    x[7] = 1.5
    s = rill.from_dlpack(x)
    assert s.nnz == 1 and s.__dlpack_device__() == (1, 0)
    back = torch.from_dlpack(s)
    assert back.dtype == dtype and torch.equal(back, x)
    back[0] = 1  # a copy
    assert s.nnz == 1
    with pytest.raises(TypeError, match="list has no __dlpack__"):
        rill.from_dlpack([1.0])


def test_scipy_there_and_back():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(6, 7, 0.3, "csr", np.float32, 1)
    s = rill.as_stream(matrix)
    assert s.nnz == matrix.nnz and (s.scipy((6, 7)) != matrix).nnz == 0
    assert rill.as_stream(s.scipy((6, 7))) == s
    for kind in ("csr_array", "coo_array", "csc_matrix"):
        if hasattr(sparse, kind):
            assert rill.as_stream(getattr(sparse, kind)(matrix)) == s, kind
    try:
        vector = sparse.coo_array(np.array([0, 2.0, 0], np.float32))
    except ValueError:
        return  # this SciPy's are matrices only
    if len(vector.shape) == 1:
        assert rill.as_stream(vector) == pairs(3, [1], [2])


def test_equal_in_any_form():
    s = pairs(12, [1, 5, 6], [1, 2, 3])
    assert s == s.copy() == s.copy().to_dense() == s.copy().to_blocks(4)
    assert s == pairs(12, [1, 5, 6, 7], [1, 2, 3, 0])  # an explicit zero is a zero
    assert pairs(3, [0], [-0.0]) == rill.Stream(3)


def test_different_in_one_thing():
    s = pairs(12, [1, 5], [1, 2])
    others = [
        pairs(13, [1, 5], [1, 2]),
        pairs(12, [1, 5], [1, 2], np.float64),
        pairs(12, [1, 6], [1, 2]),
        pairs(12, [1, 5], [1, 3]),
        rill.Stream(12),
        rill.sum_streams([s], "max"),  # absent entries stand for -inf
    ]
    assert all(s != other and not s == other for other in others)
    assert s != "s" and s != None  # noqa: E711
    assert pairs(3, [0], [np.nan]) != pairs(3, [0], [np.nan])  # as NumPy has it
    with pytest.raises(TypeError, match="unhashable"):
        hash(s)


def test_fills_count_only_where_there_are_such_places():
    s = pairs(2, [0, 1], [1, 2])
    assert rill.sum_streams([s], "max") == s


def test_plus():
    a, b = pairs(1000, [1, 2], [1, 1]), pairs(1000, [2, 3], [1, 1])
    total = a + b
    assert total == pairs(1000, [1, 2, 3], [1, 2, 1]) and a.nnz == b.nnz == 2
    assert sum([a, b]) == total
    dense = b.dense()
    assert a + dense == dense + a == a + torch.from_numpy(dense) == total
    before = a
    a += dense
    assert a is before and a == total
    with pytest.raises(rill.RillError):
        a + rill.Stream(999)
    with pytest.raises(TypeError):
        a + "b"


def test_examples_of_docstrings():
    ran = 0
    for info in pkgutil.walk_packages(rill.__path__, "rill."):
        if info.name == "rill.__main__":
            continue
        try:
            module = importlib.import_module(info.name)
        except ModuleNotFoundError as error:  # of a package that only this module needs
            assert not (error.name or "").startswith("rill"), error
            continue
        result = doctest.testmod(module, extraglobs={"rill": rill, "np": np})
        assert result.failed == 0, info.name
        ran += result.attempted
    assert ran >= 10  # not that nothing is found
