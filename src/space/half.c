/* One value of any type from and to double. half.h has the conversions of many. */
#include "space/kernels.h"

#include <string.h>

/* Double to f32 with the last bit set if anything was lost ("round to odd"): rounding that once
 * more to 16 bits then gives what a single rounding would. */
static float float_to_odd(double d) {
    float f = (float)d;
    if (d != d || (double)f == d || (rill__float_bits(f) & 0x7fffffffu) == 0x7f800000u) return f;
    uint32_t u = rill__float_bits(f);
    bool grown = (double)f > d ? d > 0 : d < 0;
    if (grown) u--; /* towards zero */
    return rill__float_from_bits(u | 1u);
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
