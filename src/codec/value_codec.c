/* The table of value codecs, and those that need no more than a conversion:
 *   raw        the values as they are
 *   f16, bf16  f32 and f64 rounded to nearest even, f64 through f32; infinities and NaN stay what
 *              they are, and f16 turns what is over 65504 into infinity */
#include "codec/value_codec.h"
#include "space/space.h"

#include <string.h>

static bool supports_all(rill_type type) { return rill__type_size(type) != 0; }
static bool supports_wide(rill_type type) { return type == RILL_F32 || type == RILL_F64; }

static rill_status check_size(const char *name, size_t bytes, uint64_t count, size_t size) {
    if (bytes / size < count)
        return rill__fail(RILL_ERR_MESSAGE, "%s values: %zu bytes for %llu values", name, bytes,
                          (unsigned long long)count);
    return RILL_OK;
}

/* ---- raw ------------------------------------------------------------------------------------ */

static double raw_bytes(rill_type type) { return (double)rill__type_size(type); }

/* Copied, in and out. */
static double raw_seconds(const rill__constants *c, rill_type type) {
    return 2 * c->copy * (double)rill__type_size(type);
}

double rill__value_coding_seconds(const rill__constants *c, rill_type type) {
    return raw_seconds(c, type) + c->quantize;
}

static size_t raw_bound(rill_type type, uint64_t count) {
    return (size_t)count * rill__type_size(type);
}

static size_t raw_encode(rill_type type, const void *values, uint64_t count,
                         const rill__quant_key *key, rill__scale_mode mode, void *out) {
    (void)key, (void)mode;
    if (count) memcpy(out, values, raw_bound(type, count));
    return raw_bound(type, count);
}

static rill_status raw_decode(rill_type type, const void *in, size_t bytes, uint64_t count,
                              void *values, size_t *used) {
    RILL_TRY(check_size("raw", bytes, count, rill__type_size(type)));
    *used = raw_bound(type, count);
    if (count) memcpy(values, in, *used);
    return RILL_OK;
}

static rill_status raw_decode_add(const void *in, size_t bytes, uint64_t count, float *values,
                                  size_t *used) {
    RILL_TRY(check_size("raw", bytes, count, 4));
    for (uint64_t i = 0; i < count; i++) {
        float v; /* the payload need not be aligned */
        memcpy(&v, (const char *)in + 4 * i, 4);
        values[i] += v;
    }
    *used = (size_t)count * 4;
    return RILL_OK;
}

const rill__value_codec rill__value_raw = {
    .name = "raw",
    .description = "values as they are",
    .id = 0,
    .bits = 0,
    .supports = supports_all,
    .bytes = raw_bytes,
    .seconds = raw_seconds,
    .bound = raw_bound,
    .encode = raw_encode,
    .decode = raw_decode,
    .decode_add = raw_decode_add,
    .code = RILL__VALUE_RAW,
};

/* ---- 16-bit floats -------------------------------------------------------------------------- */

enum { CHUNK = 1024 }; /* values converted at a time, in the first cache */

static double half_bytes(rill_type type) {
    (void)type;
    return 2;
}

static size_t half_bound(rill_type type, uint64_t count) {
    (void)type;
    return (size_t)count * 2;
}

static size_t half_encode(rill_type to, rill_type type, const void *values, uint64_t count,
                          void *out) {
    const rill__codec_kernels *kernels = rill__host()->codec;
    if (type == RILL_F32) {
        kernels->from_f32(to, values, count, out);
        return (size_t)count * 2;
    }
    float chunk[CHUNK + RILL__SLACK / 4];
    for (uint64_t i = 0; i < count; i += CHUNK) {
        uint64_t n = rill__min_u64(CHUNK, count - i);
        kernels->to_f32(type, (const char *)values + i * rill__type_size(type), n, chunk);
        kernels->from_f32(to, chunk, n, (char *)out + 2 * i);
    }
    return (size_t)count * 2;
}

static rill_status half_decode(rill_type from, rill_type type, const void *in, size_t bytes,
                               uint64_t count, void *values, size_t *used) {
    RILL_TRY(check_size(rill_type_name(from), bytes, count, 2));
    const rill__codec_kernels *kernels = rill__host()->codec;
    *used = (size_t)count * 2;
    if (type == RILL_F32) {
        kernels->to_f32(from, in, count, values);
        return RILL_OK;
    }
    float chunk[CHUNK + RILL__SLACK / 4];
    for (uint64_t i = 0; i < count; i += CHUNK) {
        uint64_t n = rill__min_u64(CHUNK, count - i);
        kernels->to_f32(from, (const char *)in + 2 * i, n, chunk);
        kernels->from_f32(type, chunk, n, (char *)values + i * rill__type_size(type));
    }
    return RILL_OK;
}

static rill_status half_decode_add(rill_type from, const void *in, size_t bytes, uint64_t count,
                                   float *values, size_t *used) {
    RILL_TRY(check_size(rill_type_name(from), bytes, count, 2));
    const rill__codec_kernels *kernels = rill__host()->codec;
    float chunk[CHUNK + RILL__SLACK / 4];
    for (uint64_t i = 0; i < count; i += CHUNK) {
        uint64_t n = rill__min_u64(CHUNK, count - i);
        kernels->to_f32(from, (const char *)in + 2 * i, n, chunk);
        for (uint64_t j = 0; j < n; j++)
            values[i + j] += chunk[j];
    }
    *used = (size_t)count * 2;
    return RILL_OK;
}

#define HALF(NAME, TYPE, ID, CODE)                                                                 \
    static size_t NAME##_encode(rill_type type, const void *values, uint64_t count,                \
                                const rill__quant_key *key, rill__scale_mode mode, void *out) {    \
        (void)key, (void)mode;                                                                     \
        return half_encode(TYPE, type, values, count, out);                                        \
    }                                                                                              \
    static rill_status NAME##_decode(rill_type type, const void *in, size_t bytes, uint64_t count, \
                                     void *values, size_t *used) {                                 \
        return half_decode(TYPE, type, in, bytes, count, values, used);                            \
    }                                                                                              \
    static rill_status NAME##_decode_add(const void *in, size_t bytes, uint64_t count,             \
                                         float *values, size_t *used) {                            \
        return half_decode_add(TYPE, in, bytes, count, values, used);                              \
    }                                                                                              \
    const rill__value_codec rill__value_##NAME = {                                                 \
        .name = #NAME,                                                                             \
        .description = "values rounded to " #NAME,                                                 \
        .id = ID,                                                                                  \
        .bits = 16,                                                                                \
        .supports = supports_wide,                                                                 \
        .bytes = half_bytes,                                                                       \
        .seconds = rill__value_coding_seconds,                                                     \
        .bound = half_bound,                                                                       \
        .encode = NAME##_encode,                                                                   \
        .decode = NAME##_decode,                                                                   \
        .decode_add = NAME##_decode_add,                                                           \
        .code = CODE,                                                                              \
    }

HALF(f16, RILL_F16, 1, RILL__VALUE_F16);
HALF(bf16, RILL_BF16, 2, RILL__VALUE_BF16);

/* ---- table ---------------------------------------------------------------------------------- */

static const rill__value_codec *const table[] = {
    &rill__value_raw,   &rill__value_f16,   &rill__value_bf16,
    &rill__value_qsgd8, &rill__value_qsgd4, &rill__value_qsgd2,
};

enum { COUNT = sizeof table / sizeof table[0] };

const rill__value_codec *rill__value_codec_at(int i) {
    return i >= 0 && i < COUNT ? table[i] : NULL;
}

const rill__value_codec *rill__value_codec_by_id(uint8_t id) {
    for (int i = 0; i < COUNT; i++)
        if (table[i]->id == id) return table[i];
    return NULL;
}

const rill__value_codec *rill__value_codec_for_bits(rill_type type, int value_bits) {
    if (value_bits == 0 || (value_bits == 16 && rill__type_size(type) == 2))
        return &rill__value_raw;
    for (int i = 1; i < COUNT; i++)
        if (table[i]->bits == value_bits && table[i]->supports(type)) return table[i];
    return NULL;
}
