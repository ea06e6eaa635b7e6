"""Programs that end on one rank before the others: started by mpirun from here, on one rank."""

import os
import subprocess
import sys
import textwrap
import time

import pytest

BEGIN = """
import os, signal, sys, time
import numpy as np, rill
from mpi4py import MPI
signal.signal(signal.SIGINT, signal.default_int_handler)
comm = rill.world()
rank = comm.rank
x = np.ones(100, np.float32)
def forever():
    while True:
        comm.allreduce(x)
def calls(n=5):
    for _ in range(n):
        comm.allreduce(x)
"""

# What rank 1 does, and then what all do; the status of the job, and what it must and must not
# print.
CASES = {
    "raise": (
        "raise ValueError('mine')",
        "forever()", 1, ["ValueError: mine", "rank 1 ended by ValueError"], ["RillError"],
    ),
    "interrupt": (
        "os.kill(os.getpid(), signal.SIGINT)",
        "forever()", 130, ["KeyboardInterrupt"], ["RillError"],
    ),
    "exit 3": ("sys.exit(3)", "forever()", 3, ["rank 1 ended with status 3"], ["Traceback"]),
    "exit text": (
        "sys.exit('out of luck')",
        "forever()", 1, ["out of luck", "rank 1 ended with status 1"], ["Traceback"],
    ),
    "exit 0": ("sys.exit(0)", "forever()", 1, ["RillError: rank 1: its program has ended"], []),
    # Several calls are under way: each of them fails.
    "break": (
        "",
        "[q.wait() for q in [comm.iallreduce(x) for _ in range(5 * (rank == 0))]]",
        1, ["rank 1: its program has ended"], [],
    ),
    "of another rank": (
        "comm.allreduce(3)", "forever()", 1, ["TypeError", "_buffers.py"], ["RillError"],
    ),
    "checked": (
        "",
        "comm = rill.Comm(check=True); calls(rank == 0)",
        1, ["another rank has ended its program"], [],
    ),
    "reducer": (
        "sys.exit()",
        "rill.Reducer(comm, 10).save('/nowhere')", 1, ["rank 1: its program has ended"], [],
    ),
    "own hook": (
        "hook = sys.excepthook; sys.excepthook = lambda *a: (print('my own hook'), hook(*a)); "
        "raise ValueError",
        "forever()", 1, ["my own hook", "ValueError"], [],
    ),
    # And what must not end the others.
    "exit that is caught": (
        "\ntry: sys.exit(3)\nexcept SystemExit as e: assert e.code == 3",
        "calls()", 0, [], ["rill:"],
    ),
    "thread": (
        "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
        "calls()", 0, ["ZeroDivisionError"], [],
    ),
    "others work on": (
        "sys.exit()", "time.sleep(1.5); print('worked on')", 0, ["worked on"], ["rill:"],
    ),
    "not waited for": ("", "q = comm.iallreduce(x)", 0, [], ["rill:"]),
    "prompt": (
        "",
        "\nsys.ps1 = '> '\n"
        "if rank == 1: sys.excepthook(ValueError, ValueError('typo'), None)\n"
        "calls()",
        0, ["typo"], ["rill:"],
    ),
    "fork": (
        "pid = os.fork()\n"
        "if pid == 0: sys.excepthook(ValueError, ValueError('of a child'), None); os._exit(0)\n"
        "os.waitpid(pid, 0)",
        "calls()", 0, ["of a child"], ["rill:"],
    ),
}  # fmt: skip


def clean_environment(**more):
    """As if this process were no rank itself."""
    ours = ("OMPI_", "PMIX_", "PMI_", "HYDRA", "MPICH", "MPI_LOCAL", "PRTE_", "ORTE_")
    return {**{k: v for k, v in os.environ.items() if not k.startswith(ours)}, **more}


def job(repository, body, ranks=2, **environment):
    """Status, output and seconds."""
    start = time.monotonic()
    done = subprocess.run(
        [f"{repository}/scripts/mpirun-test", str(ranks), sys.executable, "-c", BEGIN + body],
        env=clean_environment(**environment), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


def body_of(first, then):
    return f"if rank == 1:\n{textwrap.indent(first.strip() or 'pass', '    ')}\n{then}\n"


@pytest.mark.parametrize("case", CASES)
def test_a_rank_that_ends(comm, repository, case):
    if comm.size > 1:
        pytest.skip("starts jobs of its own")
    first, then, status, there, absent = CASES[case]
    code, output, _ = job(repository, body_of(first, then))
    assert code == status, output
    for text in there:
        assert text in output
    for text in absent:
        assert text not in output


def test_the_wait_for_the_others_has_an_end(comm, repository):
    if comm.size > 1:
        pytest.skip("starts jobs of its own")
    code, output, seconds = job(
        repository, body_of("sys.exit()", "time.sleep(50)"), RILL_EXIT_TIMEOUT="1"
    )
    assert (
        code == 1 and "rank 1 has ended, but another has not for 1 s (RILL_EXIT_TIMEOUT)" in output
    ), output
    assert seconds < 45


TRAIN = """
import torch, rill.torch
torch.set_num_threads(1)
model = torch.nn.Linear(100, 100)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = rill.torch.DistributedOptimizer(sgd, model.named_parameters(), "topk")
for step in range(1000):
    if step == 3 and rank == 1:
        break
    optimizer.zero_grad()
    model(torch.ones(2, 100)).sum().backward()
    optimizer.step()
"""


def test_an_optimizer_notices_that_a_rank_has_ended(comm, repository):
    if comm.size > 1:
        pytest.skip("starts jobs of its own")
    code, output, _ = job(repository, TRAIN)
    assert code == 1 and "rank 1: its program has ended" in output, output


# ---- processes that MPI does not know ----

FIRST_LINES = {
    "set_environment": "rill.torch.set_environment()",
    "init_process_group": "rill.torch.init_process_group()",
    "State": "rill.torch.State('topk')",
    "allreduce": "rill.torch.allreduce(torch.ones(1))",
    "broadcast": "rill.torch.broadcast_parameters(torch.nn.Linear(2, 2))",
    "optimizer": "rill.torch.DistributedOptimizer("
    "torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=1))",
    "world": "rill.world()",
    "Comm": "rill.Comm()",
}
ALONE = """
import os, sys, torch, rill.torch
sys.argv = ["train.py", "--data", "my data"]
PYTHON = os.path.basename(sys.executable)
from mpi4py import MPI
for launcher in ({"WORLD_SIZE": "2", "RANK": "0"}, {"SLURM_STEP_NUM_TASKS": "2"}):
    os.environ.update(launcher)
    for line in LINES:
        if "WORLD_SIZE" in launcher and ("environment" in line or "process_group" in line):
            continue  # for these WORLD_SIZE says enough
        try:
            eval(line)
            print("no error:", launcher, line)
        except RuntimeError as error:
            for words in ("mpirun -n 2 " + PYTHON, "train.py --data 'my data'"):
                assert words in str(error), error
    own = rill.Comm(MPI.COMM_SELF)
    assert rill.torch.allreduce(torch.ones(1), comm=own) == 1
    rill.torch.State("topk", comm=own)
    for name in launcher:
        del os.environ[name]
os.environ.update(WORLD_SIZE="1", RANK="0")
rill.torch.set_environment()
assert rill.torch.allreduce(torch.ones(1)) == 1
print("end")
"""


def test_the_wrong_launcher_is_an_error_at_the_first_line(comm):
    if comm.size > 1:
        pytest.skip("starts processes of its own")
    script = ALONE.replace("LINES", repr(list(FIRST_LINES.values())))
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean_environment(), capture_output=True, text=True
    )
    assert done.stdout == "end\n", done.stdout + done.stderr


OTHER_GROUP = """
import torch, torch.distributed as dist, rill.torch
store = dist.FileStore(sys.argv[1] + str(rank), 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
try:
    rill.torch.State("topk")
except RuntimeError as error:
    assert "process group has 1 ranks, MPI 2" in str(error)
    print("refused")
"""


def test_another_process_group_is_refused(comm, repository, tmp_path):
    if comm.size > 1:
        pytest.skip("starts jobs of its own")
    body = OTHER_GROUP.replace("sys.argv[1]", repr(str(tmp_path / "store")))
    code, output, _ = job(repository, body)
    assert code == 0 and output.count("refused") == 2, output
