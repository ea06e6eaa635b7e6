"""Codes of sorted indices and of values, for messages that Python makes itself."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

import numpy as np

from ._comm import Comm
from ._library import check, lib
from ._stream import Stream

_SLACK = 128  # kernels read and write whole registers
_GROUP, _BLOCK = 1024, 64  # values that share their scales, and a factor
_FACTORS = np.float32(2) ** (-np.arange(16, dtype=np.float32) / 2)
_WORDS = 256  # of a message, that have one index
_MOST = 0.5  # bits that the choice of a magnitude may take: 9.2 in all, with signs and places
_LARGEST = np.float32(255 * 2.0**120)  # of bf16
VALUE_BITS = (0, 16, 8, 4, 2)


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
# steps up to the largest magnitude, to nearest, each with its sign.
#
# 2 bits: signs, one bit each, and one of two magnitudes. Tensors and chunks differ in scale, so
# that each block of 64 has a factor in four bits, by how many half octaves it is below its group's
# largest. The higher magnitude is the rarer one: the places that have it are written by an index
# codec, groups with like shares together, for each of which the codec finds its parameter.


def _to_bf16(values: Any) -> Any:
    kept = np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)  # what is finite stays so
    return ((kept.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def _from_bf16(words: Any) -> Any:
    return (words.astype(np.uint32) << 16).view(np.float32)


def _two_levels(sizes: Any) -> "tuple[Any, Any]":
    """Of magnitudes in groups: two levels of each, and which have the higher one.

    Whether a group is split after its i smallest costs H(i / n) bits a value. The split with the
    least D 4^H is taken, D the sum of the squared errors: a bit is worth a quarter of it, as
    anywhere in lossy coding (entropy-constrained quantization: Chou, Lookabaugh, Gray 1989). Where
    both magnitudes are as frequent, as in the first steps of Adam, that would be a bit: it stays
    below _MOST, and what is lost by that waits with the sender.
    """
    groups, n = sizes.shape
    exact = np.sort(sizes, 1)
    largest = np.maximum(exact[:, -1:], np.finfo(np.float64).tiny)
    ordered = exact / largest  # squares stay finite and above 0
    sums = np.cumsum(ordered, 1)
    below = np.arange(1, n + 1)  # values up to the split; all: no split
    above = np.maximum(n - below, 1)
    rest = sums[:, -1:] - sums
    error = np.square(ordered).sum(1, keepdims=True) - sums**2 / below - rest**2 / above
    share = below / n
    rare = np.maximum(1 - share, 1e-9)
    entropy = -share * np.log2(share) - rare * np.log2(rare)
    cost = np.where(entropy <= _MOST, np.maximum(error, 1e-12) * 4.0**entropy, np.inf)
    split = np.argmin(cost, 1)
    rows = np.arange(groups)
    low = sums[rows, split] / below[split]
    high = np.where(split < n - 1, rest[rows, split] / above[split], low)
    levels = np.stack([low, high], 1) * largest
    return levels, sizes > exact[rows, split][:, None]


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


def _factors(sizes: Any) -> Any:
    """Which one each block has."""
    starts = np.arange(0, sizes.size, _BLOCK)
    sums = np.add.reduceat(sizes.astype(np.float64), starts)
    means = sums / np.minimum(sizes.size - starts, _BLOCK)
    octaves = 2 * np.log2(np.maximum(means, np.finfo(np.float64).tiny))
    tops = np.maximum.reduceat(octaves, np.arange(0, starts.size, _GROUP // _BLOCK))
    below = np.repeat(tops, _GROUP // _BLOCK)[: starts.size] - octaves
    return np.minimum(np.rint(below), 15).astype(np.uint8)


def _by_share(counts: Any) -> "tuple[Any, Any]":
    """Groups whose places of the higher magnitude are written by their indices, those with the
    fewest first; and those that have a bit for each value, which is shorter from two of five on."""
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    few = 5 * counts[order].astype(np.int64) < 2 * _GROUP
    return order[few], order[~few]


def _encode_two(values: Any) -> bytes:
    sizes, full = np.abs(values), values.size // _GROUP * _GROUP
    factors = _factors(sizes)
    raised = sizes / np.repeat(_FACTORS[factors], _BLOCK)[: sizes.size].astype(np.float64)
    parts = [raised[:full].reshape(-1, _GROUP), raised[full:].reshape(1, -1)]
    found = [_two_levels(part) for part in parts if part.size]
    levels = np.concatenate([made for made, _ in found])
    high = np.zeros((len(levels), _GROUP), bool)
    high.reshape(-1)[: values.size] = np.concatenate([part.reshape(-1) for _, part in found])
    counts = high.sum(1)
    few, many = _by_share(counts)
    places = np.flatnonzero(high[few])
    return b"".join(
        (
            _to_bf16(levels).astype("<u2").tobytes(),
            counts.astype("<u2").tobytes(),
            _pack(factors, 4),
            np.packbits(np.signbit(values), bitorder="little").tobytes(),
            np.packbits(high[many], bitorder="little").tobytes(),
            encode_indices("rice", places, few.size * _GROUP),
        )
    )


def _decode_two(coded: bytes, count: int) -> Any:
    at = 0

    def take(kind: str, n: int) -> Any:
        nonlocal at
        found = np.frombuffer(coded, kind, n, at)
        at += found.nbytes
        return found

    groups, blocks = -(-count // _GROUP), -(-count // _BLOCK)
    levels = _from_bf16(take("<u2", 2 * groups)).reshape(groups, 2)
    counts = take("<u2", groups)
    factors = _unpack(take("u1", -(-blocks // 2)), 4)[:blocks]
    signs = np.unpackbits(take("u1", -(-count // 8)), count=count, bitorder="little")
    few, many = _by_share(counts)
    high = np.zeros((groups, _GROUP), np.uint8)
    bits = take("u1", many.size * _GROUP // 8)
    high[many] = np.unpackbits(bits, bitorder="little").reshape(-1, _GROUP)
    space = few.size * _GROUP
    places = decode_indices("rice", coded[at:], int(counts[few].sum(dtype=np.int64)), space)
    high[few[places // _GROUP], places % _GROUP] = 1
    values = np.where(high, levels[:, 1:], levels[:, :1]).reshape(-1)[:count]
    values *= np.repeat(_FACTORS[factors], _BLOCK)[:count]
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


def _unpack(packed: Any, bits: int) -> Any:
    share = 8 // bits
    code = np.zeros(packed.size * share, np.uint8)
    for i in range(share):
        code[i::share] = packed >> (i * bits) & ((1 << bits) - 1)
    return code


def _decode_steps(coded: bytes, count: int, bits: int) -> Any:
    groups, levels = -(-count // _GROUP), 1 << (bits - 1)
    top = _from_bf16(np.frombuffer(coded, "<u2", groups)).reshape(groups, 1)
    made = top * (np.arange(1, levels + 1, dtype=np.float32) / levels)
    code = _unpack(np.frombuffer(coded, np.uint8, offset=2 * groups), bits)[:count]
    values = made[np.arange(count) // _GROUP, code >> 1]
    return np.where(code & 1, -values, values).astype(np.float32)


# ---- all ranks' messages ----


def gather(comm: Comm, mine: bytes) -> list[bytes]:
    """Every rank's bytes, which may be of any number. Three of them travel in each f32, which all
    links and algorithms carry exactly. Collective."""
    if comm.size == 1:
        return [mine]
    lengths: Sequence[int] = comm._gather(len(mine))
    blocks = [-(-length // (3 * _WORDS)) for length in lengths]
    ends = np.cumsum(blocks)
    first, own = int(ends[comm.rank]) - blocks[comm.rank], blocks[comm.rank]
    raw = np.zeros(own * _WORDS * 3, np.uint8)
    raw[: len(mine)] = np.frombuffer(mine, np.uint8)
    parts = raw.reshape(-1, 3).astype(np.uint32)
    words = (parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16).astype(np.float32)
    part = Stream(int(ends[-1]) * _WORDS, "f32")
    if own:
        part.set_blocks(_WORDS, np.arange(first, first + own, dtype=np.uint64), words)
    whole = comm.allgather(part, value_bits=0, allow_bits=0).dense().astype(np.uint32)
    found = np.stack([whole, whole >> 8, whole >> 16], 1).astype(np.uint8).reshape(-1)
    starts = [int(end) - n for end, n in zip(ends, blocks)]
    size = 3 * _WORDS
    return [
        found[start * size : start * size + length].tobytes()
        for start, length in zip(starts, lengths)
    ]
