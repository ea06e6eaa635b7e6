/* Selection kernels for AVX-512 (F, BW, DQ, VL, VBMI, VBMI2).
 *
 * Filtering makes one 64-bit mask of 64 entries and compresses a register of bytes 0..63 by it: one
 * compression and mostly one store for 64 entries whatever the width of the values, without a
 * branch that depends on the data below 1 in 4. Values are fetched afterwards by index, from L1.
 * Compression is always into a register, never to memory, which takes hundreds of cycles on Zen 4.
 * Tails are copied to a local tile, because the user's arrays end where they end. */
#ifdef RILL_HAVE_AVX512
#include "space/select_kernels_avx512_simd.h"

/* ---- filter --------------------------------------------------------------------------------- */

RILL__INLINE __m512i widen_bytes(__m128i bytes, __m512i base) {
    return _mm512_add_epi32(_mm512_cvtepu8_epi32(bytes), base);
}

/* Appends base + i for each set bit i. Writes at most 128 bytes past the last. */
RILL__INLINE uint32_t *emit(uint64_t mask, __m512i base, __m512i bytes, uint32_t *out) {
    __m512i at = _mm512_maskz_compress_epi8(mask, bytes);
    unsigned count = (unsigned)_mm_popcnt_u64(mask);
    _mm512_storeu_si512(out, widen_bytes(_mm512_castsi512_si128(at), base));
    if (__builtin_expect(count > 16, 0)) {
        _mm512_storeu_si512(out + 16, widen_bytes(_mm512_extracti32x4_epi32(at, 1), base));
        if (count > 32) {
            _mm512_storeu_si512(out + 32, widen_bytes(_mm512_extracti32x4_epi32(at, 2), base));
            _mm512_storeu_si512(out + 48, widen_bytes(_mm512_extracti32x4_epi32(at, 3), base));
        }
    }
    return out + count;
}

RILL__INLINE __m512i iota_bytes(void) {
    uint8_t bytes[TILE];
    for (unsigned i = 0; i < TILE; i++)
        bytes[i] = (uint8_t)i;
    return _mm512_loadu_si512(bytes);
}

#define FILTER(name, bits_t, set_key)                                                              \
    static uint64_t filter_##name(const bits_t *x, uint64_t n, bits_t key, uint32_t base,          \
                                  uint32_t *idx) {                                                 \
        const __m512i bytes = iota_bytes(), step = _mm512_set1_epi32(TILE), least = set_key;       \
        __m512i at = _mm512_set1_epi32((int)base);                                                 \
        uint32_t *out = idx;                                                                       \
        uint64_t i = 0;                                                                            \
        for (; i + TILE <= n; i += TILE, at = _mm512_add_epi32(at, step))                          \
            out = emit(mask_##name(x + i, least), at, bytes, out);                                 \
        if (i < n) {                                                                               \
            bits_t tail[TILE] = {0};                                                               \
            memcpy(tail, x + i, (n - i) * sizeof *x);                                              \
            /* Zeros pass the key 0, and only that. */                                             \
            uint64_t live = (UINT64_C(1) << (n - i)) - 1;                                          \
            out = emit(mask_##name(tail, least) & live, at, bytes, out);                           \
        }                                                                                          \
        return (uint64_t)(out - idx);                                                              \
    }
FILTER(2, uint16_t, _mm512_set1_epi16((short)key))
FILTER(4, uint32_t, _mm512_set1_epi32((int)key))
FILTER(8, uint64_t, _mm512_set1_epi64((long long)key))

#define SET_16(key) _mm512_set1_epi16((short)(key))
#define SET_32(key) _mm512_set1_epi32((int)(key))
#define SET_64(key) _mm512_set1_epi64((long long)(key))

#define ADD_FILTER(type, value_t, set_key)                                                         \
    static uint64_t add_filter_##type(value_t *x, const value_t *g, uint64_t n, uint64_t key,      \
                                      uint64_t most, uint32_t base, uint32_t *idx,                 \
                                      bool *skipped) {                                             \
        const __m512i bytes = iota_bytes(), step = _mm512_set1_epi32(TILE), least = set_key(key);  \
        const __m512i limit = set_key(most);                                                       \
        bool over = false;                                                                         \
        __m512i at = _mm512_set1_epi32((int)base);                                                 \
        uint32_t *out = idx;                                                                       \
        uint64_t i = 0;                                                                            \
        for (; i + TILE <= n; i += TILE, at = _mm512_add_epi32(at, step))                          \
            out = emit(add_mask_##type(x + i, g + i, least, limit, &over), at, bytes, out);        \
        if (i < n) {                                                                               \
            value_t tail[TILE] = {0}, addend[TILE] = {0};                                          \
            memcpy(tail, x + i, (n - i) * sizeof *x);                                              \
            memcpy(addend, g + i, (n - i) * sizeof *x);                                            \
            uint64_t live = (UINT64_C(1) << (n - i)) - 1;                                          \
            out = emit(add_mask_##type(tail, addend, least, limit, &over) & live, at, bytes, out); \
            memcpy(x + i, tail, (n - i) * sizeof *x);                                              \
        }                                                                                          \
        if (over) *skipped = true;                                                                 \
        return (uint64_t)(out - idx);                                                              \
    }

#define ADD_TAKE(type, value_t, bits_t, set_key)                                                   \
    static uint64_t add_take_##type(value_t *x, const value_t *g, uint64_t n, uint64_t key,        \
                                    uint64_t most, uint32_t base, uint32_t *idx, bits_t *val,      \
                                    bool *skipped) {                                               \
        const __m512i bytes = iota_bytes(), step = _mm512_set1_epi32(TILE), least = set_key(key);  \
        const __m512i limit = set_key(most);                                                       \
        bool over = false;                                                                         \
        __m512i at = _mm512_set1_epi32((int)base);                                                 \
        uint32_t *out = idx;                                                                       \
        uint64_t i = 0;                                                                            \
        for (; i + TILE <= n; i += TILE, at = _mm512_add_epi32(at, step))                          \
            out = emit(take_mask_##type(x + i, g + i, least, limit, UINT64_MAX, &val, &over), at,  \
                       bytes, out);                                                                \
        if (i < n) {                                                                               \
            value_t tail[TILE] = {0}, addend[TILE] = {0};                                          \
            memcpy(tail, x + i, (n - i) * sizeof *x);                                              \
            memcpy(addend, g + i, (n - i) * sizeof *x);                                            \
            uint64_t live = (UINT64_C(1) << (n - i)) - 1;                                          \
            out = emit(take_mask_##type(tail, addend, least, limit, live, &val, &over), at, bytes, \
                       out);                                                                       \
            memcpy(x + i, tail, (n - i) * sizeof *x);                                              \
        }                                                                                          \
        if (over) *skipped = true;                                                                 \
        return (uint64_t)(out - idx);                                                              \
    }
#define ADD_BOTH(type, value_t, bits_t, set_key)                                                   \
    ADD_FILTER(type, value_t, set_key)                                                             \
    ADD_TAKE(type, value_t, bits_t, set_key)
ADD_BOTH(f16, uint16_t, uint16_t, SET_16)
ADD_BOTH(bf16, uint16_t, uint16_t, SET_16)
ADD_BOTH(f32, float, uint32_t, SET_32)
ADD_BOTH(f64, double, uint64_t, SET_64)

static uint64_t filter(rill_type type, const void *src, uint64_t n, uint64_t key, uint32_t base,
                       uint32_t *idx) {
    switch (rill__type_size(type)) {
    case 2: return filter_2(src, n, (uint16_t)key, base, idx);
    case 4: return filter_4(src, n, (uint32_t)key, base, idx);
    default: return filter_8(src, n, key, base, idx);
    }
}

/* No sum reaches the key above all others. */
static uint64_t limit_of(rill_type type, const bool *skipped) {
    return skipped ? rill__key_nan(type) - 1 : rill__key_none(type);
}

static uint64_t add_filter(rill_type type, void *residual, const void *gradient, uint64_t n,
                           uint64_t key, uint32_t base, uint32_t *idx, bool *skipped) {
    uint64_t most = limit_of(type, skipped);
    switch (type) {
    case RILL_F16: return add_filter_f16(residual, gradient, n, key, most, base, idx, skipped);
    case RILL_BF16: return add_filter_bf16(residual, gradient, n, key, most, base, idx, skipped);
    case RILL_F32: return add_filter_f32(residual, gradient, n, key, most, base, idx, skipped);
    default: return add_filter_f64(residual, gradient, n, key, most, base, idx, skipped);
    }
}

static uint64_t add_take(rill_type type, void *residual, const void *gradient, uint64_t n,
                         uint64_t key, uint32_t base, uint32_t *idx, void *val, bool *skipped) {
    uint64_t most = limit_of(type, skipped);
    switch (type) {
    case RILL_F16: return add_take_f16(residual, gradient, n, key, most, base, idx, val, skipped);
    case RILL_BF16: return add_take_bf16(residual, gradient, n, key, most, base, idx, val, skipped);
    case RILL_F32: return add_take_f32(residual, gradient, n, key, most, base, idx, val, skipped);
    default: return add_take_f64(residual, gradient, n, key, most, base, idx, val, skipped);
    }
}

#define NONFINITE(name, bits_t, set_key)                                                           \
    static bool nonfinite_##name(const bits_t *x, uint64_t n, bits_t key) {                        \
        const __m512i least = set_key;                                                             \
        uint64_t any = 0, i = 0;                                                                   \
        for (; i + TILE <= n; i += TILE)                                                           \
            any |= mask_##name(x + i, least);                                                      \
        if (i < n) {                                                                               \
            bits_t tail[TILE] = {0};                                                               \
            memcpy(tail, x + i, (n - i) * sizeof *x);                                              \
            any |= mask_##name(tail, least);                                                       \
        }                                                                                          \
        return any != 0;                                                                           \
    }
NONFINITE(2, uint16_t, _mm512_set1_epi16((short)key))
NONFINITE(4, uint32_t, _mm512_set1_epi32((int)key))
NONFINITE(8, uint64_t, _mm512_set1_epi64((long long)key))

static bool nonfinite(rill_type type, const void *src, uint64_t n) {
    uint64_t infinity = rill__key_nan(type) - 1;
    switch (rill__type_size(type)) {
    case 2: return nonfinite_2(src, n, (uint16_t)infinity);
    case 4: return nonfinite_4(src, n, (uint32_t)infinity);
    default: return nonfinite_8(src, n, infinity);
    }
}

/* ---- keep, keys ----------------------------------------------------------------------------- */

/* Values in lanes as wide as arrays of keys have them. Masked: nothing past n is read. */
RILL__INLINE __m512i load_2(const uint16_t *p, unsigned live) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)live, p));
}
RILL__INLINE __m512i load_4(const uint32_t *p, unsigned live) {
    return _mm512_maskz_loadu_epi32((__mmask16)live, p);
}
RILL__INLINE __m512i load_8(const uint64_t *p, unsigned live) {
    return _mm512_maskz_loadu_epi64((__mmask8)live, p);
}

typedef struct bounds {
    __m512i magnitude, nan, low, last; /* low <= key <= last */
} bounds;

/* An empty range cannot be said with an inclusive end: the callers return before. */
RILL__INLINE bounds bounds_of(rill_type type, uint64_t low, uint64_t high) {
    uint64_t magnitude = rill__key_none(type) - 1, nan = rill__key_nan(type);
    uint64_t last = rill__min_u64(high - 1, nan);
    if (type == RILL_F64)
        return (bounds){_mm512_set1_epi64((long long)magnitude), _mm512_set1_epi64((long long)nan),
                        _mm512_set1_epi64((long long)low), _mm512_set1_epi64((long long)last)};
    return (bounds){_mm512_set1_epi32((int)magnitude), _mm512_set1_epi32((int)nan),
                    _mm512_set1_epi32((int)low), _mm512_set1_epi32((int)last)};
}
RILL__INLINE __m512i keys_of_4(__m512i v, const bounds *b) {
    return _mm512_min_epu32(_mm512_and_si512(v, b->magnitude), b->nan);
}
RILL__INLINE __m512i keys_of_8(__m512i v, const bounds *b) {
    return _mm512_min_epu64(_mm512_and_si512(v, b->magnitude), b->nan);
}
RILL__INLINE __mmask16 inside_4(__m512i key, const bounds *b) {
    return _mm512_mask_cmple_epu32_mask(_mm512_cmpge_epu32_mask(key, b->low), key, b->last);
}
RILL__INLINE __mmask8 inside_8(__m512i key, const bounds *b) {
    return _mm512_mask_cmple_epu64_mask(_mm512_cmpge_epu64_mask(key, b->low), key, b->last);
}

RILL__INLINE void put_4(void *p, unsigned mask, __m512i v) {
    v = _mm512_maskz_compress_epi32((__mmask16)mask, v);
    IN_REGISTER(v);
    _mm512_storeu_si512(p, v);
}
RILL__INLINE void put_8(void *p, unsigned mask, __m512i v) {
    v = _mm512_maskz_compress_epi64((__mmask8)mask, v);
    IN_REGISTER(v);
    _mm512_storeu_si512(p, v);
}
RILL__INLINE void put_2(void *p, unsigned mask, __m512i v) {
    v = _mm512_maskz_compress_epi32((__mmask16)mask, v);
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(v));
}

#define EMPTY_RANGE(low, high, type) ((low) >= (high) || (low) > rill__key_nan(type))

#define KEYS(width, lanes, key_width, bits_t, key_t)                                               \
    static uint64_t keys_##width(const bits_t *x, uint64_t n, const bounds *b, key_t *out) {       \
        key_t *end = out;                                                                          \
        for (uint64_t i = 0; i < n; i += lanes) {                                                  \
            unsigned live = n - i < lanes ? (1u << (n - i)) - 1 : (1u << lanes) - 1;               \
            __m512i key = keys_of_##key_width(load_##width(x + i, live), b);                       \
            unsigned mask = inside_##key_width(key, b) & live;                                     \
            put_##key_width(end, mask, key);                                                       \
            end += _mm_popcnt_u32(mask);                                                           \
        }                                                                                          \
        return (uint64_t)(end - out);                                                              \
    }
KEYS(2, 16, 4, uint16_t, uint32_t)
KEYS(4, 16, 4, uint32_t, uint32_t)
KEYS(8, 8, 8, uint64_t, uint64_t)

static uint64_t keys(rill_type type, const void *val, uint64_t n, uint64_t low, uint64_t high,
                     void *out) {
    if (EMPTY_RANGE(low, high, type)) return 0;
    const bounds b = bounds_of(type, low, high);
    switch (rill__type_size(type)) {
    case 2: return keys_2(val, n, &b, out);
    case 4: return keys_4(val, n, &b, out);
    default: return keys_8(val, n, &b, out);
    }
}

/* Eight pairs at a time where something is 8 bytes wide, else 16. Loads come before the stores, so
 * that compaction in place is fine. */
RILL__INLINE __m512i half_index_4(const uint32_t *p, unsigned live) {
    return _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32((__mmask8)live, p));
}
RILL__INLINE void put_half_4(void *p, unsigned mask, __m512i v) {
    v = _mm512_maskz_compress_epi64((__mmask8)mask, v);
    _mm256_storeu_si256(p, _mm512_cvtepi64_epi32(v));
}
RILL__INLINE __m512i half_value_2(const uint16_t *p, unsigned live) {
    return _mm512_cvtepu16_epi64(_mm_maskz_loadu_epi16((__mmask8)live, p));
}
RILL__INLINE void put_half_2(void *p, unsigned mask, __m512i v) {
    v = _mm512_maskz_compress_epi64((__mmask8)mask, v);
    _mm_storeu_si128(p, _mm512_cvtepi64_epi16(v));
}

#define KEEP(name, index_t, bits_t, lanes, load_index, load_value, inside, keys_of, put_index,     \
             put_value)                                                                            \
    static uint64_t keep_##name(const index_t *idx, const bits_t *val, uint64_t n,                 \
                                const bounds *b, index_t *out_idx, bits_t *out_val) {              \
        uint64_t kept = 0, i = 0;                                                                  \
        for (; i + lanes <= n; i += lanes) {                                                       \
            __m512i at = load_index(idx + i, (1u << lanes) - 1);                                   \
            __m512i v = load_value(val + i, (1u << lanes) - 1);                                    \
            unsigned mask = inside(keys_of(v, b), b);                                              \
            put_index(out_idx + kept, mask, at);                                                   \
            put_value(out_val + kept, mask, v);                                                    \
            kept += (unsigned)_mm_popcnt_u32(mask);                                                \
        }                                                                                          \
        if (i < n) { /* what follows in place may be input yet */                                  \
            unsigned live = (1u << (n - i)) - 1;                                                   \
            index_t tail_idx[16];                                                                  \
            bits_t tail_val[16];                                                                   \
            __m512i at = load_index(idx + i, live), v = load_value(val + i, live);                 \
            unsigned mask = inside(keys_of(v, b), b) & live;                                       \
            uint64_t count = (uint64_t)_mm_popcnt_u32(mask);                                       \
            put_index(tail_idx, mask, at);                                                         \
            put_value(tail_val, mask, v);                                                          \
            memcpy(out_idx + kept, tail_idx, count * sizeof *idx);                                 \
            memcpy(out_val + kept, tail_val, count * sizeof *val);                                 \
            kept += count;                                                                         \
        }                                                                                          \
        return kept;                                                                               \
    }
KEEP(4_2, uint32_t, uint16_t, 16, load_4, load_2, inside_4, keys_of_4, put_4, put_2)
KEEP(4_4, uint32_t, uint32_t, 16, load_4, load_4, inside_4, keys_of_4, put_4, put_4)
KEEP(4_8, uint32_t, uint64_t, 8, half_index_4, load_8, inside_8, keys_of_8, put_half_4, put_8)
/* 32-bit keys in 64-bit lanes: the upper halves are 0 in values and bounds alike. */
KEEP(8_2, uint64_t, uint16_t, 8, load_8, half_value_2, inside_8, keys_of_8, put_8, put_half_2)
KEEP(8_4, uint64_t, uint32_t, 8, load_8, half_index_4, inside_8, keys_of_8, put_8, put_half_4)
KEEP(8_8, uint64_t, uint64_t, 8, load_8, load_8, inside_8, keys_of_8, put_8, put_8)

static uint64_t keep(rill__shape shape, const void *idx, const void *val, uint64_t n, uint64_t low,
                     uint64_t high, void *out_idx, void *out_val) {
    if (EMPTY_RANGE(low, high, shape.type)) return 0;
    bounds b = bounds_of(shape.type, low, high);
    size_t size = rill__type_size(shape.type);
    if (shape.index_bytes == 4) {
        if (size == 2) return keep_4_2(idx, val, n, &b, out_idx, out_val);
        if (size == 4) return keep_4_4(idx, val, n, &b, out_idx, out_val);
        return keep_4_8(idx, val, n, &b, out_idx, out_val);
    }
    if (size == 8) return keep_8_8(idx, val, n, &b, out_idx, out_val);
    const __m512i lower = _mm512_set1_epi64(UINT32_MAX);
    b = (bounds){_mm512_and_si512(b.magnitude, lower), _mm512_and_si512(b.nan, lower),
                 _mm512_and_si512(b.low, lower), _mm512_and_si512(b.last, lower)};
    if (size == 2) return keep_8_2(idx, val, n, &b, out_idx, out_val);
    return keep_8_4(idx, val, n, &b, out_idx, out_val);
}

/* ---- kth ------------------------------------------------------------------------------------ */

#define KTH_PARTS(width, lanes, key_t, suffix)                                                     \
    static uint64_t count_##width(const key_t *x, uint64_t n, key_t least) {                       \
        const __m512i t = _mm512_set1_##suffix((long long)least);                                  \
        uint64_t count = 0, i = 0;                                                                 \
        for (; i + 4 * lanes <= n; i += 4 * lanes)                                                 \
            for (unsigned q = 0; q < 4; q++)                                                       \
                count += (uint64_t)_mm_popcnt_u32(                                                 \
                    _mm512_cmpge_epu##width##_mask(_mm512_loadu_si512(x + i + q * lanes), t));     \
        for (; i < n; i += lanes) {                                                                \
            unsigned live = n - i < lanes ? (1u << (n - i)) - 1 : (1u << lanes) - 1;               \
            __m512i v = _mm512_maskz_loadu_##suffix(live, x + i);                                  \
            unsigned mask = _mm512_cmpge_epu##width##_mask(v, t) & live;                           \
            count += (uint64_t)_mm_popcnt_u32(mask);                                               \
        }                                                                                          \
        return count;                                                                              \
    }                                                                                              \
    static void range_##width(const key_t *x, uint64_t n, key_t *low, key_t *high) {               \
        __m512i least = _mm512_set1_##suffix((long long)x[0]), most = least;                       \
        uint64_t i = 0;                                                                            \
        for (; i + lanes <= n; i += lanes) {                                                       \
            __m512i v = _mm512_loadu_si512(x + i);                                                 \
            least = _mm512_min_epu##width(least, v);                                               \
            most = _mm512_max_epu##width(most, v);                                                 \
        }                                                                                          \
        *low = (key_t)_mm512_reduce_min_epu##width(least);                                         \
        *high = (key_t)_mm512_reduce_max_epu##width(most);                                         \
        for (; i < n; i++) {                                                                       \
            *low = x[i] < *low ? x[i] : *low;                                                      \
            *high = x[i] > *high ? x[i] : *high;                                                   \
        }                                                                                          \
    }
/* The widths here are those of keys, in bits, as the intrinsics have them. */
KTH_PARTS(32, 16, uint32_t, epi32)
KTH_PARTS(64, 8, uint64_t, epi64)

static uint64_t within_32(const uint32_t *x, uint64_t n, uint32_t low, uint32_t high,
                          uint32_t *out) {
    const bounds b = bounds_of(RILL_F32, low, (uint64_t)high + 1);
    return keys_4(x, n, &b, out);
}
static uint64_t within_64(const uint64_t *x, uint64_t n, uint64_t low, uint64_t high,
                          uint64_t *out) {
    const bounds b = bounds_of(RILL_F64, low, high + 1);
    return keys_8(x, n, &b, out);
}

#define KEY uint32_t
#define NAME(x) x##_32
#include "space/select_kth.inc"
#undef KEY
#undef NAME
#define KEY uint64_t
#define NAME(x) x##_64
#include "space/select_kth.inc"

static rill__kth kth(rill_type type, const void *all, uint64_t n, uint64_t rank, void *scratch) {
    return type == RILL_F64 ? kth_64(all, n, rank, scratch) : kth_32(all, n, rank, scratch);
}

/* ---- moments -------------------------------------------------------------------------------- */

typedef struct lanes {
    __m512d sum[2], square[2];
} lanes;

RILL__INLINE void accumulate(lanes *l, unsigned half, __m512d d) {
    l->sum[half] = _mm512_add_pd(l->sum[half], d);
    l->square[half] = _mm512_add_pd(l->square[half], _mm512_mul_pd(d, d));
}
RILL__INLINE void accumulate_ps(lanes *l, __m512 v) {
    accumulate(l, 0, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
    accumulate(l, 1, _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
}
RILL__INLINE void moments_f32(lanes *l, const float *x) { accumulate_ps(l, _mm512_loadu_ps(x)); }
RILL__INLINE void moments_f16(lanes *l, const uint16_t *x) { accumulate_ps(l, load_f16(x)); }
RILL__INLINE void moments_bf16(lanes *l, const uint16_t *x) { accumulate_ps(l, load_bf16(x)); }
RILL__INLINE void moments_f64(lanes *l, const double *x) {
    accumulate(l, 0, _mm512_loadu_pd(x));
    accumulate(l, 1, _mm512_loadu_pd(x + 8));
}
RILL__INLINE double reduce(__m512d low, __m512d high) {
    double d[8];
    _mm512_storeu_pd(d, _mm512_add_pd(low, high));
    return ((d[0] + d[4]) + (d[2] + d[6])) + ((d[1] + d[5]) + (d[3] + d[7]));
}

/* The zeros that fill up the tail change no lane but the sign of a zero sum. */
#define MOMENTS(value_t, step)                                                                     \
    do {                                                                                           \
        const value_t *x = src;                                                                    \
        uint64_t i = 0;                                                                            \
        for (; i + 16 <= n; i += 16)                                                               \
            step(&l, x + i);                                                                       \
        if (i < n) {                                                                               \
            value_t tail[16] = {0};                                                                \
            memcpy(tail, x + i, (n - i) * sizeof *x);                                              \
            step(&l, tail);                                                                        \
        }                                                                                          \
    } while (0)

static void moments(rill_type type, const void *src, uint64_t n, double *sums) {
    const __m512d zero = _mm512_setzero_pd();
    lanes l = {{zero, zero}, {zero, zero}};
    switch (type) {
    case RILL_F32: MOMENTS(float, moments_f32); break;
    case RILL_F64: MOMENTS(double, moments_f64); break;
    case RILL_F16: MOMENTS(uint16_t, moments_f16); break;
    case RILL_BF16: MOMENTS(uint16_t, moments_bf16); break;
    }
    sums[0] = reduce(l.sum[0], l.sum[1]);
    sums[1] = reduce(l.square[0], l.square[1]);
}

const rill__select_kernels rill__select_kernels_avx512 = {"avx512", filter,    add_filter,
                                                          add_take, nonfinite, keep,
                                                          keys,     kth,       moments};
#else
typedef int rill__no_select_avx512; /* a file must declare something */
#endif
