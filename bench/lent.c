/* What bench/lent runs on each of two ranks: both start a broadcast, one message of BYTES from rank
 * 0 to rank 1. Rank 0 then computes for 20 ms, in no call of MPI, and rank 1 waits. Prints the
 * median of the times that rank 1 waits, in seconds. */
#include <mpi.h>
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPS = 21, WARM = 20 };
static const double COMPUTES = 20e-3;

static void must(rill_status status, const char *what) {
    if (status == RILL_OK) return;
    fprintf(stderr, "bench/lent: %s: %s\n", what, rill_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    uint64_t nnz = (argc > 1 ? strtoull(argv[1], NULL, 10) : 0) / (sizeof(uint32_t) + 4);
    if (!nnz) {
        fprintf(stderr, "bench/lent: BYTES is missing\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    rill_comm *comm;
    rill_stream *stream;
    uint32_t *idx = malloc(nnz * sizeof *idx);
    float *val = malloc(nnz * sizeof *val);
    if (!idx || !val) MPI_Abort(MPI_COMM_WORLD, 1);
    for (uint64_t i = 0; i < nnz; i++) {
        idx[i] = (uint32_t)(100 * i + (uint64_t)rank);
        val[i] = 1;
    }
    rill_options options = RILL_OPTIONS_INIT;
    options.algorithm = "tree";
    options.codec = "raw";
    must(rill_comm_create(MPI_COMM_WORLD, NULL, &comm), "communicator");
    must(rill_stream_create(RILL_F32, 100 * nnz, &stream), "stream");
    must(rill_stream_set_pairs(stream, nnz, idx, val), "pairs");
    double waited[REPS];
    for (int i = -WARM; i < REPS; i++) {
        rill_request *request;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        must(rill_ibcast(comm, stream, 0, &options, &request), "start");
        while (rank == 0 && MPI_Wtime() < start + COMPUTES)
            continue;
        must(rill_wait(request), "wait");
        if (i >= 0) waited[i] = MPI_Wtime() - start;
        must(rill_request_free(&request), "request");
    }
    qsort(waited, REPS, sizeof *waited, ascending);
    if (rank == 1) printf("%.9f\n", waited[REPS / 2]);
    must(rill_stream_free(&stream), "stream");
    must(rill_comm_free(&comm), "communicator");
    free(idx);
    free(val);
    MPI_Finalize();
    return 0;
}
