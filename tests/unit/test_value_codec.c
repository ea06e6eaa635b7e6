/* Value codecs: sizes, round trips, the same bits from every instruction set, the generator against
 * Random123, QSGD against an oracle, and malformed input. */
#include "test_codec.h"

#include "codec/value_codec.h"
#include "space/value_portable.h"

#if __has_include(<Random123/philox.h>)
#include <Random123/philox.h>
#define HAVE_RANDOM123 1
#endif

static int force(int isa) { return rill__isa_force(isas[isa]); }

static void table(void **state) {
    (void)state;
    static const char *const names[] = {"raw", "f16", "bf16", "qsgd8", "qsgd4", "qsgd2"};
    static const int bits[] = {0, 16, 16, 8, 4, 2};
    for (int i = 0; i < 6; i++) {
        const rill__value_codec *codec = rill__value_codec_at(i);
        assert_string_equal(codec->name, names[i]);
        assert_int_equal(codec->id, i);
        assert_int_equal(codec->bits, bits[i]);
        assert_ptr_equal(rill__value_codec_by_id((uint8_t)i), codec);
        assert_int_equal(codec->keyed, i >= 3);
    }
    assert_null(rill__value_codec_at(6));
    assert_null(rill__value_codec_by_id(77));
    for (int t = 0; t < TYPE_COUNT; t++) {
        rill_type type = test_types[t];
        assert_ptr_equal(rill__value_codec_for_bits(type, 0), &rill__value_raw);
        assert_ptr_equal(rill__value_codec_for_bits(type, 16),
                         value_size(type) == 2 ? &rill__value_raw : &rill__value_f16);
        assert_ptr_equal(rill__value_codec_for_bits(type, 8), &rill__value_qsgd8);
        assert_ptr_equal(rill__value_codec_for_bits(type, 4), &rill__value_qsgd4);
        assert_ptr_equal(rill__value_codec_for_bits(type, 2), &rill__value_qsgd2);
        assert_null(rill__value_codec_for_bits(type, 3));
    }
    assert_int_equal(rill__value_qsgd8.bound(RILL_F64, 1025), 8 + 1025);
    assert_int_equal(rill__value_qsgd4.bound(RILL_F32, 1025), 8 + 513);
    assert_int_equal(rill__value_qsgd2.bound(RILL_F32, 1025), 8 + 257);
    assert_int_equal(rill__value_qsgd2.bound(RILL_F32, 0), 0);
}

/* What can be in an array of gradients, and what should not. */
enum { PLAIN, ZEROS, TINY, HUGE_VALUES, SPECIALS, MIXED, KINDS };
static void fill(rng *r, rill_type type, int kind, uint64_t n, void *values) {
    static const double odd[] = {0.0, -0.0, 1e-45, -1e-40, 65504.0, 3.4e38, 1e-30, 1.0};
    for (uint64_t i = 0; i < n; i++) {
        double x = rng_normal(r);
        switch (kind) {
        case ZEROS: x = rng_next(r) & 1 ? 0.0 : -0.0; break;
        case TINY: x *= type == RILL_F16 ? 0x1p-22 : 0x1p-146; break;
        case HUGE_VALUES: x = rng_next(r) & 1 ? 3.4e38 : -3.4e38; break;
        case SPECIALS:
            if (rng_below(r, 100) == 0)
                x = rng_next(r) & 1   ? (double)NAN
                    : rng_next(r) & 1 ? (double)INFINITY
                                      : -(double)INFINITY;
            break;
        case MIXED: x = rng_below(r, 4) ? x : odd[rng_below(r, 8)]; break;
        default: break;
        }
        value_store(type, values, i, x);
    }
}

/* Every codec, type and instruction set; decode, and decode and add. */
static void round_trips(void **state) {
    (void)state;
    static const uint64_t counts[] = {1,  2,  3,   7,    8,    15,   16,   17,   63,
                                      64, 65, 500, 1023, 1024, 1025, 2048, 3000, 5120};
    rng r = rng_make(1, 9);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int t = 0; t < TYPE_COUNT; t++)
                for (int c = 0; c < 6; c++)
                    for (int mode = 0; mode < (c >= 3 ? 2 : 1); mode++) {
                        const rill__value_codec *codec = rill__value_codec_at(c);
                        rill_type type = test_types[t];
                        if (!codec->supports(type)) continue;
                        uint64_t n = counts[k];
                        size_t size = value_size(type) * n, bound = codec->bound(type, n);
                        uint8_t *values = guarded(size), *first = guarded(bound);
                        uint8_t *back = guarded(size), *first_back = guarded(size);
                        float *sum = (float *)guarded(4 * n);
                        fill(&r, type, kind, n, values);
                        rill__quant_key key = {rng_next(&r), rng_next(&r), (uint32_t)rng_next(&r),
                                               (uint32_t)rng_next(&r)};
                        for (int isa = 0; isa < ISAS; isa++) {
                            if (!force(isa)) continue;
                            uint8_t *out = guarded(bound);
                            size_t used = 0;
                            assert_int_equal(codec->encode(type, values, n, &key,
                                                           (rill__scale_mode)mode,
                                                           isa ? out : first),
                                             bound);
                            if (isa && memcmp(out, first, bound))
                                fail_msg("%s of %s: %s gives other bytes", codec->name,
                                         rill_type_name(type), isas[isa]);
                            check_guard(isa ? out : first, bound);
                            assert_int_equal(codec->decode(type, first, bound, n,
                                                           isa ? back : first_back, &used),
                                             RILL_OK);
                            assert_int_equal(used, bound);
                            check_guard(isa ? back : first_back, size);
                            if (isa && memcmp(back, first_back, size))
                                fail_msg("%s of %s: %s decodes to other bits", codec->name,
                                         rill_type_name(type), isas[isa]);
                            if (type == RILL_F32) {
                                for (uint64_t i = 0; i < n; i++)
                                    sum[i] = (float)i;
                                assert_int_equal(codec->decode_add(first, bound, n, sum, &used),
                                                 RILL_OK);
                                assert_int_equal(used, bound);
                                for (uint64_t i = 0; i < n; i++) {
                                    float v = (float)i + ((float *)first_back)[i];
                                    if (!value_same((double)sum[i], (double)v))
                                        fail_msg("%s: adding gives %g, not %g", codec->name,
                                                 (double)sum[i], (double)v);
                                }
                                check_guard((uint8_t *)sum, 4 * n);
                            }
                            free(out);
                        }
                        if (c == 0) assert_memory_equal(first_back, values, size);
                        free(values);
                        free(first);
                        free(back);
                        free(first_back);
                        free(sum);
                    }
    rill__isa_force(NULL);
}

static void halves(void **state) {
    (void)state;
    rng r = rng_make(2, 9);
    for (int isa = 0; isa < ISAS; isa++) {
        if (!force(isa)) continue;
        for (int c = 1; c <= 2; c++) {
            const rill__value_codec *codec = rill__value_codec_at(c);
            enum { N = 65536 };
            float *x = (float *)guarded(4 * N), *back = (float *)guarded(4 * N);
            uint16_t *h = (uint16_t *)guarded(2 * N);
            size_t used;
            for (unsigned i = 0; i < N; i++)
                h[i] = (uint16_t)i;
            codec->decode(RILL_F32, h, 2 * N, N, x, &used);
            for (unsigned i = 0; i < N; i++) {
                double want = c == 1 ? f16_load((uint16_t)i) : bf16_load((uint16_t)i);
                assert_true(value_same((double)x[i], want));
                uint32_t bits = (uint32_t)rng_next(&r);
                memcpy(x + i, &bits, 4);
            }
            codec->encode(RILL_F32, x, N, NULL, RILL__SCALE_MAX, h);
            codec->decode(RILL_F32, h, 2 * N, N, back, &used);
            for (unsigned i = 0; i < N; i++) {
                double v = (double)x[i];
                double want = c == 1 ? f16_load(f16_store(v)) : bf16_load(bf16_store(v));
                assert_true(value_same((double)back[i], want));
            }
            free(x);
            free(back);
            free(h);
        }
    }
    rill__isa_force(NULL);
}

/* ---- the generator -------------------------------------------------------------------------- */

#ifdef HAVE_RANDOM123
static rill__quant_stream oracle_stream(const rill__quant_key *key) {
    philox4x32_key_t seed = {{(uint32_t)key->seed, (uint32_t)(key->seed >> 32)}};
    philox4x32_ctr_t c = {
        {(uint32_t)key->step, (uint32_t)(key->step >> 32), key->sender, key->hop}};
    c = philox4x32_R(10, c, seed);
    return (rill__quant_stream){{c.v[0], c.v[1]}, {c.v[2], c.v[3]}};
}
/* The 16 bits of element e of a message, by the words of value_qsgd.c. */
static uint32_t oracle_random(const rill__quant_stream *s, uint64_t e) {
    uint64_t block = e / 64 * 8 + e % 16 / 2;
    philox4x32_ctr_t c = {{(uint32_t)block, (uint32_t)(block >> 32), s->high[0], s->high[1]}};
    philox4x32_key_t k = {{s->key[0], s->key[1]}};
    c = philox4x32_R(7, c, k);
    uint32_t word = c.v[2 * (e % 64 / 32) + e % 2];
    return e / 16 % 2 ? word >> 16 : word & 0xffff;
}

/* Levels as the documentation says, in double, for finite values with a normal scale. */
static void oracle(void **state) {
    (void)state;
    enum { N = 2500 };
    static float x[N + 32];
    rng r = rng_make(3, 9);
    for (unsigned i = 0; i < N; i++)
        x[i] = (float)rng_normal(&r);
    for (int c = 3; c < 6; c++)
        for (int mode = 0; mode < 2; mode++)
            for (int isa = 0; isa < ISAS; isa++) {
                if (!force(isa)) continue;
                const rill__value_codec *codec = rill__value_codec_at(c);
                int s = (1 << (codec->bits - 1)) - 1;
                rill__quant_key key = {77, 1u + (uint64_t)c, 5, 6};
                rill__quant_stream stream = oracle_stream(&key);
                uint8_t *out = guarded(codec->bound(RILL_F32, N));
                codec->encode(RILL_F32, x, N, &key, (rill__scale_mode)mode, out);
                for (uint64_t e = 0; e < N; e++) {
                    uint64_t from = e / 1024 * 1024, to = from + 1024 < N ? from + 1024 : N;
                    double norm = 0;
                    for (uint64_t i = from; i < to; i++)
                        norm = mode ? norm + (double)x[i] * (double)x[i]
                                    : fmax(norm, fabs((double)x[i]));
                    if (mode) norm = sqrt(norm);
                    float unit;
                    memcpy(&unit, out + 4 * (e / 1024), 4);
                    assert_true(fabs((double)unit / (norm / s) - 1.0) < 1e-7);
                    double y = nearbyint((double)(x[e] * (65536.0f / unit)));
                    double level = floor((y + oracle_random(&stream, e)) / 65536.0);
                    level = fmin(fmax(level, -s), s);
                    int got = rill__quant_level_at(out + 12, codec->bits, (unsigned)e);
                    if (got != (int)level)
                        fail_msg("%s, %s: level %llu is %d, not %g", codec->name, isas[isa],
                                 (unsigned long long)e, got, level);
                }
                free(out);
            }
    rill__isa_force(NULL);
}

static void generator(void **state) {
    (void)state;
    rng r = rng_make(4, 9);
    for (int trial = 0; trial < 100; trial++) {
        rill__quant_key key = {rng_next(&r), rng_next(&r), (uint32_t)rng_next(&r),
                               (uint32_t)rng_next(&r)};
        rill__quant_stream stream = rill__quant_stream_make(&key), want = oracle_stream(&key);
        assert_memory_equal(&stream, &want, sizeof want);
        uint64_t group = rng_next(&r) >> rng_below(&r, 56) >> 8;
        uint32_t word[2][16];
        rill__quant_random(&stream, group, word);
        for (unsigned e = 0; e < 64; e++) {
            uint32_t random = word[e / 32][e % 16];
            random = e / 16 % 2 ? random >> 16 : random & 0xffff;
            assert_int_equal(random, oracle_random(&stream, 64 * group + e));
        }
    }
}
#endif

/* ---- corners -------------------------------------------------------------------------------- */

static void special_values(void **state) {
    (void)state;
    enum { N = 2048 };
    for (int isa = 0; isa < ISAS; isa++)
        for (int c = 3; force(isa) && c < 6; c++) {
            const rill__value_codec *codec = rill__value_codec_at(c);
            float *x = (float *)guarded(4 * N), *back = (float *)guarded(4 * N);
            uint8_t *bytes = guarded(codec->bound(RILL_F32, N));
            rill__quant_key key = {1, 1, 1, 1};
            size_t used, size = codec->bound(RILL_F32, N);
            for (unsigned i = 0; i < N; i++)
                x[i] = i % 2 ? 1.0f : -1.0f;
            x[5] = NAN, x[6] = INFINITY, x[7] = -INFINITY;
            codec->encode(RILL_F32, x, N, &key, RILL__SCALE_MAX, bytes);
            assert_int_equal(codec->decode(RILL_F32, bytes, size, N, back, &used), RILL_OK);
            assert_true(isnan(back[5]));
            if (codec->bits == 2) {
                assert_true(isnan(back[6]) && isnan(back[7]));
            } else {
                assert_true(back[6] == INFINITY && back[7] == -INFINITY);
            }
            for (unsigned i = 0; i < N; i++)
                if (i < 5 || i > 7) assert_true(fabs((double)back[i] - (double)x[i]) < 1e-6);
            /* Nothing but zeros, and NaN among zeros. */
            memset(x, 0, 4 * N);
            x[2000] = NAN;
            codec->encode(RILL_F32, x, N, &key, RILL__SCALE_L2, bytes);
            assert_int_equal(codec->decode(RILL_F32, bytes, size, N, back, &used), RILL_OK);
            for (unsigned i = 0; i < N; i++)
                assert_true(i == 2000 ? isnan(back[i]) : back[i] == 0.0f);
            /* The smallest numbers there are: a scale of few quanta still comes back. */
            for (unsigned i = 0; i < N; i++)
                x[i] = i % 2 ? 1.4e-45f : -1.4e-45f;
            codec->encode(RILL_F32, x, N, &key, RILL__SCALE_MAX, bytes);
            assert_int_equal(codec->decode(RILL_F32, bytes, size, N, back, &used), RILL_OK);
            assert_memory_equal(back, x, 4 * N);
            /* The largest, and those whose norm f32 does not hold. */
            for (int mode = 0; mode < 2; mode++) {
                float large = mode ? 1e38f : FLT_MAX;
                for (unsigned i = 0; i < N; i++)
                    x[i] = i % 2 ? large : -large;
                codec->encode(RILL_F32, x, N, &key, (rill__scale_mode)mode, bytes);
                assert_int_equal(codec->decode(RILL_F32, bytes, size, N, back, &used), RILL_OK);
                for (unsigned i = 0; i < N; i++) {
                    assert_true(isfinite(back[i]));
                    if (!mode) assert_true(fabs((double)(back[i] / x[i]) - 1.0) < 1e-6);
                }
            }
            free(x);
            free(back);
            free(bytes);
        }
    rill__isa_force(NULL);
}

static double squares(const float *a, const float *b, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sum;
}

/* For error feedback: closer than random rounding, and than nothing at all. Like the largest
 * entries of a gradient, a few values are far larger than the others. */
static void fitted(void **state) {
    (void)state;
    enum { N = 2500 };
    float x[N + 16], random[N + 16], back[N + 16], zero[N] = {0};
    rng r = rng_make(5, 0);
    for (int i = 0; i < N; i++) {
        double tail = 1 / (0.01 + rng_unit(&r));
        x[i] = (float)((1 + tail) * (rng_next(&r) & 1 ? 1 : -1));
    }
    for (int c = 3; c < 6; c++) {
        const rill__value_codec *codec = rill__value_codec_at(c);
        rill__quant_key key = {1, 2, 3, 4};
        size_t size = codec->bound(RILL_F32, N), used;
        uint8_t *bytes = guarded(size), *again = guarded(size);
        codec->encode(RILL_F32, x, N, &key, RILL__SCALE_MAX, bytes);
        assert_int_equal(codec->decode(RILL_F32, bytes, size, N, random, &used), RILL_OK);
        codec->fit(RILL_F32, x, N, bytes);
        assert_int_equal(codec->decode(RILL_F32, bytes, size, N, back, &used), RILL_OK);
        double nothing = squares(x, zero, N), lost = squares(x, back, N);
        static const double most[] = {1e-3, 0.12, 0.6}; /* 8, 4, 2 bits */
        assert_true(lost < most[c - 3] * nothing);
        assert_true(lost < 0.6 * squares(x, random, N));
        /* Infinities and NaN, and what is out of reach, stay as they were coded. */
        static const float odd[] = {NAN, INFINITY, 1e-40f, 3e38f};
        for (int k = 0; k < 4; k++) {
            float y[8] = {0};
            y[3] = odd[k];
            codec->encode(RILL_F32, y, 8, &key, RILL__SCALE_MAX, again);
            memcpy(bytes, again, codec->bound(RILL_F32, 8));
            codec->fit(RILL_F32, y, 8, bytes);
            assert_memory_equal(bytes, again, codec->bound(RILL_F32, 8));
        }
        free(bytes);
        free(again);
    }
}

static void malformed(void **state) {
    (void)state;
    float values[64], sum[64];
    for (int i = 0; i < 64; i++)
        values[i] = 1.0f, sum[i] = 2.0f;
    for (int c = 0; c < 6; c++) {
        const rill__value_codec *codec = rill__value_codec_at(c);
        rill__quant_key key = {1, 2, 3, 4};
        size_t size = codec->bound(RILL_F32, 29), used;
        uint8_t *bytes = guarded(size);
        codec->encode(RILL_F32, values, 29, &key, RILL__SCALE_MAX, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            assert_int_equal(codec->decode(RILL_F32, bytes, cut, 29, values, &used),
                             RILL_ERR_MESSAGE);
            assert_int_equal(codec->decode_add(bytes, cut, 29, sum, &used), RILL_ERR_MESSAGE);
        }
        assert_int_equal(codec->decode(RILL_F32, bytes, size, UINT64_MAX / 16, values, &used),
                         RILL_ERR_MESSAGE);
        if (c >= 3) {
            uint8_t last = bytes[size - 1];
            if (codec->bits < 8) {
                bytes[size - 1] |= 0x80; /* after 29 codes */
                assert_int_equal(codec->decode(RILL_F32, bytes, size, 29, values, &used),
                                 RILL_ERR_MESSAGE);
                bytes[size - 1] = last;
            }
            float unit = NAN;
            memcpy(bytes, &unit, 4);
            assert_int_equal(codec->decode_add(bytes, size, 29, sum, &used), RILL_ERR_MESSAGE);
            unit = INFINITY;
            memcpy(bytes, &unit, 4);
            assert_int_equal(codec->decode(RILL_F32, bytes, size, 29, values, &used),
                             RILL_ERR_MESSAGE);
        }
        for (int i = 0; i < 64; i++)
            assert_true(sum[i] == 2.0f);
        free(bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),          cmocka_unit_test(round_trips),
        cmocka_unit_test(halves),
#ifdef HAVE_RANDOM123
        cmocka_unit_test(generator),      cmocka_unit_test(oracle),
#endif
        cmocka_unit_test(special_values), cmocka_unit_test(fitted),
        cmocka_unit_test(malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
