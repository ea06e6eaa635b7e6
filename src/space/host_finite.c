/* The host's operations on dense vectors whose values may not be finite. In chunks: whether one has
 * such a value is found out while it is in the nearest cache, and costs next to nothing. */
#include "space/host.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 1024 }; /* values */

bool rill__host_is_finite(const rill__select_kernels *k, rill_type type, const void *from,
                          uint64_t n) {
    return !k->nonfinite(type, from, n);
}

uint64_t rill__host_drop_nonfinite(const rill__select_kernels *k, rill_type type, void *values,
                                   uint64_t n) {
    size_t size = rill__type_size(type);
    uint64_t dropped = 0;
    for (uint64_t at = 0, step; at < n; at += step) {
        step = rill__min_u64(CHUNK, n - at);
        char *chunk = (char *)values + at * size;
        if (rill__host_is_finite(k, type, chunk, step)) continue;
        for (uint64_t i = 0; i < step; i++) {
            if (isfinite(rill__value_load(type, chunk + i * size))) continue;
            memset(chunk + i * size, 0, size);
            dropped++;
        }
    }
    return dropped;
}

bool rill__host_add_finite(const rill__select_kernels *k, rill_type type, void *into,
                           const void *from, uint64_t n) {
    uint32_t none[RILL__SLACK / sizeof(uint32_t)];
    bool skipped = false;
    k->add_filter(type, into, from, n, rill__key_none(type), 0, none, &skipped);
    return !skipped;
}

/* The one case that cannot be told: finite values whose sum overflowed were not added, and are
 * subtracted all the same. */
void rill__host_subtract_finite(const rill__select_kernels *k, rill_type type, void *into,
                                const void *from, uint64_t n) {
    size_t size = rill__type_size(type);
    char clean[CHUNK * sizeof(double)];
    for (uint64_t at = 0, step; at < n; at += step) {
        step = rill__min_u64(CHUNK, n - at);
        memcpy(clean, (const char *)from + at * size, step * size);
        rill__host_drop_nonfinite(k, type, clean, step);
        rill__host_add_scaled(type, (char *)into + at * size, -1, clean, step);
        rill__host_drop_nonfinite(k, type, (char *)into + at * size, step);
    }
}

bool rill__host_decay_add_finite(const rill__select_kernels *k, rill_type type, void *into,
                                 double factor, const void *from, uint64_t n) {
    size_t size = rill__type_size(type);
    for (uint64_t at = 0, step; at < n; at += step) {
        step = rill__min_u64(CHUNK, n - at);
        const void *chunk = (const char *)from + at * size;
        if (!rill__host_is_finite(k, type, chunk, step)) {
            rill__host_undecay(k, type, into, factor, from, at);
            return false;
        }
        rill__host_decay_add(type, (char *)into + at * size, factor, chunk, step);
    }
    return true;
}

void rill__host_undecay(const rill__select_kernels *k, rill_type type, void *into, double factor,
                        const void *from, uint64_t n) {
    rill__host_subtract_finite(k, type, into, from, n);
    rill__host_divide(type, into, into, factor, n);
}

bool rill__host_divide_finite(const rill__select_kernels *k, rill_type type, void *into,
                              const void *from, double divisor, uint64_t n) {
    size_t size = rill__type_size(type);
    bool finite = true;
    for (uint64_t at = 0, step; at < n; at += step) {
        step = rill__min_u64(CHUNK, n - at);
        char *to = (char *)into + at * size;
        rill__host_divide(type, to, (const char *)from + at * size, divisor, step);
        finite = rill__host_is_finite(k, type, to, step) && finite;
    }
    return finite;
}
