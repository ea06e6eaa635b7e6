"""What benchmarks and tests on a GPU share: jobs of ranks with a limit of time, and GPT-2."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def say(**record):
    print(json.dumps(record), flush=True)


def run_job(program, ranks, arguments, limit, rate=None, **settings):
    """Runs a program of Python under mpirun, and ends it after so many seconds. Returns its status,
    None where time was over, and the seconds that it took. rate: each rank on an emulated host of
    its own, with links of that rate (lab/cluster; root)."""
    start = [str(ROOT / "scripts/mpirun-test"), str(ranks)]
    if rate:
        start = [str(ROOT / "lab/cluster"), "--hosts", str(ranks), "--rate", rate, "--"]
    command = [*start, sys.executable, str(program)]
    env = {"OMP_NUM_THREADS": "1", **settings, **os.environ}
    env["PYTHONPATH"] = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    began = time.monotonic()
    job = subprocess.Popen([*command, *arguments], env=env, start_new_session=True)
    try:
        status = job.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        job.wait()
        status = None
    return status, round(time.monotonic() - began, 1)


def leave(mpi, status=0):
    """Ends a rank: nothing that hangs at the end hides the result."""
    from mpi4py import MPI

    mpi.Barrier()
    MPI.Finalize()
    os._exit(status)


def gpt2(words, places=1024, dropout=0.0, layers=12, width=768, heads=12, device="cuda", seed=4):
    """GPT-2 small by default, for rows of up to so many places. It gives the mean loss where
    targets are given, else the scores."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, _ = x.shape
            parts = self.qkv(self.norm1(x)).view(batch, length, 3, heads, width // heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            x = x + nn.functional.dropout(mixed, dropout, self.training)
            mixed = self.down(nn.functional.gelu(self.up(self.norm2(x))))
            return x + nn.functional.dropout(mixed, dropout, self.training)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    deep = name.endswith(("out.weight", "down.weight"))
                    nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)

        def forward(self, tokens, targets=None):
            x = self.words(tokens)
            x = x + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            x = nn.functional.dropout(x, dropout, self.training)
            for block in self.blocks:
                x = block(x)
            scores = self.norm(x) @ self.words.weight.t()
            if targets is None:
                return scores
            return nn.functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())

    torch.manual_seed(seed)
    with torch.device(device):  # PyTorch 2
        return Model()
