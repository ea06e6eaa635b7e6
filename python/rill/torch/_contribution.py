"""What a rank sends in a round of local updates, and what all make of it.

Of each chunk the entries that are largest; the rest of the vector, small and 1-D parameters, whole:
both at a few bits. What coding loses the sender keeps, like all that it did not send. The rest is a
small part of a model, but at 16 bits it would be nearly half of the message of a small one.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Optional, Sequence

import numpy as np
import torch

from .._codes import decode_indices, decode_values, encode_indices, encode_values
from .._selector import Selector
from ._tiles import Layout

_HEAD = struct.Struct("<IIQQQ")  # round, steps, bytes of indices, of values, of the rest
_CODEC = "rice"  # takes the fewest bits for a few entries of every chunk


class Sent(NamedTuple):
    message: bytes
    values: torch.Tensor  # the vector as the others will see it


class Coding:
    """How vectors of a layout are sent."""

    def __init__(self, layout: Layout, keep: int, value_bits: int) -> None:
        self.layout, self.value_bits = layout, value_bits
        self.keep = min(keep, layout.chunk)
        self.count = sum(layout.chunks) * self.keep
        self._selector: Optional[Selector] = None

    def _largest(self, vector: torch.Tensor) -> torch.Tensor:
        """The places of the largest of each chunk, in their order."""
        if self.keep == self.layout.chunk:
            return torch.arange(self.count, device=vector.device)
        if vector.device.type == "cpu":
            return torch.from_numpy(self._largest_on_host(vector.numpy()))
        chunks = vector.view(-1, self.layout.chunk)
        places = chunks.abs().topk(self.keep, dim=1).indices.sort(dim=1).values
        first = torch.arange(len(chunks), device=places.device) * self.layout.chunk
        return (places + first[:, None]).reshape(-1)

    def _largest_on_host(self, vector: Any) -> Any:
        """By rill's selector, which reads the vector once. It leaves zeros out, but a contribution
        has as many entries of each chunk: then the first zeros are taken."""
        chunk = self.layout.chunk
        if self._selector is None:
            self._selector = Selector(
                vector.size, method="bucket", density=self.keep / chunk, bucket=chunk,
                threads=torch.get_num_threads(),
            )  # fmt: skip
        found = self._selector.select(vector).indices.astype(np.int64)
        if found.size == self.count:
            return found
        counts = np.bincount(found // chunk, minlength=self.count // self.keep)
        short = np.flatnonzero(counts < self.keep)
        row_of = np.full(counts.size, -1)
        row_of[short] = np.arange(short.size)
        rows = row_of[found // chunk]
        taken = np.zeros((short.size, chunk), bool)
        taken[rows[rows >= 0], found[rows >= 0] % chunk] = True
        lacking = self.keep - counts[short]
        taken |= ~taken & ((~taken).cumsum(1, dtype=np.int32) <= lacking[:, None])
        filled, at = np.nonzero(taken)
        return np.sort(np.concatenate([found[rows < 0], short[filled] * chunk + at]))

    def encode(self, vector: torch.Tensor, number: int, steps: int, buffers: torch.Tensor) -> Sent:
        """number: of the round. steps: that this contribution is of; 0: there is none."""
        if steps == 0:
            return Sent(_HEAD.pack(number, 0, 0, 0, 0), torch.zeros_like(vector))
        layout, sent = self.layout, torch.zeros_like(vector)
        indices = values = b""
        if self.count:
            places = self._largest(vector[: layout.chunked_size])
            values = encode_values(vector[places].cpu().numpy(), self.value_bits)
            indices = encode_indices(_CODEC, places.cpu().numpy(), layout.chunked_size)
            seen = decode_values(values, self.count, self.value_bits)
            sent[places] = torch.from_numpy(seen).to(vector.device)
        rest = vector[layout.chunked_size :].cpu().numpy()
        dense = encode_values(rest, self.value_bits)
        seen = decode_values(dense, rest.size, self.value_bits)
        sent[layout.chunked_size :] = torch.from_numpy(seen).to(vector.device)
        head = _HEAD.pack(number, steps, len(indices), len(values), len(dense))
        tail = encode_values(buffers.numpy(), 0)
        return Sent(head + indices + values + dense + tail, sent)

    def decode(self, message: bytes) -> "Optional[Contribution]":
        """None where the rank had nothing to give."""
        _, steps, n_indices, n_values, n_rest = _HEAD.unpack_from(message)
        if steps == 0:
            return None
        layout, at = self.layout, _HEAD.size
        coded, values = message[at : at + n_indices], message[at + n_indices :]
        places = decode_indices(_CODEC, coded, self.count, layout.chunked_size)
        dense = layout.size - layout.chunked_size
        found = decode_values(values[:n_values], self.count, self.value_bits)
        rest = decode_values(values[n_values : n_values + n_rest], dense, self.value_bits)
        tail = values[n_values + n_rest :]
        buffers = decode_values(tail, len(tail) // 4, 0)
        return Contribution(*map(torch.from_numpy, (places, found, rest, buffers)))

    def tensors(self, made: "Contribution") -> list[torch.Tensor]:
        """Its values for each parameter, which are views."""
        counts = [n * self.keep for n in self.layout.chunks]
        rest = [p.numel() for p in self.layout.dense]
        return [*made.values.split(counts), *made.rest.split(rest)]


class Contribution(NamedTuple):
    places: torch.Tensor
    values: torch.Tensor
    rest: torch.Tensor
    buffers: torch.Tensor


def clip_to_median(coding: Coding, all_of_them: Sequence[Contribution]) -> None:
    """Scales down what has a larger norm than the median of its tensor."""
    by_rank = [coding.tensors(one) for one in all_of_them]
    for parts in zip(*by_rank):
        norms = np.array([float(part.double().norm()) for part in parts])
        limit = float(np.median(norms))
        for part, norm in zip(parts, norms):
            if norm > limit:
                part.mul_(limit / norm)


def mean_of(
    coding: Coding, all_of_them: Sequence[Contribution], senders: bool, device: torch.device
) -> torch.Tensor:
    """On that device, to which only what was sent goes. In the order of the ranks, so that all get
    the same bits: a contribution has each place once. senders: each entry is divided by the number
    of those who sent it, else by the number of contributions."""
    layout = coding.layout
    total = torch.zeros(layout.size, dtype=torch.float32, device=device)
    chunked, rest = total[: layout.chunked_size], total[layout.chunked_size :]
    count = torch.zeros(layout.chunked_size if senders else 0, device=device, dtype=torch.float32)
    for one in all_of_them:
        places = one.places.to(device)
        chunked[places] += one.values.to(device)
        rest += one.rest.to(device)
        if senders:
            count[places] += 1
    chunked /= count.clamp_(min=1) if senders else len(all_of_them)
    rest /= len(all_of_them)
    return total
