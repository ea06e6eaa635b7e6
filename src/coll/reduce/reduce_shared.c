/* shared: each rank puts its entries once where all ranks of the host can read them, a range is
 * summed by each from there, and the root copies the ranges.
 *
 * Source. Beyond the papers of the project; patterns/host_ranges.h.
 * Restriction. None. Ranks that share no memory get the same parts by message.
 * Memory. Of shared memory, the contribution and the sum of a range.
 * Cost. That of patterns/host_ranges.h with a rank that reads. */
#include "coll/patterns/host_ranges.h"
#include "coll/reduce/reduce.h"

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    return rill__host_ranges_estimate(p, rill__host_ranges_of(p->dim, p->ranks), 0);
}

static rill_status step(rill__run *run) {
    rill__host_ranges *x = run->state;
    if (!x->n)
        rill__host_ranges_begin(run, x, rill__host_ranges_of(run->dim, run->size), run->root);
    rill_status status = rill__host_ranges_step(run, x);
    if (status != RILL_OK || run->rank != run->root) return status;
    return rill__host_ranges_finish(run, x);
}

const rill__algorithm rill__reduce_shared = {
    .name = "shared",
    .description = "ranks of a host sum a range each in memory that they share, the root reads all",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__host_ranges),
    .step = step,
    .joins_hosts = true,
};
