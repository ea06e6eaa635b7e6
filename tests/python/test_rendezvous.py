"""Ranks that find each other without MPI: the allgather of bytes that communicators are made by."""

import os
import socket
import subprocess
import sys
import threading

import pytest

import rill
from rill import _launch, _rendezvous


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(autouse=True)
def alone(comm, monkeypatch):
    if comm.size > 1:
        pytest.skip("uses threads of one process")
    for name in list(os.environ):
        if name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC")) or name in (
            "RANK",
            "WORLD_SIZE",
            "RILL_RENDEZVOUS",
        ):
            monkeypatch.delenv(name)


def together(ranks, work):
    """work(rank) in a thread each; what they gave, or the exceptions that they raised."""
    results = [None] * ranks

    def run(rank):
        try:
            results[rank] = work(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_all_get_what_all_bring(ranks):
    address = f"127.0.0.1:{free_port()}"

    def work(rank):
        meeting = _rendezvous.Meeting(rank, ranks, address)
        assert (meeting.rank, meeting.ranks) == (rank, ranks)
        return [meeting(bytes([rank]) * 3), meeting(bytes([rank + 1]) * 300_000)]

    for got in together(ranks, work):
        assert got == [
            [bytes([r]) * 3 for r in range(ranks)],
            [bytes([r + 1]) * 300_000 for r in range(ranks)],
        ]


def test_rank_and_size_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("RILL_RENDEZVOUS", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    meeting = _rendezvous.meet()
    assert (meeting.rank, meeting.ranks) == (0, 1) and meeting(b"x") == [b"x"]


def test_wrong_arguments():
    with pytest.raises(rill.RillError, match="nowhere"):
        _rendezvous.Meeting(0, 2, "nowhere")
    with pytest.raises(rill.RillError, match="3"):
        _rendezvous.Meeting(3, 2, "127.0.0.1:1")


@pytest.mark.parametrize(
    "environment,without",
    [
        ({}, False),
        ({"WORLD_SIZE": "1", "RANK": "0"}, False),
        ({"WORLD_SIZE": "2", "RANK": "0"}, True),
        ({"WORLD_SIZE": "2", "RANK": "0", "PMIX_RANK": "0"}, False),  # rill.torch.set_environment
        ({"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "PMIX_RANK": "0"}, True),  # srun torchrun
        ({"RILL_RENDEZVOUS": "h:1", "PMIX_RANK": "0"}, True),
    ],
)
def test_who_has_started_us(monkeypatch, environment, without):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _launch.without_mpi() == without


def test_init_without_an_address_says_what_is_missing():
    with pytest.raises(RuntimeError, match="RILL_RENDEZVOUS"):
        rill.init()


def test_by_a_store_of_pytorch():
    dist = pytest.importorskip("torch.distributed")
    store = dist.HashStore()
    meetings = [_rendezvous.StoreMeeting(store, rank, 2) for rank in range(2)]
    for text in (b"a", b"b"):
        got = together(2, lambda rank: meetings[rank](text + bytes([rank])))
        assert got == [[text + b"\0", text + b"\1"]] * 2


# Both ranks leave rill for a barrier of the program's own after each sum: what a rank still has to
# give then must not depend on its calls.
LEAVES = """
import socket, sys
import numpy as np
import rill

comm = rill.init()
meeting = socket.socket(socket.AF_UNIX)
if comm.rank == 0:
    meeting.bind(sys.argv[1])
    meeting.listen()
comm.allreduce(np.ones(8, np.float32))
if comm.rank == 0:
    peer, _ = meeting.accept()
else:
    meeting.connect(sys.argv[1])
    peer = meeting
for size in 20 * [200_000, 3_000]:
    total = comm.allreduce(np.ones(size, np.float32))
    assert total.nnz == size
    peer.sendall(b"x")
    assert peer.recv(1) == b"x"
"""


# Where ranks are given different ones, both must know what they share.
@pytest.mark.parametrize("transports", ["all", "^cma", "tcp,self", "all tcp,self"])
def test_ranks_may_leave_for_a_barrier_of_their_own(tmp_path, transports):
    try:
        rill.Comm.ucx(0, 1, lambda mine: [mine]).free()
    except rill.RillError as error:
        pytest.skip(str(error))
    env = {**os.environ, "WORLD_SIZE": "2", "RILL_PROFILE": "none"}
    env["RILL_RENDEZVOUS"] = f"127.0.0.1:{free_port()}"
    env["PYTHONPATH"] = os.path.dirname(os.path.dirname(rill.__file__))
    command = [sys.executable, "-c", LEAVES, str(tmp_path / "meeting")]
    own = [{"RANK": str(rank), "UCX_TLS": transports.split()[-rank]} for rank in range(2)]
    jobs = [subprocess.Popen(command, env={**env, **one}) for one in own]
    try:
        assert [job.wait(timeout=100) for job in jobs] == [0, 0]
    finally:
        for job in jobs:
            job.kill()
