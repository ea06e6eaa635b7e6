/* Groups of 64 entries for select_kernels_avx512.c: masks of those that reach a key, and sums. */
#ifndef RILL_SPACE_SELECT_KERNELS_AVX512_SIMD_H
#define RILL_SPACE_SELECT_KERNELS_AVX512_SIMD_H

#include "space/kernels_avx512_simd.h"
#include "space/select_kernels.h"

#include <string.h>

enum { TILE = 64 };

/* Keeps the compiler from folding a compression and the store of its result into the slow form. */
#define IN_REGISTER(x) __asm__("" : "+v"(x))

/* ---- masks of 64 entries -------------------------------------------------------------------- */

RILL__INLINE __mmask32 pass_2(__m512i v, __m512i key) {
    return _mm512_cmpge_epu16_mask(_mm512_and_si512(v, _mm512_set1_epi16(0x7fff)), key);
}
RILL__INLINE __mmask16 pass_4(__m512i v, __m512i key) {
    return _mm512_cmpge_epu32_mask(_mm512_and_si512(v, _mm512_set1_epi32(0x7fffffff)), key);
}
RILL__INLINE __mmask8 pass_8(__m512i v, __m512i key) {
    return _mm512_cmpge_epu64_mask(_mm512_and_si512(v, _mm512_set1_epi64(INT64_MAX)), key);
}

RILL__INLINE uint64_t mask_2(const uint16_t *x, __m512i key) {
    return (uint64_t)pass_2(_mm512_loadu_si512(x), key) |
           (uint64_t)pass_2(_mm512_loadu_si512(x + 32), key) << 32;
}
RILL__INLINE uint64_t mask_4(const uint32_t *x, __m512i key) {
    uint64_t mask = 0;
    for (unsigned q = 0; q < 4; q++)
        mask |= (uint64_t)pass_4(_mm512_loadu_si512(x + 16 * q), key) << 16 * q;
    return mask;
}
RILL__INLINE uint64_t mask_8(const uint64_t *x, __m512i key) {
    uint64_t mask = 0;
    for (unsigned q = 0; q < 8; q++)
        mask |= (uint64_t)pass_8(_mm512_loadu_si512(x + 8 * q), key) << 8 * q;
    return mask;
}

/* ---- sums of 64 entries, one register at a time ---------------------------------------------- */

RILL__INLINE __m512i add_f32(const float *x, const float *g) {
    return _mm512_castps_si512(_mm512_add_ps(_mm512_loadu_ps(x), _mm512_loadu_ps(g)));
}
RILL__INLINE __m512i add_f64(const double *x, const double *g) {
    return _mm512_castpd_si512(_mm512_add_pd(_mm512_loadu_pd(x), _mm512_loadu_pd(g)));
}
RILL__INLINE __m512 load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
RILL__INLINE __m512 load_bf16(const uint16_t *p) {
    return bf16_load(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)));
}
RILL__INLINE __m256i narrow_f16(__m512 f) {
    return _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
RILL__INLINE __m256i narrow_bf16(__m512 f) { return _mm512_cvtepi32_epi16(bf16_store(f)); }

#define ADD_16(type)                                                                               \
    RILL__INLINE __m512i add_##type(const uint16_t *x, const uint16_t *g) {                        \
        __m512 low = _mm512_add_ps(load_##type(x), load_##type(g));                                \
        __m512 high = _mm512_add_ps(load_##type(x + 16), load_##type(g + 16));                     \
        return _mm512_inserti64x4(_mm512_castsi256_si512(narrow_##type(low)), narrow_##type(high), \
                                  1);                                                              \
    }
ADD_16(f16)
ADD_16(bf16)

typedef __mmask32 mask_t_2;
typedef __mmask16 mask_t_4;
typedef __mmask8 mask_t_8;
/* The larger of a magnitude and that of v. */
RILL__INLINE __m512i larger_2(__m512i most, __m512i v) {
    return _mm512_max_epu16(most, _mm512_and_si512(v, _mm512_set1_epi16(0x7fff)));
}
RILL__INLINE __m512i larger_4(__m512i most, __m512i v) {
    return _mm512_max_epu32(most, _mm512_and_si512(v, _mm512_set1_epi32(0x7fffffff)));
}
RILL__INLINE __m512i larger_8(__m512i most, __m512i v) {
    return _mm512_max_epu64(most, _mm512_and_si512(v, _mm512_set1_epi64(INT64_MAX)));
}
RILL__INLINE __m512i keep_2(__m512i v, __mmask32 mask, __m512i old) {
    return _mm512_mask_mov_epi16(v, mask, old);
}
RILL__INLINE __m512i keep_4(__m512i v, __mmask16 mask, __m512i old) {
    return _mm512_mask_mov_epi32(v, mask, old);
}
RILL__INLINE __m512i keep_8(__m512i v, __mmask8 mask, __m512i old) {
    return _mm512_mask_mov_epi64(v, mask, old);
}
RILL__INLINE __m512i squeeze_2(__mmask32 mask, __m512i v) {
    return _mm512_maskz_compress_epi16(mask, v);
}
RILL__INLINE __m512i squeeze_4(__mmask16 mask, __m512i v) {
    return _mm512_maskz_compress_epi32(mask, v);
}
RILL__INLINE __m512i squeeze_8(__mmask8 mask, __m512i v) {
    return _mm512_maskz_compress_epi64(mask, v);
}
RILL__INLINE __m512i drop_2(__mmask32 mask, __m512i v) {
    return _mm512_mask_mov_epi16(v, mask, _mm512_setzero_si512());
}
RILL__INLINE __m512i drop_4(__mmask16 mask, __m512i v) {
    return _mm512_mask_mov_epi32(v, mask, _mm512_setzero_si512());
}
RILL__INLINE __m512i drop_8(__mmask8 mask, __m512i v) {
    return _mm512_mask_mov_epi64(v, mask, _mm512_setzero_si512());
}

/* v = x + g, but x where the sum reaches limit: then *over is set. One look at the largest is
 * enough for nearly all tiles. The masks are of those that pass; take_mask also appends them to
 * *val and clears them, and ignores entries that are not live. */
#define MASKS(type, width, value_t, bits_t)                                                        \
    RILL__INLINE void add_below_##type(const value_t *x, const value_t *g, __m512i limit,          \
                                       __m512i *v, bool *over) {                                   \
        const unsigned lanes = 64 / width;                                                         \
        __m512i most = _mm512_setzero_si512();                                                     \
        for (unsigned i = 0; i < width; i++) {                                                     \
            v[i] = add_##type(x + i * lanes, g + i * lanes);                                       \
            most = larger_##width(most, v[i]);                                                     \
        }                                                                                          \
        if (__builtin_expect(pass_##width(most, limit) == 0, 1)) return;                           \
        *over = true;                                                                              \
        for (unsigned i = 0; i < width; i++)                                                       \
            v[i] = keep_##width(v[i], pass_##width(v[i], limit),                                   \
                                _mm512_loadu_si512(x + i * lanes));                                \
    }                                                                                              \
    RILL__INLINE uint64_t add_mask_##type(value_t *x, const value_t *g, __m512i key,               \
                                          __m512i limit, bool *over) {                             \
        const unsigned lanes = 64 / width;                                                         \
        uint64_t mask = 0;                                                                         \
        __m512i v[width];                                                                          \
        add_below_##type(x, g, limit, v, over);                                                    \
        for (unsigned i = 0; i < width; i++) {                                                     \
            _mm512_storeu_si512(x + i * lanes, v[i]);                                              \
            mask |= (uint64_t)pass_##width(v[i], key) << (i * lanes);                              \
        }                                                                                          \
        return mask;                                                                               \
    }                                                                                              \
    RILL__INLINE uint64_t take_mask_##type(value_t *x, const value_t *g, __m512i key,              \
                                           __m512i limit, uint64_t live, bits_t **val,             \
                                           bool *over) {                                           \
        const unsigned lanes = 64 / width;                                                         \
        uint64_t all = 0;                                                                          \
        __m512i sums[width];                                                                       \
        add_below_##type(x, g, limit, sums, over);                                                 \
        for (unsigned i = 0; i < width; i++) {                                                     \
            const unsigned at = i * lanes;                                                         \
            __m512i v = sums[i];                                                                   \
            uint64_t mask = (uint64_t)pass_##width(v, key) & (live >> at);                         \
            _mm512_storeu_si512(x + at, drop_##width((mask_t_##width)mask, v));                    \
            v = squeeze_##width((mask_t_##width)mask, v);                                          \
            IN_REGISTER(v);                                                                        \
            _mm512_storeu_si512(*val, v);                                                          \
            *val += _mm_popcnt_u64(mask);                                                          \
            all |= mask << at;                                                                     \
        }                                                                                          \
        return all;                                                                                \
    }
MASKS(f16, 2, uint16_t, uint16_t)
MASKS(bf16, 2, uint16_t, uint16_t)
MASKS(f32, 4, float, uint32_t)
MASKS(f64, 8, double, uint64_t)

#endif
