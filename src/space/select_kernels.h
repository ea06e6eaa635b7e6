/* The inner loops of selection, one implementation per instruction set (select_kernels_<isa>.c).
 * Every one gives the same results as select_kernels_scalar.c.
 *
 * Magnitudes are compared as integers: the key of a value is its bits without the sign, which order
 * as the magnitudes do, zeros and subnormals included. All NaNs have the key just above infinity's.
 * Keys travel as uint64_t; arrays of keys hold uint32_t, or uint64_t for f64. */
#ifndef RILL_SPACE_SELECT_KERNELS_H
#define RILL_SPACE_SELECT_KERNELS_H

#include "space/kernels.h"

/* Entries that a scan gives to filter at once. Values are taken behind it, from L1; the shorter the
 * chunk, the better that overlaps with the reads of the next, and the more calls there are. */
#define RILL__SELECT_CHUNK 1024

/* A key that is above all others: no value passes it. */
static inline uint64_t rill__key_none(rill_type type) {
    return UINT64_C(1) << (rill__type_size(type) * 8 - 1);
}
static inline uint64_t rill__key_nan(rill_type type) {
    switch (type) {
    case RILL_F32: return 0x7f800001u;
    case RILL_F16: return 0x7c01u;
    case RILL_BF16: return 0x7f81u;
    default: return UINT64_C(0x7ff0000000000001);
    }
}
/* The next key that filter may be asked for. */
static inline uint64_t rill__key_above(rill_type type, uint64_t key) {
    return key < rill__key_nan(type) ? key + 1 : rill__key_none(type);
}
static inline size_t rill__key_bytes(rill_type type) { return type == RILL_F64 ? 8 : 4; }

typedef struct rill__kth {
    uint64_t key;   /* the rank-th largest */
    uint64_t above; /* how many are larger */
    uint64_t equal; /* how many are the same, itself included */
} rill__kth;

/* src, residual and gradient are the user's memory: nothing past their end is touched. The other
 * arrays are ours and have RILL__SLACK bytes past their end. */
typedef struct rill__select_kernels {
    const char *isa;

    /* idx = base + i for each i < n whose src[i] has at least this key; returns how many. Room for
     * n entries; for none (slack only) where the key is rill__key_none, which a key above
     * rill__key_nan must be. */
    uint64_t (*filter)(rill_type, const void *src, uint64_t n, uint64_t key, uint32_t base,
                       uint32_t *idx);

    /* The same after residual[i] += gradient[i] (16-bit types: in f32, rounded to nearest even).
     * Unless skipped is NULL, an entry whose sum is not finite stays as it was, and *skipped
     * becomes true. */
    uint64_t (*add_filter)(rill_type, void *residual, const void *gradient, uint64_t n,
                           uint64_t key, uint32_t base, uint32_t *idx, bool *skipped);

    /* As add_filter, and takes the entries at once: val[j] = residual[idx[j] - base], which becomes
     * 0. Room for n entries in both. Faster than add_filter where about 1 in 24 or more is
     * taken. */
    uint64_t (*add_take)(rill_type, void *residual, const void *gradient, uint64_t n, uint64_t key,
                         uint32_t base, uint32_t *idx, void *val, bool *skipped);

    /* Whether any of n values is a NaN or an infinity. */
    bool (*nonfinite)(rill_type, const void *src, uint64_t n);

    /* The pairs whose key is in [low, high), in order; outputs may be the inputs, or lie before
     * them in the same array. Nothing from the n-th output on is written. */
    uint64_t (*keep)(rill__shape, const void *idx, const void *val, uint64_t n, uint64_t low,
                     uint64_t high, void *out_idx, void *out_val);

    /* The keys in [low, high) of n values, in order. val may be the user's memory. */
    uint64_t (*keys)(rill_type, const void *val, uint64_t n, uint64_t low, uint64_t high,
                     void *keys);

    /* The rank-th largest (1 to n) of n keys. scratch has room for n keys, and may be keys itself
     * if those need not be kept. */
    rill__kth (*kth)(rill_type, const void *keys, uint64_t n, uint64_t rank, void *scratch);

    /* sums[0] = sum, sums[1] = sum of squares, in double and in a fixed order. */
    void (*moments)(rill_type, const void *src, uint64_t n, double *sums);
} rill__select_kernels;

extern const rill__select_kernels rill__select_kernels_scalar;
#ifdef RILL_HAVE_AVX2
extern const rill__select_kernels rill__select_kernels_avx2;
#endif
#ifdef RILL_HAVE_AVX512
extern const rill__select_kernels rill__select_kernels_avx512;
#endif

#endif
