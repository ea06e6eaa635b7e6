/* For bench/instructions: CASE REPETITIONS. Rank 1 runs under callgrind and comes to each call when
 * the other's messages are there, so that little is counted for waiting. Each
 * call is a record of its own. */
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <valgrind/callgrind.h>

enum { WARM = 12, DIM = 1 << 20, LARGE = 1 << 24, FEW = 16, MANY = LARGE / 100 };

static float gradient[DIM], update[DIM], value[MANY];
static uint32_t index_of[MANY];
static rill_stream *in, *out;
static rill_reducer *reducer;
static rill_options options = RILL_OPTIONS_INIT;

static rill_status prepare(rill_comm *comm, const char *name) {
    srand((unsigned)rill_comm_rank(comm) + 1);
    if (strcmp(name, "reducer") == 0) {
        rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
        o.density = 0.01;
        for (int i = 0; i < DIM; i++) {
            float x = (float)rand() / (float)RAND_MAX - 0.5F;
            gradient[i] = x * x * x;
        }
        return rill_reducer_create(comm, RILL_F32, DIM, &o, &reducer);
    }
    int small = strcmp(name, "small") == 0, n = small ? FEW : MANY, dim = small ? DIM : LARGE;
    if (small) options.algorithm = "recursive_double";
    for (int i = 0; i < n; i++) {
        index_of[i] = (uint32_t)(dim / n * i + rand() % (dim / n));
        value[i] = 1;
    }
    rill_status status = rill_stream_create(RILL_F32, (uint64_t)dim, &in);
    if (!status) status = rill_stream_create(RILL_F32, (uint64_t)dim, &out);
    return status ? status : rill_stream_set_pairs(in, (uint64_t)n, index_of, value);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    rill_comm *comm = NULL;
    const struct timespec nap = {.tv_nsec = argc > 1 && strcmp(argv[1], "small") ? 300000000
                                                                                 : 3000000};
    rill_status status = argc == 3 ? rill_comm_create(MPI_COMM_WORLD, NULL, &comm)
                                   : RILL_ERR_ARGUMENT;
    if (!status) status = prepare(comm, argv[1]);
    for (int i = 0; !status && i < WARM + atoi(argv[2]); i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        CALLGRIND_ZERO_STATS;
        if (rill_comm_rank(comm)) nanosleep(&nap, NULL);
        status = reducer ? rill_reducer_step(reducer, gradient, update)
                         : rill_allreduce(comm, in, out, RILL_SUM, &options);
        if (i >= WARM) CALLGRIND_DUMP_STATS;
    }
    if (status) fprintf(stderr, "instructions: %s\n", rill_last_error());
    rill_reducer_free(&reducer);
    rill_stream_free(&in);
    rill_stream_free(&out);
    rill_comm_free(&comm);
    MPI_Finalize();
    return status != RILL_OK;
}
