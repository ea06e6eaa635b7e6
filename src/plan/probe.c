/* What kind of network is this? All ranks send to their right neighbour at once, as much as takes a few
 * milliseconds; the slowest counts, since it is the one that crosses from host to host. */
#include "plan/profile.h"

#include <stdlib.h>

#define ENOUGH 2e-3 /* seconds: longer than what buffers on the way let pass ahead of the rate */
enum { TAG = 1, TRIES = 4, LEAST_BYTES = 16 << 10, MOST_BYTES = 4 << 20 };

/* Seconds of the slowest rank, each by the fastest of several shifts, since other work on a host makes them
 * only slower; negative: MPI failed. */
static double shift(MPI_Comm mpi, char *out, char *in, int bytes, int tries) {
    int rank, size;
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &size);
    double best = 1e300, slowest;
    for (int i = 0; i < tries; i++) {
        if (MPI_Barrier(mpi) != MPI_SUCCESS) return -1;
        double start = MPI_Wtime();
        if (MPI_Sendrecv(out, bytes, MPI_BYTE, (rank + 1) % size, TAG, in, bytes, MPI_BYTE,
                         (rank + size - 1) % size, TAG, mpi, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return -1;
        double took = MPI_Wtime() - start;
        if (took < best) best = took;
    }
    return MPI_Allreduce(&best, &slowest, 1, MPI_DOUBLE, MPI_MAX, mpi) == MPI_SUCCESS ? slowest
                                                                                      : -1;
}

rill_status rill__probe_latency(MPI_Comm mpi, double *latency) {
    char out = 0, in = 0;
    shift(mpi, &out, &in, 1, 1); /* connects */
    *latency = shift(mpi, &out, &in, 1, TRIES);
    return *latency >= 0
               ? RILL_OK
               : rill__fail(RILL_ERR_MPI, "MPI_Sendrecv failed while the network was measured");
}

rill_status rill__probe_network(MPI_Comm mpi, double *latency, double *bits_per_second) {
    *latency = 25e-6;
    *bits_per_second = 1e10;
    char *out = calloc(1, MOST_BYTES), *in = calloc(1, MOST_BYTES);
    int failed = !out || !in, any = 0;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, mpi);
    rill_status status = any ? rill__fail(RILL_ERR_MEMORY, "out of memory for a communicator")
                             : RILL_OK;
    if (status == RILL_OK) {
        shift(mpi, out, in, 1, 1); /* connects */
        double small = shift(mpi, out, in, 1, TRIES), time = 0;
        int bytes = LEAST_BYTES;
        while (small >= 0 && (time = shift(mpi, out, in, bytes, TRIES)) >= 0 && time < ENOUGH &&
               bytes < MOST_BYTES)
            bytes *= 4;
        if (small < 0 || time < 0)
            status = rill__fail(RILL_ERR_MPI, "MPI_Sendrecv failed while the network was measured");
        else {
            *latency = small;
            *bits_per_second = 8.0 * bytes / (time > 2 * small ? time - small : time / 2);
        }
    }
    free(out);
    free(in);
    return status;
}
