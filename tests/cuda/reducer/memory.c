/* Device memory that a reducer takes: its residual, and what docs/internals/cuda.md says on top. */
#include "device.h"

enum { SLACK = 1 << 20 }; /* bytes: bins, answers, pages of the allocator */

typedef struct plan {
    const char *algorithm, *select;
    uint64_t dim;
    double a_value, an_entry; /* bytes on top of the residual */
    bool starts;
} plan;

static uint64_t taken_since(size_t left) {
    size_t now = 0;
    CHECK(cuda->memory_left(&now) == 0);
    return left > now ? left - now : 0;
}

static void run(rank *r) {
    const plan *p = r->context;
    enum { STEPS = 3 };
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(51, (uint64_t)r->rank);
    size_t bytes = p->dim * sizeof(float), left = 0;
    void *gradient = gradient_of(RILL_F32, p->dim, &random, false);
    void *x = device_new(gradient, bytes), *update = device_new(NULL, bytes);
    CHECK(cuda->memory_left(&left) == 0);
    o.memory = RILL_CUDA;
    o.algorithm = p->algorithm;
    o.select = p->select;
    o.density = 0.01;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, p->dim, &o, &reducer));
    for (int i = 0; i < STEPS; i++) {
        if (p->starts) CHECK_OK(rill_reducer_start_on(reducer, x, update, r->stream));
        else CHECK_OK(rill_reducer_step_on(reducer, x, update, r->stream));
        CHECK_OK(rill_reducer_wait(reducer));
    }
    uint64_t taken = taken_since(left), k = p->dim / 100;
    double most = (double)bytes + p->a_value * (double)p->dim + p->an_entry * (double)k;
    CHECK((double)taken <= most + SLACK);
    if (getenv("RILL_TEST_MEASURE"))
        printf("%s, select %s, %s: residual + %.1f %% of the gradient\n", p->algorithm, p->select,
               p->starts ? "start_on" : "step_on",
               100 * ((double)taken - (double)bytes) / (double)bytes);
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(x);
    device_free(update);
    free(gradient);
}

/* On a GPU the allocator's own steps are too large for this, and others may use it as well. */
void test_memory(void) {
    static const plan plans[] = {{"split_allgather", "topk", 1 << 18, 0.5, 32, false},
                                 {"split_allgather", "topk", 1 << 18, 0.5, 32, true},
                                 {"gtopk", "topk", 1 << 18, 0.5, 40, false},
                                 {"split_allgather", "bucket", 1 << 18, 0.1, 16, false}};
    for (size_t i = 0; emulate_control && i < sizeof plans / sizeof *plans; i++) {
        plan p = plans[i];
        if (getenv("RILL_TEST_MEASURE")) p.dim = 1 << 23;
        check_case("device memory: %s, select %s", p.algorithm, p.select);
        on_ranks(1, run, &p);
    }
}
