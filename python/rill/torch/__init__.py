"""rill for PyTorch: sparse training with DistributedDataParallel or without it, on the CPU and on
CUDA devices, under mpirun and under torchrun.

``attach`` makes the gradient exchange of DistributedDataParallel or FSDP2 sparse in one line;
``State`` and ``hook`` do it by hand for the former,
``DistributedOptimizer`` does the same for code without it, ``allreduce`` sums dense and sparse
tensors, and ``init_process_group`` sets up PyTorch's own process group from MPI's ranks
or torchrun's.
"""

from ._advise import Advice, advise
from ._attach import attach, detach
from ._backend import register as _register_backend
from ._hook import State, hook
from ._local import LocalUpdates
from ._optimizer import DistributedOptimizer
from ._process_group import broadcast_parameters, init_process_group, set_environment
from ._tensors import allreduce, from_stream, to_stream

__all__ = [
    "Advice",
    "DistributedOptimizer",
    "LocalUpdates",
    "State",
    "advise",
    "allreduce",
    "attach",
    "broadcast_parameters",
    "detach",
    "from_stream",
    "hook",
    "init_process_group",
    "set_environment",
    "to_stream",
]

_register_backend()
