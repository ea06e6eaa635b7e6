/* Kernels: scalar against plain references written here, every other instruction set against
 * scalar, bit by bit. Arrays have exactly the slack that kernels may use, and a guard behind it. */
#include "stream/stream.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 88172645463325252u;
static uint64_t rnd(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* ---- arrays --------------------------------------------------------------------------------- */

#define GUARD 64

/* Contents and slack stay uninitialised, so that memcheck sees decisions that depend on them. */
static void *array_new(size_t bytes) {
    unsigned char *p = malloc(bytes + RILL__SLACK + GUARD);
    assert_non_null(p);
    memset(p + bytes + RILL__SLACK, 0xa5, GUARD);
    return p;
}
static void array_check(const void *array, size_t bytes) {
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(((const unsigned char *)array)[bytes + RILL__SLACK + i], 0xa5);
}
/* For kernels that may work on a part of a larger array, and so may not write the slack either. */
static void slack_mark(void *array, size_t bytes) {
    memset((unsigned char *)array + bytes, 0xa5, RILL__SLACK);
}
static void slack_check(const void *array, size_t bytes) {
    for (size_t i = 0; i < RILL__SLACK; i++)
        assert_int_equal(((const unsigned char *)array)[bytes + i], 0xa5);
}

static uint64_t index_at(unsigned index_bytes, const void *idx, uint64_t i) {
    return index_bytes == 4 ? ((const uint32_t *)idx)[i] : ((const uint64_t *)idx)[i];
}
static void index_set(unsigned index_bytes, void *idx, uint64_t i, uint64_t x) {
    if (index_bytes == 4)
        ((uint32_t *)idx)[i] = (uint32_t)x;
    else
        ((uint64_t *)idx)[i] = x;
}

typedef struct set {
    uint64_t n;
    uint64_t *x; /* ascending */
} set;

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
static set set_random(uint64_t n, uint64_t first, uint64_t range) {
    set s = {0, malloc((n + 1) * sizeof *s.x)};
    for (uint64_t i = 0; i < n; i++) s.x[i] = first + rnd() % range;
    qsort(s.x, n, sizeof *s.x, compare_u64);
    for (uint64_t i = 0; i < n; i++)
        if (!s.n || s.x[i] != s.x[s.n - 1]) s.x[s.n++] = s.x[i];
    return s;
}
static set set_regular(uint64_t n, uint64_t first, uint64_t step) {
    set s = {n, malloc((n + 1) * sizeof *s.x)};
    for (uint64_t i = 0; i < n; i++) s.x[i] = first + i * step;
    return s;
}

/* Mostly small multiples of 1/8, whose sums are exact, and now and then something special. */
static void value_random(rill_type type, void *at, bool special) {
    static const double inf = (double)INFINITY;
    const double specials[] = {0.0, -0.0, inf, -inf, 1e-7, -1e-7, 1.0, 1e-40, -1e-40, 3e38, 65504};
    double v = ((double)(rnd() % 255) - 127) / 8;
    if (special && rnd() % 8 == 0) v = specials[rnd() % (sizeof specials / sizeof *specials)];
    rill__value_store(type, at, v);
    if (special && rnd() % 40 == 0) { /* quiet NaN with a payload and any sign */
        uint64_t bits8 = UINT64_C(0x7ff8000000000000) | rnd() % 1024 | rnd() << 63;
        uint32_t bits4 = (uint32_t)(0x7fc00000u | rnd() % 1024 | rnd() << 31);
        uint16_t bits2 = (uint16_t)((type == RILL_F16 ? 0x7e00u : 0x7fc0u) | rnd() % 16);
        if (type == RILL_F64)
            memcpy(at, &bits8, 8);
        else if (type == RILL_F32)
            memcpy(at, &bits4, 4);
        else
            memcpy(at, &bits2, 2);
    }
}

static rill__pairs pairs_of(rill__shape shape, set s, bool special) {
    size_t size = rill_type_size(shape.type);
    char *idx = array_new(s.n * shape.index_bytes), *val = array_new(s.n * size);
    for (uint64_t i = 0; i < s.n; i++) {
        index_set(shape.index_bytes, idx, i, s.x[i]);
        value_random(shape.type, val + i * size, special);
    }
    return (rill__pairs){s.n, idx, val};
}
static void pairs_free(rill__pairs p) {
    free((void *)(uintptr_t)p.idx);
    free((void *)(uintptr_t)p.val);
}

/* ---- references ------------------------------------------------------------------------------ */

/* User operation: the one of larger magnitude, the lower one on ties. */
static void absmax(const void *lower, const void *upper, void *result, uint64_t n, rill_type type,
                   void *context) {
    size_t size = rill_type_size(type);
    ++*(uint64_t *)context;
    for (uint64_t i = 0; i < n; i++) {
        const char *a = (const char *)lower + i * size, *b = (const char *)upper + i * size;
        bool take = fabs(rill__value_load(type, b)) > fabs(rill__value_load(type, a));
        memmove((char *)result + i * size, take ? b : a, size);
    }
}
static uint64_t absmax_calls;
static rill_op *absmax_op;

static const rill_op *op_at(unsigned i) {
    const rill_op *ops[] = {RILL_SUM, RILL_MIN, RILL_MAX, RILL_PROD, absmax_op};
    return ops[i];
}
#define OPS 5

static bool is_nan(rill_type type, const void *v) {
    double d = rill__value_load(type, v);
    return d != d;
}
/* Which of two NaN operands a sum gives is up to the compiler; everything else is fixed. */
static bool same_value(rill_type type, const rill_op *op, const void *a, const void *b) {
    if (!memcmp(a, b, rill_type_size(type))) return true;
    return (op->kind == RILL__SUM || op->kind == RILL__PROD) && is_nan(type, a) && is_nan(type, b);
}

static void join(rill_type type, const rill_op *op, const void *a, const void *b, void *r) {
    if (op->kind == RILL__USER) {
        op->fn(a, b, r, 1, type, op->context);
        return;
    }
    if (op->kind == RILL__MIN || op->kind == RILL__MAX) {
        double x = rill__value_load(type, a), y = rill__value_load(type, b);
        bool take = x == x && (y != y || (op->kind == RILL__MIN ? y < x : y > x));
        memmove(r, take ? b : a, rill_type_size(type));
        return;
    }
    double x = rill__value_load(type, a), y = rill__value_load(type, b);
    if (type == RILL_F64)
        rill__value_store(type, r, op->kind == RILL__SUM ? x + y : x * y);
    else
        rill__value_store(type, r, (double)(op->kind == RILL__SUM ? (float)x + (float)y
                                                                  : (float)x * (float)y));
}

static uint64_t reference_merge(rill__shape shape, const rill_op *op, rill__pairs a, rill__pairs b,
                                void *idx, char *val) {
    size_t size = rill_type_size(shape.type);
    uint64_t i = 0, j = 0, n = 0;
    for (; i < a.n || j < b.n; n++) {
        uint64_t x = i < a.n ? index_at(shape.index_bytes, a.idx, i) : UINT64_MAX;
        uint64_t y = j < b.n ? index_at(shape.index_bytes, b.idx, j) : UINT64_MAX;
        const char *v = (const char *)a.val + i * size, *w = (const char *)b.val + j * size;
        index_set(shape.index_bytes, idx, n, x < y ? x : y);
        if (x == y && i < a.n && j < b.n)
            join(shape.type, op, v, w, val + n * size);
        else
            memcpy(val + n * size, x < y || j == b.n ? v : w, size);
        bool from_a = i < a.n && (x <= y || j == b.n), from_b = j < b.n && (y <= x || i == a.n);
        i += from_a;
        j += from_b;
    }
    return n;
}

/* ---- what is tested -------------------------------------------------------------------------- */

static const rill__kernels *isas[3];
static int isa_count;

static const rill__shape shapes[] = {{RILL_F32, 4}, {RILL_F32, 8},  {RILL_F64, 4},  {RILL_F64, 8},
                                     {RILL_F16, 4}, {RILL_F16, 8}, {RILL_BF16, 4}, {RILL_BF16, 8}};
#define SHAPES 8

static void same_pairs(rill__shape shape, const rill_op *op, uint64_t n, const void *idx,
                       const char *val, const void *want_idx, const char *want_val,
                       const char *isa) {
    size_t size = rill_type_size(shape.type);
    for (uint64_t i = 0; i < n; i++)
        if (index_at(shape.index_bytes, idx, i) != index_at(shape.index_bytes, want_idx, i) ||
            !same_value(shape.type, op, val + i * size, want_val + i * size))
            fail_msg("%s %s %s: pair %llu of %llu is (%llu, %g), not (%llu, %g)", isa, op->name,
                     rill_type_name(shape.type), (unsigned long long)i, (unsigned long long)n,
                     (unsigned long long)index_at(shape.index_bytes, idx, i),
                     rill__value_load(shape.type, val + i * size),
                     (unsigned long long)index_at(shape.index_bytes, want_idx, i),
                     rill__value_load(shape.type, want_val + i * size));
}

static void try_merge(rill__shape shape, set x, set y) {
    size_t size = rill_type_size(shape.type);
    uint64_t most = x.n + y.n;
    rill__pairs a = pairs_of(shape, x, true), b = pairs_of(shape, y, true);
    void *want_idx = array_new(most * shape.index_bytes);
    char *want_val = array_new(most * size);
    for (unsigned o = 0; o < OPS; o++) {
        uint64_t want = reference_merge(shape, op_at(o), a, b, want_idx, want_val);
        for (int k = 0; k < isa_count; k++) {
            void *idx = array_new(most * shape.index_bytes);
            char *val = array_new(most * size);
            assert_int_equal(isas[k]->merge(shape, op_at(o), a, b, idx, val), want);
            same_pairs(shape, op_at(o), want, idx, val, want_idx, want_val, isas[k]->isa);
            array_check(idx, most * shape.index_bytes);
            array_check(val, most * size);
            free(idx);
            free(val);
        }
    }
    pairs_free(a);
    pairs_free(b);
    free(want_idx);
    free(want_val);
}

static void try_merge_sets(rill__shape shape, set x, set y) {
    try_merge(shape, x, y);
    try_merge(shape, y, x);
    free(x.x);
    free(y.x);
}

static void test_merge_patterns(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 200};
    for (unsigned s = 0; s < SHAPES; s++) {
        uint64_t top = shapes[s].index_bytes == 4 ? UINT32_MAX : UINT64_MAX;
        uint64_t base = shapes[s].index_bytes == 4 ? 1000 : (UINT64_C(1) << 33) + 5;
        for (unsigned i = 0; i < 16; i++) {
            uint64_t n = lengths[i];
            for (unsigned j = 0; j < 16; j++) {
                uint64_t m = lengths[j];
                try_merge(shapes[s], (set){0, NULL}, (set){0, NULL});
                try_merge_sets(shapes[s], set_regular(n, base, 2), set_regular(m, base + 1, 2));
                try_merge_sets(shapes[s], set_regular(n, base, 1), set_regular(m, base, 1));
                try_merge_sets(shapes[s], set_regular(n, base, 1), set_regular(m, base + n, 1));
                try_merge_sets(shapes[s], set_regular(n, top - (n - 1), 1),
                               set_regular(m, top - (m - 1), 1));
            }
            try_merge_sets(shapes[s], set_regular(n, 0, 3), set_random(900, 0, 700));
        }
        /* The span that the SIMD keys hold, and gaps around it. */
        uint64_t span = UINT64_C(1) << 27;
        for (uint64_t step = span - 2; step <= span + 1; step++)
            try_merge_sets(shapes[s], set_regular(30, 7, step), set_regular(30, 7, span - 1));
        try_merge_sets(shapes[s], set_regular(31, 0, span), set_random(5000, 0, UINT32_MAX));
    }
}

static void test_merge_random(void **state) {
    (void)state;
    static const uint64_t ranges[] = {20, 300, 4000, 1 << 20, UINT32_MAX};
    for (int round = 0; round < 1200; round++) {
        rill__shape shape = shapes[rnd() % SHAPES];
        uint64_t range = ranges[rnd() % 5], first = rnd() % (UINT32_MAX - range + 1);
        if (shape.index_bytes == 8) first = round % 3 ? UINT64_C(1) << 33 : rnd() >> 1;
        if (shape.index_bytes == 8 && round % 7 == 0) range = UINT64_C(1) << 45;
        uint64_t n = rnd() % (rnd() % 4 ? 80 : 1500), m = rnd() % (rnd() % 4 ? 80 : 1500);
        try_merge_sets(shape, set_random(n, first, range), set_random(m, first, range));
    }
}

/* Sums of n random inputs: sum_blocks of every instruction set against scalar, and rill__sum_pairs
 * with both, on exactly summable values, against a chain of reference merges. */
static void try_blocks(rill__shape shape, const rill_op *op, int n, uint64_t each, uint64_t first,
                       uint64_t range, bool special) {
    size_t size = rill_type_size(shape.type);
    rill__pairs *in = malloc((size_t)n * sizeof *in + 1);
    uint64_t most = 0;
    for (int i = 0; i < n; i++) {
        set s = set_random(i % 5 == 4 ? 0 : each, first, range);
        in[i] = pairs_of(shape, s, special);
        free(s.x);
        most += in[i].n;
    }
    void *want_idx = array_new(most * shape.index_bytes), *other_idx = array_new(most * 8);
    char *want_val = array_new(most * size), *other_val = array_new(most * size);
    char *workspace = array_new(rill__blocks_workspace(shape));
    uint64_t want = 0, room = rill__min_u64(range, most);
    for (int i = 0; i < n; i++) {
        rill__pairs so_far = {want, other_idx, other_val};
        want = reference_merge(shape, op, so_far, in[i], want_idx, want_val);
        memcpy(other_idx, want_idx, want * shape.index_bytes);
        memcpy(other_val, want_val, want * size);
    }
    /* A chain of merges rounds 16-bit values each time, blocks once: only scalar is comparable. */
    bool small = !special && op->kind == RILL__SUM && shape.type == RILL_F16 && n < 10;
    bool exact = small || size > 2 || op->kind == RILL__MIN || op->kind == RILL__MAX ||
                 op->kind == RILL__USER;
    for (int k = 0; k < isa_count; k++) {
        void *idx = array_new(room * shape.index_bytes);
        char *val = array_new(room * size);
        uint64_t count = isas[k]->sum_blocks(shape, op, first, range, n, in, idx, val, workspace);
        assert_int_equal(count, want);
        if (k == 0 && !exact) memcpy(want_val, val, want * size);
        same_pairs(shape, op, want, idx, val, want_idx, want_val, isas[k]->isa);
        array_check(idx, room * shape.index_bytes);
        array_check(val, room * size);
        array_check(workspace, rill__blocks_workspace(shape));
        free(idx);
        free(val);
        if (special || op->kind == RILL__PROD || !exact) continue;
        rill__buffer scratch = {NULL, 0};
        idx = array_new(most * shape.index_bytes);
        val = array_new(most * size);
        uint64_t spread[] = {range, UINT64_C(1) << 31}; /* the latter makes it take the tree */
        for (int r = 0; r < 2; r++) {
            assert_int_equal(rill__sum_pairs(isas[k], shape, op, first, spread[r], n, in, &scratch,
                                             idx, val, &count),
                             RILL_OK);
            assert_int_equal(count, want);
            same_pairs(shape, op, want, idx, val, want_idx, want_val, isas[k]->isa);
            array_check(idx, most * shape.index_bytes);
            array_check(val, most * size);
        }
        rill__buffer_free(&scratch);
        free(idx);
        free(val);
    }
    for (int i = 0; i < n; i++) pairs_free(in[i]);
    free(in);
    free(want_idx);
    free(want_val);
    free(other_idx);
    free(other_val);
    free(workspace);
}

static void test_blocks(void **state) {
    (void)state;
    static const int counts[] = {0, 1, 2, 3, 5, 8, 17};
    for (unsigned s = 0; s < SHAPES; s++) {
        uint64_t base = shapes[s].index_bytes == 4 ? 12345 : (UINT64_C(1) << 34) + 77;
        uint64_t top = shapes[s].index_bytes == 4 ? UINT32_MAX - 9999 : UINT64_MAX - 9999;
        for (unsigned o = 0; o < OPS; o++) {
            for (unsigned c = 0; c < 7; c++) {
                bool special = c % 2;
                try_blocks(shapes[s], op_at(o), counts[c], 300, base, 1000, special);
                try_blocks(shapes[s], op_at(o), counts[c], 40, base, 63, !special);
                try_blocks(shapes[s], op_at(o), counts[c], 700, base, 200000, special);
                try_blocks(shapes[s], op_at(o), counts[c], 1500, top, 9999, !special);
                try_blocks(shapes[s], op_at(o), counts[c], 20, 3, 1u << 30, special);
            }
            try_blocks(shapes[s], op_at(o), 5, 30000, base, 150000, false);
        }
        try_blocks(shapes[s], RILL_SUM, 300, 50, base, 30000, false); /* more than cursors */
        try_blocks(shapes[s], RILL_MIN, 300, 50, base, 30000, true);
    }
}

static void test_scatter_combine(void **state) {
    (void)state;
    for (int round = 0; round < 400; round++) {
        rill__shape shape = shapes[rnd() % SHAPES];
        const rill_op *op = op_at((unsigned)(rnd() % OPS));
        size_t size = rill_type_size(shape.type);
        uint64_t range = 1 + rnd() % 300, first = shape.index_bytes == 4 ? 99 : UINT64_C(1) << 35;
        set s = set_random(rnd() % (2 * range), first, range);
        rill__pairs p = pairs_of(shape, s, true);
        char *lower = array_new(range * size), *upper = array_new(range * size);
        char *want = array_new(range * size), *got = array_new(range * size);
        for (uint64_t i = 0; i < range; i++) {
            value_random(shape.type, lower + i * size, true);
            value_random(shape.type, upper + i * size, true);
        }
        for (int k = 0; k < isa_count; k++) {
            memcpy(want, lower, range * size);
            memcpy(got, lower, range * size);
            for (uint64_t i = 0; i < s.n; i++)
                join(shape.type, op, want + (s.x[i] - first) * size, (const char *)p.val + i * size,
                     want + (s.x[i] - first) * size);
            isas[k]->scatter(shape, op, got, first, p);
            for (uint64_t i = 0; i < range; i++)
                assert_true(same_value(shape.type, op, got + i * size, want + i * size));

            /* Into a new array, over lower, over upper; and nothing behind the end is written. */
            for (uint64_t i = 0; i < range; i++)
                join(shape.type, op, lower + i * size, upper + i * size, want + i * size);
            for (int alias = 0; alias < 3; alias++) {
                const char *a = alias == 1 ? got : lower, *b = alias == 2 ? got : upper;
                slack_mark(got, range * size);
                if (alias) memcpy(got, alias == 1 ? lower : upper, range * size);
                isas[k]->combine(shape.type, op, got, a, b, range);
                for (uint64_t i = 0; i < range; i++)
                    assert_true(same_value(shape.type, op, got + i * size, want + i * size));
                slack_check(got, range * size);
            }
        }
        pairs_free(p);
        free(s.x);
        free(lower);
        free(upper);
        free(want);
        free(got);
    }
}

/* As numbers, and NaN matches NaN. */
static bool matches(rill_type type, const void *v, const void *fill) {
    double x = rill__value_load(type, v), y = rill__value_load(type, fill);
    return x == y || (x != x && y != y);
}

static void test_compact_replace_fill(void **state) {
    (void)state;
    static const double fills[] = {0.0, -0.0, 1.5, (double)INFINITY, (double)NAN};
    for (int round = 0; round < 500; round++) {
        rill__shape shape = shapes[rnd() % SHAPES];
        size_t size = rill_type_size(shape.type);
        uint64_t n = rnd() % 200, first = shape.index_bytes == 4 ? 7 : UINT64_C(1) << 36;
        unsigned sparsity = 1 + (unsigned)(rnd() % 20);
        char *dense = array_new(n * size), fill[8], to[8];
        rill__value_store(shape.type, fill, fills[rnd() % 5]);
        rill__value_store(shape.type, to, 2.25);
        uint64_t count = 0;
        for (uint64_t i = 0; i < n; i++) {
            value_random(shape.type, dense + i * size, true);
            if (rnd() % sparsity) memcpy(dense + i * size, fill, size);
            count += !matches(shape.type, dense + i * size, fill);
        }
        uint64_t limits[] = {n, count, count ? count - 1 : 0, count / 2, 0};
        for (int k = 0; k < isa_count; k++) {
            for (unsigned l = 0; l < 5; l++) {
                uint64_t limit = limits[l], at = 0;
                void *idx = array_new(limit * shape.index_bytes);
                char *val = array_new(limit * size);
                uint64_t got = isas[k]->compact(shape, dense, first, n, fill, limit, idx, val);
                assert_int_equal(got, count > limit ? limit + 1 : count);
                for (uint64_t i = 0; i < n && at < limit; i++) {
                    if (matches(shape.type, dense + i * size, fill)) continue;
                    assert_int_equal(index_at(shape.index_bytes, idx, at), first + i);
                    assert_memory_equal(val + at * size, dense + i * size, size);
                    at++;
                }
                array_check(idx, limit * shape.index_bytes);
                array_check(val, limit * size);
                free(idx);
                free(val);
            }
            char *out = array_new(n * size);
            slack_mark(out, n * size);
            for (int in_place = 0; in_place < 2; in_place++) {
                if (in_place && n) memcpy(out, dense, n * size);
                isas[k]->replace(shape.type, out, in_place ? out : dense, n, fill, to);
                for (uint64_t i = 0; i < n; i++) {
                    const char *v = dense + i * size;
                    const char *want = matches(shape.type, v, fill) ? to : v;
                    assert_memory_equal(out + i * size, want, size);
                }
            }
            isas[k]->fill(shape.type, out, n, to);
            for (uint64_t i = 0; i < n; i++) assert_memory_equal(out + i * size, to, size);
            slack_check(out, n * size);
            free(out);
        }
        free(dense);
    }
}

static void test_check(void **state) {
    (void)state;
    for (unsigned bytes = 4; bytes <= 8; bytes += 4) {
        uint64_t first = bytes == 4 ? 100 : UINT64_C(1) << 40;
        for (uint64_t n = 0; n < 70; n++) {
            void *idx = array_new(n * bytes);
            for (int k = 0; k < isa_count; k++) {
                for (uint64_t i = 0; i < n; i++) index_set(bytes, idx, i, first + 3 * i);
                assert_int_equal(isas[k]->check(bytes, idx, n, first, 3 * n), n);
                if (n) assert_int_equal(isas[k]->check(bytes, idx, n, first + 1, 3 * n), 0);
                for (uint64_t i = 0; i < n; i++) {
                    uint64_t good = first + 3 * i;
                    assert_int_equal(isas[k]->check(bytes, idx, n, first, 3 * i), i);
                    assert_int_equal(isas[k]->check(bytes, idx, n, first, 3 * i + 1), i + 1);
                    uint64_t bad[] = {i ? good - 3 : first - 1, i ? good - 4 : 0, first + 3 * n,
                                      bytes == 4 ? UINT32_MAX : UINT64_MAX};
                    for (unsigned b = 0; b < 4; b++) {
                        index_set(bytes, idx, i, bad[b]);
                        assert_int_equal(isas[k]->check(bytes, idx, n, first, 3 * n), i);
                    }
                    index_set(bytes, idx, i, good);
                }
            }
            free(idx);
        }
        /* The whole of the index type, whose end does not fit into it. */
        void *idx = array_new(2 * bytes);
        index_set(bytes, idx, 0, 0);
        index_set(bytes, idx, 1, bytes == 4 ? UINT32_MAX : UINT64_MAX - 1);
        for (int k = 0; k < isa_count; k++)
            assert_int_equal(isas[k]->check(bytes, idx, 2, 0,
                                            bytes == 4 ? UINT64_C(1) << 32 : UINT64_MAX), 2);
        free(idx);
    }
}

static void try_sort(rill__shape shape, uint64_t n, uint64_t range) {
    size_t size = rill_type_size(shape.type);
    void *in_idx = array_new(n * shape.index_bytes), *idx = array_new(n * shape.index_bytes);
    char *in_val = array_new(n * size), *val = array_new(n * size);
    for (uint64_t i = 0; i < n; i++) {
        index_set(shape.index_bytes, in_idx, i, rnd() % range);
        value_random(shape.type, in_val + i * size, true);
    }
    uint64_t count, last = 0;
    assert_int_equal(rill__sort_pairs(shape, n, in_idx, in_val, idx, val, &count), RILL_OK);
    uint64_t covered = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t x = index_at(shape.index_bytes, idx, i), terms = 0;
        if (i) assert_true(x > last);
        last = x;
        double sum = 0;
        char want[8];
        for (uint64_t j = 0; j < n; j++) {
            if (index_at(shape.index_bytes, in_idx, j) != x) continue;
            double v = rill__value_load(shape.type, in_val + j * size);
            sum = !terms++ ? v : shape.type == RILL_F64 ? sum + v : (double)((float)sum + (float)v);
            if (terms == 1) memcpy(want, in_val + j * size, size);
        }
        if (terms > 1) rill__value_store(shape.type, want, sum);
        assert_true(same_value(shape.type, RILL_SUM, val + i * size, want));
        covered += terms;
    }
    assert_int_equal(covered, n);
    array_check(idx, n * shape.index_bytes);
    array_check(val, n * size);
    free(in_idx);
    free(in_val);
    free(idx);
    free(val);
}

static void test_sort(void **state) {
    (void)state;
    for (unsigned s = 0; s < SHAPES; s++) {
        uint64_t top = shapes[s].index_bytes == 4 ? UINT64_C(1) << 32 : UINT64_MAX;
        for (uint64_t n = 0; n < 40; n++) try_sort(shapes[s], n, n + 1);
        uint64_t ranges[] = {1, 2, 100, 512, 513, 70000, UINT64_C(1) << 27, top};
        for (unsigned r = 0; r < 8; r++) try_sort(shapes[s], 600, ranges[r]);
    }
}

/* ---- 16-bit values ---------------------------------------------------------------------------*/

static float float_from(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static uint32_t bits_from(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static void test_halves(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
        double sign = h & 0x8000 ? -1 : 1;
        float f = rill__f16_to_f32((uint16_t)h);
        if (exponent == 31) {
            uint32_t quiet = fraction ? 0x400000 : 0, sign_bit = (h & 0x8000) << 16;
            assert_int_equal(bits_from(f), sign_bit | 0x7f800000 | fraction << 13 | quiet);
        } else {
            double v = exponent ? ldexp(1024 + fraction, (int)exponent - 25) : ldexp(fraction, -24);
            assert_true((double)f == sign * v);
            assert_int_equal(bits_from(f) >> 31, h >> 15);
        }
        assert_int_equal(rill__f16_from_f32(f), exponent == 31 && fraction ? h | 0x200 : h);
        assert_int_equal(bits_from(rill__bf16_to_f32((uint16_t)h)), h << 16);
        bool nan = (h & 0x7fff) > 0x7f80;
        assert_int_equal(rill__bf16_from_f32(rill__bf16_to_f32((uint16_t)h)), nan ? h | 0x40 : h);
    }
    /* Half way between neighbours, and one f32 to each side; the last is where infinity starts. */
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float high = h == 0x7bff ? 65536.0f : rill__f16_to_f32((uint16_t)(h + 1));
        uint32_t middle = bits_from((rill__f16_to_f32((uint16_t)h) + high) / 2);
        for (uint32_t s = 0; s < 2; s++) {
            uint32_t sign = s << 31, want = s << 15;
            assert_int_equal(rill__f16_from_f32(float_from(sign | middle)), want | (h + (h & 1)));
            assert_int_equal(rill__f16_from_f32(float_from(sign | (middle - 1))), want | h);
            assert_int_equal(rill__f16_from_f32(float_from(sign | (middle + 1))), want | (h + 1));
        }
    }
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t middle = h << 16 | 0x8000;
        assert_int_equal(rill__bf16_from_f32(float_from(middle)), h + (h & 1));
        assert_int_equal(rill__bf16_from_f32(float_from(middle - 1)), h);
        assert_int_equal(rill__bf16_from_f32(float_from(middle + 1)), h + 1);
    }
    /* From double in one rounding: just above half way, by less than f32 sees. */
    uint16_t got;
    rill__value_store(RILL_F16, &got, 1.0 + 0x1p-11 + 0x1p-40);
    assert_int_equal(got, 0x3c01);
    rill__value_store(RILL_F16, &got, -(1.0 + 0x1p-11 + 0x1p-40));
    assert_int_equal(got, 0xbc01);
    rill__value_store(RILL_F16, &got, 1.0 + 3 * 0x1p-11 - 0x1p-40);
    assert_int_equal(got, 0x3c01);
    rill__value_store(RILL_BF16, &got, 1.0 + 0x1p-8 + 0x1p-40);
    assert_int_equal(got, 0x3f81);
    rill__value_store(RILL_F16, &got, 1e300);
    assert_int_equal(got, 0x7c00);
}

/* All 65536 values through the SIMD conversions, which round trip in combine. */
static void test_halves_simd(void **state) {
    (void)state;
    for (int t = RILL_F16; t <= RILL_BF16; t++) {
        rill_type type = (rill_type)t;
        uint16_t *a = array_new(131072), *b = array_new(131072), *want = array_new(131072);
        uint16_t *got = array_new(131072);
        for (int shift = 0; shift < 6; shift++) {
            for (uint32_t i = 0; i < 65536; i++) {
                a[i] = (uint16_t)i;
                b[i] = (uint16_t)(shift ? i * 40503u + (uint32_t)shift * 7919u : 0x8000u);
            }
            for (unsigned o = 0; o < 4; o++) {
                isas[0]->combine(type, op_at(o), want, a, b, 65536);
                for (int k = 1; k < isa_count; k++) {
                    isas[k]->combine(type, op_at(o), got, a, b, 65536);
                    for (uint32_t i = 0; i < 65536; i++)
                        assert_true(same_value(type, op_at(o), got + i, want + i));
                }
            }
        }
        free(a);
        free(b);
        free(want);
        free(got);
    }
}

/* ---- the rest --------------------------------------------------------------------------------*/

static void test_dispatch(void **state) {
    (void)state;
    assert_null(rill__kernels_named(NULL));
    assert_null(rill__kernels_named("none"));
    assert_ptr_equal(rill__kernels_named("scalar"), &rill__kernels_scalar);
    const rill__kernels *kernels = rill__kernels_get();
    assert_non_null(kernels);
    assert_ptr_equal(kernels, rill__kernels_named(kernels->isa));
    const char *asked = getenv("RILL_ISA");
    if (asked && rill__kernels_named(asked)) assert_string_equal(kernels->isa, asked);
}

static void test_ops(void **state) {
    (void)state;
    rill_op *op = NULL;
    assert_int_equal(rill_op_create("", absmax, NULL, 0, 0, &op), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_op_create("x", NULL, NULL, 0, 0, &op), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_op_create("x", absmax, NULL, 0, 1u << 9, &op), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_op_create("x", absmax, NULL, 0, 0, NULL), RILL_ERR_ARGUMENT);
    assert_null(op);
    assert_string_equal(rill_op_name(absmax_op), "absmax");
    assert_string_equal(rill_op_name(RILL_MIN), "min");
    static const double neutral[] = {0, (double)INFINITY, -(double)INFINITY, 1, 0};
    for (unsigned o = 0; o < OPS; o++)
        for (int t = RILL_F32; t <= RILL_BF16; t++) {
            double bits;
            rill__neutral(op_at(o), (rill_type)t, &bits);
            assert_true(rill__value_load((rill_type)t, &bits) == neutral[o]);
        }
    assert_int_equal(rill_type_size(RILL_BF16), 2);
    assert_int_equal(rill_type_size((rill_type)9), 0);
    assert_string_equal(rill_type_name(RILL_F16), "f16");
    assert_int_equal(rill_op_free(NULL), RILL_OK);
}

int main(void) {
    static const char *const names[] = {"scalar", "avx2", "avx512"};
    for (int i = 0; i < 3; i++)
        if (rill__kernels_named(names[i])) isas[isa_count++] = rill__kernels_named(names[i]);
    if (rill_op_create("absmax", absmax, &absmax_calls, 0, 0, &absmax_op)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_halves_simd),
        cmocka_unit_test(test_merge_patterns),
        cmocka_unit_test(test_merge_random),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_scatter_combine),
        cmocka_unit_test(test_compact_replace_fill),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_dispatch),
        cmocka_unit_test(test_ops),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rill_op_free(&absmax_op);
    return failed;
}
