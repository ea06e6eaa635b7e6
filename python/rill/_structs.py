"""The structs of rill.h. tests/python/test_layout.py compares them with the header."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, TypedDict, Union

from ._buffers import memory_of
from ._names import (
    Algorithm,
    Codec,
    Learn,
    Memory,
    Method,
    Nonfinite,
    Partition,
    Select,
    ValueBits,
    ValueScope,
)
from ._settings import field_of, option_names, unknown

if TYPE_CHECKING:
    from typing_extensions import Unpack  # noqa: F401  (for annotations elsewhere)


class CStats(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("sent_bytes", ctypes.c_uint64),
        ("recv_bytes", ctypes.c_uint64),
        ("messages", ctypes.c_uint64),
        ("rounds", ctypes.c_uint64),
        ("nnz_in", ctypes.c_uint64),
        ("nnz_out", ctypes.c_uint64),
        ("selected_k", ctypes.c_uint64),
        ("algorithm", ctypes.c_char_p),
        ("codec", ctypes.c_char_p),
        ("predicted_s", ctypes.c_double),
        ("elapsed_s", ctypes.c_double),
        ("select_s", ctypes.c_double),
        ("update_s", ctypes.c_double),
        ("collision_error", ctypes.c_double),
        ("value_bits", ctypes.c_int),
        ("partition", ctypes.c_char_p),
        ("voided", ctypes.c_uint64),
        ("voided_total", ctypes.c_uint64),
        ("strangers", ctypes.c_uint64),
        ("summed_in", ctypes.c_char_p),
    ]


class COptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("algorithm", ctypes.c_char_p),
        ("codec", ctypes.c_char_p),
        ("value_bits", ctypes.c_int),
        ("expected_nnz", ctypes.c_uint64),
        ("partition", ctypes.c_char_p),
        ("value_scope", ctypes.c_char_p),
        ("block", ctypes.c_uint64),
        ("allow_bits", ctypes.c_int),
    ]


class CReducerOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("algorithm", ctypes.c_char_p),
        ("codec", ctypes.c_char_p),
        ("value_bits", ctypes.c_int),
        ("expected_nnz", ctypes.c_uint64),
        ("partition", ctypes.c_char_p),
        ("value_scope", ctypes.c_char_p),
        ("select", ctypes.c_char_p),
        ("density", ctypes.c_double),
        ("k", ctypes.c_uint64),
        ("average", ctypes.c_int),
        ("feedback", ctypes.c_int),
        ("momentum", ctypes.c_double),
        ("masking", ctypes.c_int),
        ("clip", ctypes.c_double),
        ("warmup", ctypes.POINTER(ctypes.c_double)),
        ("warmup_stages", ctypes.c_int),
        ("warmup_steps", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("bucket", ctypes.c_uint64),
        ("block", ctypes.c_uint64),
        ("threads", ctypes.c_int),
        ("threshold_interval", ctypes.c_uint64),
        ("repartition_interval", ctypes.c_uint64),
        ("balance_trigger", ctypes.c_double),
        ("lambda", ctypes.c_double),
        ("sketch_rows", ctypes.c_int),
        ("nonfinite", ctypes.c_char_p),
        ("memory", ctypes.c_int),
        ("device", ctypes.c_int),
    ]


class CSelectOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("method", ctypes.c_char_p),
        ("density", ctypes.c_double),
        ("k", ctypes.c_uint64),
        ("bucket", ctypes.c_uint64),
        ("block", ctypes.c_uint64),
        ("threshold", ctypes.c_double),
        ("interval", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("threads", ctypes.c_int),
        ("memory", ctypes.c_int),
        ("device", ctypes.c_int),
    ]


class CTensor(ctypes.Structure):
    _fields_ = [
        ("gradient", ctypes.c_void_p),
        ("update", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
    ]


class CConfig(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("info", ctypes.c_void_p),
        ("check", ctypes.c_int),
        ("split_limit", ctypes.c_uint64),
        ("progress_thread", ctypes.c_int),
        ("timeout_s", ctypes.c_int),
        ("minority", ctypes.c_int),
        ("learn", ctypes.c_char_p),
    ]


class Settings(TypedDict, total=False):
    """Keywords of every communicator; see ``rill_config`` in rill.h. None, as what is not given,
    leaves one to MPI_Info and the environment."""

    check: Optional[bool]
    split_limit: int
    progress_thread: Optional[bool]
    timeout_s: Optional[int]
    minority: Optional[bool]
    learn: Optional[Learn]


class Options(TypedDict, total=False):
    """Keyword options of every collective; see ``rill_options`` in rill.h."""

    algorithm: Optional[Algorithm]
    codec: Optional[Codec]
    value_bits: Optional[ValueBits]
    expected_nnz: int
    partition: Optional[Partition]
    value_scope: Optional[ValueScope]
    block: int
    allow_bits: ValueBits


class TensorOptions(TypedDict, total=False):
    """Of ReducerOptions those that rill.torch takes as they are: the others are arguments of its
    own, or come from the tensors."""

    codec: Optional[Codec]
    expected_nnz: int
    partition: Optional[Partition]
    value_scope: Optional[ValueScope]
    select: Optional[Select]
    k: int
    average: bool
    feedback: bool
    momentum: float
    masking: bool
    clip: float
    warmup: Optional[Sequence[float]]
    warmup_steps: int
    seed: int
    bucket: int
    block: int
    threads: int
    threshold_interval: int
    repartition_interval: int
    balance_trigger: float
    sketch_lambda: float
    sketch_rows: int
    nonfinite: Optional[Nonfinite]


class AttachOptions(TensorOptions, total=False):
    """Keyword options of ``rill.torch.attach``: those of reducers, and of ``rill.torch.State``."""

    value_bits: Optional[ValueBits]
    dense_steps: int


class ReducerOptions(TensorOptions, total=False):
    """Keyword options of a reducer; see ``rill_reducer_options`` in rill.h."""

    algorithm: Optional[Method]
    density: Optional[float]
    value_bits: Optional[ValueBits]
    memory: Optional[Memory]
    device: int


def _fits(value: Any, kind: Any) -> bool:
    """Whether a field of that kind has the number as it is: ctypes would cut it off."""
    if value != value or value in (float("inf"), float("-inf")) or int(value) != value:
        return False
    if kind is ctypes.c_uint64:
        return bool(0 <= value < 2**64)
    return bool(-(2**31) <= value < 2**31)


def _no_option(what: str, name: str, known: Sequence[str]) -> str:
    if name in option_names("rill_config"):
        return f"{what} have no option {name!r}: it is one of communicators, as in rill.Comm()"
    return unknown(f"{what} have no option", name, known, end="")


def _fill(struct: Any, given: Mapping[str, Any], what: str, known: Sequence[str]) -> Any:
    """Sets the fields of a struct; None leaves one as it is."""
    types = dict(struct._fields_)
    for name, value in given.items():
        field = field_of(name)
        if name not in known:
            raise TypeError(_no_option(what, name, known))
        if value is None:
            continue
        if isinstance(value, str) != (types[field] is ctypes.c_char_p):
            raise TypeError(f"option {name} = {value!r} has the wrong type")
        if isinstance(value, str):
            value = value.encode()
        elif types[field] is ctypes.c_double:
            value = float(value)
        elif not _fits(value, types[field]):
            raise ValueError(f"option {name} = {value!r}: must be a whole number that fits")
        setattr(struct, field, value if isinstance(value, (bytes, float)) else int(value))
    return struct


def config_of(given: Mapping[str, Any]) -> CConfig:
    unset = CConfig(ctypes.sizeof(CConfig), check=-1, progress_thread=-1, timeout_s=-1, minority=-1)
    return _fill(unset, given, "communicators", option_names("rill_config"))


def call_options(given: Mapping[str, Any]) -> COptions:
    return _fill(
        COptions(ctypes.sizeof(COptions), value_bits=-1, allow_bits=-1),
        given,
        "collectives",
        option_names("rill_options"),
    )


# Of small calls that the package makes by itself: nothing to plan.
SMALL_CALL = call_options({"algorithm": "recursive_double"})


def _set_memory(options: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Sets where vectors lie; the other options."""
    rest = dict(given)
    memory, device = rest.pop("memory", None), rest.pop("device", None)
    number = memory_of(memory)
    if number == 0:
        if device not in (None, -1):
            raise ValueError(f'option device = {device!r} is of memory="cuda"')
        device = -1
    options.memory, options.device = number, -1 if device is None else int(device)
    return rest


def reducer_options(given: Mapping[str, Any]) -> CReducerOptions:
    options = CReducerOptions(
        ctypes.sizeof(CReducerOptions), value_bits=-1, average=1, feedback=1, masking=1, threads=1
    )
    rest = _set_memory(options, given)
    warmup = rest.pop("warmup", None)
    _fill(options, rest, "reducers", option_names("rill_reducer_options"))
    if warmup is not None:
        stages = [float(density) for density in warmup]
        options.warmup = (ctypes.c_double * len(stages))(*stages)
        options.warmup_stages = len(stages)
    return options


def select_options(given: Mapping[str, Any]) -> CSelectOptions:
    known = [name for name, *_ in CSelectOptions._fields_[1:]]
    options = CSelectOptions(ctypes.sizeof(CSelectOptions), threads=1)
    return _fill(options, _set_memory(options, given), "selectors", known)


@dataclass(frozen=True)
class Stats:
    """What a call did on this rank; see ``rill_stats`` in rill.h. Times are in seconds;
    ``predicted_s`` is 0 where the planner knew nothing of such calls."""

    sent_bytes: int
    recv_bytes: int
    messages: int
    rounds: int
    nnz_in: int
    nnz_out: int
    selected_k: int
    algorithm: str
    codec: str
    predicted_s: float
    elapsed_s: float
    select_s: float
    update_s: float
    collision_error: float
    value_bits: int
    partition: str
    voided: int
    voided_total: int
    strangers: int
    summed_in: str


def empty_stats() -> CStats:
    return CStats(ctypes.sizeof(CStats))


def stats_of(c: CStats) -> Stats:
    texts = ("algorithm", "codec", "partition", "summed_in")

    def value(name: str) -> Union[int, float, str]:
        raw = getattr(c, name)
        return (raw or b"").decode() if name in texts else raw

    values: dict[str, Any] = {name: value(name) for name, *_ in CStats._fields_[1:]}
    return Stats(**values)
