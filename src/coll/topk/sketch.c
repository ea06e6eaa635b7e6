/* Count-sketch (Charikar, Chen and Farach-Colton, ICALP 2002); the hashes are described in
 * sketch.h. */
#include "coll/topk/sketch.h"

#include <math.h>
#include <string.h>

/* ---- plan --------------------------------------------------------------------------------- */

/* The finalizer of splitmix64: a bijection. */
static inline uint64_t scramble(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t draw(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return scramble(*state);
}

/* Uniform in [0, n). */
static uint64_t draw_below(uint64_t *state, uint64_t n) {
    return (uint64_t)((unsigned __int128)draw(state) * n >> 64);
}

static bool is_prime(uint64_t n) {
    if (n % 2 == 0) return n == 2;
    for (uint64_t d = 3; d <= n / d; d += 2)
        if (n % d == 0) return false;
    return n > 1;
}

uint64_t rill__sketch_width(uint64_t entries, int rows, double lambda) {
    double wanted = ceil(lambda * (double)entries / rows);
    if (!(wanted < (double)entries)) return rill__max_u64(1, entries);
    return rill__max_u64(1, (uint64_t)wanted);
}

void rill__sketch_plan(rill__sketch *s, rill_type type, uint64_t entries, int rows, double lambda,
                       uint64_t seed, uint64_t step) {
    *s = (rill__sketch){.cell = rill__sketch_cell_type(type), .rows = rows, .entries = entries};
    s->width = rill__sketch_width(entries, rows, lambda);
    uint64_t state = scramble(seed) ^ scramble(step + UINT64_C(0x632be59bd9b4e019));
    bool roomy = s->width >= entries; /* a cell for each entry: nothing is lost */
    s->slots = rill__max_u64(roomy ? 1 : 2, entries);
    while (!roomy && !is_prime(s->slots))
        s->slots++;
    if (!roomy) s->scale = (uint64_t)(((unsigned __int128)s->width << 64) / s->slots);
    for (int j = 0; j < rows; j++) {
        rill__sketch_row *row = &s->row[j];
        row->step = roomy ? 1 : 1 + draw_below(&state, s->slots - 1);
        row->start = roomy ? 0 : draw_below(&state, s->slots);
        row->sign_factor = draw(&state);
        row->sign_offset = draw(&state);
    }
}

double rill__sketch_meeting(const rill__sketch *s) {
    if (!s->scale) return 0;
    double less = (double)(s->slots / s->width), longer = (double)(s->slots % s->width);
    double pairs = ((double)s->width - longer) * less * (less - 1) + longer * (less + 1) * less;
    return pairs / ((double)s->slots * (double)(s->slots - 1));
}

/* ---- cells -------------------------------------------------------------------------------- */

static inline uint64_t slot_of(const rill__sketch *s, const rill__sketch_row *row, uint64_t i) {
    if (s->slots <= UINT32_MAX) return (row->step * i + row->start) % s->slots;
    return (uint64_t)(((unsigned __int128)row->step * i + row->start) % s->slots);
}

static inline uint64_t cell_of(const rill__sketch *s, uint64_t slot) {
    return s->scale ? (uint64_t)((unsigned __int128)slot * s->scale >> 64) : slot;
}

static inline uint64_t sign_of(const rill__sketch_row *row, uint64_t scrambled) {
    return (row->sign_factor * scrambled + row->sign_offset) >> 63;
}

/* Its bit 63 goes to where the sign of a double is: no branch that nobody can predict. */
static inline double with_sign(double value, uint64_t sign) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits ^= sign << 63;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

void rill__sketch_add(const rill__sketch *s, void *cells, uint64_t i, double value) {
    uint64_t scrambled = scramble(i);
    for (int j = 0; j < s->rows; j++) {
        const rill__sketch_row *row = &s->row[j];
        uint64_t at = (uint64_t)j * s->width + cell_of(s, slot_of(s, row, i));
        double x = with_sign(value, sign_of(row, scrambled));
        if (s->cell == RILL_F64) ((double *)cells)[at] += x;
        else ((float *)cells)[at] += (float)x;
    }
}

/* Walks the numbers in order: a slot follows from the one before without a division. */
typedef struct walk {
    const rill__sketch *sketch;
    const void *cells;
    uint64_t i;
    uint64_t slot[RILL__SKETCH_ROWS];
} walk;

static walk walk_from(const rill__sketch *s, const void *cells, uint64_t first) {
    walk w = {.sketch = s, .cells = cells, .i = first};
    for (int j = 0; j < s->rows; j++)
        w.slot[j] = slot_of(s, &s->row[j], first);
    return w;
}

/* What each row says of the present entry. */
static inline void walk_next(walk *w, double *said) {
    const rill__sketch *s = w->sketch;
    uint64_t scrambled = scramble(w->i++);
    for (int j = 0; j < s->rows; j++) {
        const rill__sketch_row *row = &s->row[j];
        uint64_t at = (uint64_t)j * s->width + cell_of(s, w->slot[j]);
        double value = s->cell == RILL_F64 ? ((const double *)w->cells)[at]
                                           : (double)((const float *)w->cells)[at];
        said[j] = with_sign(value, sign_of(row, scrambled));
        /* slot and step are below slots, which is far below 2^63 */
        w->slot[j] += row->step;
        w->slot[j] -= w->slot[j] >= s->slots ? s->slots : 0;
    }
}

/* ---- estimates ---------------------------------------------------------------------------- */

static inline double sum_of(const double *said, int rows) {
    double sum = 0;
    for (int j = 0; j < rows; j++)
        sum += said[j];
    return sum;
}

/* A NaN's sign means nothing, and processors make NaNs of either: all are at the upper end. */
static void join_nans(double *said, int rows) {
    for (int j = 0; j < rows; j++)
        if (isnan(said[j])) said[j] = (double)NAN;
}

/* The bits of a double in an integer of the same order, and back. A NaN is at an end of all. */
static inline int64_t order_of(int64_t bits) {
    return bits ^ (int64_t)((uint64_t)(bits >> 63) >> 1);
}

static inline int64_t load_key(const double *value) {
    int64_t bits;
    memcpy(&bits, value, sizeof bits);
    return order_of(bits);
}

static inline double value_of(int64_t key) {
    int64_t bits = order_of(key);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* By integers in registers, for which there is no branch that nobody could predict. */
static inline void exchange(int64_t *a, int64_t *b) {
    int64_t low = *a < *b ? *a : *b;
    *b = *a < *b ? *b : *a;
    *a = low;
}

/* The median, and how far it is from what lies next to it: the nearer one, as the farther may be a
 * collision that the median did away with. */
static inline double middle_of_3(const double *said, double *gap) {
    int64_t a = load_key(said), b = load_key(said + 1), c = load_key(said + 2);
    exchange(&a, &b);
    exchange(&b, &c);
    exchange(&a, &b);
    double median = value_of(b), below = median - value_of(a), above = value_of(c) - median;
    *gap = below < above ? below : above;
    return median;
}

static double middle(const double *said, int rows, double *gap) {
    int64_t key[RILL__SKETCH_ROWS] = {load_key(said)};
    for (int j = 1; j < rows; j++) {
        int64_t x = load_key(&said[j]);
        int to = j;
        for (; to > 0 && x < key[to - 1]; to--)
            key[to] = key[to - 1];
        key[to] = x;
    }
    int m = rows / 2;
    double here = value_of(key[m]);
    *gap = 0;
    if (rows == 1) return here;
    double before = value_of(key[m - 1]);
    if (rows % 2 == 0) {
        *gap = here - before;
        return (before + here) / 2;
    }
    double below = here - before, above = value_of(key[m + 1]) - here;
    *gap = below < above ? below : above;
    return here;
}

/* Squared error of the median over the squared gap, for normal errors; fitted to 10^6 draws. */
static double error_per_gap(int rows) { return rows % 2 ? 0.53 * rows - 0.2 : rows / 8.0; }

double rill__sketch_estimate(const rill__sketch *s, const void *cells, uint64_t first, uint64_t n,
                             double *median, double *mean) {
    walk w = walk_from(s, cells, first);
    double said[RILL__SKETCH_ROWS], squares = 0, gap;
    for (uint64_t i = 0; i < n; i++) {
        walk_next(&w, said);
        mean[i] = sum_of(said, s->rows) / s->rows;
        if (isnan(mean[i])) join_nans(said, s->rows);
        median[i] = s->rows == 3 ? middle_of_3(said, &gap) : middle(said, s->rows, &gap);
        squares += gap * gap;
    }
    return s->rows > 1 ? squares * error_per_gap(s->rows) : 0;
}

void rill__sketch_mean(const rill__sketch *s, const void *cells, uint64_t first, uint64_t n,
                       double *mean) {
    walk w = walk_from(s, cells, first);
    double said[RILL__SKETCH_ROWS];
    for (uint64_t i = 0; i < n; i++) {
        walk_next(&w, said);
        mean[i] = sum_of(said, s->rows) / s->rows;
    }
}

double rill__sketch_error(const rill__sketch *s, const void *cells, double squared_errors) {
    if (!s->scale) return 0;
    /* Of one row the squared error of an entry is on average what the others have, times that. */
    if (s->rows == 1) return sqrt((double)(s->entries - 1) * rill__sketch_meeting(s));
    double square = 0;
    uint64_t n = rill__sketch_cells(s);
    for (uint64_t i = 0; i < n; i++) {
        double x = s->cell == RILL_F64 ? ((const double *)cells)[i]
                                       : (double)((const float *)cells)[i];
        square += x * x;
    }
    square /= s->rows;
    return square == 0 ? 0 : sqrt(squared_errors / square);
}
