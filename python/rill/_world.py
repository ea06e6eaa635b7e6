"""How communicators come about without being asked for a place: of this process, of all ranks, of a
process group."""

from __future__ import annotations

import ctypes
import operator
import sys
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Optional, Sequence

from . import _launch, _rendezvous
from ._comm import Comm
from ._library import RillError, check, lib
from ._mpi import NATIVE
from ._structs import config_of

if TYPE_CHECKING:
    from ._structs import Settings, Unpack


def local(n: int, **settings: Unpack[Settings]) -> list[Comm]:
    """n ranks in this process, without MPI and mpi4py: a list of their communicators.

    Each is used by a thread of its own; or one thread (a notebook) uses all of them with the
    non-blocking calls::

        >>> comms = rill.local(4)
        >>> vectors = np.eye(4, 1000, dtype=np.float32)
        >>> requests = [comm.iallreduce(x) for comm, x in zip(comms, vectors)]
        >>> rill.waitall(requests)[2].indices.tolist()
        [0, 1, 2, 3]

    A blocking call needs the other ranks' calls in other threads. What MPI sums elsewhere ("dense",
    "s2") goes by messages of rill's own. Keywords are the settings of ``Comm``. ``free()`` them one
    by one, in any order.
    """
    config, n = config_of(settings), operator.index(n)
    handles = (ctypes.c_void_p * max(n, 1))()
    check(lib.rill_comm_create_local(n, ctypes.byref(config), handles))
    return [Comm._of(ctypes.c_void_p(handle)) for handle in handles]


_world: Optional[Comm] = None
_world_lock = threading.Lock()


def init(
    rank: Optional[int] = None,
    ranks: Optional[int] = None,
    address: Optional[str] = None,
    **settings: Unpack[Settings],
) -> Comm:
    """Ranks that are plain processes, without MPI, over UCX: the communicator of all, which
    ``rill.world()`` gives from then on. Collective.

    ``address`` is "host:port", where rank 0 listens while communicators are made. What is not given
    comes from RILL_RENDEZVOUS, and from RANK and WORLD_SIZE, or what Slurm's and Open MPI's
    launchers set; under torchrun all is there. Other keywords are the settings of ``Comm``.
    """
    global _world
    meeting = _rendezvous.meet(rank, ranks, address)
    made = _over_ucx(meeting.rank, meeting.ranks, meeting, **settings)
    with _world_lock:
        _world = made
    return made


def _over_ucx(
    rank: int, ranks: int, allgather: _rendezvous.Allgather, **settings: Unpack[Settings]
) -> Comm:
    try:
        return Comm.ucx(rank, ranks, allgather, **settings)
    except RillError as error:
        if error.name != "UNSUPPORTED":
            raise
        why = (
            f"{ranks} processes were started without MPI, and rill can't do without it here: "
            f"{error}"
        )
        raise RuntimeError(_launch.message(ranks, why)) from error


def process_group() -> bool:
    """Whether there is PyTorch's process group."""
    dist: Any = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and bool(dist.is_initialized())


def from_group(group: Any = None) -> Comm:
    """A communicator of the ranks of a process group of PyTorch, all of them by default. Collective
    over these."""
    dist: Any = sys.modules["torch.distributed"]
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this rank is not in the process group")

    def allgather(mine: bytes) -> Sequence[bytes]:
        parts: list[Any] = [None] * ranks
        dist.all_gather_object(parts, mine, group=group)
        return parts

    return _over_ucx(rank, ranks, allgather)


def _make_world() -> Comm:
    if _launch.without_mpi():
        if process_group():
            return from_group()
        meeting = _rendezvous.meet()
        return _over_ucx(meeting.rank, meeting.ranks, meeting)
    if not _launch.in_mpi_job() and not (NATIVE and find_spec("mpi4py")):
        return local(1)[0]  # alone
    return Comm()


def world() -> Comm:
    """The communicator that is used where none is given; made at the first call, which is
    collective.

    In a job of MPI it is that of ``MPI.COMM_WORLD``. Else it is made from PyTorch's process group
    where there is one, or as ``rill.init()`` makes it. A process that was started alone is its only
    rank.
    """
    global _world
    with _world_lock:
        if _world is None or _world.freed:
            _world = _make_world()
        return _world
