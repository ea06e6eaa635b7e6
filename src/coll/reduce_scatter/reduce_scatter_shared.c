/* shared: each rank puts its entries once where all ranks of the host can read them, and sums its
 * range from there.
 *
 * Source. Beyond the papers of the project; patterns/host_ranges.h.
 * Restriction. None. Ranges are uniform. Ranks that share no memory get the same parts by message.
 * Memory. Of shared memory, the contribution.
 * Cost. That of patterns/host_ranges.h where nobody reads the sums. */
#include "coll/patterns/host_ranges.h"
#include "coll/reduce_scatter/reduce_scatter.h"

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    return rill__host_ranges_estimate(p, p->ranks, RILL__READ_BY_NONE);
}

static rill_status step(rill__run *run) {
    rill__host_ranges *x = run->state;
    if (!x->n) rill__host_ranges_begin(run, x, run->size, RILL__READ_BY_NONE);
    rill_status status = rill__host_ranges_step(run, x);
    if (status != RILL_OK) return status;
    uint64_t first = rill__host_ranges_first(run->dim, x, run->rank);
    return rill__finish_range(run, first,
                              rill__host_ranges_first(run->dim, x, run->rank + 1) - first,
                              &run->piece[1].part);
}

const rill__algorithm rill__reduce_scatter_shared = {
    .name = "shared",
    .description = "entries lie once in memory that the ranks of a host share; each sums its range",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__host_ranges),
    .step = step,
    .joins_hosts = true,
};
