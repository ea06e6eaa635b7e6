"""A forked process, such as a worker of a DataLoader, touches nothing of ours."""

import gc
import os

import numpy as np
import pytest

import rill


def in_fork(work):
    """The text that work gives or raises in a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return text


def test_calls_are_refused_and_nothing_is_freed(comm):
    reducer = rill.Reducer(comm, 100, density=0.1)
    stream = rill.as_stream(np.ones(100, np.float32))
    request = comm.iallreduce(stream)
    things = [reducer, stream, request]

    def work():
        try:
            comm.allreduce(stream)
            return "no error"
        except RuntimeError as error:
            things.clear()
            gc.collect()
            comm.free()  # does nothing here
            return error

    assert "stayed with the rank" in in_fork(work)
    assert request.wait().dense().sum() == 100 * comm.size
    assert reducer.step(np.ones(100, np.float32)).any()


def test_workers_of_a_data_loader(comm):
    torch = pytest.importorskip("torch")

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return torch.tensor([float(i)])

    reducer = rill.Reducer(comm, 8, density=0.5)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2)
    for epoch in range(2):
        total = sum(float(batch.sum()) for batch in loader)
        assert total == 28
        reducer.step(np.full(8, total, np.float32))
    assert comm.allreduce(np.ones(3, np.float32)).dense().tolist() == [comm.size] * 3
