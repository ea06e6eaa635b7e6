"""Runs pytest on every rank. Rank 0 reports; the others do when they fail. A failure ends all
ranks."""

import os
import sys
import tempfile

import pytest
from mpi4py import MPI


def main() -> None:
    rank = MPI.COMM_WORLD.Get_rank()
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "--durations=5", "--color=no", *sys.argv[1:]]
    with tempfile.TemporaryFile("w+") as log:
        shown = os.dup(1)
        if rank > 0:
            sys.stdout.flush()
            os.dup2(log.fileno(), 1)
        status = int(pytest.main(arguments))
        sys.stdout.flush()
        os.dup2(shown, 1)
        if status != 0 and rank > 0:
            log.seek(0)
            print(f"---- rank {rank} ----\n{log.read()}", flush=True)
    if status != 0:
        MPI.COMM_WORLD.Abort(status)


main()
