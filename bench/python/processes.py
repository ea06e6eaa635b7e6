"""Ranks of a benchmark as processes on this host, that find each other as under torchrun."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]


def inside() -> bool:
    """Whether this process is one of the ranks."""
    return "RANK" in os.environ


def start(ranks: int) -> list[str]:
    """Runs this program once more as so many ranks, one thread each; the lines of rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common.update(OMP_NUM_THREADS=1, TORCHELASTIC_RUN_ID="none")
    started = []
    for rank in range(ranks):
        own = {key: str(value) for key, value in {**common, "RANK": rank}.items()}
        out = subprocess.PIPE if rank == 0 else None
        command = [sys.executable, *sys.argv]
        started.append(subprocess.Popen(command, env={**os.environ, **own}, stdout=out, text=True))
    text = started[0].communicate()[0]
    if any([process.wait() for process in started]):
        sys.exit("a rank failed")
    return text.splitlines()
