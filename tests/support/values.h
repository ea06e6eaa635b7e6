/* Numbers for tests: a generator, the four value types and the operations, all written apart from
 * the library, so that both can't be wrong in the same way. */
#ifndef RILL_TESTS_VALUES_H
#define RILL_TESTS_VALUES_H

#include "rill/rill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers (splitmix64) ---------------------------------------------------------- */

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r) {
    uint64_t z = (r->state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}
static inline rng rng_make(uint64_t seed, uint64_t stream) {
    rng r = {seed * UINT64_C(0xD1342543DE82EF95) + stream * UINT64_C(0x2545F4914F6CDD1D) + 1};
    rng_next(&r);
    return r;
}
static inline uint64_t rng_below(rng *r, uint64_t n) { return n ? rng_next(r) % n : 0; }
static inline double rng_unit(rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }
static inline double rng_normal(rng *r) {
    return sqrt(-2 * log(1 - rng_unit(r))) * cos(6.283185307179586 * rng_unit(r));
}

/* ---- value types -------------------------------------------------------------------------- */

#define TYPE_COUNT 4
static const rill_type test_types[TYPE_COUNT] = {RILL_F32, RILL_F64, RILL_F16, RILL_BF16};

static inline size_t value_size(rill_type type) {
    return type == RILL_F64 ? 8 : type == RILL_F32 ? 4 : 2;
}

static inline double f16_load(uint16_t h) {
    int exponent = (h >> 10) & 31, fraction = h & 1023;
    double x = exponent == 31  ? (fraction ? (double)NAN : (double)INFINITY)
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -x : x;
}
static inline uint16_t f16_store(double x) {
    unsigned sign = signbit(x) ? 0x8000u : 0u;
    double a = fabs(x);
    if (isnan(x)) return (uint16_t)(sign | 0x7E00u);
    if (a >= 65520.0) return (uint16_t)(sign | 0x7C00u);
    if (a < 0x1p-14) return (uint16_t)(sign | (unsigned)rint(a * 0x1p24));
    int e;
    frexp(a, &e); /* a = [0.5, 1) * 2^e */
    /* 1024..2048: a carry to 2048 rightly moves on to the next exponent. */
    unsigned scaled = (unsigned)rint(ldexp(a, 11 - e));
    return (uint16_t)(sign | ((((unsigned)(e + 14)) << 10) + (scaled - 1024u)));
}
static inline double bf16_load(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return (double)f;
}
static inline uint16_t bf16_store(double x) {
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (isnan(f)) return (uint16_t)((bits >> 16) | 0x40u);
    uint32_t low = bits & 0xFFFFu, high = bits >> 16;
    if (low > 0x8000u || (low == 0x8000u && (high & 1u))) high++;
    return (uint16_t)high;
}

static inline double value_load(rill_type type, const void *array, uint64_t i) {
    switch (type) {
    case RILL_F32: return (double)((const float *)array)[i];
    case RILL_F64: return ((const double *)array)[i];
    case RILL_F16: return f16_load(((const uint16_t *)array)[i]);
    case RILL_BF16: return bf16_load(((const uint16_t *)array)[i]);
    }
    return (double)NAN;
}
static inline void value_store(rill_type type, void *array, uint64_t i, double x) {
    switch (type) {
    case RILL_F32: ((float *)array)[i] = (float)x; break;
    case RILL_F64: ((double *)array)[i] = x; break;
    case RILL_F16: ((uint16_t *)array)[i] = f16_store(x); break;
    case RILL_BF16: ((uint16_t *)array)[i] = bf16_store(x); break;
    }
}
/* Equal as numbers; a NaN equals a NaN. */
static inline int value_same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }
/* Unit roundoff of a type. */
static inline double value_epsilon(rill_type type) {
    return type == RILL_F64   ? 0x1p-53
           : type == RILL_F32 ? 0x1p-24
           : type == RILL_F16 ? 0x1p-11
                              : 0x1p-8;
}

/* ---- operations --------------------------------------------------------------------------- */

typedef enum test_op { OP_SUM, OP_MIN, OP_MAX, OP_PROD, OP_USER, OP_COUNT } test_op;

static const char *const test_op_names[OP_COUNT] = {"sum", "min", "max", "prod", "user"};

/* The user's operation is a minimum with a neutral element that is no special number, and that all
 * four types hold exactly. Values of tests are below it. */
#define USER_NEUTRAL 1000.0

static inline double op_neutral(test_op op) {
    switch (op) {
    case OP_MIN: return (double)INFINITY;
    case OP_MAX: return -(double)INFINITY;
    case OP_PROD: return 1.0;
    case OP_USER: return USER_NEUTRAL;
    default: return 0.0;
    }
}
static inline double op_apply(test_op op, double a, double b) {
    if (isnan(a) || isnan(b)) return (double)NAN;
    switch (op) {
    case OP_MIN:
    case OP_USER: return a < b ? a : b;
    case OP_MAX: return a > b ? a : b;
    case OP_PROD: return a * b;
    default: return a + b;
    }
}
static inline void user_op_fn(const void *lower, const void *upper, void *result, uint64_t n,
                              rill_type type, void *context) {
    if (context) ++*(uint64_t *)context;
    for (uint64_t i = 0; i < n; i++)
        value_store(type, result, i,
                    op_apply(OP_USER, value_load(type, lower, i), value_load(type, upper, i)));
}
/* user: an operation made of user_op_fn. */
static inline const rill_op *op_rill(test_op op, const rill_op *user) {
    switch (op) {
    case OP_MIN: return RILL_MIN;
    case OP_MAX: return RILL_MAX;
    case OP_PROD: return RILL_PROD;
    case OP_USER: return user;
    default: return RILL_SUM;
    }
}

/* A value of which up to 30 contributions combine exactly in every type: small integers; for
 * products powers of two whose signs of exponent alternate with who, so that no f16 overflows. */
static inline double op_exact_value(test_op op, rng *r, int who) {
    if (op == OP_PROD) {
        static const double even[4] = {1, -1, 2, 2}, odd[4] = {1, -1, 0.5, 0.5};
        return (who & 1 ? odd : even)[rng_below(r, 4)];
    }
    double x = (double)(1 + rng_below(r, 7));
    return rng_next(r) & 1 ? x : -x;
}

#endif
