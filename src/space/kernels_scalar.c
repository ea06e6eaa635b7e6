/* Portable kernels, and the definition of what every other implementation must give, bit by bit.
 *
 * The loops select without branches, as the order of indices of two inputs can't be predicted: a
 * merge costs about 2 ns an element of the inputs, a branchy one 4 to 5 (2 x 160k in 16M). Tiles
 * cost 3 to 4 ns an input element for unions over 30 %, most of it for emitting in order; the
 * inputs are prefetched a tile ahead. */
#include "space/kernels_impl.h"

#define SCALAR_TILE 16384u /* accumulators of 64 KiB and a map of 16 KiB */

/* Of a word read from memory: number of the first byte that is set (each is 0 or 1), and the word
 * without it. */
RILL__INLINE unsigned rill__first_byte(uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (unsigned)__builtin_clzll(word) / 8;
#else
    return (unsigned)__builtin_ctzll(word) / 8;
#endif
}
RILL__INLINE uint64_t rill__clear_byte(uint64_t word, unsigned byte) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return word & ~(UINT64_C(0xff) << (56 - 8 * byte));
#else
    return word & ~(UINT64_C(0xff) << 8 * byte);
#endif
}

/* ---- one instance per type of values and of indices ---------------------------------------- */

#define KEEP(x) (x)

#define VALUE float
#define BITS uint32_t
#define ACC float
#define LOAD KEEP
#define STORE KEEP
#define APPLY rill__apply_f32
#define TYPE RILL_F32
#define CHEAP 1
#define NAME(x) x##_f32_4
#define INDEX uint32_t
#include "space/kernels_scalar.inc"
#define NAME(x) x##_f32_8
#define INDEX uint64_t
#include "space/kernels_scalar.inc"
#undef VALUE
#undef BITS
#undef ACC
#undef APPLY
#undef TYPE

#define VALUE double
#define BITS uint64_t
#define ACC double
#define APPLY rill__apply_f64
#define TYPE RILL_F64
#define NAME(x) x##_f64_4
#define INDEX uint32_t
#include "space/kernels_scalar.inc"
#define NAME(x) x##_f64_8
#define INDEX uint64_t
#include "space/kernels_scalar.inc"
#undef VALUE
#undef BITS
#undef ACC
#undef LOAD
#undef STORE
#undef APPLY
#undef TYPE
#undef CHEAP

#define VALUE uint16_t
#define BITS uint16_t
#define ACC float
#define LOAD rill__f16_to_f32
#define STORE rill__f16_from_f32
#define APPLY rill__apply_f32
#define TYPE RILL_F16
#define CHEAP 0
#define NAME(x) x##_f16_4
#define INDEX uint32_t
#include "space/kernels_scalar.inc"
#define NAME(x) x##_f16_8
#define INDEX uint64_t
#include "space/kernels_scalar.inc"
#undef LOAD
#undef STORE
#undef TYPE

#define LOAD rill__bf16_to_f32
#define STORE rill__bf16_from_f32
#define TYPE RILL_BF16
#define NAME(x) x##_bf16_4
#define INDEX uint32_t
#include "space/kernels_scalar.inc"
#define NAME(x) x##_bf16_8
#define INDEX uint64_t
#include "space/kernels_scalar.inc"

static uint64_t merge(rill__shape shape, const rill_op *op, rill__pairs a, rill__pairs b, void *idx,
                      void *val) {
    RILL__BY_SHAPE(shape, merge, op, a, b, idx, val);
}

static uint64_t sum_tiles(rill__shape shape, const rill_op *op, uint64_t first, uint64_t range,
                          int n, const rill__pairs *in, void *idx, void *val, void *workspace) {
    RILL__BY_SHAPE(shape, tiles, op, first, range, n, in, idx, val, workspace);
}

static uint64_t compact(rill__shape shape, const void *dense, uint64_t first, uint64_t n,
                        const void *fill, uint64_t limit, void *idx, void *val) {
    rill__matcher matcher = rill__matcher_of(shape.type, fill);
    RILL__BY_SHAPE(shape, compact, dense, first, n, matcher, limit, idx, val);
}

static int scatter_shape(rill__shape shape, const rill_op *op, void *dense, uint64_t first,
                         rill__pairs p) {
#define CALL_F(f) (f(op, dense, first, p), 0)
    switch (shape.type) {
    case RILL_F32: return shape.index_bytes == 4 ? CALL_F(scatter_f32_4) : CALL_F(scatter_f32_8);
    case RILL_F64: return shape.index_bytes == 4 ? CALL_F(scatter_f64_4) : CALL_F(scatter_f64_8);
    case RILL_F16: return shape.index_bytes == 4 ? CALL_F(scatter_f16_4) : CALL_F(scatter_f16_8);
    case RILL_BF16: return shape.index_bytes == 4 ? CALL_F(scatter_bf16_4) : CALL_F(scatter_bf16_8);
    }
#undef CALL_F
    return 0;
}
static void scatter(rill__shape shape, const rill_op *op, void *dense, uint64_t first,
                    rill__pairs p) {
    scatter_shape(shape, op, dense, first, p);
}

/* ---- without indices ------------------------------------------------------------------------ */

RILL__INLINE void combine_kind(rill__op_kind kind, rill_type type, void *out, const void *lower,
                               const void *upper, uint64_t n) {
    if (type == RILL_F32) {
        const float *a = lower, *b = upper;
        for (uint64_t i = 0; i < n; i++)
            ((float *)out)[i] = rill__apply_f32(kind, a[i], b[i]);
    } else if (type == RILL_F64) {
        const double *a = lower, *b = upper;
        for (uint64_t i = 0; i < n; i++)
            ((double *)out)[i] = rill__apply_f64(kind, a[i], b[i]);
    } else if (type == RILL_F16) {
        const uint16_t *a = lower, *b = upper;
        for (uint64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = rill__f16_from_f32(
                rill__apply_f32(kind, rill__f16_to_f32(a[i]), rill__f16_to_f32(b[i])));
    } else {
        const uint16_t *a = lower, *b = upper;
        for (uint64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = rill__bf16_from_f32(
                rill__apply_f32(kind, rill__bf16_to_f32(a[i]), rill__bf16_to_f32(b[i])));
    }
}

/* A user's function may write result only as lower; where out is upper, the result takes a detour
 * through a small buffer. */
static void combine_user(rill_type type, const rill_op *op, char *out, const char *lower,
                         const char *upper, uint64_t n) {
    if (out != upper) {
        op->fn(lower, upper, out, n, type, op->context);
        return;
    }
    double piece[128];
    size_t size = rill__type_size(type);
    uint64_t most = sizeof piece / size;
    for (uint64_t i = 0; i < n; i += most) {
        uint64_t count = rill__min_u64(n - i, most);
        op->fn(lower + i * size, upper + i * size, piece, count, type, op->context);
        memcpy(out + i * size, piece, count * size);
    }
}

static void combine(rill_type type, const rill_op *op, void *out, const void *lower,
                    const void *upper, uint64_t n) {
    switch (op->kind) {
    case RILL__SUM: combine_kind(RILL__SUM, type, out, lower, upper, n); break;
    case RILL__MIN: combine_kind(RILL__MIN, type, out, lower, upper, n); break;
    case RILL__MAX: combine_kind(RILL__MAX, type, out, lower, upper, n); break;
    case RILL__PROD: combine_kind(RILL__PROD, type, out, lower, upper, n); break;
    case RILL__USER:
        if (n) combine_user(type, op, out, lower, upper, n);
        break;
    }
}

static uint64_t check(unsigned index_bytes, const void *idx, uint64_t n, uint64_t first,
                      uint64_t range) {
    uint64_t last = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x = index_bytes == 4 ? ((const uint32_t *)idx)[i] : ((const uint64_t *)idx)[i];
        if (x - first >= range || (i && x <= last)) return i;
        last = x;
    }
    return n;
}

static void fill(rill_type type, void *dst, uint64_t n, const void *value) {
    if (type == RILL_F64) {
        uint64_t v;
        memcpy(&v, value, 8);
        for (uint64_t i = 0; i < n; i++)
            ((uint64_t *)dst)[i] = v;
    } else if (type == RILL_F32) {
        uint32_t v;
        memcpy(&v, value, 4);
        for (uint64_t i = 0; i < n; i++)
            ((uint32_t *)dst)[i] = v;
    } else {
        uint16_t v;
        memcpy(&v, value, 2);
        for (uint64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = v;
    }
}

#define REPLACE(BITS_)                                                                             \
    do {                                                                                           \
        const BITS_ *s = src;                                                                      \
        BITS_ new, mask = (BITS_)m.mask, want = (BITS_)m.want;                                     \
        memcpy(&new, to, sizeof new);                                                              \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            BITS_ v = s[i], x = (BITS_)(v & mask);                                                 \
            ((BITS_ *)dst)[i] = (m.nan ? x > want : x == want) ? new : v;                          \
        }                                                                                          \
    } while (0)

static void replace(rill_type type, void *dst, const void *src, uint64_t n, const void *from,
                    const void *to) {
    rill__matcher m = rill__matcher_of(type, from);
    if (type == RILL_F64) REPLACE(uint64_t);
    else if (type == RILL_F32) REPLACE(uint32_t);
    else REPLACE(uint16_t);
}

size_t rill__tiles_workspace(rill__shape shape) {
    return RILL__TILE_MAX * (rill__acc_bytes(shape.type) + 1) + (size_t)2 * RILL__SLACK;
}

const rill__kernels rill__kernels_scalar = {"scalar", merge, sum_tiles, scatter, combine,
                                            compact,  check, NULL,      NULL,    NULL,
                                            NULL,     fill,  replace};
