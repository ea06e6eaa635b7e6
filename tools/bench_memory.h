/* Passes over memory: the bounds beside the figures of rill bench kernels.
 *
 * The bound of a kernel that must read R bytes and write W: a copy of min(R, W) bytes, and a read
 * pass (a vectorised sum) over the rest of R or a fill of the rest of W; for a kernel that updates
 * in place, an update in place. On huge pages where there are.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_BENCH_MEMORY_H
#define RILL_TOOL_BENCH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bench_memory {
    char *evict, *from, *into;
    size_t capacity; /* bytes of from and into */
} bench_memory;

/* How the bound writes: plain stores, non-temporal ones, or in place. */
typedef enum bench_bound { BOUND_PLAIN, BOUND_STREAM, BOUND_IN_PLACE } bench_bound;

/* False when out of memory; free it all the same. */
bool bench_memory_make(size_t capacity, bench_memory *);
void bench_memory_free(bench_memory *);

/* Memory that was written once, on huge pages where there are, RILL_SLACK longer; NULL: none. It is
 * mapped anew: the heap may give out memory that earlier kernels left on small pages, from which
 * a pass takes twice the time. */
void *bench_huge_alloc(size_t bytes);
void bench_huge_free(void *, size_t bytes); /* NULL is fine */

/* One read of data, which must be aligned to 64 bytes. */
void bench_read_pass(const void *data, size_t bytes);
/* Reads and writes that many bytes, at most the capacity each; returns the seconds. In place:
 * reads include what is written. */
double bench_bound_pass(const bench_memory *, size_t reads, size_t writes, bench_bound);
/* Walks through an array larger than the caches. */
void bench_evict(const bench_memory *);

#endif
