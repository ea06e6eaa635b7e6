"""Codes of sorted indices and of values, for messages that Python makes itself."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Sequence

import numpy as np

from ._comm import Comm
from ._library import check, lib
from ._stream import Stream

_SLACK = 128  # kernels read and write whole registers
_GROUP = 1024  # values that share their scales
_BLOCK = 256  # words of a message that have one index
_LARGEST = np.float32(255 * 2.0**120)  # of bf16
VALUE_BITS = (0, 16, 8, 4, 2)
_COUNT = struct.Struct("<Q")


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


# ---- values: to one of a few levels, which error feedback makes good ----
#
# 16 bits are bf16. With fewer, groups of 1024 values share their scales (bf16). 8 and 4 bits: equal
# steps up to the largest magnitude, to nearest, each with its sign. 2 bits: signs, one bit each,
# and two magnitudes a group. The larger one is the rarer one, so that only its places are written:
# their number, and their indices among all values by an index codec.


def _to_bf16(values: Any) -> Any:
    kept = np.clip(values.astype(np.float32), -_LARGEST, _LARGEST)  # what is finite stays so
    return ((kept.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def _from_bf16(words: Any) -> Any:
    return (words.astype(np.uint32) << 16).view(np.float32)


def _two_levels(sizes: Any) -> "tuple[Any, Any]":
    """Of magnitudes in groups: two levels of each, and which have the higher one.

    Whether a group is split after its i smallest costs H(i / n) bits a value. The split with the
    least D 4^H is taken, D the sum of the squared errors: a bit is worth a quarter of it, as
    anywhere in lossy coding (entropy-constrained quantization: Chou, Lookabaugh, Gray 1989).
    """
    groups, n = sizes.shape
    ordered = np.sort(sizes, 1).astype(np.float64)
    largest = np.maximum(ordered[:, -1:], np.finfo(np.float64).tiny)
    ordered /= largest  # squares stay finite and above 0
    sums = np.cumsum(ordered, 1)
    below = np.arange(1, n + 1)  # values up to the split; all: no split
    above = np.maximum(n - below, 1)
    rest = sums[:, -1:] - sums
    error = np.square(ordered).sum(1, keepdims=True) - sums**2 / below - rest**2 / above
    share = below / n
    rare = np.maximum(1 - share, 1e-9)
    entropy = -share * np.log2(share) - rare * np.log2(rare)
    split = np.argmin(np.maximum(error, 1e-12) * 4.0**entropy, 1)
    rows = np.arange(groups)
    low = sums[rows, split] / below[split]
    high = np.where(split < n - 1, rest[rows, split] / above[split], low)
    border = (ordered[rows, split] * largest[:, 0]).astype(np.float32)
    levels = np.stack([low, high], 1) * largest
    return levels.astype(np.float32), sizes > border[:, None]


def encode_values(values: Any, bits: int) -> bytes:
    """Finite float32 values."""
    if bits == 0 or values.size == 0:
        return bytes(values.astype("<f4").tobytes())
    if bits == 16:
        return bytes(_to_bf16(values).astype("<u2").tobytes())
    return _encode_two(values) if bits == 2 else _encode_steps(values, bits)


def decode_values(coded: bytes, count: int, bits: int) -> Any:
    if bits == 0 or count == 0:
        return np.frombuffer(coded, "<f4", count).astype(np.float32)
    if bits == 16:
        return _from_bf16(np.frombuffer(coded, "<u2", count))
    return _decode_two(coded, count) if bits == 2 else _decode_steps(coded, count, bits)


def _place_codec(places: int, count: int) -> str:
    """The shorter one, by what both sides know."""
    return "rice" if 5 * places < 2 * count else "bitmap"


def _encode_two(values: Any) -> bytes:
    sizes, full = np.abs(values), values.size // _GROUP * _GROUP
    parts = [sizes[:full].reshape(-1, _GROUP), sizes[full:].reshape(1, -1)]
    found = [_two_levels(part) for part in parts if part.size]
    levels = np.concatenate([made for made, _ in found])
    places = np.flatnonzero(np.concatenate([high.reshape(-1) for _, high in found]))
    return b"".join(
        (
            _to_bf16(levels).astype("<u2").tobytes(),
            np.packbits(np.signbit(values), bitorder="little").tobytes(),
            _COUNT.pack(places.size),
            encode_indices(_place_codec(places.size, values.size), places, values.size),
        )
    )


def _decode_two(coded: bytes, count: int) -> Any:
    groups = -(-count // _GROUP)
    levels = _from_bf16(np.frombuffer(coded, "<u2", 2 * groups)).reshape(groups, 2)
    at = 4 * groups
    signs = np.unpackbits(
        np.frombuffer(coded, np.uint8, -(-count // 8), at), count=count, bitorder="little"
    )
    at += -(-count // 8)
    (many,) = _COUNT.unpack_from(coded, at)
    codec = _place_codec(many, count)
    places = decode_indices(codec, coded[at + _COUNT.size :], many, count)
    values = np.repeat(levels[:, 0], _GROUP)[:count]
    values[places] = levels[places // _GROUP, 1]
    return np.where(signs, -values, values)


def _encode_steps(values: Any, bits: int) -> bytes:
    groups, levels = -(-values.size // _GROUP), 1 << (bits - 1)
    padded = np.zeros(groups * _GROUP, np.float32)
    padded[: values.size] = values
    sizes = np.abs(padded).reshape(groups, _GROUP)
    scales = _to_bf16(sizes.max(1, keepdims=True))
    top = np.maximum(_from_bf16(scales), np.float32(1e-38))
    code = np.clip(np.rint(sizes / top * levels), 1, levels).astype(np.uint8) - 1
    code = (code << 1 | np.signbit(padded).reshape(groups, _GROUP)).reshape(-1)[: values.size]
    return bytes(scales.astype("<u2").tobytes()) + _pack(code, bits)


def _pack(code: Any, bits: int) -> bytes:
    share = 8 // bits
    padded = np.zeros(-(-code.size // share) * share, np.uint8)
    padded[: code.size] = code
    packed = np.zeros(padded.size // share, np.uint8)
    for i in range(share):
        packed |= padded[i::share] << (i * bits)
    return packed.tobytes()


def _decode_steps(coded: bytes, count: int, bits: int) -> Any:
    groups, levels = -(-count // _GROUP), 1 << (bits - 1)
    top = _from_bf16(np.frombuffer(coded, "<u2", groups)).reshape(groups, 1)
    made = top * (np.arange(1, levels + 1, dtype=np.float32) / levels)
    packed, share = np.frombuffer(coded, np.uint8, offset=2 * groups), 8 // bits
    code = np.zeros(packed.size * share, np.uint8)
    for i in range(share):
        code[i::share] = packed >> (i * bits) & ((1 << bits) - 1)
    code = code[:count]
    values = made[np.arange(count) // _GROUP, code >> 1]
    return np.where(code & 1, -values, values).astype(np.float32)


# ---- all ranks' messages ----


def gather(comm: Comm, mine: bytes) -> list[bytes]:
    """Every rank's bytes, which may be of any number. Three of them travel in each f32, which all
    links and algorithms carry exactly. Collective."""
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
