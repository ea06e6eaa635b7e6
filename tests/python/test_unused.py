"""Parameters that no rank uses in a step: DDP drops their part of the update, and nothing is lost
all the same."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rill
import rill.torch

pytestmark = pytest.mark.usefixtures("process_group")
STEPS = 9


class Branches(nn.Module):
    """Layer a is always used, b and c as the caller says, d never."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleDict({name: nn.Linear(30, 30) for name in "abcd"})

    def forward(self, x, names):
        for name in names:
            x = torch.tanh(self.layers[name](x))
        return x


def used(mode, rank, step):
    """Every third step by nobody; b in the others on all ranks, c on one."""
    if mode == "static":
        return "abc"
    if step % 3 == 2:
        return "a"
    return "abc" if rank == step % 2 else "ab"


def inputs(rank, step):
    return torch.randn(8, 30, generator=torch.Generator().manual_seed(100 * rank + step))


def loss_of(model, mode, rank, step):
    # Gradients of later steps are small, so that what is left of the first ones would be sent when
    # nobody uses the parameter.
    return model(inputs(rank, step), used(mode, rank, step)).pow(2).mean() * (
        1.0 if step % 3 == 0 else 1e-3
    )


def options_of(mode):
    if mode == "static":
        return dict(static_graph=True)
    return dict(find_unused_parameters=True, gradient_as_bucket_view="view" in mode)


def gradients(model):
    return {
        name: p.grad.clone().double() for name, p in model.named_parameters() if p.grad is not None
    }


def add(total, parts):
    for name, part in parts.items():
        total[name] = total[name] + part if name in total else part


def passes_of(mode, step):
    """Steps whose gradients add up, the last with the exchange. Without views b and c are used in
    the others only: DDP leaves such gradients on their ranks. With views it gives means to some
    ranks and not to others then, by itself."""
    if "accumulate" not in mode:
        return [step]
    return [step, step + 6] if "view" in mode else [3 * step, 3 * step + 1, 3 * step + 2]


@pytest.mark.parametrize("method", ["topk", "oktopk"])
@pytest.mark.parametrize(
    "mode",
    [
        "find",
        "find zeros",
        "find view",
        "find view zeros",
        "find accumulate",
        "find accumulate view",
        "static",
    ],
)
def test_nothing_is_lost(comm, mode, method):
    model = Branches()
    state = rill.torch.State(
        method, density=0.02, module=model, rules={"layers.c.*": {"density": 0.05}}
    )
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.005, **options_of(mode))
    ddp.register_comm_hook(state, rill.torch.hook)
    fed, received = {}, {}
    for step in range(STEPS):
        ddp.zero_grad(set_to_none="zeros" not in mode)
        *before, last = passes_of(mode, step)
        twin = copy.deepcopy(model)
        twin.zero_grad(set_to_none=True)
        for one in [*before, last]:
            loss_of(twin, mode, comm.rank, one).backward()
        add(fed, gradients(twin))
        with ddp.no_sync():
            for one in before:
                loss_of(ddp, mode, comm.rank, one).backward()
        loss_of(ddp, mode, comm.rank, last).backward()
        add(received, gradients(model))
        if (
            mode.startswith("find")
            and "accumulate" not in mode
            and step % 3 == 2
            and "zeros" not in mode
        ):
            assert model.layers["b"].weight.grad is None
    check(comm, state, fed, comm.mpi.allgather(received))


def check(comm, state, fed, received):
    """For each parameter: what the ranks received and what waits is what they gave."""
    residuals = state.state_dict()["residuals"]
    everyone = comm.mpi.allgather(fed)
    kept = 0.0
    for name in sorted({name for one in everyone for name in one}):
        total = sum(one[name] for one in everyone if name in one)
        waiting = residuals[name].double().view(total.shape)
        kept = max(kept, waiting.abs().max().item())
        arrived = sum(one[name] for one in received if name in one)
        assert torch.allclose(arrived + waiting, total, atol=1e-6), name
    assert kept > 1e-3


def test_inputs_that_end_early(comm):
    """In DDP's join context ranks without inputs take part with zeros, and have no backward
    pass."""
    model = Branches()
    state = rill.torch.State("topk", density=0.02, module=model)
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    ddp.register_comm_hook(state, rill.torch.hook)
    fed, received = {}, {}
    steps = 6 + 3 * comm.rank
    with ddp.join():
        for step in range(steps):
            ddp.zero_grad(set_to_none=True)
            twin = copy.deepcopy(model)
            loss_of(twin, "find", comm.rank, step).backward()
            add(fed, gradients(twin))
            loss_of(ddp, "find", comm.rank, step).backward()
            add(received, gradients(model))
    # The last rank has seen all updates.
    check(comm, state, fed, [comm.mpi.bcast(received, root=comm.size - 1)] * comm.size)


@pytest.mark.parametrize("given", ["module", "wrapper"])
def test_the_wrapper_in_use_is_found(comm, given):
    """Of two that had the same parameters; one that was replaced does not count."""
    model = Branches()
    old = DistributedDataParallel(model, find_unused_parameters=True)
    old.itself = [old]  # a cycle: it is there until it is collected
    del old
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    state = rill.torch.State("topk", density=0.02, module=model if given == "module" else ddp)
    ddp.register_comm_hook(state, rill.torch.hook)
    loss_of(ddp, "find", comm.rank, 0).backward()
    assert state._wrapper._ddp() is ddp
    assert set(state._names.values()) == {name for name, _ in model.named_parameters()}


def test_two_wrappers_in_use(comm):
    model = Branches()
    ddps = [DistributedDataParallel(model) for _ in range(2)]
    state = rill.torch.State("topk", density=0.02, module=model)
    ddps[1].register_comm_hook(state, rill.torch.hook)
    with pytest.warns(UserWarning, match="module=ddp"):
        ddps[1](inputs(comm.rank, 0), "abcd").sum().backward()
