/* rill bench overlap, inside: options, what one case measures, the report.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_BENCH_OVERLAP_H
#define RILL_TOOL_BENCH_OVERLAP_H

#include "bench.h"

/* Who advances the request while the program computes. */
typedef enum overlap_progress { PROGRESS_THREAD, PROGRESS_POLL, PROGRESS_NONE } overlap_progress;
extern const char *const overlap_progress_names[]; /* NULL-terminated, by enum value */

typedef struct overlap_config {
    bench_config bench; /* ranks, type, seed, reps, warmup, json_path, quiet */
    uint64_t dim, nnz;
    double density;
    const char *algorithms, *progress; /* lists */
    const char *codec;                 /* NULL: not given */
    int value_bits;
    int poll_us; /* microseconds between calls of rill_progress */
} overlap_config;

typedef struct overlap_result {
    overlap_progress progress;
    bench_case c;               /* what ran, its result and whether that is correct */
    double pure, compute, both; /* seconds: medians of the slowest rank */
    double percent;             /* of pure that was hidden behind compute */
} overlap_result;

/* bench_overlap_run.c. One algorithm with one kind of progress, checked. Collective. */
void overlap_measure(const overlap_config *, const bench_world *, const bench_input *,
                     const char *algorithm, overlap_progress, overlap_result *);

#endif
