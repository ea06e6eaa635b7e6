/* High and low parts in AVX-512; also the bitmap, which has no low part.
 *
 * Packing, 64 indices at a time: low parts as in codec_pack_avx512.h. High parts in groups of 8: a
 * group whose bits lie within 64 is one word, 1 << (bit - first bit) of its lanes, ORed; eight
 * groups are reduced together by shuffles, and their words shifted to their places. What
 * remains in sequence is one step per 8 indices (rill__bits_set).
 *
 * Unpacking: vpcompressb turns a word of the bitmap into the positions of its bits, which are kept
 * as 16-bit numbers relative to a chunk of 128 words; then 16 indices at a time, position - rank is
 * the high part, and the low part comes as in codec_pack_avx512.h, from wherever the chunk begins.
 *
 * Low parts wider than 24 bits (densities below 2^-24) go through the portable code. */
#include "space/codec_index_portable.h"
#include "space/codec_kernels_avx512.h"
#include "space/codec_pack_avx512.h"

#define CHUNK_WORDS 128u

/* ---- pack ----------------------------------------------------------------------------------- */

static inline void store_low(const rill__packer *p, __m512i x, uint8_t *at, const uint8_t *end,
                             unsigned low) {
    /* The high part may follow at once and is being written: nothing may go past the end. */
    if (__builtin_expect(end - at >= 64, 1)) _mm512_storeu_si512(at, rill__pack16(p, x));
    else _mm512_mask_storeu_epi8(at, (UINT64_C(1) << 2 * low) - 1, rill__pack16(p, x));
}

/* Low parts of 64 indices to at; the words of their 8 groups, relative to the first bit of each, to
 * *words; the high parts of the first ones to *heads. False if a group does not fit.
 *
 * In 32-bit lanes: groups of 4 in 32 bits first, all 16 of them in one register; then pairs. Those
 * of 64-bit indices hold what is left above `start`; low parts come out right in any case. */
static inline __attribute__((always_inline)) bool
pack64(unsigned index_bytes, const void *idx, uint64_t start, unsigned low, const rill__packer *p,
       uint8_t *at, const uint8_t *end, __m512i *words, __m512i *heads) {
    const __m512i one = _mm512_set1_epi32(1), sixteen = _mm512_set1_epi32(16);
    const __m512i rank = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 1, 2, 3));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i lower = _mm512_set1_epi64(0xffffffff), most = _mm512_set1_epi64(64);
    const __m128i shift = _mm_cvtsi32_si128((int)low);
    __m512i base = _mm512_add_epi32(rill__iota32(), _mm512_set1_epi32((int)(uint32_t)start));
    __m512i v[4], head[4], all = _mm512_setzero_si512();
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) {
        __m512i index = index_bytes == 4 ? _mm512_loadu_si512((const uint32_t *)idx + 16 * k)
                                         : rill__lower_halves((const uint64_t *)idx + 16 * k);
        __m512i x = _mm512_sub_epi32(index, base);
        base = _mm512_add_epi32(base, sixteen);
        store_low(p, x, at + 2 * low * (unsigned)k, end, low);
        __m512i high = _mm512_srl_epi32(x, shift);
        head[k] = _mm512_shuffle_epi32(high, _MM_PERM_AAAA);
        __m512i off = _mm512_add_epi32(_mm512_sub_epi32(high, head[k]), rank);
        all = _mm512_or_si512(all, off);
        v[k] = _mm512_sllv_epi32(one, off);
    }
    __m512i pair[2];
    for (int k = 0; k < 2; k++)
        pair[k] = _mm512_or_si512(_mm512_unpacklo_epi32(v[2 * k], v[2 * k + 1]),
                                  _mm512_unpackhi_epi32(v[2 * k], v[2 * k + 1]));
    __m512i four = _mm512_or_si512(_mm512_unpacklo_epi64(pair[0], pair[1]),
                                   _mm512_unpackhi_epi64(pair[0], pair[1]));
    __m512i firsts = _mm512_mask_mov_epi32(head[0], 0x2222, head[1]);
    firsts = _mm512_mask_mov_epi32(firsts, 0x4444, head[2]);
    firsts = _mm512_mask_mov_epi32(firsts, 0x8888, head[3]);
    /* Group g of vector k is in lane 4 g + k. */
    four = _mm512_permutexvar_epi32(order, four);
    firsts = _mm512_permutexvar_epi32(order, firsts);
    *heads = _mm512_and_si512(firsts, lower);
    __m512i distance = _mm512_add_epi64(_mm512_sub_epi64(_mm512_srli_epi64(firsts, 32), *heads),
                                        _mm512_set1_epi64(4));
    __m512i second = _mm512_srli_epi64(four, 32);
    *words = _mm512_ternarylogic_epi64(_mm512_sllv_epi64(second, distance), four, lower, 0xF8);
    __m512i lost = _mm512_srlv_epi64(second, _mm512_sub_epi64(most, distance));
    return !(_mm512_test_epi32_mask(all, _mm512_set1_epi32(~31)) |
             _mm512_test_epi64_mask(distance, _mm512_set1_epi64(~63LL)) |
             _mm512_test_epi64_mask(lost, lost));
}

static inline __attribute__((always_inline)) uint8_t *pack(unsigned index_bytes, const void *idx,
                                                           uint64_t count, uint64_t first,
                                                           unsigned low, uint8_t *low_out,
                                                           uint8_t *high_out) {
    const uint8_t *low_end = low_out + (count * low + 7) / 8;
    const __m512i ranks = _mm512_setr_epi64(0, 8, 16, 24, 32, 40, 48, 56);
    rill__packer packer = rill__packer_make(low);
    rill__bit_setter setter = {high_out, UINT64_MAX, 0, 0};
    uint64_t i = 0;
    for (; i + 64 <= count; i += 64, low_out += 8 * low) {
        const void *at = (const char *)idx + i * index_bytes;
        uint64_t above = 0; /* high part that the others are relative to */
        bool fits = true;
        if (index_bytes == 8) {
            const uint64_t *wide = at;
            above = (wide[0] - first - i) >> low;
            fits = wide[63] - first - i - (above << low) <= UINT32_MAX;
        }
        __m512i words, heads;
        fits &= pack64(index_bytes, at, first + i + (above << low), low, &packer, low_out, low_end,
                       &words, &heads);
        heads = _mm512_add_epi64(heads, _mm512_set1_epi64((long long)above));
        if (__builtin_expect(!fits, 0)) {
            for (uint64_t j = i; j < i + 64; j++) {
                uint64_t x = rill__index_at(index_bytes, idx, j) - first - j;
                rill__bit_set(&setter, (x >> low) + j);
            }
            continue;
        }
        uint64_t lows[8], highs[8], places[8];
        __m512i bit = _mm512_add_epi64(heads,
                                       _mm512_add_epi64(ranks, _mm512_set1_epi64((long long)i)));
        __m512i shift = _mm512_and_si512(bit, _mm512_set1_epi64(63));
        _mm512_storeu_si512(lows, _mm512_sllv_epi64(words, shift));
        _mm512_storeu_si512(highs, _mm512_srlv_epi64(words, _mm512_sub_epi64(_mm512_set1_epi64(64),
                                                                             shift)));
        _mm512_storeu_si512(places, _mm512_srli_epi64(bit, 6));
        for (int k = 0; k < 8; k++)
            rill__bits_set(&setter, places[k], lows[k], highs[k]);
    }
    rill__bit_writer writer = {low_out, 0, 0};
    rill__pack_high_low_from(index_bytes, idx, i, count, first, low, &writer, &setter);
    rill__bits_set_end(&setter);
    uint64_t x = rill__index_at(index_bytes, idx, count - 1) - first - (count - 1);
    return high_out + ((x >> low) + count - 1) / 8 + 1;
}

uint8_t *rill__pack_high_low_avx512(unsigned index_bytes, const void *idx, uint64_t count,
                                    uint64_t first, unsigned low, uint8_t *low_out,
                                    uint8_t *high_out) {
    if (low > RILL__PACK_SIMD)
        return index_bytes == 4 ? rill__pack_high_low(4, idx, count, first, low, low_out, high_out)
                                : rill__pack_high_low(8, idx, count, first, low, low_out, high_out);
    return index_bytes == 4 ? pack(4, idx, count, first, low, low_out, high_out)
                            : pack(8, idx, count, first, low, low_out, high_out);
}

/* ---- unpack --------------------------------------------------------------------------------- */

/* Positions of the bits of a chunk, of bytes from in on, at most want of them (plus what the last
 * word has). Returns how many. */
static inline unsigned positions(const uint8_t *in, size_t bytes, uint64_t want, uint16_t *out) {
    const __m512i iota = rill__iota8(), step = _mm512_set1_epi16(64);
    __m512i base = _mm512_setzero_si512();
    size_t words = bytes / 8 < CHUNK_WORDS ? bytes / 8 : CHUNK_WORDS, j = 0;
    unsigned n = 0;
    for (;; j++) {
        uint64_t word;
        if (j % 8 == 0 && j + 8 <= words) { /* sparse bitmaps are empty, mostly */
            __m512i eight = _mm512_loadu_si512(in + 8 * j);
            if (!_mm512_test_epi64_mask(eight, eight)) {
                base = _mm512_add_epi16(base, _mm512_slli_epi16(step, 3));
                j += 7;
                continue;
            }
        }
        if (__builtin_expect(j < words, 1)) {
            word = rill__load64(in + 8 * j);
        } else if (j < CHUNK_WORDS && bytes > 8 * j) {
            word = rill__load64(in + 8 * j) & rill__low_mask(8 * (unsigned)(bytes - 8 * j));
        } else {
            break;
        }
        __m512i bits = _mm512_maskz_compress_epi8(word, iota);
        __m512i a = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bits));
        __m512i b = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bits, 1));
        _mm512_storeu_si512(out + n, _mm512_add_epi16(a, base));
        _mm512_storeu_si512(out + n + 32, _mm512_add_epi16(b, base));
        base = _mm512_add_epi16(base, step);
        n += (unsigned)__builtin_popcountll(word);
        if (n >= want || j >= words) break;
    }
    return n;
}

/* Indices i to i + n from positions relative to bit `start`; last[0] is the last x. Returns whether
 * x falls somewhere. */
static inline bool emit_4(const uint16_t *position, unsigned n, uint64_t i, uint64_t start,
                          const uint8_t *low_in, unsigned low, uint64_t first, uint32_t *idx,
                          uint64_t *last) {
    const __m128i shift = _mm_cvtsi32_si128((int)low);
    const __m512i sixteen = _mm512_set1_epi32(16), iota = rill__iota32();
    rill__unpacker u = rill__unpacker_make(low, (unsigned)(i * low & 7));
    const uint8_t *in = low_in + (i * low >> 3);
    __m512i base = _mm512_sub_epi32(_mm512_set1_epi32((int)(uint32_t)(start - i)), iota);
    __m512i rank = _mm512_add_epi32(_mm512_set1_epi32((int)(uint32_t)(first + i)), iota);
    __m512i before = _mm512_set1_epi32((int)(uint32_t)*last), x = before;
    __mmask16 falls = 0;
    unsigned j = 0;
    for (; j < n; j += 16) {
        __m512i bit = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(position + j)));
        __m512i high = _mm512_sll_epi32(_mm512_add_epi32(bit, base), shift);
        x = _mm512_ternarylogic_epi32(rill__unpack16_unmasked(&u, in), u.mask, high, 0xEA);
        _mm512_storeu_si512(idx + i + j, _mm512_add_epi32(x, rank));
        __mmask16 less = _mm512_cmplt_epu32_mask(x, _mm512_alignr_epi32(x, before, 15));
        if (__builtin_expect(n - j < 16, 0)) less &= (__mmask16)((1u << (n - j)) - 1);
        falls |= less;
        before = x;
        in += 2 * low;
        base = _mm512_sub_epi32(base, sixteen);
        rank = _mm512_add_epi32(rank, sixteen);
    }
    *last = idx[i + n - 1] - (uint32_t)(first + i + n - 1);
    return falls;
}

static inline bool emit_8(const uint16_t *position, unsigned n, uint64_t i, uint64_t start,
                          const uint8_t *low_in, unsigned low, uint64_t first, uint64_t *idx,
                          uint64_t *last) {
    const __m128i shift = _mm_cvtsi32_si128((int)low);
    const __m512i eight = _mm512_set1_epi64(8), iota = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    rill__unpacker u = rill__unpacker_make(low, (unsigned)(i * low & 7));
    const uint8_t *in = low_in + (i * low >> 3);
    __m512i base = _mm512_sub_epi64(_mm512_set1_epi64((long long)(start - i)), iota);
    __m512i rank = _mm512_add_epi64(_mm512_set1_epi64((long long)(first + i)), iota);
    __m512i before = _mm512_set1_epi64((long long)*last);
    unsigned falls = 0;
    for (unsigned j = 0; j < n; j += 16, in += 2 * low) {
        __m512i lows = rill__unpack16(&u, in);
        for (unsigned k = 0; k < 2; k++) {
            __m512i bit = _mm512_cvtepu16_epi64(
                _mm_loadu_si128((const void *)(position + j + 8 * k)));
            __m512i part = _mm512_cvtepu32_epi64(k ? _mm512_extracti64x4_epi64(lows, 1)
                                                   : _mm512_castsi512_si256(lows));
            __m512i x = _mm512_or_si512(_mm512_sll_epi64(_mm512_add_epi64(bit, base), shift), part);
            _mm512_storeu_si512(idx + i + j + 8 * k, _mm512_add_epi64(x, rank));
            unsigned less = _mm512_cmplt_epu64_mask(x, _mm512_alignr_epi64(x, before, 7));
            unsigned there = n - j > 8 * k ? n - j - 8 * k : 0;
            if (__builtin_expect(there < 8, 0)) less &= (1u << there) - 1;
            falls |= less;
            before = x;
            base = _mm512_sub_epi64(base, eight);
            rank = _mm512_add_epi64(rank, eight);
        }
    }
    *last = idx[i + n - 1] - (first + i + n - 1);
    return falls;
}

bool rill__unpack_high_low_avx512(unsigned index_bytes, const uint8_t *low_in,
                                  const uint8_t *high_in, size_t high_bytes, uint64_t count,
                                  uint64_t first, uint64_t range, unsigned low, bool may_fall,
                                  void *idx, size_t *high_used) {
    if (low > RILL__PACK_SIMD)
        return index_bytes == 4
                   ? rill__unpack_high_low(4, low_in, high_in, high_bytes, count, first, range, low,
                                           may_fall, idx, high_used)
                   : rill__unpack_high_low(8, low_in, high_in, high_bytes, count, first, range, low,
                                           may_fall, idx, high_used);
    uint16_t position[64 * CHUNK_WORDS + 64];
    uint64_t i = 0, last = 0;
    bool falls = false;
    for (size_t at = 0; at < high_bytes; at += 8 * CHUNK_WORDS) {
        unsigned n = positions(high_in + at, high_bytes - at, count - i, position);
        if (n > count - i) n = (unsigned)(count - i);
        if (!n) continue;
        falls |= index_bytes == 4 ? emit_4(position, n, i, 8 * at, low_in, low, first, idx, &last)
                                  : emit_8(position, n, i, 8 * at, low_in, low, first, idx, &last);
        i += n;
        if (i == count)
            return rill__high_low_end(high_in, 8 * at + position[n - 1], last, count, range, low,
                                      high_used) &&
                   (may_fall || !falls);
    }
    return false;
}
