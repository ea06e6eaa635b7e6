"""rill.torch.LocalUpdates. Ranks are threads of this process (rill.local), but for one test."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import rill
import rill.torch

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
    options = {"small": 100, "comm": comm, **options}
    options = {"every": 3, "keep": KEEP, "chunk": CHUNK, **options}
    return model, rill.torch.LocalUpdates(model, **options)


# ---- what is kept ----


def test_nothing_is_lost(alone):
    """The identity over a whole run: common weights and errors hold all that was trained."""

    def work(comm, rank):
        model, local = made(comm, rank, decay=1.0, average="all")
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
        {"average": "all"},
        {"clip": "median"},
        {"value_bits": 0, "outer": "nesterov", "average": "all"},
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
    assert torch.allclose(work(None), torch.tensor([1.0, 1.0]), atol=1e-5)


@pytest.mark.parametrize("average", ["all", "senders"])
def test_the_published_formulas(alone, average):
    """e = 0.95 e + D, of which the largest of each tile go; e keeps the rest; the mean is applied
    at rate 1. From scratch, with NumPy, for three ranks and seven rounds."""
    ranks, rounds, side, keep = 3, 7, 4, 3
    moves = np.random.default_rng(3).standard_normal((rounds, ranks, 8, 12)).astype(np.float32)

    def work(comm, rank):
        model = nn.Linear(12, 8, bias=False)
        nn.init.zeros_(model.weight)
        local = rill.torch.LocalUpdates(
            model, 1, keep, side * side, 0, average=average, small=2, warmup_rounds=0, comm=comm
        )
        for number in range(rounds):
            with torch.no_grad():
                model.weight += torch.from_numpy(moves[number, rank])
            assert local.step()
        return model.weight.detach().numpy()

    common, errors = np.zeros((8, 12), np.float32), np.zeros((ranks, 8, 12), np.float32)
    for number in range(rounds):
        total, senders = np.zeros((8, 12), np.float32), np.zeros((8, 12))
        for error, move in zip(errors, moves[number]):
            error *= np.float32(0.95)
            error += move
            for row in range(0, 8, side):
                for column in range(0, 12, side):
                    tile = error[row : row + side, column : column + side]
                    least = np.sort(np.abs(tile), axis=None)[-keep]
                    sent = np.where(np.abs(tile) >= least, tile, 0)
                    tile -= sent
                    total[row : row + side, column : column + side] += sent
                    senders[row : row + side, column : column + side] += sent != 0
        common += total / (ranks if average == "all" else np.maximum(senders, 1))
    for found in run(ranks, work):
        np.testing.assert_allclose(found, common, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parts", [1, 2])
def test_the_first_rounds_have_more(alone, parts):
    """16 and 4 times as many entries, two rounds of each part each. A state goes on with it."""

    def sent(local, model, rank, steps):
        found = []
        for _ in range(steps):
            begin = local._parts[local.rounds % parts].common.clone()
            train(model, local, rank, 1)
            part = local._parts[(local.rounds - 1) % parts]
            moved = (part.common != begin)[: part.layout.chunked_size].view(-1, 256)
            found.append(int(moved.sum(1).max()))
        return found

    def work(comm, rank):
        options = {"every": parts, "parts": parts, "keep": 2, "chunk": 256, "warmup_rounds": 2}
        model, local = made(comm, rank, **options)
        first = sent(local, model, rank, 3 * parts)
        state = local.state_dict()
        again, other = made(comm, rank, **options)
        other.load_state_dict(state)
        return first + sent(other, again, rank, 3 * parts)

    wanted = [n for n in (32, 32, 8, 8, 2, 2) for _ in range(parts)]
    assert run(1, work) == [wanted]


def test_a_contribution_that_is_too_large(alone):
    def work(comm, rank):
        model, local = made(comm, rank, clip="median", every=1, value_bits=0, keep=CHUNK)
        before = model.first.detach().clone()
        with torch.no_grad():
            model.first.add_(1000.0 if rank == 1 else 1.0)
        assert local.step()
        return (model.first.detach() - before).mean().item()

    assert run(3, work) == [pytest.approx(1.0, rel=1e-3)] * 3


def test_the_first_steps_have_more_rounds(alone):
    """After each step at first; the length of a round grows with the steps done. The same with a
    delay, which is as short as the round, and in a copy that goes on."""

    def rounds_of(comm, rank, **options):
        model, local = made(comm, rank, every=6, warmup_steps=24, **options)
        left, applied = [], []
        for _ in range(20):
            left.append(local.steps_left)
            applied += train(model, local, rank, 1)[1]
        state = local.state_dict()
        again, other = made(comm, rank, every=6, warmup_steps=24, **options)
        other.load_state_dict(state)
        applied += train(again, other, rank, 27)[1]
        return [step for step, good in enumerate(applied, 1) if good], left, flat(again)

    wanted = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 20 + 4, 20 + 9, 20 + 15, 20 + 21, 20 + 27]
    results = run(3, rounds_of)
    for rounds, left, _ in results:
        assert rounds == wanted
        assert left == [1] * 8 + [2, 1] * 2 + [3, 2, 1] * 2 + [4, 3]
        assert all(torch.equal(weights, results[0][2]) for _, _, weights in results)
    delayed = run(2, lambda comm, rank: rounds_of(comm, rank, delay=3)[0])
    # Nothing waits behind a round of one step; then one step, two, three.
    assert delayed[0] == delayed[1]
    assert delayed[0][:7] == [1, 2, 3, 4, 5, 6, 7] and delayed[0][7:10] == [9, 11, 14]
    in_parts = run(2, lambda comm, rank: rounds_of(comm, rank, parts=3)[0])
    assert in_parts[0] == [*range(1, 25), *range(26, 47, 2)]


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
        return flat(model), local._parts[0].velocity, model.mean

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
        {"parts": 9}, {"warmup_steps": -1}, {"minimum": 99}, {"clip": "mean"},
        {"keep": None, "clip": "median"},
        {"keep": None, "average": "senders"}, {"outer_lr": 0}, {"outer_momentum": 1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(reversed(options))):
            made(comm, 0, **options)
    for options in ({"every": "30"}, {"keep": 2.5}, {"decay": None}, {"deadline_s": "1 h"}):
        with pytest.raises(TypeError, match=f"{next(iter(options))} = .* is needed"):
            made(comm, 0, **options)
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        rill.torch.LocalUpdates(nn.ReLU(), comm=comm)


def test_ranks_with_other_parameters(comm):
    if comm.size == 1:
        return
    first = comm.rank == 0
    for model, text in (
        (nn.Linear(20, 5 if first else 6), r"parameter bias is \(5,\) of torch.float32 on rank 0"),
        (nn.Linear(*((6, 4) if first else (4, 6)), bias=False), r"is \(4, 6\) .* and \(6, 4\)"),
        (nn.Linear(4, 4, bias=first), "bias is .* and None on rank 1"),
        (nn.Linear(4, 4).requires_grad_(first), "float32, frozen on rank 1|no parameters to train"),
    ):
        with pytest.raises(ValueError, match=text):
            rill.torch.LocalUpdates(model, comm=comm)


@pytest.mark.usefixtures("process_group")
def test_a_model_that_exchanges_every_gradient(comm):
    ddp = nn.parallel.DistributedDataParallel(Net())
    if comm.size == 1:
        rill.torch.LocalUpdates(ddp, comm=comm)
        return
    with pytest.raises(ValueError, match="give the model itself"):
        rill.torch.LocalUpdates(ddp, comm=comm)
