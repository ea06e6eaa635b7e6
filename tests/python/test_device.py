"""Device memory without a device: librill_cuda emulated, where a pointer to the device is one to
the host, so that tensors of the host can pose as tensors of a device. cuda_ddp.py has the real
thing."""

import ctypes
import os
import pathlib
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_ddp import batch, flat, network, same_on_all_ranks, train, wrapped
from torch import nn

import rill
import rill.torch
from rill import _buffers, _library, _stream
from rill.torch import _device

BUILD = pathlib.Path(_library.lib._name).resolve().parents[1]
EMULATED = BUILD / "tests" / "cuda" / "librill_cuda_emulated.so"
if EMULATED.exists():
    os.environ.setdefault("RILL_CUDA_LIBRARY", str(EMULATED))


class Device:
    """An array of the device, as CuPy has it."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "version": 3,
        }


def missing():
    """What keeps librill from working in device memory here."""
    [own] = rill.local(1, progress_thread=True)
    try:
        reducer = rill.Reducer(own, 8, density=0.5, memory="cuda")
        reducer.start_on(Device(np.ones(8, np.float32))).wait()
        return None
    except rill.RillError as error:
        if error.name != "UNSUPPORTED":
            raise
        return str(error)
    finally:
        own.free()


WHY = missing()
pytestmark = [
    pytest.mark.usefixtures("process_group"),
    pytest.mark.skipif(WHY is not None, reason=str(WHY)),
]
METHODS = ["dense", "topk", "oktopk", "spardl", "gtopk", "topk+qsgd4"]


class Posing(_device.Cuda):
    """In the part of PyTorch's CUDA: the legacy stream, whose work is done at once."""

    def device(self, tensor):
        return tensor.device

    def number(self, device):
        return 0

    def stream(self, device):
        return 0

    def spoil(self, tensor):
        tensor.fill_(float("nan"))

    def future(self, device):
        return torch.futures.Future()

    def tensor(self, array, kind, device):
        return torch.from_numpy(seen(array)).view(rill.torch._tensors.torch_dtype(kind))


@pytest.fixture
def posing(monkeypatch):
    for module in (_buffers, _stream):
        monkeypatch.setattr(module, "device_number", lambda tensor: 0)
    for name in ("device", "number", "stream", "spoil", "future", "tensor"):
        monkeypatch.setattr(_device.runtime, name, getattr(Posing(), name))


def seen(array):
    """A copy of memory of the device."""
    memory = (ctypes.c_ubyte * (array.size * array.dtype.itemsize)).from_address(array.address)
    return np.frombuffer(bytearray(memory), array.dtype)


# ---- streams, selectors, reducers ----


def test_streams(comm):
    values = np.zeros(500, np.float32)
    values[[3, 77, 400]] = [1, -2, 3]
    there = rill.as_stream(Device(values))
    assert there.memory == "cuda" and "cuda" in repr(there)
    here = there.to("host")
    assert here.indices.tolist() == [3, 77, 400] and here.values.tolist() == [1, -2, 3]
    assert there.dense().tolist() == values.tolist()
    back = here.to("cuda")
    assert seen(back.values).tolist() == [1, -2, 3] and seen(back.indices).tolist() == [3, 77, 400]
    out = np.empty(500, np.float32)
    back.dense(Device(out))
    assert out.tolist() == values.tolist()
    with pytest.raises(TypeError, match="memory of the host"):
        there.set_dense(values)
    with pytest.raises(TypeError, match="on a CUDA device"):
        here.set_dense(Device(values))


def test_a_selector(comm):
    values = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    here = rill.Selector(5000, density=0.01, method="topk").select(values)
    there = rill.Selector(5000, density=0.01, method="topk", memory="cuda").select(Device(values))
    assert there.memory == "cuda"
    assert there.to("host").dense().tolist() == here.dense().tolist()


@pytest.mark.parametrize("form", ["step", "step_on", "start_on", "start"])
@pytest.mark.parametrize("method", METHODS)
def test_reducers_give_the_bits_of_the_host(comm, method, form):
    dim, density = 3001, {} if method == "dense" else {"density": 0.02}
    with rill.Comm(progress_thread=True) as own:
        here = rill.Reducer(own, dim, **rill.method(method), **density)
        there = rill.Reducer(own, dim, **rill.method(method), **density, memory="cuda")
        noise = np.random.default_rng(comm.rank)
        for _ in range(4):
            gradient = noise.normal(size=dim).astype(np.float32)
            device = gradient.copy()
            here.step(gradient)
            if form == "step":
                there.step(Device(device))
            elif form == "start":
                there.start(Device(device)).wait()
            elif form == "start_on":
                there.start_on(Device(device)).wait()
            else:
                there.step_on(Device(device)).wait()
            assert device.tobytes() == gradient.tobytes()
            if method != "dense":
                assert seen(there.residual).tobytes() == here.residual.tobytes()
            assert there.stats.selected_k == here.stats.selected_k


def test_steps_queue_up(comm):
    dim = 2000
    with rill.Comm(progress_thread=True) as own:
        options = {"density": 0.05, "algorithm": "oktopk"}
        here = [rill.Reducer(own, dim, **options) for _ in range(3)]
        there = [rill.Reducer(own, dim, **options, memory="cuda") for _ in range(3)]
        noise = np.random.default_rng(comm.rank)
        inputs = noise.normal(size=(3, 4, dim)).astype(np.float32)
        expected = inputs.copy()
        for step in range(4):
            for reducer, gradients in zip(here, expected):
                reducer.step(gradients[step])
        steps = []
        for step in range(4):
            for reducer, gradients in zip(there, inputs):
                steps.append(reducer.start_on(Device(gradients[step])))
        for step in steps:
            step.wait()
        assert inputs.tobytes() == expected.tobytes()


def test_a_failure_that_comes_late(comm):
    """An argument of one rank that does not fit is found before; one that ranks differ in is
    not."""
    if comm.size == 1:
        pytest.skip("nobody differs")
    with rill.Comm(progress_thread=True) as own:
        reducer = rill.Reducer(own, 100, density=0.1, algorithm="split_allgather", memory="cuda")
        if own.rank == 0:
            other = rill.Stream(7)
            with pytest.raises(rill.RillError):
                own.allreduce(other)
        else:
            with pytest.raises(rill.RillError):
                reducer.step_on(Device(np.ones(100, np.float32))).wait()


def test_what_does_not_fit(comm):
    with rill.Comm(progress_thread=True) as own:
        reducer = rill.Reducer(own, 10, density=0.5, memory="cuda")
        with pytest.raises((TypeError, rill.RillError), match="memory of the host"):
            reducer.step(np.ones(10, np.float32))
    with pytest.raises(ValueError, match="memory 'gpu' is none of host, cuda"):
        rill.Stream(3, memory="gpu")


# ---- DistributedDataParallel ----


def trained(method, steps=8, **options):
    model = network()
    state = rill.torch.State(method, density=0.05, module=model, **options)
    ddp = wrapped(state, model)
    losses = train(ddp, state.comm.rank, steps)
    return model, state, ddp, losses


@pytest.mark.parametrize("method", METHODS)
def test_ddp_gives_the_weights_of_the_host(comm, posing, monkeypatch, method):
    quick = os.environ.get("RILL_TEST_SIZE") == "quick"
    if quick and comm.size > 1 and method not in ("topk", "spardl"):
        pytest.skip("long: many ranks pose as devices")
    ours, state, ddp, losses = trained(method)
    assert all(group.device is not None for _, group in state._all_groups())
    assert len(state._all_groups()) > 1 and state.stats
    assert same_on_all_ranks(comm, ddp)
    monkeypatch.undo()
    theirs, other, _, expected = trained(method)
    assert all(group.device is None for _, group in other._all_groups())
    assert flat(ours).numpy().tobytes() == flat(theirs).numpy().tobytes()
    assert losses == expected


@pytest.mark.parametrize("small,rules", [(300, None), (0, {"*.bias": "dense"})])
def test_rules_and_small_parameters(comm, posing, small, rules):
    model, state, ddp, _ = trained("oktopk", small=small, rules=rules)
    assert {s.algorithm for s in state.stats} == {"oktopk", "dense"}
    assert same_on_all_ranks(comm, ddp)


def test_a_void_step_is_void_as_a_whole(comm, posing):
    model, state, ddp, _ = trained("topk", steps=3)
    before = state.state_dict()["residuals"]
    weights = flat(model)
    ddp.zero_grad()
    x, y = batch(comm.rank, 9)
    loss = nn.functional.cross_entropy(ddp(x), y)
    if comm.rank == comm.size - 1:  # one bucket alone
        last = list(model.parameters())[-1]
        last.register_hook(lambda gradient: gradient * float("nan"))
    loss.backward()
    assert all(p.grad.isnan().all() for p in model.parameters())
    state.wait()
    assert any(s.voided for s in state.stats) and not all(s.voided for s in state.stats)
    after = state.state_dict()["residuals"]
    assert all(part.isfinite().all() for part in after.values())
    assert before.keys() == after.keys() and torch.equal(weights, flat(model))


def test_checkpoints(comm, posing, shared_folder):
    model, state, ddp, _ = trained("gtopk")
    state.save(shared_folder)
    residuals = state.state_dict()["residuals"]
    fresh = rill.torch.State("gtopk", density=0.05, module=model)
    fresh.load(shared_folder)
    assert all(group.device is not None for _, group in fresh._all_groups())
    again = fresh.state_dict()["residuals"]
    assert all(torch.equal(residuals[name], again[name]) for name in residuals)
    train(wrapped(fresh, model), comm.rank, 2)
    assert fresh.steps == state.steps + 2


def test_residuals_follow_a_scaler(comm, posing):
    scale = [1.0]
    model, state, ddp, _ = trained("topk", steps=3)
    state.follow(SimpleNamespace(get_scale=lambda: scale[0]))
    train(ddp, comm.rank, 1)
    before = state.state_dict()["residuals"]
    scale[0] = 4.0
    state._follow()
    after = state.state_dict()["residuals"]
    assert all(torch.allclose(4 * before[name], after[name]) for name in before)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.left, self.right, self.out = nn.Linear(20, 50), nn.Linear(20, 50), nn.Linear(50, 5)

    def forward(self, x, left):
        return self.out((self.left if left else self.right)(x))


def test_unused_parameters(comm, posing):
    model = Branches()
    state = rill.torch.State("topk", density=0.1, module=model)
    ddp = wrapped(state, model, find_unused_parameters=True)
    x = batch(comm.rank, 0)[0]
    for left in (True, False, True):
        ddp(x, left).square().sum().backward()
        ddp.zero_grad(set_to_none=True)
    before = state.state_dict()["residuals"]["right.weight"]
    ddp(x, True).square().sum().backward()
    after = state.state_dict()["residuals"]["right.weight"]
    assert model.right.weight.grad is None and before.any()
    assert torch.allclose(before, after, atol=1e-5)


@pytest.mark.parametrize("overlap", ["auto", "step"])
def test_the_optimizer(comm, posing, monkeypatch, overlap):
    def weights():
        model = network()
        optimizer = rill.torch.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            model.named_parameters(),
            "oktopk",
            density=0.05,
            overlap=overlap,
        )
        for step in range(5):
            x, y = batch(comm.rank, step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        optimizer.wait()
        places = {group.device is not None for _, group in optimizer._all_groups()}
        return flat(model).numpy().tobytes(), places

    ours, places = weights()
    assert places == {True}
    monkeypatch.undo()
    assert weights() == (ours, {False})


def test_without_device_memory_gradients_are_staged(comm, posing, monkeypatch):
    def refuse(*_args, **_options):
        raise rill.RillError(-4, "librill_cuda is not there")

    monkeypatch.setattr(_device, "Stream", refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monkeypatch.setattr(_buffers, "device_number", lambda tensor: None)
        _, state, ddp, _ = trained("oktopk", steps=3)
    said = [str(w.message) for w in caught if "librill_cuda is not there" in str(w.message)]
    assert len(said) == (comm.rank == 0)
    assert all(group.device is None for _, group in state._all_groups())
    assert same_on_all_ranks(comm, ddp)
