"""Processes that find each other without MPI: an allgather of bytes that needs nothing but an
address.

Rank 0 listens at it, the others connect; whoever is too early tries again. What all bring is
collected by rank 0 and sent back. It is needed while communicators are made, and never for data.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any, Callable, Sequence

from . import _launch

Allgather = Callable[[bytes], Sequence[bytes]]

TIMEOUT_S = 300.0
_MAGIC = b"rill-meet-1\n"
_HEAD = struct.Struct("<IQ")  # rank, bytes
_MOST = 1 << 30  # bytes of a message; more is none of ours


class Meeting:
    """``Meeting(rank, ranks, "host:port")(bytes)`` gives the bytes of all ranks, as often as
    wanted. All ranks call it in the same order."""

    def __init__(self, rank: int, ranks: int, address: str, timeout: float = TIMEOUT_S) -> None:
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} is not one of {ranks} ranks")
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdecimal():
            raise ValueError(f"the rendezvous {address!r} is not of the form host:port")
        self.rank, self.ranks = rank, ranks
        self._where = f"{host}:{port}"
        self._peers: dict[int, socket.socket] = {}
        end = time.monotonic() + timeout
        if ranks > 1:
            if rank == 0:
                self._listen(int(port), end)
            else:
                self._peers[0] = self._connect(host, int(port), end)

    def _listen(self, port: int, end: float) -> None:
        with socket.create_server(("", port), backlog=self.ranks) as server:
            while len(self._peers) < self.ranks - 1:
                server.settimeout(max(end - time.monotonic(), 0.001))
                try:
                    peer, _ = server.accept()
                except socket.timeout:
                    missing = sorted(set(range(1, self.ranks)) - set(self._peers))
                    raise TimeoutError(
                        f"ranks {missing} have not come to {self._where}"
                    ) from None
                try:
                    peer.settimeout(10)
                    if _receive(peer, len(_MAGIC)) != _MAGIC:
                        raise ConnectionError
                    number, ranks = _HEAD.unpack(_receive(peer, _HEAD.size))
                except (OSError, struct.error):  # somebody else
                    peer.close()
                    continue
                if ranks != self.ranks or not 0 < number < self.ranks or number in self._peers:
                    peer.close()
                    raise ValueError(
                        f"a rank {number} of {ranks} has come to {self._where}, where ranks 1 to {self.ranks - 1} of {self.ranks} are expected once"
                    )
                peer.settimeout(max(end - time.monotonic(), 1))
                self._peers[number] = peer

    def _connect(self, host: str, port: int, end: float) -> socket.socket:
        while True:
            try:
                made = socket.create_connection((host, port), timeout=10)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise TimeoutError(f"rank 0 does not answer at {self._where}: {error}") from None
                time.sleep(0.05)
        made.settimeout(max(end - time.monotonic(), 1))
        made.sendall(_MAGIC + _HEAD.pack(self.rank, self.ranks))
        return made

    def __call__(self, mine: bytes) -> Sequence[bytes]:
        if self.ranks == 1:
            return [mine]
        if self.rank != 0:
            _send(self._peers[0], self.rank, mine)
            return [_message(self._peers[0], number) for number in range(self.ranks)]
        parts = [mine, *(_message(self._peers[n], n) for n in range(1, self.ranks))]
        for peer in self._peers.values():
            for number, part in enumerate(parts):
                _send(peer, number, part)
        return parts

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


def _receive(peer: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = peer.recv(min(count - len(data), 1 << 20))
        if not part:
            raise ConnectionError("a rank has left the rendezvous")
        data += part
    return bytes(data)


def _send(peer: socket.socket, number: int, data: bytes) -> None:
    peer.sendall(_HEAD.pack(number, len(data)) + data)


def _message(peer: socket.socket, expected: int) -> bytes:
    number, count = _HEAD.unpack(_receive(peer, _HEAD.size))
    if number != expected or count > _MOST:
        raise ConnectionError("a message at the rendezvous is none of ours")
    return _receive(peer, count)


class StoreMeeting:
    """The same by a store of PyTorch, as torchrun has one."""

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self._store, self.rank, self.ranks = store, rank, ranks
        self._calls = 0

    def __call__(self, mine: bytes) -> Sequence[bytes]:
        self._calls += 1
        key = f"rill/{self._calls}/"
        self._store.set(f"{key}{self.rank}", mine)
        return [bytes(self._store.get(f"{key}{number}")) for number in range(self.ranks)]


def torchrun_store() -> StoreMeeting:
    """By the store of torchrun itself, so that no process group is needed."""
    from torch import distributed as dist

    store, rank, ranks = next(dist.rendezvous("env://"))
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return StoreMeeting(dist.PrefixStore(f"rill-{restart}", store), rank, ranks)


def from_environment() -> Any:
    """An allgather of bytes among the ranks that the environment knows, with ``rank`` and
    ``ranks``."""
    address, place = os.environ.get("RILL_RENDEZVOUS"), _launch.place()
    if address:
        if place is None:
            raise RuntimeError(
                f"RILL_RENDEZVOUS is {address}, but nothing says which rank this is: set RANK and WORLD_SIZE"
            )
        return Meeting(place.rank, place.ranks, address)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return torchrun_store()
    ranks = place.ranks if place is not None else 1
    why = (
        f"{ranks} processes were started without MPI, and nothing says where they meet: set "
        "RILL_RENDEZVOUS=host:port, an address of rank 0, or call torch.distributed.init_process_group first"
    )
    raise RuntimeError(_launch.message(ranks, why))
