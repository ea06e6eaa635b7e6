/* Steps that a rank makes alone, and averages of what they changed: local SGD.
 *
 * Idea: the first step that writes a weight notes what it was. An average takes all weights back to
 * that and adds a mean of the ranks' changes, so that only what changed travels.
 *   plain     the mean over all ranks; penalties need no exchange, as they are a common scale.
 *   adagrad   each weight's mean by the squares that ranks have added for it: a rare feature, which
 *             one rank alone has met, changes as that rank says, and not by a P-th of it. Squares
 *             grow by their mean, as the weights have gone one rank's way. Both numbers of a weight
 *             travel in one stream, at 2j and 2j + 1.
 * Source: Stich, Local SGD converges fast and communicates little (2019); means by squares:
 * Agarwal, Chapelle, Dudik, Langford, A reliable effective terascale linear learning system (2014).
 * Restriction: plain without l1, or adagrad of less than 2^31 weights.
 * Memory: n bits; 24 to 64 bytes for each weight that changes between two averages, and the sum's
 * streams.
 * Cost: of a step O(entries); of an average a sum of what the ranks changed.
 */
#include "train/train_local.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float MOST_GAINED = 1e25f; /* times a weight, and summed, it is a float */

/* What a weight was. */
typedef struct local_base {
    float w, last, squares;
} local_base;

struct rill__local {
    uint64_t *changed; /* bits */
    uint64_t words;
    uint64_t listed, room;
    uint32_t *list;
    local_base *base; /* of those listed */
    uint32_t *index;  /* what travels */
    float *value;
    int numbers; /* of a weight */
};

static int numbers_of(const rill__weights *weights) { return weights->state ? 2 : 1; }

uint64_t rill__local_dim(const rill__weights *weights) {
    return weights->n * (uint64_t)numbers_of(weights);
}

rill_status rill__local_open(const rill__weights *weights, rill__local **out) {
    rill__local *s = *out = calloc(1, sizeof *s);
    if (!s) return rill__data_memory("local steps");
    s->numbers = numbers_of(weights);
    s->words = weights->n / 64 + 1;
    s->changed = calloc((size_t)s->words, sizeof *s->changed);
    if (rill__local_dim(weights) > UINT32_MAX)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "local_steps with adagrad: %llu weights are 2^31 or more",
                               (unsigned long long)weights->n);
    return s->changed ? RILL_OK : rill__data_memory("local steps");
}

void rill__local_close(rill__local **local) {
    rill__local *s = *local;
    if (!s) return;
    free(s->changed);
    free(s->list);
    free(s->base);
    free(s->index);
    free(s->value);
    free(s);
    *local = NULL;
}

uint64_t rill__local_bytes(const rill__local *s) {
    uint64_t each = sizeof *s->list + sizeof *s->base + 8 * (uint64_t)s->numbers;
    return s->words * sizeof *s->changed + s->room * each;
}

static bool grow(void **array, size_t count, size_t size) {
    void *more = realloc(*array, count * size + RILL_SLACK);
    if (more) *array = more;
    return more != NULL;
}

static rill_status reserve(rill__local *s, uint64_t more) {
    if (s->listed + more <= s->room) return RILL_OK;
    size_t room = 2 * (size_t)(s->listed + more), numbers = (size_t)s->numbers;
    if (!grow((void **)&s->list, room, sizeof *s->list) ||
        !grow((void **)&s->base, room, sizeof *s->base) ||
        !grow((void **)&s->index, numbers * room, sizeof *s->index) ||
        !grow((void **)&s->value, numbers * room, sizeof *s->value))
        return rill__data_memory("local steps");
    s->room = room;
    return RILL_OK;
}

static void note(rill__local *s, const rill__weights *weights, uint64_t j) {
    uint64_t bit = UINT64_C(1) << (j & 63);
    if (s->changed[j >> 6] & bit) return;
    s->changed[j >> 6] |= bit;
    local_base *base = &s->base[s->listed];
    base->w = weights->w[j];
    base->last = weights->last ? weights->last[j] : 0;
    base->squares = weights->state ? weights->state[j] : 0;
    s->list[s->listed++] = (uint32_t)j;
}

rill_status rill__local_step(rill__local *s, rill__weights *weights, double eta, uint64_t n,
                             const uint32_t *idx, const float *gradient) {
    uint64_t free_ones = weights->n - weights->penalised;
    RILL_TRY_DATA(reserve(s, n + free_ones));
    for (uint64_t i = 0; i < n; i++)
        note(s, weights, idx[i]);
    for (uint64_t j = weights->penalised; j < weights->n && !weights->state; j++)
        note(s, weights, j); /* a step moves them against the scale */
    rill__weights_begin(weights, eta);
    rill__weights_apply(weights, n, idx, gradient);
    return RILL_OK;
}

/* Weights may be settled, which changes the scale, only when nothing is open. */
bool rill__local_full(const rill__weights *weights, double eta) {
    return rill__weights_scaled(weights) && weights->scale * exp(-eta * weights->lambda) < 1e-6;
}

void rill__local_forget(rill__local *s) {
    if (!s) return;
    memset(s->changed, 0, (size_t)s->words * sizeof *s->changed);
    s->listed = 0;
}

static void restore(const rill__local *s, rill__weights *weights, uint64_t i) {
    uint32_t j = s->list[i];
    s->changed[j >> 6] = 0;
    weights->w[j] = s->base[i].w;
    if (weights->last) weights->last[j] = s->base[i].last;
    if (weights->state) weights->state[j] = s->base[i].squares;
}

static void tell_change(rill__local *s, rill__weights *weights, float share) {
    for (uint64_t i = 0; i < s->listed; i++) {
        uint32_t j = s->list[i];
        s->index[i] = j;
        s->value[i] = (weights->w[j] - s->base[i].w) * share;
        restore(s, weights, i);
    }
}

/* Squares that are lost in the sum's rounding count as its last bit, those that are too large for a
 * float as MOST_GAINED. */
static void tell_change_by_squares(rill__local *s, rill__weights *weights) {
    for (uint64_t i = 0; i < s->listed; i++) {
        uint32_t j = s->list[i];
        float now = rill__weights_read(weights, j), squares = weights->state[j];
        float gained = squares - s->base[i].squares;
        if (!(gained > 0)) gained = FLT_EPSILON * squares + FLT_MIN;
        gained = fminf(gained, MOST_GAINED);
        restore(s, weights, i);
        s->index[2 * i] = 2 * j;
        s->value[2 * i] = (now - rill__weights_read(weights, j)) * gained;
        s->index[2 * i + 1] = 2 * j + 1;
        s->value[2 * i + 1] = gained;
    }
}

static void change_by_squares(rill__weights *weights, uint64_t j, float change, float gained,
                              float share) {
    if (!(gained > 0) || !isfinite(change / gained)) return;
    weights->w[j] = rill__weights_read(weights, j) + change / gained;
    weights->last[j] = (float)weights->path;
    weights->state[j] += gained * share;
}

rill_status rill__local_average(rill__local *s, rill__weights *weights, rill__exchange *exchange,
                                int ranks) {
    bool has;
    rill__sum_view sum;
    float share = 1.0f / (float)ranks;
    if (s->numbers == 2) tell_change_by_squares(s, weights);
    else tell_change(s, weights, share);
    uint64_t n = s->listed * (uint64_t)s->numbers;
    s->listed = 0;
    RILL_TRY_DATA(rill__exchange_put(exchange, n, s->index, s->value));
    RILL_TRY_DATA(rill__exchange_take(exchange, 0, &has, &sum));
    float change = 0;
    for (uint64_t i = 0; i < sum.n; i++) {
        uint64_t at = sum.idx ? sum.idx[i] : i;
        if (s->numbers == 1) weights->w[at] += sum.value[i];
        else if (at % 2 == 0) change = sum.value[i];
        else { /* a change that is 0 may be left out */
            bool told = sum.idx ? i > 0 && sum.idx[i - 1] == at - 1 : true;
            change_by_squares(weights, at / 2, told ? change : 0, sum.value[i], share);
        }
    }
    return RILL_OK;
}
