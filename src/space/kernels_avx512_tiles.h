/* Sums of many inputs through dense tiles with AVX-512, for kernels_avx512.c.
 *
 * A tile is a stretch of indices whose accumulators stay in the first- or second-level cache. Each
 * input in turn is added to it, one element at a time (gathers and scatters are slower on Zen 4);
 * then what is set is squeezed out in order. What is set is known in one of two ways:
 *   marked  an accumulator differs from the identity of the operation. Only values that are the
 *           identity (-0.0 for sums, infinity for MIN) leave no trace: they set a byte in a map.
 *           Costs nothing while adding, and a read of all accumulators at the end.
 *   mapped  every value sets a byte in the map, which is a quarter to an eighth to read, and less
 *           to restore. Cheaper below a density of about 10 %; needed for products, which can come
 *           back to 1, and where denormals are flushed, as a sum then can become -0.0.
 * Where the result is dense, a tile is written as it is, the identity replaced by the neutral
 * element. The parts of the next tile are prefetched: many short streams defeat the hardware's
 * prefetcher (64 inputs of 160k in 16M: 2.2 ns an element without, 1.4 with). A tile has 4K to 64K
 * indices, so that an input has about 128 elements in a tile, as a visit costs a few wrong guesses.
 */
#include "space/kernels_avx512_simd.h"

static void fill(rill_type, void *dst, uint64_t n, const void *value); /* kernels_avx512_dense.h */

#define TILE_MIN 4096u
#define TILE_VISIT 128u
#define TILE_MARKED 10 /* marked from an input element per so many indices */
#define LIST_PIECE 4096u
#define TILE_PAST                                                                                  \
    (16u << 20) /* bytes of a dense result from which on it is written past the caches */

typedef struct tile_plan {
    uint64_t size;  /* indices; a multiple of 64 */
    uint64_t ahead; /* elements of an input to prefetch */
    bool marked;
} tile_plan;

RILL__INLINE tile_plan tile_plan_of(rill__op_kind kind, uint64_t range, int n, uint64_t inputs) {
    double per_index = (double)inputs / (double)n / (double)range;
    uint64_t size = TILE_MIN;
    while (size < RILL__TILE_MAX && per_index * (double)size < TILE_VISIT)
        size *= 2;
    size = rill__min_u64(size, (range + 63) & ~UINT64_C(63));
    uint64_t ahead = (uint64_t)(1.3 * per_index * (double)size);
    bool flushes = _mm_getcsr() & (_MM_FLUSH_ZERO_MASK | 0x0040); /* 0x0040: denormals are zeros */
    bool marked = kind != RILL__PROD && !flushes && inputs >= range / TILE_MARKED;
    return (tile_plan){size, rill__min_u64(ahead, 1024), marked};
}

/* Writes the numbers of the set bits, plus offset; returns their count. */
RILL__INLINE unsigned list_bits(uint16_t *list, uint64_t set, unsigned offset) {
    const __m512i bytes = _mm512_set_epi64(0x3f3e3d3c3b3a3938, 0x3736353433323130,
                                           0x2f2e2d2c2b2a2928, 0x2726252423222120,
                                           0x1f1e1d1c1b1a1918, 0x1716151413121110,
                                           0x0f0e0d0c0b0a0908, 0x0706050403020100);
    __m512i packed = _mm512_maskz_compress_epi8(set, bytes);
    __m512i add = _mm512_set1_epi16((short)offset);
    unsigned count = (unsigned)_mm_popcnt_u64(set);
    __m512i words = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(packed));
    _mm512_storeu_si512(list, _mm512_add_epi16(words, add));
    if (__builtin_expect(count > 32, 0)) {
        words = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(packed, 1));
        _mm512_storeu_si512(list + 32, _mm512_add_epi16(words, add));
    }
    return count;
}

/* Bits set in the map for 64 indices, which are cleared. */
RILL__INLINE uint64_t take_bytes(unsigned char *map) {
    __m512i bytes = _mm512_loadu_si512(map);
    _mm512_storeu_si512(map, _mm512_setzero_si512());
    return _mm512_test_epi8_mask(bytes, bytes);
}

/* ---- 16 accumulators ------------------------------------------------------------------------ */

RILL__INLINE unsigned same_f32(const float *acc, float x) {
    return _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(acc), _mm512_castps_si512(_mm512_set1_ps(x)));
}
RILL__INLINE unsigned same_f64(const double *acc, double x) {
    __m512i want = _mm512_castpd_si512(_mm512_set1_pd(x));
    unsigned low = _mm512_cmpeq_epi64_mask(_mm512_loadu_si512(acc), want);
    unsigned high = _mm512_cmpeq_epi64_mask(_mm512_loadu_si512(acc + 8), want);
    return low | high << 8;
}
RILL__INLINE void clear_f32(float *acc, float x) { _mm512_storeu_ps(acc, _mm512_set1_ps(x)); }
RILL__INLINE void clear_f64(double *acc, double x) {
    _mm512_storeu_pd(acc, _mm512_set1_pd(x));
    _mm512_storeu_pd(acc + 8, _mm512_set1_pd(x));
}
RILL__INLINE void store_acc_f32(float *p, __mmask16 keep, const float *acc) {
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(keep, _mm512_loadu_ps(acc)));
}
RILL__INLINE void store_acc_f64(double *p, __mmask16 keep, const double *acc) {
    _mm512_storeu_pd(p, _mm512_maskz_compress_pd((__mmask8)keep, _mm512_loadu_pd(acc)));
    _mm512_storeu_pd(p + _mm_popcnt_u32(keep & 0xffu),
                     _mm512_maskz_compress_pd((__mmask8)(keep >> 8), _mm512_loadu_pd(acc + 8)));
}
RILL__INLINE void store_acc_f16(uint16_t *p, __mmask16 keep, const float *acc) {
    __m512 f = _mm512_maskz_compress_ps(keep, _mm512_loadu_ps(acc));
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
RILL__INLINE void store_acc_bf16(uint16_t *p, __mmask16 keep, const float *acc) {
    __m512 f = _mm512_maskz_compress_ps(keep, _mm512_loadu_ps(acc));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(bf16_store(f)));
}
/* past: to memory past the caches, which p must be aligned for. */
RILL__INLINE void store_full_f32(float *p, bool past, __mmask16 keep, const float *acc,
                                 float neutral) {
    __m512 v = _mm512_mask_mov_ps(_mm512_set1_ps(neutral), keep, _mm512_loadu_ps(acc));
    if (past) _mm512_stream_ps(p, v);
    else _mm512_storeu_ps(p, v);
}
RILL__INLINE void store_full_f64(double *p, bool past, __mmask16 keep, const double *acc,
                                 double neutral) {
    for (unsigned half = 0; half < 16; half += 8) {
        __m512d v = _mm512_mask_mov_pd(_mm512_set1_pd(neutral), (__mmask8)(keep >> half),
                                       _mm512_loadu_pd(acc + half));
        if (past) _mm512_stream_pd(p + half, v);
        else _mm512_storeu_pd(p + half, v);
    }
}
RILL__INLINE void store_full_2(uint16_t *p, bool past, __mmask16 keep, __m256i values,
                               uint16_t neutral) {
    __m256i v = _mm256_mask_mov_epi16(_mm256_set1_epi16((short)neutral), keep, values);
    if (past) _mm256_stream_si256((__m256i *)p, v);
    else _mm256_storeu_si256((__m256i *)p, v);
}
RILL__INLINE void store_full_f16(uint16_t *p, bool past, __mmask16 keep, const float *acc,
                                 uint16_t neutral) {
    __m512 f = _mm512_loadu_ps(acc);
    store_full_2(p, past, keep, _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 neutral);
}
RILL__INLINE void store_full_bf16(uint16_t *p, bool past, __mmask16 keep, const float *acc,
                                  uint16_t neutral) {
    store_full_2(p, past, keep, _mm512_cvtepi32_epi16(bf16_store(_mm512_loadu_ps(acc))), neutral);
}
RILL__INLINE const float *widen_f16(const uint16_t *p, float *wide) {
    _mm512_storeu_ps(wide, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)));
    return wide;
}
RILL__INLINE const float *widen_bf16(const uint16_t *p, float *wide) {
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    _mm512_storeu_ps(wide, bf16_load(v));
    return wide;
}
#define KEEP(x) (x)
#define AS_IS(p, wide) (p)

/* ---- one instance per type of values and of indices ----------------------------------------- */

#define VALUE float
#define ACC float
#define APPLY rill__apply_f32
#define TYPE RILL_F32
#define WIDEN AS_IS
#define LOAD KEEP
#define STORE_ACC store_acc_f32
#define STORE_FULL store_full_f32
#define SAME same_f32
#define CLEAR clear_f32
#define NAME(x) x##_f32_4
#define INDEX_BYTES 4
#include "space/kernels_avx512_tiles.inc"
#define NAME(x) x##_f32_8
#define INDEX_BYTES 8
#include "space/kernels_avx512_tiles.inc"
#undef VALUE
#undef TYPE
#undef WIDEN
#undef LOAD
#undef STORE_ACC
#undef STORE_FULL

#define VALUE uint16_t
#define TYPE RILL_F16
#define WIDEN widen_f16
#define LOAD rill__f16_to_f32
#define STORE_ACC store_acc_f16
#define STORE_FULL store_full_f16
#define NAME(x) x##_f16_4
#define INDEX_BYTES 4
#include "space/kernels_avx512_tiles.inc"
#define NAME(x) x##_f16_8
#define INDEX_BYTES 8
#include "space/kernels_avx512_tiles.inc"
#undef TYPE
#undef WIDEN
#undef LOAD
#undef STORE_ACC
#undef STORE_FULL

#define TYPE RILL_BF16
#define WIDEN widen_bf16
#define LOAD rill__bf16_to_f32
#define STORE_ACC store_acc_bf16
#define STORE_FULL store_full_bf16
#define NAME(x) x##_bf16_4
#define INDEX_BYTES 4
#include "space/kernels_avx512_tiles.inc"
#define NAME(x) x##_bf16_8
#define INDEX_BYTES 8
#include "space/kernels_avx512_tiles.inc"
#undef VALUE
#undef ACC
#undef APPLY
#undef TYPE
#undef WIDEN
#undef LOAD
#undef STORE_ACC
#undef STORE_FULL
#undef SAME
#undef CLEAR

#define VALUE double
#define ACC double
#define APPLY rill__apply_f64
#define TYPE RILL_F64
#define WIDEN AS_IS
#define LOAD KEEP
#define STORE_ACC store_acc_f64
#define STORE_FULL store_full_f64
#define SAME same_f64
#define CLEAR clear_f64
#define NAME(x) x##_f64_4
#define INDEX_BYTES 4
#include "space/kernels_avx512_tiles.inc"
#define NAME(x) x##_f64_8
#define INDEX_BYTES 8
#include "space/kernels_avx512_tiles.inc"
#undef VALUE
#undef ACC
#undef APPLY
#undef TYPE
#undef WIDEN
#undef LOAD
#undef STORE_ACC
#undef STORE_FULL
#undef SAME
#undef CLEAR
