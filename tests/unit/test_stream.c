/* Streams: contents in and out, forms, fill, copies, validation. */
#include "../support/unit.h"

#include "stream/stream.h"

#include <stdio.h>

static void create_reports_what_it_made(void **state) {
    (void)state;
    for (int t = 0; t < TYPE_COUNT; t++) {
        rill_stream *s = unit_stream(test_types[t], 10);
        assert_int_equal(rill_stream_type(s), test_types[t]);
        assert_int_equal(rill_stream_dim(s), 10);
        assert_int_equal(rill_stream_nnz(s), 0);
        assert_false(rill_stream_is_dense(s));
        model empty = model_make(10);
        assert_model(s, &empty);
        model_free(&empty);
        assert_ok(rill_stream_free(&s));
        assert_null(s);
        assert_ok(rill_stream_free(&s));
    }
    assert_ok(rill_stream_free(NULL));
}

static void create_rejects_bad_arguments(void **state) {
    (void)state;
    rill_stream *s = NULL;
    assert_fails(rill_stream_create((rill_type)77, 10, &s), RILL_ERR_ARGUMENT, "77");
    assert_null(s);
    assert_fails(rill_stream_create(RILL_F32, 10, NULL), RILL_ERR_ARGUMENT, "NULL");
    /* A dimension of 0 is an error or an empty vector, but nothing in between. */
    rill_status status = rill_stream_create(RILL_F32, 0, &s);
    if (status == RILL_OK) {
        float none = 0;
        uint32_t zero = 0;
        assert_valid(s);
        assert_ok(rill_stream_get_dense(s, &none));
        assert_ok(rill_stream_set_dense(s, &none));
        assert_ok(rill_stream_set_pairs(s, 0, NULL, NULL));
        assert_fails(rill_stream_set_pairs(s, 1, &zero, &none), RILL_ERR_RANGE, "0");
        assert_ok(rill_stream_to_dense(s));
        assert_ok(rill_stream_to_sparse(s));
        assert_int_equal(rill_stream_nnz(s), 0);
        rill_stream_free(&s);
    } else {
        assert_int_equal(status, RILL_ERR_ARGUMENT);
        assert_null(s);
    }
}

static void pairs_are_sorted_and_summed(void **state) {
    (void)state;
    static const uint32_t idx[] = {9, 0, 4, 9, 4, 9, 2};
    static const double val[] = {1, 2, 3, 4, -3, 8, 0};
    for (int t = 0; t < TYPE_COUNT; t++) {
        rill_type type = test_types[t];
        rill_stream *s = unit_stream(type, 10);
        double store[7];
        for (uint64_t i = 0; i < 7; i++)
            value_store(type, store, i, val[i]);
        assert_ok(rill_stream_set_pairs(s, 7, idx, store));
        assert_valid(s);
        assert_int_equal(rill_stream_nnz(s), 4); /* the zero and the cancelled 4 are kept */
        const uint32_t *got = rill_stream_indices32(s);
        assert_non_null(got);
        assert_null(rill_stream_indices64(s));
        static const uint32_t want_idx[] = {0, 2, 4, 9};
        static const double want[] = {2, 0, 0, 13};
        for (uint64_t i = 0; i < 4; i++) {
            assert_int_equal(got[i], want_idx[i]);
            assert_true(value_load(type, rill_stream_values(s), i) == want[i]);
        }
        /* And the same through 64-bit indices. */
        uint64_t wide[7];
        for (int i = 0; i < 7; i++)
            wide[i] = idx[i];
        rill_stream *w = unit_stream(type, 10);
        assert_ok(rill_stream_set_pairs64(w, 7, wide, store));
        assert_int_equal(rill_stream_nnz(w), 4);
        assert_memory_equal(rill_stream_indices32(w), want_idx, sizeof want_idx);
        assert_memory_equal(rill_stream_values(w), rill_stream_values(s), 4 * value_size(type));
        rill_stream_free(&w);
        rill_stream_free(&s);
    }
}

/* Duplicates are summed in the order given: in f32, 1e8 + 1 - 1e8 is 0, and 1e8 - 1e8 + 1 is 1. */
static void duplicates_are_summed_in_order(void **state) {
    (void)state;
    static const float values[2][3] = {{1e8f, 1.0f, -1e8f}, {1e8f, -1e8f, 1.0f}};
    enum { REPEAT = 400 }; /* enough to leave any small-sort path */
    for (int order = 0; order < 2; order++)
        for (int n = 1; n <= REPEAT; n += REPEAT - 1) {
            uint32_t *idx = malloc(sizeof *idx * (size_t)(3 * n));
            float *val = malloc(sizeof *val * (size_t)(3 * n));
            for (int k = 0; k < 3; k++)
                for (int i = 0; i < n; i++) {
                    idx[k * n + i] = (uint32_t)(n - 1 - i);
                    val[k * n + i] = values[order][k];
                }
            rill_stream *s = unit_stream(RILL_F32, (uint64_t)n * 4);
            assert_ok(rill_stream_set_pairs(s, (uint64_t)(3 * n), idx, val));
            assert_int_equal(rill_stream_nnz(s), n);
            for (int i = 0; i < n; i++)
                assert_true(((const float *)rill_stream_values(s))[i] == (order ? 1.0f : 0.0f));
            rill_stream_free(&s);
            free(idx);
            free(val);
        }
    /* 16-bit duplicates are summed in f32: 256 + 1 + 1 + 1 is 259, which bf16 rounds to 260. */
    uint16_t ones[4] = {bf16_store(256), bf16_store(1), bf16_store(1), bf16_store(1)};
    uint32_t same[4] = {3, 3, 3, 3};
    rill_stream *s = unit_stream(RILL_BF16, 8);
    assert_ok(rill_stream_set_pairs(s, 4, same, ones));
    assert_true(value_load(RILL_BF16, rill_stream_values(s), 0) == 260.0);
    rill_stream_free(&s);
}

/* Random pairs with repeats, sorted or not, at sizes around every power of two. */
static void random_pairs(void **state) {
    (void)state;
    rng r = rng_make(1, 0);
    for (int t = 0; t < TYPE_COUNT; t++)
        for (uint64_t n = 1; n < 5000; n = n * 2 + rng_below(&r, 3)) {
            uint64_t dim = 1 + rng_below(&r, 3) * n + rng_below(&r, 100);
            model m = model_make(dim);
            uint32_t *idx = malloc(n * sizeof *idx);
            void *val = malloc(n * value_size(test_types[t]));
            for (uint64_t i = 0; i < n; i++) {
                idx[i] = (uint32_t)rng_below(&r, dim);
                double x = i % 3 ? 1.0 : -1.0;
                value_store(test_types[t], val, i, x);
                m.value[idx[i]] += x;
                m.has[idx[i]] = 1;
            }
            uint64_t nnz = 0;
            for (uint64_t i = 0; i < dim; i++) { /* summed in f32 or wider, rounded once */
                double rounded;
                value_store(test_types[t], &rounded, 0, m.value[i]);
                m.value[i] = value_load(test_types[t], &rounded, 0);
                nnz += m.has[i];
            }
            rill_stream *s = unit_stream(test_types[t], dim);
            assert_ok(rill_stream_set_pairs(s, n, idx, val));
            assert_int_equal(rill_stream_nnz(s), nnz);
            assert_model(s, &m);
            rill_stream_free(&s);
            model_free(&m);
            free(idx);
            free(val);
        }
}

static void pairs_out_of_range(void **state) {
    (void)state;
    float val[3] = {1, 2, 3};
    rill_stream *s = unit_stream(RILL_F32, 100);
    uint32_t last[] = {0, 99};
    assert_ok(rill_stream_set_pairs(s, 2, last, val));
    assert_int_equal(rill_stream_nnz(s), 2);
    uint32_t sorted[] = {1, 2, 100}, unsorted[] = {4000000007u, 1, 2};
    assert_fails(rill_stream_set_pairs(s, 3, sorted, val), RILL_ERR_RANGE, "100");
    assert_valid(s);
    assert_fails(rill_stream_set_pairs(s, 3, unsorted, val), RILL_ERR_RANGE, "4000000007");
    assert_valid(s);
    uint64_t wide[] = {1, 2, UINT64_C(4294967296) + 5}; /* 5 if it were cut to 32 bits */
    assert_fails(rill_stream_set_pairs64(s, 3, wide, val), RILL_ERR_RANGE, "4294967301");
    assert_valid(s);
    rill_stream_free(&s);
}

static void null_arguments(void **state) {
    (void)state;
    float val[1] = {1};
    uint32_t idx[1] = {0};
    uint64_t idx64[1] = {0};
    rill_stream *s = unit_stream(RILL_F32, 4), *o = unit_stream(RILL_F32, 4);
    assert_fails(rill_stream_set_pairs(NULL, 1, idx, val), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_set_pairs(s, 1, NULL, val), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_set_pairs(s, 1, idx, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_set_pairs64(s, 1, NULL, val), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_set_pairs64(s, 1, idx64, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_set_pairs64(NULL, 1, idx64, val), RILL_ERR_ARGUMENT, "NULL");
    assert_ok(rill_stream_set_pairs(s, 0, NULL, NULL)); /* nothing to read */
    assert_fails(rill_stream_set_dense(s, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_set_dense(NULL, val), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_get_dense(s, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_get_dense(NULL, val), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_clear(NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_copy(NULL, s), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_copy(s, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_fill(s, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_fill(NULL, val), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_to_dense(NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_to_sparse(NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_validate(NULL, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_add(NULL, s, RILL_SUM), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_add(s, NULL, RILL_SUM), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_add(s, o, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_concat(NULL, s), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_concat(s, NULL), RILL_ERR_ARGUMENT, "NULL");
    const rill_stream *in[2] = {o, NULL};
    assert_fails(rill_stream_sum(s, 2, NULL, RILL_SUM), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_sum(s, 2, in, RILL_SUM), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_sum(s, 1, in, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_sum(NULL, 1, in, RILL_SUM), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_sum(s, -3, in, RILL_SUM), RILL_ERR_ARGUMENT, "-3");
    in[1] = s;
    assert_int_equal(rill_stream_sum(s, 2, in, RILL_SUM), RILL_ERR_ARGUMENT);
    assert_valid(s);
    rill_stream_free(&s);
    rill_stream_free(&o);
}

static void dense_round_trip(void **state) {
    (void)state;
    static const double densities[] = {0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.99, 1};
    static const uint64_t dims[] = {1, 2, 31, 64, 65, 1000, 5003};
    rng r = rng_make(2, 0);
    int sparse = 0, dense = 0;
    for (int t = 0; t < TYPE_COUNT; t++)
        for (size_t k = 0; k < sizeof dims / sizeof *dims; k++)
            for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
                model m = model_random(dims[k], densities[d], OP_SUM, &r, 0);
                rill_stream *s = unit_stream(test_types[t], dims[k]);
                assert_ok(model_set_dense(&m, s));
                assert_model(s, &m);
                if (rill_stream_is_dense(s)) {
                    dense++;
                    assert_int_equal(rill_stream_nnz(s), dims[k]);
                    assert_null(rill_stream_indices32(s));
                    assert_null(rill_stream_indices64(s));
                } else {
                    uint64_t nnz = 0;
                    for (uint64_t i = 0; i < m.dim; i++)
                        nnz += m.has[i] && m.value[i] != 0;
                    assert_int_equal(rill_stream_nnz(s), nnz);
                    sparse++;
                }
                /* There and back through both forms. */
                assert_ok(rill_stream_to_dense(s));
                assert_true(rill_stream_is_dense(s));
                assert_model(s, &m);
                assert_ok(rill_stream_to_sparse(s));
                assert_false(rill_stream_is_dense(s));
                assert_model(s, &m);
                assert_ok(rill_stream_to_sparse(s));
                assert_ok(rill_stream_to_dense(s));
                assert_ok(rill_stream_to_dense(s));
                assert_model(s, &m);
                rill_stream_free(&s);
                model_free(&m);
            }
    assert_true(sparse > 0 && dense > 0);
}

/* Contents replaced by contents of another size, again and again, leave nothing behind. */
static void reuse(void **state) {
    (void)state;
    rng r = rng_make(3, 0);
    rill_stream *s = unit_stream(RILL_F32, 3000), *c = unit_stream(RILL_F32, 3000);
    for (int i = 0; i < 200; i++) {
        model m = model_random(3000, rng_unit(&r) * rng_unit(&r), OP_SUM, &r, 0);
        assert_ok(i % 2 ? model_set_dense(&m, s) : model_set_pairs(&m, s));
        assert_model(s, &m);
        assert_ok(rill_stream_copy(c, s));
        assert_int_equal(rill_stream_is_dense(c), rill_stream_is_dense(s));
        assert_int_equal(rill_stream_nnz(c), rill_stream_nnz(s));
        assert_model(c, &m);
        assert_ok(rill_stream_copy(c, c));
        assert_model(c, &m);
        if (i % 7 == 0) {
            assert_ok(rill_stream_clear(s));
            assert_int_equal(rill_stream_nnz(s), 0);
            assert_false(rill_stream_is_dense(s));
            model empty = model_make(3000);
            assert_model(s, &empty);
            model_free(&empty);
        }
        model_free(&m);
    }
    rill_stream *other = unit_stream(RILL_F32, 2999), *type = unit_stream(RILL_F64, 3000);
    assert_fails(rill_stream_copy(other, s), RILL_ERR_ARGUMENT, "2999");
    assert_fails(rill_stream_copy(type, s), RILL_ERR_ARGUMENT, "f64");
    rill_stream_free(&other);
    rill_stream_free(&type);
    rill_stream_free(&s);
    rill_stream_free(&c);
}

static void beyond_32_bits(void **state) {
    (void)state;
    static const uint64_t dims[] = {(UINT64_C(1) << 32) + 1, UINT64_C(1) << 40, UINT64_C(1) << 62,
                                    UINT64_MAX};
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int d = 0; d < 4; d++) {
            rill_type type = test_types[t];
            uint64_t dim = dims[d];
            rill_stream *s = unit_stream(type, dim), *o = unit_stream(type, dim);
            uint64_t idx[] = {dim - 1, 5, dim - 1, 0, UINT64_C(1) << 32};
            double val[5];
            for (uint64_t i = 0; i < 5; i++)
                value_store(type, val, i, (double)(i + 1));
            assert_ok(rill_stream_set_pairs64(s, 5, idx, val));
            assert_valid(s);
            assert_null(rill_stream_indices32(s));
            const uint64_t *got = rill_stream_indices64(s);
            assert_non_null(got);
            uint64_t last_is_cut = dim - 1 == UINT64_C(1) << 32;
            assert_int_equal(rill_stream_nnz(s), last_is_cut ? 3 : 4);
            assert_int_equal(got[0], 0);
            assert_int_equal(got[1], 5);
            assert_int_equal(got[2], UINT64_C(1) << 32);
            if (!last_is_cut) {
                assert_int_equal(got[3], dim - 1);
                assert_true(value_load(type, rill_stream_values(s), 3) == 4);
            }
            uint32_t narrow[] = {7, 5};
            assert_ok(rill_stream_set_pairs(o, 2, narrow, val));
            assert_ok(rill_stream_add(s, o, RILL_SUM));
            assert_valid(s);
            assert_int_equal(rill_stream_nnz(s), last_is_cut ? 4 : 5);
            assert_true(value_load(type, rill_stream_values(s), 1) == 4);
            uint64_t bad[] = {0, dim};
            char text[32];
            snprintf(text, sizeof text, "%llu", (unsigned long long)dim);
            assert_fails(rill_stream_set_pairs64(s, 2, bad, val), RILL_ERR_RANGE, text);
            assert_valid(s);
            rill_stream_free(&s);
            rill_stream_free(&o);
        }
    /* A dense form that no memory holds is an error, and leaves the stream as it was. */
    rill_stream *s = unit_stream(RILL_F64, UINT64_C(1) << 61);
    uint64_t one = UINT64_C(1) << 60;
    double x = 3;
    assert_ok(rill_stream_set_pairs64(s, 1, &one, &x));
    assert_int_equal(rill_stream_to_dense(s), RILL_ERR_MEMORY);
    assert_valid(s);
    assert_int_equal(rill_stream_nnz(s), 1);
    rill_stream_free(&s);
}

/* The largest dimension of 32-bit indices has index 2^32 - 1. */
static void the_last_32_bit_index(void **state) {
    (void)state;
    rill_stream *s = unit_stream(RILL_F32, UINT64_C(1) << 32);
    uint32_t idx[] = {UINT32_MAX, 0, UINT32_MAX, 1u << 24, (1u << 24) + 1};
    float val[] = {1, 2, 4, 8, 16};
    assert_ok(rill_stream_set_pairs(s, 5, idx, val));
    assert_valid(s);
    assert_int_equal(rill_stream_nnz(s), 4);
    assert_int_equal(rill_stream_indices32(s)[3], UINT32_MAX);
    assert_true(((const float *)rill_stream_values(s))[3] == 5.0f);
    rill_stream *o = unit_stream(RILL_F32, UINT64_C(1) << 32);
    assert_ok(rill_stream_copy(o, s));
    assert_ok(rill_stream_add(o, s, RILL_SUM));
    assert_valid(o);
    assert_int_equal(rill_stream_nnz(o), 4);
    assert_true(((const float *)rill_stream_values(o))[3] == 10.0f);
    uint64_t wide[] = {UINT64_C(1) << 32};
    assert_fails(rill_stream_set_pairs64(s, 1, wide, val), RILL_ERR_RANGE, "4294967296");
    rill_stream_free(&s);
    rill_stream_free(&o);
}

/* NaN, infinities and negative zero go in and come out. */
static void special_values(void **state) {
    (void)state;
    static const double special[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -0.0, 1};
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int pad = 0; pad <= 200; pad += 200) {
            rill_type type = test_types[t];
            uint64_t dim = 5 + (uint64_t)pad;
            model m = model_make(dim);
            for (uint64_t i = 0; i < 5; i++) {
                m.value[i] = special[i];
                m.has[i] = 1;
            }
            rill_stream *s = unit_stream(type, dim);
            assert_ok(model_set_pairs(&m, s));
            assert_model(s, &m);
            assert_int_equal(rill_stream_nnz(s), 5);
            assert_ok(model_set_dense(&m, s));
            assert_model(s, &m);
            assert_ok(rill_stream_to_dense(s));
            assert_ok(rill_stream_to_sparse(s));
            assert_int_equal(rill_stream_nnz(s), 4); /* -0.0 equals the fill */
            assert_model(s, &m);
            rill_stream_free(&s);
            model_free(&m);
        }
}

static void validate_names_the_broken_invariant(void **state) {
    (void)state;
    rill_stream *s = unit_stream(RILL_F32, 100);
    uint32_t idx[] = {3, 5, 9};
    float val[] = {1, 2, 3};
    const char *reason = "untouched";
    assert_ok(rill_stream_set_pairs(s, 3, idx, val));
    assert_ok(rill_stream_validate(s, &reason));
    uint32_t *inner = s->idx.data;
    static const uint32_t broken[][3] = {{3, 3, 9}, {5, 3, 9}, {3, 5, 100}};
    for (int i = 0; i < 3; i++) {
        memcpy(inner, broken[i], sizeof broken[i]);
        reason = NULL;
        assert_true(rill_stream_validate(s, &reason) < 0);
        assert_non_null(reason);
        assert_true(strlen(reason) > 0);
        assert_true(rill_stream_validate(s, NULL) < 0);
    }
    memcpy(inner, idx, sizeof idx);
    assert_valid(s);
    s->nnz = 101;
    assert_true(rill_stream_validate(s, &reason) < 0);
    s->nnz = 3;
    s->index_bytes = 8;
    assert_true(rill_stream_validate(s, &reason) < 0);
    s->index_bytes = 4;
    assert_valid(s);
    assert_ok(rill_stream_to_dense(s));
    assert_valid(s);
    s->nnz = 99;
    assert_true(rill_stream_validate(s, &reason) < 0);
    s->nnz = 100;
    rill_stream_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_reports_what_it_made),
        cmocka_unit_test(create_rejects_bad_arguments),
        cmocka_unit_test(pairs_are_sorted_and_summed),
        cmocka_unit_test(duplicates_are_summed_in_order),
        cmocka_unit_test(random_pairs),
        cmocka_unit_test(pairs_out_of_range),
        cmocka_unit_test(null_arguments),
        cmocka_unit_test(dense_round_trip),
        cmocka_unit_test(reuse),
        cmocka_unit_test(beyond_32_bits),
        cmocka_unit_test(the_last_32_bit_index),
        cmocka_unit_test(special_values),
        cmocka_unit_test(validate_names_the_broken_invariant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
