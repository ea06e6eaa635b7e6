/* QSGD of one group in registers of 128 or 256 bits, whichever the file is compiled for: SSE2 is
 * part of every x86-64, so that a build without AVX has this too. value_portable.h has the same in
 * plain C, for other machines and as the definition of the bits.
 *
 * Philox: as in value_qsgd_avx512.c, a block in the lower half of each 64-bit lane. Cost: 6
 * instructions a value with 128 bits, 3 with 256. */
#ifndef RILL_SPACE_VALUE_LANES_H
#define RILL_SPACE_VALUE_LANES_H

#include "space/value_portable.h"

#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>

#ifdef __AVX2__
typedef __m256i rill__lanes;
enum { RILL__LANES = 8 }; /* of 32 bits */
#define RILL__LANES_OP(name) _mm256_##name
#define RILL__LANES_BITS(name) _mm256_##name##_si256
/* packs works in halves of 128 bits: this puts their quarters in order. */
#define RILL__LANES_SORT(v) _mm256_permute4x64_epi64(v, 0xD8)
#else
typedef __m128i rill__lanes;
enum { RILL__LANES = 4 };
#define RILL__LANES_OP(name) _mm_##name
#define RILL__LANES_BITS(name) _mm_##name##_si128
#define RILL__LANES_SORT(v) (v)
#endif
#define RILL__LANES_INLINE static inline __attribute__((always_inline))

RILL__LANES_INLINE rill__lanes rill__lanes_load(const void *at) {
    return RILL__LANES_BITS(loadu)(at);
}
RILL__LANES_INLINE void rill__lanes_store(void *at, rill__lanes v) {
    RILL__LANES_BITS(storeu)(at, v);
}
RILL__LANES_INLINE rill__lanes rill__lanes_set(uint32_t x) {
    return RILL__LANES_OP(set1_epi32)((int)x);
}
RILL__LANES_INLINE rill__lanes rill__lanes_xor3(rill__lanes a, rill__lanes b, rill__lanes c) {
    return RILL__LANES_BITS(xor)(RILL__LANES_BITS(xor)(a, b), c);
}

/* rill__quant_random of group first + i, both in a bucket, so that the upper word of their blocks'
 * numbers is one. */
RILL__LANES_INLINE void rill__lanes_random(rill__quant_stream stream, uint64_t first, unsigned i,
                                           uint32_t word[2][16]) {
    static const uint64_t iota[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const rill__lanes m0 = rill__lanes_set(RILL__PHILOX_M0), m1 = rill__lanes_set(RILL__PHILOX_M1);
    const rill__lanes number = rill__lanes_set((uint32_t)(8 * (first + i)));
    for (unsigned j = 0; j < 8; j += RILL__LANES / 2) {
        rill__lanes c0 = RILL__LANES_OP(add_epi32)(number, rill__lanes_load(iota + j));
        rill__lanes c1 = rill__lanes_set((uint32_t)(8 * first >> 32));
        rill__lanes c2 = rill__lanes_set(stream.high[0]), c3 = rill__lanes_set(stream.high[1]);
        uint32_t k0 = stream.key[0], k1 = stream.key[1];
        _Pragma("GCC unroll 7") for (int round = 0; round < 7; round++) {
            rill__lanes p0 = RILL__LANES_OP(mul_epu32)(c0, m0);
            rill__lanes p1 = RILL__LANES_OP(mul_epu32)(c2, m1);
            c0 = rill__lanes_xor3(RILL__LANES_OP(srli_epi64)(p1, 32), c1, rill__lanes_set(k0));
            c2 = rill__lanes_xor3(RILL__LANES_OP(srli_epi64)(p0, 32), c3, rill__lanes_set(k1));
            c1 = p1;
            c3 = p0;
            k0 += RILL__PHILOX_W0;
            k1 += RILL__PHILOX_W1;
        }
        const rill__lanes low = RILL__LANES_OP(set1_epi64x)(0xffffffff);
        rill__lanes_store(&word[0][2 * j],
                          RILL__LANES_BITS(or)(RILL__LANES_BITS(and)(c0, low),
                                               RILL__LANES_OP(slli_epi64)(c1, 32)));
        rill__lanes_store(&word[1][2 * j],
                          RILL__LANES_BITS(or)(RILL__LANES_BITS(and)(c2, low),
                                               RILL__LANES_OP(slli_epi64)(c3, 32)));
    }
}

/* Levels of a register of values, with their random bits in the lower halves of 32. */
RILL__LANES_INLINE rill__lanes rill__lanes_level(const float *x, float factor, rill__lanes random) {
    rill__lanes y = RILL__LANES_OP(cvtps_epi32)(
        RILL__LANES_OP(mul_ps)(RILL__LANES_OP(loadu_ps)(x), RILL__LANES_OP(set1_ps)(factor)));
    return RILL__LANES_OP(srai_epi32)(RILL__LANES_OP(add_epi32)(y, random), 16);
}

/* Two registers of values at x, as 16-bit levels in order, up to most. upper: which halves of the
 * words are theirs. */
RILL__LANES_INLINE rill__lanes rill__lanes_two(const float *x, float factor, const uint32_t *word,
                                               bool upper, int most) {
    rill__lanes v[2];
    for (unsigned k = 0; k < 2; k++) {
        rill__lanes random = rill__lanes_load(word + RILL__LANES * k);
        random = upper ? RILL__LANES_OP(srli_epi32)(random, 16)
                       : RILL__LANES_BITS(and)(random, rill__lanes_set(0xffff));
        v[k] = rill__lanes_level(x + RILL__LANES * k, factor, random);
    }
    rill__lanes both = RILL__LANES_SORT(RILL__LANES_OP(packs_epi32)(v[0], v[1]));
    both = RILL__LANES_OP(max_epi16)(both, RILL__LANES_OP(set1_epi16)((short)-most));
    return RILL__LANES_OP(min_epi16)(both, RILL__LANES_OP(set1_epi16)((short)most));
}

/* Levels of a group: 4 registers of 128 bits, or 2 of 256. */
RILL__LANES_INLINE void rill__lanes_quantize(const float *x, float factor,
                                             const uint32_t word[2][16], int most, int8_t *level) {
    for (unsigned i = 0; i < RILL__QUANT_GROUP; i += 4 * RILL__LANES) {
        rill__lanes two[2];
        for (unsigned k = 0; k < 2; k++) {
            unsigned at = i + 2 * RILL__LANES * k;
            two[k] = rill__lanes_two(x + at, factor, &word[at / 32][at % 16], at / 16 % 2, most);
        }
        rill__lanes_store(level + i, RILL__LANES_SORT(RILL__LANES_OP(packs_epi16)(two[0], two[1])));
    }
}

RILL__LANES_INLINE void rill__lanes_group(rill__quant_stream stream, uint64_t first, unsigned i,
                                          const float *x, float factor, int most, int8_t *level) {
    uint32_t word[2][16];
    rill__lanes_random(stream, first, i, word);
    rill__lanes_quantize(x, factor, word, most, level);
}
#define RILL__BEST_GROUP rill__lanes_group
#else
#define RILL__BEST_GROUP rill__quantize_group
#endif

#endif
