/* What the tests of selection share: data that is meant to hurt, options, views. */
#ifndef RILL_TESTS_TEST_SELECT_H
#define RILL_TESTS_TEST_SELECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/values.h"

#include "core/isa.h"
#include "select/select.h"

static const char *const isas[] = {"scalar", "avx2", "avx512"};
enum { ISAS = 3 };

/* ---- data --------------------------------------------------------------------------------- */

enum data {
    NORMAL,
    HEAVY,
    CONSTANT,
    ZERO,
    SPARSE,
    SPECIAL,
    SUBNORMAL,
    TIES,
    ASCENDING,
    ALTERNATING,
    UNEVEN, /* no bucket tells about the next; every third is full of ties */
    SAMPLED_LARGE,
    SAMPLED_SMALL,
    DATA
};

static inline double normal(rng *r) {
    return sqrt(-2 * log(1 - rng_unit(r))) * cos(6.283185307179586 * rng_unit(r));
}

/* The entries that topk's sample reads, to mislead it. */
static inline int in_sample(rill_type type, uint64_t dim, uint64_t i) {
    uint64_t line = 64 / value_size(type), lines = 4096 / line, stride = dim / lines;
    if (dim <= 8192 || i / stride >= lines) return 0;
    uint64_t x = i / stride + 1;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    uint64_t at = (x ^ (x >> 31)) % (stride - line + 1);
    return i % stride >= at && i % stride < at + line;
}

static inline double datum(enum data kind, rill_type type, uint64_t dim, uint64_t i, rng *r) {
    double sign = rng_next(r) & 1 ? 1 : -1, tiny = type == RILL_F64   ? 0x1p-1070
                                                   : type == RILL_F32 ? 0x1p-145
                                                   : type == RILL_F16 ? 0x1p-24
                                                                      : 0x1p-133;
    switch (kind) {
    case NORMAL: return normal(r);
    case HEAVY: return sign * fmin(1e-3 * pow(1 - rng_unit(r), -1 / 1.5), 6e4);
    case CONSTANT: return 0.5;
    case ZERO: return i % 3 ? 0.0 : -0.0;
    case SPARSE: return rng_below(r, 1000) ? 0.0 : normal(r);
    case SPECIAL: {
        uint64_t what = rng_below(r, 40);
        return what == 0   ? (double)NAN
               : what == 1 ? sign * (double)INFINITY
               : what == 2 ? 0.0
                           : normal(r);
    }
    case SUBNORMAL: return sign * tiny * (double)rng_below(r, 9);
    case TIES: return sign * (double)rng_below(r, 4);
    case ASCENDING: return sign * (double)(i + 1) / (double)dim;
    case ALTERNATING: return i & 1 ? -1.0 : 1.0;
    case UNEVEN: return i / 100 % 3 ? normal(r) * (i / 512 % 2 ? 1000 : 1) : sign * 7;
    case SAMPLED_LARGE: return in_sample(type, dim, i) ? 100 + rng_unit(r) : rng_unit(r);
    default: return in_sample(type, dim, i) ? 1e-3 : 1 + rng_unit(r);
    }
}

static inline void fill(void *x, enum data kind, rill_type type, uint64_t dim, uint64_t seed) {
    rng r = rng_make(seed, kind);
    for (uint64_t i = 0; i < dim; i++)
        value_store(type, x, i, datum(kind, type, dim, i, &r));
}

static inline uint64_t index_at(const rill_stream *s, uint64_t i) {
    return rill_stream_indices32(s)[i];
}

static inline rill_select_options method(const char *name, uint64_t k, double density) {
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = name;
    o.k = k;
    o.density = density;
    return o;
}

#endif
