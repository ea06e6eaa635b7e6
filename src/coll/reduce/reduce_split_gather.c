/* split_gather: owners sum index ranges and send them to the root.
 *
 * Idea. The work of the sum is shared: the split of split_allgather, then one message per owner.
 * Source. SparCML's split phase with a gather behind it; Rabenseifner's reduce for dense vectors.
 * Restriction. None.
 * Memory. The messages received; on the root also the result.
 * Cost.  (P-1) latency + k (P-1)/P pair (byte + 2 copy) + k sum
 *      + (P-1) latency + K (P-1)/P pair (byte + 2 copy)      at the root */
#include "coll/cost.h"
#include "coll/patterns/split_gather.h"
#include "coll/reduce/reduce.h"

typedef struct state {
    bool gathering;
    rill__split split;
    rill__collect collect;
    rill__part *parts;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    double result = rill__form_bytes(p, p->result, (double)p->dim) * (p->ranks - 1) / p->ranks;
    return p->c->overhead + rill__split_estimate(p) +
           rill__sum_estimate(p, p->ranks, p->nnz, (double)p->dim / p->ranks) +
           (p->ranks - 1) * p->c->latency + result * (p->c->byte + p->transcode);
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    if (!s->gathering) {
        rill_status status = rill__split_sum_step(run, &s->split, false);
        if (status != RILL_OK) return status;
        const rill__part *sum = &run->piece[0].part;
        rill__run_round(run);
        if (run->rank != run->root)
            return rill__run_send(run, run->root, RILL__LANE_B, &run->coding, sum);
        s->parts = rill__run_alloc(run, (size_t)run->size, sizeof *s->parts);
        if (!s->parts) return RILL_ERR_MEMORY;
        s->parts[run->rank] = *sum;
        RILL_TRY(rill__collect_start(run, &s->collect, &(rill__group){0}, RILL__LANE_B));
        s->gathering = true;
    }
    for (;;) {
        rill__received received;
        rill_status status = rill__collect_next(run, &s->collect, &received);
        if (status != RILL_OK) return status;
        if (received.place < 0) return rill__finish_parts(run, run->size, s->parts);
        if (!rill__received_nothing(&received))
            s->parts[received.place] = rill__run_part(run, &received.message);
    }
}

const rill__algorithm rill__reduce_split_gather = {
    .name = "split_gather",
    .description = "owners sum index ranges and send them to the root; bandwidth-optimal",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
