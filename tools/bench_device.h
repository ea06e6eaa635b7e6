/* Vectors in the memory that a bench is asked for, through the public calls of streams: a dense
 * stream of a device owns such a vector.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_BENCH_DEVICE_H
#define RILL_TOOL_BENCH_DEVICE_H

#include <rill/rill.h>

extern const char *const bench_memory_names[]; /* by rill_memory */

typedef struct bench_vector {
    rill_stream *owner; /* NULL: the host's memory, which is the caller's */
    void *at;           /* where its values are */
} bench_vector;

/* A copy of values in a device's memory; the values themselves for RILL_HOST. */
rill_status bench_vector_make(rill_memory, rill_type, uint64_t dim, void *values, bench_vector *);
void bench_vector_free(bench_vector *);
/* values = the vector at this place of the memory. */
rill_status bench_vector_fetch(rill_memory, rill_type, uint64_t dim, const void *at, void *values);

#endif
