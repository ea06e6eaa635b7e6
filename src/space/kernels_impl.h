/* What the kernel files share: tile sizes, neutral elements, and comparison with a fill value. */
#ifndef RILL_SPACE_KERNELS_IMPL_H
#define RILL_SPACE_KERNELS_IMPL_H

#include "space/kernels.h"

#include <math.h>
#include <string.h>

#define RILL__INLINE static inline __attribute__((always_inline))

/* Workspace of sum_tiles: accumulators of the largest tile, then one byte per index that says
 * whether it occurred. A byte costs one plain store per input element, where a bitmap would chain
 * the neighbours of a word through memory. */
#define RILL__TILE_MAX 65536u
#define RILL__TILE_CURSORS 256 /* inputs whose positions are kept on the stack */

RILL__INLINE size_t rill__acc_bytes(rill_type type) { return type == RILL_F64 ? 8 : 4; }
RILL__INLINE unsigned char *rill__tile_map(rill_type type, void *workspace) {
    return (unsigned char *)workspace + RILL__TILE_MAX * rill__acc_bytes(type) + RILL__SLACK;
}

/* x where identity op x = x bit by bit: for sums that is -0.0, as 0.0 + -0.0 is 0.0. */
RILL__INLINE double rill__identity(rill__op_kind kind) {
    switch (kind) {
    case RILL__MIN: return (double)INFINITY;
    case RILL__MAX: return -(double)INFINITY;
    case RILL__PROD: return 1.0;
    default: return -0.0;
    }
}

/* MIN and MAX: the first NaN wins; ties (also of -0.0 and 0.0) keep a. */
RILL__INLINE float rill__apply_f32(rill__op_kind kind, float a, float b) {
    switch (kind) {
    case RILL__MIN: return a != a ? a : b != b ? b : b < a ? b : a;
    case RILL__MAX: return a != a ? a : b != b ? b : b > a ? b : a;
    case RILL__PROD: return a * b;
    default: return a + b;
    }
}
RILL__INLINE double rill__apply_f64(rill__op_kind kind, double a, double b) {
    switch (kind) {
    case RILL__MIN: return a != a ? a : b != b ? b : b < a ? b : a;
    case RILL__MAX: return a != a ? a : b != b ? b : b > a ? b : a;
    case RILL__PROD: return a * b;
    default: return a + b;
    }
}

/* "Equal as numbers" in integer arithmetic: x matches if (x & mask) == want, or, for a NaN, if
 * (x & mask) > want. */
typedef struct rill__matcher {
    uint64_t mask, want;
    bool nan;
} rill__matcher;

RILL__INLINE rill__matcher rill__matcher_of(rill_type type, const void *value) {
    uint64_t infinity = 0x7c00, bits = 0;
    unsigned width = 16;
    if (type == RILL_F64) {
        memcpy(&bits, value, 8);
        width = 64;
        infinity = UINT64_C(0x7ff0000000000000);
    } else if (type == RILL_F32) {
        uint32_t u;
        memcpy(&u, value, 4);
        bits = u;
        width = 32;
        infinity = 0x7f800000;
    } else {
        uint16_t u;
        memcpy(&u, value, 2);
        bits = u;
        if (type == RILL_BF16) infinity = 0x7f80;
    }
    uint64_t all = ~UINT64_C(0) >> (64 - width), magnitude = all >> 1;
    if ((bits & magnitude) > infinity) return (rill__matcher){magnitude, infinity, true};
    if (!(bits & magnitude)) return (rill__matcher){magnitude, 0, false};
    return (rill__matcher){all, bits, false};
}

/* Prefetches the next pairs of an input of sum_tiles: many short streams defeat the hardware. */
RILL__INLINE void rill__prefetch(rill__pairs p, uint64_t at, uint64_t ahead, size_t index_bytes,
                                 size_t value_bytes) {
    uint64_t end = rill__min_u64(p.n, at + ahead);
    for (uint64_t q = at; q < end; q += 64 / index_bytes)
        __builtin_prefetch((const char *)p.idx + q * index_bytes, 0, 2);
    for (uint64_t q = at; q < end; q += 64 / value_bytes)
        __builtin_prefetch((const char *)p.val + q * value_bytes, 0, 2);
}

/* Of n ascending indices: position of the first that is not in [first, first + range). A search is
 * enough, as only the first can lie below. */
RILL__INLINE uint64_t rill__check_range(unsigned index_bytes, const void *idx, uint64_t n,
                                        uint64_t first, uint64_t range) {
    if (!n || rill__index_at(index_bytes, idx, 0) < first) return 0;
    if (rill__index_at(index_bytes, idx, n - 1) - first < range) return n;
    uint64_t low = 0, high = n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (rill__index_at(index_bytes, idx, middle) - first < range) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Calls f_<type>_<index_bytes>. */
#define RILL__BY_SHAPE(shape, f, ...)                                                              \
    switch ((shape).type) {                                                                        \
    case RILL_F32:                                                                                 \
        return (shape).index_bytes == 4 ? f##_f32_4(__VA_ARGS__) : f##_f32_8(__VA_ARGS__);         \
    case RILL_F64:                                                                                 \
        return (shape).index_bytes == 4 ? f##_f64_4(__VA_ARGS__) : f##_f64_8(__VA_ARGS__);         \
    case RILL_F16:                                                                                 \
        return (shape).index_bytes == 4 ? f##_f16_4(__VA_ARGS__) : f##_f16_8(__VA_ARGS__);         \
    case RILL_BF16:                                                                                \
        return (shape).index_bytes == 4 ? f##_bf16_4(__VA_ARGS__) : f##_bf16_8(__VA_ARGS__);       \
    }                                                                                              \
    return 0

#endif
