/* Arrays that are meant to hurt whoever selects from them, codes them or adds them up. */
#ifndef RILL_TESTS_DATA_H
#define RILL_TESTS_DATA_H

#include "values.h"

#include <stdbool.h>

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
    CLUSTERED,
    SAMPLED_LARGE, /* the entries that topk's sample reads are unlike the others */
    SAMPLED_SMALL,
    DATA
};
static const char *const data_names[DATA] = {"normal",        "heavy",        "constant",
                                             "zero",          "sparse",       "special",
                                             "subnormal",     "ties",         "ascending",
                                             "alternating",   "uneven",       "clustered",
                                             "sampled large", "sampled small"};

/* Whether a sample reads entry i. */
typedef bool data_sample(rill_type, uint64_t dim, uint64_t i);

static inline double datum(enum data kind, rill_type type, uint64_t dim, uint64_t i, rng *r,
                           data_sample *in_sample) {
    double sign = rng_next(r) & 1 ? 1 : -1;
    double tiny = type == RILL_F64   ? 0x1p-1070
                  : type == RILL_F32 ? 0x1p-145
                  : type == RILL_F16 ? 0x1p-24
                                     : 0x1p-133;
    switch (kind) {
    case NORMAL: return rng_normal(r);
    case HEAVY: return sign * fmin(1e-3 * pow(1 - rng_unit(r), -1 / 1.5), 6e4);
    case CONSTANT: return 0.5;
    case ZERO: return i % 3 ? 0.0 : -0.0;
    case SPARSE: return rng_below(r, 300) ? 0.0 : rng_normal(r);
    case SPECIAL: {
        uint64_t what = rng_below(r, 50);
        return what == 0   ? (double)NAN
               : what == 1 ? sign * (double)INFINITY
               : what == 2 ? 0.0
               : what == 3 ? sign * 3e38 /* sums overflow */
                           : rng_normal(r);
    }
    case SUBNORMAL: return sign * tiny * (double)rng_below(r, 9);
    case TIES: return sign * (double)rng_below(r, 4);
    case ASCENDING: return sign * (double)(i + 1) / (double)dim;
    case ALTERNATING: return i & 1 ? -1.0 : 1.0;
    case UNEVEN: return i / 100 % 3 ? rng_normal(r) * (i / 512 % 2 ? 1000 : 1) : sign * 7;
    case CLUSTERED: return i / (dim / 20 + 1) == 7 ? rng_normal(r) * 100 : rng_normal(r);
    case SAMPLED_LARGE: return in_sample(type, dim, i) ? 100 + rng_unit(r) : rng_unit(r);
    default: return in_sample(type, dim, i) ? 1e-3 : 1 + rng_unit(r);
    }
}

static inline void data_make(enum data kind, rill_type type, uint64_t dim, uint64_t seed,
                             data_sample *in_sample, void *values) {
    rng r = rng_make(seed, kind);
    for (uint64_t i = 0; i < dim; i++)
        value_store(type, values, i, datum(kind, type, dim, i, &r, in_sample));
}

#endif
