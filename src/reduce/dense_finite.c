/* Loops over dense vectors whose values may not be finite. In chunks: whether one has such a value is found out while it is
 * in the nearest cache, and costs next to nothing. */
#include "reduce/reducer.h"
#include "select/select_kernels.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 1024 }; /* values */

bool rill__dense_is_finite(rill_type type, const void *from, uint64_t n) {
    return !rill__select_kernels_get()->nonfinite(type, from, n);
}

uint64_t rill__dense_drop_nonfinite(rill_type type, void *values, uint64_t n) {
    size_t size = rill__type_size(type);
    uint64_t dropped = 0;
    for (uint64_t at = 0, step; at < n; at += step) {
        step = rill__min_u64(CHUNK, n - at);
        char *chunk = (char *)values + at * size;
        if (rill__dense_is_finite(type, chunk, step)) continue;
        for (uint64_t i = 0; i < step; i++) {
            if (isfinite(rill__value_load(type, chunk + i * size))) continue;
            memset(chunk + i * size, 0, size);
            dropped++;
        }
    }
    return dropped;
}

bool rill__dense_add_finite(rill_type type, void *into, const void *from, uint64_t n) {
    uint32_t none[RILL__SLACK / sizeof(uint32_t)];
    bool skipped = false;
    rill__select_kernels_get()->add_filter(type, into, from, n, rill__key_none(type), 0, none,
                                           &skipped);
    return !skipped;
}

/* The one case that cannot be told: finite values whose sum overflowed were not added, and are subtracted all the same. */
void rill__dense_subtract_finite(rill_type type, void *into, const void *from, uint64_t n) {
    size_t size = rill__type_size(type);
    char clean[CHUNK * sizeof(double)];
    for (uint64_t at = 0, step; at < n; at += step) {
        step = rill__min_u64(CHUNK, n - at);
        memcpy(clean, (const char *)from + at * size, step * size);
        rill__dense_drop_nonfinite(type, clean, step);
        rill__dense_add_scaled(type, (char *)into + at * size, -1, clean, step);
        rill__dense_drop_nonfinite(type, (char *)into + at * size, step);
    }
}

bool rill__dense_decay_add_finite(rill_type type, void *into, double factor, const void *from,
                                  uint64_t n) {
    size_t size = rill__type_size(type);
    for (uint64_t at = 0, step; at < n; at += step) {
        step = rill__min_u64(CHUNK, n - at);
        const void *chunk = (const char *)from + at * size;
        if (!rill__dense_is_finite(type, chunk, step)) {
            rill__dense_undecay(type, into, factor, from, at);
            return false;
        }
        rill__dense_decay_add(type, (char *)into + at * size, factor, chunk, step);
    }
    return true;
}

void rill__dense_undecay(rill_type type, void *into, double factor, const void *from, uint64_t n) {
    rill__dense_subtract_finite(type, into, from, n);
    rill__dense_divide(type, into, into, factor, n);
}

bool rill__dense_divide_finite(rill_type type, void *into, const void *from, double divisor,
                               uint64_t n) {
    size_t size = rill__type_size(type);
    bool finite = true;
    for (uint64_t at = 0, step; at < n; at += step) {
        step = rill__min_u64(CHUNK, n - at);
        char *to = (char *)into + at * size;
        rill__dense_divide(type, to, (const char *)from + at * size, divisor, step);
        finite = rill__dense_is_finite(type, to, step) && finite;
    }
    return finite;
}

void rill__dense_fill(rill_type type, void *into, double value, uint64_t n) {
    uint64_t bits = 0;
    rill__value_store(type, &bits, value);
    rill__assign_fill(type, into, n, &bits);
}
