/* qsgd8, qsgd4, qsgd2: stochastic quantization with one scale per bucket of 1024 values.
 *
 * Idea: Alistarh et al., "QSGD" (2017), with s = 127, 7 or 1 positive levels. A bucket has a unit,
 * its largest magnitude (or Euclidean norm) / s. A value of y units becomes one of the two levels
 * around y, at random, so that the mean is y: floor(y + u), with u of 16 bits. Precisely,
 * (round(65536 y) + r) >> 16, so that the chances are exact multiples of 2^-16. The variance is at
 * most unit^2 / 4 a value.
 *
 * Random bits: Philox 4x32-7, a counter-based generator (Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3", 2011): r depends on seed, step, sender, hop and position alone. Philox
 * 4x32-10 keyed with the seed maps {step, sender, hop} to the key of the message (2 words) and the
 * upper half of its counters (2 words): a permutation, so that no two messages of a seed share a
 * sequence. Which value takes which bits: value_portable.h.
 *
 * Layout: a f32 unit for each bucket; then the levels, two's complement numbers of 8, 4 or 2 bits
 * from the lowest bit up, padded with zero bits to a byte.
 *
 * Values that are not finite: they never touch the scale of the others. Such a bucket has the sign
 * of its unit set, and then the lowest code (-128, -8, -2) is NaN, and with 8 and 4 bits the codes
 * s and -s are the infinities, with levels up to s - 1 for the finite values. With 2 bits
 * infinities become NaN. Values over the range of f32 are infinities. A bucket of zeros has unit 0.
 * Subnormal scales work; their unit is at least 2^-149. With L2 scales, values within a unit of the
 * largest f32 may come out as infinity.
 *
 * Cost: 0.2-0.3 ns a value to quantize with AVX-512, mostly for the generator; dequantizing runs at
 * the speed of memory. No memory but 4 KiB of stack for types other than f32. */
#include "codec/value_codec.h"
#include "codec/value_portable.h"

static void philox10(const uint32_t key[2], uint32_t c[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++, k0 += RILL__PHILOX_W0, k1 += RILL__PHILOX_W1) {
        uint64_t p0 = (uint64_t)c[0] * RILL__PHILOX_M0, p1 = (uint64_t)c[2] * RILL__PHILOX_M1;
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
    }
}

rill__quant_stream rill__quant_stream_make(const rill__quant_key *key) {
    uint32_t seed[2] = {(uint32_t)key->seed, (uint32_t)(key->seed >> 32)};
    uint32_t c[4] = {(uint32_t)key->step, (uint32_t)(key->step >> 32), key->sender, key->hop};
    philox10(seed, c);
    return (rill__quant_stream){{c[0], c[1]}, {c[2], c[3]}};
}

static uint64_t buckets_of(uint64_t count) {
    return count / RILL__BUCKET + (count % RILL__BUCKET != 0);
}

static bool supports(rill_type type) { return rill__type_size(type) != 0; }

static size_t bound(unsigned bits, uint64_t count) {
    return (size_t)buckets_of(count) * 4 + rill__quant_bytes(bits, count);
}

static size_t encode(unsigned bits, rill_type type, const void *values, uint64_t count,
                     const rill__quant_key *key, rill__scale_mode mode, void *out) {
    const rill__codec_kernels *kernels = rill__codec_kernels_get();
    rill__quant_stream stream = rill__quant_stream_make(key);
    uint8_t *units = out, *levels = units + buckets_of(count) * 4;
    if (type == RILL_F32) {
        kernels->quantize(values, count, bits, mode, &stream, 0, units, levels);
        return bound(bits, count);
    }
    float chunk[RILL__BUCKET + RILL__SLACK / 4];
    for (uint64_t i = 0, bucket = 0; i < count; i += RILL__BUCKET, bucket++) {
        uint64_t n = rill__min_u64(RILL__BUCKET, count - i);
        kernels->to_f32(type, (const char *)values + i * rill__type_size(type), n, chunk);
        kernels->quantize(chunk, n, bits, mode, &stream, bucket, units, levels);
        units += 4;
        levels += rill__quant_bytes(bits, n);
    }
    return bound(bits, count);
}

/* Everything that can be wrong, so that decoding itself can't fail. */
static rill_status check(unsigned bits, const uint8_t *in, size_t bytes, uint64_t count) {
    uint64_t buckets = buckets_of(count);
    if (buckets > bytes / 4 || rill__quant_bytes(bits, count) > bytes - buckets * 4)
        return rill__fail(RILL_ERR_MESSAGE, "qsgd%u values: %zu bytes for %llu values", bits, bytes,
                          (unsigned long long)count);
    uint32_t wrong = 0;
    for (uint64_t i = 0; i < buckets; i++) {
        uint32_t unit;
        memcpy(&unit, in + 4 * i, 4);
        wrong |= (unit & 0x7f800000u) == 0x7f800000u;
    }
    if (wrong) return rill__fail(RILL_ERR_MESSAGE, "qsgd%u values: a unit is not finite", bits);
    unsigned used = (unsigned)(count % 8 * bits % 8);
    if (used && in[bound(bits, count) - 1] >> used)
        return rill__fail(RILL_ERR_MESSAGE, "qsgd%u values: bits are set after the last", bits);
    return RILL_OK;
}

static rill_status decode(unsigned bits, rill_type type, const void *in, size_t bytes,
                          uint64_t count, void *values, size_t *used) {
    RILL_TRY(check(bits, in, bytes, count));
    const rill__codec_kernels *kernels = rill__codec_kernels_get();
    const uint8_t *units = in, *levels = units + buckets_of(count) * 4;
    *used = bound(bits, count);
    if (type == RILL_F32) {
        kernels->dequantize(units, levels, count, bits, false, values);
        return RILL_OK;
    }
    float chunk[RILL__BUCKET + RILL__SLACK / 4];
    for (uint64_t i = 0; i < count; i += RILL__BUCKET) {
        uint64_t n = rill__min_u64(RILL__BUCKET, count - i);
        kernels->dequantize(units, levels, n, bits, false, chunk);
        kernels->from_f32(type, chunk, n, (char *)values + i * rill__type_size(type));
        units += 4;
        levels += rill__quant_bytes(bits, n);
    }
    return RILL_OK;
}

static rill_status decode_add(unsigned bits, const void *in, size_t bytes, uint64_t count,
                              float *values, size_t *used) {
    RILL_TRY(check(bits, in, bytes, count));
    const uint8_t *units = in, *levels = units + buckets_of(count) * 4;
    rill__codec_kernels_get()->dequantize(units, levels, count, bits, true, values);
    *used = bound(bits, count);
    return RILL_OK;
}

/* The least squares of unit times level: the unit times <exact, decoded> / <decoded, decoded>. Buckets
 * with values that are not finite stay as they are. */
static void fit(rill_type type, const void *exact, const void *decoded, uint64_t count,
                void *encoded) {
    const rill__codec_kernels *kernels = rill__codec_kernels_get();
    size_t size = rill__type_size(type);
    float x[RILL__BUCKET + RILL__SLACK / 4], q[RILL__BUCKET + RILL__SLACK / 4];
    for (uint64_t i = 0, bucket = 0; i < count; i += RILL__BUCKET, bucket++) {
        uint64_t n = rill__min_u64(RILL__BUCKET, count - i);
        kernels->to_f32(type, (const char *)exact + i * size, n, x);
        kernels->to_f32(type, (const char *)decoded + i * size, n, q);
        double both = 0, own = 0;
        for (uint64_t j = 0; j < n; j++) {
            both += (double)x[j] * q[j];
            own += (double)q[j] * q[j];
        }
        float unit;
        char *at = (char *)encoded + 4 * bucket;
        memcpy(&unit, at, 4);
        float fitted = (float)(unit * (both / own));
        if (unit > 0 && fitted > 0 && fitted < 2 * unit) memcpy(at, &fitted, 4);
    }
}

#define QSGD(BITS)                                                                                 \
    static size_t bound##BITS(rill_type type, uint64_t count) {                                    \
        (void)type;                                                                                \
        return bound(BITS, count);                                                                 \
    }                                                                                              \
    static size_t encode##BITS(rill_type type, const void *values, uint64_t count,                 \
                               const rill__quant_key *key, rill__scale_mode mode, void *out) {     \
        return encode(BITS, type, values, count, key, mode, out);                                  \
    }                                                                                              \
    static rill_status decode##BITS(rill_type type, const void *in, size_t bytes, uint64_t count,  \
                                    void *values, size_t *used) {                                  \
        return decode(BITS, type, in, bytes, count, values, used);                                 \
    }                                                                                              \
    static rill_status decode_add##BITS(const void *in, size_t bytes, uint64_t count,              \
                                        float *values, size_t *used) {                             \
        return decode_add(BITS, in, bytes, count, values, used);                                   \
    }                                                                                              \
    const rill__value_codec rill__value_qsgd##BITS = {                                             \
        .name = "qsgd" #BITS,                                                                      \
        .description = "QSGD, " #BITS " bits, buckets of 1024",                                    \
        .id = BITS == 8   ? 3                                                                      \
              : BITS == 4 ? 4                                                                      \
                          : 5,                                                                     \
        .bits = BITS,                                                                              \
        .keyed = true,                                                                             \
        .supports = supports,                                                                      \
        .bound = bound##BITS,                                                                      \
        .encode = encode##BITS,                                                                    \
        .decode = decode##BITS,                                                                    \
        .decode_add = decode_add##BITS,                                                            \
        .fit = fit,                                                                                \
    }

QSGD(8);
QSGD(4);
QSGD(2);
