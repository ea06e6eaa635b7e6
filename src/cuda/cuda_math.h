/* Arithmetic of the kernels that needs no GPU: plain C and C++ for the host, and for the device
 * under nvcc. Tests compile it on the host and compare it with the library's own definitions
 * (space/half.h, space/value_portable.h, coll/topk/sketch.c). */
#ifndef RILL_CUDA_MATH_H
#define RILL_CUDA_MATH_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define RILL_HD static __host__ __device__ __forceinline__
#else
#define RILL_HD static inline
#endif

RILL_HD uint32_t rill__hd_bits(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
#endif
}
RILL_HD float rill__hd_float(uint32_t u) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(u);
#else
    float x;
    memcpy(&x, &u, 4);
    return x;
#endif
}

/* ---- 16-bit values, as space/half.h has them ----------------------------------------------- */

RILL_HD float rill__hd_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    float two_112 = rill__hd_float(0x77800000u);
    uint32_t magnitude = rill__hd_bits(rill__hd_float((uint32_t)(h & 0x7fffu) << 13) * two_112);
    uint32_t fraction = magnitude & 0x7fffffu;
    uint32_t special = 0x7f800000u | fraction | (fraction ? 0x400000u : 0u);
    return rill__hd_float(sign | (magnitude >= 0x47800000u ? special : magnitude));
}
RILL_HD uint16_t rill__hd_f16_from_f32(float f) {
    uint32_t u = rill__hd_bits(f), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    float clamped = rill__hd_float(magnitude < 0x38800000u ? magnitude : 0x38800000u);
    uint32_t small_ = rill__hd_bits(clamped + 0.5f) - 0x3f000000u;
    uint32_t half = magnitude < 0x38800000u ? small_ : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;
    half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : half;
    return (uint16_t)(sign | half);
}
RILL_HD float rill__hd_bf16_to_f32(uint16_t h) { return rill__hd_float((uint32_t)h << 16); }
RILL_HD uint16_t rill__hd_bf16_from_f32(float f) {
    uint32_t u = rill__hd_bits(f), rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : rounded);
}

/* ---- random numbers ------------------------------------------------------------------------- */

#define RILL_HD_PHILOX_M0 0xD2511F53u
#define RILL_HD_PHILOX_M1 0xCD9E8D57u
#define RILL_HD_PHILOX_W0 0x9E3779B9u
#define RILL_HD_PHILOX_W1 0xBB67AE85u

/* Philox 4x32 (Salmon et al., 2011): 7 rounds for QSGD, 10 for the choice of entries. */
RILL_HD void rill__hd_philox(uint32_t k0, uint32_t k1, int rounds, uint32_t c[4]) {
    for (int i = 0; i < rounds; i++, k0 += RILL_HD_PHILOX_W0, k1 += RILL_HD_PHILOX_W1) {
        uint64_t p0 = (uint64_t)c[0] * RILL_HD_PHILOX_M0, p1 = (uint64_t)c[2] * RILL_HD_PHILOX_M1;
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
    }
}

RILL_HD uint64_t rill__hd_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

RILL_HD uint64_t rill__hd_high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return (uint64_t)((unsigned __int128)a * b >> 64);
#endif
}

/* ---- QSGD, as space/value_portable.h has it ------------------------------------------------- */

#define RILL_HD_BUCKET 1024u

RILL_HD int rill__hd_quant_levels(int bits) { return (1 << (bits - 1)) - 1; }
RILL_HD uint64_t rill__hd_quant_bytes(int bits, uint64_t n) {
    return n / 8 * (uint64_t)bits + (n % 8 * (uint64_t)bits + 7) / 8;
}
RILL_HD float rill__hd_quant_unit(double norm, int levels) {
    const float most = rill__hd_float(0x7f7fffffu), least = rill__hd_float(0x00800000u);
    double exact = norm / levels;
    if (exact >= (double)most) return most;
    float unit = (float)exact;
    if (unit < least && (double)unit < exact) unit = rill__hd_float(rill__hd_bits(unit) + 1);
    if (norm <= (double)most && (double)unit * levels > (double)most)
        unit = rill__hd_float(rill__hd_bits(unit) - 1);
    return unit;
}
/* Ties to even, for magnitudes below 2^23. */
RILL_HD float rill__hd_quant_rint(float y) {
    float large = rill__hd_float((rill__hd_bits(y) & 0x80000000u) | 0x4b000000u);
    return (y + large) - large;
}
/* random: 16 bits. */
RILL_HD int rill__hd_quant_level(float x, float factor, uint32_t random, int most) {
    int32_t level = ((int32_t)rill__hd_quant_rint(x * factor) + (int32_t)random) >> 16;
    level = level > most ? most : level;
    return level < -most ? -most : level;
}
/* The code of a value that is not finite. */
RILL_HD int rill__hd_quant_special(float x, int bits) {
    int most = rill__hd_quant_levels(bits);
    if ((rill__hd_bits(x) & 0x7fffffffu) > 0x7f800000u || bits == 2) return -most - 1;
    return x > 0 ? most : -most;
}
/* What a code stands for; a unit with its sign set has values that are not finite. */
RILL_HD float rill__hd_quant_value(int level, float unit, int bits) {
    if (!(rill__hd_bits(unit) >> 31)) return (float)level * unit;
    int all = rill__hd_quant_levels(bits), most = all - (bits > 2);
    if (level < -all) return rill__hd_float(0x7fc00000u);
    if (level > most) return rill__hd_float(0x7f800000u);
    if (level < -most) return rill__hd_float(0xff800000u);
    return (float)level * -unit;
}

/* ---- a fixed tree --------------------------------------------------------------------------- */

/* Sums of squares: tiles of 4,096 values are summed in 256 lanes (value i in lane i % 256, in
 * order), and those by halves; then the tiles' sums in the same way, without squares, until one
 * is left. The same bits whatever the number of threads. */
#define RILL_HD_TILE 4096u
#define RILL_HD_LANES 256u

static inline double rill__hd_tree_tile(double lane[RILL_HD_LANES]) {
    for (uint32_t half = RILL_HD_LANES / 2; half; half /= 2)
        for (uint32_t j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}
/* Of doubles, in place. */
static inline double rill__hd_tree_sum(double *sums, uint64_t n) {
    while (n > 1) {
        uint64_t tiles = (n + RILL_HD_TILE - 1) / RILL_HD_TILE;
        for (uint64_t t = 0; t < tiles; t++) {
            double lane[RILL_HD_LANES] = {0};
            for (uint64_t i = t * RILL_HD_TILE; i < n && i < (t + 1) * RILL_HD_TILE; i++)
                lane[i % RILL_HD_LANES] += sums[i];
            sums[t] = rill__hd_tree_tile(lane);
        }
        n = tiles;
    }
    return n ? sums[0] : 0.0;
}

/* ---- Elias-Fano ----------------------------------------------------------------------------- */

RILL_HD uint32_t rill__hd_bit_width(uint64_t x) {
    uint32_t width = 0;
    for (; x; x >>= 1)
        width++;
    return width;
}
/* best_low of codec/codec_elias_fano.c. */
RILL_HD uint32_t rill__hd_best_low(uint64_t count, uint64_t span) {
    uint64_t mean = span / count;
    if (!mean) return 0;
    uint32_t low = rill__hd_bit_width(mean) - 1;
    uint64_t here = count * low + (span >> low);
    if (low < 63 && count * (low + 1) + (span >> (low + 1)) < here) return low + 1;
    return low && count * (low - 1) + (span >> (low - 1)) <= here ? low - 1 : low;
}

/* ---- 64 of 4,096 in 2 bits ------------------------------------------------------------------ */

/* A value of magnitude m in a chunk whose largest is scale: the outer level (scale) from two
 * thirds on, else the inner one, a third. */
RILL_HD int rill__hd_chunk_outer(float magnitude, float scale) { return magnitude * 1.5f >= scale; }
RILL_HD float rill__hd_chunk_level(int outer, float scale) {
    return outer ? scale : scale * (1.0f / 3.0f);
}

#endif
