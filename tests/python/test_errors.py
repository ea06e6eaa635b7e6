"""What goes wrong in Python on one rank is an error on all: nobody waits."""

import copy
import pickle

import numpy as np
import pytest

import rill

DIM = 1000
RIGHT = np.eye(1, DIM, dtype=np.float32).ravel()


@pytest.fixture(params=[False, True], ids=["", "check"])
def fresh(comm, request):
    """After a failed call only free is promised to work."""
    with rill.Comm(check=request.param) as own:
        yield own


def last(comm):
    return comm.rank == comm.size - 1


def fails(comm, call, cause, text, here):
    """call raises cause on the rank whose fault it is, and on the others, those of ``here``, an
    error that names it."""
    if last(comm):
        with pytest.raises(cause, match=text):
            call()
    elif here:
        with pytest.raises(
            rill.RillError, match=rf"rank {comm.size - 1}: .*{cause.__name__}: .*{text}"
        ):
            call()
    else:
        call()


@pytest.mark.parametrize("form", ["", "i"])
@pytest.mark.parametrize("name", ["allreduce", "reduce_scatter", "allgather", "reduce", "bcast"])
def test_a_wrong_argument(fresh, name, form):
    wrong = last(fresh)
    given = (
        np.ones(4, int)
        if wrong
        else rill.as_stream(RIGHT if fresh.rank == 0 or name != "allgather" else RIGHT * 0)
    )
    if name == "bcast" and wrong:
        given = None

    def call():
        root = {"root": fresh.size - 1} if name in ("reduce", "bcast") else {}
        made = getattr(fresh, form + name)(given, **root)
        return made.wait() if form else made

    # Who only sends to the root may be through before it fails.
    cause, text = (
        (TypeError, "needs a rill.Stream")
        if name == "bcast"
        else (TypeError, "int64 is not supported")
    )
    if name == "reduce" and not wrong:
        try:
            call()
        except rill.RillError as error:
            assert text in str(error)
        return
    fails(fresh, call, cause, text, True)


@pytest.mark.parametrize("what", ["option", "out", "op"])
def test_other_wrong_arguments(fresh, what):
    wrong = last(fresh)
    out = "no stream" if wrong and what == "out" else None
    options = {"no_such_option": 1} if wrong and what == "option" else {}
    op = "most" if wrong and what == "op" else "sum"
    cause, text = {
        "option": (TypeError, "no_such_option"),
        "out": (TypeError, "out is of type str"),
        "op": (ValueError, "'most' is none of"),
    }[what]
    fails(fresh, lambda: fresh.allreduce(RIGHT, out, op, **options), cause, text, True)


def test_an_error_of_the_library_on_one_rank_alone(fresh):
    class Wrong(rill.Stream):
        def _change(self, keep=True):
            return self.copy().set_pairs([DIM], np.ones(1, np.float32))._handle

    out = Wrong(DIM) if last(fresh) else None
    with pytest.raises(
        rill.RillError, match="1000" if last(fresh) else rf"rank {fresh.size - 1}: .*1000"
    ):
        fresh.allreduce(RIGHT, out)


def test_a_persistent_call_that_cannot_start(comm):
    if comm.size == 1:
        pytest.skip("nothing is under way for long")
    with rill.Comm(check=False) as fresh:
        x, out, other = rill.as_stream(RIGHT), rill.Stream(DIM), rill.Stream(DIM)
        request = fresh.allreduce_init(x, out)
        assert request.start().wait() is out
        kept = out.values
        if last(fresh):
            pending = fresh.iallreduce(x, out)  # out is in use twice
            with pytest.raises(BufferError, match="under way"):
                request.start()
            comm.mpi.Barrier()
        else:
            comm.mpi.Barrier()  # before that, the last rank's call can't be complete
            pending = fresh.iallreduce(x, other)
            with pytest.raises(rill.RillError, match="BufferError"):
                request.start().wait()
        pending.wait()
        assert kept.sum() == comm.size


@pytest.mark.parametrize("algorithm", rill.algorithms("allreduce"))
def test_an_operation_that_fails_on_one_rank(comm, algorithm):
    raised = []

    def largest(a, b):
        if last(comm) and comm.size > 1:
            raised.append(True)
            raise ZeroDivisionError("in the operation")
        return np.maximum(a, b)

    op = rill.Op("largest", largest, -np.inf)
    with rill.Comm() as fresh:
        x = rill.as_stream(np.full(DIM, fresh.rank + 1, np.float32))
        try:
            out = fresh.allreduce(x, op=op, algorithm=algorithm)
            # Whoever needs nothing of that rank has the right result.
            assert not raised
            assert (out.dense() == comm.size).all()
        except ZeroDivisionError:
            assert raised and op.error is None
        except rill.RillError as error:
            if error.name == "UNSUPPORTED":
                pytest.skip(f"{algorithm} does not take such operations")
            assert not raised and "ZeroDivisionError: in the operation" in str(error)


def test_an_operation_that_fails_in_a_sum():
    def bad(a, b):
        raise ZeroDivisionError("in the operation")

    op = rill.Op("bad", bad, 0.0)
    x = rill.as_stream(RIGHT)
    with pytest.raises(ZeroDivisionError):
        x.add(rill.as_stream(RIGHT), op)
    with pytest.raises(ZeroDivisionError):
        rill.sum_streams([rill.as_stream(RIGHT), rill.as_stream(RIGHT)], op)
    with pytest.raises(
        rill.RillError, match="sparse nnz|dimension|4"
    ):  # and the next failure has its own text
        x.add(rill.Stream(4))


STEPS = {
    "step": lambda r, g: r.step(g),
    "start": lambda r, g: r.start(g).wait(),
    "step_stream": lambda r, g: r.step_stream(g),
    "start_stream": lambda r, g: r.start_stream(g).wait(),
    "step_tensors": lambda r, g: r.step_tensors([g[:10], g[10:]]),
    "start_tensors": lambda r, g: r.start_tensors([g[:10], g[10:]]).wait(),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("algorithm", ["oktopk", "gtopk", "split_allgather", "dense"])
def test_a_wrong_gradient(fresh, step, algorithm):
    reducer = rill.Reducer(fresh, DIM, density=0.1, algorithm=algorithm)
    gradient = np.ones(DIM, np.float64 if last(fresh) else np.float32)
    fails(fresh, lambda: STEPS[step](reducer, gradient), TypeError, "f32 is needed", True)


@pytest.mark.parametrize(
    "options,cause,text",
    [
        ({"dtype": int}, TypeError, "not supported"),
        ({"dim": -1}, ValueError, "-1 is negative"),
        ({"density": "much"}, TypeError, "wrong type"),
        ({"densty": 0.1}, TypeError, "no option 'densty'"),
    ],
)
def test_a_reducer_that_cannot_be_made(fresh, options, cause, text):
    given = {"dim": DIM, "density": 0.1, **(options if last(fresh) else {})}
    fails(fresh, lambda: rill.Reducer(fresh, **given), cause, text, True)


@pytest.mark.parametrize("call", ["save", "load"])
def test_a_path_that_is_none(fresh, call):
    reducer = rill.Reducer(fresh, DIM, density=0.1)
    path = 3.5 if last(fresh) else "/nowhere/at/all"
    fails(
        fresh,
        lambda: getattr(reducer, call)(path),
        TypeError,
        "expected str, bytes or os.PathLike",
        True,
    )


def test_a_text_of_any_kind_and_length(comm):
    class Odd(rill.Stream):
        def _change(self, keep=True):
            raise ValueError("é%s" * 1000)

    with rill.Comm() as fresh:
        with pytest.raises((ValueError, rill.RillError), match="é%s"):
            fresh.allreduce(RIGHT, Odd(DIM) if last(fresh) else None)


@pytest.mark.parametrize("call,path", [("save", "/dev/null/x"), ("load", "/nowhere/at/all")])
def test_a_checkpoint_of_one_rank(comm, call, path, tmp_path):
    torch = pytest.importorskip("torch")
    import rill.torch

    with rill.Comm() as fresh:
        state = rill.torch.State("topk", module=torch.nn.Linear(4, 4), comm=fresh)
        if call == "save":  # rank 0 makes the folder
            with pytest.raises(
                NotADirectoryError if fresh.rank == 0 else rill.RillError, match="Not a directory"
            ):
                state.save(path)
        else:
            own = comm.mpi.bcast(str(tmp_path))
            state.save(own)
            missing = fresh.rank == fresh.size - 1
            with pytest.raises(
                FileNotFoundError if missing else rill.RillError, match="FileNotFound|No such file"
            ):
                state.load(path if missing else own)


def test_a_tensor_that_cannot_be_summed(fresh):
    torch = pytest.importorskip("torch")
    import rill.torch

    tensor = torch.ones(3, dtype=torch.int64 if last(fresh) else torch.float32)
    fails(fresh, lambda: rill.torch.allreduce(tensor, comm=fresh), TypeError, "int64", True)


def test_a_state_is_not_copied(comm):
    torch = pytest.importorskip("torch")
    import rill.torch

    state = rill.torch.State("topk", module=torch.nn.Linear(4, 4), comm=comm)
    for how in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="state_dict"):
            how(state)
