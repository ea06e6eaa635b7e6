/* shared: each rank puts its entries once where all ranks of the host can read them, a range is
 * united by each from there, and all copy the ranges. So an index of two ranks is found once, by
 * the rank whose range it is in, who tells the others.
 *
 * Source. Beyond the papers of the project; patterns/host_ranges.h.
 * Restriction. None. Ranks that share no memory get the same parts by message.
 * Memory. Of shared memory, the contribution and a range of the result.
 * Cost. That of patterns/host_ranges.h with K = P k, where all read. */
#include "coll/allgather/allgather.h"
#include "coll/patterns/host_ranges.h"

#include <string.h>

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    rill__problem q = *p;
    q.result = p->ranks * p->nnz;
    return rill__host_ranges_estimate(&q, rill__host_ranges_of(p->dim, p->ranks),
                                      RILL__READ_BY_ALL);
}

static rill_status step(rill__run *run) {
    rill__host_ranges *x = run->state;
    if (!x->n)
        rill__host_ranges_begin(run, x, rill__host_ranges_of(run->dim, run->size),
                                RILL__READ_BY_ALL);
    x->unites = true;
    rill_status status = rill__host_ranges_step(run, x);
    if (status != RILL_OK) return status;
    if (run->rank && !rill__run_failed(run)) memcpy(run->fill, x->fill, sizeof run->fill);
    return rill__host_ranges_finish(run, x);
}

const rill__algorithm rill__allgather_shared = {
    .name = "shared",
    .description = "ranks of a host unite a range each in memory that they share, and all copy",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__host_ranges),
    .step = step,
    .joins_hosts = true,
};
