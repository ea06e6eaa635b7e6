"""How ranks of PyTorch begin: its process group, from MPI's ranks or torchrun's, and parameters."""

from __future__ import annotations

import datetime
import os
import socket
from typing import Any, Iterable, Optional

import torch
import torch.distributed as dist

from .. import _launch
from .._comm import Comm
from .._mpi import mpi
from ._groups import default_comm


def init_process_group(
    backend: str = "gloo",
    *,
    comm: Any = None,
    timeout: datetime.timedelta = datetime.timedelta(minutes=30),
) -> tuple[int, int]:
    """``torch.distributed.init_process_group`` with the ranks of an mpi4py communicator
    (``MPI.COMM_WORLD``), or of torchrun where it has started the program.

    Under MPI rank 0 opens the rendezvous and tells the others, unless MASTER_ADDR and MASTER_PORT
    are set. Returns rank and size. Collective.
    """
    if comm is None and _launch.without_mpi():
        dist.init_process_group(backend, timeout=timeout)
        return dist.get_rank(), dist.get_world_size()
    comm = _ranks(comm)
    rank, size = comm.Get_rank(), comm.Get_size()
    expected = os.environ.get("WORLD_SIZE")
    if expected is not None and int(expected) != size:
        raise RuntimeError(
            _launch.message(
                int(expected),
                f"WORLD_SIZE is {expected}, but MPI has {size} rank{'s' * (size != 1)}",
            )
        )
    address = os.environ.get("MASTER_ADDR")
    port = int(os.environ.get("MASTER_PORT", "0"))
    if comm.bcast(address, root=0) is None:
        address = _address(comm)
    store: Optional[Any] = None
    failure = None
    if rank == 0:
        try:
            store = dist.TCPStore(
                address, port, None, True, timeout=timeout, wait_for_workers=False
            )
            port = store.port
        except Exception as error:  # the others are waiting for the address
            failure = f"rank 0 can't open a rendezvous at {address}:{port}: {error}"
    address, port, failure = comm.bcast((address, port, failure), root=0)
    if failure:
        raise RuntimeError(failure)
    if rank != 0:
        store = dist.TCPStore(address, port, None, False, timeout=timeout)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    return rank, size


def set_environment(comm: Any = None) -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT from MPI
    where they are not set, so that a script written for torchrun runs under mpirun as it is. Under
    torchrun they are all set: it does nothing. Collective.
    """
    if comm is None and _launch.without_mpi():
        return
    comm = _ranks(comm)
    host = comm.Split_type(mpi().module.COMM_TYPE_SHARED)
    address = _address(comm)
    port = 0
    if comm.Get_rank() == 0:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
    address, port = comm.bcast((address, port), root=0)
    settings = {
        "RANK": comm.Get_rank(),
        "WORLD_SIZE": comm.Get_size(),
        "LOCAL_RANK": host.Get_rank(),
        "LOCAL_WORLD_SIZE": host.Get_size(),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    host.Free()
    for name, value in settings.items():
        os.environ.setdefault(name, str(value))


def _ranks(comm: Any) -> Any:
    """An mpi4py communicator: the one given, or that of all ranks, if these are all that a launcher
    has started."""
    if comm is not None:
        return comm
    everybody = mpi().module.COMM_WORLD
    _launch.check(everybody.Get_size)
    return everybody


def _address(comm: Any) -> str:
    """The loopback address where all ranks are on one host, else this host's name. Collective."""
    hosts = set(comm.allgather(socket.gethostname()))
    return "127.0.0.1" if len(hosts) == 1 else socket.gethostname()


@torch.no_grad()
def broadcast_parameters(module: torch.nn.Module, root: int = 0, comm: Any = None) -> None:
    """Gives all ranks the root's parameters and buffers, as DistributedDataParallel does when it is
    made. Collective."""
    ranks = default_comm(comm)
    ranks._agree()
    broadcast_tensors([*module.parameters(), *module.buffers()], root, ranks)
    if ranks is not comm and comm is not None:
        ranks.free()


@torch.no_grad()
def broadcast_tensors(
    tensors: Iterable[torch.Tensor], root: int, comm: Comm, take: bool = True
) -> None:
    """take: whether this rank, which is not the root, wants them."""
    for tensor in tensors:
        memory = tensor.detach().to("cpu", copy=True).contiguous()
        if memory.numel():
            comm._bcast_bytes(memory.view(-1).view(torch.uint8).numpy(), root)
        if take:
            tensor.copy_(memory)
