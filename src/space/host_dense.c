/* The host's operations on dense vectors, the user's included: they touch n values and no more. All
 * are bound by memory, and plain C is enough for that; 16-bit types go through f32. */
#include "space/host.h"

#include <math.h>

#define LOOP16(load, store, expression)                                                            \
    do {                                                                                           \
        uint16_t *to = into;                                                                       \
        const uint16_t *in = from;                                                                 \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            float old = load(to[i]), x = load(in[i]);                                              \
            (void)old;                                                                             \
            to[i] = store(expression);                                                             \
        }                                                                                          \
    } while (0)

#define LOOP(ctype, expression)                                                                    \
    do {                                                                                           \
        ctype *to = into;                                                                          \
        const ctype *in = from;                                                                    \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            ctype old = to[i], x = in[i];                                                          \
            (void)old;                                                                             \
            to[i] = expression;                                                                    \
        }                                                                                          \
    } while (0)

#define EACH_TYPE(expression)                                                                      \
    switch (type) {                                                                                \
    case RILL_F32: LOOP(float, expression); break;                                                 \
    case RILL_F64: LOOP(double, expression); break;                                                \
    case RILL_F16: LOOP16(rill__f16_to_f32, rill__f16_from_f32, expression); break;                \
    case RILL_BF16: LOOP16(rill__bf16_to_f32, rill__bf16_from_f32, expression); break;             \
    }

void rill__host_add(rill_type type, void *into, const void *from, uint64_t n) { EACH_TYPE(old + x) }

void rill__host_decay_add(rill_type type, void *into, double factor, const void *from, uint64_t n) {
    if (type == RILL_F64) {
        LOOP(double, factor *old + x);
        return;
    }
    float f = (float)factor;
    switch (type) {
    case RILL_F16: LOOP16(rill__f16_to_f32, rill__f16_from_f32, f * old + x); break;
    case RILL_BF16: LOOP16(rill__bf16_to_f32, rill__bf16_from_f32, f * old + x); break;
    default: LOOP(float, f *old + x); break;
    }
}

void rill__host_add_scaled(rill_type type, void *into, double factor, const void *from,
                           uint64_t n) {
    if (type == RILL_F64) {
        LOOP(double, old + factor * x);
        return;
    }
    float f = (float)factor;
    switch (type) {
    case RILL_F16: LOOP16(rill__f16_to_f32, rill__f16_from_f32, old + f * x); break;
    case RILL_BF16: LOOP16(rill__bf16_to_f32, rill__bf16_from_f32, old + f * x); break;
    default: LOOP(float, old + f * x); break;
    }
}

void rill__host_scale(rill_type type, void *into, double factor, const void *from, uint64_t n) {
    if (type == RILL_F64) {
        LOOP(double, factor *x);
        return;
    }
    float f = (float)factor;
    switch (type) {
    case RILL_F16: LOOP16(rill__f16_to_f32, rill__f16_from_f32, f * x); break;
    case RILL_BF16: LOOP16(rill__bf16_to_f32, rill__bf16_from_f32, f * x); break;
    default: LOOP(float, f *x); break;
    }
}

void rill__host_divide(rill_type type, void *into, const void *from, double divisor, uint64_t n) {
    if (type == RILL_F64) {
        LOOP(double, x / divisor);
        return;
    }
    float d = (float)divisor;
    switch (type) {
    case RILL_F16: LOOP16(rill__f16_to_f32, rill__f16_from_f32, x / d); break;
    case RILL_BF16: LOOP16(rill__bf16_to_f32, rill__bf16_from_f32, x / d); break;
    default: LOOP(float, x / d); break;
    }
}

/* Partial sums over fixed blocks in a fixed order: the same bits for the same values. */
double rill__host_norm(rill_type type, const void *from, uint64_t n) {
    enum { LANES = 16 };
    double sums[LANES] = {0}, sum = 0;
    uint64_t whole = n - n % LANES;
    if (type == RILL_F32) {
        const float *x = from;
        for (uint64_t i = 0; i < whole; i += LANES)
            for (int j = 0; j < LANES; j++)
                sums[j] += (double)x[i + j] * x[i + j];
        for (uint64_t i = whole; i < n; i++)
            sum += (double)x[i] * x[i];
    } else {
        size_t size = rill__type_size(type);
        for (uint64_t i = 0; i < n; i++) {
            double x = rill__value_load(type, (const char *)from + i * size);
            sum += x * x;
        }
    }
    for (int j = 0; j < LANES; j++)
        sum += sums[j];
    return sqrt(sum);
}
