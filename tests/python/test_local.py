"""rill.local: ranks in one process, in threads and in one thread, without MPI."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import rill

pytestmark = pytest.mark.once


def vector(rank, dim=500):
    x = np.zeros(dim, np.float32)
    x[rank::7] = rank + 1
    return x


def in_threads(comms, body):
    """body(comm) in a thread each; what they return, by rank."""
    results = [None] * len(comms)

    def run(rank):
        try:
            results[rank] = body(comms[rank])
        except Exception as error:  # noqa: BLE001
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(comms))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("n", [1, 2, 5])
def test_threads(n):
    comms = rill.local(n)
    assert [comm.rank for comm in comms] == list(range(n))
    assert all(comm.size == n for comm in comms)
    expected = sum(vector(rank) for rank in range(n))
    for algorithm in ("auto", "dense", "recursive_double", "split_allgather", "ring"):
        sums = in_threads(
            comms, lambda comm: comm.allreduce(vector(comm.rank), algorithm=algorithm).dense()
        )  # noqa: B023
        for total in sums:
            np.testing.assert_array_equal(total, expected)
    in_threads(comms, lambda comm: comm.free())
    assert all(comm.freed for comm in comms)


def test_one_thread():
    comms = rill.local(4)
    expected = sum(vector(rank) for rank in range(4))
    for _ in range(3):
        requests = [comm.iallreduce(vector(comm.rank)) for comm in comms]
        np.testing.assert_array_equal(
            requests[2].wait().dense(), expected
        )  # it advances the others, too
        for total in rill.waitall(requests):
            np.testing.assert_array_equal(total.dense(), expected)
    requests = [comm.iallreduce(vector(comm.rank)) for comm in comms]
    while not requests[0].test():
        pass
    rill.waitall(requests)
    for comm in reversed(comms):
        comm.free()


def test_reducer():
    comms = rill.local(3)

    def body(comm):
        reducer = rill.Reducer(comm, 500, algorithm="spardl", density=0.05)
        update = [np.array(reducer.step(vector(comm.rank))) for _ in range(3)][-1]
        reducer.free()
        return update

    updates = in_threads(comms, body)
    for update in updates:
        np.testing.assert_array_equal(update, updates[0])
    assert np.count_nonzero(updates[0])
    for comm in comms:
        comm.free()


def test_who_leaves_is_missed():
    comms = rill.local(3)
    comms[1].free()
    request = comms[0].iallreduce(vector(0))
    with pytest.raises(rill.RillError, match="rank 1 frees the communicator"):
        request.wait()
    comms[0].free()
    comms[2].free()


def test_errors():
    with pytest.raises(rill.RillError, match="n = 0"):
        rill.local(0)
    comms = rill.local(2)
    results = in_threads(comms, lambda comm: comm.allreduce(vector(comm.rank, 500 + comm.rank)))
    assert all(isinstance(result, rill.RillError) for result in results)
    results = in_threads(comms, lambda comm: comm.free())
    assert results == [None, None]
    comms = rill.local(2)
    results = in_threads(
        comms, lambda comm: comm.allreduce(vector(comm.rank), algorithm="dense", value_bits=8)
    )
    assert all(result.name == "UNSUPPORTED" for result in results)


@pytest.mark.parametrize(
    "settings",
    [
        dict(learn="on"),
        dict(learn=None, check=None, timeout_s=None),
        dict(learn="frozen", check=True, split_limit=4096, timeout_s=60, minority=False),
    ],
)
def test_settings(settings):
    comms = rill.local(2, **settings)
    sums = in_threads(comms, lambda comm: comm.allreduce(vector(comm.rank)).dense())
    np.testing.assert_array_equal(sums[1], vector(0) + vector(1))
    in_threads(comms, lambda comm: comm.free())


def test_every_setting_is_a_keyword():
    of_config = {s.name for s in rill.settings() if "rill_config" in s.structs}
    assert of_config >= {"check", "learn", "timeout_s"}
    for name in of_config:
        rill.local(1, **{name: None})[0].free()


WRONG_SETTINGS = [
    (dict(learn="perhaps"), rill.RillError, "setting learn = 'perhaps' is none of auto, on"),
    (dict(learn=1), TypeError, "option learn = 1 has the wrong type"),
    (dict(lern="on"), TypeError, "communicators have no option 'lern', did you mean 'learn'"),
    (dict(check=7), rill.RillError, "setting check = 7 is neither 0 nor 1"),
    (dict(check="yes"), TypeError, "option check = 'yes' has the wrong type"),
    (dict(timeout_s=0.5), ValueError, "timeout_s = 0.5: must be a whole number"),
    (dict(split_limit=2**64), ValueError, "split_limit"),
]


@pytest.mark.parametrize("settings, kind, text", WRONG_SETTINGS)
def test_wrong_settings(settings, kind, text):
    for create in (rill.local, lambda n, **given: rill.Comm.ucx(0, n, lambda m: [m], **given)):
        with pytest.raises(kind, match=text):
            create(1, **settings)


def test_what_is_no_communicator():
    """Also where there is no mpi4py, whose name in the message would lead astray."""
    for wrong in (3, "world", rill.local):
        with pytest.raises(TypeError, match=f"comm is of type {type(wrong).__name__}"):
            rill.Comm(wrong)
        with pytest.raises(TypeError, match="a rill.Comm is needed"):
            rill.Reducer(wrong, 10)
    for number in (2.5, "4"):
        with pytest.raises(TypeError, match="integer"):
            rill.local(number)


def test_a_setting_is_no_option_of_a_call():
    comm = rill.local(1)[0]
    with pytest.raises(TypeError, match="no option 'learn'.*rill.Comm"):
        comm.allreduce(vector(0), learn="on")
    comm.free()


def test_without_mpi():
    """Neither mpi4py nor MPI_Init; and a thousand ranks fit."""
    program = """
import sys, rill, numpy as np
comms = rill.local(1000)
requests = [comm.iallreduce(np.eye(1, 64, comm.rank % 64, dtype=np.float32)[0]) for comm in comms]
total = rill.waitall(requests)[-1].dense()
assert total.sum() == 1000, total
assert "mpi4py" not in sys.modules
for comm in comms:
    comm.free()
print("fine")
"""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PMI_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=110,
    )
    assert done.stdout.strip() == "fine", done.stderr


def test_what_an_installation_says():
    """python -m rill"""
    from rill.__main__ import lines

    said = "\n".join(lines())
    assert rill.__version__ in said and rill._library.lib._name in said
    assert "oktopk" in said and "elias_fano" in said and rill.isa() in said
