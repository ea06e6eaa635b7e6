import gc
import threading

import numpy as np
import pytest

import rill

DIM = 1000


def contribution(rank):
    """A few entries of its own, and one that all have; small whole numbers, so that sums are
    exact."""
    x = np.zeros(DIM, np.float32)
    x[rank * 7 : rank * 7 + 5] = rank + 1
    x[500] = 2
    return x


def total(comm):
    return sum(contribution(rank) for rank in range(comm.size))


@pytest.mark.parametrize("algorithm", ["auto", *rill.algorithms("allreduce")])
def test_allreduce(comm, algorithm):
    out = comm.allreduce(contribution(comm.rank), algorithm=algorithm)
    assert (out.dense() == total(comm)).all()
    assert comm.stats.elapsed_s >= 0 and (algorithm == "auto" or comm.stats.algorithm == algorithm)


@pytest.mark.parametrize("form", ["blocking", "non-blocking", "persistent"])
def test_every_collective_in_every_form(comm, form):
    def run(name, *args, **kwargs):
        if form == "blocking":
            return getattr(comm, name)(*args, **kwargs)
        if form == "non-blocking":
            return getattr(comm, "i" + name)(*args, **kwargs).wait()
        request = getattr(comm, name + "_init")(*args, **kwargs)
        request.start().wait()
        result = request.start().wait()
        assert request.stats.algorithm
        request.free()
        return result

    x, expected = rill.as_stream(contribution(comm.rank)), total(comm)
    assert (run("allreduce", x).dense() == expected).all()
    root = comm.size - 1
    reduced = run("reduce", x, root=root)
    assert (reduced.dense() == expected).all() if comm.rank == root else reduced is None
    part = run("reduce_scatter", x)
    mine = slice(part.first, part.first + part.count)
    assert (part.stream.dense()[mine] == expected[mine]).all()
    assert sum(comm.mpi.allgather(part.count)) == DIM
    own = rill.Stream(DIM).set_pairs([comm.rank], np.full(1, comm.rank, np.float32))
    assert run("allgather", own).to_sparse().dense()[: comm.size].tolist() == list(range(comm.size))
    sent = rill.as_stream(contribution(root)) if comm.rank == root else rill.Stream(DIM)
    assert (run("bcast", sent, root=root).dense() == contribution(root)).all()


def test_requests_keep_their_buffers(comm):
    requests = [comm.iallreduce(rill.as_stream(contribution(comm.rank))) for _ in range(5)]
    gc.collect()
    assert all((out.dense() == total(comm)).all() for out in rill.waitall(requests))
    comm.iallreduce(rill.as_stream(contribution(comm.rank)))  # dropped at once, and still under way
    gc.collect()
    assert comm._under_way
    assert (comm.iallreduce(contribution(comm.rank)).wait().dense() == total(comm)).all()
    for pending in list(comm._under_way):
        pending.wait()
    assert not comm._under_way


def test_waitany_and_test(comm):
    requests = [comm.iallreduce(contribution(comm.rank)) for _ in range(2)]
    assert rill.waitany(requests) in (0, 1)
    while not all(request.test() for request in requests):
        comm.progress()
    assert not comm._under_way


def test_steps_are_requests(comm):
    options = {"algorithm": "gtopk", "density": 0.1}
    reducer, twin = (rill.Reducer(comm, DIM, **options) for _ in range(2))
    for number in range(4):
        gradient = contribution(comm.rank + number).astype(np.float32)
        expected, update = twin.step(gradient.copy()), np.empty(DIM, np.float32)
        pending = [reducer.start(gradient, update), comm.iallreduce(contribution(comm.rank))]
        if number % 2:
            assert rill.waitall(pending)[0] is update
        else:
            first = rill.waitany(pending)
            assert first in (0, 1)
            pending[1 - first].wait()
        assert (update == expected).all()
        assert (pending[1].wait().dense() == total(comm)).all()
        assert not comm._under_way
    reducer.free()
    twin.free()


def test_other_operations(comm):
    x = np.full(DIM, comm.rank + 1, np.float64)
    for op, value in (
        ("min", 1),
        ("max", comm.size),
        ("prod", np.prod(np.arange(1, comm.size + 1))),
    ):
        assert (comm.allreduce(x, op=op).dense() == value).all()
    larger = rill.Op("larger", lambda a, b: np.where(np.abs(a) > np.abs(b), a, b), 0.0)
    assert (comm.allreduce(-x, op=larger).dense() == -comm.size).all()


def test_an_exception_in_an_operation(comm):
    def fails(a, b):
        raise ZeroDivisionError("in op")

    op = rill.Op("fails", fails, 0.0)
    x = rill.Stream(10).set_pairs([1], np.ones(1, np.float32))
    if comm.size == 1:
        return
    raised = ""
    with rill.Comm() as fresh:
        try:
            fresh.allreduce(x, op=op, algorithm="recursive_double")
        except ZeroDivisionError:
            raised = "ZeroDivisionError: in op"
        except rill.RillError as error:  # ranks that only forward have it from the others
            raised = str(error)
    assert "ZeroDivisionError: in op" in raised and op.error is None


def test_unknown_names(comm):
    with rill.Comm(comm.mpi) as own:
        with pytest.raises(rill.RillError, match="bogus") as caught:
            own.allreduce(contribution(0), algorithm="bogus")
        assert caught.value.name == "UNKNOWN"
    with pytest.raises(TypeError, match="no option 'algoritm'"):
        comm.allreduce(contribution(0), algoritm="dense")
    with pytest.raises(TypeError, match="option value_bits = 'x'"):
        comm.allreduce(contribution(0), value_bits="x")
    with pytest.raises(ValueError, match="op 'mean'"):
        comm.allreduce(contribution(0), op="mean")


def test_a_mismatch_is_an_error_on_all_ranks(comm):
    if comm.size == 1:
        return
    with rill.Comm(comm.mpi, check=True) as own:
        with pytest.raises(rill.RillError) as caught:
            own.allreduce(np.ones(10 + own.rank % 2, np.float32))
        assert caught.value.name == "MISMATCH"


def test_freed(comm):
    own = rill.Comm(comm.mpi)
    request = own.allreduce_init(contribution(comm.rank))
    own.free()
    own.free()
    assert own.freed and not request._handle
    with pytest.raises(ValueError, match="freed"):
        own.allreduce(contribution(0))
    with pytest.raises(TypeError, match="mpi4py"):
        rill.Comm(3)


def test_threads_with_a_communicator_each(comm):
    comms = [rill.Comm(comm.mpi) for _ in range(3)]
    wrong = []

    def work(own):
        for _ in range(10):
            if not (own.allreduce(contribution(own.rank)).dense() == total(own)).all():
                wrong.append(own)

    threads = [threading.Thread(target=work, args=(own,)) for own in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for own in comms:
        own.free()
