"""Ranks that find each other without MPI: the allgather of bytes that communicators are made by."""

import os
import socket
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
        meeting = _rendezvous.Meeting(rank, ranks, address, timeout=20)
        got = [
            meeting(bytes([rank]) * 3),
            meeting(b""),
            meeting(bytes([rank + 1]) * 300_000),
        ]
        meeting.close()
        return got

    for got in together(ranks, work):
        assert got == [
            [bytes([r]) * 3 for r in range(ranks)],
            [b""] * ranks,
            [bytes([r + 1]) * 300_000 for r in range(ranks)],
        ]


def test_a_stranger_is_turned_away():
    port = free_port()

    def work(rank):
        if rank == 2:  # no rank at all
            while True:
                try:
                    with socket.create_connection(("127.0.0.1", port)) as stranger:
                        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                        return stranger.recv(1)
                except ConnectionRefusedError:
                    continue
        if rank == 1:
            stranger_came.wait(20)
        return _rendezvous.Meeting(rank, 2, f"127.0.0.1:{port}", timeout=20)(bytes([rank]))

    stranger_came = threading.Event()
    threading.Timer(0.3, stranger_came.set).start()
    assert together(3, work)[:2] == [[b"\0", b"\1"]] * 2


def test_who_does_not_come_is_named():
    with pytest.raises(TimeoutError, match=r"ranks \[1, 2\] have not come"):
        _rendezvous.Meeting(0, 3, f"127.0.0.1:{free_port()}", timeout=0.2)
    with pytest.raises(TimeoutError, match="rank 0 does not answer"):
        _rendezvous.Meeting(1, 3, f"127.0.0.1:{free_port()}", timeout=0.2)


def test_a_rank_that_comes_twice():
    address = f"127.0.0.1:{free_port()}"

    def work(number):
        rank = min(number, 1)
        return _rendezvous.Meeting(rank, 3, address, timeout=2)(b"x")

    assert any("expected once" in str(result) for result in together(3, work))


@pytest.mark.parametrize(
    "rank,ranks,address,text",
    [(3, 2, "h:1", "rank 3 is not one of 2"), (0, 2, "nowhere", "not of the form host:port")],
)
def test_wrong_arguments(rank, ranks, address, text):
    with pytest.raises(ValueError, match=text):
        _rendezvous.Meeting(rank, ranks, address)


@pytest.mark.parametrize(
    "environment,expected",
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, (1, 4)),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"}, (2, 3)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2)),
    ],
)
def test_rank_and_size_come_from_the_environment(monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _launch.place() == expected


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


def test_init_without_an_address_says_what_is_missing(monkeypatch):
    with pytest.raises(RuntimeError, match="RILL_RENDEZVOUS"):
        rill.init()
    monkeypatch.setenv("RILL_RENDEZVOUS", "127.0.0.1:1")
    with pytest.raises(RuntimeError, match="set RANK and WORLD_SIZE"):
        rill.init()
