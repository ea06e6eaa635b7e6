/* What bench/full_host runs on each rank to see what a communicator finds of the memory of its host
 * (src/plan/probe_memory.c): seconds of a byte, the median and the extremes of some readings, and
 * what one takes. One line of JSON. */
#include "api/comm.h"
#include "plan/profile.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { READINGS = 21 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rank, ranks;
    double byte[READINGS], took[READINGS];
    rill_comm *comm = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double start = MPI_Wtime();
    if (rill_comm_create(MPI_COMM_WORLD, NULL, &comm) != RILL_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    double created = MPI_Wtime() - start;
    for (int i = 0; i < READINGS; i++) { /* a new number of ranks, so that it measures again */
        start = MPI_Wtime();
        if (rill__probe_memory(comm->engine.link, ranks + 1 + i, &byte[i]) != RILL_OK)
            MPI_Abort(MPI_COMM_WORLD, 1);
        took[i] = MPI_Wtime() - start;
    }
    qsort(byte, READINGS, sizeof *byte, ascending);
    qsort(took, READINGS, sizeof *took, ascending);
    if (rank == 0)
        printf("{\"ranks\":%d,\"ns_per_byte\":%.4g,\"least\":%.4g,\"most\":%.4g,\"probe_ms\":%.3g,"
               "\"create_ms\":%.3g}\n",
               ranks, 1e9 * byte[READINGS / 2], 1e9 * byte[0], 1e9 * byte[READINGS - 1],
               1e3 * took[READINGS / 2], 1e3 * created);
    rill_comm_free(&comm);
    MPI_Finalize();
    return 0;
}
