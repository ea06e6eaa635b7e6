/* split: everybody sends to every owner its entries of the owner's range; owners sum.
 *
 * Source. The first phase of SparCML's split algorithms.
 * Restriction. None.
 * Memory. The messages received.
 * Cost.  (P-1) latency + k (P-1)/P pair (byte + 2 copy) + k sum */
#include "coll/cost.h"
#include "coll/patterns/split_gather.h"
#include "coll/reduce_scatter/reduce_scatter.h"

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    return p->c->overhead + rill__split_estimate(p) +
           rill__sum_estimate(p, p->ranks, p->nnz, (double)p->dim / p->ranks);
}

static rill_status step(rill__run *run) {
    rill__split *split = run->state;
    rill_status status = rill__split_sum_step(run, split, false);
    if (status != RILL_OK) return status;
    return rill__finish_range(run, rill__split_first(split, run->rank),
                              rill__split_range(split, run->rank), &run->piece[0].part);
}

const rill__algorithm rill__reduce_scatter_split = {
    .name = "split",
    .description = "all send to every owner its range; owners sum in one go",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__split),
    .step = step,
};
