/* Which features a rank has, and which of them others have, too.
 *
 * Idea: a sum over rows has a part of a rank only where its rows have the feature. Of wide data
 * most features are rare: one rank has them all, or a few do. Sums of the former are known there
 * without an exchange; those of the latter go to the ranks that have them (train_swap.c), and
 * nobody else's rows ask for their weights. So solvers that make many sums keep vectors by place,
 * of the features that a rank has; the others are left out, and so are those that no row has. Only
 * a step's result goes to all ranks (train_spread.c). An inner product is made of parts: each rank
 * adds up the places that it owns, and the parts are added in the order of ranks, so that all have
 * the same bits.
 * Features that are centred, and the bias, are on all ranks in any case: newton's preconditioner
 * needs them everywhere.
 * Source: as partial replication in parameter servers (Li et al., 2014), with fixed places.
 * Memory: 4 bytes a place, 2 bits a feature, and what train_swap.c and train_spread.c keep. Cost: a
 * pass over the rows, and P bits a feature to each rank.
 */
#include "train/train_places.h"
#include "train/objective.h"
#include "train/train_exchange.h"

#include <stdlib.h>
#include <string.h>

static void put(uint64_t *bits, uint64_t i) { bits[i >> 6] |= UINT64_C(1) << (i & 63); }

static void look(const rill__objective *o, uint64_t *mine) {
    const rill_data_view *d = &o->rows.data;
    for (uint64_t k = 0; k < o->centred_n; k++)
        put(mine, o->centred[k].feature);
    if (o->bias >= 0) put(mine, o->features - 1);
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            put(mine, d->index32[e]);
    }
}

enum { SLICE = 1 << 20 }; /* bytes of all ranks' bits at a time */

/* While they are found: bits of features that this rank has, that some, several, and all have. */
typedef struct places_bits {
    uint64_t *mine, *any, *several, *every;
} places_bits;

/* 64 features. */
static rill_status add_word(rill__places *p, const places_bits *b, uint64_t k, const uint64_t *word,
                            uint64_t stride) {
    int owner[64];
    RILL_TRY_DATA(rill__swap_add(p->swap, k * 64, word, stride, owner));
    for (uint64_t bits = b->any[k] & ~b->every[k]; bits; bits &= bits - 1)
        RILL_TRY_DATA(rill__spread_add(p->spread, owner[__builtin_ctzll(bits)]));
    return RILL_OK;
}

/* All ranks. A rank that lacks memory for its lists goes on with the others to the end. */
static rill_status compare(rill__team *t, rill__places *p, const places_bits *b, uint64_t *all) {
    uint64_t ranks = (uint64_t)t->ranks, most = SLICE / (ranks * sizeof *all);
    rill_status mine = RILL_OK;
    for (uint64_t at = 0; at < p->words;) {
        uint64_t n = p->words - at < most ? p->words - at : most ? most : 1;
        RILL_TRY_DATA(rill_comm_gather_bytes(t->talk, b->mine + at, (size_t)n * sizeof *all, all));
        for (uint64_t r = 0; r < ranks; r++)
            for (uint64_t i = 0; i < n; i++) {
                uint64_t word = all[r * n + i];
                b->several[at + i] |= b->any[at + i] & word;
                b->any[at + i] |= word;
                b->every[at + i] = r ? b->every[at + i] & word : word;
            }
        for (uint64_t i = 0; i < n && mine == RILL_OK; i++)
            if (b->any[at + i]) mine = add_word(p, b, at + i, all + i, n);
        at += n;
    }
    return rill__data_agree(t->talk, mine);
}

static rill_status give_places(const rill__objective *o, const rill__team *t, const places_bits *b,
                               rill__places *p) {
    uint64_t alone = 0, at = 0, first, last, swapped = rill__swap_features(p->swap, &first, &last);
    for (uint64_t k = 0; k < p->words; k++) {
        alone += (uint64_t)__builtin_popcountll(b->mine[k] & ~b->several[k]);
        p->absent[k] = ~b->any[k];
        p->apart[k] = b->any[k] & ~b->every[k];
    }
    uint64_t beyond = o->features & 63; /* bits of the last word */
    p->absent[p->words - 1] &= (UINT64_C(1) << beyond) - 1;
    p->features = alone + swapped;
    p->alone = alone;
    p->first = alone + first;
    p->last = alone + last;
    p->list = malloc((size_t)(p->features + 1) * sizeof *p->list);
    if (!p->list) return rill__data_memory("places of features");
    for (uint64_t k = 0; k < p->words; k++)
        for (uint64_t bits = b->mine[k] & ~b->several[k]; bits; bits &= bits - 1)
            p->list[at++] = (uint32_t)(k * 64 + (uint64_t)__builtin_ctzll(bits));
    RILL_TRY_DATA(rill__swap_ready(p->swap, p->columns, p->list + alone));
    p->bias = p->features;
    for (uint64_t i = alone; o->bias >= 0 && i < p->features; i++)
        if (p->list[i] == o->features - 1) p->bias = i;
    return rill__spread_ready(p->spread, t, p->columns);
}

/* All at their own numbers. */
static void share_all(const rill__objective *o, rill__places *p) {
    rill__places_close(p);
    *p = (rill__places){.features = o->features, .last = o->features};
    p->columns = (uint64_t)o->columns;
    p->words = o->features / 64 + 1;
    p->bias = o->bias >= 0 ? o->features - 1 : o->features;
}

/* Less to send than this share of whole vectors: else lists cost more than they save. */
static const double worth = 0.75;

static bool is_worth(const rill__objective *o, const rill__team *t, const rill__places *p) {
    double whole = (double)o->features * (t->ranks - 1);
    return (double)rill__swap_total(p->swap) <= worth * whole &&
           rill__swap_fits(p->swap, p->columns);
}

rill_status rill__places_open(const rill__objective *o, rill__team *t, bool whole,
                              rill__places *p) {
    share_all(o, p);
    if (t->ranks == 1 || t->ranks > UINT16_MAX || whole) return RILL_OK;
    size_t words = (size_t)p->words, all_bytes = SLICE + (size_t)t->ranks * sizeof(uint64_t);
    uint64_t *bits = calloc(4 * words, sizeof *bits), *all = malloc(all_bytes);
    places_bits b = {bits, bits + words, bits + 2 * words, bits + 3 * words};
    p->apart = calloc(words, sizeof *p->apart);
    p->absent = calloc(words, sizeof *p->absent);
    bool good = bits && all && p->apart && p->absent;
    rill_status status = good ? RILL_OK : rill__data_memory("places of features");
    if (status == RILL_OK) status = rill__swap_open(t, &p->swap);
    if (status == RILL_OK) status = rill__spread_open(&p->spread);
    if (status == RILL_OK) look(o, b.mine);
    status = rill__data_agree(t->talk, status);
    if (status == RILL_OK) status = compare(t, p, &b, all);
    bool share = status != RILL_OK || !is_worth(o, t, p); /* the same on all ranks */
    if (!share) status = rill__data_agree(t->talk, give_places(o, t, &b, p));
    if (share || status != RILL_OK) share_all(o, p);
    free(bits);
    free(all);
    return status;
}

void rill__places_close(rill__places *p) {
    rill__swap_close(&p->swap);
    rill__spread_close(&p->spread);
    free(p->list);
    free(p->apart);
    free(p->absent);
    *p = (rill__places){0};
}

uint64_t rill__places_bytes(const rill__places *p) {
    if (!p->list) return 0;
    return p->features * sizeof *p->list + rill__swap_bytes(p->swap) +
           rill__spread_bytes(p->spread);
}

rill_status rill__places_dot(const rill__places *p, rill__team *t, const float *a, const float *b,
                             double *sum) {
    *sum = 0;
    for (int n = 0; n < 2; n++) {
        uint64_t first, last;
        rill__places_counted(p, n, &first, &last);
        first *= p->columns;
        *sum += rill__dot(a + first, b + first, last * p->columns - first);
    }
    return p->list ? rill__team_sum(t, RILL_OK, sum, 1) : RILL_OK;
}

rill_status rill__places_sum(const rill__places *p, rill__team *t, const rill_options *how,
                             rill_stream *stream, float *vector) {
    if (p->list) return rill__swap_sum(p->swap, t, how->codec, vector + p->alone * p->columns);
    return rill__exchange_dense(t, how, stream, vector);
}

rill_status rill__places_spread(const rill__places *p, rill__team *t, const rill_options *how,
                                float *weights) {
    if (!p->list) return RILL_OK;
    return rill__spread_tell(p->spread, t, how->codec, p->apart, p->words, weights);
}

void rill__places_clear(const rill__places *p, float *weights) {
    for (uint64_t k = 0; p->list && k < p->words; k++)
        for (uint64_t bits = p->absent[k]; bits; bits &= bits - 1) {
            uint64_t j = (k * 64 + (uint64_t)__builtin_ctzll(bits)) * p->columns;
            memset(weights + j, 0, (size_t)p->columns * sizeof *weights);
        }
}
