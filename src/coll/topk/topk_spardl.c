/* spardl: the largest k/P of the sum in each of P shares of the index space.
 *
 * Idea. Share b of the index space ends at rank b: a reduce-scatter by halves (patterns/halves.h).
 * What comes is added. A share is trimmed to its k/P largest before it is sent on, and at its end.
 * Then Bruck's allgather of the P shares, as their owners encoded them. Shares are of equal length
 * as published, or with partition "balanced", the default, move to where large entries are
 * (share_bounds.c).
 * Source. SparDL (Zhao et al., ICDE 2023), Spar-Reduce-Scatter, without teams.
 * Restriction. None. Shares have at least one entry, so that for k < P the result has up to P.
 * Memory. The messages of the reduce-scatter, the sums of their shares, and the P results.
 * Cost. With L = ceil(log2 P) and s = k (P-1)/P:
 *     L latency + s pair (byte + 2 copy) + 2s (merge + select)       reduce-scatter
 *   + L latency + s pair (byte + copy)                               gather
 *   + 2 k pair copy                                                  concatenation
 * Volume. 4s words leave each rank, in 2L rounds. */
#include "coll/cost.h"
#include "coll/patterns/gather.h"
#include "coll/patterns/halves.h"
#include "coll/topk/topk.h"

#include <string.h>

typedef struct state {
    bool begun, gathering;
    rill__halves halves;
    rill__part parts[2]; /* of what this rank holds: up to the last share, and from share 0 on */
    rill__gather gather;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    const rill__constants *c = p->c;
    double k = p->k > 1 ? p->k : 1, share = k * (p->ranks - 1) / p->ranks;
    double pair = rill__pairs_bytes(p, k, (double)p->dim) / k;
    double select = RILL__SELECT_MERGES * c->merge;
    double time = c->overhead + share * pair * (2 * c->byte + c->copy + p->transcode) +
                  2 * share * (c->merge + select) + k * pair * p->transcode;
    for (int n = 1; n < p->ranks; n *= 2)
        time += 2 * c->latency;
    return time;
}

/* The entries of shares that this rank holds, at most as many as they may have. */
static rill__part trimmed(rill__run *run, const state *s, const rill__section *c) {
    rill__part part = rill__part_slice(run->shape, &s->parts[c->from >= run->rank ? 0 : 1],
                                       c->first, c->range);
    rill__part dropped = rill__part_empty(0, 0);
    rill__part_topk_shares(run, &part, c->from, c->to, run->feedback->k, &part,
                           run->feedback->options.keeps ? &dropped : NULL);
    rill__give_back(run, &dropped);
    return part;
}

static rill_status send_shares(rill__run *run, state *s) {
    rill__section c[2];
    rill__part parts[2];
    rill__parcel *parcels[2];
    int n = rill__halves_leaving(run, &s->halves, c);
    for (int i = 0; i < n; i++)
        parts[i] = trimmed(run, s, &c[i]);
    for (int i = 0; i < n; i++)
        RILL_TRY(rill__run_encode(run, &run->coding, &parts[i], &parcels[i]));
    RILL_TRY(rill__halves_send(run, &s->halves, n, parcels));
    rill__halves_sections(run, &s->halves, 0, s->halves.distance, c);
    for (int i = 0; i < 2; i++)
        s->parts[i] = rill__part_slice(run->shape, &s->parts[i], c[i].first, c[i].range);
    return RILL_OK;
}

static rill_status receive_shares(rill__run *run, state *s) {
    rill__halves_came came;
    rill_status status = rill__halves_receive(run, &s->halves, &came);
    if (status != RILL_OK) return status;
    for (int i = 0; i < came.n; i++) {
        const rill__section *c = &came.section[i];
        rill__part received = rill__received_pairs(run, &came.message[i], c->first, c->range);
        rill__part_add_pairs(run, &s->parts[i], &received);
    }
    return RILL_OK;
}

static rill_status gather_own(rill__run *run, state *s) {
    rill__section own[2];
    rill__halves_sections(run, &s->halves, 0, 1, own);
    rill__part part = trimmed(run, s, &own[0]);
    rill__parcel *parcel;
    RILL_TRY(rill__run_encode(run, &run->coding, &part, &parcel));
    return rill__gather_start(run, &s->gather, RILL__BRUCK, parcel);
}

/* Owners go on from what they sent as well: where values are coded, all have the same. */
static rill_status finish(rill__run *run, state *s) {
    int size = run->size;
    rill__part *parts = rill__run_alloc(run, (size_t)size, sizeof *parts);
    if (!parts || rill__run_failed(run)) return RILL_OK;
    for (int i = 0; i < size; i++) {
        uint64_t first = s->halves.bounds[i], range = s->halves.bounds[i + 1] - first;
        parts[i] = rill__received_pairs(run, &s->gather.messages[i], first, range);
    }
    rill_status status = rill__finish_parts(run, size, parts);
    if (status == RILL_OK && !rill__run_failed(run)) rill__share_memory_close(run, parts);
    return status;
}

static rill_status begin(rill__run *run, state *s) {
    int size = run->size;
    uint64_t *bounds = rill__run_alloc(run, (size_t)size + 1, sizeof *bounds);
    if (!bounds) return RILL_ERR_MEMORY;
    rill__share_memory_open(run);
    for (int i = 0; i <= size; i++)
        bounds[i] = rill__share_bound(run->feedback, run->dim, size, i);
    rill__section c[2];
    rill__halves_start(run, &s->halves, bounds);
    rill__halves_sections(run, &s->halves, 0, size, c);
    for (int i = 0; i < 2; i++)
        s->parts[i] = rill__part_slice(run->shape, run->input, c[i].first, c[i].range);
    s->begun = true;
    return RILL_OK;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    rill_status status;
    if (!s->begun) RILL_TRY(begin(run, s));
    while (s->halves.distance) {
        if (!s->halves.sent) RILL_TRY(send_shares(run, s));
        status = receive_shares(run, s);
        if (status != RILL_OK) return status;
    }
    if (!s->gathering) {
        RILL_TRY(gather_own(run, s));
        s->gathering = true;
    }
    if ((status = rill__gather_step(run, &s->gather)) != RILL_OK) return status;
    return finish(run, s);
}

const rill__algorithm rill__topk_spardl = {
    .name = "spardl",
    .description =
        "SparDL: the largest k/P of each of P shares; reduce-scatter and Bruck's allgather",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
    .memory_size = rill__share_memory_size,
    .selects_by_range = true,
    .balances = true,
};
