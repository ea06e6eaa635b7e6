/* Device memory that a reducer takes: its residual, and on top at most 15 % of the gradient where
 * 1 % is sent. */
#include "device.h"

enum { SLACK = 256 << 10 }; /* bytes, of bins, whatever the dimension */

/* One vector; one that begins at any value; tensors that lie one after the other; others. */
typedef enum layout { WHOLE, CROOKED, ADJACENT, APART } layout;
static const char *const layouts[] = {"", ", a vector of any alignment", ", adjacent tensors",
                                      ", tensors"};

typedef struct plan {
    const char *algorithm, *select;
    double percent; /* of the gradient, on top of the residual */
    bool starts;
    layout layout;
    uint64_t dim;
} plan;

static uint64_t taken_since(size_t used) {
    size_t now = 0;
    CHECK(cuda->memory_used(&now) == 0);
    return now > used ? now - used : 0;
}

enum { TENSORS = 5, GAP = 3 };

/* Ends where the next begins, or a few values before. */
static void cut(const plan *p, const float *x, float *update, rill_tensor *tensors) {
    uint64_t each = p->dim / TENSORS, gap = p->layout == APART ? GAP : 0;
    for (uint64_t i = 0; i < TENSORS; i++) {
        uint64_t count = i + 1 < TENSORS ? each : p->dim - i * each;
        tensors[i] = (rill_tensor){x + i * (each + gap), update + i * (each + gap), count};
    }
}

static void step(const plan *p, rill_reducer *reducer, const float *x, float *update,
                 void *stream) {
    rill_tensor tensors[TENSORS];
    cut(p, x, update, tensors);
    bool whole = p->layout < ADJACENT;
    size_t from = p->layout == CROOKED;
    if (whole && p->starts)
        CHECK_OK(rill_reducer_start_on(reducer, x + from, update + from, stream));
    else if (whole) CHECK_OK(rill_reducer_step_on(reducer, x + from, update + from, stream));
    else if (p->starts) CHECK_OK(rill_reducer_start_tensors_on(reducer, TENSORS, tensors, stream));
    else CHECK_OK(rill_reducer_step_tensors_on(reducer, TENSORS, tensors, stream));
    CHECK_OK(rill_reducer_wait(reducer));
}

static void run(rank *r) {
    const plan *p = r->context;
    enum { STEPS = 3 };
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(51, (uint64_t)r->rank);
    size_t bytes = p->dim * sizeof(float), used = 0;
    uint64_t more = p->dim + TENSORS * GAP;
    void *gradient = gradient_of(RILL_F32, more, &random, false);
    void *x = device_new(gradient, more * sizeof(float));
    void *update = device_new(NULL, more * sizeof(float));
    CHECK(cuda->memory_used(&used) == 0);
    o.memory = RILL_CUDA;
    o.algorithm = p->algorithm;
    o.select = p->select;
    o.density = 0.01;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, p->dim, &o, &reducer));
    for (int i = 0; i < STEPS; i++)
        step(p, reducer, x, update, r->stream);
    uint64_t taken = taken_since(used);
    CHECK((double)taken <= (double)bytes * (1 + p->percent / 100) + SLACK);
    if (getenv("RILL_TEST_MEASURE"))
        printf("%s, select %s, %s%s: residual + %.1f %% of the gradient\n", p->algorithm, p->select,
               p->starts ? "start_on" : "step_on", layouts[p->layout],
               100 * ((double)taken - (double)bytes) / (double)bytes);
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(x);
    device_free(update);
    free(gradient);
}

/* On a GPU the allocator's own steps are too large for this, and others may use it as well. */
void test_memory(void) {
    static const plan plans[] = {{"split_allgather", "topk", 15, false, WHOLE, 0},
                                 {"split_allgather", "topk", 15, true, WHOLE, 0},
                                 {"gtopk", "topk", 15, false, WHOLE, 0},
                                 {"gtopk", "topk", 15, true, WHOLE, 0},
                                 {"oktopk", "threshold", 15, true, WHOLE, 0},
                                 {"split_allgather", "bucket", 3, false, WHOLE, 0}};
    for (size_t i = 0; emulate_control && i < sizeof plans / sizeof *plans; i++)
        for (layout how = WHOLE; how <= APART; how++) {
            plan p = plans[i];
            p.layout = how;
            p.dim = getenv("RILL_TEST_MEASURE") ? 1 << 23 : 1 << 20;
            check_case("device memory: %s, select %s, %s%s", p.algorithm, p.select,
                       p.starts ? "start_on" : "step_on", layouts[how]);
            on_ranks(1, run, &p);
        }
}
