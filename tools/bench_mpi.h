/* The baseline: MPI's own collectives on dense buffers. bench_mpi.c, or mpi_none.c in a tool
 * without MPI.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_BENCH_MPI_H
#define RILL_TOOL_BENCH_MPI_H

#include "bench.h"

/* MPI's type and operation. MPI has no 16-bit floats: it moves the same bytes as MPI_UINT16_T with
 * a (vectorised) operation of ours. False: out of memory. */
bool bench_mpi_make(rill_type, bench_operation, bench_mpi **);
void bench_mpi_free(bench_mpi **);

typedef struct bench_mpi_call {
    rill_collective collective;
    int rank, size;
    uint64_t dim, first, count; /* this rank's range, for those that have ranges */
    size_t value_bytes;
    void *send, *receive;
} bench_mpi_call;

/* A barrier and the call, with the time that the call took. Collective. False: it failed. */
bool bench_mpi_run(const bench_mpi *, const bench_mpi_call *, double *seconds);

/* The equal ranges that the baseline has. bench_case.c. */
void bench_equal_range(uint64_t dim, int ranks, int rank, uint64_t *first, uint64_t *count);

#endif
