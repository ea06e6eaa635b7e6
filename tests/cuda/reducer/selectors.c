/* Selectors in device memory against those of the host, over several calls. */
#include "device.h"

typedef struct selection {
    rill_select_options options;
    rill_type type;
    uint64_t dim, offset; /* vectors start so many entries behind an aligned address */
    bool fused, growing;
} selection;

static void compare(const selection *c, const rill_stream *host, const rill_stream *there) {
    rill_stream *copy;
    CHECK_OK(rill_stream_create(c->type, c->dim, &copy));
    CHECK_OK(rill_stream_copy(copy, there));
    uint64_t n = rill_stream_nnz(host);
    if (CHECK(rill_stream_nnz(copy) == n) && n) {
        CHECK(same_values(c->type, rill_stream_values(host), rill_stream_values(copy), n));
        CHECK(memcmp(rill_stream_indices32(host), rill_stream_indices32(copy), n * 4) == 0);
    }
    CHECK_OK(rill_stream_free(&copy));
}

static void run_case(const selection *c) {
    const rill_select_options *given = &c->options;
    check_case("select %s of %s[%llu] + %llu, k %llu, density %g, threshold %g%s%s", given->method,
               rill_type_name(c->type), (unsigned long long)c->dim, (unsigned long long)c->offset,
               (unsigned long long)given->k, given->density, given->threshold,
               c->fused ? ", fused" : "", c->growing ? ", growing" : "");
    size_t size = value_size(c->type), bytes = c->dim * size, skip = c->offset * size;
    rill_select_options o = c->options;
    rill_selector *selector[2];
    rill_stream *out[2];
    CHECK_OK(rill_selector_create(c->type, c->dim, &o, &selector[0]));
    o.memory = RILL_CUDA;
    CHECK_OK(rill_selector_create(c->type, c->dim, &o, &selector[1]));
    CHECK_OK(rill_stream_create(c->type, c->dim, &out[0]));
    CHECK_OK(rill_stream_create_in(RILL_CUDA, 0, c->type, c->dim, &out[1]));
    CHECK(rill_stream_memory(out[1]) == RILL_CUDA);
    void *residual = calloc(c->dim + 1, size);
    char *block = device_new(NULL, bytes + skip), *residual_there = block + skip;
    char *given_block = device_new(NULL, bytes + skip), *there = given_block + skip;
    device_put(residual_there, residual, bytes);
    rng random = rng_make(11, c->dim);
    for (int call = 0; call < 7; call++) {
        void *gradient = gradient_of(c->type, c->dim, &random, false);
        double factor = c->growing ? call == 3 ? 20 : call == 5 ? 0.01 : 1 : 1;
        for (uint64_t i = 0; i < c->dim && factor != 1; i++)
            value_store(c->type, gradient, i, factor * value_load(c->type, gradient, i));
        device_put(there, gradient, bytes);
        if (c->fused) {
            CHECK_OK(rill_select_residual(selector[0], gradient, residual, out[0]));
            if (call % 2)
                CHECK_OK(rill_select_residual_on(selector[1], there, residual_there, out[1], NULL));
            else CHECK_OK(rill_select_residual(selector[1], there, residual_there, out[1]));
            CHECK(same_there(c->type, residual, residual_there, c->dim));
        } else {
            CHECK_OK(rill_select(selector[0], gradient, out[0]));
            CHECK_OK(rill_select_on(selector[1], there, out[1], NULL));
        }
        compare(c, out[0], out[1]);
        free(gradient);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_selector_free(&selector[i]));
        CHECK_OK(rill_stream_free(&out[i]));
    }
    device_free(block);
    device_free(given_block);
    free(residual);
}

static void expect_error(const selection *c, const char *text) {
    rill_selector *s = NULL;
    rill_select_options o = c->options;
    o.memory = RILL_CUDA;
    check_case("no selection %s", o.method);
    CHECK(rill_selector_create(c->type, c->dim, &o, &s) == RILL_ERR_UNSUPPORTED);
    CHECK(!s && strstr(rill_last_error(), text));
}

void test_selectors(void) {
    static const char *const methods[] = {"topk", "threshold", "bucket", "block", "random"};
    static const rill_type types[] = {RILL_F32, RILL_F16, RILL_BF16};
    static const uint64_t dims[] = {1, 9, 777, 5000};
    for (size_t m = 0; m < 5; m++)
        for (size_t t = 0; t < 3; t++)
            for (size_t d = 0; d < 4; d++)
                for (int variant = 0; variant < 4; variant++) {
                    selection c = {.options = RILL_SELECT_OPTIONS_INIT,
                                   .type = types[t],
                                   .dim = dims[d],
                                   .offset = variant == 3 ? 3 : 0,
                                   .fused = variant != 1,
                                   .growing = variant == 2};
                    c.options.method = methods[m];
                    c.options.density = variant == 2 ? 0.01 : 0.05;
                    c.options.interval = 4;
                    c.options.block = 64;
                    c.options.bucket = 256;
                    c.options.seed = 5;
                    run_case(&c);
                }
    selection given = {.options = RILL_SELECT_OPTIONS_INIT, .dim = 20000, .fused = true};
    given.options.method = "threshold";
    given.options.threshold = 0.01; /* most entries: the room must grow */
    run_case(&given);
    given.fused = false;
    run_case(&given);
    given.options.method = "gaussian";
    given.options.density = 0.1;
    expect_error(&given, "gaussian");
    given.options.method = "bucket";
    given.options.bucket = 10000;
    expect_error(&given, "10000");
    given.options.method = "topk";
    given.type = RILL_F64;
    expect_error(&given, "f64");
}
