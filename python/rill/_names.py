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
