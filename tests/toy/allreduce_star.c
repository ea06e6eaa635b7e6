/* star: a toy that shows what an algorithm needs: a file such as this, and a row.
 *
 * Idea. Rank 0 gets all contributions, sums them and sends the result to everybody.
 * Restriction. None. Rank 0 does all the work.
 * Memory. On rank 0 all P contributions, and the result.
 * Cost.  2 (P-1) latency + (P-1) k pair (byte + 2 copy) + P k sum + (P-1) K pair byte + K pair 2
 * copy
 *      + K scatter + N size dense_add                        where the sum turns dense */
#include "coll/cost.h"
#include "coll/patterns/collect.h"

typedef struct star {
    enum { START, COLLECT, AWAIT } stage;
    rill__collect collect;
    rill__part *parts; /* of each rank */
} star;

static const char *star_supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double star_estimate(const rill__problem *p) {
    double in = rill__input_bytes(p, p->nnz_max, (double)p->dim) + RILL__SHORT_BYTES;
    double out = rill__form_bytes(p, p->result, (double)p->dim) + RILL__SHORT_BYTES;
    int others = p->ranks - 1;
    return p->c->overhead + rill__prepare_estimate(p) + rill__turn_estimate(p) +
           2 * others * p->c->latency + others * in * (p->c->byte + p->transcode) +
           p->ranks * p->nnz * p->c->sum + others * out * p->c->byte + out * p->transcode;
}

static rill_status star_start(rill__run *run, star *s) {
    s->stage = run->rank ? AWAIT : COLLECT;
    rill__run_round(run);
    if (run->rank) return rill__run_send(run, 0, RILL__LANE_A, &run->coding, run->input);
    s->parts = rill__run_alloc(run, (size_t)run->size, sizeof *s->parts);
    if (!s->parts) return RILL_ERR_MEMORY;
    s->parts[0] = *run->input;
    return rill__collect_start(run, &s->collect, &(rill__group){0}, RILL__LANE_A);
}

/* Everybody goes on from what was encoded, rank 0 too: values may have been rounded. */
static rill_status star_answer(rill__run *run, star *s) {
    rill__parcel *block;
    rill__run_sum(run, 0, run->dim, run->size, s->parts, false, &run->piece[0]);
    RILL_TRY(rill__run_encode(run, &run->coding, &run->piece[0].part, &block));
    rill__run_round(run);
    for (int to = 1; to < run->size; to++)
        RILL_TRY(rill__run_send_parcel(run, to, RILL__LANE_B, block));
    if (!rill__run_is_lossy(run)) return rill__finish_piece(run, &run->piece[0]);
    rill__part part = rill__run_own_part(run, block);
    return rill__finish_copy(run, &part);
}

static rill_status star_step(rill__run *run) {
    star *s = run->state;
    rill__received received;
    if (s->stage == START) RILL_TRY(star_start(run, s));
    if (s->stage == AWAIT) {
        rill_status status = rill__run_receive(run, 0, RILL__LANE_B, &received);
        if (status != RILL_OK) return status;
        rill__run_round(run);
        if (rill__received_nothing(&received)) return RILL_OK;  /* the failure is recorded */
        rill__run_count_anew(run, &received.message.header, 0); /* it speaks for all ranks */
        rill__part part = rill__run_part(run, &received.message);
        return rill__finish_copy(run, &part);
    }
    for (;;) {
        rill_status status = rill__collect_next(run, &s->collect, &received);
        if (status != RILL_OK) return status;
        if (received.place < 0) return star_answer(run, s);
        if (rill__received_nothing(&received)) continue;
        rill__run_count(run, &received.message.header);
        s->parts[received.place] = rill__run_part(run, &received.message);
    }
}

extern const rill__algorithm toy_allreduce_star;
const rill__algorithm toy_allreduce_star = {
    .name = "star",
    .description = "rank 0 sums all contributions and sends the result",
    .supports = star_supports,
    .estimate = star_estimate,
    .state_size = sizeof(star),
    .step = star_step,
};
