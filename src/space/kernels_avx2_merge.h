/* 2-way merge with AVX2 for 32-bit indices and values of up to 32 bits, 8 pairs a step, for
 * kernels_avx2.c. The design is that of kernels_avx512_merge.h, with keys of 28 bits of offset and
 * 4 of lane number, and with permutations in place of compression. */
#include "space/kernels_impl.h"

#include <immintrin.h>

#define MERGE_SPAN 0xfffffffu /* one less than 2^28: the largest key stands for "none" */

/* Sorts a bitonic sequence. */
RILL__INLINE __m256i sort_bitonic(__m256i x) {
    __m256i y = _mm256_permute2x128_si256(x, x, 1);
    x = _mm256_blend_epi32(_mm256_min_epu32(x, y), _mm256_max_epu32(x, y), 0xf0);
    y = _mm256_shuffle_epi32(x, 0x4e);
    x = _mm256_blend_epi32(_mm256_min_epu32(x, y), _mm256_max_epu32(x, y), 0xcc);
    y = _mm256_shuffle_epi32(x, 0xb1);
    return _mm256_blend_epi32(_mm256_min_epu32(x, y), _mm256_max_epu32(x, y), 0xaa);
}

/* ---- operations, with the NaN rules of rill__apply_f32 -------------------------------------- */

RILL__INLINE __m256 apply_ps(rill__op_kind kind, __m256 a, __m256 b) {
    /* vminps gives its second operand if either is NaN: right unless only b is. */
    __m256 r;
    if (kind == RILL__MIN) r = _mm256_min_ps(b, a);
    else if (kind == RILL__MAX) r = _mm256_max_ps(b, a);
    else return kind == RILL__PROD ? _mm256_mul_ps(a, b) : _mm256_add_ps(a, b);
    __m256 only_b = _mm256_and_ps(_mm256_cmp_ps(a, a, _CMP_ORD_Q),
                                  _mm256_cmp_ps(b, b, _CMP_UNORD_Q));
    return _mm256_blendv_ps(r, b, only_b);
}
RILL__INLINE __m256d apply_pd(rill__op_kind kind, __m256d a, __m256d b) {
    __m256d r;
    if (kind == RILL__MIN) r = _mm256_min_pd(b, a);
    else if (kind == RILL__MAX) r = _mm256_max_pd(b, a);
    else return kind == RILL__PROD ? _mm256_mul_pd(a, b) : _mm256_add_pd(a, b);
    __m256d only_b = _mm256_and_pd(_mm256_cmp_pd(a, a, _CMP_ORD_Q),
                                   _mm256_cmp_pd(b, b, _CMP_UNORD_Q));
    return _mm256_blendv_pd(r, b, only_b);
}

/* ---- 8 values in 32-bit lanes; 16-bit ones have 0 above ------------------------------------- */

RILL__INLINE __m128i narrow(__m256i v) {
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08));
}
RILL__INLINE __m256i load_values(rill_type type, const char *p) {
    if (type == RILL_F32) return _mm256_loadu_si256((const __m256i *)p);
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}
RILL__INLINE void store_values(rill_type type, char *p, __m256i v) {
    if (type == RILL_F32) _mm256_storeu_si256((__m256i *)p, v);
    else _mm_storeu_si128((__m128i *)p, narrow(v));
}
RILL__INLINE __m256 to_f32(rill_type type, __m256i v) {
    if (type == RILL_F32) return _mm256_castsi256_ps(v);
    if (type == RILL_F16) return _mm256_cvtph_ps(narrow(v));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}
RILL__INLINE __m256i from_f32(rill_type type, __m256 f) {
    if (type == RILL_F32) return _mm256_castps_si256(f);
    if (type == RILL_F16)
        return _mm256_cvtepu16_epi32(
            _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    __m256i u = _mm256_castps_si256(f), top = _mm256_srli_epi32(u, 16);
    __m256i even = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), even);
    __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(_mm256_srli_epi32(up, 16)),
                                                _mm256_castsi256_ps(quiet),
                                                _mm256_cmp_ps(f, f, _CMP_UNORD_Q)));
}
RILL__INLINE __m256i apply_values(rill_type type, rill__op_kind kind, __m256i a, __m256i b) {
    return from_f32(type, apply_ps(kind, to_f32(type, a), to_f32(type, b)));
}

RILL__INLINE __m256i blend(__m256i a, __m256i b, __m256i where_b) {
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b),
                                                _mm256_castsi256_ps(where_b)));
}
RILL__INLINE unsigned bits_of(__m256i lanes) {
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}
/* Lane l set if l < n, for n up to 8. */
RILL__INLINE __m256i lanes_below(unsigned n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/* Permutation that packs the lanes of keep. pext is slow on Zen 1 and 2 only. */
RILL__INLINE __m256i packing(unsigned keep) {
    uint64_t bytes = _pdep_u64(keep, UINT64_C(0x0101010101010101)) * 0xff;
    uint64_t order = _pext_u64(UINT64_C(0x0706050403020100), bytes);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)order));
}

/* ---- merge ----------------------------------------------------------------------------------- */

typedef struct merger {
    const uint32_t *ai, *bi;
    const char *av, *bv;
    uint64_t i, j, n; /* pairs read of a and b, and written */
    uint32_t *idx;
    char *val;
    /* Lane 0 is the last pair of the previous step. It is not written yet: its twin may follow. */
    __m256i x, v;
    unsigned open; /* all lanes, but not lane 0 while nothing is pending */
} merger;

/* The 8 lowest of the next 8 of a and of b, of which left_a and left_b exist. */
RILL__INLINE unsigned step(merger *m, rill_type type, rill__op_kind kind, uint32_t base,
                           unsigned left_a, unsigned left_b) {
    const bool whole = left_a == 8 && left_b == 8;
    const unsigned size = type == RILL_F32 ? 4 : 2;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i reversed = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i turned = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
    const __m256i bases = _mm256_set1_epi32((int)base);
    __m256i a = _mm256_loadu_si256((const __m256i *)(m->ai + m->i));
    __m256i b = _mm256_loadu_si256((const __m256i *)(m->bi + m->j));
    b = _mm256_permutevar8x32_epi32(b, reversed);
    unsigned from_a = bits_of(_mm256_cmpeq_epi32(_mm256_min_epu32(a, b), a));
    a = _mm256_or_si256(_mm256_slli_epi32(_mm256_sub_epi32(a, bases), 4), lanes);
    b = _mm256_or_si256(_mm256_slli_epi32(_mm256_sub_epi32(b, bases), 4),
                        _mm256_add_epi32(reversed, _mm256_set1_epi32(8)));
    unsigned taken = 8, taken_a = (unsigned)_mm_popcnt_u32(from_a);
    if (!whole) {
        __m256i some_a = lanes_below(left_a);
        __m256i some_b = _mm256_permutevar8x32_epi32(lanes_below(left_b), reversed);
        a = _mm256_or_si256(a, _mm256_xor_si256(some_a, _mm256_set1_epi32(-1)));
        b = _mm256_or_si256(b, _mm256_xor_si256(some_b, _mm256_set1_epi32(-1)));
        __m256i first = _mm256_cmpeq_epi32(_mm256_min_epu32(a, b), a);
        taken_a = (unsigned)_mm_popcnt_u32(bits_of(_mm256_and_si256(first, some_a)));
        taken = taken_a + (unsigned)_mm_popcnt_u32(bits_of(_mm256_andnot_si256(first, some_b)));
    }
    __m256i s = sort_bitonic(_mm256_min_epu32(a, b));
    __m256i va = _mm256_permutevar8x32_epi32(load_values(type, m->av + m->i * size), s);
    __m256i vb = _mm256_permutevar8x32_epi32(load_values(type, m->bv + m->j * size), s);
    __m256i v = blend(va, vb, _mm256_slli_epi32(s, 28));
    __m256i x = _mm256_srli_epi32(s, 4);
    m->i += taken_a;
    m->j += taken - taken_a;

    /* A twin joins the pair before it, which then is not written. */
    unsigned valid = whole ? m->open : m->open & ((1u << taken) - 1);
    __m256i last_x = _mm256_permutevar8x32_epi32(x, turned);
    __m256i left = _mm256_blend_epi32(last_x, m->x, 1);
    __m256i twin = _mm256_cmpeq_epi32(x, left);
    if (m->open == 0xfe) twin = _mm256_blend_epi32(twin, _mm256_setzero_si256(), 1);
    __m256i left_v = _mm256_blend_epi32(_mm256_permutevar8x32_epi32(v, turned), m->v, 1);
    v = blend(v, apply_values(type, kind, left_v, v), twin);
    __m256i last_v = _mm256_permutevar8x32_epi32(v, turned);
    unsigned keep = valid & ~bits_of(twin);
    __m256i order = packing(keep);
    __m256i out_x = _mm256_permutevar8x32_epi32(left, order);
    __m256i out_v = _mm256_permutevar8x32_epi32(_mm256_blend_epi32(last_v, m->v, 1), order);
    _mm256_storeu_si256((__m256i *)(m->idx + m->n), _mm256_add_epi32(out_x, bases));
    store_values(type, m->val + m->n * size, out_v);
    m->n += (uint64_t)_mm_popcnt_u32(keep);
    if (!whole) { /* the last pair moves to where the next step looks for it */
        __m256i at = _mm256_set1_epi32((int)taken - 1);
        last_x = _mm256_permutevar8x32_epi32(x, at);
        last_v = _mm256_permutevar8x32_epi32(v, at);
    }
    m->x = last_x;
    m->v = last_v;
    m->open = 0xff;
    return taken;
}

RILL__INLINE uint64_t span_end(const uint32_t *idx, uint64_t low, uint64_t high, uint32_t base) {
    if (low == high || idx[high - 1] - base < MERGE_SPAN) return high;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (idx[middle] - base < MERGE_SPAN) low = middle + 1;
        else high = middle;
    }
    return low;
}

RILL__INLINE uint64_t merge_type(rill_type type, rill__op_kind kind, rill__pairs a, rill__pairs b,
                                 uint32_t *idx, char *val) {
    const unsigned size = type == RILL_F32 ? 4 : 2;
    merger m = {a.idx,
                b.idx,
                a.val,
                b.val,
                0,
                0,
                0,
                idx,
                val,
                _mm256_setzero_si256(),
                _mm256_setzero_si256(),
                0};
    while (m.i < a.n && m.j < b.n) {
        /* A stretch of indices whose offsets leave room for the lane number. */
        uint32_t base = m.ai[m.i] < m.bi[m.j] ? m.ai[m.i] : m.bi[m.j];
        uint64_t end_a = span_end(m.ai, m.i, a.n, base), end_b = span_end(m.bi, m.j, b.n, base);
        m.open = 0xfe;
        while (m.i + 8 <= end_a && m.j + 8 <= end_b)
            step(&m, type, kind, base, 8, 8);
        while ((m.i < end_a || m.j < end_b) && m.i < a.n && m.j < b.n)
            step(&m, type, kind, base, (unsigned)rill__min_u64(end_a - m.i, 8),
                 (unsigned)rill__min_u64(end_b - m.j, 8));
        /* The pending pair; its twin can only be the next of an input that outlasts the other. */
        uint32_t x = base + (uint32_t)_mm256_cvtsi256_si32(m.x);
        if (m.i == a.n && m.j < b.n && m.bi[m.j] == x)
            m.v = apply_values(type, kind, m.v, load_values(type, m.bv + m.j++ * size));
        uint32_t v = (uint32_t)_mm256_cvtsi256_si32(m.v);
        uint16_t half = (uint16_t)v;
        idx[m.n] = x;
        memcpy(val + m.n++ * size, size == 4 ? (void *)&v : (void *)&half, size);
    }
    const uint32_t *rest_idx = m.i < a.n ? m.ai + m.i : m.bi + m.j;
    const char *rest_val = m.i < a.n ? m.av + m.i * size : m.bv + m.j * size;
    uint64_t rest = (a.n - m.i) + (b.n - m.j);
    if (rest) {
        memcpy(idx + m.n, rest_idx, rest * sizeof *idx);
        memcpy(val + m.n * size, rest_val, rest * size);
    }
    return m.n + rest;
}

#define MERGE_KINDS(TYPE)                                                                          \
    switch (op->kind) {                                                                            \
    case RILL__SUM: return merge_type(TYPE, RILL__SUM, a, b, idx, val);                            \
    case RILL__MIN: return merge_type(TYPE, RILL__MIN, a, b, idx, val);                            \
    case RILL__MAX: return merge_type(TYPE, RILL__MAX, a, b, idx, val);                            \
    case RILL__PROD: return merge_type(TYPE, RILL__PROD, a, b, idx, val);                          \
    case RILL__USER: break;                                                                        \
    }

static uint64_t merge(rill__shape shape, const rill_op *op, rill__pairs a, rill__pairs b, void *idx,
                      void *val) {
    if (shape.index_bytes == 4) {
        if (shape.type == RILL_F32) MERGE_KINDS(RILL_F32)
        else if (shape.type == RILL_F16) MERGE_KINDS(RILL_F16)
        else if (shape.type == RILL_BF16) MERGE_KINDS(RILL_BF16)
    }
    return rill__kernels_scalar.merge(shape, op, a, b, idx, val);
}
