/* 16 values of w <= 24 bits from and to a stream of bits, in AVX-512 with VBMI.
 *
 * Unpack: every value lies in the 4 bytes from byte (lane * w + start) / 8 on, as w + 7 <= 32: one
 * byte permutation brings them to the lanes, then shift and mask. 16 w bits are whole bytes, so
 * that one control serves all groups of a pack.
 *
 * Pack: pairs of lanes are joined in 64 bits (2w bits used), pairs of those in 128 bits (4w), and
 * the four quarters are moved together by byte permutations. For odd w, 4w bits end amid a byte:
 * odd quarters are made 4 bits further up, and the shared byte comes from an OR of the even and
 * the odd quarters. 10 instructions for 16 values. */
#ifndef RILL_SPACE_CODEC_PACK_AVX512_H
#define RILL_SPACE_CODEC_PACK_AVX512_H

#include "core/core.h"

#include <immintrin.h>

#define RILL__PACK_SIMD 24u /* widest values; 128 of them add up to less than 2^32 */

typedef struct rill__unpacker {
    __m512i bytes, shift, mask;
} rill__unpacker;

typedef struct rill__packer {
    __m512i low, high, join, rotate, keep, move, even, odd;
    __mmask64 even_mask, odd_mask;
} rill__packer;

static inline __m512i rill__iota32(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

static inline __m512i rill__iota8(void) {
    static const uint8_t iota[64]
        __attribute__((aligned(64))) = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                        13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                                        26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38,
                                        39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,
                                        52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    return _mm512_load_si512(iota);
}

/* Of 16 indices. */
static inline __m512i rill__lower_halves(const uint64_t *idx) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                           30);
    return _mm512_permutex2var_epi32(_mm512_loadu_si512(idx), even, _mm512_loadu_si512(idx + 8));
}

/* start: bit in the first byte, 0 to 7. */
static inline rill__unpacker rill__unpacker_make(unsigned width, unsigned start) {
    rill__unpacker u;
    __m512i bit = _mm512_mullo_epi16(rill__iota32(), _mm512_set1_epi32((int)width));
    bit = _mm512_add_epi32(bit, _mm512_set1_epi32((int)start));
    __m512i byte = _mm512_srli_epi32(bit, 3);
    __m512i spread = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    u.bytes = _mm512_add_epi8(_mm512_shuffle_epi8(byte, spread), _mm512_set1_epi32(0x03020100));
    u.shift = _mm512_and_si512(bit, _mm512_set1_epi32(7));
    u.mask = _mm512_set1_epi32((int)((1u << width) - 1));
    return u;
}

static inline __m512i rill__unpack16_unmasked(const rill__unpacker *u, const uint8_t *in) {
    __m512i v = _mm512_permutexvar_epi8(u->bytes, _mm512_loadu_si512(in));
    return _mm512_srlv_epi32(v, u->shift);
}

static inline __m512i rill__unpack16(const rill__unpacker *u, const uint8_t *in) {
    return _mm512_and_si512(rill__unpack16_unmasked(u, in), u->mask);
}

static inline rill__packer rill__packer_make(unsigned width) {
    rill__packer p;
    const __mmask8 second = 0xaa, odd_quarters = 0xcc;
    const __m512i one = _mm512_set1_epi64(1);
    unsigned half = width >> 1, most = width - half;
    __m512i w = _mm512_set1_epi64(width);
    __m512i mask = _mm512_sub_epi64(_mm512_sllv_epi64(one, w), one);
    p.low = mask;
    p.high = _mm512_slli_epi64(mask, 32);
    p.join = _mm512_sub_epi64(_mm512_set1_epi64(32), w);
    /* Left rotations: 0 and 2w; in odd quarters, for odd w, 4 more. */
    __m512i twice = _mm512_maskz_add_epi64(second, w, w);
    __m512i four = _mm512_slli_epi64(_mm512_maskz_and_epi64(odd_quarters, w, one), 2);
    p.rotate = _mm512_add_epi64(twice, four);
    /* What a rotation wraps around stays in the second word, the rest of it goes to the first. */
    __m512i wrapped = _mm512_sub_epi64(_mm512_sllv_epi64(one, p.rotate), one);
    p.keep = _mm512_mask_mov_epi64(_mm512_set1_epi64(-1), second, wrapped);
    p.move = _mm512_maskz_shuffle_epi32(0x3333, _mm512_xor_si512(wrapped, _mm512_set1_epi64(-1)),
                                        _MM_PERM_BADC);
    uint64_t even_part = (UINT64_C(1) << most) - 1, odd_part = even_part << half;
    p.even_mask = even_part | even_part << width;
    p.odd_mask = odd_part | odd_part << width;
    __mmask64 upper = ~UINT64_C(0) << width;
    __m512i iota = rill__iota8();
    p.even = _mm512_mask_add_epi8(iota, upper, iota, _mm512_set1_epi8((char)(32 - width)));
    p.odd = _mm512_mask_add_epi8(_mm512_add_epi8(iota, _mm512_set1_epi8((char)(16 - half))), upper,
                                 iota, _mm512_set1_epi8((char)(48 - width - half)));
    return p;
}

/* The lower bits of 16 values, in 2 * width bytes; zeros above. */
static inline __m512i rill__pack16(const rill__packer *p, __m512i v) {
    __m512i high = _mm512_srlv_epi64(_mm512_and_si512(v, p->high), p->join);
    __m512i pair = _mm512_ternarylogic_epi64(v, p->low, high, 0xEA); /* (v & low) | high */
    __m512i turned = _mm512_rolv_epi64(pair, p->rotate);
    __m512i swapped = _mm512_shuffle_epi32(turned, _MM_PERM_BADC);
    __m512i four = _mm512_ternarylogic_epi64(turned, p->keep, _mm512_and_si512(swapped, p->move),
                                             0xEA);
    return _mm512_or_si512(_mm512_maskz_permutexvar_epi8(p->even_mask, p->even, four),
                           _mm512_maskz_permutexvar_epi8(p->odd_mask, p->odd, four));
}

#endif
