/* Sums of streams: every pair of forms x operation x type against a naive vector, exactly; n-way
 * sums, concatenation, fills. */
#include "../support/unit.h"

#include "stream/stream.h"

static rill_op *user_op;
static uint64_t user_calls;

static int make_user_op(void **state) {
    (void)state;
    return rill_op_create("lowest", user_op_fn, &user_calls, USER_NEUTRAL, 0, &user_op);
}
static int free_user_op(void **state) {
    (void)state;
    return rill_op_free(&user_op);
}

/* Ways to make a stream; the model is changed to what the stream then stands for. */
typedef enum recipe { PAIRS, DENSE_ARRAY, FORCED_DENSE, FORCED_SPARSE, RECIPES } recipe;

static rill_stream *cook(recipe how, rill_type type, model *m) {
    rill_stream *s = unit_stream(type, m->dim);
    if (how == PAIRS) {
        assert_ok(model_set_pairs(m, s));
        assert_false(rill_stream_is_dense(s));
        return s;
    }
    assert_ok(how == FORCED_DENSE ? model_set_pairs(m, s) : model_set_dense(m, s));
    model_forget_fill(m);
    if (how == FORCED_DENSE) assert_ok(rill_stream_to_dense(s));
    if (how == FORCED_SPARSE) assert_ok(rill_stream_to_sparse(s));
    if (how != DENSE_ARRAY) assert_int_equal(rill_stream_is_dense(s), how == FORCED_DENSE);
    return s;
}

static void add_every_pair_of_forms(void **state) {
    (void)state;
    static const uint64_t dims[] = {1, 7, 64, 1001};
    static const double densities[] = {0, 0.02, 0.3, 1};
    rng r = rng_make(10, 0);
    long cases = 0, dense_results = 0, sparse_results = 0;
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < TYPE_COUNT; t++)
            for (int forms = 0; forms < RECIPES * RECIPES; forms++)
                for (int d = 0; d < 4; d++)
                    for (int mix = 0; mix < 16; mix++) {
                        test_op o = (test_op)op;
                        model a = model_random(dims[d], densities[mix / 4], o, &r, 0);
                        model b = model_random(dims[d], densities[mix % 4], o, &r, 1);
                        rill_stream *x = cook((recipe)(forms / RECIPES), test_types[t], &a);
                        rill_stream *y = cook((recipe)(forms % RECIPES), test_types[t], &b);
                        assert_ok(rill_stream_add(x, y, op_rill(o, user_op)));
                        assert_model(y, &b); /* from is left alone */
                        model_add(&a, &b, o);
                        assert_model(x, &a);
                        *(rill_stream_is_dense(x) ? &dense_results : &sparse_results) += 1;
                        /* The fill is part of what goes on. An entry that equals it in the dense
                         * form is absent, which is no difference to the next sum of this op. */
                        assert_ok(rill_stream_add(y, x, op_rill(o, user_op)));
                        model_add(&b, &a, o);
                        assert_model(y, &b);
                        rill_stream_free(&x);
                        rill_stream_free(&y);
                        model_free(&a);
                        model_free(&b);
                        cases++;
                    }
    assert_true(cases == OP_COUNT * TYPE_COUNT * RECIPES * RECIPES * 64);
    assert_true(dense_results > 1000 && sparse_results > 1000);
    assert_true(user_calls > 0);
}

static void add_to_itself(void **state) {
    (void)state;
    rng r = rng_make(11, 0);
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < TYPE_COUNT; t++)
            for (int how = 0; how < RECIPES; how++) {
                model m = model_random(500, 0.2, (test_op)op, &r, 0), same;
                rill_stream *s = cook((recipe)how, test_types[t], &m);
                same = model_copy(&m);
                assert_ok(rill_stream_add(s, s, op_rill((test_op)op, user_op)));
                model_add(&m, &same, (test_op)op);
                assert_model(s, &m);
                rill_stream_free(&s);
                model_free(&m);
                model_free(&same);
            }
}

/* Zeros of a dense array are absent and so no candidates for a minimum; zeros that were set as
 * pairs are. */
static void zeros_and_minimum(void **state) {
    (void)state;
    static const float array[4] = {5, 0, 7, 0};
    static const uint32_t idx[4] = {0, 1, 2, 3};
    for (int form = 0; form < 3; form++) {
        rill_stream *a = unit_stream(RILL_F32, 4), *b = unit_stream(RILL_F32, 4);
        assert_ok(rill_stream_set_dense(a, array));
        if (form == 1) assert_ok(rill_stream_to_dense(a));
        if (form == 2) assert_ok(rill_stream_to_sparse(a));
        assert_ok(rill_stream_set_pairs(b, 2, (const uint32_t[]){1, 2}, (const float[]){3, 9}));
        assert_ok(rill_stream_add(a, b, RILL_MIN));
        float got[4];
        assert_ok(rill_stream_get_dense(a, got));
        assert_true(got[0] == 5 && got[1] == 3 && got[2] == 7 && isinf(got[3]) && got[3] > 0);
        assert_ok(rill_stream_set_pairs(a, 4, idx, array));
        assert_int_equal(rill_stream_nnz(a), 4);
        assert_ok(rill_stream_add(a, b, RILL_MIN));
        assert_ok(rill_stream_get_dense(a, got));
        assert_true(got[0] == 5 && got[1] == 0 && got[2] == 7 && got[3] == 0);
        rill_stream_free(&a);
        rill_stream_free(&b);
    }
}

/* A result of one op is an input of another: what is absent stays without contribution, whatever
 * its fill and form. */
static void fills_of_other_operations(void **state) {
    (void)state;
    rng r = rng_make(12, 0);
    long cases = 0;
    for (int first = 0; first < OP_COUNT; first++)
        for (int second = 0; second < OP_COUNT; second++)
            for (int form = 0; form < 3; form++)
                for (int sides = 0; sides < 2; sides++) {
                    /* Small values without zeros or ones, so that none equals a fill. */
                    model a = model_make(300), b = model_make(300), c = model_make(300);
                    for (uint64_t i = 0; i < 300; i++) {
                        a.has[i] = rng_below(&r, 4) == 0;
                        b.has[i] = rng_below(&r, 4) == 0;
                        c.has[i] = rng_below(&r, 4) == 0;
                        a.value[i] = 2;
                        b.value[i] = 4;
                        c.value[i] = 8;
                    }
                    rill_stream *x = cook(PAIRS, RILL_F32, &a), *y = cook(PAIRS, RILL_F32, &b);
                    rill_stream *z = cook(PAIRS, RILL_F32, &c);
                    assert_ok(rill_stream_add(x, y, op_rill((test_op)first, user_op)));
                    model_add(&a, &b, (test_op)first);
                    if (form == 1) assert_ok(rill_stream_to_dense(x));
                    if (form == 2) assert_ok(rill_stream_to_sparse(x));
                    assert_model(x, &a);
                    const rill_op *op = op_rill((test_op)second, user_op);
                    if (sides) {
                        assert_ok(rill_stream_add(x, z, op));
                        model_add(&a, &c, (test_op)second);
                        assert_model(x, &a);
                        assert_ok(rill_stream_clear(x));
                        model empty = model_make(300);
                        assert_model(x, &empty);
                        model_free(&empty);
                    } else {
                        if (form == 1) assert_ok(rill_stream_to_dense(z));
                        assert_ok(rill_stream_add(z, x, op));
                        model_add(&c, &a, (test_op)second);
                        assert_model(z, &c);
                    }
                    rill_stream_free(&x);
                    rill_stream_free(&y);
                    rill_stream_free(&z);
                    model_free(&a);
                    model_free(&b);
                    model_free(&c);
                    cases++;
                }
    assert_true(cases == OP_COUNT * OP_COUNT * 6);
}

static void n_way_sum(void **state) {
    (void)state;
    static const double densities[] = {0.001, 0.05, 0.5};
    enum { MOST = 17 };
    rng r = rng_make(13, 0);
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < TYPE_COUNT; t++)
            for (int n = 1; n <= MOST; n += n < 4 ? 1 : 6)
                for (int d = 0; d < 3; d++)
                    for (int forms = 0; forms < 3; forms++) {
                        const rill_stream *in[MOST];
                        rill_stream *own[MOST];
                        model want = model_make(3001);
                        for (int i = 0; i < n; i++) {
                            double density = i % 5 == 4 ? 0 : densities[d];
                            model m = model_random(3001, density, (test_op)op, &r, i);
                            recipe how = forms == 0   ? PAIRS
                                         : forms == 1 ? FORCED_DENSE
                                                      : (recipe)rng_below(&r, 4);
                            in[i] = own[i] = cook(how, test_types[t], &m);
                            model_add(&want, &m, (test_op)op);
                            model_free(&m);
                        }
                        const rill_op *rop = op_rill((test_op)op, user_op);
                        rill_stream *out = unit_stream(test_types[t], 3001);
                        rill_stream *chain = unit_stream(test_types[t], 3001);
                        assert_ok(rill_stream_sum(out, n, in, rop));
                        assert_model(out, &want);
                        for (int i = 0; i < n; i++)
                            assert_ok(rill_stream_add(chain, in[i], rop));
                        assert_model(chain, &want);
                        /* Once more into the same stream: what was there is replaced. */
                        assert_ok(rill_stream_sum(out, n, in, rop));
                        assert_model(out, &want);
                        for (int i = 0; i < n; i++)
                            rill_stream_free(&own[i]);
                        rill_stream_free(&out);
                        rill_stream_free(&chain);
                        model_free(&want);
                    }
    /* The sum of nothing. */
    rill_stream *out = unit_stream(RILL_F32, 10);
    assert_ok(rill_stream_set_pairs(out, 1, (const uint32_t[]){3}, (const float[]){3}));
    rill_status status = rill_stream_sum(out, 0, NULL, RILL_SUM);
    assert_true(status == RILL_OK || status == RILL_ERR_ARGUMENT);
    if (status == RILL_OK) assert_int_equal(rill_stream_nnz(out), 0);
    rill_stream_free(&out);
}

/* 256 + 1 + ... + 1 with 63 ones is 319; a sum rounded to bf16 after every addition stays 256. The
 * second support has entries spread thinly, so that both ways of summing are met. */
/* A union that will be dense is written dense at once; whether it will be is guessed from four
 * stretches of the indices. Right or wrong, the result is that of adding one after the other. */
static void guessed_dense(void **state) {
    (void)state;
    enum { N = 16, STRETCH = 16384 };
    for (int misled = 0; misled < 2; misled++) {
        /* The larger one is written past the caches. */
        const uint32_t dim = misled ? 1 << 20 : 1 << 22;
        rill_stream *streams[N], *out = unit_stream(RILL_F32, dim),
                                 *chain = unit_stream(RILL_F32, dim);
        const rill_stream *in[N];
        for (int i = 0; i < N; i++) {
            uint32_t *idx = malloc(dim * sizeof *idx);
            float *val = malloc(dim * sizeof *val);
            uint64_t n = 0;
            for (uint32_t x = 0; x < dim; x++) {
                bool sampled = x % (dim / 4) < STRETCH; /* misled: there, and nowhere else */
                if (misled ? !sampled : (x * 2654435761u + (unsigned)i * 0x12345679u) >> 20 & 7)
                    continue;
                idx[n] = x;
                val[n++] = x % 5 ? (float)(x % 97) - 40 : -0.0f;
            }
            streams[i] = unit_stream(RILL_F32, dim);
            assert_ok(rill_stream_set_pairs(streams[i], n, idx, val));
            assert_false(rill_stream_is_dense(streams[i]));
            if (i == 0) assert_ok(rill_stream_copy(chain, streams[0]));
            else assert_ok(rill_stream_add(chain, streams[i], RILL_SUM));
            in[i] = streams[i];
            free(idx);
            free(val);
        }
        assert_ok(rill_stream_sum(out, N, in, RILL_SUM));
        assert_int_equal(rill_stream_is_dense(out), !misled);
        assert_int_equal(rill_stream_is_dense(chain), !misled);
        assert_int_equal(rill_stream_nnz(out), misled ? 4 * STRETCH : dim);
        float *got = malloc(dim * sizeof *got), *want = malloc(dim * sizeof *want);
        assert_ok(rill_stream_get_dense(out, got));
        assert_ok(rill_stream_get_dense(chain, want));
        /* 0.0 and -0.0 may differ: the chain turned dense midway. */
        for (uint32_t x = 0; x < dim; x++)
            assert_true(got[x] == want[x]);
        free(got);
        free(want);
        for (int i = 0; i < N; i++)
            rill_stream_free(&streams[i]);
        rill_stream_free(&out);
        rill_stream_free(&chain);
    }
}

static void sixteen_bits_accumulate_in_f32(void **state) {
    (void)state;
    enum { N = 64 };
    static const uint64_t spread[] = {1, 3, 1000};
    for (int t = 2; t < TYPE_COUNT; t++)
        for (int k = 0; k < 3; k++)
            for (int dense = 0; dense < 2; dense++) {
                rill_type type = test_types[t];
                double big = type == RILL_BF16 ? 256 : 2048, want = type == RILL_BF16 ? 320 : 2112;
                uint64_t dim = 100 * spread[k];
                const rill_stream *in[N];
                rill_stream *own[N];
                for (int i = 0; i < N; i++) {
                    uint16_t val[100];
                    uint32_t idx[100];
                    for (uint32_t j = 0; j < 100; j++) {
                        idx[j] = j * (uint32_t)spread[k];
                        value_store(type, val, j, i ? 1 : big);
                    }
                    in[i] = own[i] = unit_stream(type, dim);
                    assert_ok(rill_stream_set_pairs(own[i], 100, idx, val));
                    if (dense) assert_ok(rill_stream_to_dense(own[i]));
                }
                rill_stream *out = unit_stream(type, dim);
                assert_ok(rill_stream_sum(out, N, in, RILL_SUM));
                uint16_t *got = malloc(dim * 2);
                assert_ok(rill_stream_get_dense(out, got));
                for (uint64_t j = 0; j < 100; j++) {
                    double x = value_load(type, got, j * spread[k]);
                    /* 2048 + 63 is 2111: a tie in f16, which goes to the even 2112. */
                    if (x != want)
                        fail_msg("%s, spread %llu, %s: %g, not %g", rill_type_name(type),
                                 (unsigned long long)spread[k], dense ? "dense" : "pairs", x, want);
                }
                free(got);
                rill_stream_free(&out);
                for (int i = 0; i < N; i++)
                    rill_stream_free(&own[i]);
            }
}

/* Not the user's op, whose neutral element is none for infinities. */
static void special_values_in_sums(void **state) {
    (void)state;
    static const double special[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0, 1, -1};
    enum { S = 6, DIM = S * S };
    for (int op = 0; op < OP_USER; op++)
        for (int t = 0; t < TYPE_COUNT; t++)
            for (int forms = 0; forms < RECIPES * RECIPES; forms++)
                for (int pad = 0; pad < 2; pad++) {
                    model a = model_make(DIM + 900 * (uint64_t)pad), b = model_make(a.dim);
                    for (int i = 0; i < DIM; i++) {
                        a.has[i] = b.has[i] = 1;
                        a.value[i] = special[i / S];
                        b.value[i] = special[i % S];
                    }
                    rill_stream *x = cook((recipe)(forms / RECIPES), test_types[t], &a);
                    rill_stream *y = cook((recipe)(forms % RECIPES), test_types[t], &b);
                    assert_ok(rill_stream_add(x, y, op_rill((test_op)op, user_op)));
                    model_add(&a, &b, (test_op)op);
                    assert_model(x, &a);
                    rill_stream_free(&x);
                    rill_stream_free(&y);
                    model_free(&a);
                    model_free(&b);
                }
}

static void concat_disjoint(void **state) {
    (void)state;
    static const double densities[] = {0, 0.01, 0.4};
    rng r = rng_make(14, 0);
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int forms = 0; forms < RECIPES * RECIPES; forms++)
            for (int d = 0; d < 9; d++) {
                model a = model_random(777, densities[d / 3], OP_SUM, &r, 0);
                model b = model_random(777, densities[d % 3], OP_SUM, &r, 1);
                for (uint64_t i = 0; i < 777; i++)
                    if (a.has[i]) b.has[i] = 0;
                rill_stream *x = cook((recipe)(forms / RECIPES), test_types[t], &a);
                rill_stream *y = cook((recipe)(forms % RECIPES), test_types[t], &b);
                assert_ok(rill_stream_concat(x, y));
                model_add(&a, &b, OP_SUM);
                assert_model(x, &a);
                assert_model(y, &b);
                rill_stream_free(&x);
                rill_stream_free(&y);
                model_free(&a);
                model_free(&b);
            }
}

static void concat_overlap_changes_nothing(void **state) {
    (void)state;
    rng r = rng_make(15, 0);
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int forms = 0; forms < RECIPES * RECIPES; forms++)
            for (uint64_t at = 0; at < 777; at += 388) {
                model a = model_random(777, 0.1, OP_SUM, &r, 0), b = model_make(777);
                for (uint64_t i = 0; i < 777; i += 2)
                    b.has[i] = !a.has[i], b.value[i] = 3;
                a.has[at] = b.has[at] = 1;
                a.value[at] = 5;
                rill_stream *x = cook((recipe)(forms / RECIPES), test_types[t], &a);
                rill_stream *y = cook((recipe)(forms % RECIPES), test_types[t], &b);
                assert_fails(rill_stream_concat(x, y), RILL_ERR_OVERLAP, "both");
                assert_model(x, &a);
                assert_model(y, &b);
                rill_stream_free(&x);
                rill_stream_free(&y);
                model_free(&a);
                model_free(&b);
            }
}

static void mismatches(void **state) {
    (void)state;
    rill_stream *a = unit_stream(RILL_F32, 10), *b = unit_stream(RILL_F32, 11);
    rill_stream *c = unit_stream(RILL_F64, 10);
    const rill_stream *in[2] = {a, b};
    rill_stream *out = unit_stream(RILL_F32, 10);
    assert_fails(rill_stream_add(a, b, RILL_SUM), RILL_ERR_ARGUMENT, "11");
    assert_fails(rill_stream_add(a, c, RILL_SUM), RILL_ERR_ARGUMENT, "f64");
    assert_fails(rill_stream_concat(a, b), RILL_ERR_ARGUMENT, "11");
    assert_fails(rill_stream_concat(a, c), RILL_ERR_ARGUMENT, "f64");
    assert_fails(rill_stream_sum(out, 2, in, RILL_SUM), RILL_ERR_ARGUMENT, "11");
    in[1] = c;
    assert_fails(rill_stream_sum(out, 2, in, RILL_SUM), RILL_ERR_ARGUMENT, "f64");
    rill_op *only = NULL;
    assert_ok(
        rill_op_create("only_f64", user_op_fn, NULL, USER_NEUTRAL, RILL_TYPE_BIT(RILL_F64), &only));
    assert_fails(rill_stream_add(a, out, only), RILL_ERR_UNSUPPORTED, "only_f64");
    assert_fails(rill_stream_add(a, out, only), RILL_ERR_UNSUPPORTED, "f32");
    in[1] = out;
    assert_ok(rill_op_free(&only));
    assert_null(only);
    rill_stream_free(&a);
    rill_stream_free(&b);
    rill_stream_free(&c);
    rill_stream_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_every_pair_of_forms),
        cmocka_unit_test(add_to_itself),
        cmocka_unit_test(zeros_and_minimum),
        cmocka_unit_test(fills_of_other_operations),
        cmocka_unit_test(n_way_sum),
        cmocka_unit_test(guessed_dense),
        cmocka_unit_test(sixteen_bits_accumulate_in_f32),
        cmocka_unit_test(special_values_in_sums),
        cmocka_unit_test(concat_disjoint),
        cmocka_unit_test(concat_overlap_changes_nothing),
        cmocka_unit_test(mismatches),
    };
    return cmocka_run_group_tests(tests, make_user_op, free_user_op);
}
