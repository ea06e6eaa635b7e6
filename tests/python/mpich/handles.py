"""Communicators, collectives and reducers over a librill.so that was built with MPICH."""

import numpy as np
import rill

comm = rill.world()
x = rill.Stream(1000).set_pairs([3, 100 + comm.rank], np.ones(2, np.float32))
total = comm.allreduce(x)
assert (
    total.indices.tolist() == [3, *range(100, 100 + comm.size)] and total.values[0] == comm.size
), total
with rill.Comm(check=True) as other:  # its own config, with an MPI_Info in it
    assert other.iallreduce(x).wait().nnz == 1 + comm.size

for name in ("dense", "topk", "gtopk", "oktopk", "spardl", "topk+qsgd4"):
    reducer = rill.Reducer(comm, 5000, density=0.02, **rill.method(name))
    updates, fed = np.zeros(5000), np.zeros(5000)
    for step in range(3):
        updates += reducer.step(
            np.random.default_rng([comm.rank, step]).standard_normal(5000).astype(np.float32)
        )
        fed += sum(
            np.random.default_rng([rank, step]).standard_normal(5000).astype(np.float32)
            for rank in range(comm.size)
        )
    residuals = comm.allreduce(reducer.residual.astype(np.float32)).dense()
    assert np.allclose(updates * comm.size + residuals, fed, atol=1e-3), name
    reducer.free()
comm.free()
