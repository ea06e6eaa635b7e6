/* spardl: the largest k/P of the sum in each of P shares of the index space.
 *
 * Idea. Share b of the index space ends at rank b. Reduce-scatter for any P: with offset
 * (share - rank) mod P and distances d = the largest power of two below P, then its halves, each
 * rank sends to rank + d all shares that it still holds whose offset is d or more, in one message,
 * and keeps the rest; the receiver adds them to its own. A share is trimmed to its k/P largest
 * before it is sent on, and at its end. Then Bruck's allgather of the P shares, as their owners
 * encoded them. The shares that a rank holds are consecutive, so that they are one range of pairs,
 * or two where they go on at share 0. Shares are of equal length as published, or with partition
 * "balanced", the default, move to where large entries are (share_bounds.c).
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
#include "coll/topk/topk.h"

#include <string.h>

typedef enum phase { START, SEND, RECEIVE, GATHER } phase;

typedef struct state {
    phase phase;
    int distance, held;  /* of this round; shares that this rank holds, its own the first */
    rill__part parts[2]; /* of those up to the last share, and from share 0 on */
    rill__gather gather;
} state;

/* Shares that follow each other on the ring, as ranges of the index space. */
typedef struct section {
    int from, to;
    uint64_t first, range;
} section;

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

static section section_of(const rill__run *run, int from, int to) {
    int size = run->size;
    uint64_t dim = run->dim, first = rill__share_bound(run->feedback, dim, size, from);
    return (section){from, to, first, rill__share_bound(run->feedback, dim, size, to) - first};
}

/* The n shares from the rank-th on that follow offset; returns how many sections they are. */
static int sections_of(const rill__run *run, int offset, int n, section out[2]) {
    int size = run->size, from = (run->rank + offset) % size;
    int over = from + n - size;
    out[0] = section_of(run, from, over > 0 ? size : from + n);
    out[1] = section_of(run, 0, over > 0 ? over : 0);
    return over > 0 ? 2 : 1;
}

/* The entries of shares that this rank holds, at most as many as they may have. */
static rill__part trimmed(rill__run *run, const state *s, const section *c) {
    rill__part part = rill__part_slice(run->shape, &s->parts[c->from >= run->rank ? 0 : 1],
                                       c->first, c->range);
    rill__part dropped = rill__part_empty(0, 0);
    rill__part_topk_shares(run, &part, c->from, c->to, run->feedback->k, &part,
                           run->feedback->options.keeps ? &dropped : NULL);
    rill__give_back(run, &dropped);
    return part;
}

static rill_status encode_two(rill__run *run, const rill__part parts[2], rill__parcel **out) {
    const void *start[2];
    for (int i = 0; i < 2; i++) {
        rill__message message;
        RILL_TRY(rill__run_encode(run, &run->coding, &parts[i], out));
        RILL_TRY(rill__own_message(*out, &message));
        start[i] = rill__message_start(&message);
    }
    return rill__run_bundle(run, 2, start, out);
}

static rill_status send_shares(rill__run *run, state *s) {
    int to = (run->rank + s->distance) % run->size;
    section c[2];
    rill__part parts[2];
    rill__parcel *parcel;
    int n = sections_of(run, s->distance, s->held - s->distance, c);
    for (int i = 0; i < n; i++)
        parts[i] = trimmed(run, s, &c[i]);
    RILL_TRY(n == 1 ? rill__run_encode(run, &run->coding, &parts[0], &parcel)
                    : encode_two(run, parts, &parcel));
    RILL_TRY(rill__run_send_parcel(run, to, RILL__LANE_A, parcel));
    rill__run_round(run);
    sections_of(run, 0, s->distance, c);
    for (int i = 0; i < 2; i++)
        s->parts[i] = rill__part_slice(run->shape, &s->parts[i], c[i].first, c[i].range);
    return RILL_OK;
}

static void add(rill__run *run, state *s, int i, const rill__message *message, const section *c) {
    rill__part received = rill__received_pairs(run, message, c->first, c->range);
    rill__part_add_pairs(run, &s->parts[i], &received);
}

/* What comes are the first of the shares that this rank holds. */
static rill_status receive_shares(rill__run *run, state *s) {
    int size = run->size;
    int from = (run->rank - s->distance + size) % size;
    rill__received received;
    rill_status status = rill__run_receive(run, from, RILL__LANE_A, &received);
    if (status != RILL_OK) return status;
    const rill__message *message = &received.message;
    section c[2];
    int n = sections_of(run, 0, s->held - s->distance, c);
    if (message->header.form != RILL__M_BUNDLE) {
        if (n == 1 || rill__received_nothing(&received)) add(run, s, 0, message, &c[0]);
        else rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE, "malformed message: not a bundle"));
        return RILL_OK;
    }
    size_t offset = 0;
    for (int i = 0; i < n; i++) {
        rill__message inner;
        status = rill__run_unbundle(run, message, &offset, &inner);
        if (status != RILL_OK) return rill__run_fail(run, status);
        add(run, s, i, &inner, &c[i]);
    }
    return RILL_OK;
}

static rill_status gather_own(rill__run *run, state *s) {
    section own = section_of(run, run->rank, run->rank + 1);
    rill__part part = trimmed(run, s, &own);
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
        section c = section_of(run, i, i + 1);
        parts[i] = rill__received_pairs(run, &s->gather.messages[i], c.first, c.range);
    }
    rill_status status = rill__finish_parts(run, size, parts);
    if (status == RILL_OK && !rill__run_failed(run)) rill__share_memory_close(run, parts);
    return status;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    int size = run->size;
    rill_status status;
    if (s->phase == START) {
        section c[2];
        rill__share_memory_open(run);
        sections_of(run, 0, size, c);
        for (int i = 0; i < 2; i++)
            s->parts[i] = rill__part_slice(run->shape, run->input, c[i].first, c[i].range);
        s->held = size;
        s->distance = 1;
        while (s->distance * 2 < size)
            s->distance *= 2;
        s->phase = SEND;
    }
    while (s->phase == SEND || s->phase == RECEIVE) {
        if (s->phase == SEND) {
            RILL_TRY(send_shares(run, s));
            s->phase = RECEIVE;
        }
        if ((status = receive_shares(run, s)) != RILL_OK) return status;
        s->held = s->distance;
        s->distance /= 2;
        s->phase = s->distance ? SEND : GATHER;
        if (s->phase == GATHER) RILL_TRY(gather_own(run, s));
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
