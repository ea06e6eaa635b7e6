/* QSGD in AVX-512, 64 values at a time; value_qsgd.c has the idea and the layout.
 *
 * Philox: 8 blocks in the lower halves of 64-bit lanes, where vpmuludq finds its factors and leaves
 * its product; upper halves hold garbage that nothing reads. Words 0 and 1 of the 8 blocks make one
 * register, words 2 and 3 another, and each of their lanes has the numbers of two values, which lie
 * 16 apart: no shuffles. Levels come out of the upper halves of 32-bit sums the same way.
 *
 * The largest magnitude of the next bucket is found while this one is quantized, so that reading
 * from memory and computing overlap. */
#include "space/codec_kernels_avx512.h"
#include "space/codec_pack_avx512.h"
#include "space/value_portable.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct randoms {
    __m512i low, high; /* values 0 to 31, and 32 to 63 */
} randoms;

/* Group first + i, both in a bucket, so that the upper word of their blocks' numbers is one. The
 * stream is a copy, which stores of bytes can't alias: of the first two rounds, what does not
 * depend on the group then moves out of the loop. */
INLINE randoms random64(rill__quant_stream stream, uint64_t first, unsigned i) {
    const __m512i m0 = _mm512_set1_epi64(RILL__PHILOX_M0), m1 = _mm512_set1_epi64(RILL__PHILOX_M1);
    __m512i c0 = _mm512_add_epi64(_mm512_set1_epi64((long long)(8 * (first + i))),
                                  _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    __m512i c1 = _mm512_set1_epi64((long long)(8 * first >> 32));
    __m512i c2 = _mm512_set1_epi64(stream.high[0]), c3 = _mm512_set1_epi64(stream.high[1]);
    uint32_t k0 = stream.key[0], k1 = stream.key[1];
    _Pragma("GCC unroll 7") for (int round = 0; round < 7; round++) {
        __m512i p0 = _mm512_mul_epu32(c0, m0), p1 = _mm512_mul_epu32(c2, m1);
        c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c1, _mm512_set1_epi32((int)k0),
                                       0x96);
        c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c3, _mm512_set1_epi32((int)k1),
                                       0x96);
        c1 = p1;
        c3 = p0;
        k0 += RILL__PHILOX_W0;
        k1 += RILL__PHILOX_W1;
    }
    return (randoms){_mm512_mask_shuffle_epi32(c0, 0xAAAA, c1, _MM_PERM_CCAA),
                     _mm512_mask_shuffle_epi32(c2, 0xAAAA, c3, _MM_PERM_CCAA)};
}

/* Levels of 16 values in the upper halves of 32-bit lanes. */
INLINE __m512i level16(const float *x, __m512 factor, __m512i random) {
    __m512i y = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor));
    return _mm512_add_epi32(y, random);
}

/* Levels of 32 values as 16-bit numbers: lane 2j is value j, lane 2j + 1 value 16 + j. */
INLINE __m512i level32(const float *x, __m512 factor, __m512i random) {
    __m512i a = level16(x, factor, _mm512_and_si512(random, _mm512_set1_epi32(0xffff)));
    __m512i b = level16(x + 16, factor, _mm512_srli_epi32(random, 16));
    return _mm512_mask_mov_epi16(_mm512_srli_epi32(a, 16), 0xAAAAAAAA, b);
}

/* packs interleaves 128-bit lanes of its two inputs, and these interleave values 16 apart. */
INLINE __m512i level_order(void) {
    static const uint8_t order[64]
        __attribute__((aligned(64))) = {0,  2,  4,  6,  16, 18, 20, 22, 32, 34, 36, 38, 48,
                                        50, 52, 54, 1,  3,  5,  7,  17, 19, 21, 23, 33, 35,
                                        37, 39, 49, 51, 53, 55, 8,  10, 12, 14, 24, 26, 28,
                                        30, 40, 42, 44, 46, 56, 58, 60, 62, 9,  11, 13, 15,
                                        25, 27, 29, 31, 41, 43, 45, 47, 57, 59, 61, 63};
    return _mm512_load_si512(order);
}

INLINE void quantize64(const float *x, __m512 factor, randoms r, unsigned bits, uint8_t *out) {
    __m512i a = level32(x, factor, r.low), b = level32(x + 32, factor, r.high);
    __m512i v = _mm512_packs_epi16(a, b); /* saturates at 127 */
    int most = rill__quant_levels(bits);
    v = _mm512_max_epi8(v, _mm512_set1_epi8((char)-most));
    if (bits < 8) v = _mm512_min_epi8(v, _mm512_set1_epi8((char)most));
    v = _mm512_permutexvar_epi8(level_order(), v);
    if (bits == 8) {
        _mm512_storeu_si512(out, v);
    } else if (bits == 4) {
        v = _mm512_and_si512(v, _mm512_set1_epi8(15));
        v = _mm512_maddubs_epi16(v, _mm512_set1_epi16(0x1001)); /* even + 16 odd */
        _mm256_storeu_si256((void *)out, _mm512_cvtepi16_epi8(v));
    } else {
        v = _mm512_and_si512(v, _mm512_set1_epi8(3));
        v = _mm512_maddubs_epi16(v, _mm512_set1_epi16(0x0401));
        v = _mm512_madd_epi16(v, _mm512_set1_epi32(0x00100001));
        _mm_storeu_si128((void *)out, _mm512_cvtepi32_epi8(v));
    }
}

INLINE __m512i max64(__m512i most, const float *x) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i m[4];
    for (int k = 0; k < 4; k++)
        m[k] = _mm512_and_si512(_mm512_loadu_si512(x + 16 * k), magnitude);
    return _mm512_max_epu32(_mm512_max_epu32(_mm512_max_epu32(m[0], m[1]), most),
                            _mm512_max_epu32(m[2], m[3]));
}

static double l2_norm(const float *x) {
    __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
    for (unsigned i = 0; i < RILL__BUCKET; i += 16) {
        __m512d a = _mm512_cvtps_pd(_mm256_loadu_ps(x + i));
        __m512d b = _mm512_cvtps_pd(_mm256_loadu_ps(x + i + 8));
        low = _mm512_add_pd(low, _mm512_mul_pd(a, a));
        high = _mm512_add_pd(high, _mm512_mul_pd(b, b));
    }
    double sum[16];
    _mm512_storeu_pd(sum, low);
    _mm512_storeu_pd(sum + 8, high);
    return rill__quant_norm(sum);
}

INLINE uint32_t max_bucket(const float *x) {
    __m512i most = _mm512_setzero_si512();
    for (unsigned i = 0; i < RILL__BUCKET; i += RILL__QUANT_GROUP)
        most = max64(most, x + i);
    return _mm512_reduce_max_epu32(most);
}

/* A whole bucket, whose largest magnitude has these bits; returns that of the one at next. */
INLINE uint32_t quantize_bucket(const float *x, const float *next, uint32_t max_bits, unsigned bits,
                                rill__scale_mode mode, const rill__quant_stream *stream,
                                uint64_t bucket, uint8_t *unit_out, uint8_t *levels) {
    double norm = mode == RILL__SCALE_L2 ? l2_norm(x) : (double)rill__float_from_bits(max_bits);
    float unit = rill__quant_unit(norm, rill__quant_levels(bits));
    if (__builtin_expect(max_bits >= 0x7f800000u || unit < 0x1p-100f, 0)) {
        rill__quantize_bucket(rill__quantize_group, x, RILL__BUCKET, bits, mode, stream, bucket,
                              unit_out, levels);
        return max_bucket(next);
    }
    memcpy(unit_out, &unit, 4);
    __m512 factor = _mm512_set1_ps(65536.0f / unit);
    __m512i most = _mm512_setzero_si512();
    const rill__quant_stream copy = *stream;
    const uint64_t group = bucket * (RILL__BUCKET / RILL__QUANT_GROUP);
    for (unsigned i = 0; i < RILL__BUCKET; i += RILL__QUANT_GROUP) {
        randoms r = random64(copy, group, i / RILL__QUANT_GROUP);
        quantize64(x + i, factor, r, bits, levels + i / 8 * bits);
        most = max64(most, next + i);
    }
    return _mm512_reduce_max_epu32(most);
}

INLINE void quantize(const float *values, uint64_t count, unsigned bits, rill__scale_mode mode,
                     const rill__quant_stream *stream, uint64_t bucket, uint8_t *units,
                     uint8_t *levels) {
    uint64_t i = 0;
    uint32_t max_bits = count >= RILL__BUCKET ? max_bucket(values) : 0;
    for (; count - i >= RILL__BUCKET; i += RILL__BUCKET) {
        const float *x = values + i;
        const float *next = count - i >= 2 * RILL__BUCKET ? x + RILL__BUCKET : x;
        max_bits = quantize_bucket(x, next, max_bits, bits, mode, stream, bucket++, units, levels);
        units += 4;
        levels += RILL__BUCKET / 8 * bits;
    }
    if (i == count) return;
    /* The rest as a bucket filled up with zeros, which change neither scale nor levels. */
    float x[RILL__BUCKET] = {0};
    uint8_t out[RILL__BUCKET];
    memcpy(x, values + i, (count - i) * sizeof *x);
    quantize_bucket(x, x, max_bucket(x), bits, mode, stream, bucket, units, out);
    memcpy(levels, out, rill__quant_bytes(bits, count - i));
}

void rill__quantize_avx512(const float *values, uint64_t count, unsigned bits,
                           rill__scale_mode mode, const rill__quant_stream *stream, uint64_t bucket,
                           uint8_t *units, uint8_t *levels) {
    if (bits == 8) quantize(values, count, 8, mode, stream, bucket, units, levels);
    else if (bits == 4) quantize(values, count, 4, mode, stream, bucket, units, levels);
    else quantize(values, count, 2, mode, stream, bucket, units, levels);
}

/* ---- dequantize ----------------------------------------------------------------------------- */

/* Values of 16 levels. worth: with 8 bits the unit, else the value of each code; a permutation
 * reads no more than the lower 4 bits of an index, and codes of 2 bits are in it four times. */
INLINE __m512 value16(const uint8_t *levels, __m512 worth, unsigned bits) {
    if (bits == 8) {
        __m512i l = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)levels));
        return _mm512_mul_ps(_mm512_cvtepi32_ps(l), worth);
    }
    if (bits == 4) {
        const __m512i words = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20,
                                                24, 28);
        __m512i l = _mm512_permutexvar_epi32(words, _mm512_castsi128_si512(
                                                        _mm_loadl_epi64((const void *)levels)));
        return _mm512_permutexvar_ps(_mm512_srlv_epi32(l, shift), worth);
    }
    const __m512i shift = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                            30);
    int word;
    memcpy(&word, levels, 4);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi32(word), shift), worth);
}

INLINE __m512 worth_of(float unit, unsigned bits) {
    __m512i code = rill__iota32();
    if (bits == 8) return _mm512_set1_ps(unit);
    code = bits == 4 ? _mm512_srai_epi32(_mm512_slli_epi32(code, 28), 28)
                     : _mm512_srai_epi32(_mm512_slli_epi32(code, 30), 30);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(code), _mm512_set1_ps(unit));
}

INLINE void dequantize(const uint8_t *units, const uint8_t *levels, uint64_t count, unsigned bits,
                       bool add, float *values) {
    for (uint64_t i = 0; i < count; i += RILL__BUCKET, units += 4, values += RILL__BUCKET) {
        unsigned n = (unsigned)rill__min_u64(RILL__BUCKET, count - i);
        float unit;
        memcpy(&unit, units, 4);
        if (__builtin_expect(signbit(unit), 0)) {
            rill__dequantize_special(unit, levels, n, bits, add, values);
            levels += rill__quant_bytes(bits, n);
            continue;
        }
        __m512 worth = worth_of(unit, bits);
        for (unsigned j = 0; j < n / 16; j++, levels += 2 * bits) {
            __m512 v = value16(levels, worth, bits);
            if (add) v = _mm512_add_ps(_mm512_loadu_ps(values + 16 * j), v);
            _mm512_storeu_ps(values + 16 * j, v);
        }
        if (n % 16) {
            __mmask16 lanes = (__mmask16)((1u << n % 16) - 1);
            float *at = values + n / 16 * 16;
            __m512 v = value16(levels, worth, bits);
            if (add) v = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, at), v);
            _mm512_mask_storeu_ps(at, lanes, v);
        }
    }
}

void rill__dequantize_avx512(const uint8_t *units, const uint8_t *levels, uint64_t count,
                             unsigned bits, bool add, float *values) {
    if (bits == 8)
        add ? dequantize(units, levels, count, 8, true, values)
            : dequantize(units, levels, count, 8, false, values);
    else if (bits == 4)
        add ? dequantize(units, levels, count, 4, true, values)
            : dequantize(units, levels, count, 4, false, values);
    else
        add ? dequantize(units, levels, count, 2, true, values)
            : dequantize(units, levels, count, 2, false, values);
}

/* ---- conversion ----------------------------------------------------------------------------- */

/* Whole registers: the arrays have slack. */
void rill__to_f32_avx512(rill_type type, const void *in, uint64_t n, float *out) {
    switch (type) {
    case RILL_F32: memcpy(out, in, n * 4); break;
    case RILL_F64:
        for (uint64_t i = 0; i < n; i += 8)
            _mm256_storeu_ps(out + i, _mm512_cvtpd_ps(_mm512_loadu_pd((const double *)in + i)));
        break;
    case RILL_F16:
        for (uint64_t i = 0; i < n; i += 16)
            _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256(
                                          (const void *)((const uint16_t *)in + i))));
        break;
    case RILL_BF16:
        for (uint64_t i = 0; i < n; i += 16) {
            __m256i h = _mm256_loadu_si256((const void *)((const uint16_t *)in + i));
            _mm512_storeu_si512(out + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
        }
        break;
    }
}

void rill__from_f32_avx512(rill_type type, const float *in, uint64_t n, void *out) {
    switch (type) {
    case RILL_F32: memcpy(out, in, n * 4); break;
    case RILL_F64:
        for (uint64_t i = 0; i < n; i += 8)
            _mm512_storeu_pd((double *)out + i, _mm512_cvtps_pd(_mm256_loadu_ps(in + i)));
        break;
    case RILL_F16:
        for (uint64_t i = 0; i < n; i += 16)
            _mm256_storeu_si256((void *)((uint16_t *)out + i),
                                _mm512_cvtps_ph(_mm512_loadu_ps(in + i),
                                                _MM_FROUND_TO_NEAREST_INT));
        break;
    case RILL_BF16:
        for (uint64_t i = 0; i < n; i += 16) {
            __m512i u = _mm512_loadu_si512(in + i);
            __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
            __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
            __mmask16 nan = _mm512_cmp_ps_mask(_mm512_castsi512_ps(u), _mm512_castsi512_ps(u),
                                               _CMP_UNORD_Q);
            r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
            _mm256_storeu_si256((void *)((uint16_t *)out + i),
                                _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
        }
        break;
    }
}
