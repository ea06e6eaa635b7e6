/* tree: partial sums flow up a binomial tree to the root.
 *
 * Idea. In round t every second of the remaining ranks sends its partial sum and is done.
 * Source. The classic binomial reduce of MPI libraries, with streams.
 * Restriction. None.
 * Memory. Two partial sums and one message.
 * Cost. sum over rounds t of  latency + bytes(K(2^t)) (byte + 2 copy) + 2 K(2^t) merge */
#include "coll/cost.h"
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
                rill__form_bytes(p, entries, (double)p->dim) * (p->c->byte + p->transcode) +
                2 * entries * p->c->merge;
    }
    return time;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    int size = run->size, from_root = (run->rank - run->root + size) % size;
    if (!s->distance) {
        s->distance = 1;
        s->sum = *run->input;
    }
    for (; s->distance < size; s->distance *= 2) {
        if (from_root & s->distance) {
            int parent = (from_root - s->distance + run->root) % size;
            rill__run_round(run);
            return rill__run_send(run, parent, RILL__LANE_A, &run->coding, &s->sum);
        }
        if (from_root + s->distance >= size) continue;
        rill__received received;
        int child = (from_root + s->distance + run->root) % size;
        rill_status status = rill__run_receive(run, child, RILL__LANE_A, &received);
        if (status != RILL_OK) return status;
        rill__run_round(run);
        if (rill__received_nothing(&received)) continue;
        rill__run_count(run, &received.message.header);
        rill__part both[2] = {s->sum, rill__run_part(run, &received.message)};
        int next = s->summed ? 1 - s->last : 0;
        rill__run_sum(run, 0, run->dim, 2, both, false, &run->piece[next]);
        s->sum = run->piece[next].part;
        s->last = next;
        s->summed = true;
    }
    return s->summed ? rill__finish_piece(run, &run->piece[s->last])
                     : rill__finish_parts(run, 1, &s->sum);
}

const rill__algorithm rill__reduce_tree = {
    .name = "tree",
    .description = "partial sums flow up a binomial tree; latency-optimal",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
