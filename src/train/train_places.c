/* Which features several ranks have, and which are one rank's alone.
 *
 * Idea: a sum over rows has a part of a rank only where its rows have the feature. Of wide data
 * most features are rare: one rank has them all. Their sums are known there without an exchange,
 * and nobody else's rows ask for their weights. So solvers that make many sums keep vectors by
 * place: shared features, which are summed, then a rank's own; the others' are left out, and so are
 * those that no row has. Only a step's result goes to all ranks. An inner product is made of parts:
 * each rank adds up its own places and a slice of the shared ones, and the parts are added in the
 * order of ranks, so that all have the same bits.
 * Features that are centred, and the bias, are shared in any case: newton's preconditioner needs
 * them everywhere.
 * Source: as partial replication in parameter servers (Li et al., 2014), with fixed places.
 * Memory: 4 bytes a place, 8 a weight of its own, 2 bits a feature. Cost: a pass over the rows, and
 * P bits a feature to each rank.
 */
#include "train/train_places.h"
#include "train/objective.h"

#include <stdlib.h>
#include <string.h>

static bool has(const uint64_t *bits, uint64_t i) { return bits[i >> 6] >> (i & 63) & 1; }
static void put(uint64_t *bits, uint64_t i) { bits[i >> 6] |= UINT64_C(1) << (i & 63); }

static void look(const rill__objective *o, uint64_t *mine) {
    const rill_data_view *d = &o->rows.data;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            put(mine, d->index32[e]);
    }
}

enum { SLICE = 1 << 20 }; /* bytes of all ranks' bits at a time */

/* All ranks: bits of features that some rank has, and that several have. */
static rill_status compare(rill__team *t, uint64_t words, const uint64_t *mine, uint64_t *all,
                           uint64_t *any, uint64_t *several) {
    uint64_t ranks = (uint64_t)t->ranks, most = SLICE / (ranks * sizeof *mine);
    for (uint64_t at = 0; at < words;) {
        uint64_t n = words - at < most ? words - at : most ? most : 1;
        RILL_TRY_DATA(rill_comm_gather_bytes(t->talk, mine + at, (size_t)n * sizeof *mine, all));
        for (uint64_t r = 0; r < ranks; r++)
            for (uint64_t i = 0; i < n; i++) {
                several[at + i] |= any[at + i] & all[r * n + i];
                any[at + i] |= all[r * n + i];
            }
        at += n;
    }
    return RILL_OK;
}

/* Features that are shared in any case. */
static void add_shared(const rill__objective *o, uint64_t *several) {
    for (uint64_t j = 0; o->shift && j < o->features; j++)
        if (o->shift[j] != 0) put(several, j);
    if (o->bias >= 0) put(several, o->features - 1);
}

static rill_status give_places(const rill__objective *o, rill__team *t, const uint64_t *mine,
                               const uint64_t *several, rill__places *p) {
    uint64_t shared = 0, own = 0, at = 0;
    for (uint64_t k = 0; k < p->words; k++) {
        shared += (uint64_t)__builtin_popcountll(several[k]);
        own += (uint64_t)__builtin_popcountll(mine[k] & ~several[k]);
        p->absent[k] = ~(p->apart[k] | several[k]);
        p->apart[k] &= ~several[k];
    }
    uint64_t beyond = o->features & 63; /* bits of the last word */
    p->absent[p->words - 1] &= (UINT64_C(1) << beyond) - 1;
    p->features = shared + own;
    p->shared = shared;
    p->list = malloc((size_t)(p->features + 1) * sizeof *p->list);
    p->own = malloc(((size_t)(own * p->columns) + RILL_SLACK) * sizeof *p->own);
    p->room = malloc(((size_t)(own * p->columns) + RILL_SLACK) * sizeof *p->room);
    if (!p->list || !p->own || !p->room) return rill__data_memory("places of features");
    for (uint64_t j = 0; j < o->features; j++)
        if (has(several, j)) p->list[at++] = (uint32_t)j;
    for (uint64_t j = 0, k = 0; j < o->features; j++)
        if (!has(several, j) && has(mine, j)) {
            p->list[at++] = (uint32_t)j;
            for (uint64_t c = 0; c < p->columns; c++)
                p->own[k++] = (uint32_t)(j * p->columns + c);
        }
    p->bias = o->bias >= 0 ? shared - 1 : p->features;
    p->first = rill__pool_cut(shared, t->rank, t->ranks);
    p->last = rill__pool_cut(shared, t->rank + 1, t->ranks);
    return RILL_OK;
}

/* All at their own numbers. */
static void share_all(const rill__objective *o, rill__places *p) {
    rill__places_close(p);
    *p = (rill__places){.features = o->features, .shared = o->features, .last = o->features};
    p->columns = (uint64_t)o->columns;
    p->words = o->features / 64 + 1;
    p->bias = o->bias >= 0 ? o->features - 1 : o->features;
}

/* Fewer shared places than this share of the features: else lists cost more than they save. */
static const double worth = 0.75;

rill_status rill__places_open(const rill__objective *o, rill__team *t, rill__places *p) {
    share_all(o, p);
    if (t->ranks == 1) return RILL_OK;
    size_t words = (size_t)p->words, all_bytes = SLICE + (size_t)t->ranks * sizeof(uint64_t);
    uint64_t *mine = calloc(words, sizeof *mine), *several = calloc(words, sizeof *several);
    uint64_t *all = malloc(all_bytes);
    p->apart = calloc(words, sizeof *p->apart);
    p->absent = calloc(words, sizeof *p->absent);
    bool good = mine && several && all && p->apart && p->absent;
    rill_status status = good ? RILL_OK : rill__data_memory("places of features");
    if (good) look(o, mine);
    status = rill__data_agree(t->talk, status);
    if (status == RILL_OK) status = compare(t, p->words, mine, all, p->apart, several);
    if (status == RILL_OK) {
        add_shared(o, several);
        status = rill__data_agree(t->talk, give_places(o, t, mine, several, p));
    }
    /* The same on all ranks. */
    bool share = status != RILL_OK || (double)p->shared > worth * (double)o->features;
    if (share) share_all(o, p);
    free(mine);
    free(several);
    free(all);
    return status;
}

void rill__places_close(rill__places *p) {
    free(p->list);
    free(p->apart);
    free(p->absent);
    free(p->own);
    free(p->room);
    *p = (rill__places){0};
}

uint64_t rill__places_bytes(const rill__places *p) {
    return p->list ? p->features * sizeof *p->list + 8 * rill__places_own(p) : 0;
}

rill_status rill__places_dot(const rill__places *p, rill__team *t, const float *a, const float *b,
                             double *sum) {
    uint64_t first = p->first * p->columns, n = p->last * p->columns - first;
    *sum = rill__dot(a + first, b + first, n);
    if (!p->list) return RILL_OK;
    uint64_t own = p->shared * p->columns;
    *sum += rill__dot(a + own, b + own, rill__places_own(p));
    return rill__team_sum(t, RILL_OK, sum, 1);
}

rill_status rill__places_spread(const rill__places *p, rill__team *t, const rill_options *how,
                                rill_stream *stream, float *room, float *weights) {
    if (!p->list) return RILL_OK;
    rill_stats stats = RILL_STATS_INIT;
    uint64_t n = rill__places_own(p);
    for (uint64_t i = 0; i < n; i++)
        p->room[i] = weights[p->own[i]];
    RILL_TRY_DATA(rill_stream_set_pairs(stream, n, p->own, p->room));
    RILL_TRY_DATA(rill__team_meet(t));
    double began = rill__now();
    RILL_TRY_DATA(rill_allreduce(t->comm, stream, stream, RILL_SUM, how));
    rill_comm_stats(t->comm, &stats);
    rill__team_account(t, began, &stats);
    RILL_TRY_DATA(rill_stream_get_dense(stream, room));
    for (uint64_t k = 0; k < p->words; k++)
        for (uint64_t bits = p->apart[k]; bits; bits &= bits - 1) {
            uint64_t j = (k * 64 + (uint64_t)__builtin_ctzll(bits)) * p->columns;
            memcpy(weights + j, room + j, (size_t)p->columns * sizeof *weights);
        }
    return RILL_OK;
}

void rill__places_clear(const rill__places *p, float *weights) {
    for (uint64_t k = 0; p->list && k < p->words; k++)
        for (uint64_t bits = p->absent[k]; bits; bits &= bits - 1) {
            uint64_t j = (k * 64 + (uint64_t)__builtin_ctzll(bits)) * p->columns;
            memset(weights + j, 0, (size_t)p->columns * sizeof *weights);
        }
}
