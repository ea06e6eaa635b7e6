"""Trainings of an example, one after the other in the ranks of one MPI job: starting Python,
PyTorch and a GPU takes longer than a short one.

    mpirun -n 4 python3 trainings.py PROGRAM

Rank 0 reads a line for each: a list of arguments as JSON. When a training has ended, it prints the
line ENDED.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import traceback
from pathlib import Path

ENDED = "the training has ended"


def main() -> None:
    program = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(program.parent))
    import torch.distributed
    from mpi4py import MPI

    example = importlib.import_module(program.stem)
    ranks = MPI.COMM_WORLD
    while line := ranks.bcast(sys.stdin.readline() if ranks.Get_rank() == 0 else None):
        sys.argv = [str(program), *json.loads(line)]
        try:
            example.main()
        except BaseException:  # the other ranks are waiting
            traceback.print_exc()
            ranks.Abort(1)
        torch.distributed.destroy_process_group()
        gc.collect()
        ranks.Barrier()
        if ranks.Get_rank() == 0:
            print(ENDED, flush=True)


if __name__ == "__main__":
    main()
