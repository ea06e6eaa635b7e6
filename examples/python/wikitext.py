#!/usr/bin/env python3
"""An LSTM language model on WikiText-2, with DistributedDataParallel. Without the data it reads
text that the machine has.

    mpirun -n 4 python3 examples/python/wikitext.py --method spardl --density 0.01 --steps 1000
"""

from __future__ import annotations

import collections
import glob
import gzip
import lzma
import math
import sys

import common
import rill.torch
import torch
from torch import nn


def own_text(words: int = 400000) -> list[str]:
    """Licences, manuals and headers of this machine, in the order of their names."""
    found: list[str] = []
    for pattern in (
        "/usr/share/common-licenses/*",
        "/usr/share/man/man[17]/*.gz",
        "/usr/share/perl/*/pod/*.pod",
        "/usr/include/*.h",
    ):
        for name in sorted(glob.glob(pattern)):
            opened = gzip.open if name.endswith(".gz") else open
            try:
                with opened(name, "rt", errors="ignore") as file:
                    found += file.read().split()
            except OSError:
                continue
            if len(found) >= words:
                return found[:words]
    if len(found) < 10000:
        sys.exit("neither WikiText-2 (set RILL_DATA) nor enough text of this machine was found")
    return found


def texts() -> tuple[str, list[str], list[str]]:
    parts = []
    for part in ("train", "valid"):
        path = common.find_data(f"wikitext-2.{part}.txt.xz")
        if path is None:
            words = own_text()
            cut = len(words) * 9 // 10
            return "text of this machine", words[:cut], words[cut:]
        with lzma.open(path, "rt", encoding="utf-8") as file:
            parts.append(file.read().replace("\n", " <eos> ").split())
    return "wikitext-2", parts[0], parts[1]


class Model(nn.Module):
    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, words)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(
        self, x: torch.Tensor, hidden: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        y, hidden = self.lstm(self.embedding(x), hidden)
        return self.out(y), hidden


def main() -> None:
    parser = common.parser(__doc__.split("\n\n")[0], steps=1000, lr=2.0, batch=8)
    parser.set_defaults(momentum=0.0)
    parser.add_argument("--width", type=int, default=128, help="of embedding and LSTM")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument(
        "--words", type=int, default=0, help="size of the vocabulary, most frequent first; 0: all"
    )
    parser.add_argument("--length", type=int, default=35, help="words of a sequence")
    parser.add_argument(
        "--clip",
        type=float,
        default=0.25,
        help="largest norm of a rank's gradient, before the exchange; 0: no",
    )
    arguments = parser.parse_args()
    rank, size = rill.torch.init_process_group()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)

    source, train_words, valid_words = texts()
    common_words = collections.Counter(train_words).most_common(
        arguments.words - 1 if arguments.words else None
    )
    numbers = {word: i + 1 for i, (word, _) in enumerate(common_words)}  # 0: any other word
    device = common.device_of(arguments)
    train = torch.tensor([numbers.get(word, 0) for word in train_words]).to(device)
    valid = torch.tensor([numbers.get(word, 0) for word in valid_words]).to(device)
    model = Model(len(numbers) + 1, arguments.width, arguments.layers).to(device)
    if rank == 0:
        count = sum(p.numel() for p in model.parameters())
        print(
            f"{source}: {len(train)} words, {len(numbers) + 1} types, {count} parameters",
            flush=True,
        )
    # The reducer clips to clip / sqrt(ranks), so that the sum of all stays within clip.
    ddp, state = common.distributed(arguments, model, clip=arguments.clip * size**0.5)
    optimizer = common.optimizer_of(arguments, ddp.parameters())
    common.follow(arguments, state, optimizer)
    schedule = common.schedule_of(arguments, optimizer)
    run = common.Run(arguments, rank, size, source, "validation perplexity")

    def start(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (arguments.layers, batch, arguments.width)
        return torch.zeros(shape, device=device), torch.zeros(shape, device=device)

    @torch.no_grad()
    def perplexity() -> float:
        mine = valid[len(valid) * rank // size : len(valid) * (rank + 1) // size][:20000]
        rows = mine[: len(mine) // 10 * 10].reshape(10, -1)
        hidden, loss, words = start(10), 0.0, 0
        for at in range(0, rows.shape[1] - 1, arguments.length):
            n = min(arguments.length, rows.shape[1] - 1 - at)
            y, hidden = model(rows[:, at : at + n], hidden)
            loss += float(
                nn.functional.cross_entropy(
                    y.flatten(0, 1), rows[:, at + 1 : at + 1 + n].flatten(), reduction="sum"
                )
            )
            words += 10 * n
        total = rill.torch.allreduce(torch.tensor([loss, words], dtype=torch.float64))
        return math.exp(float(total[0] / total[1]))

    # Each rank has its rows of the text, and goes along them.
    rows = size * arguments.batch
    text = train[: len(train) // rows * rows].reshape(rows, -1)[
        rank * arguments.batch : (rank + 1) * arguments.batch
    ]
    hidden, at = start(arguments.batch), 0
    for step in run.steps():
        if at + arguments.length + 1 > text.shape[1]:
            hidden, at = start(arguments.batch), 0
        x, y = text[:, at : at + arguments.length], text[:, at + 1 : at + 1 + arguments.length]
        at += arguments.length
        optimizer.zero_grad()
        scores, hidden = ddp(x, hidden)
        hidden = (hidden[0].detach(), hidden[1].detach())
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        schedule.step()
        run.stepped(step, loss.item(), state.stats)
        run.evaluate(step, perplexity)
    run.finish()


if __name__ == "__main__":
    main()
