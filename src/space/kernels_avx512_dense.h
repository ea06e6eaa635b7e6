/* Dense kernels with AVX-512, for kernels_avx512.c: one pass at the speed of memory. Ends of arrays
 * are read and written whole only where nothing else can lie there; combine, fill and replace use
 * masks, as their arrays may be a part of a larger one. */
#include "space/kernels_avx512_simd.h"

/* Lanes below n - i. */
RILL__INLINE __mmask32 rest_lanes(uint64_t i, uint64_t n) {
    return n - i >= 32 ? 0xffffffffu : (__mmask32)((1u << (n - i)) - 1);
}

/* ---- combine -------------------------------------------------------------------------------- */

RILL__INLINE __m512i combine_f16_16(rill__op_kind kind, __m256i a, __m256i b) {
    __m512 r = apply_ps(kind, _mm512_cvtph_ps(a), _mm512_cvtph_ps(b));
    return _mm512_castsi256_si512(
        _mm512_cvtps_ph(r, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
RILL__INLINE __m512i combine_bf16_16(rill__op_kind kind, __m256i a, __m256i b) {
    __m512 r = apply_ps(kind, bf16_load(_mm512_cvtepu16_epi32(a)),
                        bf16_load(_mm512_cvtepu16_epi32(b)));
    return _mm512_castsi256_si512(_mm512_cvtepi32_epi16(bf16_store(r)));
}

RILL__INLINE void combine_kind(rill__op_kind kind, rill_type type, char *out, const char *lower,
                               const char *upper, uint64_t n) {
    if (type == RILL_F32) {
        for (uint64_t i = 0; i < n; i += 16) {
            __mmask16 m = (__mmask16)rest_lanes(i, n);
            __m512 a = _mm512_maskz_loadu_ps(m, lower + i * 4);
            __m512 b = _mm512_maskz_loadu_ps(m, upper + i * 4);
            _mm512_mask_storeu_ps(out + i * 4, m, apply_ps(kind, a, b));
        }
    } else if (type == RILL_F64) {
        for (uint64_t i = 0; i < n; i += 8) {
            __mmask8 m = (__mmask8)rest_lanes(i, n);
            __m512d a = _mm512_maskz_loadu_pd(m, lower + i * 8);
            __m512d b = _mm512_maskz_loadu_pd(m, upper + i * 8);
            _mm512_mask_storeu_pd(out + i * 8, m, apply_pd(kind, a, b));
        }
    } else {
        for (uint64_t i = 0; i < n; i += 16) {
            __mmask16 m = (__mmask16)rest_lanes(i, n);
            __m256i a = _mm256_maskz_loadu_epi16(m, lower + i * 2);
            __m256i b = _mm256_maskz_loadu_epi16(m, upper + i * 2);
            __m512i r = type == RILL_F16 ? combine_f16_16(kind, a, b) : combine_bf16_16(kind, a, b);
            _mm256_mask_storeu_epi16(out + i * 2, m, _mm512_castsi512_si256(r));
        }
    }
}

RILL__INLINE void combine_type(rill__op_kind kind, rill_type type, void *out, const void *lower,
                               const void *upper, uint64_t n) {
    switch (type) {
    case RILL_F32: combine_kind(kind, RILL_F32, out, lower, upper, n); break;
    case RILL_F64: combine_kind(kind, RILL_F64, out, lower, upper, n); break;
    case RILL_F16: combine_kind(kind, RILL_F16, out, lower, upper, n); break;
    case RILL_BF16: combine_kind(kind, RILL_BF16, out, lower, upper, n); break;
    }
}

static void combine(rill_type type, const rill_op *op, void *out, const void *lower,
                    const void *upper, uint64_t n) {
    switch (op->kind) {
    case RILL__SUM: combine_type(RILL__SUM, type, out, lower, upper, n); break;
    case RILL__MIN: combine_type(RILL__MIN, type, out, lower, upper, n); break;
    case RILL__MAX: combine_type(RILL__MAX, type, out, lower, upper, n); break;
    case RILL__PROD: combine_type(RILL__PROD, type, out, lower, upper, n); break;
    case RILL__USER: rill__kernels_scalar.combine(type, op, out, lower, upper, n); break;
    }
}

/* ---- bits ----------------------------------------------------------------------------------- */

RILL__INLINE uint64_t add_bits_to(float *dense, uint64_t n, const uint64_t *bits, const float *val,
                                  bool fresh) {
    const float *at = val;
    uint64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t word = bits[i / 64];
        for (unsigned k = 0; k < 64; k += 16, word >>= 16) {
            __mmask16 set = (__mmask16)word;
            __m512 v = _mm512_maskz_expand_ps(set, _mm512_loadu_ps(at));
            __m512 own = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(dense + i + k);
            _mm512_storeu_ps(dense + i + k, _mm512_mask_add_ps(own, set, own, v));
            at += __builtin_popcount(set);
        }
    }
    for (uint64_t k = i; fresh && k < n; k++)
        dense[k] = 0;
    for (uint64_t word = i < n ? bits[i / 64] : 0; word; word &= word - 1)
        dense[i + (unsigned)__builtin_ctzll(word)] += *at++;
    return (uint64_t)(at - val);
}

static uint64_t add_bits(float *dense, uint64_t n, const uint64_t *bits, const float *val,
                         bool fresh) {
    return fresh ? add_bits_to(dense, n, bits, val, true) : add_bits_to(dense, n, bits, val, false);
}

static uint64_t count_bits(const uint64_t *bits, uint64_t n) {
    uint64_t set = 0;
    for (uint64_t i = 0; i < n; i++)
        set += (unsigned)__builtin_popcountll(bits[i]);
    return set;
}

static uint64_t pack_bits(const float *dense, uint64_t n, uint64_t limit, uint64_t *bits,
                          float *val) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < n; i += 64) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 64 && i + k < n; k += 16) {
            __mmask16 there = (__mmask16)rest_lanes(i + k, n);
            __m512i v = _mm512_maskz_loadu_epi32(there, dense + i + k);
            __mmask16 set = _mm512_test_epi32_mask(v, v);
            if (at > limit) return limit + 1;
            _mm512_storeu_epi32(val + at, _mm512_maskz_compress_epi32(set, v));
            word |= (uint64_t)set << k;
            at += (unsigned)__builtin_popcount(set);
        }
        bits[i / 64] = word;
    }
    return at > limit ? limit + 1 : at;
}

static uint64_t unpack_bits(float *dense, uint64_t n, const uint64_t *bits, const float *val) {
    const float *at = val;
    for (uint64_t i = 0; i < n; i += 16) {
        __mmask16 there = (__mmask16)rest_lanes(i, n);
        __mmask16 set = (__mmask16)(bits[i / 64] >> i % 64) & there;
        _mm512_mask_storeu_ps(dense + i, there, _mm512_maskz_expand_ps(set, _mm512_loadu_ps(at)));
        at += __builtin_popcount(set);
    }
    return (uint64_t)(at - val);
}

/* ---- scatter -------------------------------------------------------------------------------- */

/* 16-bit values: 16 entries are collected, combined in registers and put back, which saves the
 * conversions one by one. No index occurs twice, so none can be missed. */
RILL__INLINE void combine_halves(rill__op_kind kind, rill_type type, void *own, const char *val) {
    if (type == RILL_F16) combine_kind(kind, RILL_F16, own, own, val, 16);
    else combine_kind(kind, RILL_BF16, own, own, val, 16);
}
#define SCATTER_16(INDEX)                                                                          \
    for (; i + 16 <= p.n; i += 16) {                                                               \
        const INDEX *x = (const INDEX *)p.idx + i;                                                 \
        for (unsigned u = 0; u < 16; u++)                                                          \
            own[u] = dense[x[u] - first];                                                          \
        combine_halves(kind, type, own, (const char *)p.val + i * 2);                              \
        for (unsigned u = 0; u < 16; u++)                                                          \
            dense[x[u] - first] = own[u];                                                          \
    }

RILL__INLINE uint64_t scatter_halves(rill__op_kind kind, rill__shape shape, uint16_t *dense,
                                     uint64_t first, rill__pairs p) {
    rill_type type = shape.type;
    uint16_t own[16];
    uint64_t i = 0;
    if (shape.index_bytes == 4) SCATTER_16(uint32_t)
    else SCATTER_16(uint64_t)
    return i;
}

static void scatter(rill__shape shape, const rill_op *op, void *dense, uint64_t first,
                    rill__pairs p) {
    uint64_t done = 0;
    if (rill__type_size(shape.type) == 2) {
        switch (op->kind) {
        case RILL__SUM: done = scatter_halves(RILL__SUM, shape, dense, first, p); break;
        case RILL__MIN: done = scatter_halves(RILL__MIN, shape, dense, first, p); break;
        case RILL__MAX: done = scatter_halves(RILL__MAX, shape, dense, first, p); break;
        case RILL__PROD: done = scatter_halves(RILL__PROD, shape, dense, first, p); break;
        case RILL__USER: break;
        }
    }
    p = (rill__pairs){p.n - done, (const char *)p.idx + done * shape.index_bytes,
                      (const char *)p.val + done * rill__type_size(shape.type)};
    rill__kernels_scalar.scatter(shape, op, dense, first, p);
}

/* ---- compact, replace ----------------------------------------------------------------------- */

typedef struct vector_matcher {
    __m512i mask, want;
    bool nan;
} vector_matcher;

RILL__INLINE __m512i spread(rill_type type, uint64_t bits) {
    if (type == RILL_F64) return _mm512_set1_epi64((long long)bits);
    if (type == RILL_F32) return _mm512_set1_epi32((int)bits);
    return _mm512_set1_epi16((short)bits);
}
RILL__INLINE vector_matcher vector_matcher_of(rill_type type, const void *value) {
    rill__matcher m = rill__matcher_of(type, value);
    return (vector_matcher){spread(type, m.mask), spread(type, m.want), m.nan};
}

/* Lanes that equal the value as numbers. */
RILL__INLINE __mmask32 matches(rill_type type, vector_matcher m, __m512i v) {
    __m512i x = _mm512_and_si512(v, m.mask);
    if (type == RILL_F64)
        return m.nan ? _mm512_cmpgt_epu64_mask(x, m.want) : _mm512_cmpeq_epi64_mask(x, m.want);
    if (type == RILL_F32)
        return m.nan ? _mm512_cmpgt_epu32_mask(x, m.want) : _mm512_cmpeq_epi32_mask(x, m.want);
    return m.nan ? _mm512_cmpgt_epu16_mask(x, m.want) : _mm512_cmpeq_epi16_mask(x, m.want);
}

/* Values in the lanes of keep, packed. */
RILL__INLINE void store_packed(rill_type type, char *p, __mmask32 keep, __m512i v) {
    if (type == RILL_F64) v = _mm512_maskz_compress_epi64((__mmask8)keep, v);
    else if (type == RILL_F32) v = _mm512_maskz_compress_epi32((__mmask16)keep, v);
    else v = _mm512_maskz_compress_epi16(keep, v);
    _mm512_storeu_si512(p, v);
}

/* Numbers (plus first) of up to 16 set bits. */
RILL__INLINE void store_numbers(unsigned index_bytes, char *p, __mmask16 keep, uint64_t first) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i x = _mm512_maskz_compress_epi32(keep, lanes);
    if (index_bytes == 4) store_offsets_4((uint32_t *)p, x, (uint32_t)first);
    else store_offsets_8((uint64_t *)p, x, first);
}

RILL__INLINE uint64_t compact_type(rill_type type, unsigned index_bytes, const char *dense,
                                   uint64_t first, uint64_t n, vector_matcher m, uint64_t limit,
                                   char *idx, char *val) {
    const unsigned size = type == RILL_F64 ? 8 : type == RILL_F32 ? 4 : 2, lanes = 64 / size;
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i += lanes) {
        __m512i v = _mm512_loadu_si512(dense + i * size);
        __mmask32 keep = ~matches(type, m, v) & rest_lanes(i, n);
        if (lanes < 32) keep &= (1u << lanes % 32) - 1;
        if (!keep) continue;
        /* What is over the limit lands in the slack. */
        store_packed(type, val + count * size, keep, v);
        store_numbers(index_bytes, idx + count * index_bytes, (__mmask16)keep, first + i);
        if (lanes == 32) {
            uint64_t next = count + (uint64_t)_mm_popcnt_u32(keep & 0xffffu);
            if (next <= limit)
                store_numbers(index_bytes, idx + next * index_bytes, (__mmask16)(keep >> 16),
                              first + i + 16);
        }
        count += (uint64_t)_mm_popcnt_u32(keep);
        if (count > limit) return limit + 1;
    }
    return count;
}

static uint64_t compact(rill__shape shape, const void *dense, uint64_t first, uint64_t n,
                        const void *fill_value, uint64_t limit, void *idx, void *val) {
    vector_matcher m = vector_matcher_of(shape.type, fill_value);
#define COMPACT(TYPE, BYTES) compact_type(TYPE, BYTES, dense, first, n, m, limit, idx, val)
#define COMPACT_TYPE(TYPE) (shape.index_bytes == 4 ? COMPACT(TYPE, 4) : COMPACT(TYPE, 8))
    if (shape.type == RILL_F32) return COMPACT_TYPE(RILL_F32);
    if (shape.type == RILL_F64) return COMPACT_TYPE(RILL_F64);
    return COMPACT_TYPE(RILL_F16); /* bf16 differs in the matcher only */
}

RILL__INLINE void replace_type(rill_type type, char *dst, const char *src, uint64_t n,
                               vector_matcher m, __m512i to) {
    const unsigned size = type == RILL_F64 ? 8 : type == RILL_F32 ? 4 : 2, lanes = 64 / size;
    for (uint64_t i = 0; i < n; i += lanes) {
        __mmask32 rest = rest_lanes(i, n);
        __m512i v;
        if (type == RILL_F64) {
            v = _mm512_maskz_loadu_epi64((__mmask8)rest, src + i * 8);
            v = _mm512_mask_mov_epi64(v, (__mmask8)matches(type, m, v), to);
            _mm512_mask_storeu_epi64(dst + i * 8, (__mmask8)rest, v);
        } else if (type == RILL_F32) {
            v = _mm512_maskz_loadu_epi32((__mmask16)rest, src + i * 4);
            v = _mm512_mask_mov_epi32(v, (__mmask16)matches(type, m, v), to);
            _mm512_mask_storeu_epi32(dst + i * 4, (__mmask16)rest, v);
        } else {
            v = _mm512_maskz_loadu_epi16(rest, src + i * 2);
            v = _mm512_mask_mov_epi16(v, matches(type, m, v), to);
            _mm512_mask_storeu_epi16(dst + i * 2, rest, v);
        }
    }
}

static __m512i spread_value(rill_type type, const void *value) {
    uint64_t bits8;
    uint32_t bits4;
    uint16_t bits2;
    if (type == RILL_F64) return spread(type, (memcpy(&bits8, value, 8), bits8));
    if (type == RILL_F32) return spread(type, (memcpy(&bits4, value, 4), bits4));
    return spread(type, (memcpy(&bits2, value, 2), bits2));
}

static void replace(rill_type type, void *dst, const void *src, uint64_t n, const void *from,
                    const void *to) {
    vector_matcher m = vector_matcher_of(type, from);
    __m512i new = spread_value(type, to);
    if (type == RILL_F32) replace_type(RILL_F32, dst, src, n, m, new);
    else if (type == RILL_F64) replace_type(RILL_F64, dst, src, n, m, new);
    else replace_type(RILL_F16, dst, src, n, m, new);
}

/* ---- fill, check ---------------------------------------------------------------------------- */

static void fill(rill_type type, void *dst, uint64_t n, const void *value) {
    __m512i v = spread_value(type, value);
    uint64_t bytes = n * rill__type_size(type), i = 0;
    for (; i + 64 <= bytes; i += 64)
        _mm512_storeu_si512((char *)dst + i, v);
    _mm512_mask_storeu_epi8((char *)dst + i, ((__mmask64)1 << (bytes - i)) - 1, v);
}

/* First position whose index is not above the one before. */
RILL__INLINE uint64_t first_descent(unsigned index_bytes, const char *idx, uint64_t n) {
    const unsigned lanes = 64 / index_bytes;
    uint64_t i = 1;
    for (; i + lanes <= n; i += lanes) {
        __m512i x = _mm512_loadu_si512(idx + i * index_bytes);
        __m512i before = _mm512_loadu_si512(idx + (i - 1) * index_bytes);
        unsigned bad = index_bytes == 4 ? _mm512_cmple_epu32_mask(x, before)
                                        : _mm512_cmple_epu64_mask(x, before);
        if (bad) return i + (unsigned)__builtin_ctz(bad);
    }
    /* The rest in one masked step: there is slack behind. */
    __m512i x = _mm512_loadu_si512(idx + i * index_bytes);
    __m512i before = _mm512_loadu_si512(idx + (i - 1) * index_bytes);
    unsigned there = (1u << (n - i)) - 1;
    unsigned bad = there & (index_bytes == 4 ? _mm512_cmple_epu32_mask(x, before)
                                             : _mm512_cmple_epu64_mask(x, before));
    return bad ? i + (unsigned)__builtin_ctz(bad) : n;
}

static uint64_t check(unsigned index_bytes, const void *idx, uint64_t n, uint64_t first,
                      uint64_t range) {
    if (!n) return 0;
    uint64_t sorted = index_bytes == 4 ? first_descent(4, idx, n) : first_descent(8, idx, n);
    return rill__check_range(index_bytes, idx, sorted, first, range);
}
