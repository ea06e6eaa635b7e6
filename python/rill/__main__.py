"""``python -m rill``: what this installation has found."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Iterator

from . import __version__, _library, algorithms, codecs, isa, selectors, version
from ._comm import Comm
from ._library import RillError


def _ucx() -> str:
    try:
        Comm.ucx(0, 1, lambda mine: [mine]).free()
    except RillError as error:
        return f"no: {error}"
    return "yes: torchrun, and plain processes"


def _package(name: str) -> str:
    if find_spec(name) is None:
        return "not installed"
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "installed"


def lines() -> Iterator[str]:
    yield f"rill {__version__}, library {version()}, Python {platform.python_version()}"
    yield f"library     {_library.lib._name}"
    yield f"processor   {platform.machine()}, kernels for {isa()}"
    yield f"MPI         {'yes' if hasattr(_library.lib, 'rill_comm_create') else 'no'}"
    yield f"UCX         {_ucx()}"
    for name in ("numpy", "mpi4py", "torch", "scipy"):
        yield f"{name:<11} {_package(name)}"
    yield f"allreduce   {' '.join(algorithms('allreduce'))}"
    yield f"reducers    {' '.join(algorithms('reducer'))}"
    yield f"selections  {' '.join(selectors())}"
    yield f"codecs      {' '.join(codecs())}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
