/* What the tests of selection share: data, options, views. */
#ifndef RILL_TESTS_TEST_SELECT_H
#define RILL_TESTS_TEST_SELECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/data.h"

#include "core/isa.h"
#include "select/select.h"

static const char *const isas[] = {"scalar", "avx2", "avx512"};
enum { ISAS = 3 };

/* The entries that topk's sample reads, to mislead it. */
static inline bool in_sample(rill_type type, uint64_t dim, uint64_t i) {
    uint64_t line = 64 / value_size(type), lines = 4096 / line, stride = dim / lines;
    if (dim <= 8192 || i / stride >= lines) return false;
    uint64_t x = i / stride + 1;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    uint64_t at = (x ^ (x >> 31)) % (stride - line + 1);
    return i % stride >= at && i % stride < at + line;
}

static inline void fill(void *x, enum data kind, rill_type type, uint64_t dim, uint64_t seed) {
    data_make(kind, type, dim, seed, in_sample, x);
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
