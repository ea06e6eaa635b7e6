/* A rank joins ranks whose steps are coded and summed on devices. */
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

void test_joins(void) {
    for (int host = 0; host < 2; host++) {
        joining j = {.host = host != 0};
        check_case("away: a rank joins, its reducer in %s memory", host ? "host" : "device");
        CHECK_OK(rill_comm_create_local(BEFORE, NULL, j.few));
        on_ranks(RANKS, run_join, &j);
    }
}
