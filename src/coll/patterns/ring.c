#include "coll/patterns/ring.h"
#include "coll/cost.h"

/* One by one up to here; then each step stands for some that follow it, a 512th of those before. */
enum { EXACT_STEPS = 1024, STEPS_APART = 512 };

double rill__ring_estimate(const rill__problem *p) {
    double time = 0, range = (double)p->dim / p->ranks;
    double limit = (double)rill__dense_switch(p->type, p->dim) / p->ranks;
    for (int n = 1, alike; n < p->ranks; n += alike) {
        double entries = rill__expected_union(p, n) / p->ranks;
        bool dense = entries > limit;
        double bytes = (dense ? range * p->value_cost : rill__pairs_bytes(p, entries, range)) +
                       RILL__SHORT_BYTES;
        double step = p->c->latency + bytes * (p->c->byte + p->transcode);
        step += dense ? 3 * bytes * p->c->dense_add : (entries + p->nnz / p->ranks) * p->c->merge;
        alike = n < EXACT_STEPS ? 1 : n / STEPS_APART;
        if (alike > p->ranks - n) alike = p->ranks - n;
        time += alike * step;
    }
    return time;
}

/* My entries of a range, with what came from the left added; the left is the earlier part. */
static rill__part add_own(rill__run *run, rill__ring *ring, int segment, const rill__part *left) {
    rill__split *split = &ring->split;
    uint64_t first = rill__split_first(split, segment), range = rill__split_range(split, segment);
    rill__part both[2] = {*left, rill__part_slice(run->shape, run->input, first, range)};
    if (left->first != first || left->range != range) {
        rill__run_fail(run,
                       rill__fail(RILL_ERR_MESSAGE, "a message has another range than expected"));
        return rill__part_empty(first, range);
    }
    ring->last = 1 - ring->last;
    rill__run_sum(run, first, range, 2, both, false, &run->piece[ring->last]);
    return run->piece[ring->last].part;
}

rill_status rill__ring_step(rill__run *run, rill__ring *ring) {
    int size = run->size, rank = run->rank;
    if (!ring->known) {
        rill_status status = rill__split_bounds(run, &ring->split);
        if (status != RILL_OK) return status;
        ring->known = true;
    }
    for (; ring->round < size - 1; ring->round++, ring->sent = false) {
        int sends = ((rank - 1 - ring->round) % size + size) % size;
        int comes = (sends - 1 + size) % size;
        if (!ring->sent) {
            rill__part first = rill__part_slice(run->shape, run->input,
                                                rill__split_first(&ring->split, sends),
                                                rill__split_range(&ring->split, sends));
            RILL_TRY(rill__run_send(run, (rank + 1) % size, RILL__LANE_A, &run->coding,
                                    ring->round ? &run->piece[ring->last].part : &first));
            rill__run_round(run);
            ring->sent = true;
        }
        rill__received received;
        rill_status status = rill__run_receive(run, (rank - 1 + size) % size, RILL__LANE_A,
                                               &received);
        if (status != RILL_OK) return status;
        rill__part left = rill__part_empty(rill__split_first(&ring->split, comes),
                                           rill__split_range(&ring->split, comes));
        if (!rill__received_nothing(&received)) {
            /* The message speaks for the ranks that it came through; with this one, for one more.
             */
            if (run->problem->partition != RILL__BALANCED)
                rill__run_count_anew(run, &received.message.header, run->entries);
            left = rill__run_part(run, &received.message);
        }
        add_own(run, ring, comes, &left);
    }
    return RILL_OK;
}
