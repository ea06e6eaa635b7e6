/* 16-bit floating point, converted in portable integer arithmetic.
 *
 * Rounding is to nearest even, subnormals are exact, overflow gives infinity, and a NaN stays a NaN
 * that is quiet and keeps the upper bits of its payload: the rules of the x86 conversions
 * (vcvtps2ph, vcvtph2ps), so that SIMD kernels give the same bits. bf16 to f32 is a plain shift.
 * Cost: about 10 instructions a value, no tables. */
#include "stream/kernels.h"

#include <string.h>

static inline uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

float rill__f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1f;
    uint32_t fraction = h & 0x3ff;
    if (exponent == 0x1f)
        return float_of(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x00400000u : 0));
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    /* Subnormal or zero: the fraction counts units of 2^-24, which f32 holds exactly. */
    float magnitude = (float)fraction * 0x1p-24f;
    return float_of(sign | bits_of(magnitude));
}

uint16_t rill__f16_from_f32(float f) {
    uint32_t u = bits_of(f);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* from 65520 on: infinity */
    if (magnitude >= 0x38800000u) { /* normal; a carry out of the fraction raises the exponent */
        uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
        return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
    }
    if (magnitude <= 0x33000000u) return (uint16_t)sign; /* up to 2^-25, half of the smallest */
    uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t shift = 126 - (magnitude >> 23); /* 14 to 24: units of 2^-24 */
    uint32_t kept = fraction >> shift;
    uint32_t lost = fraction & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    kept += lost > half || (lost == half && (kept & 1));
    return (uint16_t)(sign | kept);
}

float rill__bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t rill__bf16_from_f32(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Double to f32 with the last bit set if anything was lost ("round to odd"): rounding that once
 * more to 16 bits then gives what a single rounding would. */
static float float_to_odd(double d) {
    float f = (float)d;
    if (d != d || (double)f == d || (bits_of(f) & 0x7fffffffu) == 0x7f800000u) return f;
    uint32_t u = bits_of(f);
    bool grown = (double)f > d ? d > 0 : d < 0;
    if (grown) u--; /* towards zero */
    return float_of(u | 1u);
}

void rill__value_store(rill_type type, void *at, double value) {
    switch (type) {
    case RILL_F32: {
        float f = (float)value;
        memcpy(at, &f, 4);
        break;
    }
    case RILL_F64: memcpy(at, &value, 8); break;
    case RILL_F16:
    case RILL_BF16: {
        float f = float_to_odd(value);
        uint16_t h = type == RILL_F16 ? rill__f16_from_f32(f) : rill__bf16_from_f32(f);
        memcpy(at, &h, 2);
        break;
    }
    }
}

double rill__value_load(rill_type type, const void *at) {
    float f;
    double d;
    uint16_t h;
    switch (type) {
    case RILL_F32: memcpy(&f, at, 4); return (double)f;
    case RILL_F64: memcpy(&d, at, 8); return d;
    case RILL_F16: memcpy(&h, at, 2); return (double)rill__f16_to_f32(h);
    case RILL_BF16: memcpy(&h, at, 2); return (double)rill__bf16_to_f32(h);
    }
    return 0.0;
}
