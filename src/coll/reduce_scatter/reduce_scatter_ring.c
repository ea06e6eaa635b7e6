/* ring: partial sums of ranges travel round the ring to their owners (patterns/ring.h).
 *
 * Source. The dense ring reduce-scatter, with sparse ranges.
 * Restriction. None. P-1 dependent rounds.
 * Memory. Two partial sums of a range and one message.
 * Cost.  sum over n = 1..P-1 of  latency + K(n)/P pair (byte + 2 copy) + (K(n) + k)/P merge */
#include "coll/patterns/ring.h"
#include "coll/reduce_scatter/reduce_scatter.h"

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) { return p->c->overhead + rill__ring_estimate(p); }

static rill_status step(rill__run *run) {
    rill__ring *ring = run->state;
    rill_status status = rill__ring_step(run, ring);
    if (status != RILL_OK) return status;
    const rill__split *split = &ring->split;
    return rill__finish_range(run, rill__split_first(split, run->rank),
                              rill__split_range(split, run->rank), &run->piece[ring->last].part);
}

const rill__algorithm rill__reduce_scatter_ring = {
    .name = "ring",
    .description = "partial sums travel round the ring; neighbours only",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__ring),
    .step = step,
};
