/* dsar: sparse in, dense out.
 *
 * Idea. As split_allgather, but each owner sums its range into a dense vector, and the second phase
 * gathers dense ranges: right where the result is dense although the inputs are not.
 * Source. DSAR_Split_allgather of SparCML (section 5.3.3).
 * Restriction. A dense vector of the dimension must fit in memory.
 * Memory. The result, and the owned range twice.
 * Cost.  (P-1) latency + k (P-1)/P pair (byte + 2 copy)      split
 *      + k scatter + N/P size dense_add                      sum of the owned range
 *      + gather of N/P values + N size 2 copy                second phase, result written */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/split_gather.h"

static const char *supports(const rill__problem *p) {
    return p->dim > (UINT64_MAX >> 4)
               ? "needs a dense vector, and the dimension is too large for one"
               : NULL;
}

static double estimate(const rill__problem *p) {
    double written = (double)p->dim / p->ranks * p->value_cost;
    return p->c->overhead + rill__prepare_estimate(p) + rill__split_estimate(p) +
           p->nnz * p->c->scatter + written * p->c->dense_add +
           rill__owners_gather_estimate(p, true);
}

static rill_status step(rill__run *run) {
    rill__split_gather *s = run->state;
    if (!s->begun) rill__split_gather_begin(run, s, run->problem, true);
    return rill__split_gather_step(run, s);
}

const rill__algorithm rill__allreduce_dsar = {
    .name = "dsar",
    .description = "SparCML DSAR: split to owners that sum densely, dense allgather",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__split_gather),
    .step = step,
};
