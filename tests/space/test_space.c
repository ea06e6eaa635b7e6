/* Streams and selection in a memory that host code cannot touch: the same bits as on the host, and
 * no touch outside of the memory's operations (space_mock.h). */
#include "there.h"

#include <setjmp.h>

/* ---- streams ------------------------------------------------------------------------------ */

static void check_dense(const rill_stream *host, const rill_stream *there) {
    size_t bytes = host->dim * value_size(host->type);
    void *expected = malloc(bytes + 1), *got = make(NULL, bytes);
    CHECK_OK(rill_stream_get_dense(host, expected));
    CHECK_OK(rill_stream_get_dense(there, got));
    check_same(expected, got, bytes);
    drop(got, bytes);
    free(expected);
}

static void set_both(rill_stream *host, rill_stream *there, uint64_t n, rng *random) {
    uint32_t *idx = malloc((n + 1) * sizeof *idx);
    size_t size = value_size(host->type);
    char *val = gradient_of(host->type, n, random, false);
    for (uint64_t i = 0; i < n; i++)
        idx[i] = (uint32_t)rng_below(random, host->dim);
    void *idx_there = make(idx, n * sizeof *idx), *val_there = make(val, n * size);
    CHECK_OK(rill_stream_set_pairs(host, n, idx, val));
    CHECK_OK(rill_stream_set_pairs(there, n, idx_there, val_there));
    drop(idx_there, n * sizeof *idx);
    drop(val_there, n * size);
    free(idx);
    free(val);
}

static void test_streams(rill_type type, uint64_t dim) {
    check_case("streams, type %s, dim %llu", rill_type_name(type), (unsigned long long)dim);
    rng random = rng_make(check.seed, dim);
    rill_stream *host[2], *there[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_stream_create(type, dim, &host[i]));
        CHECK_OK(rill__stream_create_in(space, type, dim, &there[i]));
        CHECK_INT(rill_stream_memory(host[i]), ==, RILL_HOST);
        CHECK_INT(rill_stream_memory(there[i]), ==, space->kind);
        set_both(host[i], there[i], dim / 10 + 3, &random);
        check_stream(host[i], there[i]);
        check_dense(host[i], there[i]);
    }
    CHECK_OK(rill_stream_add(host[0], host[1], RILL_MAX));
    CHECK_OK(rill_stream_add(there[0], there[1], RILL_MAX));
    check_stream(host[0], there[0]);
    check_dense(host[0], there[0]);
    CHECK_OK(rill_stream_add(there[0], host[1], RILL_SUM)); /* of both memories */
    CHECK_OK(rill_stream_add(host[0], there[1], RILL_SUM));
    check_stream(host[0], there[0]);
    const rill_stream *in[2] = {there[0], host[1]}, *in_host[2] = {host[0], host[1]};
    rill_stream *sum, *sum_there;
    CHECK_OK(rill_stream_create(type, dim, &sum));
    CHECK_OK(rill__stream_create_in(space, type, dim, &sum_there));
    CHECK_OK(rill_stream_sum(sum, 2, in_host, RILL_SUM));
    CHECK_OK(rill_stream_sum(sum_there, 2, in, RILL_SUM));
    check_stream(sum, sum_there);
    CHECK_OK(rill_stream_to_blocks(host[1], 8));
    CHECK_OK(rill_stream_to_blocks(there[1], 8));
    check_stream(host[1], there[1]);
    check_dense(host[1], there[1]);
    CHECK_OK(rill_stream_to_dense(host[0]));
    CHECK_OK(rill_stream_to_dense(there[0]));
    check_stream(host[0], there[0]);
    CHECK_OK(rill_stream_to_sparse(host[0]));
    CHECK_OK(rill_stream_to_sparse(there[0]));
    check_stream(host[0], there[0]);
    void *dense = gradient_of(type, dim, &random, true), *dense_there;
    dense_there = make(dense, dim * value_size(type));
    CHECK_OK(rill_stream_set_dense(host[0], dense));
    CHECK_OK(rill_stream_set_dense(there[0], dense_there));
    check_stream(host[0], there[0]);
    drop(dense_there, dim * value_size(type));
    free(dense);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_stream_free(&host[i]));
        CHECK_OK(rill_stream_free(&there[i]));
    }
    CHECK_OK(rill_stream_free(&sum));
    CHECK_OK(rill_stream_free(&sum_there));
}

static void test_public(void) {
    check_case("memories by name");
    rill_stream *s;
    CHECK_OK(rill_stream_create_in(RILL_HOST, -1, RILL_F32, 10, &s));
    CHECK_INT(rill_stream_memory(s), ==, RILL_HOST);
    CHECK_OK(rill_stream_free(&s));
    /* A library is missing, or a device; where both are there, this is a stream. */
    rill_status status = rill_stream_create_in(RILL_CUDA, -1, RILL_F32, 10, &s);
    if (status == RILL_OK) {
        CHECK_INT(rill_stream_memory(s), ==, RILL_CUDA);
        CHECK_OK(rill_stream_free(&s));
    } else {
        CHECK_STATUS(status, RILL_ERR_UNSUPPORTED);
        CHECK_DETAIL("CUDA");
        CHECK(!s);
    }
    CHECK_STATUS(rill_stream_create_in(RILL_HOST, 0, RILL_F32, 10, &s), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("device 0");
    CHECK_STATUS(rill_stream_create_in((rill_memory)7, -1, RILL_F32, 10, &s), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("memory 7");
}

/* Operations wait in order until somebody needs them. */
static void test_order(void) {
    check_case("operations are late and in order");
    enum { N = 1000 };
    float ones[N], three = 3;
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    float *a = make(ones, sizeof ones), *b = make(NULL, sizeof ones);
    rill__dense_fill(space, RILL_F32, b, &three, N);
    rill__dense_add(space, RILL_F32, a, b, N);
    rill__dense_scale(space, RILL_F32, b, 2, a, N);
    uint64_t waiting = mock_pending(space);
    CHECK_INT(waiting, >=, 3);
    rill_status status = space->poll(space); /* runs one */
    CHECK_INT(status, ==, RILL_IN_PROGRESS);
    CHECK_INT(mock_pending(space), ==, waiting - 1);
    CHECK_NUMBER(rill__dense_norm(space, RILL_F32, b, N), sqrt(N) * 8); /* behind the others */
    CHECK_INT(mock_pending(space), ==, 0);
    CHECK_INT(space->poll(space), ==, RILL_OK);
    drop(a, sizeof ones);
    drop(b, sizeof ones);
}

static sigjmp_buf touched;
static void on_touch(int signal_number) {
    (void)signal_number;
    siglongjmp(touched, 1);
}

/* That the other cases end at all says that nobody touches the memory: here somebody does. */
static void test_wall(void) {
    check_case("a touch is a SIGSEGV");
    volatile char *at = make("x", 1);
    struct sigaction catches = {.sa_handler = on_touch}, before;
    volatile int caught = 0;
    sigaction(SIGSEGV, &catches, &before);
    if (sigsetjmp(touched, 1)) caught++;
    else *at = 'y';
    if (sigsetjmp(touched, 1)) caught++;
    else CHECK_INT(*at, !=, *at);
    sigaction(SIGSEGV, &before, NULL);
    CHECK_INT(caught, ==, 2);
    check_same("x", (const char *)at, 1);
    drop((char *)at, 1);
}

/* ---- selection ---------------------------------------------------------------------------- */

static void test_select(const char *method, rill_type type, uint64_t dim) {
    check_case("select %s, type %s", method, rill_type_name(type));
    rng random = rng_make(check.seed, 7);
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = method;
    o.density = 0.02;
    rill_selector *selector, *selector_there;
    rill_stream *out, *out_there;
    size_t bytes = dim * value_size(type);
    void *residual = calloc(dim, value_size(type)), *residual_there = make(residual, bytes);
    CHECK_OK(rill_selector_create(type, dim, &o, &selector));
    CHECK_OK(rill__selector_create_in(space, type, dim, &o, &selector_there));
    CHECK_OK(rill_stream_create(type, dim, &out));
    CHECK_OK(rill__stream_create_in(space, type, dim, &out_there));
    CHECK_STATUS(rill_select(selector, residual, out_there), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("'mock'");
    for (int step = 0; step < 4; step++) {
        void *gradient = gradient_of(type, dim, &random, false), *there = make(gradient, bytes);
        CHECK_OK(rill_select_residual(selector, gradient, residual, out));
        CHECK_OK(rill_select_residual(selector_there, there, residual_there, out_there));
        check_stream(out, out_there);
        check_same(residual, residual_there, bytes);
        drop(there, bytes);
        free(gradient);
    }
    CHECK_OK(rill_selector_free(&selector));
    CHECK_OK(rill_selector_free(&selector_there));
    CHECK_OK(rill_stream_free(&out));
    CHECK_OK(rill_stream_free(&out_there));
    drop(residual_there, bytes);
    free(residual);
}

int main(int argc, char **argv) {
    static const char *const methods[] = {"topk",      "bucket",   "block",
                                          "threshold", "gaussian", "random"};
    check_init(&argc, &argv);
    space = mock_create();
    test_public();
    test_order();
    test_wall();
    for (int i = 0; i < TYPE_COUNT; i++) {
        test_streams(test_types[i], 500);
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
            test_select(methods[m], test_types[i], 5000);
    }
    mock_free(space);
    return check_finish(30);
}
