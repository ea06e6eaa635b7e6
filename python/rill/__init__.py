"""rill: sparse collectives for distributed machine learning, with MPI and without it.

Three levels, each usable alone: ``Stream`` (a vector that is sparse, dense or block-sparse),
``Comm`` (allreduce, reduce, reduce_scatter, allgather, bcast on streams) and ``Reducer`` (a
training step: gradient in, update out, nothing lost). ``rill.torch`` has what PyTorch needs.
Failures of the C library are ``RillError``.
"""

from ._buffers import Type
from ._comm import Comm
from ._library import PeerError, RillError, algorithms, codecs, isa, selectors, version
from ._op import Op
from ._pending import Part, Pending, Request, waitall, waitany
from ._plan import Plan, plan
from ._reducer import Reducer, method
from ._selector import Selector
from ._settings import Setting, settings
from ._steps import Step
from ._stream import Stream, as_stream, from_dlpack, sum_streams
from ._structs import AttachOptions, Options, ReducerOptions, Stats, TensorOptions
from ._world import init, local, world

__version__ = "0.1.0"
__all__ = [
    "AttachOptions",
    "Comm",
    "Op",
    "Options",
    "Part",
    "PeerError",
    "Pending",
    "Plan",
    "Reducer",
    "ReducerOptions",
    "Request",
    "RillError",
    "Selector",
    "Setting",
    "Stats",
    "Step",
    "Stream",
    "TensorOptions",
    "Type",
    "algorithms",
    "as_stream",
    "codecs",
    "from_dlpack",
    "init",
    "isa",
    "local",
    "method",
    "plan",
    "selectors",
    "settings",
    "sum_streams",
    "version",
    "waitall",
    "waitany",
    "world",
]
