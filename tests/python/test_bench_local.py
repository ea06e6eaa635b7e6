"""bench/cuda/local.py in small, on the CPU: it needs PyTorch 2, so this is a long test."""

import json
import lzma
import os
import random
import subprocess
import sys

import pytest
import torch

ARMS = "plain:2:0.004", "diloco:2:0.004", "rising:2:0.004:last=1", "plain:2:0.004:keep=0"


def test_trainings_side_by_side(comm, repository, tmp_path):
    """DDP, LocalUpdates and DiLoCo; an arm that fails takes no other along."""
    if comm.size > 1 or torch.__version__.startswith("1."):
        pytest.skip("one rank, and PyTorch 2")
    draw = random.Random(1)
    for part, count in ("train", 20000), ("valid", 3000):
        with lzma.open(tmp_path / f"wikitext-2.{part}.txt.xz", "wb") as file:
            file.write(bytes(draw.choices(b"rill sums ", k=count)))
    small = "--layers 1 --width 16 --heads 2 --length 16 --rows 4 --check 1 --check-rows 8"
    given = f"--device cpu --steps 60 --seeds 1 --methods ddp --rates 0.004 {small}"
    script = [sys.executable, f"{repository}/bench/cuda/local.py", *given.split()]
    script += ["--warmup-steps", "30", "--seconds", "150"]
    script += ["--data", tmp_path, "--out", tmp_path / "out", "--arms", *ARMS]
    alone = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_"))}
    done = subprocess.run(script, capture_output=True, text=True, env=alone, timeout=200)
    log = (tmp_path / "out/log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr
    with open(tmp_path / "out/records.jsonl") as file:
        found = {record["method"]: record for record in map(json.loads, file)}
    assert set(found) == {"ddp", "plain", "diloco", "rising"}, log
    assert all(r["steps"] == 60 and r["equal_bits"] and 1 < r["loss"] < 6 for r in found.values())
    assert [found[name]["rounds"] for name in ("ddp", "plain", "diloco")] == [0, 2, 2]
    assert found["rising"]["rounds"] > 5
    assert 0 < found["plain"]["sent_bytes"] < found["diloco"]["sent_bytes"] / 5
    assert "keep = 0" in log
