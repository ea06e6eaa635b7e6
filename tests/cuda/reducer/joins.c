/* Steps that are coded and summed on devices: a rank joins, and messages get longer. */
#include "reduce/reducer.h" /* before names that it uses itself */

#include "device.h"

enum { RANKS = 3, BEFORE = RANKS - 1, DIM = 4001 };

typedef struct joining {
    rill_comm *few[BEFORE];
    bool host; /* the new rank's reducer is */
} joining;

static void step(rill_reducer *r, const rank *who, bool host, rng *random, bool there) {
    const size_t bytes = DIM * sizeof(float);
    float *gradient = gradient_of(RILL_F32, DIM, random, false),
          *update = calloc(DIM, sizeof *update);
    void *x = device_new(gradient, bytes), *out = device_new(NULL, bytes);
    if (host) CHECK_OK(rill_reducer_step(r, gradient, update));
    else CHECK_OK(rill_reducer_start_on(r, x, out, who->stream));
    if (!host) CHECK_OK(rill_reducer_wait(r));
    CHECK(r->coder.away.summed == there);
    device_free(x);
    device_free(out);
    free(gradient);
    free(update);
}

/* The new rank's reducer was alone when it was made. */
static void run_join(rank *r) {
    const joining *j = r->context;
    const bool is_new = r->rank == BEFORE, host = is_new && j->host;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_comm *own = is_new ? NULL : j->few[r->rank];
    rill_reducer *reducer;
    rng random = rng_make(9, (uint64_t)r->rank);
    int again;
    if (is_new) CHECK_OK(rill_comm_create_local(1, NULL, &own));
    o.algorithm = "allgather";
    o.select = "topk";
    if (!host) o.memory = RILL_CUDA;
    CHECK_OK(rill_reducer_create(own, RILL_F32, DIM, &o, &reducer));
    if (!is_new) step(reducer, r, false, &random, true);
    CHECK_OK(rill_reducer_move(reducer, r->comm[1], &again));
    CHECK_OK(rill_comm_free(&own));
    for (int i = 0; i < 2; i++)
        step(reducer, r, host, &random, !j->host);
    CHECK_OK(rill_reducer_free(&reducer));
}

/* Later messages are a little longer than those of the steps whose failures are agreed on: there is
 * room for them. */
static void run_longer(rank *r) {
    enum { MANY = 1 << 18, K = 20000, STEPS = 3 };
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    float *gradient = calloc(MANY, sizeof *gradient);
    void *x = device_new(gradient, MANY * sizeof *gradient);
    o.memory = RILL_CUDA;
    o.algorithm = "allgather";
    o.select = "topk";
    o.codec = "rice";
    o.k = K;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, MANY, &o, &reducer));
    for (int i = 0; i < STEPS; i++) {
        int apart = i == STEPS - 1 ? 11 : 8;
        memset(gradient, 0, MANY * sizeof *gradient);
        for (int j = 0; j < K; j++)
            gradient[j * apart + r->rank] = 1;
        device_put(x, gradient, MANY * sizeof *gradient);
        barrier(r);
        if (i == STEPS - 1 && r->rank == 0) emulate_control("fail", 1, UINT64_MAX);
        barrier(r);
        CHECK_OK(rill_reducer_start_on(reducer, x, x, r->stream));
        CHECK_OK(rill_reducer_wait(reducer));
        CHECK(r->size == 1 || reducer->coder.away.summed);
    }
    barrier(r);
    if (r->rank == 0) emulate_control("fail", 0, 0);
    barrier(r);
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(x);
    free(gradient);
}

void test_joins(void) {
    if (emulate_control) {
        check_case("away: messages that are a little longer");
        on_ranks(4, run_longer, NULL);
    }
    for (int host = 0; host < 2; host++) {
        joining j = {.host = host != 0};
        check_case("away: a rank joins, its reducer in %s memory", host ? "host" : "device");
        CHECK_OK(rill_comm_create_local(BEFORE, NULL, j.few));
        on_ranks(RANKS, run_join, &j);
    }
}
