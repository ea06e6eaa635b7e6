/* split_allgather: the bandwidth-optimal allreduce of sparse streams.
 *
 * Idea. Split the index space in P ranges. Each rank sends to every owner its entries of the
 * owner's range; owners sum; the sums, disjoint by construction, are gathered by all and
 * concatenated.
 * Source. SSAR_Split_allgather of SparCML (section 5.3.2). Balanced bounds: Ok-Topk (section 3.1).
 * Restriction. None.
 * Memory. The messages received: nnz of the range, then the result.
 * Cost.  (P-1) latency + k (P-1)/P pair (byte + 2 copy)      split
 *      + k sum                                               P-way sum of P parts of k/P entries
 *      + gather of K/P pairs                                 see patterns/gather.h
 *      + K pair 2 copy                                       concatenation
 *      + K/P scatter + N/P size dense_add                    where the sum turns dense */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/split_gather.h"

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    double share = rill__owner_share(p), range = (double)p->dim / p->ranks;
    return p->c->overhead + rill__prepare_estimate(p) + rill__split_estimate(p) +
           rill__sum_estimate(p, p->ranks, p->nnz * share, range) +
           rill__owners_gather_estimate(p, false) + rill__turn_estimate(p) / p->ranks;
}

static rill_status step(rill__run *run) {
    rill__split_gather *s = run->state;
    if (!s->begun) rill__split_gather_begin(run, s, run->problem, false);
    return rill__split_gather_step(run, s);
}

const rill__algorithm rill__allreduce_split_allgather = {
    .name = "split_allgather",
    .description = "SparCML SSAR: split by index range to owners, sum, sparse allgather",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__split_gather),
    .step = step,
};
