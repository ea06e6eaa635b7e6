/* The arithmetic that the device's kernels share with the host, as plain C, against the
 * library's own. */
#include "../support/unit.h"

#include "codec/value_codec.h"
#include "cuda/cuda_math.h"
#include "cuda/cuda_space.h"
#include "space/value_portable.h"

_Static_assert(RILL__CUDA_F32 == (int)RILL_F32 && RILL__CUDA_F64 == (int)RILL_F64 &&
                   RILL__CUDA_F16 == (int)RILL_F16 && RILL__CUDA_BF16 == (int)RILL_BF16,
               "types have the same numbers");
_Static_assert(RILL_HD_BUCKET == RILL__BUCKET, "a bucket is a bucket");

static uint32_t bits_of(float x) { return rill__float_bits(x); }

/* All values of 16 bits, and all that are near a boundary of rounding on the way back. */
static void halves(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t x = (uint16_t)h;
        float f = rill__f16_to_f32(x), b = rill__bf16_to_f32(x);
        assert_int_equal(bits_of(rill__hd_f16_to_f32(x)), bits_of(f));
        assert_int_equal(bits_of(rill__hd_bf16_to_f32(x)), bits_of(b));
        for (int step = -2; step <= 2; step++) {
            float near_f = rill__float_from_bits(bits_of(f) + 0x1000u + (uint32_t)step);
            float near_b = rill__float_from_bits(bits_of(b) + 0x8000u + (uint32_t)step);
            assert_int_equal(rill__hd_f16_from_f32(near_f), rill__f16_from_f32(near_f));
            assert_int_equal(rill__hd_bf16_from_f32(near_b), rill__bf16_from_f32(near_b));
        }
    }
    rng r = rng_make(1, 1);
    for (int i = 0; i < 200000; i++) {
        float x = rill__float_from_bits((uint32_t)rng_next(&r));
        assert_int_equal(rill__hd_f16_from_f32(x), rill__f16_from_f32(x));
        assert_int_equal(rill__hd_bf16_from_f32(x), rill__bf16_from_f32(x));
    }
}

static void random_numbers(void **state) {
    (void)state;
    rng r = rng_make(2, 1);
    for (int i = 0; i < 200; i++) {
        rill__quant_stream stream = {{(uint32_t)rng_next(&r), (uint32_t)rng_next(&r)},
                                     {(uint32_t)rng_next(&r), (uint32_t)rng_next(&r)}};
        uint64_t group = rng_next(&r) >> 20;
        uint32_t word[2][16];
        rill__quant_random(&stream, group, word);
        for (uint32_t j = 0; j < 8; j++) {
            uint64_t number = 8 * group + j;
            uint32_t c[4] = {(uint32_t)number, (uint32_t)(number >> 32), stream.high[0],
                             stream.high[1]};
            rill__hd_philox(stream.key[0], stream.key[1], 7, c);
            assert_int_equal(c[0], word[0][2 * j]);
            assert_int_equal(c[1], word[0][2 * j + 1]);
            assert_int_equal(c[2], word[1][2 * j]);
            assert_int_equal(c[3], word[1][2 * j + 1]);
        }
    }
}

static void units(void **state) {
    (void)state;
    rng r = rng_make(3, 1);
    for (int i = 0; i < 200000; i++) {
        float x = rill__float_from_bits((uint32_t)rng_next(&r) & 0x7fffffffu);
        if (!isfinite(x)) continue;
        for (unsigned bits = 2; bits <= 8; bits *= 2) {
            int levels = rill__quant_levels(bits);
            assert_int_equal(rill__hd_quant_levels((int)bits), levels);
            assert_int_equal(bits_of(rill__hd_quant_unit((double)x, levels)),
                             bits_of(rill__quant_unit((double)x, levels)));
        }
    }
    for (uint64_t n = 0; n < 3000; n++)
        for (unsigned bits = 2; bits <= 8; bits *= 2)
            assert_int_equal(rill__hd_quant_bytes((int)bits, n), rill__quant_bytes(bits, n));
}

/* What codes stand for, those of values that are not finite included. */
static void values(void **state) {
    (void)state;
    for (unsigned bits = 2; bits <= 8; bits *= 2)
        for (int code = 0; code < 1 << bits; code++) {
            const float unit[] = {0.25f, -0.25f, 0.0f, -0.0f, 1e-44f};
            for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
                uint8_t levels[1 + RILL__SLACK] = {(uint8_t)code}, at[4];
                float expected;
                memcpy(at, &unit[u], 4);
                rill__dequantize(at, levels, 1, bits, false, &expected);
                float got = rill__hd_quant_value(rill__quant_level_at(levels, bits, 0), unit[u],
                                                 (int)bits);
                if (isnan(expected)) assert_true(isnan(got));
                else assert_int_equal(bits_of(got), bits_of(expected));
            }
        }
}

/* The tree is exact where all sums are, and its value does not depend on how it is cut. */
static void trees(void **state) {
    (void)state;
    const uint64_t sizes[] = {0, 1, 2, 255, 256, 257, 4095, 4096, 4097, 20000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double *x = malloc((sizes[s] + 1) * sizeof *x), sum = 0;
        assert_non_null(x);
        for (uint64_t i = 0; i < sizes[s]; i++)
            sum += x[i] = (double)(i % 1000);
        assert_true(rill__hd_tree_sum(x, sizes[s]) == sum);
        free(x);
    }
}

/* The number of low bits gives the fewest bits of all. */
static void low_bits(void **state) {
    (void)state;
    rng r = rng_make(4, 1);
    for (int i = 0; i < 20000; i++) {
        uint64_t count = 1 + rng_below(&r, 1u << rng_below(&r, 20)),
                 span = rng_below(&r, UINT64_C(1) << rng_below(&r, 32));
        uint32_t low = rill__hd_best_low(count, span);
        for (uint32_t other = 0; other < 40; other++)
            assert_true(count * low + (span >> low) <= count * other + (span >> other));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(halves), cmocka_unit_test(random_numbers),
                                       cmocka_unit_test(units),  cmocka_unit_test(values),
                                       cmocka_unit_test(trees),  cmocka_unit_test(low_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
