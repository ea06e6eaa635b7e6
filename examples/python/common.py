"""What the examples share: arguments, progress, metrics, plots, and a model made distributed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import torch  # noqa: E402
from mpi4py import MPI  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import rill.torch  # noqa: E402

METHODS = ["dense", "topk", "gtopk", "oktopk", "spardl", "s2", "topk+qsgd4"]


def parser(description: str, *, steps: int, lr: float, batch: int) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    p.add_argument(
        "--method", default="oktopk", help=f"{', '.join(METHODS)}, or another algorithm of rill"
    )
    p.add_argument(
        "--density", type=float, default=0.01, help="share of the entries that is sent in a step"
    )
    p.add_argument(
        "--warmup",
        type=int,
        default=0,
        metavar="STEPS",
        help="steps at each of four higher densities first",
    )
    p.add_argument(
        "--small",
        type=int,
        default=0,
        metavar="VALUES",
        help="parameters of fewer values are summed densely",
    )
    p.add_argument(
        "--sketch",
        default="",
        metavar="LAMBDA,ROWS",
        help="s2: cells of the sketch for an entry, and rows (default: 0.5,3)",
    )
    p.add_argument("--steps", type=int, default=steps)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--lr", type=float, default=lr, help="learning rate")
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument(
        "--correction",
        action="store_true",
        help="momentum on each rank before selection, not in SGD or Adam (not for dense)",
    )
    p.add_argument(
        "--follow",
        action="store_true",
        help="what waits to be sent counts with the rate that it was computed at",
    )
    p.add_argument(
        "--decay", action="store_true", help="the learning rate goes linearly to 0 over the steps"
    )
    p.add_argument(
        "--adam",
        action="store_true",
        help="Adam instead of SGD with momentum; applied after the exchange",
    )
    p.add_argument("--batch", type=int, default=batch, help="samples of a rank in a step")
    p.add_argument(
        "--device",
        default="cpu",
        help="cpu, or cuda: the host's GPUs are shared out among its ranks",
    )
    p.add_argument(
        "--evaluate",
        type=int,
        default=0,
        metavar="STEPS",
        help="steps between evaluations; 0: at the end only",
    )
    p.add_argument(
        "--metrics", default="", metavar="FILE", help="a JSON line for each step and evaluation"
    )
    p.add_argument(
        "--plot", default="", metavar="FILE", help="the curve as .svg or .png; needs matplotlib"
    )
    return p


def data_folders() -> list[Path]:
    shared = Path(__file__).resolve().parents[3] / "shared" / "data"
    given = os.environ.get("RILL_DATA")
    return ([Path(given)] if given else []) + [shared, Path("/usr/share/datasets")]


def find_data(name: str) -> Optional[Path]:
    return next((folder / name for folder in data_folders() if (folder / name).exists()), None)


class Bar:
    """A progress bar on a terminal; a line now and then elsewhere."""

    def __init__(self, total: int, shown: bool) -> None:
        self.total, self.shown = total, shown
        self.terminal = sys.stderr.isatty()
        self.began = self.last = time.monotonic()

    def show(self, done: int, note: str) -> None:
        now = time.monotonic()
        if not self.shown or (
            done < self.total and now - self.last < (0.1 if self.terminal else 10)
        ):
            return
        self.last = now
        left = (now - self.began) / max(done, 1) * (self.total - done)
        if self.terminal:
            width = 30 * done // self.total
            bar = "#" * width + "." * (30 - width)
            sys.stderr.write(f"\r[{bar}] {done}/{self.total} {note} {left:.0f} s left \x1b[K")
            sys.stderr.write("\n" if done == self.total else "")
        else:
            sys.stderr.write(f"{done}/{self.total} {note}\n")
        sys.stderr.flush()


class Run:
    """A training run: counts, measures, writes and shows."""

    def __init__(
        self, arguments: argparse.Namespace, rank: int, size: int, task: str, measure: str
    ) -> None:
        self.arguments, self.rank, self.size, self.measure = arguments, rank, size, measure
        self.bar = Bar(arguments.steps, rank == 0)
        self.file = open(arguments.metrics, "w") if arguments.metrics and rank == 0 else None
        self.curve: list[tuple[int, float]] = []
        self.evaluations: list[tuple[int, float]] = []
        self.bytes = 0
        self.write(
            kind="run", task=task, method=arguments.method, density=arguments.density,
            ranks=size, seed=arguments.seed, lr=arguments.lr, batch=arguments.batch,
            adam=arguments.adam, momentum=arguments.momentum, decay=arguments.decay,
            warmup=arguments.warmup, correction=corrected(arguments), follow=arguments.follow,
            small=arguments.small, sketch=arguments.sketch, device=arguments.device,
            torch=torch.__version__,
        )  # fmt: skip

    def write(self, **record: Any) -> None:
        if self.file:
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()

    def steps(self) -> Iterable[int]:
        for step in range(1, self.arguments.steps + 1):
            self.began = time.perf_counter()
            yield step

    def stepped(self, step: int, loss: float, stats: Iterable[Any]) -> None:
        seconds = time.perf_counter() - self.began
        stats = list(stats)
        sent = sum(s.sent_bytes for s in stats)
        self.bytes += sent
        self.curve.append((step, loss))
        self.write(
            kind="step", step=step, loss=loss, seconds=seconds, sent_bytes=sent,
            select_seconds=sum(s.select_s for s in stats),
            selected=sum(s.selected_k for s in stats),
        )  # fmt: skip
        self.bar.show(step, f"loss {loss:.4f}")

    def evaluate(self, step: int, evaluate: Callable[[], float]) -> None:
        every = self.arguments.evaluate
        if step != self.arguments.steps and not (every and step % every == 0):
            return
        value = evaluate()
        self.evaluations.append((step, value))
        self.write(kind="evaluation", step=step, **{self.measure.replace(" ", "_"): value})
        if self.rank == 0:
            print(f"step {step}  {self.measure} {value:.4f}", flush=True)

    def finish(self) -> None:
        self.write(kind="end", sent_bytes=self.bytes)
        if self.rank == 0:
            sent = self.bytes / max(1, self.arguments.steps) / 1e3
            print(f"{self.arguments.method}: {sent:.1f} kB sent by a rank in a step")
        if self.arguments.plot and self.rank == 0:
            self.plot()

    def plot(self) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axis = pyplot.subplots(figsize=(7, 4))
        axis.plot(*zip(*self.curve), linewidth=0.8, label="loss of rank 0's batch")
        axis.set_xlabel("step")
        axis.set_ylabel("loss")
        other = axis.twinx()
        other.plot(*zip(*self.evaluations), "o-", color="tab:orange", label=self.measure)
        other.set_ylabel(self.measure)
        figure.legend(loc="upper center", ncol=2, frameon=False)
        axis.set_title(f"{self.arguments.method}, {self.size} ranks", y=1.08, fontsize=10)
        figure.savefig(self.arguments.plot, bbox_inches="tight")


def device_of(arguments: argparse.Namespace) -> torch.device:
    if arguments.device != "cuda":
        return torch.device(arguments.device)
    host = rill.world().mpi.Split_type(MPI.COMM_TYPE_SHARED)
    device = torch.device("cuda", host.Get_rank() % torch.cuda.device_count())
    host.Free()
    torch.cuda.set_device(device)
    return device


def corrected(arguments: argparse.Namespace) -> bool:
    return bool(arguments.correction and arguments.method != "dense")


def optimizer_of(arguments: argparse.Namespace, parameters: Any) -> torch.optim.Optimizer:
    if arguments.adam:  # with momentum in the reducers, Adam has none of its own
        return torch.optim.Adam(
            parameters, lr=arguments.lr, betas=(0.0 if corrected(arguments) else 0.9, 0.999)
        )
    return torch.optim.SGD(
        parameters, lr=arguments.lr, momentum=0.0 if corrected(arguments) else arguments.momentum
    )


def schedule_of(arguments: argparse.Namespace, optimizer: torch.optim.Optimizer) -> Any:
    """To be stepped after each step of the optimizer."""
    steps = arguments.steps
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: (1 - done / steps) if arguments.decay else 1.0
    )


def sketch_options(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.sketch:
        return {}
    cells, rows = arguments.sketch.split(",")
    return {"sketch_lambda": float(cells), "sketch_rows": int(rows)}


def distributed(
    arguments: argparse.Namespace, model: nn.Module, **options: Any
) -> tuple[DistributedDataParallel, rill.torch.State]:
    """The model under DistributedDataParallel with rill's hook."""
    ddp = DistributedDataParallel(model)
    state = rill.torch.State(
        arguments.method, density=arguments.density, module=model, seed=arguments.seed,
        small=arguments.small, warmup_steps=arguments.warmup,
        momentum=arguments.momentum if corrected(arguments) else 0.0,
        **sketch_options(arguments), **options,
    )  # fmt: skip
    ddp.register_comm_hook(state, rill.torch.hook)
    return ddp, state


def follow(arguments: argparse.Namespace, state: Any, optimizer: torch.optim.Optimizer) -> None:
    if arguments.follow:
        state.follow(optimizer)
