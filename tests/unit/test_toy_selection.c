/* A selection is a file and a row. A toy takes the way of all others: by its name through the calls
 * of a selector, and through steps of a reducer. The table of this program has its row behind those
 * of the library. */
#include "../support/ranks.h"

#include "../toy/select_stride.c"

#define RILL_TEST_SELECTIONS &toy_select_stride,
#include "select/select_table.c"

enum { DIM = 10007, K = 100, LENGTH = 101, RANKS = 3 };

static void test_in_the_table(void **state) {
    (void)state;
    const char *text = NULL;
    assert_string_equal(rill_selector_at(METHODS - 1, &text), "stride");
    assert_string_equal(text, toy_select_stride.description);
    assert_null(rill_selector_at(METHODS, NULL));
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    rill_selector *s = NULL;
    o.method = "stride";
    assert_fails(rill_selector_create(RILL_F32, DIM, &o, &s), RILL_ERR_ARGUMENT, "'stride'");
}

static rill_selector *make(rill_type type, int threads) {
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    rill_selector *s = NULL;
    o.method = "stride";
    o.k = K;
    o.threads = threads;
    assert_ok(rill_selector_create(type, DIM, &o, &s));
    s->least_slice = 1000;
    return s;
}

/* Small integers, so that there are ties; zeros, the whole of a stride too; a NaN. */
static void fill(rill_type type, void *x, uint64_t seed) {
    rng r = rng_make(seed, 0);
    for (uint64_t i = 0; i < DIM; i++)
        value_store(type, x, i, i / LENGTH == 3 ? 0.0 : (double)rng_below(&r, 81) - 40);
    value_store(type, x, 5 * LENGTH + 7, (double)NAN);
}

/* Written apart from the library, in doubles. */
static uint64_t expected(rill_type type, const void *x, uint32_t *idx) {
    uint64_t n = 0;
    for (uint64_t at = 0; at < DIM; at += LENGTH) {
        uint64_t best = DIM;
        double most = 0;
        for (uint64_t i = at; i < at + LENGTH && i < DIM; i++) {
            double y = fabs(value_load(type, x, i));
            if (isnan(y)) y = (double)INFINITY;
            if (y > most) most = y, best = i;
        }
        if (best < DIM) idx[n++] = (uint32_t)best;
    }
    return n;
}

static void test_select(void **state) {
    (void)state;
    static double x[DIM];
    uint32_t idx[K];
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int threads = 1; threads <= 4; threads += 3) {
            rill_type type = test_types[t];
            rill_selector *s = make(type, threads);
            rill_stream *out = unit_stream(type, DIM);
            fill(type, x, (uint64_t)t);
            uint64_t n = expected(type, x, idx);
            assert_int_equal(n, K - 1);
            assert_ok(rill_select(s, x, out));
            assert_valid(out);
            assert_int_equal(rill_stream_nnz(out), n);
            assert_memory_equal(rill_stream_indices32(out), idx, n * sizeof *idx);
            for (uint64_t i = 0; i < n; i++)
                assert_true(value_same(value_load(type, rill_stream_values(out), i),
                                       value_load(type, x, idx[i])));
            rill_stream_free(&out);
            rill_selector_free(&s);
        }
}

/* The residual gets the gradient and loses what is selected, and nothing else. */
static void test_residual(void **state) {
    (void)state;
    static float gradient[DIM], residual[DIM], want[DIM];
    uint32_t idx[K];
    for (int threads = 1; threads <= 4; threads += 3) {
        rill_selector *s = make(RILL_F32, threads);
        rill_stream *out = unit_stream(RILL_F32, DIM);
        memset(residual, 0, sizeof residual);
        for (uint64_t step = 0; step < 4; step++) {
            fill(RILL_F32, gradient, step);
            gradient[5 * LENGTH + 7] = 1;
            for (int i = 0; i < DIM; i++)
                want[i] = residual[i] + gradient[i];
            uint64_t n = expected(RILL_F32, want, idx);
            assert_ok(rill_select_residual(s, gradient, residual, out));
            assert_int_equal(rill_stream_nnz(out), n);
            assert_memory_equal(rill_stream_indices32(out), idx, n * sizeof *idx);
            for (uint64_t i = 0; i < n; i++)
                want[idx[i]] = 0;
            assert_memory_equal(residual, want, sizeof want);
        }
        rill_stream_free(&out);
        rill_selector_free(&s);
    }
}

static void test_in_a_reducer(void **state) {
    (void)state;
    rill_comm *comms[RANKS];
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.select = "stride";
    o.k = K;
    o.average = 0;
    assert_ok(rill_comm_create_local(RANKS, NULL, comms));
    for (int i = 0; i < 2; i++) {
        o.algorithm = i ? "oktopk" : "split_allgather";
        uint64_t sent = ranks_check_reducer(RANKS, comms, &o);
        assert_in_range(sent, K - 5, K);
    }
    for (int i = 0; i < RANKS; i++)
        assert_ok(rill_comm_free(&comms[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_the_table),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_in_a_reducer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
