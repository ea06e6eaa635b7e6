/* Rows in the shape of published data sets.
 *
 * Idea: a row depends on the seed and its number alone, through a counter-based generator, so that
 * any thread can make any row. The features of a row are some of a head that most rows share, and a
 * tail drawn by rank: first an octave [2^j, 2^(j+1)) of ranks, with probabilities in geometric
 * progression, then a rank in it; that is Zipf's law in steps. Draws repeat until the row has as
 * many distinct features as its length asks for. The label is the sign of a hidden sparse linear
 * model, with noise in proportion to the spread of its margin. Only sums, products, quotients,
 * square roots and roundings are used, which are the same everywhere; the mathematical library is
 * not. What the shapes are based on is in rill-gen(1).
 * Memory: a few times the longest row per thread. Cost: about one Philox block per two draws, and a
 * sort.
 */
#include "train/data_generate.h"
#include "train/data_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_LENGTH = 16, STREAM_HEAD, STREAM_TAIL, STREAM_VALUE, STREAM_NOISE, STREAM_MODEL };

const rill__shape rill__shapes[] = {
    {.name = "url",
     .description = "2,396,130 addresses of 3,231,961 lexical and host features, about 115 each",
     .dim = 3231961,
     .head = 64,
     .length = 115.6,
     .spread = 17,
     .least = 60,
     .most = 400,
     .octaves = 22,
     .knee = 0,
     .ratio_low = 1,
     .ratio_high = 0.8122523963562356, /* 2^(1 - 1.3) */
     .learnable = 1 << 10,
     .relevant = 0.25,
     .positive = 0.33,
     .batch = 512},
    {.name = "webspam",
     .description = "350,000 pages of 16,609,143 byte trigrams, about 3,728 each",
     .dim = 16609143,
     .length = 3290,
     .spread = 0.5,
     .lognormal = true,
     .least = 40,
     .most = 12000,
     .octaves = 24,
     .knee = 11,
     .ratio_low = 1.148698354997035, /* 2^(1 - 0.8) */
     .ratio_high = 0.5,              /* 2^(1 - 2) */
     .scatter = 10267609,
     .counts = true,
     .learnable = 1 << 12,
     .relevant = 1.0 / 64,
     .positive = 0.61,
     .batch = 64},
};
const int rill__shape_count = (int)(sizeof rill__shapes / sizeof *rill__shapes);

const char *rill_generate_shape_at(int i, const char **description) {
    if (i < 0 || i >= rill__shape_count) return NULL;
    if (description) *description = rill__shapes[i].description;
    return rill__shapes[i].name;
}

/* ---- draws ---------------------------------------------------------------------------------- */

static double uniform(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

/* Nearly normal, with variance 1: the sum of 12 uniform 10-bit numbers, to +-6. */
static double normal(const uint64_t draw[2]) {
    double sum = 0;
    for (int i = 0; i < 6; i++)
        sum += (double)((draw[0] >> (10 * i) & 1023) + (draw[1] >> (10 * i) & 1023));
    return sum / 1024 - 6 + 12 * (0.5 / 1024);
}

/* 2^x for |x| < 60, to a few units in 10^7. */
static double power2(double x) {
    double whole = floor(x), f = (x - whole) * 0.6931471805599453, sum = 1;
    for (int i = 9; i > 0; i--)
        sum = 1 + sum * f / i;
    return ldexp(sum, (int)whole);
}

static uint64_t row_length(const rill__generator *g, uint64_t row) {
    uint64_t draw[2];
    rill__random(g->seed, STREAM_LENGTH, row, 0, draw);
    const rill__shape *s = g->shape;
    double z = s->spread * normal(draw);
    double length = s->lognormal ? s->length * power2(z * 1.4426950408889634) : s->length + z;
    if (length < (double)s->least) return s->least;
    if (length > (double)s->most) return s->most;
    return (uint64_t)length;
}

/* A rank of the tail from 64 random bits. */
static uint64_t tail_rank(const rill__generator *g, uint64_t bits) {
    uint32_t pick = (uint32_t)(bits >> 32);
    unsigned octave = g->slot[pick / (uint32_t)(UINT64_C(1) << 32 >> 10)];
    while (pick > g->limit[octave])
        octave++;
    uint64_t first = (UINT64_C(1) << octave) - 1, count = UINT64_C(1) << octave;
    if (count > g->tail - first) count = g->tail - first;
    return first + ((bits & UINT32_MAX) * count >> 32);
}

static uint64_t feature_of(const rill__shape *s, uint64_t rank) {
    return s->head + (s->scatter ? rank * s->scatter % (s->dim - s->head) : rank);
}

/* Weight of a feature in the hidden model: by rank, since only features that come again can be
 * learned; head features are ranks below 0. */
static double hidden_weight(const rill__generator *g, uint64_t key, bool head, uint64_t rank) {
    uint64_t draw[2];
    if (!head && rank >= g->shape->learnable) return 0;
    rill__random(g->seed, STREAM_MODEL, key, 0, draw);
    if (uniform(draw[0]) >= (head ? 0.5 : g->shape->relevant)) return 0;
    double size = 0.5 + uniform(draw[1]), strength = rank < 16 ? 0.25 : 1;
    return draw[0] & 1 ? -size * strength : size * strength;
}

/* ---- rows ----------------------------------------------------------------------------------- */

rill_status rill__row_maker_init(rill__row_maker *m, const rill__shape *s) {
    *m = (rill__row_maker){.room = 64};
    while (m->room < 4 * s->most)
        m->room *= 2;
    m->set = malloc(m->room * sizeof *m->set);
    m->rank = malloc((size_t)(s->most + 1) * sizeof *m->rank);
    if (m->set && m->rank) return RILL_OK;
    rill__row_maker_free(m);
    return rill__data_fail(RILL_ERR_MEMORY, "out of memory: a row of %llu entries",
                           (unsigned long long)s->most);
}

void rill__row_maker_free(rill__row_maker *m) {
    free(m->set);
    free(m->rank);
    rill__rows_free(&m->rows);
    *m = (rill__row_maker){0};
}

/* Adds a rank unless it is there. */
static void add_rank(rill__row_maker *m, size_t mask, uint64_t rank) {
    size_t at = (size_t)(rank * UINT64_C(0x9E3779B97F4A7C15) >> 40) & mask;
    while (m->set[at] != UINT64_MAX) {
        if (m->set[at] == rank) return;
        at = (at + 1) & mask;
    }
    m->set[at] = rank;
    m->rank[m->used++] = rank;
}

/* The ranks of the tail of a row: so many distinct ones, or what 64 draws for each gave. */
static void draw_tail(const rill__generator *g, rill__row_maker *m, uint64_t row, uint64_t wanted) {
    size_t slots = 64;
    while (slots < 2 * wanted)
        slots *= 2;
    memset(m->set, 255, slots * sizeof *m->set);
    m->used = 0;
    if (row == 0)
        add_rank(m, slots - 1, g->last_rank); /* so that every file has the whole dimension */
    for (uint64_t i = 0; m->used < wanted && i < 32 * wanted; i++) {
        uint64_t draw[2];
        rill__random(g->seed, STREAM_TAIL, row, i, draw);
        add_rank(m, slots - 1, tail_rank(g, draw[0]));
        if (m->used < wanted) add_rank(m, slots - 1, tail_rank(g, draw[1]));
    }
}

/* Features present, as keys, with values; the margin of the hidden model. */
static rill_status draw_row(const rill__generator *g, rill__row_maker *m, uint64_t row,
                            double *margin) {
    const rill__shape *s = g->shape;
    rill__rows *rows = &m->rows;
    uint64_t length = row_length(g, row), n = 0, draw[2];
    RILL_TRY_DATA(rill__rows_reserve(rows, 1, length + 1));
    RILL_TRY_DATA(rill__rows_scratch(rows, (size_t)length + 1));
    float *value = rill__rows_scratch_value(rows);
    *margin = 0;
    for (uint64_t f = 0; f < s->head; f++) {
        rill__random(g->seed, STREAM_HEAD, row, f, draw);
        /* Present with a probability from 1 down to 3/4; the first forty have a measured value. */
        if (uniform(draw[0]) >= 1 - 0.25 * (double)f / (double)s->head) continue;
        rows->key[n] = f;
        value[n] = f < 40 ? (float)((double)(1 + draw[1] % 1000) / 1000) : 1;
        *margin += hidden_weight(g, UINT64_MAX - f, true, f) * value[n++];
    }
    draw_tail(g, m, row, length > n ? length - n : 1);
    double squares = 0;
    for (size_t i = 0; i < m->used; i++) {
        rows->key[n] = feature_of(s, m->rank[i]);
        value[n] = 1;
        double w = hidden_weight(g, m->rank[i], false, m->rank[i]);
        if (s->counts) {
            /* Frequent features also come more often in a row, as do those that tell the
             * classes. */
            rill__random(g->seed, STREAM_VALUE, row, m->rank[i], draw);
            uint64_t more = 1;
            for (uint64_t r = m->rank[i] + 1; r < 4096; r *= 2)
                more += 2;
            value[n] = (float)((1 + draw[0] % more) * (w != 0 ? 8 : 1));
            squares += (double)value[n] * value[n];
        }
        *margin += w * value[n];
        n++;
    }
    if (s->counts) /* six decimals */
        for (uint64_t i = 0; i < n; i++) {
            double scaled = nearbyint(value[i] / sqrt(squares) * 1e6);
            value[i] = (float)((scaled < 1 ? 1 : scaled) / 1e6);
        }
    if (s->counts) *margin /= sqrt(squares);
    rows->entries += rill__rows_merge(rows, (size_t)n, rows->entries);
    return RILL_OK;
}

rill_status rill__generate_rows(const rill__generator *g, rill__row_maker *m, uint64_t first,
                                uint64_t count) {
    rill__rows *rows = &m->rows;
    for (uint64_t i = first; i < first + count; i++) {
        uint64_t start = rows->entries, draw[2];
        double margin;
        RILL_TRY_DATA(draw_row(g, m, i, &margin));
        uint32_t *index = rows->index;
        for (uint64_t j = start; j < rows->entries; j++)
            index[j] += 1;
        rill__random(g->seed, STREAM_NOISE, i, 0, draw);
        rows->label[rows->rows++] = margin - g->bias + g->noise * normal(draw) > 0 ? 1 : -1;
        rows->start[rows->rows] = rows->entries;
    }
    return RILL_OK;
}

/* ---- start ---------------------------------------------------------------------------------- */

static void set_octaves(rill__generator *g) {
    const rill__shape *s = g->shape;
    double weight[RILL__OCTAVES], sum = 0, w = 1, at = 0;
    for (int j = 0; j < s->octaves; j++) {
        if (j) w *= j <= s->knee ? s->ratio_low : s->ratio_high;
        sum += weight[j] = w;
    }
    for (int j = 0; j < s->octaves; j++) {
        at += weight[j] / sum;
        double end = floor(at * 0x1p32) - 1;
        g->limit[j] = j + 1 < s->octaves && end < UINT32_MAX ? (uint32_t)end : UINT32_MAX;
    }
    uint8_t octave = 0;
    for (uint32_t i = 0; i < RILL__SLOTS; i++) {
        while ((uint64_t)i << 22 > g->limit[octave])
            octave++;
        g->slot[i] = octave;
    }
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bias and noise from the margins of the first rows, however many are asked for. */
static rill_status set_labels(rill__generator *g) {
    rill__row_maker m;
    double *margin = malloc(RILL__PILOT * sizeof *margin), sum = 0, squares = 0;
    rill_status status = margin ? RILL_OK
                                : rill__data_fail(RILL_ERR_MEMORY, "out of memory: margins");
    if (status == RILL_OK) status = rill__row_maker_init(&m, g->shape);
    for (int i = 0; i < RILL__PILOT && status == RILL_OK; i++) {
        m.rows.entries = 0;
        status = draw_row(g, &m, (uint64_t)i, &margin[i]);
        sum += margin[i];
        squares += margin[i] * margin[i];
    }
    if (status == RILL_OK) {
        qsort(margin, RILL__PILOT, sizeof *margin, compare_doubles);
        double mean = sum / RILL__PILOT, variance = squares / RILL__PILOT - mean * mean;
        g->bias = margin[(int)((1 - g->shape->positive) * RILL__PILOT)];
        g->noise = 0.08 * sqrt(variance > 0 ? variance : 0);
    }
    if (margin) rill__row_maker_free(&m);
    free(margin);
    return status;
}

/* The rank whose feature is the last: the solution of rank * scatter = -1 modulo the tail, by
 * Euclid's algorithm. */
static uint64_t last_rank(const rill__shape *s, uint64_t tail) {
    if (!s->scatter) return tail - 1;
    int64_t r0 = (int64_t)tail, r1 = (int64_t)(s->scatter % tail), t0 = 0, t1 = 1;
    while (r1) {
        int64_t q = r0 / r1, r = r0 - q * r1, t = t0 - q * t1;
        r0 = r1, r1 = r;
        t0 = t1, t1 = t;
    }
    return (uint64_t)(t0 < 0 ? -t0 : (int64_t)tail - t0); /* minus the inverse */
}

rill_status rill__generator_init(rill__generator *g, const rill__shape *shape, uint64_t seed) {
    *g = (rill__generator){.shape = shape, .seed = seed, .tail = shape->dim - shape->head};
    g->last_rank = last_rank(shape, g->tail);
    set_octaves(g);
    return set_labels(g);
}
