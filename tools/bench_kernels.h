/* rill bench kernels, inside: what its groups share.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_BENCH_KERNELS_H
#define RILL_TOOL_BENCH_KERNELS_H

#include "bench.h"
#include "bench_memory.h"

#include <jansson.h>

#define KERNEL_DIM ((uint64_t)1 << 24)

typedef struct kernel_run {
    rill_type type;
    int reps;
    tool_records *json;
    FILE *out; /* NULL: not wanted */
    bool quiet;
    const bench_memory *memory;
    rill_memory where; /* not the host: kernel_device alone, */
    uint64_t dim;      /* on so many values */
} kernel_run;

/* A figure and what it should be; a limit of 0: no goal. */
typedef struct kernel_goal {
    const char *what;
    double value, limit;
    bool at_least;
} kernel_goal;

/* The groups; each returns EXIT_OK, or EXIT_FAILED after a message. */
int kernel_select(const kernel_run *);
int kernel_codecs(const kernel_run *);
int kernel_device(const kernel_run *);

double kernel_draw(uint64_t *state);        /* uniform in (0, 1) */
double kernel_draw_normal(uint64_t *state); /* standard normal */

/* Writes one record and drops it; false after a message. */
bool kernel_write(tool_records *, json_t *record);
int kernel_failed(const char *name, rill_status); /* the message; returns EXIT_FAILED */
void kernel_table(const kernel_run *, const table *, const char *title);

bool kernel_goal_met(kernel_goal);
void kernel_goal_cell(char *cell, kernel_goal); /* "<= 1.3 met" */
json_t *kernel_goals_json(int n, const kernel_goal *);

#endif
