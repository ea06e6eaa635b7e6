"""Codes of sorted indices and of values, for messages that Python makes itself; all of "
"them have the
same bytes on every machine."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

import numpy as np

from ._comm import Comm
from ._library import check, codecs, lib
from ._stream import Stream

_SLACK = 128  # kernels read and write whole registers
_GROUP = 1024  # values that share their scales
_BLOCK = 256  # words of a message that have one index
VALUE_BITS = (0, 16, 8, 4, 2)


def index_codec() -> str:
    """The one that takes the fewest bits for a few entries of every chunk."""
    return "rice" if "rice" in codecs() else "elias_fano"


def _padded(array: Any) -> Any:
    """A copy of its bytes with what kernels may touch behind them."""
    raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    return np.concatenate([raw, np.zeros(_SLACK, np.uint8)])


def encode_indices(codec: str, indices: Any, dim: int) -> bytes:
    """Of increasing indices below dim."""
    wide = 4 if dim <= 1 << 32 else 8
    source = _padded(indices.astype(np.uint32 if wide == 4 else np.uint64))
    size = ctypes.c_size_t()
    check(lib.rill_indices_bound(codec.encode(), wide, indices.size, dim, ctypes.byref(size)))
    out = np.zeros(size.value + _SLACK, np.uint8)
    check(
        lib.rill_indices_encode(
            codec.encode(), wide, source.ctypes.data, indices.size, 0, dim, out.ctypes.data,
            ctypes.byref(size),
        )
    )  # fmt: skip
    return out[: size.value].tobytes()


def decode_indices(codec: str, coded: bytes, count: int, dim: int) -> Any:
    wide = 4 if dim <= 1 << 32 else 8
    source = _padded(np.frombuffer(coded, np.uint8))
    out = np.zeros(count * wide + _SLACK, np.uint8)
    check(
        lib.rill_indices_decode(
            codec.encode(), wide, source.ctypes.data, len(coded), count, 0, dim, out.ctypes.data
        )
    )
    kind = np.uint32 if wide == 4 else np.uint64
    return out[: count * wide].view(kind).astype(np.int64)


# ---- values: to the nearest level, which error feedback makes good ----


def _to_bf16(values: Any) -> Any:
    return ((values.astype(np.float32).view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def _from_bf16(words: Any) -> Any:
    return (words.astype(np.uint32) << 16).view(np.float32)


def _levels(sizes: Any, known: Any, levels: int) -> Any:
    """Of magnitudes in groups: two means where there are two levels, else equal steps up to the
    largest."""
    if levels > 2:
        top = (sizes * known).max(1, keepdims=True)
        return top * (np.arange(1, levels + 1, dtype=np.float32) / levels)
    count = np.maximum(known.sum(1), 1)
    border = (sizes * known).sum(1) / count
    low = high = border
    for _ in range(4):  # Lloyd's iteration
        above = known * (sizes > border[:, None])
        many, few = above.sum(1), (known - above).sum(1)
        high = np.where(many > 0, (sizes * above).sum(1) / np.maximum(many, 1), border)
        low = np.where(few > 0, (sizes * (known - above)).sum(1) / np.maximum(few, 1), high)
        border = (low + high) / 2
    return np.stack([low, high], 1)


def encode_values(values: Any, bits: int) -> bytes:
    """Finite float32 values."""
    if bits == 0 or values.size == 0:
        return bytes(values.astype("<f4").tobytes())
    if bits == 16:
        return bytes(_to_bf16(values).astype("<u2").tobytes())
    groups = -(-values.size // _GROUP)
    padded = np.zeros(groups * _GROUP, np.float32)
    padded[: values.size] = values
    known = (np.arange(padded.size) < values.size).astype(np.float32).reshape(groups, _GROUP)
    sizes = np.abs(padded).reshape(groups, _GROUP)
    levels = 1 << (bits - 1)
    made = _to_bf16(_levels(sizes, known, levels))
    if levels > 2:
        made = made[:, -1:]  # the others follow
        top = np.maximum(_from_bf16(made), np.float32(1e-38))
        code = np.clip(np.rint(sizes / top * levels), 1, levels).astype(np.uint8) - 1
    else:
        code = (sizes > _from_bf16(made).mean(1, keepdims=True)).astype(np.uint8)
    code = (code << 1 | (padded < 0).reshape(groups, _GROUP)).reshape(-1)[: values.size]
    return bytes(made.astype("<u2").tobytes()) + _pack(code, bits)


def _pack(code: Any, bits: int) -> bytes:
    share = 8 // bits
    padded = np.zeros(-(-code.size // share) * share, np.uint8)
    padded[: code.size] = code
    packed = np.zeros(padded.size // share, np.uint8)
    for i in range(share):
        packed |= padded[i::share] << (i * bits)
    return packed.tobytes()


def decode_values(coded: bytes, count: int, bits: int) -> Any:
    if bits == 0 or count == 0:
        return np.frombuffer(coded, "<f4", count).astype(np.float32)
    if bits == 16:
        return _from_bf16(np.frombuffer(coded, "<u2", count))
    groups, levels = -(-count // _GROUP), 1 << (bits - 1)
    scales = groups * (2 if levels == 2 else 1)
    made = _from_bf16(np.frombuffer(coded, "<u2", scales)).reshape(groups, -1)
    if levels > 2:
        made = made * (np.arange(1, levels + 1, dtype=np.float32) / levels)
    packed, share = np.frombuffer(coded, np.uint8, offset=2 * scales), 8 // bits
    code = np.zeros(packed.size * share, np.uint8)
    for i in range(share):
        code[i::share] = packed >> (i * bits) & ((1 << bits) - 1)
    code = code[:count]
    values = made[np.arange(count) // _GROUP, code >> 1]
    return np.where(code & 1, -values, values).astype(np.float32)


# ---- all ranks' messages ----


def gather(comm: Comm, mine: bytes) -> list[bytes]:
    """Every rank's bytes, which may be of any number. Three of them travel in each number "
    "of four,
    which all links and algorithms carry exactly. Collective."""
    if comm.size == 1:
        return [mine]
    lengths: Sequence[int] = comm._gather(len(mine))
    blocks = [-(-length // (3 * _BLOCK)) for length in lengths]
    ends = np.cumsum(blocks)
    first, own = int(ends[comm.rank]) - blocks[comm.rank], blocks[comm.rank]
    raw = np.zeros(own * _BLOCK * 3, np.uint8)
    raw[: len(mine)] = np.frombuffer(mine, np.uint8)
    parts = raw.reshape(-1, 3).astype(np.uint32)
    words = (parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16).astype(np.float32)
    part = Stream(int(ends[-1]) * _BLOCK, "f32")
    if own:
        part.set_blocks(_BLOCK, np.arange(first, first + own, dtype=np.uint64), words)
    whole = comm.allgather(part, value_bits=0, allow_bits=0).dense().astype(np.uint32)
    found = np.stack([whole, whole >> 8, whole >> 16], 1).astype(np.uint8).reshape(-1)
    starts = [int(end) - n for end, n in zip(ends, blocks)]
    size = 3 * _BLOCK
    return [
        found[start * size : start * size + length].tobytes()
        for start, length in zip(starts, lengths)
    ]
