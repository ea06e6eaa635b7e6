/* What the tests of kernels share: arrays with guards, random pairs, references written plainly,
 * and the instruction sets of this machine. */
#ifndef RILL_TEST_KERNELS_H
#define RILL_TEST_KERNELS_H

#include "stream/stream.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 88172645463325252u;
static inline uint64_t rnd(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* ---- arrays --------------------------------------------------------------------------------- */

#define GUARD 64

/* Contents and slack stay uninitialised, so that memcheck sees decisions that depend on them. */
static inline void *array_new(size_t bytes) {
    unsigned char *p = malloc(bytes + RILL__SLACK + GUARD);
    assert_non_null(p);
    memset(p + bytes + RILL__SLACK, 0xa5, GUARD);
    return p;
}
static inline void array_check(const void *array, size_t bytes) {
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(((const unsigned char *)array)[bytes + RILL__SLACK + i], 0xa5);
}
/* For kernels that may work on a part of a larger array, and so may not write the slack either. */
static inline void slack_mark(void *array, size_t bytes) {
    memset((unsigned char *)array + bytes, 0xa5, RILL__SLACK);
}
static inline void slack_check(const void *array, size_t bytes) {
    for (size_t i = 0; i < RILL__SLACK; i++)
        assert_int_equal(((const unsigned char *)array)[bytes + i], 0xa5);
}

static inline uint64_t index_at(unsigned index_bytes, const void *idx, uint64_t i) {
    return index_bytes == 4 ? ((const uint32_t *)idx)[i] : ((const uint64_t *)idx)[i];
}
static inline void index_set(unsigned index_bytes, void *idx, uint64_t i, uint64_t x) {
    if (index_bytes == 4) ((uint32_t *)idx)[i] = (uint32_t)x;
    else ((uint64_t *)idx)[i] = x;
}

typedef struct set {
    uint64_t n;
    uint64_t *x; /* ascending */
} set;

static inline int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
static inline set set_random(uint64_t n, uint64_t first, uint64_t range) {
    set s = {0, malloc((n + 1) * sizeof *s.x)};
    for (uint64_t i = 0; i < n; i++)
        s.x[i] = first + rnd() % range;
    qsort(s.x, n, sizeof *s.x, compare_u64);
    for (uint64_t i = 0; i < n; i++)
        if (!s.n || s.x[i] != s.x[s.n - 1]) s.x[s.n++] = s.x[i];
    return s;
}
static inline set set_regular(uint64_t n, uint64_t first, uint64_t step) {
    set s = {n, malloc((n + 1) * sizeof *s.x)};
    for (uint64_t i = 0; i < n; i++)
        s.x[i] = first + i * step;
    return s;
}

/* Mostly small multiples of 1/8, whose sums are exact, and now and then something special. */
static inline void value_random(rill_type type, void *at, bool special) {
    static const double inf = (double)INFINITY;
    const double specials[] = {0.0, -0.0, inf, -inf, 1e-7, -1e-7, 1.0, 1e-40, -1e-40, 3e38, 65504};
    double v = ((double)(rnd() % 255) - 127) / 8;
    if (special && rnd() % 8 == 0) v = specials[rnd() % (sizeof specials / sizeof *specials)];
    rill__value_store(type, at, v);
    if (special && rnd() % 40 == 0) { /* quiet NaN with a payload and any sign */
        uint64_t bits8 = UINT64_C(0x7ff8000000000000) | rnd() % 1024 | rnd() << 63;
        uint32_t bits4 = (uint32_t)(0x7fc00000u | rnd() % 1024 | rnd() << 31);
        uint16_t bits2 = (uint16_t)((type == RILL_F16 ? 0x7e00u : 0x7fc0u) | rnd() % 16);
        if (type == RILL_F64) memcpy(at, &bits8, 8);
        else if (type == RILL_F32) memcpy(at, &bits4, 4);
        else memcpy(at, &bits2, 2);
    }
}

static inline rill__pairs pairs_of(rill__shape shape, set s, bool special) {
    size_t size = rill_type_size(shape.type);
    char *idx = array_new(s.n * shape.index_bytes), *val = array_new(s.n * size);
    for (uint64_t i = 0; i < s.n; i++) {
        index_set(shape.index_bytes, idx, i, s.x[i]);
        value_random(shape.type, val + i * size, special);
    }
    return (rill__pairs){s.n, idx, val};
}
static inline void pairs_free(rill__pairs p) {
    free((void *)(uintptr_t)p.idx);
    free((void *)(uintptr_t)p.val);
}

/* ---- references ------------------------------------------------------------------------------ */

/* User operation: the one of larger magnitude, the lower one on ties. */
static inline void absmax(const void *lower, const void *upper, void *result, uint64_t n,
                          rill_type type, void *context) {
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

static inline const rill_op *op_at(unsigned i) {
    const rill_op *ops[] = {RILL_SUM, RILL_MIN, RILL_MAX, RILL_PROD, absmax_op};
    return ops[i];
}
#define OPS 5

static inline bool is_nan(rill_type type, const void *v) {
    double d = rill__value_load(type, v);
    return d != d;
}
/* Which of two NaN operands a sum gives is up to the compiler; everything else is fixed. */
static inline bool same_value(rill_type type, const rill_op *op, const void *a, const void *b) {
    if (!memcmp(a, b, rill_type_size(type))) return true;
    return (op->kind == RILL__SUM || op->kind == RILL__PROD) && is_nan(type, a) && is_nan(type, b);
}

static inline void join(rill_type type, const rill_op *op, const void *a, const void *b, void *r) {
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
    if (type == RILL_F64) rill__value_store(type, r, op->kind == RILL__SUM ? x + y : x * y);
    else
        rill__value_store(type, r,
                          (double)(op->kind == RILL__SUM ? (float)x + (float)y
                                                         : (float)x * (float)y));
}

static inline uint64_t reference_merge(rill__shape shape, const rill_op *op, rill__pairs a,
                                       rill__pairs b, void *idx, char *val) {
    size_t size = rill_type_size(shape.type);
    uint64_t i = 0, j = 0, n = 0;
    for (; i < a.n || j < b.n; n++) {
        uint64_t x = i < a.n ? index_at(shape.index_bytes, a.idx, i) : UINT64_MAX;
        uint64_t y = j < b.n ? index_at(shape.index_bytes, b.idx, j) : UINT64_MAX;
        const char *v = (const char *)a.val + i * size, *w = (const char *)b.val + j * size;
        index_set(shape.index_bytes, idx, n, x < y ? x : y);
        if (x == y && i < a.n && j < b.n) join(shape.type, op, v, w, val + n * size);
        else memcpy(val + n * size, x < y || j == b.n ? v : w, size);
        bool from_a = i < a.n && (x <= y || j == b.n), from_b = j < b.n && (y <= x || i == a.n);
        i += from_a;
        j += from_b;
    }
    return n;
}

/* ---- what is tested -------------------------------------------------------------------------- */

static const rill__kernels *isas[3];
static int isa_count;

static const rill__shape shapes[] = {{RILL_F32, 4}, {RILL_F32, 8}, {RILL_F64, 4},  {RILL_F64, 8},
                                     {RILL_F16, 4}, {RILL_F16, 8}, {RILL_BF16, 4}, {RILL_BF16, 8}};
#define SHAPES 8

static inline void same_pairs(rill__shape shape, const rill_op *op, uint64_t n, const void *idx,
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

static inline int run_with_isas(int (*run)(void)) {
    static const char *const names[] = {"scalar", "avx2", "avx512"};
    for (int i = 0; i < 3; i++)
        if (rill__kernels_named(names[i])) isas[isa_count++] = rill__kernels_named(names[i]);
    if (rill_op_create("absmax", absmax, &absmax_calls, 0, 0, &absmax_op)) return 1;
    int failed = run();
    rill_op_free(&absmax_op);
    return failed;
}

#endif
