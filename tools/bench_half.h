/* The 16-bit floats that C and MPI do not have.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_BENCH_HALF_H
#define RILL_TOOL_BENCH_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bf16_load(uint16_t h) { return bits_float((uint32_t)h << 16); }

static inline uint16_t bf16_store(float x) { /* nearest even; no NaN comes here */
    uint32_t bits = float_bits(x);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float f16_load(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return bits_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest < 0x400) return (sign ? -1.0f : 1.0f) * (float)rest * 0x1p-24f;
    return bits_float(sign | ((rest << 13) + (112u << 23)));
}

static inline uint16_t f16_store(float x) { /* nearest even; no NaN comes here */
    uint16_t sign = (uint16_t)(float_bits(x) >> 16 & 0x8000);
    float a = fabsf(x);
    if (a >= 65520.0f) return sign | 0x7c00;
    /* Below the normal range the spacing is fixed: adding 1/2 lets the hardware round to it. */
    if (a < 0x1p-14f) return (uint16_t)(sign | (float_bits(a + 0.5f) - float_bits(0.5f)));
    uint32_t bits = float_bits(a);
    return (uint16_t)(sign | (((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112u << 10)));
}

#endif
