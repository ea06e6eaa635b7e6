/* recursive_halving: in each of ceil(log2 P) rounds half of what a rank holds leaves, summed.
 *
 * Source. SparDL (Zhao et al., ICDE 2023), Spar-Reduce-Scatter, with exact sums.
 * Restriction. None.
 * Memory. The messages received.
 * Cost. The first half of allreduce/allreduce_recursive_halving.c. */
#include "coll/patterns/halves_sum.h"
#include "coll/reduce_scatter/reduce_scatter.h"

typedef struct state {
    rill__split split;
    rill__halves_sum halves;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    return p->c->overhead + rill__halves_sum_estimate(p, true);
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    s->halves.counts = true;
    rill_status status = rill__halves_sum_step(run, &s->halves, &s->split);
    if (status != RILL_OK) return status;
    return rill__finish_range(run, rill__split_first(&s->split, run->rank),
                              rill__split_range(&s->split, run->rank), &run->piece[0].part);
}

const rill__algorithm rill__reduce_scatter_recursive_halving = {
    .name = "recursive_halving",
    .description = "log2 P rounds: half of what a rank holds leaves, summed",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
