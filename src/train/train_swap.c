/* Sums of values that only some of the ranks have: each goes to those alone.
 *
 * Idea: which rank has which feature does not change. Of those who have a feature one owns it,
 * taken by a hash, so that all own about as many. A rank sends its values to their owners, which
 * add them up in the order of ranks and send the sums to the others who have the feature. Of m
 * ranks that have one, 2 (m - 1) values travel; a sum for all takes 2 (P - 1). Most features of
 * wide data are on few ranks.
 * Both ways are a reduce-scatter in which a rank's range is as long as the longest list of any
 * rank: its sums on the way to owners, and on the way back slots that one rank each fills.
 * A rank keeps the features by owner, then by number: so its values lie in the order in which they
 * are sent, and sums come back in the order of places.
 * Source: Zhao, Canny, Kylix: a sparse allreduce for commodity clusters (2014), whose lists are
 * made once, too; of one round instead of a network of them.
 * Restriction: slots of all ranks have numbers of 32 bits (rill__swap_fits).
 * Memory: 12 bytes a value sent to owners, 12 a value sent back. Cost of a sum: the values, with
 * few bits each for their slots, in 2 (P - 1) messages.
 */
#include "train/train_swap.h"

#include <stdlib.h>
#include <string.h>

/* Growing lists, of two or three numbers each entry. */
typedef struct swap_list {
    uint32_t *at;
    uint64_t n, room; /* numbers */
} swap_list;

struct rill__swap {
    int me, ranks;
    uint64_t *owned;   /* of each rank: features whose sums it makes */
    uint64_t *started; /* as many: room */
    uint64_t *wanted;  /* [rank * ranks + owner]: sums that the rank gets from the owner */
    uint64_t total;
    swap_list have; /* owner, number among the owner's, feature */
    swap_list give; /* rank, number among the owner's */
    /* ready: values, with their slots */
    uint64_t columns, n, first, last; /* first, last: of those that this rank owns */
    uint64_t given, start;            /* start: of this rank's slots */
    uint32_t *slot, *given_slot, *given_from;
    float *given_value;
    rill_stream *stream;
};

static rill_status no_memory(void) { return rill__data_memory("lists of features"); }

static bool append(swap_list *list, int n, const uint32_t *numbers) {
    if (list->n + (uint64_t)n > list->room) {
        uint64_t room = 2 * list->room + 4096;
        uint32_t *at = realloc(list->at, (size_t)room * sizeof *at);
        if (!at) return false;
        list->at = at;
        list->room = room;
    }
    memcpy(list->at + list->n, numbers, (size_t)n * sizeof *numbers);
    list->n += (uint64_t)n;
    return true;
}

rill_status rill__swap_open(const rill__team *t, rill__swap **out) {
    rill__swap *s = *out = calloc(1, sizeof *s);
    if (!s) return no_memory();
    s->me = t->rank;
    s->ranks = t->ranks;
    size_t ranks = (size_t)t->ranks;
    s->owned = calloc(2 * ranks, sizeof *s->owned);
    s->wanted = calloc(ranks * ranks, sizeof *s->wanted);
    if (!s->owned || !s->wanted) return no_memory();
    s->started = s->owned + ranks;
    return RILL_OK;
}

static void free_lists(rill__swap *s) {
    free(s->have.at);
    free(s->give.at);
    free(s->wanted);
    s->have = s->give = (swap_list){0};
    s->wanted = NULL;
}

void rill__swap_close(rill__swap **swap) {
    rill__swap *s = *swap;
    if (!s) return;
    free_lists(s);
    free(s->owned);
    free(s->slot);
    free(s->given_slot);
    free(s->given_from);
    free(s->given_value);
    rill_stream_free(&s->stream);
    free(s);
    *swap = NULL;
}

uint64_t rill__swap_bytes(const rill__swap *s) { return s ? 12 * s->n + 12 * s->given : 0; }
uint64_t rill__swap_total(const rill__swap *s) { return s->total; }

/* ---- who has what --------------------------------------------------------------------------- */

static uint32_t hash(uint64_t j) {
    j *= UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(j >> 32) ^ (uint32_t)(j >> 48);
}

/* Of 64 features: which of those who have it owns it. Returns the bits that several have. */
static uint64_t choose_owners(const rill__swap *s, uint64_t at, const uint64_t *word,
                              uint64_t stride, int *owner) {
    uint32_t count[64] = {0}, pick[64];
    uint64_t any = 0, several = 0;
    for (int r = 0; r < s->ranks; r++) {
        several |= any & word[(uint64_t)r * stride];
        any |= word[(uint64_t)r * stride];
    }
    for (int r = 0; r < s->ranks; r++)
        for (uint64_t bits = word[(uint64_t)r * stride]; bits; bits &= bits - 1) {
            count[__builtin_ctzll(bits)]++;
            owner[__builtin_ctzll(bits)] = r; /* the only one */
        }
    for (uint64_t bits = several; bits; bits &= bits - 1) {
        int b = __builtin_ctzll(bits);
        pick[b] = hash(at + (uint64_t)b) % count[b];
    }
    for (int r = 0; r < s->ranks; r++)
        for (uint64_t bits = word[(uint64_t)r * stride] & several; bits; bits &= bits - 1) {
            int b = __builtin_ctzll(bits);
            if (!pick[b]--) owner[b] = r;
        }
    return several;
}

rill_status rill__swap_add(rill__swap *s, uint64_t at, const uint64_t *word, uint64_t stride,
                           int owner[64]) {
    uint32_t number[64];
    uint64_t several = choose_owners(s, at, word, stride, owner);
    for (uint64_t bits = several; bits; bits &= bits - 1) {
        int b = __builtin_ctzll(bits);
        number[b] = (uint32_t)s->owned[owner[b]]++;
    }
    for (int r = 0; r < s->ranks; r++)
        for (uint64_t bits = word[(uint64_t)r * stride] & several; bits; bits &= bits - 1) {
            int b = __builtin_ctzll(bits);
            uint32_t feature = (uint32_t)at + (uint32_t)b;
            const uint32_t mine[] = {(uint32_t)owner[b], number[b], feature};
            const uint32_t other[] = {(uint32_t)r, number[b]};
            if (r == s->me && !append(&s->have, 3, mine)) return no_memory();
            if (r == owner[b]) continue;
            s->wanted[(size_t)r * (size_t)s->ranks + (size_t)owner[b]]++;
            s->total++;
            if (owner[b] == s->me && !append(&s->give, 2, other)) return no_memory();
        }
    return RILL_OK;
}

/* ---- places and slots ----------------------------------------------------------------------- */

uint64_t rill__swap_features(const rill__swap *s, uint64_t *first, uint64_t *last) {
    uint64_t n = s->have.n / 3;
    *first = 0;
    for (uint64_t i = 0; i < n; i++)
        *first += s->have.at[3 * i] < (uint32_t)s->me;
    *last = *first + s->owned[s->me];
    return n;
}

/* Slots of a rank: as many features as any owns, or gets sums of. 1 at least, for streams have a
 * dimension. */
static uint64_t range_of(const rill__swap *s) {
    uint64_t most = 1;
    for (int r = 0; r < s->ranks; r++) {
        uint64_t sum = 0;
        for (int owner = 0; owner < s->ranks; owner++)
            sum += s->wanted[(size_t)r * (size_t)s->ranks + (size_t)owner];
        if (s->owned[r] > most) most = s->owned[r];
        if (sum > most) most = sum;
    }
    return most;
}

bool rill__swap_fits(const rill__swap *s, uint64_t columns) {
    return range_of(s) * columns <= UINT32_MAX / (uint64_t)s->ranks;
}

/* started[r]: where the entries of rank r begin, which are so many numbers each. */
static void start_by_rank(rill__swap *s, const swap_list *list, uint64_t each) {
    memset(s->started, 0, (size_t)s->ranks * sizeof *s->started);
    for (uint64_t i = 0; i < list->n; i += each)
        s->started[list->at[i]]++;
    uint64_t at = 0;
    for (int r = 0; r < s->ranks; r++) {
        uint64_t n = s->started[r];
        s->started[r] = at;
        at += n;
    }
}

static void number_upwards(rill__swap *s, uint64_t range, uint32_t *list) {
    start_by_rank(s, &s->have, 3);
    for (uint64_t i = 0; i < s->have.n; i += 3) {
        const uint32_t *entry = s->have.at + i;
        uint64_t place = s->started[entry[0]]++, at = place * s->columns;
        list[place] = entry[2];
        for (uint64_t c = 0; c < s->columns; c++)
            s->slot[at + c] = (uint32_t)((entry[0] * range + entry[1]) * s->columns + c);
    }
}

/* In a rank's range owners follow each other, and the features of each. */
static void number_downwards(rill__swap *s, uint64_t range) {
    start_by_rank(s, &s->give, 2);
    for (uint64_t r = 0, k = 0; r < (uint64_t)s->ranks; r++) {
        uint64_t *wanted = s->wanted + r * (uint64_t)s->ranks, slot = r * range;
        for (int owner = 0; owner < s->me; owner++)
            slot += wanted[owner];
        for (uint64_t i = 0; i < wanted[s->me] * s->columns; i++)
            s->given_slot[k++] = (uint32_t)(slot * s->columns + i);
    }
    for (uint64_t i = 0; i < s->give.n; i += 2) {
        const uint32_t *entry = s->give.at + i;
        uint64_t at = s->started[entry[0]]++ * s->columns;
        for (uint64_t c = 0; c < s->columns; c++)
            s->given_from[at + c] = (uint32_t)(entry[1] * s->columns + c);
    }
}

rill_status rill__swap_ready(rill__swap *s, uint64_t columns, uint32_t *list) {
    uint64_t range = range_of(s);
    s->columns = columns;
    s->n = rill__swap_features(s, &s->first, &s->last) * columns;
    s->first *= columns;
    s->last *= columns;
    s->given = s->give.n / 2 * columns;
    s->start = (uint64_t)s->me * range * columns;
    s->slot = malloc(((size_t)s->n + 1) * sizeof *s->slot);
    s->given_slot = malloc(((size_t)s->given + 1) * sizeof *s->given_slot);
    s->given_from = malloc(((size_t)s->given + 1) * sizeof *s->given_from);
    s->given_value = calloc((size_t)s->given + 1, sizeof *s->given_value);
    if (!s->slot || !s->given_slot || !s->given_from || !s->given_value) return no_memory();
    number_upwards(s, range, list);
    number_downwards(s, range);
    free_lists(s);
    return rill_stream_create(RILL_F32, (uint64_t)s->ranks * range * columns, &s->stream);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static rill_status exchange(rill__team *t, const char *codec, rill_stream *stream) {
    rill_options how = RILL_OPTIONS_INIT;
    rill_stats stats = RILL_STATS_INIT;
    how.algorithm = "split"; /* ranges are those of the lists */
    how.partition = "uniform";
    /* Slots are dense: they take few bits, or none. What the planner weighs is the time of a call
     * over a fast link, which is short beside what is computed between calls. */
    how.codec = codec && strcmp(codec, "auto") != 0 ? codec : "bitpack";
    double began = rill__now();
    RILL_TRY_DATA(rill_reduce_scatter(t->comm, stream, stream, RILL_SUM, NULL, NULL, &how));
    rill_comm_stats(t->comm, &stats);
    rill__team_account(t, began, &stats);
    return RILL_OK;
}

/* This rank's n values, whose slots begin at start: the first of them go to values, the others to
 * beyond. A sum that is 0 may be left out. */
static void take(const rill_stream *stream, uint64_t start, uint64_t n, uint64_t first,
                 float *values, float *beyond) {
    const float *got = rill_stream_values(stream);
    const uint32_t *slot = rill_stream_indices32(stream);
    uint64_t count = rill_stream_nnz(stream);
    if (!slot) got += start; /* a dense one */
    if (!slot || count == n) {
        memcpy(values, got, (size_t)first * sizeof *values);
        memcpy(beyond, got + first, (size_t)(n - first) * sizeof *values);
        return;
    }
    memset(values, 0, (size_t)first * sizeof *values);
    memset(beyond, 0, (size_t)(n - first) * sizeof *values);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = slot[i] - start;
        if (at < first) values[at] = got[i];
        else beyond[at - first] = got[i];
    }
}

rill_status rill__swap_sum(rill__swap *s, rill__team *t, const char *codec, float *values) {
    uint64_t owned = s->last - s->first;
    float *sums = values + s->first;
    RILL_TRY_DATA(rill_stream_set_pairs(s->stream, s->n, s->slot, values));
    RILL_TRY_DATA(rill__team_meet(t));
    RILL_TRY_DATA(exchange(t, codec, s->stream));
    take(s->stream, s->start, owned, owned, sums, sums);
    for (uint64_t i = 0; i < s->given; i++)
        s->given_value[i] = sums[s->given_from[i]];
    RILL_TRY_DATA(rill_stream_set_pairs(s->stream, s->given, s->given_slot, s->given_value));
    RILL_TRY_DATA(exchange(t, codec, s->stream));
    take(s->stream, s->start, s->n - owned, s->first, values, values + s->last);
    return RILL_OK;
}
