/* tree: partial sums flow up a binomial tree to the root.
 *
 * Idea. In round t every second of the remaining ranks sends its partial sum and is done.
 * Source. The classic binomial reduce of MPI libraries, with streams.
 * Restriction. None.
 * Memory. Two partial sums and one message.
 * Cost. sum over rounds t of  latency + bytes(K(2^t)) (byte + 2 copy) + 2 K(2^t) merge */
#include "coll/allreduce/allreduce.h"
#include "coll/reduce/reduce.h"

typedef struct state {
    int distance; /* of this round; 0 before the first */
    bool summed;
    int last;
    rill__part sum;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    double time = p->c->overhead;
    for (int n = 1; n < p->ranks; n *= 2) {
        double entries = rill__expected_union(p, n);
        time += p->c->latency +
                rill__form_bytes(p, entries, (double)p->dim) * (p->c->byte + p->handle) +
                2 * entries * p->c->merge;
    }
    return time;
}

static rill_status step(rill_request *r) {
    state *s = r->state.data;
    int size = r->task.engine->size, from_root = (r->task.engine->rank - r->root + size) % size;
    if (!s->distance) {
        s->distance = 1;
        s->sum = r->input;
    }
    for (; s->distance < size; s->distance *= 2) {
        if (from_root & s->distance) {
            int parent = (from_root - s->distance + r->root) % size;
            r->task.rounds++;
            return rill__send(&r->task, parent, RILL__LANE_A, &s->sum);
        }
        if (from_root + s->distance >= size) continue;
        rill__message message;
        rill__block *block;
        int child = (from_root + s->distance + r->root) % size;
        rill_status status = rill__receive(&r->task, child, RILL__LANE_A, &message, &block, NULL);
        if (status != RILL_OK) return status;
        r->task.rounds++;
        if (message.header.form == RILL__M_FAILED) continue;
        rill__add_nnz(r, &message.header);
        rill__part both[2] = {s->sum, rill__received_part(&r->task, &message)};
        int next = s->summed ? 1 - s->last : 0;
        rill__request_sum(r, 0, r->task.expect.dim, 2, both, false, &r->piece[next]);
        s->sum = r->piece[next].part;
        s->last = next;
        s->summed = true;
    }
    return s->summed ? rill__finish_piece(r, &r->piece[s->last])
                     : rill__finish_parts(r, 1, &s->sum);
}

const rill__algorithm rill__reduce_tree = {
    .name = "tree",
    .description = "partial sums flow up a binomial tree; latency-optimal",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
