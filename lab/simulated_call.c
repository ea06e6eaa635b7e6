/* The calls of lab/simulate --local as an MPI program, for lab/simulate (SimGrid) to run:
 *
 *     simulated_call ALGORITHM allreduce|reducer DIM K STEPS
 *
 * One line about the last step: the seconds of the slowest rank, and the most bytes and messages
 * that a rank has sent. lab/compare holds it against the local world.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "inputs.h"

enum { INPUT_SEED = 1 }; /* of lab/simulate --local, if nothing else is asked for */

typedef struct task {
    const char *algorithm;
    bool reducer;
    uint64_t dim, k;
    int steps, rank;
    double start; /* of the last step, by the clock that all ranks have */
} task;

static void check(rill_status status) {
    if (status == RILL_OK) return;
    fprintf(stderr, "simulated_call: %s\n", rill_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* All ranks go on at the same time, after the last has come. */
static void start_together(task *t) {
    double now = MPI_Wtime();
    MPI_Allreduce(&now, &t->start, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    t->start = floor(t->start) + 2;
    usleep((useconds_t)(1e6 * (t->start - MPI_Wtime())));
}

static void run_allreduce(task *t, rill_comm *comm, rill_stats *stats) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = t->algorithm;
    o.codec = "raw";
    rill_stream *in = NULL, *out = NULL;
    check(rill_stream_create(RILL_F32, t->dim, &in));
    check(rill_stream_create(RILL_F32, t->dim, &out));
    check(input_fill(in, t->dim, t->k, INPUT_SEED, t->rank));
    for (int i = 0; i < t->steps; i++) {
        start_together(t);
        check(rill_allreduce(comm, in, out, RILL_SUM, &o));
    }
    t->start = MPI_Wtime() - t->start;
    check(rill_comm_stats(comm, stats));
    rill_stream_free(&in);
    rill_stream_free(&out);
}

static void run_reducer(task *t, rill_comm *comm, rill_stats *stats) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = t->algorithm;
    o.codec = "raw";
    o.k = t->k;
    o.nonfinite = "pass";
    float *gradient = calloc(t->dim, sizeof *gradient), *update = calloc(t->dim, sizeof *update);
    if (!gradient || !update) abort();
    rill_reducer *reducer = NULL;
    check(rill_reducer_create(comm, RILL_F32, t->dim, &o, &reducer));
    for (int i = 0; i < t->steps; i++) {
        input_gradient(gradient, t->dim, INPUT_SEED, t->rank, i);
        start_together(t);
        check(rill_reducer_step(reducer, gradient, update));
    }
    t->start = MPI_Wtime() - t->start;
    check(rill_reducer_stats(reducer, stats));
    check(rill_reducer_free(&reducer));
    free(gradient);
    free(update);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 6) {
        fprintf(stderr, "usage: simulated_call ALGORITHM allreduce|reducer DIM K STEPS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    task t = {.algorithm = argv[1],
              .reducer = strcmp(argv[2], "reducer") == 0,
              .dim = strtoull(argv[3], NULL, 10),
              .k = strtoull(argv[4], NULL, 10),
              .steps = atoi(argv[5])};
    MPI_Comm_rank(MPI_COMM_WORLD, &t.rank);
    rill_comm *comm = NULL;
    check(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    rill_stats stats = {.size = sizeof stats};
    if (t.reducer) run_reducer(&t, comm, &stats);
    else run_allreduce(&t, comm, &stats);
    double mine[3] = {t.start, (double)stats.sent_bytes, (double)stats.messages}, most[3];
    MPI_Reduce(mine, most, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (t.rank == 0) printf("%.9f %.0f %.0f\n", most[0], most[1], most[2]);
    check(rill_comm_free(&comm));
    MPI_Finalize();
    return 0;
}
