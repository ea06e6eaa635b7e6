/* rill bench reducer, inside: options, the steps of one case, the report.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_BENCH_REDUCER_H
#define RILL_TOOL_BENCH_REDUCER_H

#include "world.h"

#include <rill/rill.h>
#include <stdbool.h>
#include <stdint.h>

/* Where the large entries of the gradients are. */
typedef enum reducer_support { SUPPORT_UNIFORM, SUPPORT_SKEWED, SUPPORT_ROWS } reducer_support;
extern const char *const reducer_support_names[];

typedef struct reducer_config {
    world_options where;
    uint64_t dim, k, seed, block;
    double density;
    rill_type type;
    rill_memory memory; /* that gradients, residuals and updates are in */
    char *algorithms;   /* list */
    const char *select, *codec, *partition, *json_path;
    int value_bits, steps, warmup;
    double trigger, lambda;
    bool stream_updates, dense_updates, baseline, feedback, quiet;
    reducer_support support;
} reducer_config;

/* One algorithm with one kind of update, measured. */
typedef struct reducer_result {
    const char *requested, *update; /* "dense", "stream"; MPI's: "mpi" */
    rill_stats stats;               /* of this rank's last step */
    double *times;                  /* of this rank, then of the slowest */
    double median, p25, p75, select, exchange, finish, selected; /* seconds; mean count */
    uint64_t sent, received, messages, rounds; /* of a step, the most of one rank; mean of steps */
    bool ran, correct;
    char detail[200];
} reducer_result;

/* bench_reducer_run.c. Collective. */
void reducer_measure(const tool_world *, const reducer_config *, const char *algorithm, bool stream,
                     reducer_result *);
void reducer_measure_mpi(const tool_world *, const reducer_config *, reducer_result *);
/* Seconds for the memory traffic that a step needs: gradient read, residual read and written, and
 * the update written where it is dense; all ranks of a host at once. */
double reducer_traffic(const tool_world *, const reducer_config *, bool stream);

#endif
