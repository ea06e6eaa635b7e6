/* Loops over dense vectors in any memory, the user's included: they touch n values and no more. All
 * are bound by memory, and plain C is enough for that; 16-bit types go through f32. */
#include "reduce/reducer.h"

#include <math.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

void rill__dense_add(rill_type type, void *into, const void *from, uint64_t n) {
    EACH_TYPE(old + x)
}

void rill__dense_decay_add(rill_type type, void *into, double factor, const void *from,
                           uint64_t n) {
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

void rill__dense_add_scaled(rill_type type, void *into, double factor, const void *from,
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

void rill__dense_scale(rill_type type, void *into, double factor, const void *from, uint64_t n) {
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

void rill__dense_divide(rill_type type, void *into, const void *from, double divisor, uint64_t n) {
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
double rill__dense_norm(rill_type type, const void *from, uint64_t n) {
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

/* ---- pairs to a dense vector ---------------------------------------------------------------- */

/* Copies past the caches: the destination is written once and read by nobody soon. */
static void copy_past_caches(char *to, const char *from, size_t bytes) {
#ifdef __SSE2__
    size_t head = rill__min_u64(bytes, (16 - (uintptr_t)to % 16) % 16);
    memcpy(to, from, head);
    size_t at = head;
    for (; at + 64 <= bytes; at += 64)
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)(to + at + 16 * i),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + at + 16 * i)));
    memcpy(to + at, from + at, bytes - at);
#else
    memcpy(to, from, bytes);
#endif
}

/* Zeros and pairs are put together in a small buffer that stays in the cache. */
uint64_t rill__dense_write(rill__shape shape, void *into, uint64_t first, uint64_t n,
                           rill__pairs pairs) {
    enum { CHUNK = 16384, LARGE = 1 << 22 }; /* bytes */
    _Alignas(64) char chunk[CHUNK] = {0};
    size_t size = rill__type_size(shape.type);
    uint64_t at = 0, per_chunk = CHUNK / size;
    bool large = n * size >= LARGE;
    for (uint64_t done = 0; done < n; done += per_chunk) {
        uint64_t count = rill__min_u64(per_chunk, n - done), start = at;
        char *to = (char *)into + done * size;
        if (!large) memset(to, 0, count * size);
        char *target = large ? chunk : to;
        uint64_t base = first + done, end = base + count;
        for (; at < pairs.n && rill__index_at(shape.index_bytes, pairs.idx, at) < end; at++)
            memcpy(target + (rill__index_at(shape.index_bytes, pairs.idx, at) - base) * size,
                   (const char *)pairs.val + at * size, size);
        if (!large) continue;
        copy_past_caches(to, chunk, count * size);
        for (uint64_t i = start; i < at; i++)
            memset(chunk + (rill__index_at(shape.index_bytes, pairs.idx, i) - base) * size, 0,
                   size);
    }
#ifdef __SSE2__
    if (large) _mm_sfence();
#endif
    return at;
}
