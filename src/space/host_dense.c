/* The host's operations on dense vectors, the user's included: they touch n values and no more. All
 * are bound by memory, and plain C is enough for that; 16-bit types go through f32. */
#include "space/host.h"

#include <math.h>
#include <string.h>

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

/* ---- norm --------------------------------------------------------------------------------- */

/* A fixed tree, which a GPU can sum in as well (cuda/cuda_math.h): tiles of 4,096 values are summed
 * in 256 lanes, value i in lane i % 256, and those by halves; then the tiles' sums in the same way,
 * until one is left. */
enum { LANES = 256, TILE = 4096, LEVELS = 7 }; /* levels: for any 64-bit number of values */
typedef struct tree_level {
    double lane[LANES];
    uint32_t fill; /* values in the tile that is open */
} tree_level;

static double close_tile(tree_level *level) {
    double *lane = level->lane;
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    double sum = lane[0];
    memset(lane, 0, sizeof level->lane);
    level->fill = 0;
    return sum;
}

static void add_sum(tree_level *level, double sum) {
    level->lane[level->fill++ % LANES] += sum;
    if (level->fill == TILE) add_sum(level + 1, close_tile(level));
}

/* The squares of n values, up to a tile. */
static void add_tile(rill_type type, const void *from, uint64_t n, double lane[LANES]) {
    if (type == RILL_F32) {
        const float *x = from;
        for (uint64_t i = 0; i < n; i += LANES) {
            int width = (int)rill__min_u64(LANES, n - i);
            for (int j = 0; j < width; j++)
                lane[j] += (double)x[i + (uint64_t)j] * x[i + (uint64_t)j];
        }
        return;
    }
    size_t size = rill__type_size(type);
    for (uint64_t i = 0; i < n; i++) {
        double x = rill__value_load(type, (const char *)from + i * size);
        lane[i % LANES] += x * x;
    }
}

double rill__host_norm(rill_type type, const void *from, uint64_t n) {
    tree_level levels[LEVELS] = {{.fill = 0}};
    size_t size = rill__type_size(type);
    for (uint64_t at = 0; at < n; at += TILE) {
        add_tile(type, (const char *)from + at * size, rill__min_u64(TILE, n - at), levels[0].lane);
        add_sum(&levels[1], close_tile(&levels[0]));
    }
    int top = 1;
    for (uint64_t values = n / TILE + (n % TILE != 0); values > 1; top++) {
        if (levels[top].fill) add_sum(&levels[top + 1], close_tile(&levels[top]));
        values = values / TILE + (values % TILE != 0);
    }
    return sqrt(levels[top].lane[0]);
}
