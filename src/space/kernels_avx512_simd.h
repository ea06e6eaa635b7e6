/* Registers of 16 indices and of 16 values, for the parts of kernels_avx512.c. */
#ifndef RILL_SPACE_KERNELS_AVX512_SIMD_H
#define RILL_SPACE_KERNELS_AVX512_SIMD_H

#include "space/kernels_impl.h"

#include <immintrin.h>

/* Sorts a bitonic sequence. */
RILL__INLINE __m512i sort_bitonic(__m512i x) {
    __m512i y = _mm512_shuffle_i64x2(x, x, 0x4e);
    x = _mm512_mask_max_epu32(_mm512_min_epu32(x, y), 0xff00, x, y);
    y = _mm512_shuffle_i64x2(x, x, 0xb1);
    x = _mm512_mask_max_epu32(_mm512_min_epu32(x, y), 0xf0f0, x, y);
    y = _mm512_shuffle_epi32(x, (_MM_PERM_ENUM)0x4e);
    x = _mm512_mask_max_epu32(_mm512_min_epu32(x, y), 0xcccc, x, y);
    y = _mm512_shuffle_epi32(x, (_MM_PERM_ENUM)0xb1);
    return _mm512_mask_max_epu32(_mm512_min_epu32(x, y), 0xaaaa, x, y);
}

/* ---- operations, with the NaN rules of rill__apply_f32 -------------------------------------- */

RILL__INLINE __m512 apply_ps(rill__op_kind kind, __m512 a, __m512 b) {
    /* vminps gives its second operand if either is NaN: right unless only b is. */
    __m512 r;
    if (kind == RILL__MIN) r = _mm512_min_ps(b, a);
    else if (kind == RILL__MAX) r = _mm512_max_ps(b, a);
    else return kind == RILL__PROD ? _mm512_mul_ps(a, b) : _mm512_add_ps(a, b);
    __mmask16 only_b = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), b, b,
                                               _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(r, only_b, b);
}

RILL__INLINE __m512d apply_pd(rill__op_kind kind, __m512d a, __m512d b) {
    __m512d r;
    if (kind == RILL__MIN) r = _mm512_min_pd(b, a);
    else if (kind == RILL__MAX) r = _mm512_max_pd(b, a);
    else return kind == RILL__PROD ? _mm512_mul_pd(a, b) : _mm512_add_pd(a, b);
    __mmask8 only_b = _mm512_mask_cmp_pd_mask(_mm512_cmp_pd_mask(a, a, _CMP_ORD_Q), b, b,
                                              _CMP_UNORD_Q);
    return _mm512_mask_mov_pd(r, only_b, b);
}

/* 16-bit values in 32-bit lanes, upper halves 0. */
RILL__INLINE __m512 f16_load(__m512i v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
RILL__INLINE __m512i f16_store(__m512 f) {
    return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
RILL__INLINE __m512 bf16_load(__m512i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
RILL__INLINE __m512i bf16_store(__m512 f) {
    __m512i u = _mm512_castps_si512(f), top = _mm512_srli_epi32(u, 16);
    __m512i even = _mm512_and_si512(top, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), even);
    __mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, top, _mm512_set1_epi32(0x40));
}

/* ---- indices -------------------------------------------------------------------------------- */

RILL__INLINE __m512i load_offsets_8(const uint64_t *p, uint64_t base) {
    __m512i b = _mm512_set1_epi64((long long)base);
    __m256i low = _mm512_cvtepi64_epi32(_mm512_sub_epi64(_mm512_loadu_si512(p), b));
    __m256i high = _mm512_cvtepi64_epi32(_mm512_sub_epi64(_mm512_loadu_si512(p + 8), b));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
RILL__INLINE void store_offsets_8(uint64_t *p, __m512i x, uint64_t base) {
    __m512i b = _mm512_set1_epi64((long long)base);
    __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(x));
    __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(x, 1));
    _mm512_storeu_si512(p, _mm512_add_epi64(low, b));
    _mm512_storeu_si512(p + 8, _mm512_add_epi64(high, b));
}
RILL__INLINE void store_offsets_4(uint32_t *p, __m512i x, uint32_t base) {
    _mm512_storeu_si512(p, _mm512_add_epi32(x, _mm512_set1_epi32((int)base)));
}

/* ---- values --------------------------------------------------------------------------------- */

RILL__INLINE __m512i pick_4(const uint32_t *a, const uint32_t *b, __m512i s) {
    return _mm512_permutex2var_epi32(_mm512_loadu_si512(a), s, _mm512_loadu_si512(b));
}
RILL__INLINE __m512i pick_2(const uint16_t *a, const uint16_t *b, __m512i s) {
    __m512i ab = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a));
    ab = _mm512_inserti64x4(ab, _mm256_loadu_si256((const __m256i *)b), 1);
    return _mm512_maskz_permutexvar_epi16(0x55555555u, s, ab);
}
RILL__INLINE __m512i behind_4(__m512i v, __m512i before) {
    return _mm512_alignr_epi32(v, before, 15);
}
RILL__INLINE void store_values_4(uint32_t *p, __mmask16 keep, __m512i v) {
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(keep, v));
}
RILL__INLINE void store_values_2(uint16_t *p, __mmask16 keep, __m512i v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(keep, v)));
}
RILL__INLINE uint32_t lane_4(__m512i v, unsigned lane) {
    __m512i at = _mm512_permutexvar_epi32(_mm512_set1_epi32((int)lane), v);
    return (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(at));
}
RILL__INLINE __m512i join_f32(rill__op_kind kind, __m512i v, __mmask16 mask, __m512i left) {
    __m512 r = apply_ps(kind, _mm512_castsi512_ps(left), _mm512_castsi512_ps(v));
    return _mm512_mask_mov_epi32(v, mask, _mm512_castps_si512(r));
}
RILL__INLINE __m512i join_f16(rill__op_kind kind, __m512i v, __mmask16 mask, __m512i left) {
    return _mm512_mask_mov_epi32(v, mask, f16_store(apply_ps(kind, f16_load(left), f16_load(v))));
}
RILL__INLINE __m512i join_bf16(rill__op_kind kind, __m512i v, __mmask16 mask, __m512i left) {
    return _mm512_mask_mov_epi32(v, mask,
                                 bf16_store(apply_ps(kind, bf16_load(left), bf16_load(v))));
}

typedef struct pair_f64 {
    __m512i low, high;
} pair_f64;

RILL__INLINE __m512i pick_8_half(const uint64_t *a, const uint64_t *b, __m512i s) {
    __m512i from_a = _mm512_permutex2var_epi64(_mm512_loadu_si512(a), s, _mm512_loadu_si512(a + 8));
    __m512i from_b = _mm512_permutex2var_epi64(_mm512_loadu_si512(b), s, _mm512_loadu_si512(b + 8));
    return _mm512_mask_mov_epi64(from_a, _mm512_test_epi64_mask(s, _mm512_set1_epi64(16)), from_b);
}
RILL__INLINE pair_f64 pick_8(const uint64_t *a, const uint64_t *b, __m512i s) {
    __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(s));
    __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(s, 1));
    return (pair_f64){pick_8_half(a, b, low), pick_8_half(a, b, high)};
}
RILL__INLINE pair_f64 behind_8(pair_f64 v, pair_f64 before) {
    return (pair_f64){_mm512_alignr_epi64(v.low, before.high, 7),
                      _mm512_alignr_epi64(v.high, v.low, 7)};
}
RILL__INLINE void store_values_8(uint64_t *p, __mmask16 keep, pair_f64 v) {
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi64((__mmask8)keep, v.low));
    _mm512_storeu_si512(p + _mm_popcnt_u32(keep & 0xffu),
                        _mm512_maskz_compress_epi64((__mmask8)(keep >> 8), v.high));
}
RILL__INLINE pair_f64 join_f64(rill__op_kind kind, pair_f64 v, __mmask16 mask, pair_f64 left) {
    __m512d low = apply_pd(kind, _mm512_castsi512_pd(left.low), _mm512_castsi512_pd(v.low));
    __m512d high = apply_pd(kind, _mm512_castsi512_pd(left.high), _mm512_castsi512_pd(v.high));
    return (
        pair_f64){_mm512_mask_mov_epi64(v.low, (__mmask8)mask, _mm512_castpd_si512(low)),
                  _mm512_mask_mov_epi64(v.high, (__mmask8)(mask >> 8), _mm512_castpd_si512(high))};
}
RILL__INLINE uint64_t lane_8(pair_f64 v, unsigned lane) {
    __m512i at = _mm512_permutex2var_epi64(v.low, _mm512_set1_epi64((long long)lane), v.high);
    return (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(at));
}

#endif
