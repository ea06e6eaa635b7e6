"""rill: sparse collectives for distributed machine learning, on MPI.

Three levels, each usable alone: ``Stream`` (a vector that is sparse, dense or block-sparse), ``Comm`` (allreduce, reduce,
reduce_scatter, allgather, bcast on streams) and ``Reducer`` (a training step: gradient in, update out, nothing
lost). ``rill.torch`` has what PyTorch needs. Failures of the C library are ``RillError``.
"""

from ._buffers import Type
from ._comm import Comm, Part, Pending, Request, local, waitall, waitany, world
from ._library import RillError, algorithms, codecs, isa, selectors, version
from ._reducer import Reducer, Selector, Step, method
from ._settings import Setting, settings
from ._stream import Op, Stream, as_stream, sum_streams
from ._structs import Options, ReducerOptions, Stats

__version__ = "0.1.0"
__all__ = [
    "Comm",
    "Op",
    "Options",
    "Part",
    "Pending",
    "Reducer",
    "ReducerOptions",
    "Request",
    "RillError",
    "Selector",
    "Setting",
    "Stats",
    "Step",
    "Stream",
    "Type",
    "algorithms",
    "as_stream",
    "codecs",
    "isa",
    "local",
    "method",
    "selectors",
    "settings",
    "sum_streams",
    "version",
    "waitall",
    "waitany",
    "world",
]
