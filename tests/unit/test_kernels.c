/* Kernels but for sums: scalar against plain references written here, every other instruction set
 * against scalar, bit by bit. Arrays have exactly the slack that kernels may use, and a guard
 * behind it. */
#include "test_kernels.h"

/* As numbers, and NaN matches NaN. */
static bool matches(rill_type type, const void *v, const void *fill) {
    double x = rill__value_load(type, v), y = rill__value_load(type, fill);
    return x == y || (x != x && y != y);
}

static void test_compact_replace_fill(void **state) {
    (void)state;
    static const double fills[] = {0.0, -0.0, 1.5, (double)INFINITY, (double)NAN};
    for (int round = 0; round < 500; round++) {
        rill__shape shape = shapes[rnd() % SHAPES];
        size_t size = rill_type_size(shape.type);
        uint64_t n = rnd() % 200, first = shape.index_bytes == 4 ? 7 : UINT64_C(1) << 36;
        unsigned sparsity = 1 + (unsigned)(rnd() % 20);
        char *dense = array_new(n * size), fill[8], to[8];
        rill__value_store(shape.type, fill, fills[rnd() % 5]);
        rill__value_store(shape.type, to, 2.25);
        uint64_t count = 0;
        for (uint64_t i = 0; i < n; i++) {
            value_random(shape.type, dense + i * size, true);
            if (rnd() % sparsity) memcpy(dense + i * size, fill, size);
            count += !matches(shape.type, dense + i * size, fill);
        }
        uint64_t limits[] = {n, count, count ? count - 1 : 0, count / 2, 0};
        for (int k = 0; k < isa_count; k++) {
            for (unsigned l = 0; l < 5; l++) {
                uint64_t limit = limits[l], at = 0;
                void *idx = array_new(limit * shape.index_bytes);
                char *val = array_new(limit * size);
                uint64_t got = isas[k]->compact(shape, dense, first, n, fill, limit, idx, val);
                assert_int_equal(got, count > limit ? limit + 1 : count);
                for (uint64_t i = 0; i < n && at < limit; i++) {
                    if (matches(shape.type, dense + i * size, fill)) continue;
                    assert_int_equal(index_at(shape.index_bytes, idx, at), first + i);
                    assert_memory_equal(val + at * size, dense + i * size, size);
                    at++;
                }
                array_check(idx, limit * shape.index_bytes);
                array_check(val, limit * size);
                free(idx);
                free(val);
            }
            char *out = array_new(n * size);
            slack_mark(out, n * size);
            for (int in_place = 0; in_place < 2; in_place++) {
                if (in_place && n) memcpy(out, dense, n * size);
                isas[k]->replace(shape.type, out, in_place ? out : dense, n, fill, to);
                for (uint64_t i = 0; i < n; i++) {
                    const char *v = dense + i * size;
                    const char *want = matches(shape.type, v, fill) ? to : v;
                    assert_memory_equal(out + i * size, want, size);
                }
            }
            isas[k]->fill(shape.type, out, n, to);
            for (uint64_t i = 0; i < n; i++)
                assert_memory_equal(out + i * size, to, size);
            slack_check(out, n * size);
            free(out);
        }
        free(dense);
    }
}

/* To the bit: -0.0, NaNs and denormals are values, +0.0 is not. */
static void test_pack_bits(void **state) {
    (void)state;
    static const uint32_t odd[] = {0x80000000, 1, 0x7f800001, 0xffc00000, 0x7f800000, 0x3f800000};
    for (uint64_t n = 0; n < 400; n++) {
        unsigned sparsity = 1 + (unsigned)(rnd() % 9);
        uint64_t words = n / 64 + (n % 64 != 0), count = 0;
        uint32_t *dense = array_new(n * 4);
        for (uint64_t i = 0; i < n; i++) {
            dense[i] = rnd() % sparsity ? 0 : odd[rnd() % 6];
            count += dense[i] != 0;
        }
        uint64_t limits[] = {n, count, count ? count - 1 : 0, count / 2, 0};
        for (int k = 0; k < isa_count; k++) {
            if (!isas[k]->pack_bits) continue;
            for (unsigned l = 0; l < 5; l++) {
                uint64_t limit = limits[l], *bits = array_new(words * 8), at = 0;
                uint32_t *val = array_new(limit * 4), *back = array_new(n * 4);
                uint64_t got = isas[k]->pack_bits((const float *)(const void *)dense, n, limit,
                                                  bits, (float *)(void *)val);
                assert_int_equal(got, count > limit ? limit + 1 : count);
                array_check(bits, words * 8);
                array_check(val, limit * 4);
                for (uint64_t i = 0; got <= limit && i < words * 64; i++) {
                    bool there = i < n && dense[i];
                    assert_int_equal(bits[i / 64] >> i % 64 & 1, there);
                    if (there) assert_int_equal(val[at++], dense[i]);
                }
                slack_mark(back, n * 4);
                if (got <= limit) {
                    got = isas[k]->unpack_bits((float *)(void *)back, n, bits,
                                               (const float *)(const void *)val);
                    assert_int_equal(got, count);
                    if (n) assert_memory_equal(back, dense, n * 4);
                    slack_check(back, n * 4);
                }
                free(bits);
                free(val);
                free(back);
            }
        }
        free(dense);
    }
}

static void test_check(void **state) {
    (void)state;
    for (unsigned bytes = 4; bytes <= 8; bytes += 4) {
        uint64_t first = bytes == 4 ? 100 : UINT64_C(1) << 40;
        for (uint64_t n = 0; n < 70; n++) {
            void *idx = array_new(n * bytes);
            for (int k = 0; k < isa_count; k++) {
                for (uint64_t i = 0; i < n; i++)
                    index_set(bytes, idx, i, first + 3 * i);
                assert_int_equal(isas[k]->check(bytes, idx, n, first, 3 * n), n);
                if (n) assert_int_equal(isas[k]->check(bytes, idx, n, first + 1, 3 * n), 0);
                for (uint64_t i = 0; i < n; i++) {
                    uint64_t good = first + 3 * i;
                    assert_int_equal(isas[k]->check(bytes, idx, n, first, 3 * i), i);
                    assert_int_equal(isas[k]->check(bytes, idx, n, first, 3 * i + 1), i + 1);
                    uint64_t bad[] = {i ? good - 3 : first - 1, i ? good - 4 : 0, first + 3 * n,
                                      bytes == 4 ? UINT32_MAX : UINT64_MAX};
                    for (unsigned b = 0; b < 4; b++) {
                        index_set(bytes, idx, i, bad[b]);
                        assert_int_equal(isas[k]->check(bytes, idx, n, first, 3 * n), i);
                    }
                    index_set(bytes, idx, i, good);
                }
            }
            free(idx);
        }
        /* The whole of the index type, whose end does not fit into it. */
        void *idx = array_new(2 * bytes);
        index_set(bytes, idx, 0, 0);
        index_set(bytes, idx, 1, bytes == 4 ? UINT32_MAX : UINT64_MAX - 1);
        for (int k = 0; k < isa_count; k++)
            assert_int_equal(isas[k]->check(bytes, idx, 2, 0,
                                            bytes == 4 ? UINT64_C(1) << 32 : UINT64_MAX),
                             2);
        free(idx);
    }
}

static void try_sort(rill__shape shape, uint64_t n, uint64_t range) {
    size_t size = rill_type_size(shape.type);
    void *in_idx = array_new(n * shape.index_bytes), *idx = array_new(n * shape.index_bytes);
    char *in_val = array_new(n * size), *val = array_new(n * size);
    for (uint64_t i = 0; i < n; i++) {
        index_set(shape.index_bytes, in_idx, i, rnd() % range);
        value_random(shape.type, in_val + i * size, true);
    }
    uint64_t count, last = 0;
    assert_int_equal(rill__sort_pairs(shape, n, in_idx, in_val, idx, val, &count), RILL_OK);
    uint64_t covered = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t x = index_at(shape.index_bytes, idx, i), terms = 0;
        if (i) assert_true(x > last);
        last = x;
        double sum = 0;
        char want[8];
        for (uint64_t j = 0; j < n; j++) {
            if (index_at(shape.index_bytes, in_idx, j) != x) continue;
            double v = rill__value_load(shape.type, in_val + j * size);
            sum = !terms++ ? v : shape.type == RILL_F64 ? sum + v : (double)((float)sum + (float)v);
            if (terms == 1) memcpy(want, in_val + j * size, size);
        }
        if (terms > 1) rill__value_store(shape.type, want, sum);
        assert_true(same_value(shape.type, RILL_SUM, val + i * size, want));
        covered += terms;
    }
    assert_int_equal(covered, n);
    array_check(idx, n * shape.index_bytes);
    array_check(val, n * size);
    free(in_idx);
    free(in_val);
    free(idx);
    free(val);
}

static void test_sort(void **state) {
    (void)state;
    for (unsigned s = 0; s < SHAPES; s++) {
        uint64_t top = shapes[s].index_bytes == 4 ? UINT64_C(1) << 32 : UINT64_MAX;
        for (uint64_t n = 0; n < 40; n++)
            try_sort(shapes[s], n, n + 1);
        uint64_t ranges[] = {1, 2, 100, 512, 513, 70000, UINT64_C(1) << 27, top};
        for (unsigned r = 0; r < 8; r++)
            try_sort(shapes[s], 600, ranges[r]);
    }
}

/* ---- 16-bit values ---------------------------------------------------------------------------*/

static float float_from(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static uint32_t bits_from(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static void test_halves(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
        double sign = h & 0x8000 ? -1 : 1;
        float f = rill__f16_to_f32((uint16_t)h);
        if (exponent == 31) {
            uint32_t quiet = fraction ? 0x400000 : 0, sign_bit = (h & 0x8000) << 16;
            assert_int_equal(bits_from(f), sign_bit | 0x7f800000 | fraction << 13 | quiet);
        } else {
            double v = exponent ? ldexp(1024 + fraction, (int)exponent - 25) : ldexp(fraction, -24);
            assert_true((double)f == sign * v);
            assert_int_equal(bits_from(f) >> 31, h >> 15);
        }
        assert_int_equal(rill__f16_from_f32(f), exponent == 31 && fraction ? h | 0x200 : h);
        assert_int_equal(bits_from(rill__bf16_to_f32((uint16_t)h)), h << 16);
        bool nan = (h & 0x7fff) > 0x7f80;
        assert_int_equal(rill__bf16_from_f32(rill__bf16_to_f32((uint16_t)h)), nan ? h | 0x40 : h);
    }
    /* Half way between neighbours, and one f32 to each side; the last is where infinity starts. */
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float high = h == 0x7bff ? 65536.0f : rill__f16_to_f32((uint16_t)(h + 1));
        uint32_t middle = bits_from((rill__f16_to_f32((uint16_t)h) + high) / 2);
        for (uint32_t s = 0; s < 2; s++) {
            uint32_t sign = s << 31, want = s << 15;
            assert_int_equal(rill__f16_from_f32(float_from(sign | middle)), want | (h + (h & 1)));
            assert_int_equal(rill__f16_from_f32(float_from(sign | (middle - 1))), want | h);
            assert_int_equal(rill__f16_from_f32(float_from(sign | (middle + 1))), want | (h + 1));
        }
    }
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t middle = h << 16 | 0x8000;
        assert_int_equal(rill__bf16_from_f32(float_from(middle)), h + (h & 1));
        assert_int_equal(rill__bf16_from_f32(float_from(middle - 1)), h);
        assert_int_equal(rill__bf16_from_f32(float_from(middle + 1)), h + 1);
    }
    /* From double in one rounding: just above half way, by less than f32 sees. */
    uint16_t got;
    rill__value_store(RILL_F16, &got, 1.0 + 0x1p-11 + 0x1p-40);
    assert_int_equal(got, 0x3c01);
    rill__value_store(RILL_F16, &got, -(1.0 + 0x1p-11 + 0x1p-40));
    assert_int_equal(got, 0xbc01);
    rill__value_store(RILL_F16, &got, 1.0 + 3 * 0x1p-11 - 0x1p-40);
    assert_int_equal(got, 0x3c01);
    rill__value_store(RILL_BF16, &got, 1.0 + 0x1p-8 + 0x1p-40);
    assert_int_equal(got, 0x3f81);
    rill__value_store(RILL_F16, &got, 1e300);
    assert_int_equal(got, 0x7c00);
}

/* All 65536 values through the SIMD conversions, which round trip in combine. */
static void test_halves_simd(void **state) {
    (void)state;
    for (int t = RILL_F16; t <= RILL_BF16; t++) {
        rill_type type = (rill_type)t;
        uint16_t *a = array_new(131072), *b = array_new(131072), *want = array_new(131072);
        uint16_t *got = array_new(131072);
        for (int shift = 0; shift < 6; shift++) {
            for (uint32_t i = 0; i < 65536; i++) {
                a[i] = (uint16_t)i;
                b[i] = (uint16_t)(shift ? i * 40503u + (uint32_t)shift * 7919u : 0x8000u);
            }
            for (unsigned o = 0; o < 4; o++) {
                isas[0]->combine(type, op_at(o), want, a, b, 65536);
                for (int k = 1; k < isa_count; k++) {
                    isas[k]->combine(type, op_at(o), got, a, b, 65536);
                    for (uint32_t i = 0; i < 65536; i++)
                        assert_true(same_value(type, op_at(o), got + i, want + i));
                }
            }
        }
        free(a);
        free(b);
        free(want);
        free(got);
    }
}

/* ---- the rest --------------------------------------------------------------------------------*/

static void test_dispatch(void **state) {
    (void)state;
    assert_null(rill__kernels_named(NULL));
    assert_null(rill__kernels_named("none"));
    assert_ptr_equal(rill__kernels_named("scalar"), &rill__kernels_scalar);
    const rill__kernels *kernels = rill__host()->stream;
    assert_non_null(kernels);
    assert_ptr_equal(kernels, rill__kernels_named(kernels->isa));
    const char *asked = getenv("RILL_ISA");
    if (asked && rill__kernels_named(asked)) assert_string_equal(kernels->isa, asked);
}

static void test_ops(void **state) {
    (void)state;
    rill_op *op = NULL;
    assert_int_equal(rill_op_create("", absmax, NULL, 0, 0, &op), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_op_create("x", NULL, NULL, 0, 0, &op), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_op_create("x", absmax, NULL, 0, 1u << 9, &op), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_op_create("x", absmax, NULL, 0, 0, NULL), RILL_ERR_ARGUMENT);
    assert_null(op);
    assert_string_equal(rill_op_name(absmax_op), "absmax");
    assert_string_equal(rill_op_name(RILL_MIN), "min");
    static const double neutral[] = {0, (double)INFINITY, -(double)INFINITY, 1, 0};
    for (unsigned o = 0; o < OPS; o++)
        for (int t = RILL_F32; t <= RILL_BF16; t++) {
            double bits;
            rill__neutral(op_at(o), (rill_type)t, &bits);
            assert_true(rill__value_load((rill_type)t, &bits) == neutral[o]);
        }
    assert_int_equal(rill_type_size(RILL_BF16), 2);
    assert_int_equal(rill_type_size((rill_type)9), 0);
    assert_string_equal(rill_type_name(RILL_F16), "f16");
    assert_int_equal(rill_op_free(NULL), RILL_OK);
}

static int run(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_halves_simd),
        cmocka_unit_test(test_compact_replace_fill),
        cmocka_unit_test(test_pack_bits),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_dispatch),
        cmocka_unit_test(test_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_with_isas(run); }
