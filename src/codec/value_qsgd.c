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
 * Error feedback needs no unbiased values but close ones: there the levels are to nearest, and the
 * unit is the one that is closest in the sum of squares (fit).
 *
 * Cost: 0.2-0.3 ns a value to quantize with AVX-512, mostly for the generator; dequantizing runs at
 * the speed of memory; fit takes 1 to 3 ns a value. No memory but 4 KiB of stack for
 * types other than f32, 8 KiB for fit. */
#include "codec/value_codec.h"
#include "space/space.h"
#include "space/value_portable.h"

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
    const rill__codec_kernels *kernels = rill__host()->codec;
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
    const rill__codec_kernels *kernels = rill__host()->codec;
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
    rill__host()->codec->dequantize(units, levels, count, bits, true, values);
    *used = bound(bits, count);
    return RILL_OK;
}

/* ---- for error feedback --------------------------------------------------------------------- */

/* What a unit gets of a bucket: levels to nearest, and sums over them. Levels times any multiple of
 * the unit is closest to the values x at <x, level> / <level, level>, and is then by <x, level>^2 /
 * <level, level> closer to them than nothing at all. */
typedef struct levelled {
    double both, own;
} levelled;

/* Partial sums in a fixed order: two ranks that code the same get the same, whatever the compiler
 * makes of it. The squares of levels are exact. */
static levelled round_to_nearest(const float *x, float unit, int most, int8_t *level) {
    float factor = 1.0f / unit, limit = (float)most, own[16] = {0};
    double both[16] = {0};
    for (unsigned i = 0; i < RILL__BUCKET; i += 16)
        for (unsigned j = 0; j < 16; j++) {
            float y = x[i + j] * factor;
            y = y > limit ? limit : y;
            y = rill__quant_rint(y < -limit ? -limit : y);
            level[i + j] = (int8_t)y;
            both[j] += (double)x[i + j] * (double)y;
            own[j] += y * y;
        }
    levelled sum = {0, 0};
    for (unsigned j = 0; j < 16; j++) {
        sum.both += both[j];
        sum.own += (double)own[j];
    }
    return sum;
}

/* The largest magnitude as the outermost level leaves little for the others where a few values are
 * far larger than most, as the largest of a gradient are: units by half an octave smaller are tried
 * until one is worse. What is cut off at the ends comes back by the feedback. n values, and zeros.
 */
static void fit_bucket(unsigned bits, const float *x, unsigned n, float largest, uint8_t *unit_at,
                       uint8_t *levels) {
    int most = rill__quant_levels(bits);
    int8_t tried[RILL__BUCKET], level[RILL__BUCKET] = {0};
    double best = 0;
    float unit = rill__quant_unit((double)largest, most), fitted = 0;
    for (int tries = bits == 8 ? 1 : 10; tries; tries--, unit *= 0.70710678f) {
        levelled sum = round_to_nearest(x, unit, most, tried);
        double gain = sum.own > 0 ? sum.both * (sum.both / sum.own) : 0;
        if (gain <= best) break;
        best = gain;
        fitted = (float)(sum.both / sum.own);
        memcpy(level, tried, sizeof level);
    }
    if (!(fitted > 0 && isfinite(fitted * (float)most))) return;
    uint8_t packed[RILL__BUCKET];
    rill__quant_pack(level, (n + 7) / 8 * 8, bits, packed);
    memcpy(levels, packed, rill__quant_bytes(bits, n));
    memcpy(unit_at, &fitted, 4);
}

/* Buckets with values that are not finite, or that are too small or too large for the sums, stay as
 * they are. */
static void fit(unsigned bits, rill_type type, const void *exact, uint64_t count, void *encoded) {
    const rill__codec_kernels *kernels = rill__host()->codec;
    size_t size = rill__type_size(type);
    uint8_t *units = encoded, *levels = units + buckets_of(count) * 4;
    float x[RILL__BUCKET + RILL__SLACK / 4];
    for (uint64_t i = 0; i < count; i += RILL__BUCKET, units += 4) {
        unsigned n = (unsigned)rill__min_u64(RILL__BUCKET, count - i);
        kernels->to_f32(type, (const char *)exact + i * size, n, x);
        for (unsigned j = n; j < RILL__BUCKET; j++)
            x[j] = 0;
        float largest = rill__float_from_bits(rill__quant_max_bits(x, n));
        if (largest >= 0x1p-100f && largest <= 0x1p100f)
            fit_bucket(bits, x, n, largest, units, levels);
        levels += rill__quant_bytes(bits, n);
    }
}

#define QSGD(BITS)                                                                                 \
    static double bytes##BITS(rill_type type) {                                                    \
        (void)type;                                                                                \
        return BITS / 8.0 + 4.0 / RILL__BUCKET; /* and its share of a scale */                     \
    }                                                                                              \
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
    static rill_status check##BITS(const void *in, size_t bytes, uint64_t count) {                 \
        return check(BITS, in, bytes, count);                                                      \
    }                                                                                              \
    static void fit##BITS(rill_type type, const void *exact, uint64_t count, void *encoded) {      \
        fit(BITS, type, exact, count, encoded);                                                    \
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
        .bytes = bytes##BITS,                                                                      \
        .seconds = rill__value_coding_seconds,                                                     \
        .bound = bound##BITS,                                                                      \
        .encode = encode##BITS,                                                                    \
        .decode = decode##BITS,                                                                    \
        .decode_add = decode_add##BITS,                                                            \
        .fit = fit##BITS,                                                                          \
        .code = RILL__VALUE_QSGD,                                                                  \
        .check = check##BITS,                                                                      \
    }

QSGD(8);
QSGD(4);
QSGD(2);
