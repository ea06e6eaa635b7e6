/* recursive_halving: the allreduce of sparse streams for many ranks, with few messages.
 *
 * Idea. As split_allgather, but entries go to the owners of their ranges in ceil(log2 P) rounds of
 * halves, summed on the way: where P-1 messages cost more than to send some entries twice. Sums
 * turn dense where that is cheaper, and so does the result.
 * Source. The reduce-scatter of SparDL (Zhao et al., ICDE 2023) with exact sums in place of its
 * selection; for dense vectors recursive halving and doubling (Thakur, Rabenseifner, Gropp 2005).
 * Restriction. None.
 * Memory. The messages received, then the result.
 * Cost. With L = ceil(log2 P), and K(n) entries in the union of n contributions:
 *   sum over rounds t < L of
 *      latency + K(2^t) / 2^(t+1) pair (byte + 2 copy)     the half that leaves
 *    + (k + K(1) + ... + K(2^(t-1))) / 2^(t+1) sum         its sum, in one go
 *   + the sum of the own range, likewise
 *   + gather of K/P pairs, or of N/P values                see patterns/gather.h
 *   + K pair 2 copy                                        concatenation
 * Volume. Up to k L / 2 pairs leave each rank before the gather, where supports are disjoint. */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/split_gather.h"

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    return p->c->overhead + rill__prepare_estimate(p) + rill__halves_sum_estimate(p, false) +
           rill__owners_gather_estimate(p, false);
}

static rill_status step(rill__run *run) {
    rill__split_gather *s = run->state;
    if (!s->begun) {
        rill__split_gather_begin(run, s, run->problem, false);
        s->by_halves = true;
    }
    return rill__split_gather_step(run, s);
}

const rill__algorithm rill__allreduce_recursive_halving = {
    .name = "recursive_halving",
    .description = "SparDL's reduce-scatter with exact sums: log2 P rounds of halves, allgather",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__split_gather),
    .step = step,
};
