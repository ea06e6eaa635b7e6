"""Where the entries of parameters stand in the flat vector that local updates select from.

Chunks are tiles of matrices, 64 x 64 entries for a chunk of 4,096: rows and columns of a layer have
much in common, so that a tile is a fairer sample of it than a stretch of one row. Tiles at the
edges are smaller, and lie one after the other; each parameter starts at a new chunk.
"""

from __future__ import annotations

import math
from typing import Sequence

import torch


def tiled(matrix: torch.Tensor, side: int) -> torch.Tensor:
    """The entries of a matrix in the order of its tiles."""
    rows, columns = matrix.shape
    inner, right = rows // side * side, columns // side * side
    parts = [
        matrix[:inner, :right]
        .reshape(inner // side, side, right // side, side)
        .permute(0, 2, 1, 3),
        matrix[:inner, right:],
        matrix[inner:, :right].reshape(rows - inner, right // side, side).permute(1, 0, 2),
        matrix[inner:, right:],
    ]
    return torch.cat([part.reshape(-1) for part in parts])


def untiled(flat: torch.Tensor, rows: int, columns: int, side: int) -> torch.Tensor:
    """The matrix of which tiled gives this."""
    inner, right = rows // side * side, columns // side * side
    sizes = [inner * right, inner * (columns - right), (rows - inner) * right]
    body, edge, foot, corner = flat.split([*sizes, rows * columns - sum(sizes)])
    matrix = flat.new_empty(rows, columns)
    matrix[:inner, :right] = (
        body.reshape(inner // side, right // side, side, side)
        .permute(0, 2, 1, 3)
        .reshape(inner, right)
    )
    matrix[:inner, right:] = edge.reshape(inner, columns - right)
    matrix[inner:, :right] = (
        foot.reshape(right // side, rows - inner, side)
        .permute(1, 0, 2)
        .reshape(rows - inner, right)
    )
    matrix[inner:, right:] = corner.reshape(rows - inner, columns - right)
    return matrix


class Layout:
    """Parameters in one vector: those in chunks first, then the dense ones."""

    def __init__(
        self, parameters: Sequence[torch.Tensor], chunk: int, small: int, all_dense: bool
    ) -> None:
        self.chunk, self.side = chunk, max(math.isqrt(chunk), 1)
        self.chunked = [
            p for p in parameters if p.dim() > 1 and p.numel() >= small and not all_dense
        ]
        chosen = {id(p) for p in self.chunked}
        self.dense = [p for p in parameters if id(p) not in chosen]
        self.chunks = [-(-p.numel() // chunk) for p in self.chunked]  # of each parameter
        self.chunked_size = sum(self.chunks) * chunk
        self.sizes = [n * chunk for n in self.chunks] + [p.numel() for p in self.dense]
        self.size = sum(self.sizes)

    def read(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A vector of what the parameters (chunked, then dense ones) or others like them have."""
        device = tensors[0].device
        flat = torch.zeros(self.size, dtype=torch.float32, device=device)
        for number, (tensor, part) in enumerate(zip(tensors, flat.split(self.sizes))):
            values = tensor.detach().to(torch.float32)
            if number < len(self.chunked):
                values = tiled(values.reshape(values.shape[0], -1), self.side)
            part[: values.numel()] = values.reshape(-1)
        return flat

    @torch.no_grad()
    def write(self, flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        """The other way."""
        for number, (tensor, part) in enumerate(zip(tensors, flat.split(self.sizes))):
            values = part[: tensor.numel()]
            if number < len(self.chunked):
                values = untiled(values, tensor.shape[0], tensor[0].numel(), self.side)
            tensor.copy_(values.reshape(tensor.shape))

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [*self.chunked, *self.dense]


def shared_out(parameters: list[torch.Tensor], parts: int) -> list[list[torch.Tensor]]:
    """Parameters in parts of about the same size, in their order: each has one at least."""
    total = sum(p.numel() for p in parameters)
    shared: list[list[torch.Tensor]] = [[] for _ in range(parts)]
    number = done = 0
    for i, parameter in enumerate(parameters):
        shared[number].append(parameter)
        done += parameter.numel()
        left = len(parameters) - i - 1
        if number < parts - 1 and (
            done * parts >= total * (number + 1) or left == parts - number - 1
        ):
            number += 1
    return shared
