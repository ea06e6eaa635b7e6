/* Selection over several calls (steering, residuals, random draws), its kernels, indices past 2^32,
 * and errors. */
#include "test_select.h"

#include <sys/mman.h>

/* Every entry is drawn about as often as any other. */
static void test_random_uniform(void **state) {
    (void)state;
    enum { DIM = 103, K = 10, CALLS = 20000 };
    float x[DIM] = {0};
    int hits[DIM] = {0};
    rill_select_options o = method("random", K, 0);
    rill_selector *s;
    rill_stream *out;
    assert_int_equal(rill_selector_create(RILL_F32, DIM, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, DIM, &out), RILL_OK);
    for (int call = 0; call < CALLS; call++) {
        assert_int_equal(rill_select(s, x, out), RILL_OK);
        for (uint64_t i = 0; i < K; i++)
            hits[index_at(out, i)]++;
    }
    for (int i = 0; i < DIM; i++) { /* strata of 11 and 10; 5 sigma of 20000 draws is 220 */
        double mean = (double)CALLS / (i < 33 ? 11 : 10);
        assert_true(fabs(hits[i] - mean) < 230);
    }
    rill_selector_free(&s);
    rill_stream_free(&out);
}

/* ---- steering ----------------------------------------------------------------------------- */

static void test_steering(void **state) {
    (void)state;
    enum { DIM = 100000, K = 1000, CALLS = 200 };
    static float base[DIM], x[DIM];
    fill(base, NORMAL, RILL_F32, DIM, 3);
    rill_select_options o = method("threshold", K, 0);
    o.interval = 64;
    rill_selector *s;
    rill_stream *out;
    assert_int_equal(rill_selector_create(RILL_F32, DIM, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, DIM, &out), RILL_OK);
    double scale = 1, worst = 0;
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < DIM; i++)
            x[i] = base[(i + call * 37) % DIM] * (float)scale;
        assert_int_equal(rill_select(s, x, out), RILL_OK);
        double off = fabs((double)rill_stream_nnz(out) / K - 1);
        if (call % 64 == 0) assert_true(off == 0); /* the exact calls */
        if (off > worst) worst = off;
        scale *= call < 100 ? 1.005 : 0.995;
    }
    if (worst > 0.25) fail_msg("the count was off by %g", worst);
    /* A jump is not steered after, but evaluated anew in the next call. */
    for (int i = 0; i < DIM; i++)
        x[i] *= 100;
    assert_int_equal(rill_select(s, x, out), RILL_OK);
    assert_int_equal(rill_select(s, x, out), RILL_OK);
    assert_int_equal(rill_stream_nnz(out), K);
    memset(x, 0, sizeof x);
    for (int call = 0; call < 3; call++) {
        assert_int_equal(rill_select(s, x, out), RILL_OK);
        assert_int_equal(rill_stream_nnz(out), 0);
    }
    rill_selector_free(&s);
    rill_stream_free(&out);
}

/* The fused form, repeated: what was sent and what is left is what came in, each step. */
static void test_residual_steps(void **state) {
    (void)state;
    enum { DIM = 40000, STEPS = 6 };
    static double g[DIM], residual[DIM], total[DIM], sent[DIM];
    for (int m = 0; rill_selector_at(m, NULL); m++) {
        rill_select_options o = method(rill_selector_at(m, NULL), 0, 0.01);
        rill_selector *s;
        rill_stream *out;
        assert_int_equal(rill_selector_create(RILL_F64, DIM, &o, &s), RILL_OK);
        assert_int_equal(rill_stream_create(RILL_F64, DIM, &out), RILL_OK);
        memset(residual, 0, sizeof residual);
        memset(total, 0, sizeof total);
        memset(sent, 0, sizeof sent);
        for (int step = 0; step < STEPS; step++) {
            rng r = rng_make((uint64_t)step, 4);
            for (int i = 0; i < DIM; i++) {
                g[i] = (double)rng_below(&r, 2000) - 1000; /* exact sums */
                total[i] += g[i];
            }
            assert_int_equal(rill_select_residual(s, g, residual, out), RILL_OK);
            assert_true(rill_stream_nnz(out) > 0);
            for (uint64_t i = 0; i < rill_stream_nnz(out); i++)
                sent[index_at(out, i)] += ((const double *)rill_stream_values(out))[i];
            for (int i = 0; i < DIM; i++)
                assert_true(total[i] == sent[i] + residual[i]);
        }
        rill_selector_free(&s);
        rill_stream_free(&out);
    }
}

/* ---- kernels ------------------------------------------------------------------------------ */

/* Both index widths, which selections of a sane size don't reach, and kth at every rank. */
static void test_kernels(void **state) {
    (void)state;
    enum { N = 333, ROOM = N * 8 + RILL__SLACK };
    static _Alignas(64) char idx[ROOM], val[ROOM], a[4][ROOM];
    rill__isa_force("scalar");
    const rill__select_kernels *scalar = rill__host()->select;
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int kind = 0; kind < DATA; kind++)
            for (unsigned width = 4; width <= 8; width += 4)
                for (int isa = 0; isa < ISAS; isa++) {
                    if (!rill__isa_force(isas[isa])) continue;
                    const rill__select_kernels *k = rill__host()->select;
                    rill_type type = test_types[t];
                    rill__shape shape = {type, width};
                    size_t size = value_size(type);
                    fill(val, (enum data)kind, type, N, 8);
                    for (uint64_t i = 0; i < N; i++) {
                        uint64_t index = width == 8 ? (i << 33) + 7 : i * 5;
                        memcpy(idx + i * width, &index, width);
                    }
                    uint64_t low = rill__key_from(type, 0.3), high = rill__key_from(type, 1.1);
                    uint64_t n = scalar->keep(shape, idx, val, N, low, high, a[0], a[1]), m = 0;
                    for (uint64_t i = 0; i < N; i++) {
                        double x = fabs(value_load(type, val, i));
                        if (!(x >= rill__key_value(type, low) && x < rill__key_value(type, high)))
                            continue;
                        assert_memory_equal(a[0] + m * width, idx + i * width, width);
                        assert_memory_equal(a[1] + m++ * size, val + i * size, size);
                    }
                    assert_int_equal(m, n);
                    assert_int_equal(k->keep(shape, idx, val, N, low, high, a[2], a[3]), n);
                    assert_memory_equal(a[0], a[2], n * width);
                    assert_memory_equal(a[1], a[3], n * size);
                    assert_int_equal(k->keep(shape, idx, val, N, 5, 5, a[2], a[3]), 0);
                    assert_int_equal(k->keep(shape, idx, val, N, 0, UINT64_MAX, idx, val), N);

                    size_t bytes = rill__key_bytes(type);
                    n = k->keys(type, val, N, 0, UINT64_MAX, a[0]);
                    assert_int_equal(n, N);
                    for (uint64_t rank = 1; rank <= N; rank += 1 + rank / 3) {
                        rill__kth kth = k->kth(type, a[0], N, rank, a[1]);
                        uint64_t above = 0, equal = 0;
                        for (uint64_t i = 0; i < N; i++) {
                            uint64_t key = 0;
                            memcpy(&key, a[0] + i * bytes, bytes);
                            above += key > kth.key;
                            equal += key == kth.key;
                        }
                        assert_int_equal(above, kth.above);
                        assert_int_equal(equal, kth.equal);
                        assert_true(above < rank && above + equal >= rank);
                    }
                    double expected[2], sums[2];
                    for (uint64_t count = 0; count < N; count += 7) {
                        scalar->moments(type, val, count, expected);
                        k->moments(type, val, count, sums);
                        assert_true(value_same(sums[0], expected[0]));
                        assert_true(value_same(sums[1], expected[1]));
                    }
                }
    rill__isa_force(NULL);
}

/* Indices past 2^32: memory that is only read, and so costs page tables. */
static void test_wide(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#else
    const uint64_t dim = (UINT64_C(1) << 32) + 70000;
    uint16_t *x = mmap(NULL, dim * 2, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED) skip();
    madvise(x, dim * 2, MADV_HUGEPAGE);
    const uint64_t at[] = {3, 1000000, (UINT64_C(1) << 32) - 1, (UINT64_C(1) << 32) + 1, dim - 1};
    for (int i = 0; i < 5; i++)
        x[at[i]] = (uint16_t)(0x3f80 + 4 * i);
    rill_select_options o = method("topk", 4, 0);
    rill_selector *s;
    rill_stream *out;
    assert_int_equal(rill_selector_create(RILL_BF16, dim, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_BF16, dim, &out), RILL_OK);
    assert_int_equal(rill_select(s, x, out), RILL_OK);
    assert_int_equal(rill_stream_nnz(out), 4);
    assert_null(rill_stream_indices32(out));
    assert_memory_equal(rill_stream_indices64(out), at + 1, sizeof at - sizeof *at);
    rill_selector_free(&s);
    rill_stream_free(&out);
    munmap(x, dim * 2);
#endif
}

/* ---- errors ------------------------------------------------------------------------------- */

static void expect_error(rill_status got, rill_status status, const char *words) {
    assert_int_equal(got, status);
    if (!strstr(rill_last_error(), words))
        fail_msg("'%s' does not say '%s'", rill_last_error(), words);
}

static void test_errors(void **state) {
    (void)state;
    rill_selector *s = NULL;
    rill_select_options o = method("topk", 1, 0);
    expect_error(rill_selector_create(RILL_F32, 9, &o, NULL), RILL_ERR_ARGUMENT, "out is NULL");
    expect_error(rill_selector_create(RILL_F32, 9, NULL, &s), RILL_ERR_ARGUMENT, "options is NULL");
    expect_error(rill_selector_create((rill_type)9, 9, &o, &s), RILL_ERR_ARGUMENT, "type 9");
    o.method = "best";
    expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_UNKNOWN, "'best'");
    static const double bad[] = {-0.5, 1.5, (double)NAN};
    for (int i = 0; i < 3; i++) {
        o = method("topk", 0, bad[i]);
        expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "density");
    }
    for (int m = 0; rill_selector_at(m, NULL); m++) {
        const char *name = rill_selector_at(m, NULL), *description = NULL;
        assert_string_equal(rill_selector_at(m, &description), name);
        assert_non_null(description);
        o = method(name, 0, 0);
        if (!strcmp(name, "block")) continue;
        expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "density");
        expect_error(RILL_ERR_ARGUMENT, RILL_ERR_ARGUMENT, name);
    }
    assert_null(rill_selector_at(-1, NULL));
    assert_null(rill_selector_at(6, NULL));
    o = method("threshold", 0, 0);
    o.threshold = -1;
    expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "threshold -1");
    o = method("topk", 1, 0);
    o.threads = -2;
    expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "threads -2");
    o = method("topk", 1, 0);
    o.size = 3;
    expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "size 3");
    assert_null(s);

    float x[9] = {0}, y[9] = {0};
    rill_stream *out, *other_dim, *other_type;
    o = method(NULL, 1, 0); /* topk */
    assert_int_equal(rill_selector_create(RILL_F32, 9, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, 9, &out), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, 10, &other_dim), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F64, 9, &other_type), RILL_OK);
    expect_error(rill_select(NULL, x, out), RILL_ERR_ARGUMENT, "selector is NULL");
    expect_error(rill_select(s, NULL, out), RILL_ERR_ARGUMENT, "dense is NULL");
    expect_error(rill_select(s, x, NULL), RILL_ERR_ARGUMENT, "out is NULL");
    expect_error(rill_select(s, x, other_dim), RILL_ERR_ARGUMENT, "dimension 10");
    expect_error(rill_select(s, x, other_type), RILL_ERR_ARGUMENT, "type f64");
    expect_error(rill_select_residual(s, NULL, y, out), RILL_ERR_ARGUMENT, "gradient is NULL");
    expect_error(rill_select_residual(s, x, NULL, out), RILL_ERR_ARGUMENT, "residual is NULL");
    expect_error(rill_select_residual(s, x, x, out), RILL_ERR_ARGUMENT, "gradient is residual");
    /* Whatever the stream was, it is the selection afterwards. */
    x[4] = -2;
    assert_int_equal(rill_stream_set_dense(out, x), RILL_OK);
    assert_int_equal(rill_stream_to_dense(out), RILL_OK);
    assert_int_equal(rill_select(s, x, out), RILL_OK);
    assert_int_equal(rill_stream_nnz(out), 1);
    assert_int_equal(index_at(out, 0), 4);
    rill_selector_free(&s);
    assert_null(s);
    assert_int_equal(rill_selector_free(&s), RILL_OK);
    rill_stream_free(&out);
    rill_stream_free(&other_dim);
    rill_stream_free(&other_type);
    /* Dimension 0 selects nothing. */
    assert_int_equal(rill_selector_create(RILL_F32, 0, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, 0, &out), RILL_OK);
    assert_int_equal(rill_select(s, NULL, out), RILL_OK);
    assert_int_equal(rill_stream_nnz(out), 0);
    rill_selector_free(&s);
    rill_stream_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_uniform), cmocka_unit_test(test_steering),
        cmocka_unit_test(test_residual_steps), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_wide),           cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("select_calls", tests, NULL, NULL);
}
