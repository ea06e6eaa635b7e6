import copy
import pickle
import re

import numpy as np
import pytest
import torch

import rill


BACKENDS = pytest.mark.parametrize(
    "make", [np.array, lambda x: torch.from_numpy(np.array(x))], ids=["numpy", "torch"]
)


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
    assert (
        caught.value.name == "OVERLAP"
        and caught.value.status == -7
        and "both streams" in caught.value.detail
    )
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
    assert rill.method("topk+qsgd4") == {
        "algorithm": "split_allgather",
        "select": "topk",
        "value_bits": 4,
    }
    with pytest.raises(ValueError):
        rill.method("topk+zip")


# ---- views ----

N = 200_000  # so large that freed memory goes back to the system


def filled(dtype=np.float32, value=1.0):
    return rill.Stream(20 * N, dtype).set_pairs(np.arange(N), np.full(N, value, dtype))


CHANGES = {
    "set_pairs": lambda x: x.set_pairs(np.arange(4 * N), np.full(4 * N, 2, np.float32)),
    "set_blocks": lambda x: x.set_blocks(4, np.arange(N), np.full(4 * N, 2, np.float32)),
    "set_dense": lambda x: x.set_dense(np.full(20 * N, 2, np.float32)),
    "clear": lambda x: x.clear(),
    "to_dense": lambda x: x.to_dense(),
    "to_blocks": lambda x: x.to_blocks(8),
    "to_sparse": lambda x: x.to_dense().to_sparse(),
    "add": lambda x: x.add(filled(value=3)),
    "add itself": lambda x: x.add(x),
    "concat": lambda x: x.concat(
        rill.Stream(20 * N).set_pairs(np.arange(N, 8 * N), np.ones(7 * N, np.float32))
    ),
    "allreduce": lambda x: rill.world().allreduce(filled(value=3), x),
    "allreduce in place": lambda x: rill.world().allreduce(x, x),
    "iallreduce": lambda x: rill.world().iallreduce(filled(value=3), x).wait(),
    "bcast": lambda x: rill.world().bcast(x),
    "select": lambda x: rill.Selector(20 * N, density=0.5).select(np.ones(20 * N, np.float32), x),
    "step_stream": lambda x: rill.Reducer(rill.world(), 20 * N, density=0.01).step_stream(
        np.ones(20 * N, np.float32), x
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_views_show_what_there_was(comm, change):
    x, untouched = filled(), filled()
    values, indices, part = x.values, x.indices, x.values[5:10]
    CHANGES[change](x)
    assert (values == 1).all() and (indices == np.arange(N)).all() and (part == 1).all()
    with pytest.raises(ValueError):
        values[0] = 5
    # And the change is as if nobody had looked.
    CHANGES[change](untouched)
    assert (
        (x.dense() == untouched.dense()).all()
        and x.is_dense == untouched.is_dense
        and x.block == untouched.block
    )
    del x
    assert (values == 1).all()


def test_memory_without_views_is_used_again():
    x = filled()
    handle = x._handle
    x.values.sum()  # a view that is gone
    x.set_pairs([1], np.ones(1, np.float32))
    assert x._handle is handle
    kept = x.values
    x.set_pairs([2], np.ones(1, np.float32))
    assert x._handle is not handle and kept.sum() == 1


def test_a_persistent_call_with_views(comm):
    x, out = rill.as_stream(np.ones(10, np.float32)), rill.Stream(10)
    request = comm.allreduce_init(x, out)
    first = request.start().wait().values
    x.set_dense(np.full(10, 2, np.float32))
    kept = x.values
    second = request.start().wait().values
    x.set_dense(np.full(10, 3, np.float32))  # goes on in other memory
    third = request.start().wait().values
    assert [list(set(v)) for v in (first, second, kept, third)] == [
        [comm.size],
        [2 * comm.size],
        [2],
        [3 * comm.size],
    ]
    request.free()


def test_streams_of_a_call_under_way(comm):
    x, out = rill.as_stream(np.ones(10, np.float32)), rill.Stream(10)
    if comm.rank > 0:
        comm.mpi.Barrier()  # before that, rank 0's call can't be complete
    request = comm.iallreduce(x, out)
    if comm.size > 1 and comm.rank == 0:
        for change in (
            lambda: x.clear(),
            lambda: out.clear(),
            lambda: out.values,
            lambda: comm.allreduce_init(out, x),
        ):
            with pytest.raises(BufferError, match="under way"):
                change()
    if comm.rank == 0:
        comm.mpi.Barrier()
    assert x.values.sum() == 10
    request.wait()
    assert out.values.sum() == 10 * comm.size
    x.clear()
    out.clear()
    # Complete, though nobody has asked.
    request = comm.iallreduce(x, out)
    comm.mpi.Barrier()
    comm.allreduce(rill.Stream(10))
    comm.allreduce(rill.Stream(10))
    x.clear()
    request.wait()


def test_the_residual_is_a_copy(comm):
    reducer = rill.Reducer(comm, N, density=0.01)
    reducer.step(np.ones(N, np.float32))
    residual = reducer.residual
    before = residual.copy()
    reducer.step(np.ones(N, np.float32))
    reducer.free()
    assert (residual == before).all()


# ---- copies ----


def odd_streams():
    x = rill.Stream(1000).set_pairs([3, 999, 7], np.array([1, -0.0, 0], np.float32))
    yield x
    for dtype in ("f64", "f16", "bf16"):
        values = (
            np.array([0x3F80, 0x4000], np.uint16)
            if dtype == "bf16"
            else np.ones(2, np.dtype(dtype.replace("f", "float")))
        )
        yield rill.Stream(1000, dtype).set_pairs([3, 10], values)
        yield rill.Stream(1000, dtype).set_pairs([3, 10], values).to_dense()
    yield rill.Stream(1000).set_blocks(8, [0, 5, 124], np.arange(24, dtype=np.float32))
    yield rill.Stream(1001).set_blocks(8, [5, 125], np.zeros(16, np.float32))  # the last one is cut
    yield rill.Stream(10).set_dense(
        np.array([0, -0.0, 1, np.nan, np.inf, 0, 0, 2, 3, 4], np.float32)
    ).to_dense()
    yield rill.Stream(0)
    yield rill.Stream(2**40).set_pairs([2**39, 5], np.ones(2, np.float32))
    for op in ("min", "max", "prod"):
        yield rill.sum_streams([x, x], op)
        yield rill.sum_streams([x, x], op).to_dense()
        yield rill.sum_streams([x, x], op).to_blocks(4)
    yield rill.sum_streams([x], rill.Op("odd", np.add, float("nan")))
    yield rill.sum_streams([x, x], rill.Op("odd", np.add, 7.5)).to_dense()


@pytest.mark.parametrize(
    "how",
    [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_of_streams(how):
    for x in odd_streams():
        y = how(x)
        y.validate()
        assert (y.dim, y.type, y.nnz, y.is_dense, y.block) == (
            x.dim,
            x.type,
            x.nnz,
            x.is_dense,
            x.block,
        )
        assert repr(y.fill) == repr(x.fill)
        assert y.values.tobytes() == x.values.tobytes()
        if not x.is_dense:
            assert ((y.blocks == x.blocks) if x.block else (y.indices == x.indices)).all()
        before = x.values.copy()
        y.clear()
        assert x.values.tobytes() == before.tobytes()
        del y
        x.validate()


def _larger(a, b):
    return np.maximum(a, b)


def test_other_copies(comm):
    op = pickle.loads(pickle.dumps(copy.copy(rill.Op("larger", _larger, -np.inf))))
    x = rill.as_stream(np.ones(10, np.float32))
    assert (comm.allreduce(x, op=op).dense() == 1).all()
    reducer = rill.Reducer(comm, 10)
    request = comm.iallreduce(x)
    step = reducer.start(np.ones(10, np.float32))
    for thing, instead in (
        (comm, "create one on each rank"),
        (reducer, "save()"),
        (rill.Selector(10, k=1), "makes another"),
        (request, "its result can"),
        (step, "its result can"),
    ):
        for how in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=re.escape(instead)):
                how(thing)
    request.wait()
    step.wait()
    stats = comm.stats
    assert pickle.loads(pickle.dumps(stats)) == stats


@pytest.mark.parametrize("dim", [-1, 2**64, 2**64 + 5])
def test_dim_that_c_would_cut_off(dim):
    with pytest.raises(ValueError, match=f"dim {dim} is"):
        rill.Stream(dim)
    with pytest.raises(ValueError, match=f"dim {dim} is"):
        rill.Selector(dim, density=0.5)
    with rill.local(1)[0] as comm, pytest.raises(ValueError, match=f"dim {dim} is"):
        rill.Reducer(comm, dim)


def test_dim_that_is_no_whole_number():
    with pytest.raises(TypeError):
        rill.Stream(1.5)
    assert rill.Stream(np.int64(7)).dim == 7
    assert rill.Stream(2**64 - 1).dim == 2**64 - 1


def test_device_of_the_host():
    with pytest.raises(ValueError, match="device 3"):
        rill.Stream(5, device=3)


@pytest.mark.parametrize(
    "options",
    [dict(k=-1), dict(k=2**64), dict(seed=float("nan")), dict(threads=2**32 + 1), dict(k=1.5)],
)
def test_options_that_c_would_cut_off(options):
    name = next(iter(options))
    with rill.local(1)[0] as comm, pytest.raises(ValueError, match=f"option {name} = "):
        rill.Reducer(comm, 8, **options)
