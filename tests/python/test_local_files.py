"""Files of rill.torch.LocalUpdates. Ranks are threads of this process."""

import pytest
import torch
from test_local_updates import flat, made, run, train

import rill
import rill.torch

pytestmark = pytest.mark.once


@pytest.mark.parametrize("options", [{}, {"outer": "nesterov", "parts": 2}, {"delay": 1}])
def test_files_go_on_bit_by_bit(tmp_path, options):
    """Saved between rounds, where each rank has weights of its own."""

    def work(comm, rank):
        model, local = made(comm, rank, **options)
        train(model, local, rank, 7)
        local.save(tmp_path)
        other, again = made(comm, rank + 5, **options)
        again.load(tmp_path)
        assert again.rounds == local.rounds and again.steps == local.steps
        for one, its in ((model, local), (other, again)):
            train(one, its, rank, 5, seed=1)
            its._end_flight()  # before the other's begin
        same = torch.equal(flat(model), flat(other))
        return same and torch.equal(local._parts[0].error, again._parts[0].error)

    assert all(run(2, work))


def test_files_for_another_number_of_ranks(tmp_path):
    def first(comm, rank):
        model, local = made(comm, rank)
        train(model, local, rank, 6)
        local.save(tmp_path)
        with pytest.raises((OSError, rill.RillError)):
            local.load(tmp_path / "nowhere")
        return local._parts[0].error, flat(model)

    def second(comm, rank):
        model, local = made(comm, rank)
        local.load(tmp_path)
        return local._parts[0].error, flat(model), repr(local).split(" value")[0]

    before, after = run(3, first), run(2, second)
    assert after[0][2] == "<rill.torch.LocalUpdates every=3 keep=4 chunk=64"
    assert torch.allclose(sum(r[0] for r in before), sum(r[0] for r in after), atol=1e-6)
    assert torch.equal(before[0][1], after[0][1]) and torch.equal(after[0][1], after[1][1])


def test_files_that_it_cannot_take(tmp_path):
    """Of another model, whose chunks are the same, and damaged ones: nothing is loaded."""
    comm = rill.local(1)[0]
    local = rill.torch.LocalUpdates(torch.nn.Linear(64, 64, bias=False), comm=comm)
    local.save(tmp_path)
    other = rill.torch.LocalUpdates(torch.nn.Linear(32, 128, bias=False), comm=comm)
    with pytest.raises(ValueError, match=r"weight is of shape \(128, 32\) here and.*\(64, 64\)"):
        other.load(tmp_path)
    more = rill.torch.LocalUpdates(torch.nn.Linear(64, 64, bias=False), chunk=8192, comm=comm)
    with pytest.raises(ValueError, match="other parts, chunks"):
        more.load(tmp_path)
    (tmp_path / "local-0.pt").write_bytes(b"no")
    with pytest.raises(ValueError, match="local-0.pt is damaged"):
        local.load(tmp_path)
