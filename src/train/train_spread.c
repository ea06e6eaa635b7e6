/* Weights that one rank has, to all: values alone.
 *
 * Idea: who tells of which feature is known everywhere, so that no numbers travel. Features go in
 * rounds, of some ten thousand values of each rank. A round is an allgather in which each rank has
 * slots of its own, as many as the most that any has in any round; which of them is which feature
 * all ranks find by going through the list of owners.
 * Restriction: 65,536 ranks.
 * Memory: 2 bytes a feature, and a round's values. Cost: the values, to each rank; two walks over
 * the features.
 */
#include "train/train_spread.h"

#include <stdlib.h>
#include <string.h>

enum { ROUND = 1 << 18 }; /* values of all ranks */

struct rill__spread {
    uint16_t *owner; /* of each feature, ascending */
    uint64_t n, room;
    uint64_t columns, round; /* features at a time */
    uint64_t slots;          /* of a rank: values */
    uint32_t *slot;          /* of this rank */
    float *value;            /* as many */
    uint64_t *next;          /* of each rank */
    rill_stream *in, *out;
};

static rill_status no_memory(void) { return rill__data_memory("owners of features"); }

rill_status rill__spread_open(rill__spread **out) {
    *out = calloc(1, sizeof **out);
    return *out ? RILL_OK : no_memory();
}

rill_status rill__spread_add(rill__spread *s, int owner) {
    if (s->n == s->room) {
        uint64_t room = 2 * s->room + 4096;
        uint16_t *more = realloc(s->owner, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        s->owner = more;
        s->room = room;
    }
    s->owner[s->n++] = (uint16_t)owner;
    return RILL_OK;
}

/* The most features that a rank has in a round. */
static uint64_t find_most(const rill__spread *s, const rill__team *t) {
    uint64_t most = 1; /* streams have a dimension */
    for (uint64_t at = 0; at < s->n;) {
        uint64_t last = s->n - at < s->round ? s->n : at + s->round;
        memset(s->next, 0, (size_t)t->ranks * sizeof *s->next);
        for (; at < last; at++) {
            uint64_t count = ++s->next[s->owner[at]];
            if (count > most) most = count;
        }
    }
    return most;
}

rill_status rill__spread_ready(rill__spread *s, const rill__team *t, uint64_t columns) {
    s->columns = columns;
    s->round = ROUND / columns + 1;
    s->next = calloc((size_t)t->ranks, sizeof *s->next);
    if (!s->next) return no_memory();
    s->slots = find_most(s, t) * columns;
    s->slot = malloc((size_t)s->slots * sizeof *s->slot);
    s->value = malloc((size_t)s->slots * sizeof *s->value);
    if (!s->slot || !s->value) return no_memory();
    for (uint64_t i = 0; i < s->slots; i++)
        s->slot[i] = (uint32_t)((uint64_t)t->rank * s->slots + i);
    RILL_TRY_DATA(rill_stream_create(RILL_F32, (uint64_t)t->ranks * s->slots, &s->in));
    return rill_stream_create(RILL_F32, (uint64_t)t->ranks * s->slots, &s->out);
}

void rill__spread_close(rill__spread **spread) {
    rill__spread *s = *spread;
    if (!s) return;
    free(s->owner);
    free(s->next);
    free(s->slot);
    free(s->value);
    rill_stream_free(&s->in);
    rill_stream_free(&s->out);
    free(s);
    *spread = NULL;
}

uint64_t rill__spread_bytes(const rill__spread *s) {
    return s ? s->room * sizeof *s->owner + 16 * s->slots + 8 * ROUND : 0;
}

/* Where a walk over the features is. */
typedef struct spread_walk {
    uint64_t k, word, bits; /* k: among the features that were added */
} spread_walk;

static uint64_t step(spread_walk *w, const uint64_t *bits) {
    while (!w->bits)
        w->bits = bits[++w->word];
    uint64_t j = w->word * 64 + (uint64_t)__builtin_ctzll(w->bits);
    w->bits &= w->bits - 1;
    w->k++;
    return j;
}

/* This rank's values; next: how many each has. */
static uint64_t collect(rill__spread *s, const rill__team *t, spread_walk w, uint64_t last,
                        const uint64_t *bits, const float *weights) {
    uint64_t n = 0;
    memset(s->next, 0, (size_t)t->ranks * sizeof *s->next);
    while (w.k < last) {
        int owner = s->owner[w.k];
        uint64_t j = step(&w, bits);
        s->next[owner] += s->columns;
        if (owner != t->rank) continue;
        memcpy(s->value + n, weights + j * s->columns, (size_t)s->columns * sizeof *weights);
        n += s->columns;
    }
    return n;
}

/* What came, with next where each rank's begin. Zeros may be left out of pairs. */
static rill_status arrange(rill__spread *s, const rill__team *t) {
    uint64_t total = 0;
    for (int r = 0; r < t->ranks; r++)
        total += s->next[r];
    if (rill_stream_nnz(s->out) != total) RILL_TRY_DATA(rill_stream_to_dense(s->out));
    bool dense = rill_stream_is_dense(s->out);
    for (uint64_t r = 0, at = 0; r < (uint64_t)t->ranks; r++) {
        uint64_t n = s->next[r];
        s->next[r] = dense ? r * s->slots : at;
        at += n;
    }
    return RILL_OK;
}

rill_status rill__spread_tell(rill__spread *s, rill__team *t, const char *codec,
                              const uint64_t *bits, uint64_t words, float *weights) {
    rill_options how = RILL_OPTIONS_INIT;
    how.codec = codec && strcmp(codec, "auto") != 0 ? codec : "bitpack"; /* slots take no bits */
    spread_walk w = {.bits = words ? bits[0] : 0};
    while (w.k < s->n) {
        rill_stats stats = RILL_STATS_INIT;
        uint64_t last = s->n - w.k < s->round ? s->n : w.k + s->round;
        uint64_t n = collect(s, t, w, last, bits, weights);
        RILL_TRY_DATA(rill_stream_set_pairs(s->in, n, s->slot, s->value));
        RILL_TRY_DATA(rill__team_meet(t));
        double began = rill__now();
        RILL_TRY_DATA(rill_allgather(t->comm, s->in, s->out, &how));
        rill_comm_stats(t->comm, &stats);
        rill__team_account(t, began, &stats);
        RILL_TRY_DATA(arrange(s, t));
        const float *got = rill_stream_values(s->out);
        while (w.k < last) {
            int owner = s->owner[w.k];
            uint64_t j = step(&w, bits), from = s->next[owner];
            s->next[owner] = from + s->columns;
            if (owner != t->rank)
                memcpy(weights + j * s->columns, got + from, (size_t)s->columns * sizeof *weights);
        }
    }
    return RILL_OK;
}
