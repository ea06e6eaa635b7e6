/* 16-bit floating point, converted in portable integer arithmetic.
 *
 * Rounding is to nearest even, subnormals are exact, overflow gives infinity, and a NaN stays a NaN
 * that is quiet and keeps the upper bits of its payload: the rules of the x86 conversions
 * (vcvtps2ph, vcvtph2ps), so that SIMD kernels give the same bits. bf16 to f32 is a plain shift.
 * Cost: about 10 instructions a value, no tables and no branches, so that compilers find SIMD. */
#ifndef RILL_SPACE_HALF_H
#define RILL_SPACE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t rill__float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float rill__float_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* The exponent moves by a multiplication, which is exact for subnormals too. */
static inline float rill__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    float scaled = rill__float_from_bits((uint32_t)(h & 0x7fffu) << 13) * 0x1p112f;
    uint32_t magnitude = rill__float_bits(scaled), fraction = magnitude & 0x7fffffu;
    /* Infinity and NaN have come out as 2^16 and more. */
    uint32_t special = 0x7f800000u | fraction | (fraction ? 0x400000u : 0u);
    return rill__float_from_bits(sign | (magnitude >= 0x47800000u ? special : magnitude));
}

static inline uint16_t rill__f16_from_f32(float f) {
    uint32_t u = rill__float_bits(f), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    /* A carry out of the fraction raises the exponent. */
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    /* Next to 0.5, f32 has the spacing of subnormals, and the addition rounds to it. */
    float clamped = rill__float_from_bits(magnitude < 0x38800000u ? magnitude : 0x38800000u);
    uint32_t small = rill__float_bits(clamped + 0.5f) - 0x3f000000u;
    uint32_t half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half; /* from 65520 on: infinity */
    half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : half;
    return (uint16_t)(sign | half);
}

static inline float rill__bf16_to_f32(uint16_t h) {
    return rill__float_from_bits((uint32_t)h << 16);
}

static inline uint16_t rill__bf16_from_f32(float f) {
    uint32_t u = rill__float_bits(f);
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : rounded);
}

#endif
