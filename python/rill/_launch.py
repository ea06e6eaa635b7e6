"""Processes that a launcher started, but that are no ranks of one MPI job: each would be alone, and train apart from the others."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Callable


def message(ranks: int, why: str) -> str:
    script = sys.argv if sys.argv and sys.argv[0] else ["script.py"]
    command = shlex.join([os.path.basename(sys.executable) or "python3", *script])
    return f"{why}. Start the program by MPI's launcher: mpirun -n {ranks} {command}"


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def check(size: Callable[[], int]) -> None:
    """RuntimeError where a launcher has started more processes than MPI's world has ranks. size is called only where there may be
    such a launcher."""
    torchrun, srun = _number("WORLD_SIZE"), _number("SLURM_STEP_NUM_TASKS")
    if max(torchrun, srun) <= 1:
        return
    ranks = size()
    if torchrun > ranks:
        have = "1 rank: this process alone" if ranks == 1 else f"{ranks} ranks"
        raise RuntimeError(
            message(
                torchrun,
                f"WORLD_SIZE is {torchrun}, but MPI has {have}; torchrun's processes are unknown to MPI",
            )
        )
    if srun > ranks == 1:  # mpirun starts a step of its own, of less tasks than ranks
        raise RuntimeError(
            message(
                srun,
                f"srun has started {srun} tasks, but MPI knows this process alone; srun --mpi=pmix may help",
            )
        )
