/* Value kernels in plain C: the definition of the bits, and what the SIMD kernels fall back to.
 * value_qsgd.c has the idea and the layout.
 *
 * Written so that compilers find the SIMD there is, but for the generator; value_lanes.h has that.
 * Cost: quantize 1.4 ns a value, 0.8 ns with SSE2; dequantize 0.2 ns. */
#ifndef RILL_SPACE_VALUE_PORTABLE_H
#define RILL_SPACE_VALUE_PORTABLE_H

#include "space/codec_kernels.h"
#include "space/half.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define RILL__QUANT_GROUP 64u /* values that share 8 blocks of random bits */

/* Largest level: 127, 7, 1. */
static inline int rill__quant_levels(unsigned bits) { return (1 << (bits - 1)) - 1; }
static inline size_t rill__quant_bytes(unsigned bits, uint64_t n) {
    return (size_t)(n / 8 * bits + (n % 8 * bits + 7) / 8);
}

/* ---- random bits ---------------------------------------------------------------------------- */

#define RILL__PHILOX_M0 0xD2511F53u
#define RILL__PHILOX_M1 0xCD9E8D57u
#define RILL__PHILOX_W0 0x9E3779B9u
#define RILL__PHILOX_W1 0xBB67AE85u

/* Blocks 8 group to 8 group + 7 of Philox 4x32-7 (Salmon et al., 2011; Random123). word[0] has
 * words 0 and 1 of each block, word[1] words 2 and 3. Value e of the group takes
 * word[e / 32][e % 16], its lower half if e / 16 is even, else its upper half. */
static inline void rill__quant_random(const rill__quant_stream *stream, uint64_t group,
                                      uint32_t word[2][16]) {
    /* Block by block, in registers: compilers make a mess of arrays of lanes here. */
    for (unsigned j = 0; j < 8; j++) {
        uint32_t c0 = (uint32_t)(8 * group + j), c1 = (uint32_t)(8 * group >> 32);
        uint32_t c2 = stream->high[0], c3 = stream->high[1];
        uint32_t k0 = stream->key[0], k1 = stream->key[1];
        for (int round = 0; round < 7; round++, k0 += RILL__PHILOX_W0, k1 += RILL__PHILOX_W1) {
            uint64_t p0 = (uint64_t)c0 * RILL__PHILOX_M0, p1 = (uint64_t)c2 * RILL__PHILOX_M1;
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
            c1 = (uint32_t)p1;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
            c3 = (uint32_t)p0;
        }
        word[0][2 * j] = c0;
        word[0][2 * j + 1] = c1;
        word[1][2 * j] = c2;
        word[1][2 * j + 1] = c3;
    }
}

/* ---- scale ---------------------------------------------------------------------------------- */

/* What one level is worth. Rounding it down is harmless (levels are clamped, off by 2^-24), except
 * among subnormals, where it is rounded up; and it is rounded down where the largest level would
 * give infinity. */
static inline float rill__quant_unit(double norm, int levels) {
    double exact = norm / levels;
    if (exact >= (double)FLT_MAX) return FLT_MAX;
    float unit = (float)exact;
    if (unit < FLT_MIN && (double)unit < exact)
        unit = rill__float_from_bits(rill__float_bits(unit) + 1);
    if (norm <= (double)FLT_MAX && (double)unit * levels > (double)FLT_MAX)
        unit = rill__float_from_bits(rill__float_bits(unit) - 1);
    return unit;
}

/* Sum of 16 partial sums; every kernel adds in this order. */
static inline double rill__quant_norm(double sum[16]) {
    for (unsigned w = 8; w; w /= 2)
        for (unsigned j = 0; j < w; j++)
            sum[j] += sum[j + w];
    return sqrt(sum[0]);
}

static inline uint32_t rill__quant_max_bits(const float *x, unsigned n) {
    int32_t most = 0;
    for (unsigned i = 0; i < n; i++) {
        int32_t magnitude = (int32_t)(rill__float_bits(x[i]) & 0x7fffffffu);
        most = magnitude > most ? magnitude : most;
    }
    return (uint32_t)most;
}

/* ---- quantize ------------------------------------------------------------------------------- */

/* To the nearest integer, ties to even, for magnitudes below 2^23, where f32 has no fraction. */
static inline float rill__quant_rint(float y) {
    float large = rill__float_from_bits((rill__float_bits(y) & 0x80000000u) | 0x4b000000u);
    return (y + large) - large;
}

/* Levels of b bits, packed from the lowest bits up; n is a multiple of 8. */
static inline void rill__quant_pack(const int8_t *restrict level, unsigned n, unsigned bits,
                                    uint8_t *restrict out) {
    if (bits == 8) {
        memcpy(out, level, n);
    } else if (bits == 4) {
        for (unsigned i = 0; i < n / 2; i++)
            out[i] = (uint8_t)((level[2 * i] & 15) | (level[2 * i + 1] & 15) << 4);
    } else {
        for (unsigned i = 0; i < n / 4; i++)
            out[i] = (uint8_t)((level[4 * i] & 3) | (level[4 * i + 1] & 3) << 2 |
                               (level[4 * i + 2] & 3) << 4 | (level[4 * i + 3] & 3) << 6);
    }
}

/* Levels, at most `most`, of the finite values x of group first + i; both groups are in a bucket.
 * The kernels differ in this. */
typedef void rill__quant_group(rill__quant_stream, uint64_t first, unsigned i, const float *x,
                               float factor, int most, int8_t *level);

static inline void rill__quantize_group(rill__quant_stream stream, uint64_t first, unsigned i,
                                        const float *x, float factor, int most, int8_t *level) {
    uint32_t word[2][16];
    rill__quant_random(&stream, first + i, word);
    for (unsigned part = 0; part < 4; part++)
        for (unsigned j = 0; j < 16; j++) {
            float y = rill__quant_rint(x[16 * part + j] * factor);
            uint32_t random = word[part / 2][j] >> 16 * (part % 2) & 0xffffu;
            int32_t l = ((int32_t)y + (int32_t)random) >> 16;
            l = l > most ? most : l;
            level[16 * part + j] = (int8_t)(l < -most ? -most : l);
        }
}

/* Codes of the values that are not finite. */
static inline void rill__quantize_specials(const float *values, unsigned n, unsigned bits,
                                           int8_t *level) {
    int most = rill__quant_levels(bits), nan = -most - 1;
    for (unsigned i = 0; i < n; i++) {
        float v = values[i];
        if (isfinite(v)) continue;
        level[i] = (int8_t)(isnan(v) || bits == 2 ? nan : v > 0 ? most : -most);
    }
}

/* One bucket, also with values that are not finite, with subnormal scales, or cut short. */
static inline __attribute__((always_inline)) void
rill__quantize_bucket(rill__quant_group *group, const float *values, unsigned n, unsigned bits,
                      rill__scale_mode mode, const rill__quant_stream *stream, uint64_t bucket,
                      uint8_t *unit_out, uint8_t *levels) {
    float copy[RILL__BUCKET];
    const float *x = values;
    int8_t level[RILL__BUCKET];
    int most = rill__quant_levels(bits);
    uint32_t max_bits = rill__quant_max_bits(x, n);
    bool special = max_bits >= 0x7f800000u;
    if (special && bits > 2) most--; /* the outermost levels stand for infinities */
    if (special || n < RILL__BUCKET) {
        for (unsigned i = 0; i < RILL__BUCKET; i++)
            copy[i] = i < n && isfinite(values[i]) ? values[i] : 0.0f;
        x = copy;
        max_bits = rill__quant_max_bits(x, n);
    }
    double norm = (double)rill__float_from_bits(max_bits);
    if (mode == RILL__SCALE_L2) {
        double sum[16] = {0};
        for (unsigned i = 0; i < RILL__BUCKET; i += 16)
            for (unsigned j = 0; j < 16; j++)
                sum[j] += (double)x[i + j] * (double)x[i + j];
        norm = rill__quant_norm(sum);
    }
    float unit = rill__quant_unit(norm, most);
    float before = unit < 0x1p-100f ? 0x1p64f : 1.0f;
    if (before > 1.0f) { /* 65536 / unit would overflow */
        for (unsigned i = 0; i < RILL__BUCKET; i++)
            copy[i] = x[i] * before;
        x = copy;
    }
    float factor = unit > 0.0f ? 65536.0f / (unit * before) : 0.0f;
    /* A copy, which stores of bytes can't alias: what does not depend on the group moves out of the
     * loop. */
    const rill__quant_stream own = *stream;
    const uint64_t first = bucket * (RILL__BUCKET / RILL__QUANT_GROUP);
    for (unsigned i = 0; i < n; i += RILL__QUANT_GROUP)
        group(own, first, i / RILL__QUANT_GROUP, x + i, factor, most, level + i);
    if (special) {
        rill__quantize_specials(values, n, bits, level);
        unit = -unit;
    }
    memcpy(unit_out, &unit, 4);
    if (n == RILL__BUCKET) {
        rill__quant_pack(level, RILL__BUCKET, bits, levels);
        return;
    }
    uint8_t packed[RILL__BUCKET];
    rill__quant_pack(level, (n + 7) / 8 * 8, bits, packed);
    memcpy(levels, packed, rill__quant_bytes(bits, n));
}

static inline __attribute__((always_inline)) void
rill__quantize(rill__quant_group *group, const float *values, uint64_t count, unsigned bits,
               rill__scale_mode mode, const rill__quant_stream *stream, uint64_t bucket,
               uint8_t *units, uint8_t *levels) {
    for (uint64_t i = 0; i < count; i += RILL__BUCKET) {
        unsigned n = (unsigned)rill__min_u64(RILL__BUCKET, count - i);
        rill__quantize_bucket(group, values + i, n, bits, mode, stream, bucket++, units, levels);
        units += 4;
        levels += rill__quant_bytes(bits, n);
    }
}

/* ---- dequantize ----------------------------------------------------------------------------- */

static inline int rill__quant_level_at(const uint8_t *levels, unsigned bits, unsigned i) {
    unsigned per_byte = 8 / bits, shift = bits * (i % per_byte);
    int code = levels[i / per_byte] >> shift & ((1 << bits) - 1), half = 1 << (bits - 1);
    return (code ^ half) - half; /* sign extension */
}

/* A bucket whose unit has its sign set: it had values that are not finite. */
static inline void rill__dequantize_special(float unit, const uint8_t *levels, unsigned n,
                                            unsigned bits, bool add, float *values) {
    int most = rill__quant_levels(bits) - (bits > 2);
    for (unsigned i = 0; i < n; i++) {
        int l = rill__quant_level_at(levels, bits, i);
        float v = l < -rill__quant_levels(bits) ? NAN
                  : l > most                    ? INFINITY
                  : l < -most                   ? -INFINITY
                                                : (float)l * -unit;
        values[i] = add ? values[i] + v : v;
    }
}

/* Levels of one byte each, of codes of 4 or 2 bits; whole bytes of codes. */
static inline void rill__quant_spread(const uint8_t *restrict levels, unsigned n, unsigned bits,
                                      int8_t *restrict out) {
    if (bits == 4) {
        for (unsigned i = 0; i < (n + 1) / 2; i++) {
            out[2 * i] = (int8_t)(((levels[i] & 15) ^ 8) - 8);
            out[2 * i + 1] = (int8_t)((levels[i] >> 4 ^ 8) - 8);
        }
        return;
    }
    for (unsigned i = 0; i < (n + 3) / 4; i++)
        for (unsigned k = 0; k < 4; k++)
            out[4 * i + k] = (int8_t)(((levels[i] >> 2 * k & 3) ^ 2) - 2);
}

static inline __attribute__((always_inline)) void rill__dequantize_bucket(float unit,
                                                                          const uint8_t *levels,
                                                                          unsigned n, unsigned bits,
                                                                          bool add, float *values) {
    int8_t spread[RILL__BUCKET];
    const int8_t *level = (const int8_t *)levels;
    if (bits < 8) {
        rill__quant_spread(levels, n, bits, spread);
        level = spread;
    }
    if (add) {
        for (unsigned i = 0; i < n; i++)
            values[i] += (float)level[i] * unit;
    } else {
        for (unsigned i = 0; i < n; i++)
            values[i] = (float)level[i] * unit;
    }
}

static inline void rill__dequantize(const uint8_t *units, const uint8_t *levels, uint64_t count,
                                    unsigned bits, bool add, float *values) {
    for (uint64_t i = 0; i < count; i += RILL__BUCKET) {
        unsigned n = (unsigned)rill__min_u64(RILL__BUCKET, count - i);
        float unit;
        memcpy(&unit, units, 4);
        if (signbit(unit)) rill__dequantize_special(unit, levels, n, bits, add, values + i);
        else if (bits == 8) rill__dequantize_bucket(unit, levels, n, 8, add, values + i);
        else if (bits == 4) rill__dequantize_bucket(unit, levels, n, 4, add, values + i);
        else rill__dequantize_bucket(unit, levels, n, 2, add, values + i);
        units += 4;
        levels += rill__quant_bytes(bits, n);
    }
}

/* ---- conversion ----------------------------------------------------------------------------- */

static inline void rill__to_f32(rill_type type, const void *in, uint64_t n, float *out) {
    const uint16_t *half = in;
    const double *wide = in;
    switch (type) {
    case RILL_F32: memcpy(out, in, n * 4); break;
    case RILL_F64:
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)wide[i];
        break;
    case RILL_F16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = rill__f16_to_f32(half[i]);
        break;
    case RILL_BF16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = rill__bf16_to_f32(half[i]);
        break;
    }
}

static inline void rill__from_f32(rill_type type, const float *in, uint64_t n, void *out) {
    uint16_t *half = out;
    double *wide = out;
    switch (type) {
    case RILL_F32: memcpy(out, in, n * 4); break;
    case RILL_F64:
        for (uint64_t i = 0; i < n; i++)
            wide[i] = (double)in[i];
        break;
    case RILL_F16:
        for (uint64_t i = 0; i < n; i++)
            half[i] = rill__f16_from_f32(in[i]);
        break;
    case RILL_BF16:
        for (uint64_t i = 0; i < n; i++)
            half[i] = rill__bf16_from_f32(in[i]);
        break;
    }
}

#endif
