"""Who has started this process, and the other ranks: MPI's launcher, torchrun, srun, or nobody."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Callable, Optional

# Launchers of MPI set one of these.
_MPI = (
    "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_FD",
    "MPI_LOCALNRANKS",
)


def message(ranks: int, why: str) -> str:
    script = sys.argv if sys.argv and sys.argv[0] else ["script.py"]
    command = shlex.join([os.path.basename(sys.executable) or "python3", *script])
    return f"{why}. Start the program by MPI's launcher: mpirun -n {ranks} {command}"


def _number(name: str) -> Optional[int]:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def world_size() -> int:
    """As torchrun and the like give it; 0: unknown."""
    return _number("WORLD_SIZE") or 0


def by_torchrun() -> bool:
    """Whether torchrun has started this process, and others with it."""
    return "TORCHELASTIC_RUN_ID" in os.environ and world_size() > 1


def in_mpi_job() -> bool:
    """Whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in _MPI)


def without_mpi() -> bool:
    """Whether there are other ranks which MPI does not know. A rendezvous was asked for, or
    torchrun has started us, also within a job of MPI."""
    if os.environ.get("RILL_RENDEZVOUS") or by_torchrun():
        return True
    return world_size() > 1 and not in_mpi_job()


def check_before_mpi() -> None:
    """RuntimeError where MPI would know this process alone, though torchrun or the like has started
    more. To find that out by starting MPI takes seconds, and Open MPI's processes that start so at
    once may fail, since each makes the same directory."""
    if world_size() > 1 and not in_mpi_job():
        check(lambda: 1)


def check(size: Callable[[], int]) -> None:
    """RuntimeError where a launcher has started more processes than MPI's world has ranks. size is
    called only where there may be such a launcher."""
    torchrun, srun = world_size(), _number("SLURM_STEP_NUM_TASKS") or 0
    if max(torchrun, srun) <= 1:
        return
    ranks = size()
    if torchrun > ranks:
        have = "1 rank: this process alone" if ranks == 1 else f"{ranks} ranks"
        raise RuntimeError(
            message(
                torchrun,
                f"WORLD_SIZE is {torchrun}, but MPI has {have}; rill.world() and rill.torch find "
                "these processes without MPI",
            )
        )
    if srun > ranks == 1:  # mpirun starts a step of its own, of less tasks than ranks
        raise RuntimeError(
            message(
                srun,
                f"srun has started {srun} tasks, but MPI knows this process alone; srun --mpi=pmix "
                "may help, or RILL_RENDEZVOUS=host:port",
            )
        )
