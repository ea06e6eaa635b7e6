/* Errors: messages that tell what is missing, and device memory that runs out on one rank. */
#include "device.h"

#include "space/space.h"

static void expect(rill_status got, rill_status wanted, const char *text) {
    if (CHECK(got == wanted)) CHECK(strstr(rill_last_error(), text) != NULL);
    if (got == wanted && !strstr(rill_last_error(), text)) printf("  %s\n", rill_last_error());
}

static void test_wait(void) {
    enum { N = 1000 };
    void *stream, *there = device_new(NULL, N), *host = NULL;
    CHECK(cuda->stream_create(&stream) == 0);
    CHECK(cuda->allocate_host(N, &host) == 0);
    memset(host, 0, N);
    CHECK(cuda->fill(there, 7, N, stream) == 0);
    CHECK(cuda->copy(host, there, N, stream) == 0);
    CHECK_OK(rill_device_wait(-1, stream));
    CHECK(((char *)host)[N - 1] == 7);
    CHECK_OK(rill_device_wait(0, NULL));
    expect(rill_device_wait(63, NULL), RILL_ERR_ARGUMENT, "rill_device_wait: device 63");
    CHECK(cuda->release_host(host) == 0);
    CHECK(cuda->stream_free(stream) == 0);
    device_free(there);
}

static void test_messages(void) {
    rill_stream *s = NULL;
    check_case("devices that there are not");
    expect(rill_stream_create_in(RILL_CUDA, 63, RILL_F32, 10, &s), RILL_ERR_ARGUMENT, "device 63");
    expect(rill_stream_create_in(RILL_CUDA, -2, RILL_F32, 10, &s), RILL_ERR_ARGUMENT, "device -2");
    expect(rill_stream_create_in((rill_memory)7, -1, RILL_F32, 10, &s), RILL_ERR_ARGUMENT,
           "memory 7");
    expect(rill_stream_create_in(RILL_HOST, 0, RILL_F32, 10, &s), RILL_ERR_ARGUMENT, "device 0");
    CHECK(!s);
    test_wait();
}

/* Allocation `at` of the last rank's fails, and all after it: all ranks get the error, and what is
 * fed is still there. Ranks share the emulated device, so the failing rank steps alone. */
static void run_without_memory(rank *r) {
    enum { DIM = 4000 };
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(3, (uint64_t)r->rank);
    float *gradient = gradient_of(RILL_F32, DIM, &random, false);
    void *there = device_new(gradient, DIM * sizeof(float));
    const uint64_t at = *(const uint64_t *)r->context;
    o.memory = RILL_CUDA;
    o.algorithm = "gtopk";
    o.select = "topk";
    o.k = 50;
    o.nonfinite = "pass";
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &reducer));
    barrier(r);
    if (r->rank == 0) emulate_control("fail", at, UINT64_MAX);
    barrier(r);
    rill_status status = rill_reducer_step(reducer, there, there);
    barrier(r);
    if (r->rank == 0) emulate_control("fail", 0, 0);
    barrier(r);
    if (status != RILL_OK) { /* on all ranks */
        CHECK(status == RILL_ERR_MEMORY);
        CHECK(same_there(RILL_F32, gradient, rill_reducer_residual(reducer), DIM));
        CHECK_OK(rill_reducer_step(reducer, there, there)); /* there is memory again */
    }
    ((uint64_t *)(uintptr_t)r->context)[1 + r->rank] = (uint64_t)(status != RILL_OK);
    rill_reducer_free(&reducer);
    device_free(there);
    free(gradient);
}

static void test_no_memory(void) {
    for (uint64_t at = 1; at < 12; at++) {
        uint64_t context[1 + MOST_RANKS] = {at};
        check_case("no device memory from allocation %llu on", (unsigned long long)at);
        on_ranks(2, run_without_memory, context);
        CHECK(context[1] == context[2]);
    }
}

static void run_create_without_memory(rank *r) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer = NULL;
    o.memory = RILL_CUDA;
    barrier(r);
    if (r->rank == 0) emulate_control("fail", *(const uint64_t *)r->context, UINT64_MAX);
    barrier(r);
    rill_status status = rill_reducer_create(r->comm[1], RILL_F32, 1000, &o, &reducer);
    barrier(r);
    if (r->rank == 0) emulate_control("fail", 0, 0);
    barrier(r);
    if (status == RILL_OK) CHECK_OK(rill_reducer_free(&reducer));
    else CHECK(status == RILL_ERR_MEMORY && !reducer);
}

void test_failures(void) {
    test_messages();
    if (!emulate_control) return;
    uint64_t live = emulate_control("live", 0, 0);
    test_no_memory();
    for (uint64_t at = 1; at < 12; at++) {
        check_case("no device memory for a reducer, from allocation %llu on",
                   (unsigned long long)at);
        on_ranks(2, run_create_without_memory, &at);
    }
    check_case("memory given back");
    CHECK(emulate_control("live", 0, 0) == live);
}
