"""A small transformer, and the letters of WikiText-2 that it learns (RILL_DATA)."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import torch
from torch import nn

LENGTH, WIDTH = 64, 128


def letters():
    """Numbers of the letters of the training and of the validation set, of a part of them."""
    folder = Path(os.environ.get("RILL_DATA", "../shared/data"))
    parts = []
    for part in ("train", "valid"):
        with lzma.open(folder / f"wikitext-2.{part}.txt.xz") as file:
            parts.append(torch.tensor(list(file.read(2_000_000))))
    return parts


def transformer():
    """Two layers, for rows of LENGTH letters."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters = nn.Embedding(256, WIDTH)
            self.places = nn.Embedding(LENGTH, WIDTH)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
                )
                for _ in range(2)
            )
            self.last = nn.Linear(WIDTH, 256)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
            x = self.letters(x) + self.places(torch.arange(LENGTH))
            for layer in self.layers:
                x = layer(x, src_mask=mask)
            return self.last(x)

    return Model()
