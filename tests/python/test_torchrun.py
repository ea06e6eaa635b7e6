"""Ranks without MPI: under torchrun, and as plain processes. Starts jobs of its own."""

import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest
import ranks as processes
import readme
import torch
import torch.distributed as dist

START = """
import os, sys, time
import numpy as np, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import rill, rill.torch
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 5))

def everyone(text):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, text)
    return parts

def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
"""


def why_not():
    import rill

    try:
        rill.Comm.ucx(0, 1, lambda mine: [mine]).free()
    except rill.RillError as error:
        return str(error)
    return None


@pytest.fixture(scope="module", autouse=True)
def alone(comm):
    if comm.size > 1:
        pytest.skip("starts jobs of its own")
    why = why_not()
    if why:
        pytest.skip(why)


def environment(repository, **more):
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMPI_", "PMIX", "PMI_", "ORTE", "SLURM", "PYTHONUNBUFFERED"))
    }  # without a buffer a line and its end are two writes, and lines of processes mix
    env.update(PYTHONPATH=f"{repository}/python", OMP_NUM_THREADS="1", RILL_PROFILE="none", **more)
    return env


LIMIT_S = 300  # machines may be busy


def finished(command, env):
    """Status and output of a command; what it has started ends with it."""
    job = subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = job.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        pytest.fail(f"no end after {LIMIT_S} s: {job.communicate()[0]}")
    return job.returncode, output


@pytest.fixture(scope="module")
def forks(alone):
    repository = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    made = processes.Ranks(environment(repository))
    yield made
    made.close()


def like_torchrun(forks, tmp_path, ranks, body, start=START):
    """Status and output of a job whose processes have what torchrun gives them."""
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    script = tmp_path / "job.py"
    script.write_text(start + textwrap.dedent(body))
    common = dict(
        WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), GROUP_RANK="0", MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(store.port), TORCHELASTIC_RUN_ID="test", TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_USE_AGENT_STORE="True",
    )  # fmt: skip
    places = [dict(common, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(ranks)]
    done = forks.run(script, places, LIMIT_S)
    return max(abs(code) for code, _ in done), "".join(text for _, text in done)


def torchrun(repository, tmp_path, ranks, body, *options, start=START):
    """Status and output of a job."""
    script = tmp_path / "job.py"
    script.write_text(start + textwrap.dedent(body))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks)]
    command += options
    if torch.__version__.startswith("1."):  # whose torchrun can't do without on Python 3.11
        command += ["-r", "1", "-t", "1", "--log_dir", str(tmp_path / "log")]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command += ["--master_addr", "127.0.0.1", "--master_port", str(port), str(script)]
    return finished(command, environment(repository))


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_lines_of_the_readme(repository, forks, tmp_path, ranks):
    """All that README.md shows and no more, then what the guide has of checkpoints."""
    start = readme.program(f"{repository}/README.md")
    body = f"""
        state.load_state_dict(kept)
        state.save({str(tmp_path / "saved")!r})
        state.load({str(tmp_path / "saved")!r})
        assert rill.world().size == ranks and "mpi4py" not in sys.modules
        print("good", rank)
    """
    if ranks == 2:
        code, output = torchrun(repository, tmp_path, ranks, body, start=start)
    else:
        code, output = like_torchrun(forks, tmp_path, ranks, body, start)
    assert code == 0 and output.count("good") == ranks, output


def test_sums_optimizer_and_groups(forks, tmp_path):
    body = """
        rill.torch.init_process_group()
        total = rill.torch.allreduce(torch.arange(5.0) * (rank + 1))
        assert total.tolist() == [6.0 * i for i in range(5)], total
        sparse = torch.sparse_coo_tensor([[rank]], [1.0], (3,))
        assert rill.torch.allreduce(sparse).to_dense().tolist() == [1, 1, 1]

        model = network()
        with torch.no_grad():
            model[0].weight.mul_(rank + 1)
        model.register_buffer("count", torch.tensor([2**40 + rank]))
        rill.torch.broadcast_parameters(model, root=1)
        assert len(set(everyone(flat(model).numpy().tobytes()))) == 1 and model.count == 2**40 + 1
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = rill.torch.DistributedOptimizer(
            inner, model.named_parameters(), "topk", density=0.05, small=100
        )
        for step in range(4):
            optimizer.zero_grad()
            model(torch.randn(4, 20)).square().mean().backward()
            optimizer.step()
        assert len(set(everyone(flat(model).numpy().tobytes()))) == 1

        groups = [dist.new_group([0, 2]), dist.new_group([1])]
        mine = groups[rank % 2]
        with rill.torch._groups.default_comm(mine) as own:
            assert (own.rank, own.size) == (rank // 2, 2 - rank % 2)
            got = rill.torch.allreduce(torch.ones(2), comm=own)
            assert got.tolist() == [own.size] * 2
        state = rill.torch.State("topk", density=0.1, comm=mine)
        assert state.comm.size == 2 - rank % 2
        try:
            rill.Comm()
            print("no error")
        except (RuntimeError, ImportError) as error:
            pass
        print("good", rank)
    """
    code, output = like_torchrun(forks, tmp_path, 3, body)
    assert code == 0 and output.count("good") == 3 and "no error" not in output, output


def test_before_there_is_a_process_group(forks, tmp_path):
    body = """
        comm = rill.world()
        total = comm.allreduce(np.full(4, rank + 1, np.float32))
        assert total.dense().tolist() == [3] * 4 and comm.size == 2
        dist.init_process_group("gloo")
        assert rill.torch.allreduce(torch.ones(1)) == 2
        print("good", rank)
    """
    code, output = like_torchrun(forks, tmp_path, 2, body)
    assert code == 0 and output.count("good") == 2, output


def test_a_process_group_of_rill(forks, tmp_path):
    body = """
        dist.init_process_group("rill")
        assert dist.get_world_size() == 2 and rill.world().size == 2
        tensor = torch.sparse_coo_tensor([[rank, 2]], [1.0, 2.0], (4,))
        dist.all_reduce(tensor)
        assert tensor.to_dense().tolist() == [1, 1, 4, 0], tensor
        dense = torch.ones(2)
        dist.all_reduce(dense)
        assert dense.tolist() == [2, 2]
        print("good", rank)
    """
    code, output = like_torchrun(forks, tmp_path, 2, body)
    assert code == 0 and output.count("good") == 2, output


def test_a_rank_that_fails_ends_the_job(repository, tmp_path):
    body = """
        rill.torch.init_process_group()
        rill.torch.allreduce(torch.ones(1))
        if rank == 1:
            raise ZeroDivisionError("of rank 1")
        rill.torch.allreduce(torch.ones(1))
        print("no error")
    """
    code, output = torchrun(repository, tmp_path, 2, body)
    assert code != 0 and "of rank 1" in output and "no error" not in output, output


def test_workers_of_a_data_loader(forks, tmp_path):
    body = """
        from torch.utils.data import DataLoader, TensorDataset
        rill.torch.init_process_group()
        model = network()
        ddp = DistributedDataParallel(model)
        state = rill.torch.State("topk", density=0.1, module=model)
        ddp.register_comm_hook(state, rill.torch.hook)
        data = TensorDataset(torch.randn(32, 20))
        for epoch in range(2):
            for (x,) in DataLoader(data, batch_size=8, num_workers=2):
                ddp(x).square().mean().backward()
        assert state.steps == 8
        print("good", rank)
    """
    code, output = like_torchrun(forks, tmp_path, 2, body)
    assert code == 0 and output.count("good") == 2, output


# ---- plain processes ----


def plain(forks, tmp_path, ranks, body, **more):
    """Status and output of each process."""
    script = tmp_path / "plain.py"
    script.write_text(START + textwrap.dedent(body))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = dict(WORLD_SIZE=str(ranks), RILL_RENDEZVOUS=f"127.0.0.1:{port}", **more)
    places = [dict(common, RANK=str(rank)) for rank in range(ranks)]
    return forks.run(script, places, LIMIT_S)


def test_plain_processes(forks, tmp_path):
    body = """
        comm = rill.init()
        assert comm is rill.world() and (comm.rank, comm.size) == (rank, ranks)
        reducer = rill.Reducer(comm, 1000, density=0.1, algorithm="oktopk")
        update = reducer.step(np.arange(1000, dtype=np.float32))
        assert update.any()
        print("good")
        if rank == 0:
            time.sleep(1)  # the others wait for it at their end
    """
    assert plain(forks, tmp_path, 3, body) == [(0, "good\n")] * 3


def test_a_rank_that_ends_early_is_an_error_for_the_others(forks, tmp_path):
    body = """
        comm = rill.init()
        comm.allreduce(np.ones(3, np.float32))
        if rank == 1:
            sys.exit()
        try:
            comm.allreduce(np.ones(3, np.float32))
            print("no error")
        except rill.RillError as error:
            print("ended" if "ended" in str(error) else error)
    """
    assert [text for _, text in plain(forks, tmp_path, 2, body)] == ["ended\n", ""]


def test_a_rank_that_dies(forks, tmp_path):
    body = """
        comm = rill.init()
        reducer = rill.Reducer(comm, 1000, density=0.1, algorithm="oktopk")
        noise = np.random.default_rng(rank)
        done, voids = 0, 0
        while done < 300:
            gradient = noise.normal(size=1000).astype(np.float32)
            if rank == 1 and done == 100:
                os.kill(os.getpid(), 9)
            try:
                update = reducer.step(gradient.copy())
                done += 1
            except rill.PeerError as error:
                assert "1" in str(error) and comm.failed() == [1], (error, comm.failed())
                old, comm = comm, comm.shrink()
                assert comm.size == ranks - 1
                if reducer.move(comm):
                    voids += 1
                else:
                    reducer.update(gradient)
                    done += 1
                old.free()
        total = comm.allreduce(np.array([done], np.float64)).dense()[0]
        assert total == 300 * comm.size
        print("good", len(comm._gather(update.tobytes().hex())))
        assert len(set(comm._gather(update.tobytes().hex()))) == 1
    """
    (_, first), dead, (_, last) = plain(forks, tmp_path, 3, body)
    assert "good 2" in first and "good 2" in last, first + last
    assert dead == (-signal.SIGKILL, "")


def test_the_example_that_loses_a_rank(repository):
    script = f"{repository}/examples/python/outlive.py"
    options = ["--ranks", "3", "--steps", "30", "--kill", "1", "--at", "12"]
    code, output = finished([sys.executable, script, *options], environment(repository))
    assert code == 0 and "step 30  ranks 2" in output, output
    assert output.count("rank 1 is gone") == 2, output


def test_ddp_goes_on_without_a_rank(forks, tmp_path):
    body = """
        comm = rill.init()
        model, me, people, meeting = network(), rank, ranks, 0

        def wrap():
            store = dist.FileStore(TMP + str(meeting), people)
            dist.init_process_group("gloo", store=store, rank=me, world_size=people)
            ddp = DistributedDataParallel(model)
            ddp.register_comm_hook(state, rill.torch.hook)
            return ddp

        state = rill.torch.State("oktopk", density=0.1, module=model)
        ddp = wrap()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        step = 0
        while step < 12:
            x = torch.randn(8, 20, generator=torch.Generator().manual_seed(10 * step + rank))
            if rank == 1 and step == 5:
                os.kill(os.getpid(), 9)
            optimizer.zero_grad()
            try:
                ddp(x).square().mean().backward()
            except RuntimeError as error:
                assert comm.failed() == [1], error
                old, comm = comm, comm.shrink()
                again = state.move(comm)
                old.free()
                me, people, meeting = comm.rank, comm.size, meeting + 1
                dist.destroy_process_group()
                if not again:
                    optimizer.step()
                    step += 1
                ddp = wrap()
                continue
            optimizer.step()
            step += 1
        weights = comm._gather(flat(model).numpy().tobytes().hex())
        assert comm.size == 2 and len(set(weights)) == 1
        assert state.steps == 12 and any(p.any() for p in state.state_dict()["residuals"].values())
        print("good")
        sys.stdout.flush()
        comm.allreduce(np.ones(1, np.float32))
        os._exit(0)
    """.replace(
        "TMP", repr(str(tmp_path / "store"))
    )
    (_, first), dead, (_, last) = plain(forks, tmp_path, 3, body)
    assert "good" in first and "good" in last, first + last
    assert dead[0] == -signal.SIGKILL


@pytest.mark.parametrize("every,delay", [(2, 0), (4, 2)])
def test_local_updates_go_on_without_a_rank(forks, tmp_path, every, delay):
    """It dies in a round, or while one is under way behind training and waits for its
    contribution. The others have the same weights after the round, and go on."""
    body = """
        every, delay = OPTIONS
        comm = rill.init()
        model = network()
        local = rill.torch.LocalUpdates(model, every, keep=4, chunk=64, small=50, delay=delay)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(12):
            x = torch.randn(8, 20, generator=torch.Generator().manual_seed(10 * step + rank))
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            if rank == 1 and step == (8 if delay else 5):
                os.kill(os.getpid(), 9)
            if rank == 1 and step == 7:
                local._call_of = lambda flight: lambda: time.sleep(1000)
            local.step()
            assert (local._flight is not None) == (delay > 0 and step % 4 in (3, 0) and step > 2)
        local._end_flight()
        weights = local.comm._gather(local._parts[0].common.numpy().tobytes().hex())
        assert local.comm.size == 2 and len(set(weights)) == 1 and local.rounds == 12 // every
        assert local.last.contributions == 2
        print("good")
        sys.stdout.flush()
        local.comm.allreduce(np.ones(1, np.float32))
        os._exit(0)
    """.replace(
        "OPTIONS", f"{every}, {delay}"
    )
    (_, first), dead, (_, last) = plain(forks, tmp_path, 3, body)
    assert "good" in first and "good" in last, first + last
    assert dead[0] == -signal.SIGKILL
