/* Several devices: reducers on one that is not the caller's current one, and threads of rill that
 * leave the others alone. Where there is one device only, there is nothing to test. */
#include "reduce/reducer.h" /* before names that it uses itself */

#include "device.h"

enum { DIM = 2003, STEPS = 3, HERE = 0, THERE = 1 };

typedef struct plan {
    const char *algorithm, *select;
    bool stays; /* the ranks are on the reducer's device already */
} plan;

typedef enum way { BLOCKING, STARTED, ORDERED, WAYS } way;

static int current(void) {
    int device = -1;
    CHECK(cuda->device_get(&device) == 0);
    return device;
}

static void *new_there(size_t bytes) {
    int before = current();
    CHECK(cuda->device_set(THERE) == 0);
    void *at = device_new(NULL, bytes);
    if (before != THERE) CHECK(cuda->device_set(before) == 0);
    return at;
}

static void make_stream(void **stream) {
    int before = current();
    CHECK(cuda->device_set(THERE) == 0);
    CHECK(cuda->stream_create(stream) == 0);
    if (before != THERE) CHECK(cuda->device_set(before) == 0);
}

static void step(rill_reducer *r, way how, void *x, void *update, void *stream) {
    switch (how) {
    case BLOCKING: CHECK_OK(rill_reducer_step(r, x, update)); break;
    case STARTED:
        CHECK_OK(rill_reducer_start_on(r, x, update, stream));
        CHECK_OK(rill_reducer_wait(r));
        break;
    default:
        CHECK_OK(rill_reducer_step_on(r, x, update, stream));
        device_wait(stream);
        CHECK_OK(rill_reducer_wait(r));
    }
}

static void run_steps(rank *r) {
    const plan *p = r->context;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *host, *there;
    rng random = rng_make(41, (uint64_t)r->rank);
    size_t bytes = DIM * sizeof(float);
    float *expected = calloc(DIM, sizeof *expected);
    const int where = p->stays ? THERE : HERE;
    void *stream;
    CHECK(cuda->device_set(where) == 0);
    barrier(r);
    if (r->rank == 0 && emulate_control) emulate_control("active", HERE, 0);
    barrier(r);
    o.algorithm = p->algorithm;
    o.select = p->select;
    o.density = 0.02;
    CHECK_OK(rill_reducer_create(r->comm[0], RILL_F32, DIM, &o, &host));
    o.memory = RILL_CUDA;
    o.device = p->stays ? -1 : THERE;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &there));
    void *x = new_there(bytes), *update = new_there(bytes);
    make_stream(&stream);
    for (int i = 0; i < STEPS * WAYS; i++) {
        float *gradient = gradient_of(RILL_F32, DIM, &random, false);
        device_put(x, gradient, bytes);
        step(there, (way)(i % WAYS), x, update, stream);
        CHECK(current() == where);
        CHECK_OK(rill_reducer_step(host, gradient, expected));
        CHECK(same_there(RILL_F32, expected, update, DIM));
        free(gradient);
    }
    int device = -1;
    CHECK(cuda->device_of(rill_reducer_residual(there), &device) == 0 && device == THERE);
    CHECK_OK(rill_reducer_free(&there));
    CHECK_OK(rill_reducer_free(&host));
    CHECK(current() == where);
    barrier(r);
    /* No thread has been on the other device, not even for a moment. */
    if (p->stays && emulate_control) CHECK(emulate_control("active", HERE, 0) == 0);
    CHECK(cuda->stream_free(stream) == 0);
    device_free(x);
    device_free(update);
    free(expected);
}

static void test_streams_there(void) {
    rill_stream *there = NULL, *host = NULL;
    float values[5] = {0, 1, 0, -2, 0}, back[5] = {9, 9, 9, 9, 9};
    int device = -1;
    check_case("streams on device %d", THERE);
    CHECK_OK(rill_stream_create_in(RILL_CUDA, THERE, RILL_F32, 5, &there));
    CHECK_OK(rill_stream_create(RILL_F32, 5, &host));
    CHECK_OK(rill_stream_set_dense(host, values));
    CHECK_OK(rill_stream_copy(there, host));
    CHECK(cuda->device_of(rill_stream_values(there), &device) == 0 && device == THERE);
    CHECK_OK(rill_stream_copy(host, there));
    CHECK_OK(rill_stream_get_dense(host, back));
    CHECK(same_values(RILL_F32, values, back, 5));
    CHECK(current() == HERE);
    CHECK_OK(rill_stream_free(&there));
    CHECK_OK(rill_stream_free(&host));
}

/* CUDA refuses to let the user's stream wait for the step: then the call itself does. */
static void run_refused_wait(rank *r) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(42, 0);
    float *gradient = gradient_of(RILL_F32, DIM, &random, false);
    void *x = device_new(gradient, DIM * 4), *update = device_new(NULL, DIM * 4);
    o.memory = RILL_CUDA;
    o.algorithm = "split_allgather";
    o.select = "topk";
    o.density = 1;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &reducer));
    CHECK(rill__reducer_mails(reducer) == RILL__MAIL);
    for (uint64_t which = 1; which <= 2; which++) { /* before the step, and behind it */
        emulate_control("refuse", which, 0);
        CHECK_OK(rill_reducer_step_on(reducer, x, update, r->stream));
        emulate_control("refuse", 0, 0);
        int done = 0;
        CHECK_OK(rill_reducer_test(reducer, &done));
        CHECK(done);
        CHECK(same_there(RILL_F32, gradient, update, DIM)); /* no wait for the stream */
    }
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(x);
    device_free(update);
    free(gradient);
}

void test_devices(void) {
    static const plan plans[] = {{"gtopk", "topk", false},
                                 {"gtopk", "topk", true},
                                 {"oktopk", "threshold", false},
                                 {"split_allgather", "bucket", true},
                                 {"dense", NULL, true}};
    int count = 0;
    if (emulate_control) {
        check_case("a stream that cannot wait for the step");
        on_ranks(1, run_refused_wait, NULL);
    }
    CHECK(cuda->devices(&count) == 0);
    if (count < 2) return;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        check_case("device %d, from device %d: %s", THERE, plans[i].stays ? THERE : HERE,
                   plans[i].algorithm);
        on_ranks(1 + (int)(i % 2), run_steps, &plans[i]);
    }
    test_streams_there();
}
