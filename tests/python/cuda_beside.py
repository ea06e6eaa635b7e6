"""What else a training on a GPU does beside DDP's hook, see cuda_ddp.py: CUDA graphs of the rest of
a step, shards of FSDP2, LocalUpdates. Each gives True or False, or why there is nothing to see."""

import torch
from torch import nn

import rill.torch


def network(device, width=256):
    torch.manual_seed(1)
    layers = nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(width, 10)).to(device)


def alike(mpi, tensors):
    bits = torch.cat([t.detach().reshape(-1) for t in tensors]).cpu().numpy().tobytes()
    return len(set(mpi.allgather(bits))) == 1


def descend(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def graphs(comm, mpi, ddp):
    """A graph of another model's step, captured while a step of a reducer is under way, and played
    between steps of a DistributedDataParallel with the hook."""
    other = network("cuda")
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(comm.rank)).cuda()
    inner = torch.optim.SGD(other.parameters(), lr=0.05)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is loaded and allocated at first is not captured
        for _ in range(3):
            descend(other, inner, x)
    torch.cuda.current_stream().wait_stream(side)
    outer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for _ in range(3):
        descend(ddp, outer, x)

    reducer = rill.Reducer(comm, 1 << 20, density=0.01, **rill.method("oktopk"), memory="cuda")
    gradient = torch.ones(1 << 20, device="cuda")
    under_way = reducer.start_on(gradient)
    graph = torch.cuda.CUDAGraph()
    inner.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = other(x).square().mean()
        loss.backward()
        inner.step()
    under_way.wait()
    reducer.free()

    losses, ours = [], []
    for _ in range(5):
        graph.replay()
        ours.append(descend(ddp, outer, x))
        losses.append(float(loss.detach()))
    falls = losses[-1] < losses[0] and ours[-1] < ours[0]
    return falls and alike(mpi, ddp.parameters())


def shards(comm, mpi, device="cuda"):
    """FSDP2 with a replica on each rank: rill has the sum over replicas. PyTorch's part goes
    through the process group, which may not serve tensors of a device."""
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    if not hasattr(fsdp, "fully_shard"):
        return "PyTorch is older than 2.6"
    mesh = init_device_mesh(device, (comm.size, 1), mesh_dim_names=("replicate", "shard"))
    model = network(device)
    try:
        fsdp.fully_shard(model, mesh=mesh["shard"])
        model(torch.zeros(2, 64, device=device)).sum().backward()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return f"the process group: {str(error).splitlines()[0][:120]}"
    state = rill.torch.attach(
        model, "topk", density=0.05, small=0, warmup_steps=0, replicas=mesh["replicate"]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(comm.rank)).to(device)
    losses = [descend(model, optimizer, x) for _ in range(8)]
    same = alike(mpi, [p.full_tensor() for p in model.parameters()])
    rill.torch.detach(model)
    return same and state.steps == 8 and losses[-1] < losses[0]


def local_updates(comm, mpi, device="cuda"):
    """All have the same weights after a round, and they lie on the device."""
    model = network(device)
    local = rill.torch.LocalUpdates(model, every=3, keep=16, chunk=256, comm=comm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(comm.rank)).to(device)
    losses, rounds = [], []
    for _ in range(9):
        losses.append(descend(model, optimizer, x))
        rounds.append(local.step())
    there = all(p.device.type == device for p in model.parameters())
    return there and sum(rounds) == 3 and losses[-1] < losses[0] and alike(mpi, model.parameters())
