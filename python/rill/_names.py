"""Names that options take, for type checkers: ``codec="elias"`` is an error before a program runs.
tests/python/test_types.py compares them with the library's tables."""

from __future__ import annotations

from typing import Literal

# Of all collectives.
Algorithm = Literal[
    "auto", "dense", "recursive_double", "split_allgather", "dsar", "ring", "allgather", "block",
    "hier", "recursive_halving", "tree", "split_gather", "shared", "split", "direct", "bruck",
]  # fmt: skip
# Of reducers: those of allreduce, and more.
Method = Literal[
    "auto", "dense", "recursive_double", "split_allgather", "dsar", "ring", "allgather", "block",
    "hier", "recursive_halving", "gtopk", "oktopk", "spardl", "s2",
]  # fmt: skip
# Of rill.torch, see rill.method: these, "topk", and both with values of a few bits.
ShortMethod = Literal[
    "dense", "s2", "auto", "topk", "recursive_double", "split_allgather", "dsar", "ring",
    "allgather", "block", "hier", "recursive_halving", "gtopk", "oktopk", "spardl",
    "auto+qsgd8", "topk+qsgd8", "recursive_double+qsgd8", "split_allgather+qsgd8", "dsar+qsgd8",
    "ring+qsgd8", "allgather+qsgd8", "block+qsgd8", "hier+qsgd8", "recursive_halving+qsgd8",
    "gtopk+qsgd8", "oktopk+qsgd8", "spardl+qsgd8",
    "auto+qsgd4", "topk+qsgd4", "recursive_double+qsgd4", "split_allgather+qsgd4", "dsar+qsgd4",
    "ring+qsgd4", "allgather+qsgd4", "block+qsgd4", "hier+qsgd4", "recursive_halving+qsgd4",
    "gtopk+qsgd4", "oktopk+qsgd4", "spardl+qsgd4",
    "auto+qsgd2", "topk+qsgd2", "recursive_double+qsgd2", "split_allgather+qsgd2", "dsar+qsgd2",
    "ring+qsgd2", "allgather+qsgd2", "block+qsgd2", "hier+qsgd2", "recursive_halving+qsgd2",
    "gtopk+qsgd2", "oktopk+qsgd2", "spardl+qsgd2",
]  # fmt: skip
Codec = Literal["auto", "raw", "bitpack", "elias_fano", "bitmap", "rice"]
# Of reducers: selections, and what is none.
Select = Literal[
    "auto", "nonzero", "topk", "bucket", "block", "threshold", "gaussian", "random",
]  # fmt: skip
Partition = Literal["auto", "uniform", "balanced"]
ValueScope = Literal["auto", "all"]
ValueBits = Literal[0, 2, 4, 8, 16]
Nonfinite = Literal["void", "zero", "pass"]
Memory = Literal["host", "cuda"]
Learn = Literal["auto", "on", "off", "frozen", "predict"]
Overlap = Literal["auto", "thread", "hook"]
OptimizerOverlap = Literal["auto", "thread", "hook", "step"]
# Of LocalUpdates.
Average = Literal["all", "senders"]
Outer = Literal["sgd", "nesterov"]
Clip = Literal["median"]
