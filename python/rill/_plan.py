"""What the planner expects a sum to take."""

from __future__ import annotations

import ctypes
import math
import operator
import re
from numbers import Real
from typing import Any, NamedTuple, Optional, Union

from ._buffers import Type, dim_of, type_of
from ._library import COLLECTIVES, check, lib

_MOST_ROWS = 64
_MEMORIES = ("host", "cuda")  # in the order of rill_memory
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_RATE = r"(\d+\.?\d*|\.\d+) ?([kmgKMG]?)(?:[bB][iI][tT](?:/s)?|b(?:ps|/s))"  # B would be bytes


class CPlanQuery(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("collective", ctypes.c_int),
        ("type", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("hosts", ctypes.c_int),
        ("dim", ctypes.c_uint64),
        ("nnz", ctypes.c_uint64),
        ("result", ctypes.c_uint64),
        ("codec", ctypes.c_char_p),
        ("partition", ctypes.c_char_p),
        ("value_bits", ctypes.c_int),
        ("allow_bits", ctypes.c_int),
        ("block", ctypes.c_uint64),
        ("profile", ctypes.c_char_p),
        ("latency_s", ctypes.c_double),
        ("bits_per_second", ctypes.c_double),
        ("link", ctypes.c_char_p),
        ("memory", ctypes.c_int),
    ]


class CPlanRow(ctypes.Structure):
    _fields_ = [
        ("algorithm", ctypes.c_char_p),
        ("codec", ctypes.c_char_p),
        ("partition", ctypes.c_char_p),
        ("value_bits", ctypes.c_int),
        ("seconds", ctypes.c_double),
        ("refuses", ctypes.c_char_p),
        ("chosen", ctypes.c_int),
        ("sums", ctypes.c_int),
    ]


class Plan(NamedTuple):
    """What the planner expects of an algorithm."""

    algorithm: str
    seconds: float
    codec: str
    value_bits: int
    chosen: bool  # by "auto"
    sums: str = "host"  # where messages are summed: "host" or "cuda"


def bits_per_second(rate: Union[str, float]) -> float:
    """Of a number, or of a text such as "100mbit", "100 Mbit/s" or "100Mbps"."""
    if not isinstance(rate, str):
        if not isinstance(rate, Real) or not 0 <= rate < math.inf:
            raise ValueError(f"rate {rate!r}: a number of bits in a second")
        return float(rate)
    match = re.fullmatch(_RATE, rate)
    if match is None or not float(match[1]):
        raise ValueError(f'rate {rate!r}: a number of bits in a second, or "100mbit", "1gbit"')
    return float(match[1]) * _UNITS[match[2].lower()]


def _count(name: str, value: Any) -> int:
    """As C takes it, which says what else is wrong with it."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r}: a whole number is needed") from None
    if not -(2**31) <= whole < 2**31:
        raise ValueError(f"{name} = {value!r} does not fit")
    return whole


def plan(
    ranks: int,
    dim: int,
    density: float = 0.01,
    *,
    collective: str = "allreduce",
    rate: Union[str, float] = 0,
    latency_s: float = 0,
    hosts: Optional[int] = None,
    dtype: Any = Type.F32,
    value_bits: int = 0,
    profile: Optional[str] = None,
    memory: str = "host",
) -> list[Plan]:
    """What the planner expects each algorithm to take, the fastest first. Nothing is run, and no
    other rank is needed.

    ``collective`` is one of those of ``Comm``, or "reducer": what gives the k largest of the sum.
    ``memory``: "cuda" where it is the call of a reducer whose vectors are on the GPUs of all ranks.
    Rate ("1gbit") and latency are of the network between hosts; each rank has one of its own by
    default. Without them, and for what the processor takes, there is the profile that ``rill tune``
    has written, or built-in numbers (``profile="none"``)::

        >>> fastest = rill.plan(8, 1 << 24, 0.01, rate="1gbit", profile="none")[0]
        >>> fastest.algorithm != "dense" and fastest.seconds < 0.5
        True
    """
    order = [*COLLECTIVES, "reducer"]
    if collective not in order:
        raise ValueError(f"collective {collective!r} is none of {', '.join(order)}")
    if memory not in _MEMORIES:
        raise ValueError(f"memory {memory!r} is none of {', '.join(_MEMORIES)}")
    if not isinstance(density, Real) or not 0 < density <= 1:
        raise ValueError(f"density {density!r}: over 0 and at most 1")
    ranks, dim = _count("ranks", ranks), dim_of(dim)
    query = CPlanQuery(
        size=ctypes.sizeof(CPlanQuery),
        collective=order.index(collective),
        type=int(type_of(dtype)),
        ranks=ranks,
        hosts=ranks if hosts is None else _count("hosts", hosts),
        dim=dim,
        nnz=max(1, round(dim * density)) if dim else 0,
        value_bits=value_bits,
        profile=None if profile is None else profile.encode(),
        latency_s=latency_s,
        bits_per_second=bits_per_second(rate),
        memory=_MEMORIES.index(memory),
    )
    rows, n = (CPlanRow * _MOST_ROWS)(), ctypes.c_int()
    check(lib.rill_plan(ctypes.byref(query), rows, _MOST_ROWS, ctypes.byref(n)))
    found = [
        Plan(
            row.algorithm.decode(),
            row.seconds,
            row.codec.decode() if row.codec else "",
            row.value_bits,
            bool(row.chosen),
            _MEMORIES[row.sums],
        )
        for row in rows[: n.value]
        if row.refuses is None
    ]
    return sorted(found, key=lambda row: row.seconds)
