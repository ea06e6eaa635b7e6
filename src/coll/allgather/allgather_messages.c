/* The union of disjoint supports, by messages that reach all ranks.
 *
 * All three ways gather the P messages (patterns/gather.h has idea, source and cost of each) and
 * unite them; an index that two ranks have is an error, which every rank sees alike.
 *
 * Restriction. None.
 * Memory. The P messages and the result.
 * Cost. gather of k pairs + P k (merge + pair copy) */
#include "coll/allgather/allgather.h"
#include "coll/cost.h"
#include "coll/patterns/gather.h"

#include <string.h>

typedef struct state {
    bool started;
    rill__gather gather;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p, rill__gather_kind kind) {
    double bytes = rill__pairs_bytes(p, p->nnz_max, (double)p->dim) + RILL__SHORT_BYTES;
    return p->c->overhead + rill__gather_estimate(p, kind, bytes) +
           p->ranks * (p->nnz * p->c->merge + bytes * p->transcode / 2);
}
static double estimate_direct(const rill__problem *p) { return estimate(p, RILL__DIRECT); }
static double estimate_bruck(const rill__problem *p) { return estimate(p, RILL__BRUCK); }
static double estimate_ring(const rill__problem *p) { return estimate(p, RILL__RING); }

/* Disjoint sums have as many entries as their inputs together. */
static rill_status unite(rill__run *run, int n, const rill__part *parts) {
    uint64_t total = 0;
    if (rill__run_failed(run)) return RILL_OK;
    for (int i = 0; i < n; i++) {
        if (parts[i].form != RILL__SPARSE) {
            rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE, "rank %d sent no pairs", i));
            return RILL_OK;
        }
        total += parts[i].n;
    }
    rill__piece *piece = &run->piece[0];
    rill__pairs *pairs = rill__run_alloc(run, (size_t)n, sizeof *pairs);
    if (!pairs) return RILL_OK;
    rill_status status = rill__parts_unite(run->shape, 0, run->dim, n, parts, pairs, &run->scratch,
                                           piece);
    uint64_t count = piece->part.n;
    if (status == RILL_OK && count != total)
        status = rill__fail(RILL_ERR_OVERLAP,
                            "rill_allgather: %llu indices are on more than one rank",
                            (unsigned long long)(total - count));
    if (status != RILL_OK) return rill__run_fail(run, status);
    RILL_TRY(rill__finish_piece(run, piece));
    bool dense = count > rill__dense_switch(run->shape.type, run->dim);
    return dense ? rill__finish_dense(run) : RILL_OK;
}

static rill_status step(rill__run *run, rill__gather_kind kind) {
    state *s = run->state;
    int size = run->size;
    if (!s->started) {
        rill__parcel *mine;
        RILL_TRY(rill__run_encode(run, &run->coding, run->input, &mine));
        RILL_TRY(rill__gather_start(run, &s->gather, kind, mine));
        s->started = true;
    }
    rill_status status = rill__gather_step(run, &s->gather);
    if (status != RILL_OK) return status;
    rill__part *parts = rill__run_alloc(run, (size_t)size, sizeof *parts);
    if (!parts) return RILL_ERR_MEMORY;
    rill__gather_parts(run, &s->gather, parts);
    for (int i = 0; i < size; i++)
        if (i != run->rank) rill__run_count(run, &s->gather.messages[i].header);
    if (!rill__run_failed(run))
        memcpy(run->fill, &s->gather.messages[0].header.fill, sizeof run->fill);
    return unite(run, size, parts);
}
static rill_status step_direct(rill__run *run) { return step(run, RILL__DIRECT); }
static rill_status step_bruck(rill__run *run) { return step(run, RILL__BRUCK); }
static rill_status step_ring(rill__run *run) { return step(run, RILL__RING); }

const rill__algorithm rill__allgather_direct = {
    .name = "direct",
    .description = "everybody sends to everybody: one round",
    .supports = supports,
    .estimate = estimate_direct,
    .state_size = sizeof(state),
    .step = step_direct,
};

const rill__algorithm rill__allgather_bruck = {
    .name = "bruck",
    .description = "log2 P rounds with bundled messages",
    .supports = supports,
    .estimate = estimate_bruck,
    .state_size = sizeof(state),
    .step = step_bruck,
};

const rill__algorithm rill__allgather_ring = {
    .name = "ring",
    .description = "messages travel round the ring; neighbours only",
    .supports = supports,
    .estimate = estimate_ring,
    .state_size = sizeof(state),
    .step = step_ring,
};
