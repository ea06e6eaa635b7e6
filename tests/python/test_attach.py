"""rill.torch.attach on DistributedDataParallel: the one line, with all that people train with."""

import logging
import warnings

import pytest
import torch
import torch.distributed as dist
from test_ddp import batch, flat, same_on_all_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import rill
import rill.torch

pytestmark = pytest.mark.usefixtures("process_group")
DENSITY = 0.05


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 60), nn.Tanh(), nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 5)
    )


def made(model=None, **options):
    cap = 2 if hasattr(model, "_orig_mod") else 0.01  # torch.compile wants no small ones
    return DistributedDataParallel(
        network() if model is None else model, bucket_cap_mb=cap, **options
    )


def loss_of(ddp, rank, step):
    x, y = batch(rank, step)
    return nn.functional.cross_entropy(ddp(x), y)


def train(ddp, rank, optimizer, steps=3, first=0):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss_of(ddp, rank, step).backward()
        optimizer.step()


def sgd(ddp, **options):
    return torch.optim.SGD(ddp.parameters(), **{"lr": 0.1, **options})


# ---- the line, its defaults, and its end ----


def test_it_is_the_state_by_hand(comm):
    one, other = made(), made()
    state = rill.torch.attach(one, "oktopk", DENSITY, small=100, warmup_steps=0, follow=False)
    by_hand = rill.torch.State("oktopk", density=DENSITY, small=100, module=other)
    other.register_comm_hook(by_hand, rill.torch.hook)
    train(one, comm.rank, sgd(one))
    train(other, comm.rank, sgd(other))
    assert torch.equal(flat(one), flat(other)) and state.steps == 3
    assert same_on_all_ranks(comm, one)


def test_defaults_are_on_and_said(comm, caplog):
    ddp = made()
    state = rill.torch.attach(ddp, "topk", density=DENSITY)
    optimizer = sgd(ddp)
    with caplog.at_level(logging.INFO, "rill"):
        train(ddp, comm.rank, optimizer, steps=2)
    said = repr(state)
    for part in (
        "density=0.05",
        "warmup_steps=100",
        "small=16384",
        "follows=SGD",
        f"ranks={comm.size}",
    ):
        assert part in said, said
    assert (said in caplog.text) == (comm.rank == 0)
    assert all(s.algorithm == "dense" for s in state.stats)  # all of its parameters are small
    wide = made()
    state = rill.torch.attach(wide, "topk", density=DENSITY, small=0, follow=False)
    train(wide, comm.rank, sgd(wide), steps=2)
    assert [s.selected_k for s in state.stats] == [
        round(0.25 * group.reducer.dim) for _, group in state._all_groups()
    ]
    assert "follows" not in repr(state)


def test_detach_and_attach_again(comm):
    ddp, plain = made(), made()
    state = rill.torch.attach(ddp, "topk", density=DENSITY, small=0)
    train(ddp, comm.rank, sgd(ddp))
    with pytest.raises(ValueError, match="attached already"):
        rill.torch.attach(ddp, "topk")
    assert rill.torch.detach(ddp) is state
    with pytest.raises(ValueError, match="not attached"):
        rill.torch.detach(ddp)
    ddp.load_state_dict(plain.state_dict())
    train(ddp, comm.rank, sgd(ddp))
    train(plain, comm.rank, sgd(plain))
    assert torch.allclose(flat(ddp), flat(plain), atol=1e-6) and state.steps == 3
    again = rill.torch.attach(ddp, "topk", density=DENSITY, small=0)
    again.load_state_dict(state.state_dict())
    train(ddp, comm.rank, sgd(ddp), first=3)
    assert again.steps == 3 and same_on_all_ranks(comm, ddp)


def test_what_is_wrong_is_said(comm):
    ddp = made()
    with pytest.raises(TypeError, match="desnity"):
        rill.torch.attach(ddp, "topk", desnity=0.1)
    with pytest.raises(TypeError, match="did you mean 'optimizer'"):
        rill.torch.attach(ddp, "topk", optimiser=sgd(ddp))
    with pytest.raises(ValueError, match="replicas="):
        rill.torch.attach(ddp, "topk", replicas=object())
    with pytest.raises(TypeError, match="Linear can't be attached"):
        rill.torch.attach(nn.Linear(2, 2), "topk")
    with pytest.raises(TypeError, match="is no module"):
        rill.torch.attach("topk", ddp)
    with pytest.raises(TypeError, match="algorithm = None"):
        rill.torch.attach(ddp, None)
    with pytest.raises(TypeError, match="algorithm = 0.01"):
        rill.torch.attach(ddp, 0.01, "topk")
    real, real.complex = nn.Linear(2, 2), nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises((ValueError, RuntimeError), match="complex is complex|Invalid scalar type"):
        rill.torch.attach(DistributedDataParallel(real), "topk")
    rill.torch.attach(ddp, "topk")
    hooked = made()
    hooked.register_comm_hook(None, default_hooks.fp16_compress_hook)
    with pytest.raises((ValueError, RuntimeError), match="fp16_compress_hook|called once"):
        rill.torch.attach(hooked, "topk")


def test_a_part_of_the_ranks(comm):
    """A DistributedDataParallel of a process group that has some of the ranks."""
    if comm.size < 2:
        pytest.skip("there is no part of one rank")
    try:
        rill.Comm.ucx(0, 1, lambda mine: [mine]).free()
    except rill.RillError as error:
        pytest.skip(str(error))
    groups = [dist.new_group([r for r in range(comm.size) if r % 2 == half]) for half in (0, 1)]
    mine = groups[comm.rank % 2]
    ended = {}
    for method in ("plain", "dense", "topk"):
        ddp = made(process_group=mine)
        if method != "plain":
            state = rill.torch.attach(ddp, method, DENSITY, small=0, warmup_steps=0, follow=False)
            assert state.comm.size == dist.get_world_size(mine)
        train(ddp, comm.rank, sgd(ddp))
        ended[method] = flat(ddp)
    assert torch.allclose(ended["plain"], ended["dense"], atol=1e-6)
    weights = comm.mpi.allgather((comm.rank % 2, ended["topk"].numpy().tobytes()))
    assert len(set(weights)) == 2  # one a half
    ddp = made(process_group=mine)
    ddp.register_comm_hook(rill.torch.State("topk", density=DENSITY), rill.torch.hook)
    with pytest.raises(RuntimeError, match="comm=ddp.process_group"):
        train(ddp, comm.rank, sgd(ddp), steps=1)


# ---- optimizers ----


def adam(ddp, kind=torch.optim.AdamW, **options):
    return kind(ddp.parameters(), **{"lr": 0.01, "betas": (0.8, 0.99), **options})


def momenta(state):
    return {group.reducer.options.get("momentum") for _, group in state._all_groups()}


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_first_moment_of_adam(comm, kind):
    ddp = made()
    optimizer = adam(ddp, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = rill.torch.attach(ddp, "topk", DENSITY, optimizer=optimizer, small=0)
        train(ddp, comm.rank, optimizer)
    assert optimizer.param_groups[0]["betas"] == (0.0, 0.99) and momenta(state) == {0.8}
    assert "momentum=0.8" in repr(state) and same_on_all_ranks(comm, ddp)
    # Its checkpoint knows the beta, in whatever order things are made and loaded.
    saved, later = optimizer.state_dict(), made()
    fresh = adam(later, kind, betas=(0.5, 0.99))
    fresh.load_state_dict(saved)
    state = rill.torch.attach(later, "topk", DENSITY, optimizer=fresh, small=0)
    train(later, comm.rank, fresh, steps=2)
    assert momenta(state) == {0.8} and fresh.param_groups[0]["betas"] == (0.0, 0.99)
    fresh.load_state_dict(adam(later, kind).state_dict())  # of a run without rill
    train(later, comm.rank, fresh, steps=1)
    assert fresh.param_groups[0]["betas"] == (0.0, 0.99)
    fresh.param_groups[0]["betas"] = (0.7, 0.99)
    with pytest.raises(RuntimeError, match="0.7"):
        train(later, comm.rank, fresh, steps=1)
    rill.torch.detach(ddp)
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.99)
    assert "rill_beta1" not in optimizer.param_groups[0]


def test_a_schedule_that_changes_the_first_beta(comm):
    def schedule(optimizer, **options):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=9, **options)

    ddp = made()
    optimizer = adam(ddp)
    rill.torch.attach(ddp, "topk", DENSITY, optimizer=optimizer, small=0)
    plan = schedule(optimizer, cycle_momentum=False)
    train(ddp, comm.rank, optimizer, steps=2)
    plan.step()
    train(ddp, comm.rank, optimizer, steps=1)
    schedule(optimizer)
    with pytest.raises(RuntimeError, match="cycle_momentum=False"):
        train(ddp, comm.rank, optimizer, steps=1)


def test_an_optimizer_that_a_framework_has_wrapped(comm):
    class Wrapped(torch.optim.Optimizer):  # as Accelerate does it
        def __init__(self, optimizer):
            self.optimizer = optimizer

        @property
        def param_groups(self):
            return self.optimizer.param_groups

    ddp = made()
    optimizer = adam(ddp)
    state = rill.torch.attach(ddp, "topk", DENSITY, optimizer=Wrapped(optimizer), small=0)
    train(ddp, comm.rank, optimizer, steps=2)
    assert optimizer.param_groups[0]["betas"] == (0.0, 0.99) and "momentum_of=AdamW" in repr(state)


def test_dense_leaves_adam_alone(comm):
    ddp, plain = made(), made()
    optimizer, other = adam(ddp), adam(plain)
    rill.torch.attach(ddp, "dense", optimizer=optimizer)
    train(ddp, comm.rank, optimizer)
    train(plain, comm.rank, other)
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.99)
    assert torch.allclose(flat(ddp), flat(plain), atol=1e-6)


def test_an_adam_that_was_not_given_is_noticed(comm):
    ddp = made()
    optimizer = adam(ddp)
    rill.torch.attach(ddp, "topk", DENSITY)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(ddp, comm.rank, optimizer, steps=3)
    cures = [w for w in caught if "attach(..., optimizer=optimizer)" in str(w.message)]
    assert len(cures) == (comm.rank == 0)


def test_optimizers_that_do_not_fit(comm):
    class Lion(torch.optim.AdamW):
        pass

    ddp = made()
    with pytest.raises(ValueError, match="Lion"):
        rill.torch.attach(ddp, "topk", optimizer=adam(ddp, Lion))
    groups = [
        {"params": ddp.module[0].parameters(), "betas": (0.5, 0.9)},
        {"params": ddp.module[2].parameters()},
    ]
    with pytest.raises(ValueError, match=r"\[0.5, 0.9\]"):
        rill.torch.attach(ddp, "topk", optimizer=torch.optim.AdamW(groups))
    with pytest.raises(ValueError, match="momentum="):
        rill.torch.attach(ddp, "topk", optimizer=adam(ddp), momentum=0.9)
    state = rill.torch.attach(ddp, "topk", optimizer=sgd(ddp))  # an SGD is followed, at once
    assert "follows=SGD" in repr(state)


def test_a_grad_scaler_is_found_and_followed(comm):
    class Scaler(torch.cuda.amp.GradScaler):
        def __init__(self):
            self.size = 4.0

        def is_enabled(self):
            return True

        def get_scale(self):
            return self.size

    scaler, ddp = Scaler(), made()
    state = rill.torch.attach(ddp, "topk", DENSITY, small=0, warmup_steps=0)
    optimizer = sgd(ddp, lr=0.0)
    train(ddp, comm.rank, optimizer, steps=2)
    assert "Scaler" in repr(state)
    before = state.state_dict()["residuals"]
    scaler.size = 8.0
    state._follow()
    after = state.state_dict()["residuals"]
    assert all(torch.allclose(after[name], 2 * part) for name, part in before.items())
    del scaler


# ---- ways of training ----


def accumulate(ddp, rank, optimizer):
    for step in range(3):
        optimizer.zero_grad()
        with ddp.no_sync():
            loss_of(ddp, rank, 2 * step).backward()
        loss_of(ddp, rank, 2 * step + 1).backward()
        optimizer.step()


def clip(ddp, rank, optimizer):
    for step in range(3):
        optimizer.zero_grad()
        loss_of(ddp, rank, step).backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)
        optimizer.step()


def scale(ddp, rank, optimizer):
    if not hasattr(getattr(torch, "amp", None), "GradScaler"):
        pytest.skip("no GradScaler for the CPU")
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    for step in range(6):  # the fourth overflows on one rank, and is skipped on all
        optimizer.zero_grad()
        big = float("inf") if step == 3 and rank == 0 else 1.0
        scaler.scale(loss_of(ddp, rank, step) * big).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        before = flat(ddp).clone()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, flat(ddp)) == (step == 3)


def join(ddp, rank, optimizer):
    with ddp.join():
        train(ddp, rank, optimizer, steps=2 + rank)


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


def frozen():
    model = network()
    model[2].requires_grad_(False)
    return model


def compiled():
    if not hasattr(torch, "compile"):
        pytest.skip("no torch.compile")
    return torch.compile(network(), backend="eager")


def grouped(ddp):
    inner = ddp.module
    return torch.optim.SGD(
        [
            {"params": inner[0].parameters(), "lr": 0.2},
            {"params": [*inner[2].parameters(), *inner[4].parameters()]},
        ],
        lr=0.05, momentum=0.9,
    )  # fmt: skip


WAYS = {
    "no_sync": (network, sgd, accumulate),
    "clipping": (network, sgd, clip),
    "GradScaler": (network, sgd, scale),
    "join": (network, sgd, join),
    "activation checkpointing": (Recomputed, sgd, None),
    "frozen parameters": (frozen, sgd, None),
    "compiled module": (compiled, sgd, None),
    "parameter groups": (network, grouped, None),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_of_training(comm, way):
    """Dense ends where plain DDP ends; sparse has the same weights on all ranks, and learns."""
    model, optimize, how = WAYS[way]
    ended = {}
    for method in ("plain", "dense", "oktopk"):
        ddp = made(model())
        optimizer = optimize(ddp)
        start = flat(ddp).clone()
        state = None
        if method != "plain":
            state = rill.torch.attach(
                ddp, method, DENSITY, small=0, warmup_steps=0, optimizer=optimizer
            )
        (how or train)(ddp, comm.rank, optimizer)
        ended[method] = flat(ddp)
        assert same_on_all_ranks(comm, ddp) and not torch.equal(start, flat(ddp))
    assert torch.allclose(ended["plain"], ended["dense"], atol=1e-6)
    names = {name for name, p in network().named_parameters()}
    if way == "frozen parameters":
        names = {name for name in names if not name.startswith("2.")}
    kept = state.state_dict()["residuals"]
    prefix = "inner." if way == "activation checkpointing" else ""
    assert set(kept) == {prefix + name for name in names}
    assert comm.size == 1 or any(part.any() for part in kept.values())


def test_a_compiled_wrapper(comm):
    if not hasattr(torch, "compile"):
        pytest.skip("no torch.compile")
    ddp = DistributedDataParallel(network())
    outer = torch.compile(ddp, backend="eager")
    state = rill.torch.attach(outer, "topk", DENSITY, small=0)
    train(outer, comm.rank, sgd(ddp))
    assert state.steps == 3 and same_on_all_ranks(comm, ddp)
    assert rill.torch.detach(outer) is state


# ---- checkpoints ----


def test_a_warm_up_that_is_over_does_not_come_again(comm, shared_folder):
    """Not after a state_dict, nor after a checkpoint of files of such a run."""

    def start(state_dict=None, folder=None):
        ddp = made()
        state = rill.torch.attach(
            ddp, "topk", DENSITY, small=0, warmup=[0.5, 0.2], warmup_steps=2, follow=False
        )
        if state_dict is not None:
            state.load_state_dict(state_dict)
        if folder is not None:
            state.load(folder)
        return ddp, state

    def shares(ddp, state, steps):
        found = []
        for _ in range(steps):
            train(ddp, comm.rank, sgd(ddp), steps=1)
            sent = sum(s.selected_k for s in state.stats)
            found.append(sent / sum(group.reducer.dim for _, group in state._all_groups()))
        return [pytest.approx(share, abs=0.01) for share in found]

    ddp, state = start()
    train(ddp, comm.rank, sgd(ddp), steps=1)  # dense
    assert shares(ddp, state, 2) == [0.5, 0.5]
    early = state.state_dict()
    assert shares(ddp, state, 3) == [0.2, 0.2, 0.05]
    late = state.state_dict()
    for kept, expected in (early, 0.5), (late, 0.05):
        ddp, state = start(kept)
        train(ddp, comm.rank, sgd(ddp), steps=1)
        assert shares(ddp, state, 1) == [expected]
    assert state.state_dict()["steps"] == 6 + 2
    state.save(shared_folder)
    ddp, state = start(folder=shared_folder)
    assert shares(ddp, state, 1) == [0.05] and state.state_dict()["steps"] == 6 + 3


def test_distributed_checkpoints(comm, shared_folder):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    if not hasattr(dcp, "save"):
        pytest.skip("PyTorch 2.2 or newer")
    ddp, other = made(), made()
    optimizer = adam(ddp)
    state = rill.torch.attach(ddp, "topk", DENSITY, optimizer=optimizer, small=0, warmup_steps=0)
    train(ddp, comm.rank, optimizer)
    kept = state.state_dict()["residuals"]
    assert any(part.any() for part in kept.values())
    dcp.save({"model": ddp.module.state_dict(), "rill": state}, checkpoint_id=shared_folder)
    fresh = rill.torch.attach(other, "topk", DENSITY, optimizer=adam(other), small=0)
    weights = other.module.state_dict()
    dcp.load({"model": weights, "rill": fresh}, checkpoint_id=shared_folder)
    other.module.load_state_dict(weights)
    assert torch.equal(flat(other), flat(ddp))
    loaded = fresh.state_dict()["residuals"]
    assert set(loaded) == set(kept)
    assert all(torch.allclose(loaded[name], part, atol=1e-6) for name, part in kept.items())
    momenta, loaded = (one.state_dict()["momenta"] for one in (state, fresh))
    assert any(part.any() for part in momenta.values())
    assert all(torch.allclose(loaded[name], part, atol=1e-6) for name, part in momenta.items())
