/* dense_allreduce BYTES...: time of MPI_Allreduce of that many bytes of float, one JSON object a
 * line.
 *
 * For lab/simulate: under SimGrid all ranks share their buffers (SMPI_SHARED_MALLOC), so that 64
 * ranks with 100 MB each fit in memory. The sums are then wrong; the messages are the same.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef SMPI_SHARED_MALLOC
#define TAKE(bytes) SMPI_SHARED_MALLOC(bytes)
#define RELEASE(p) SMPI_SHARED_FREE(p)
#else
#define TAKE(bytes) malloc(bytes)
#define RELEASE(p) free(p)
#endif

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++) {
        long bytes = atol(argv[i]);
        if (bytes < 4) return EXIT_FAILURE;
        void *in = TAKE((size_t)bytes), *out = TAKE((size_t)bytes);
        if (!in || !out) return EXIT_FAILURE;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(in, out, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double mine = MPI_Wtime() - start, slowest;
        MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("{\"kind\":\"dense\",\"requested\":\"mpi\",\"ranks\":%d,\"dim\":%ld,\"median_"
                   "s\":%.9g}\n",
                   ranks, bytes / 4, slowest);
        RELEASE(in);
        RELEASE(out);
    }
    MPI_Finalize();
    return EXIT_SUCCESS;
}
