/* split_gather: owners sum index ranges and send them to the root.
 *
 * Idea. The work of the sum is shared: the split of split_allgather, then one message per owner.
 * Source. SparCML's split phase with a gather behind it; Rabenseifner's reduce for dense vectors.
 * Restriction. None.
 * Memory. The messages received; on the root also the result.
 * Cost.  (P-1) latency + k (P-1)/P pair (byte + 2 copy) + k sum
 *      + (P-1) latency + K (P-1)/P pair (byte + 2 copy)      at the root */
#include "coll/allreduce/allreduce.h"
#include "coll/patterns/split_gather.h"
#include "coll/reduce/reduce.h"

typedef struct state {
    bool gathering;
    int received;
    rill__split split;
    rill__part *parts;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    double result = rill__form_bytes(p, p->result, (double)p->dim) * (p->ranks - 1) / p->ranks;
    return p->c->overhead + rill__split_estimate(p) + p->nnz * p->c->sum +
           (p->ranks - 1) * p->c->latency + result * (p->c->byte + p->handle);
}

static rill_status step(rill_request *r) {
    state *s = r->state.data;
    int size = r->task.engine->size, rank = r->task.engine->rank;
    if (!s->gathering) {
        rill_status status = rill__split_sum_step(r, &s->split, false);
        if (status != RILL_OK) return status;
        r->task.rounds++;
        if (rank != r->root) return rill__send(&r->task, r->root, RILL__LANE_B, &r->piece[0].part);
        s->parts = rill__request_alloc(r, (size_t)size, sizeof *s->parts);
        if (!s->parts) return RILL_ERR_MEMORY;
        s->parts[rank] = r->piece[0].part;
        s->gathering = true;
    }
    while (s->received < size - 1) {
        rill__message message;
        rill__block *block;
        int from;
        rill_status status = rill__receive(&r->task, RILL__ANY, RILL__LANE_B, &message, &block,
                                           &from);
        if (status != RILL_OK) return status;
        s->received++;
        if (message.header.form != RILL__M_FAILED)
            s->parts[from] = rill__received_part(&r->task, &message);
    }
    return rill__finish_parts(r, size, s->parts);
}

const rill__algorithm rill__reduce_split_gather = {
    .name = "split_gather",
    .description = "owners sum index ranges and send them to the root; bandwidth-optimal",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
