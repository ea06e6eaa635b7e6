import os
import shutil
import tempfile

import pytest
from mpi4py import MPI

import rill


def pytest_configure(config):
    config.addinivalue_line("markers", "once: makes no use of the ranks")


def pytest_collection_modifyitems(items):
    """While one rank runs what makes no use of the others, these would wait."""
    if MPI.COMM_WORLD.Get_size() > 1:
        for item in items:
            if item.get_closest_marker("once"):
                item.add_marker(pytest.mark.skip(reason="makes no use of the ranks: see 1 rank"))


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
