#!/usr/bin/env python3
"""A text classifier whose embedding has sparse gradients, with DistributedOptimizer and without
DistributedDataParallel.

The task: which of four files of this machine's kinds of text a window of words is from; words are
hashed to the rows of the embedding. The embedding's rows are summed exactly, the large layer goes
by the method, and small tensors densely.

    mpirun -n 4 python3 examples/python/embedding.py --method topk --density 0.01 --steps 300
"""

from __future__ import annotations

import glob
import gzip
import sys
import zlib

import common
import rill.torch
import torch
from torch import nn

KINDS = {
    "licences": "/usr/share/common-licenses/*",
    "manuals": "/usr/share/man/man1/[a-m]*.gz",
    "headers": "/usr/include/*.h",
    "scripts": "/usr/share/perl/*/[A-Z]*.pm",
}
WINDOW = 12


def words_of(pattern: str, most: int = 60000) -> list[str]:
    words: list[str] = []
    for name in sorted(glob.glob(pattern)):
        opened = gzip.open if name.endswith(".gz") else open
        try:
            with opened(name, "rt", errors="ignore") as file:
                words += file.read().split()
        except OSError:
            continue
        if len(words) >= most:
            break
    return words[:most]


def windows(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    texts = [words for pattern in KINDS.values() if len(words := words_of(pattern)) > 50 * WINDOW]
    if len(texts) < 2:
        sys.exit("this machine has too little text to classify")
    least = min(len(words) for words in texts) // WINDOW
    inputs, labels = [], []
    for label, words in enumerate(texts):
        numbers = [zlib.crc32(word.encode()) % rows for word in words[: least * WINDOW]]
        inputs.append(torch.tensor(numbers).reshape(least, WINDOW))
        labels.append(torch.full((least,), label))
    return torch.cat(inputs), torch.cat(labels)


class Model(nn.Module):
    def __init__(self, rows: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(rows, width, sparse=True)
        self.hidden = nn.Linear(width, 256)
        self.out = nn.Linear(256, classes)
        nn.init.normal_(self.embedding.weight, std=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(self.embedding(x))))


def main() -> None:
    parser = common.parser(__doc__.split("\n\n")[0], steps=300, lr=1.0, batch=32)
    parser.set_defaults(momentum=0.0, small=4096)
    parser.add_argument("--rows", type=int, default=1 << 17, help="of the embedding")
    parser.add_argument("--width", type=int, default=64, help="of the embedding")
    arguments = parser.parse_args()
    if arguments.device != "cpu":
        parser.error("--device: sparse gradients are exchanged from the host's memory")
    if arguments.adam:
        parser.error("--adam: PyTorch's Adam takes no sparse gradients")
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    comm = rill.world()
    inputs, labels = windows(arguments.rows)
    held_out = torch.arange(len(labels)) % 10 == 0
    train_inputs, train_labels = inputs[~held_out], labels[~held_out]
    test_inputs, test_labels = inputs[held_out], labels[held_out]

    model = Model(arguments.rows, arguments.width, int(labels.max()) + 1)
    rill.torch.broadcast_parameters(model)
    optimizer = rill.torch.DistributedOptimizer(
        common.optimizer_of(arguments, model.parameters()), model.named_parameters(),
        arguments.method, density=arguments.density, seed=arguments.seed,
        warmup_steps=arguments.warmup, small=arguments.small,
        momentum=arguments.momentum if common.corrected(arguments) else 0.0,
        **common.sketch_options(arguments),
    )  # fmt: skip
    common.follow(arguments, optimizer, optimizer.optimizer)
    schedule = common.schedule_of(arguments, optimizer)
    run = common.Run(arguments, comm.rank, comm.size, "embedding", "test accuracy")

    @torch.no_grad()
    def accuracy() -> float:
        return float((model(test_inputs).argmax(1) == test_labels).float().mean())

    draw = torch.Generator().manual_seed(arguments.seed)
    for step in run.steps():
        chosen = torch.randint(
            0, len(train_labels), (comm.size * arguments.batch,), generator=draw
        )[comm.rank :: comm.size]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(train_inputs[chosen]), train_labels[chosen])
        loss.backward()
        optimizer.step()
        schedule.step()
        run.stepped(step, loss.item(), optimizer.stats.values())
        run.evaluate(step, accuracy)
    run.finish()


if __name__ == "__main__":
    main()
