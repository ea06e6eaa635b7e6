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
 * Memory: 4 bytes a place, 8 a weight of its own, 2 bits a feature. Cost: a pass over the rows and
 * a sparse sum of counts.
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

/* How many ranks have a feature: 1 where this one does, to be summed. */
static rill_status count_mine(const rill__objective *o, uint64_t *mine, float *count,
                              rill_stream **stream) {
    look(o, mine);
    for (uint64_t j = 0; j < o->features; j++)
        count[j] = has(mine, j);
    RILL_TRY_DATA(rill_stream_create(RILL_F32, o->features, stream));
    return rill_stream_set_dense(*stream, count);
}

static bool is_shared(const rill__objective *o, uint64_t j, float count) {
    bool bias = o->bias >= 0 && j + 1 == o->features;
    return bias || count > 1 || (o->shift && o->shift[j] != 0);
}

static rill_status give_places(const rill__objective *o, rill__team *t, const uint64_t *mine,
                               const float *count, rill__places *p) {
    uint64_t shared = 0, own = 0, at = 0;
    for (uint64_t j = 0; j < o->features; j++)
        if (is_shared(o, j, count[j])) shared++;
        else {
            own += has(mine, j);
            put(count[j] > 0 ? p->apart : p->absent, j);
        }
    p->features = shared + own;
    p->shared = shared;
    p->list = malloc((size_t)(p->features + 1) * sizeof *p->list);
    p->own = malloc(((size_t)(own * p->columns) + RILL_SLACK) * sizeof *p->own);
    p->room = malloc(((size_t)(own * p->columns) + RILL_SLACK) * sizeof *p->room);
    if (!p->list || !p->own || !p->room) return rill__data_memory("places of features");
    for (uint64_t j = 0; j < o->features; j++)
        if (is_shared(o, j, count[j])) p->list[at++] = (uint32_t)j;
    for (uint64_t j = 0, k = 0; j < o->features; j++)
        if (!is_shared(o, j, count[j]) && has(mine, j)) {
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

static rill_status add_counts(rill__team *t, rill_stream *stream, float *count) {
    rill_status status = rill_allreduce(t->comm, stream, stream, RILL_SUM, NULL);
    if (status == RILL_OK) status = rill_stream_get_dense(stream, count);
    if (status != RILL_OK) rill__team_refuse(t, 1);
    return rill__team_agree(t, status);
}

/* Fewer shared places than this share of the features: else lists cost more than they save. */
static const double worth = 0.75;

rill_status rill__places_open(const rill__objective *o, rill__team *t, rill__places *p) {
    share_all(o, p);
    if (t->ranks == 1) return RILL_OK;
    size_t words = (size_t)p->words;
    uint64_t *mine = calloc(words, sizeof *mine);
    float *count = malloc(((size_t)o->features + RILL_SLACK) * sizeof *count);
    rill_stream *stream = NULL;
    p->apart = calloc(words, sizeof *p->apart);
    p->absent = calloc(words, sizeof *p->absent);
    rill_status status = mine && count && p->apart && p->absent
                             ? count_mine(o, mine, count, &stream)
                             : rill__data_memory("places of features");
    status = rill__data_agree(t->talk, status);
    if (status == RILL_OK) status = rill__team_comm(t);
    if (status == RILL_OK) status = add_counts(t, stream, count);
    if (status == RILL_OK)
        status = rill__data_agree(t->talk, give_places(o, t, mine, count, p));
    /* The same on all ranks. */
    bool all = status != RILL_OK || (double)p->shared > worth * (double)o->features;
    if (all) share_all(o, p);
    rill_stream_free(&stream);
    free(mine);
    free(count);
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
