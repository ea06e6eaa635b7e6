/* Bit-packed gaps in AVX-512: 8 groups of 16 gaps a pack, see codec_pack_avx512.h.
 *
 * Packing finds the widths of a batch of packs first, then writes it from the cache: with one
 * pack at a time, everything waits for the way of the width to general registers and back. A
 * batch of 64-bit indices that lie within 2^32 is packed from a copy of their lower halves.
 * Unpacking sums within a group by four shifted additions. Packs wider than 24 bits are rare in
 * what can be sent (each takes 2^24 of the range), as are those that cross a multiple of 2^32, and
 * go through the portable code. */
#include "space/codec_index_portable.h"
#include "space/codec_kernels_avx512.h"
#include "space/codec_pack_avx512.h"

#define GROUPS 8u
#define BATCH 16u /* packs: 8 or 16 KiB of indices */
#define UNROLL _Pragma("GCC unroll 8")

static inline __m512i narrow(__m512i a, __m512i b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(a)),
                              _mm512_cvtepi64_epi32(b), 1);
}

/* Lanes of group g among n entries. */
static inline __mmask16 group_lanes(unsigned n, unsigned g) {
    return 16 * g + 16 <= n ? (__mmask16)0xffff
           : 16 * g >= n    ? (__mmask16)0
                            : (__mmask16)((1u << (n - 16 * g)) - 1);
}

/* Width of the n gaps from i on. n is a constant 128 for whole packs, which leaves no
 * trace of the masks. The previous ones come by loads one entry lower, which cost less than
 * shuffles; something must lie before idx[i]. */
static inline __attribute__((always_inline)) unsigned
pack_width(unsigned index_bytes, const void *idx, uint64_t i, unsigned n) {
    __m512i most = _mm512_setzero_si512();
    UNROLL for (unsigned g = 0; g < GROUPS; g++) {
        __mmask16 lanes = group_lanes(n, g);
        if (index_bytes == 4) {
            const uint32_t *at = (const uint32_t *)idx + i + 16 * g;
            __m512i step = _mm512_maskz_sub_epi32(lanes, _mm512_maskz_loadu_epi32(lanes, at),
                                                  _mm512_maskz_loadu_epi32(lanes, at - 1));
            most = _mm512_max_epu32(most, step);
        } else {
            for (unsigned k = 0; k < 2; k++, lanes >>= 8) {
                const uint64_t *at = (const uint64_t *)idx + i + 16 * g + 8 * k;
                __mmask8 half = (__mmask8)lanes;
                most = _mm512_max_epu64(
                    most, _mm512_maskz_sub_epi64(half, _mm512_maskz_loadu_epi64(half, at),
                                                 _mm512_maskz_loadu_epi64(half, at - 1)));
            }
        }
    }
    uint64_t step = index_bytes == 4 ? _mm512_reduce_max_epu32(most)
                                     : _mm512_reduce_max_epu64(most);
    return step ? rill__bit_width(step - 1) : 0;
}

static inline __attribute__((always_inline)) uint8_t *
pack_one(unsigned index_bytes, const void *idx, uint64_t i, unsigned n, unsigned w, uint8_t *out) {
    const __m512i minus4 = _mm512_set1_epi32(-1);
    if (__builtin_expect(w > RILL__PACK_SIMD, 0)) {
        uint8_t width;
        uint64_t next = rill__index_at(index_bytes, idx, i - 1) + 1;
        if (index_bytes == 4) next = (uint32_t)next; /* 0 after first - 1 */
        return rill__pack_one(index_bytes, idx, i, n, &next, &width, out);
    }
    rill__packer packer = rill__packer_make(w);
    UNROLL for (unsigned g = 0; g < GROUPS; g++) {
        if (16 * g >= n) break;
        __mmask16 lanes = group_lanes(n, g);
        __m512i step;
        if (index_bytes == 4) {
            const uint32_t *at = (const uint32_t *)idx + i + 16 * g;
            step = _mm512_sub_epi32(_mm512_maskz_loadu_epi32(lanes, at),
                                    _mm512_maskz_loadu_epi32(lanes, at - 1));
        } else { /* w <= 24: the lower halves are enough */
            const uint64_t *at = (const uint64_t *)idx + i + 16 * g;
            __mmask8 a = (__mmask8)lanes, b = (__mmask8)(lanes >> 8);
            step = narrow(_mm512_sub_epi64(_mm512_maskz_loadu_epi64(a, at),
                                           _mm512_maskz_loadu_epi64(a, at - 1)),
                          _mm512_sub_epi64(_mm512_maskz_loadu_epi64(b, at + 8),
                                           _mm512_maskz_loadu_epi64(b, at + 7)));
        }
        __m512i gap = _mm512_maskz_add_epi32(lanes, step, minus4);
        _mm512_storeu_si512(out + 2 * w * g, rill__pack16(&packer, gap));
    }
    return out + ((size_t)n * w + 7) / 8;
}

/* Whole packs from i on. */
static inline __attribute__((always_inline)) uint8_t *pack_batch(unsigned index_bytes,
                                                                 const void *idx, uint64_t i,
                                                                 uint64_t packs, uint8_t *widths,
                                                                 uint8_t *out) {
    for (uint64_t k = 0; k < packs; k++)
        widths[k] = (uint8_t)pack_width(index_bytes, idx, i + k * RILL__PACK, RILL__PACK);
    for (uint64_t k = 0; k < packs; k++, i += RILL__PACK)
        out = pack_one(index_bytes, idx, i, RILL__PACK, widths[k], out);
    return out;
}

/* The same of 64-bit indices that lie within 2^32, by their lower halves: the gaps go through
 * memory, as narrowing them twice would cost more. Packs that are too wide for SIMD need whole
 * indices. */
static uint8_t *pack_narrow(const uint64_t *idx, uint64_t i, uint64_t packs, uint8_t *widths,
                            uint8_t *out) {
    uint32_t gaps[BATCH * RILL__PACK] __attribute__((aligned(64)));
    const __m512i one = _mm512_set1_epi32(1);
    __m512i before = _mm512_set1_epi32((int)(uint32_t)idx[i - 1]);
    unsigned widest = 0;
    for (uint64_t k = 0; k < packs; k++) {
        __m512i all = _mm512_setzero_si512();
        UNROLL for (unsigned g = 0; g < GROUPS; g++) {
            uint64_t at = k * RILL__PACK + 16 * g;
            __m512i v = rill__lower_halves(idx + i + at);
            __m512i gap = _mm512_sub_epi32(_mm512_sub_epi32(v, _mm512_alignr_epi32(v, before, 15)),
                                           one);
            all = _mm512_or_si512(all, gap);
            _mm512_store_si512(gaps + at, gap);
            before = v;
        }
        widths[k] = (uint8_t)rill__bit_width((uint32_t)_mm512_reduce_or_epi32(all));
        widest = widths[k] > widest ? widths[k] : widest;
    }
    if (widest > RILL__PACK_SIMD) return pack_batch(8, idx, i, packs, widths, out);
    for (uint64_t k = 0; k < packs; k++) {
        rill__packer packer = rill__packer_make(widths[k]);
        UNROLL for (unsigned g = 0; g < GROUPS; g++) {
            __m512i gap = _mm512_load_si512(gaps + k * RILL__PACK + 16 * g);
            _mm512_storeu_si512(out + 2 * widths[k] * g, rill__pack16(&packer, gap));
        }
        out += 16 * widths[k];
    }
    return out;
}

static inline __attribute__((always_inline)) uint8_t *pack(unsigned index_bytes, const void *idx,
                                                           uint64_t count, uint64_t first,
                                                           uint8_t *widths, uint8_t *out) {
    /* The first pack goes through a copy, which has an entry before it. */
    uint64_t copy[RILL__PACK + 8], i = rill__min_u64(count, RILL__PACK);
    rill__index_put(index_bytes, copy, 0, first - 1);
    memcpy((char *)copy + index_bytes, idx, i * index_bytes);
    unsigned w = pack_width(index_bytes, copy, 1, (unsigned)i);
    /* The first step may be 2^32, which is 0 in 32 bits. */
    unsigned w0 = rill__bit_width(rill__index_at(index_bytes, idx, 0) - first);
    *widths = (uint8_t)(w > w0 ? w : w0);
    out = pack_one(index_bytes, copy, 1, (unsigned)i, *widths++, out);
    while (i + RILL__PACK <= count) {
        uint64_t packs = rill__min_u64((count - i) / RILL__PACK, BATCH);
        const uint64_t *wide = idx, n = packs * RILL__PACK;
        out = index_bytes == 8 && wide[i + n - 1] - wide[i - 1] <= UINT32_MAX
                  ? pack_narrow(wide, i, packs, widths, out)
                  : pack_batch(index_bytes, idx, i, packs, widths, out);
        widths += packs;
        i += n;
    }
    if (i < count) {
        unsigned n = (unsigned)(count - i);
        *widths = (uint8_t)pack_width(index_bytes, idx, i, n);
        out = pack_one(index_bytes, idx, i, n, *widths, out);
    }
    return out;
}

uint8_t *rill__pack_gaps_avx512(unsigned index_bytes, const void *idx, uint64_t count,
                                uint64_t first, uint8_t *widths, uint8_t *out) {
    return index_bytes == 4 ? pack(4, idx, count, first, widths, out)
                            : pack(8, idx, count, first, widths, out);
}

/* ---- unpack --------------------------------------------------------------------------------- */

/* Lane k = sum of the lanes up to k. */
static inline __m512i prefix_sum(__m512i v) {
    const __m512i zero = _mm512_setzero_si512();
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 15));
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 14));
    v = _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 12));
    return _mm512_add_epi32(v, _mm512_alignr_epi32(v, zero, 8));
}

/* Pack of n gaps of w <= 24 bits; at[0] >= next. Returns the sum of gaps + 1, below 2^32. The
 * indices themselves are summed, modulo 2^32; those of 64 bits get their upper halves, which must
 * be those of next - 1. */
static inline __attribute__((always_inline)) uint64_t unpack_one(unsigned index_bytes,
                                                                 const uint8_t *in, unsigned w,
                                                                 unsigned n, uint64_t next,
                                                                 void *at) {
    const __m512i step = _mm512_add_epi32(rill__iota32(), _mm512_set1_epi32(1));
    const __m512i last_lane = _mm512_set1_epi32(15);
    const __m512i first_half = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                                 23);
    const __m512i second_half = _mm512_add_epi32(first_half, _mm512_set1_epi32(8));
    rill__unpacker u = rill__unpacker_make(w, 0);
    uint32_t origin = (uint32_t)(next - 1);
    __m512i carry = _mm512_set1_epi32((int)origin), v;
    const __m512i upper = _mm512_set1_epi32((int)(uint32_t)((next - 1) >> 32));
    UNROLL for (unsigned g = 0; g < GROUPS; g++) {
        if (16 * g >= n) break;
        v = prefix_sum(rill__unpack16(&u, in + 2 * w * g));
        v = _mm512_add_epi32(_mm512_add_epi32(v, step), carry);
        carry = _mm512_permutexvar_epi32(last_lane, v);
        if (index_bytes == 4) {
            _mm512_storeu_si512((uint32_t *)at + 16 * g, v);
        } else {
            uint64_t *to = (uint64_t *)at + 16 * g;
            _mm512_storeu_si512(to, _mm512_permutex2var_epi32(v, first_half, upper));
            _mm512_storeu_si512(to + 8, _mm512_permutex2var_epi32(v, second_half, upper));
        }
    }
    if (n < RILL__PACK) return (uint32_t)(rill__index_at(index_bytes, at, n - 1) + 1 - next);
    return (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(carry)) - origin;
}

/* Whether the next pack is for SIMD: narrow, and its indices have the same upper halves. */
static inline bool pack_fits(unsigned index_bytes, unsigned w, uint64_t next) {
    if (w > RILL__PACK_SIMD) return false;
    return index_bytes == 4 || (uint32_t)(next - 1) <= UINT32_MAX - (RILL__PACK << w);
}

static inline __attribute__((always_inline)) bool unpack(unsigned index_bytes,
                                                         const uint8_t *widths, const uint8_t *in,
                                                         uint64_t count, uint64_t first,
                                                         uint64_t range, void *idx) {
    uint64_t next = first, left = range, i = 0;
    for (; i < count; i += RILL__PACK) {
        unsigned w = *widths++;
        bool fits = pack_fits(index_bytes, w, next);
        void *at = (char *)idx + i * index_bytes;
        if (__builtin_expect(!fits || count - i < RILL__PACK, 0)) {
            unsigned n = (unsigned)rill__min_u64(RILL__PACK, count - i);
            if (!fits) {
                if (!rill__unpack_one(index_bytes, in, w, n, &next, &left, at, 0)) return false;
            } else {
                uint64_t sum = unpack_one(index_bytes, in, w, n, next, at);
                if (sum > left) return false;
                left -= sum;
                next += sum;
            }
            in += ((size_t)n * w + 7) / 8;
            continue;
        }
        uint64_t sum = unpack_one(index_bytes, in, w, RILL__PACK, next, at);
        if (sum > left) return false;
        left -= sum;
        next += sum;
        in += 16 * w;
    }
    return true;
}

bool rill__unpack_gaps_avx512(unsigned index_bytes, const uint8_t *widths, const uint8_t *in,
                              uint64_t count, uint64_t first, uint64_t range, void *idx) {
    return index_bytes == 4 ? unpack(4, widths, in, count, first, range, idx)
                            : unpack(8, widths, in, count, first, range, idx);
}
