"""rill.torch.LocalUpdates. Ranks are threads of this process (rill.local), but for one test."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import rill
import rill.torch
from rill import _codes
from rill.torch._contribution import Coding
from rill.torch._tiles import Layout, tiled, untiled

CHUNK, KEEP = 64, 4


@pytest.fixture(scope="module")
def alone(comm):
    if comm.size > 1:
        pytest.skip("ranks are threads")


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        made = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(20, 30, generator=made) * 0.2)
        self.last = nn.Parameter(torch.randn(30, 17, generator=made) * 0.2)
        self.bias = nn.Parameter(torch.zeros(17))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        return (x @ self.first).tanh() @ self.last + self.bias


def target(x):
    return torch.stack([x[:, :5].sum(1), x[:, 5:].sum(1)], 1).repeat(1, 9)[:, :17].sin()


def train(model, local, rank, steps, lr=0.05, seed=0):
    """The loss of each step, and what step() returned."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses, applied = [], []
    for step in range(steps):
        made = torch.Generator().manual_seed(1000 * seed + 100 * step + rank)
        x = torch.randn(16, 20, generator=made)
        optimizer.zero_grad()
        loss = (model(x) - target(x)).square().mean()
        loss.backward()
        optimizer.step()
        model.mean += rank
        losses.append(loss.item())
        applied.append(local.step())
    return losses, applied


def run(ranks, work):
    """work(comm, rank) in a thread for each rank; what they return."""
    comms, results, failures = rill.local(ranks), [None] * ranks, []

    def one(rank):
        try:
            results[rank] = work(comms[rank], rank)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)
    return results


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def made(comm, rank, **options):
    model = Net(rank)  # rank 0's are taken
    options = {"every": 3, "keep": KEEP, "chunk": CHUNK, "small": 100, "comm": comm, **options}
    return model, rill.torch.LocalUpdates(model, **options)


# ---- what is sent ----


@pytest.mark.parametrize("shape", [(64, 64), (128, 192), (70, 65), (3, 200), (130, 1)])
def test_tiles(shape):
    matrix = torch.arange(shape[0] * shape[1], dtype=torch.float32).reshape(shape)
    there = tiled(matrix, 64)
    assert torch.equal(untiled(there, *shape, 64), matrix)
    first = matrix[: min(64, shape[0]), : min(64, shape[1])]
    if shape[0] >= 64 and shape[1] >= 64:
        assert torch.equal(there[:4096], first.reshape(-1))  # a chunk is a tile


@pytest.mark.parametrize("bits", _codes.VALUE_BITS)
def test_values(bits):
    noise = np.random.default_rng(1)
    values = (noise.uniform(1, 3, 2500) * noise.choice([-1, 1], 2500)).astype(np.float32)
    coded = _codes.encode_values(values, bits)
    seen = _codes.decode_values(coded, values.size, bits)
    assert len(coded) * 8 <= values.size * (bits or 32) * 1.03
    assert np.abs(seen - values).max() <= {0: 0, 16: 0.01, 8: 0.02, 4: 0.3, 2: 1.1}[bits]
    assert _codes.decode_values(_codes.encode_values(values[:0], bits), 0, bits).size == 0


@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 1025, 5000])
def test_two_magnitudes(size):
    """Of the largest of many: all four levels are used, at less than two bits, and the error is a
    part of what one magnitude would leave. Groups without a spread, or with a huge one, are
    fine."""
    noise = np.random.default_rng(size)
    tail = ((4 + noise.exponential(1, size)) * noise.choice([-1, 1], size)).astype(np.float32)
    coded = _codes.encode_values(tail, 2)
    seen = _codes.decode_values(coded, size, 2)
    assert np.array_equal(np.signbit(seen), np.signbit(tail))
    if size >= 1023:
        assert len(np.unique(seen[:60])) == 4
        assert 8 * len(coded) < 1.65 * size + 100
        one = np.abs(tail).var()
        assert np.square(seen - tail).mean() < 0.55 * one
        halves = np.where(noise.random(size) < 0.5, 1, 3).astype(np.float32)
        assert 8 * len(_codes.encode_values(halves, 2)) < 1.65 * size + 100  # both as frequent
    for values in (
        np.zeros(size), np.full(size, -3.0), np.full(size, 3e38), np.arange(size) * 1e-44,
        np.where(np.arange(size) % 2, 1e38, 1e-38), np.arange(size) == size // 2,
    ):  # fmt: skip
        values = values.astype(np.float32)
        seen = _codes.decode_values(_codes.encode_values(values, 2), size, 2)
        assert np.isfinite(seen).all()
        assert np.abs(seen).max() <= np.abs(values).max() * 1.004 + 1e-40


def test_damaged_values_are_an_error():
    coded = _codes.encode_values(np.arange(3000, dtype=np.float32), 2)
    for wrong in (coded[:-1], coded + b"1"):
        with pytest.raises(rill.RillError):
            _codes.decode_values(wrong, 3000, 2)


def test_chunks_of_other_scales():
    """Each block has a factor of its own: the error is the same whatever the scales are."""
    noise = np.random.default_rng(3)
    tail = ((4 + noise.exponential(1, 64 * 64)) * noise.choice([-1, 1], 64 * 64)).astype(np.float32)
    scales = np.repeat(np.float32(2) ** noise.integers(-5, 3, 64), 64)
    errors = []
    for values in (tail, tail * scales):
        coded = _codes.encode_values(values, 2)
        assert 8 * len(coded) / values.size < 1.65
        seen = _codes.decode_values(coded, values.size, 2)
        errors.append(np.square((seen - values) / np.abs(values)).mean())
    assert errors[1] < 1.3 * errors[0] < 0.05


def test_the_identity_and_the_bits_of_an_entry():
    """e = decay e + D; send = Q(the largest); e = e - send, and others see what is sent."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(1024, 1024))
    layout = Layout([weight, nn.Parameter(torch.randn(10))], 4096, 4096, False)
    coding = Coding(layout, 64, 2)
    vector = layout.read(layout.parameters)
    sent = coding.encode(vector, 0, 1, torch.empty(0))
    seen = coding.decode(sent.message)
    there = torch.zeros(layout.size)
    there[seen.places], there[layout.chunked_size :] = seen.values, seen.rest
    assert torch.equal(there, sent.values)
    chunks = vector[: layout.chunked_size].view(-1, 4096).abs()
    counts = (sent.values[: layout.chunked_size].view(-1, 4096) != 0).sum(1)
    assert (counts == 64).all()
    least = torch.where(sent.values[: layout.chunked_size].view(-1, 4096) != 0, chunks, 9e9)
    most = torch.where(sent.values[: layout.chunked_size].view(-1, 4096) == 0, chunks, 0.0)
    assert (least.min(1).values >= most.max(1).values).all()
    bits = 8 * len(sent.message) / (64 * sum(layout.chunks))
    assert bits < 9.2 and 32 * layout.chunked_size / (8 * len(sent.message)) > 222


def test_small_parameters_take_few_bits_and_nothing_of_them_is_lost():
    """A layer of width 128 has so many biases and norms that they count: at 16 bits a message would
    be 1/116 of the layer."""
    torch.manual_seed(0)
    shapes = [(384, 128), (128, 128), (512, 128), (128, 512)]
    shapes += [(384,), (128,), (512,), (128,)] + 4 * [(128,)]
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    layout = Layout(parameters, 4096, 4096, False)
    coding = Coding(layout, 64, 2)
    vector = layout.read(layout.parameters)
    sent = coding.encode(vector, 0, 1, torch.tensor([3.0, 4.0]))
    seen = coding.decode(sent.message)
    assert torch.equal(seen.rest, sent.values[layout.chunked_size :])
    assert torch.equal(seen.buffers, torch.tensor([3.0, 4.0]))
    assert 4 * sum(p.numel() for p in parameters) / len(sent.message) > 200
    # What is sent is a good part of each value: in a few rounds nearly all of it has come.
    rest, came = vector[layout.chunked_size :], 0
    error = torch.zeros_like(vector)
    for number in range(12):
        error = error + (vector if number == 0 else 0)
        sent = coding.encode(error, number, 1, torch.empty(0))
        error, came = error - sent.values, came + sent.values[layout.chunked_size :]
    assert (came - rest).norm() < 0.02 * rest.norm()


def test_nothing_is_lost(alone):
    """The identity over a whole run: common weights and errors hold all that was trained."""

    def work(comm, rank):
        model, local = made(comm, rank, decay=1.0)
        begin, fed = local._parts[0].common.clone(), 0
        for _ in range(4):
            before = local._parts[0].common.clone()
            now = []
            original = local._exchange

            def seen(flight, original=original, now=now):
                now.append(flight.start)
                return original(flight)

            local._exchange = seen
            train(model, local, rank, 3)
            local._exchange = original
            fed = fed + (now[0] - before).double()
        return local._parts[0].common - begin, local._parts[0].error, fed

    results = run(3, work)
    moved = 3 * results[0][0].double()
    kept, fed = sum(r[1].double() for r in results), sum(r[2] for r in results)
    assert torch.allclose(moved + kept, fed, atol=1e-4) and kept.abs().max() > 0.01


# ---- training ----


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"average": "senders"},
        {"clip": "median"},
        {"value_bits": 0, "outer": "nesterov"},
        {"keep": None, "outer": "nesterov"},
        {"parts": 3},
    ],
    ids=lambda options: "-".join(map(str, options.values())) or "plain",
)
def test_all_go_on_from_the_same_bits(alone, options):
    def work(comm, rank):
        model, local = made(comm, rank, **options)
        assert torch.equal(flat(model), flat(Net(0)))
        losses, applied = train(model, local, rank, 30)
        commons = [part.common for part in local._parts]
        return losses, sum(applied), flat(model), commons, model.mean, local.last

    results = run(4, work)
    parts = options.get("parts", 1)
    for losses, applied, weights, commons, mean, last in results:
        assert applied == 10 * parts and np.mean(losses[-6:]) < 0.9 * np.mean(losses[:6])
        if parts == 1:
            assert torch.equal(weights, results[0][2])
        assert all(map(torch.equal, commons, results[0][3]))
        assert torch.equal(mean, results[0][4]) and mean.any()
        assert last.contributions == 4
        if parts == 1 and options.get("keep", 1):
            assert 0 < last.sent_bytes < last.dense_bytes / 4 and last.received_bytes > 0


def test_senders_and_all_differ_as_they_should(alone):
    """Two ranks that send other coordinates: "senders" applies all of an entry, "all" half."""

    def work(average):
        def one(comm, rank):
            model, local = made(
                comm, rank, average=average, every=1, value_bits=0, keep=1, chunk=16
            )
            before = model.first.detach().clone()
            with torch.no_grad():
                model.first.view(-1)[rank] += 1.0
            assert local.step()
            return (model.first.detach() - before).view(-1)[:2]

        return run(2, one)[0]

    assert torch.allclose(work("all"), torch.tensor([0.5, 0.5]), atol=1e-5)
    assert torch.allclose(work("senders"), torch.tensor([1.0, 1.0]), atol=1e-5)


def test_a_contribution_that_is_too_large(alone):
    def work(comm, rank):
        model, local = made(comm, rank, clip="median", every=1, value_bits=0, keep=CHUNK)
        before = model.first.detach().clone()
        with torch.no_grad():
            model.first.add_(1000.0 if rank == 1 else 1.0)
        assert local.step()
        return (model.first.detach() - before).mean().item()

    assert run(3, work) == [pytest.approx(1.0, rel=1e-3)] * 3


@pytest.mark.parametrize("keep", [KEEP, None])
def test_behind_training(alone, keep):
    """With a delay what is trained meanwhile stays, and nothing is lost. The exchange goes on
    without the step that ends it."""

    def work(comm, rank):
        model, local = made(comm, rank, every=6, delay=2, keep=keep)
        losses, applied = train(model, local, rank, 30)
        local.synchronize()
        local._thread._thread.join(60)
        assert local._thread._result is not None  # before anybody asks for it
        local._end()
        return losses, applied, local._parts[0].common

    results = run(3, work)
    for losses, applied, common in results:
        assert torch.equal(common, results[0][2])
        assert [i for i, good in enumerate(applied) if good] == [7, 13, 19, 25]
        assert np.mean(losses[-6:]) < 0.9 * np.mean(losses[:6])


def test_too_few_contributions(alone):
    """A rank without a finite difference gives none; with too few nothing changes."""

    def work(comm, rank):
        model, local = made(comm, rank, minimum=2)
        train(model, local, rank, 3)
        before = local._parts[0].common.clone(), local._parts[0].error.clone()
        with torch.no_grad():
            if rank > 0:
                model.first.fill_(float("nan"))
        mine = flat(model).clone()
        assert not local.synchronize() and local.last.contributions == 0
        assert torch.equal(local._parts[0].common, before[0])
        assert torch.equal(local._parts[0].error, before[1])
        assert rank or torch.equal(flat(model), mine)
        with torch.no_grad():
            if rank == 1:
                model.first.copy_(torch.zeros(20, 30))
        local._steps_of[0] = 1
        assert (local.synchronize(), local.last.contributions) == (True, 2)
        return flat(model)

    results = run(3, work)
    assert torch.isfinite(results[2]).all() and torch.equal(results[0], results[2])


def test_a_deadline(alone):
    """Nobody waits for a slow rank's last steps."""
    import time

    def work(comm, rank):
        model, local = made(comm, rank, every=1000 if rank else 1000, deadline_s=0.2)
        rounds = 0
        while rounds < 2:
            if rank:
                time.sleep(0.05)
            rounds += train(model, local, rank, 1)[1][0]
        return local.steps, flat(model)

    results = run(2, work)
    assert results[0][0] > results[1][0] and torch.equal(results[0][1], results[1][1])
    assert results[1][0] < 40


def test_parameters_of_few_bits(alone):
    """Steps of the common weights that bfloat16 can't hold add up."""

    def work(comm, rank):
        model = nn.Linear(4, 4, bias=False).to(torch.bfloat16)
        with torch.no_grad():
            model.weight.fill_(1.0)
        local = rill.torch.LocalUpdates(model, every=1, keep=None, outer_lr=0.25, comm=comm)
        for _ in range(4):
            with torch.no_grad():
                model.weight += 2**-7
            assert local.step()
        return local._parts[0].common, model.weight.detach().float()

    for common, weights in run(2, work):
        assert (common == 1 + 2**-7).all() and (weights == 1 + 2**-7).all()


# ---- checkpoints and other ranks ----


def test_checkpoints(alone):
    """Another number of ranks goes on from the same weights, and nothing is lost."""

    def first(comm, rank):
        model, local = made(comm, rank, outer="nesterov")
        train(model, local, rank, 6)
        return local.state_dict(), local._parts[0].error, flat(model)

    saved = run(3, first)
    state, kept = saved[0][0], sum(r[1] for r in saved)

    def second(comm, rank):
        model, local = made(comm, rank, outer="nesterov", parts=2)
        local.load_state_dict(state)
        start = flat(model).clone()
        again = local.state_dict()
        train(model, local, rank, 6)
        return start, again, local.rounds

    for start, again, rounds in run(2, second):
        assert torch.equal(start, saved[0][2]) and rounds > 2
        for kind in ("common", "error", "velocity"):
            for name, part in state[kind].items():
                assert torch.allclose(again[kind][name], part, atol=1e-6), (kind, name)
    assert kept.any() and state["rounds"] == 2


def test_a_rank_that_is_behind_catches_up(alone):
    first, later = rill.local(2), rill.local(3)

    def work(comm, rank):
        if rank < 2:
            model, local = made(first[rank], rank)
            train(model, local, rank, 6)
        else:
            model, local = made(rill.local(1)[0], rank)
        local.move(later[rank])
        start = flat(model).clone()
        train(model, local, rank, 3)
        return start, flat(model), local.rounds

    results = run(3, work)
    assert torch.equal(results[2][0], results[0][0])
    assert all(torch.equal(r[1], results[0][1]) and r[2] == 3 for r in results)


def test_one_more_dies_while_they_meet(alone):
    """Rank 1 has not completed a round that rank 0 has. It takes all of it, or nothing."""
    comms = rill.local(2)

    def work(_, rank):
        model, local = made(comms[rank], rank, outer="nesterov", value_bits=0)
        train(model, local, rank, 3)
        before = local._parts[0].common.clone(), local._parts[0].velocity.clone()
        exchange, tell, fails = local._exchange, comms[rank]._bcast_bytes, [rank == 1, True]

        def broken(flight):
            done = exchange(flight)
            if fails[0]:
                fails[0] = False
                raise rill.PeerError(-12, "rank 2 is gone")
            return done

        def silent(memory, root):
            if fails[1]:
                fails[1] = False
                raise rill.PeerError(-12, "rank 3 is gone")
            assert local.rounds == 2 - rank
            if rank == 1:
                assert torch.equal(local._parts[0].common, before[0])
                assert torch.equal(local._parts[0].velocity, before[1])
            tell(memory, root)

        local._exchange, comms[rank]._bcast_bytes = broken, silent
        comms[rank].shrink = lambda: comms[rank]
        applied = train(model, local, rank, 3)[1]
        if rank == 0:
            local._meet()
        assert not any(fails) and applied == [False, False, True]
        assert (local.rounds, local.last.number, local.last.contributions) == (2, 1, 2)
        return flat(model), local._parts[0].velocity

    results = run(2, work)
    assert all(map(torch.equal, *results))


def test_on_the_ranks_of_the_job(comm):
    model, local = made(comm, comm.rank)
    losses, applied = train(model, local, comm.rank, 9)
    assert applied == [False, False, True] * 3
    assert len(set(comm.mpi.allgather(flat(model).numpy().tobytes()))) == 1


def test_bad_arguments(comm):
    for options in (
        {"keep": 100}, {"value_bits": 3}, {"average": "some"}, {"outer": "adam"}, {"delay": 3},
        {"parts": 9}, {"minimum": 99}, {"clip": "mean"}, {"keep": None, "clip": "median"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(reversed(options))):
            made(comm, 0, **options)


@pytest.mark.usefixtures("process_group")
def test_a_model_that_exchanges_every_gradient(comm):
    ddp = nn.parallel.DistributedDataParallel(Net())
    if comm.size == 1:
        rill.torch.LocalUpdates(ddp, comm=comm)
        return
    with pytest.raises(ValueError, match="give the model itself"):
        rill.torch.LocalUpdates(ddp, comm=comm)
