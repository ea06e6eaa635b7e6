"""``python -m rill``: what this installation has found."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Iterator

from . import __version__, _library, algorithms, codecs, isa, selectors, version
from ._comm import Comm
from ._library import RillError
from ._mpi import NATIVE


def _ucx() -> str:
    try:
        Comm.ucx(0, 1, lambda mine: [mine]).free()
    except RillError as error:
        return f"no: {error}"
    return f"yes: torchrun, and plain processes ({'its own' if _own_ucx() else 'of the system'})"


def _own_ucx() -> bool:
    """Whether the library came with its UCX, in a wheel."""
    return any(Path(_library.lib._name).parent.glob("librill_ucp.so*"))


def _mpi() -> str:
    if NATIVE:
        return "yes"
    return "no: ranks of mpirun meet by mpi4py, and talk over UCX"


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
    yield f"MPI         {_mpi()}"
    yield f"UCX         {_ucx()}"
    for name in ("numpy", "mpi4py", "torch", "scipy"):
        yield f"{name:<11} {_package(name)}"
    yield f"allreduce   {' '.join(algorithms('allreduce'))}"
    yield f"reducers    {' '.join(algorithms('reducer'))}"
    yield f"selections  {' '.join(selectors())}"
    yield f"codecs      {' '.join(codecs())}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("usage: python -m rill, which shows what this installation has found")
    sys.stdout.write("\n".join(lines()) + "\n")
