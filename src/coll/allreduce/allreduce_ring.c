/* ring: sparse ring reduce-scatter, then ring allgather.
 *
 * Idea. As the dense ring allreduce, with sparse ranges: each rank talks to its neighbours only.
 * Source. SparCML's comparison ("ring-based sparse", section 8).
 * Restriction. None. 2(P-1) dependent rounds.
 * Memory. Two partial sums of a range, and the result.
 * Cost.  sum over n = 1..P-1 of  latency + K(n)/P pair (byte + 2 copy) + (K(n) + k)/P merge
 *      + (P-1) (latency + K/P pair byte) + K pair 2 copy
 *      + K/P scatter + N/P size dense_add                    where the sum turns dense */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/gather.h"
#include "coll/patterns/ring.h"

typedef struct state {
    int stage;
    rill__ring ring;
    rill__gather gather;
} state;

enum { REDUCING, GATHERING };

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    double bytes = rill__form_bytes(p, p->result / p->ranks, (double)p->dim / p->ranks) +
                   RILL__SHORT_BYTES;
    return p->c->overhead + rill__prepare_estimate(p) + rill__ring_estimate(p) +
           rill__gather_estimate(p, RILL__RING, bytes) + rill__turn_estimate(p) / p->ranks +
           (p->ranks + 1) * bytes * p->transcode;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    int size = run->size;
    if (s->stage == REDUCING) {
        rill_status status = rill__ring_step(run, &s->ring);
        if (status != RILL_OK) return status;
        rill__parcel *mine;
        RILL_TRY(rill__run_encode(run, &run->coding, &run->piece[s->ring.last].part, &mine));
        RILL_TRY(rill__gather_start(run, &s->gather, RILL__RING, mine));
        s->stage = GATHERING;
    }
    rill_status status = rill__gather_step(run, &s->gather);
    if (status != RILL_OK) return status;
    rill__part *parts = rill__run_alloc(run, (size_t)size, sizeof *parts);
    if (!parts) return RILL_ERR_MEMORY;
    rill__gather_parts(run, &s->gather, parts);
    return rill__finish_parts(run, size, parts);
}

const rill__algorithm rill__allreduce_ring = {
    .name = "ring",
    .description = "sparse ring reduce-scatter and ring allgather: neighbours only",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
