import os
import shutil
import tempfile

import pytest

import rill


@pytest.fixture(scope="session")
def comm():
    return rill.world()


@pytest.fixture(scope="session")
def process_group():
    import torch.distributed as dist

    import rill.torch

    yield rill.torch.init_process_group()
    dist.destroy_process_group()


@pytest.fixture
def shared_folder(comm):
    """One folder for all ranks."""
    folder = comm.mpi.bcast(tempfile.mkdtemp(prefix="rill-test-") if comm.rank == 0 else None)
    yield folder
    comm.mpi.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder)


@pytest.fixture
def repository():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
