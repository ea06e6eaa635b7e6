/* gtopk: the k largest of the sum, by a tree that selects again at every node.
 *
 * Idea. Partial sums flow up a binomial tree; each node adds what its child sent, lower ranks
 * first, keeps the k largest and sends those on. The root's k go down the same tree, encoded once.
 * What a node drops it keeps itself if the index is in the result all the same: the published rule
 * counts it as delivered and loses it.
 * Source. gTopKAllReduce of gTop-k (Shi et al., ICDCS 2019, algorithms 3 and 4), for any P.
 * Restriction. None. A rank that selected more than k sends its k largest.
 * Memory. At a node, per child: a message, 2k pairs of the sum, and the same for the selection.
 * Cost. With L = ceil(log2 P):
 *     L (latency + k pair (byte + 2 copy) + 2k (merge + select))     up
 *   + L (latency + k pair byte) + 2 k pair copy                      down
 * Volume. At most 2k L words leave or reach a rank; the root gets as many and sends as many. */
#include "coll/topk/topk.h"
#include "coll/cost.h"
#include "coll/patterns/fan_out.h"

typedef enum phase { START, UP, WAIT, DOWN } phase;

typedef struct state {
    phase phase;
    int distance; /* to the child or the parent that is next */
    rill__part sum;
    rill__parcel *result; /* as the root encoded it */
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    const rill__constants *c = p->c;
    double bytes = rill__pairs_bytes(p, p->k, (double)p->dim);
    double time = c->overhead + bytes * p->transcode;
    double select = RILL__SELECT_MERGES * c->merge;
    for (int n = 1; n < p->ranks; n *= 2)
        time += 2 * c->latency + bytes * (2 * c->byte + p->transcode) +
                2 * p->k * (c->merge + select);
    return time;
}

static void select_again(rill__run *run, state *s) {
    rill__part dropped = rill__part_empty(0, 0);
    rill__part_topk(run, &s->sum, run->feedback->k, &s->sum,
                    run->feedback->options.keeps ? &dropped : NULL);
    rill__give_back(run, &dropped);
}

/* Ends with the partial sum sent to the parent; on the root, with the result. */
static rill_status step_up(rill__run *run, state *s) {
    int rank = run->rank, size = run->size;
    for (; s->distance < size; s->distance *= 2) {
        if (rank & s->distance) {
            rill__run_round(run);
            return rill__run_send(run, rank - s->distance, RILL__LANE_A, &run->coding, &s->sum);
        }
        if (rank + s->distance >= size) continue;
        rill__received came;
        rill_status status = rill__run_receive(run, rank + s->distance, RILL__LANE_A, &came);
        if (status != RILL_OK) return status;
        rill__run_round(run);
        rill__part received = rill__received_pairs(run, &came.message, 0, run->dim);
        rill__part_add_pairs(run, &s->sum, &received);
        select_again(run, s);
    }
    RILL_TRY(rill__run_encode(run, &run->coding, &s->sum, &s->result));
    if (rill__run_is_lossy(run)) s->sum = rill__run_own_part(run, s->result);
    return RILL_OK;
}

static rill_status step_wait(rill__run *run, state *s) {
    rill__received came;
    if (!run->rank) return RILL_OK;
    rill_status status = rill__run_receive(run, run->rank - s->distance, RILL__LANE_B, &came);
    if (status != RILL_OK) return status;
    s->result = came.parcel;
    rill__run_round(run);
    s->sum = rill__received_pairs(run, &came.message, 0, run->dim);
    if (!rill__run_failed(run)) return RILL_OK;
    return rill__run_encode(run, &run->coding, &s->sum, &s->result); /* those below are told */
}

static rill_status step_down(rill__run *run, state *s) {
    rill_status status = rill__fan_out(run, 0, run->rank, &s->distance, RILL__LANE_B, s->result);
    return status == RILL_OK ? rill__finish_parts(run, 1, &s->sum) : status;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    rill_status status;
    switch (s->phase) {
    case START:
        s->distance = 1;
        s->sum = *run->input;
        select_again(run, s);
        s->phase = UP;
        /* fall through */
    case UP:
        if ((status = step_up(run, s)) != RILL_OK) return status;
        s->phase = WAIT;
        /* fall through */
    case WAIT:
        if ((status = step_wait(run, s)) != RILL_OK) return status;
        s->phase = DOWN;
        /* fall through */
    default: return step_down(run, s);
    }
}

const rill__algorithm rill__topk_gtopk = {
    .name = "gtopk",
    .description = "gTop-k: tree that selects the k largest again at every node, then broadcast",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
