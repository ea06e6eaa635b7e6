import numpy as np
import pytest
import torch

import rill

DIM = 2000
METHODS = ["dense", "topk", "gtopk", "oktopk", "spardl", "s2", "topk+qsgd4", "auto"]


def gradient(rank, step):
    return np.random.default_rng([rank, step]).standard_normal(DIM).astype(np.float32)


def everything(comm, updates, reducer):
    """Updates times ranks plus all residuals: must be the sum of all gradients."""
    return updates * comm.size + comm.mpi.allreduce(reducer.residual.astype(np.float64))


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_lost(comm, method):
    reducer = rill.Reducer(comm, DIM, density=0.05, **rill.method(method))
    updates, fed = np.zeros(DIM), np.zeros(DIM)
    for step in range(4):
        g = gradient(comm.rank, step)
        updates += reducer.step(g)
        fed += sum(gradient(rank, step).astype(np.float64) for rank in range(comm.size))
        assert np.allclose(everything(comm, updates, reducer), fed, atol=1e-4)
    assert reducer.stats.algorithm and reducer.stats.elapsed_s > 0
    if method in rill.algorithms("reducer"):
        assert reducer.stats.algorithm == method
    reducer.free()


def test_forms_agree(comm):
    options = dict(algorithm="gtopk", density=0.02)
    reducers = [rill.Reducer(comm, DIM, **options) for _ in range(5)]
    for step in range(3):
        g = gradient(comm.rank, step)
        expected = reducers[0].step(g.copy())
        out = np.empty(DIM, np.float32)
        kept = g.copy()
        assert reducers[1].step(g, out) is out and (out == expected).all() and (g == kept).all()
        assert (reducers[2].step_stream(g).dense() == expected).all()
        assert (reducers[3].start(torch.from_numpy(g.copy())).wait().numpy() == expected).all()
        parts = [g[:300].copy(), g[300:].copy()]
        assert (np.concatenate(reducers[4].step_tensors(parts)) == expected).all()


def test_several_under_way(comm):
    reducers = [rill.Reducer(comm, DIM, algorithm="oktopk", density=0.05) for _ in range(3)]
    gradients = [gradient(comm.rank, i) for i in range(3)]
    steps = [r.start(g) for r, g in zip(reducers, gradients)]
    steps.append(None)
    while not steps[2].test():
        pass
    assert all((gradients[i] == steps[i].wait()).all() for i in (1, 0))
    for g in gradients:
        assert len(set(comm.mpi.allgather(g.tobytes()))) == 1


def test_a_step_starts_again(comm):
    a, b = (rill.Reducer(comm, DIM, density=0.1, algorithm="gtopk") for _ in range(2))
    memory = np.empty(DIM, np.float32)
    step = None
    for i in range(3):
        memory[:] = gradient(comm.rank, i)
        step = a.start(memory) if step is None else step.start()
        assert step in comm._under_way
        with pytest.raises(rill.RillError, match="under way"):
            step.start()
        assert step.wait() is memory and step not in comm._under_way
        assert (memory == b.step(gradient(comm.rank, i))).all()


def test_accumulate(comm):
    a, b = (rill.Reducer(comm, DIM, density=0.1, algorithm="gtopk") for _ in range(2))
    micro = [np.round(gradient(comm.rank, i) * 64) for i in range(3)]
    a.accumulate(micro[0])
    a.accumulate(micro[1])
    assert (a.step(micro[2].copy()) == b.step(sum(micro))).all()


def test_scale(comm):
    reducer = rill.Reducer(comm, DIM, density=0.1, algorithm="gtopk")
    reducer.step(gradient(comm.rank, 0))
    waiting = reducer.residual.copy()
    reducer.scale(0.25)
    assert waiting.any() and (reducer.residual == waiting * 0.25).all()
    with pytest.raises(rill.RillError, match="not finite"):
        reducer.scale(float("nan"))


def test_half_types(comm):
    for dtype in (torch.float16, torch.bfloat16):
        reducer = rill.Reducer(comm, 100, dtype, k=10, algorithm="gtopk")
        g = torch.zeros(100, dtype=dtype)
        g[3] = 2
        assert reducer.step(g).tolist()[3] == 2
        with pytest.raises(TypeError, match="gradient has values of type f32"):
            reducer.start(torch.zeros(100))


def test_options(comm):
    warm = rill.Reducer(
        comm, DIM, density=0.01, warmup=[0.5, 0.1], warmup_steps=1, algorithm="gtopk"
    )
    selected = []
    for step in range(3):
        warm.step(gradient(comm.rank, step))
        selected.append(warm.stats.selected_k)
    assert selected == [1000, 200, 20]
    summed = rill.Reducer(comm, DIM, algorithm="dense", average=False)
    assert (summed.step(np.ones(DIM, np.float32)) == comm.size).all()
    with pytest.raises(TypeError, match="no option 'densty'"):
        rill.Reducer(comm, DIM, densty=1)
    with pytest.raises(ValueError, match="option k = -1"):
        rill.Reducer(comm, DIM, k=-1)
    with pytest.raises(rill.RillError, match="density"):
        rill.Reducer(comm, DIM, density=2.0)


def test_what_cannot_be_borrowed_is_an_error(comm):
    reducer = rill.Reducer(comm, 4)
    with pytest.raises(ValueError, match="gradient is not contiguous"):
        reducer.step(torch.zeros(4, 2)[:, 0])
    with pytest.raises(ValueError, match="gradient has 5 values: 4 are needed"):
        reducer.step(np.zeros(5, np.float32))
    with pytest.raises(TypeError, match="gradient has layout"):
        reducer.step(torch.zeros(4).to_sparse())
    with pytest.raises(ValueError, match="1 gradients and 0 updates"):
        reducer.step_tensors([np.zeros(4, np.float32)], [])


def test_save_and_load_go_on_bit_by_bit(comm, shared_folder):
    options = dict(algorithm="oktopk", density=0.02, value_bits=8, momentum=0.9)
    a = rill.Reducer(comm, DIM, **options)
    for step in range(3):
        a.step(gradient(comm.rank, step))
    a.save(f"{shared_folder}/reducer")
    b = rill.Reducer(comm, DIM, **options)
    b.load(f"{shared_folder}/reducer")
    assert (a.residual == b.residual).all()
    assert (a.step(gradient(comm.rank, 9)) == b.step(gradient(comm.rank, 9))).all()
    with pytest.raises(rill.RillError) as caught:
        b.load(f"{shared_folder}/absent")
    assert caught.value.name == "IO"


def test_freed_reducers(comm):
    reducer = rill.Reducer(comm, DIM)
    step = reducer.start(gradient(comm.rank, 0))
    reducer.free()
    assert step not in comm._under_way
    with pytest.raises(ValueError, match="freed"):
        reducer.step(gradient(comm.rank, 0))
