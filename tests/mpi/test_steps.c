/* Steps of reducers as requests: waited for together with collectives, with and without a progress
 * thread; the update is there when a step is said to be complete; failures come the same way. */
#include "runs.h"

enum {
    DIM = 20011,
    STEPS = 4,
    TARGETS = 3,
    SUMS = 3,
    FLIGHT = TARGETS + SUMS,
    PATIENCE_MS = 10000
};

static int threads; /* whether MPI allows a progress thread */

static rill_comm *make_comm(int thread) {
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *comm = NULL;
    config.progress_thread = thread;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
    return comm;
}

/* Small integers: sums are exact, however they are taken. */
static void make_gradient(float *gradient, int number) {
    rng g = rng_make(check.seed + (uint64_t)number, (uint64_t)check.rank);
    for (int i = 0; i < DIM; i++)
        gradient[i] = (float)rng_below(&g, 201) - 100;
}

/* A reducer and its twin, which takes the same steps one by one, elsewhere. */
typedef struct pair {
    rill_reducer *reducer, *twin;
    float gradient[DIM], update[DIM], want[DIM];
    rill_stream *stream;
    int target; /* dense, stream, tensors */
} pair;

static rill_reducer_options options(const char *algorithm) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.density = 0.05;
    return o;
}

static void pair_make(pair *p, rill_comm *comm, rill_comm *beside, const char *algorithm,
                      int target) {
    rill_reducer_options o = options(algorithm);
    p->reducer = p->twin = NULL;
    p->target = target;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &p->reducer));
    CHECK_OK(rill_reducer_create(beside, RILL_F32, DIM, &o, &p->twin));
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &p->stream));
    CHECK(rill_reducer_request(p->reducer) == NULL);
}

static void pair_free(pair *p) {
    rill_stream_free(&p->stream);
    CHECK_OK(rill_reducer_free(&p->reducer));
    CHECK_OK(rill_reducer_free(&p->twin));
}

static rill_request *pair_start(pair *p, int number) {
    make_gradient(p->gradient, number);
    CHECK_OK(rill_reducer_start(p->twin, p->gradient, p->want));
    CHECK_OK(rill_reducer_wait(p->twin));
    memset(p->update, 0, sizeof p->update);
    if (p->target == 0) CHECK_OK(rill_reducer_start(p->reducer, p->gradient, p->update));
    if (p->target == 1) CHECK_OK(rill_reducer_start_stream(p->reducer, p->gradient, p->stream));
    if (p->target == 2) {
        enum { HALF = DIM / 2 };
        rill_tensor tensors[] = {{p->gradient, p->update, HALF},
                                 {p->gradient + HALF, p->update + HALF, DIM - HALF}};
        CHECK_OK(rill_reducer_start_tensors(p->reducer, 2, tensors));
    }
    /* Whether a thread has ended it by now is nothing that the program can see. */
    CHECK_STATUS(rill_reducer_start(p->reducer, p->gradient, p->update), RILL_ERR_STATE);
    CHECK_STATUS(rill_reducer_scale(p->reducer, 1), RILL_ERR_STATE);
    rill_request *request = rill_reducer_request(p->reducer);
    CHECK(request != NULL);
    return request;
}

static void pair_verify(pair *p) {
    rill_stats stats = RILL_STATS_INIT, same = RILL_STATS_INIT;
    if (p->target == 1) CHECK_OK(rill_stream_get_dense(p->stream, p->update));
    CHECK(memcmp(p->update, p->want, sizeof p->want) == 0);
    CHECK(memcmp(rill_reducer_residual(p->reducer), rill_reducer_residual(p->twin),
                 sizeof p->want) == 0);
    CHECK_OK(rill_reducer_stats(p->reducer, &stats));
    CHECK_OK(rill_request_stats(rill_reducer_request(p->reducer), &same));
    CHECK(stats.elapsed_s > 0 && stats.selected_k > 0);
    CHECK(stats.elapsed_s == same.elapsed_s && stats.selected_k == same.selected_k);
    CHECK_STATUS(rill_reducer_wait(p->reducer), RILL_ERR_STATE); /* it is over */
}

static test_case sum_case(int number) {
    test_case c = run_random_case(RILL_ALLREDUCE, check.seed, (uint64_t)number, 65539);
    c.algorithm = case_algorithm(RILL_ALLREDUCE, number % 8);
    c.op = OP_SUM;
    return c;
}

/* Steps on the first communicator, sums on both, in turn; then all, or one after the other. */
static void mixed(int thread, const char *algorithm) {
    static pair pairs[TARGETS];
    test_run runs[SUMS];
    rill_request *requests[FLIGHT];
    rill_comm *comms[2] = {make_comm(thread), make_comm(thread)}, *beside = make_comm(0);
    for (int i = 0; i < TARGETS; i++)
        pair_make(&pairs[i], comms[0], beside, algorithm, i);
    for (int step = 0; step < STEPS; step++) {
        check_case("%s, thread %d, step %d", algorithm, thread, step);
        for (int i = 0; i < SUMS; i++) {
            test_case c = sum_case(step * SUMS + i);
            runs[i] = run_make(&c);
            requests[i] = pair_start(&pairs[i], step * TARGETS + i);
            CHECK_OK(run_call(&runs[i], comms[i % 2], RUN_NONBLOCKING));
            requests[TARGETS + i] = runs[i].request;
        }
        if (step % 2) CHECK_OK(rill_waitall(FLIGHT, requests));
        for (int left = FLIGHT, index = -1; left; left--) {
            index = FLIGHT - left;
            if (step % 2 == 0) CHECK_OK(rill_waitany(FLIGHT, requests, &index));
            int once = index >= 0 && index < FLIGHT && requests[index];
            CHECK(once);
            if (!once) break;
            requests[index] = NULL;
            if (index < TARGETS) pair_verify(&pairs[index]);
        }
        for (int i = 0; i < SUMS; i++) {
            run_verify(&runs[i]); /* collective: in the same order on all ranks */
            run_free(&runs[i]);
        }
    }
    for (int i = 0; i < TARGETS; i++)
        pair_free(&pairs[i]);
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_free(&comms[i]));
    CHECK_OK(rill_comm_free(&beside));
}

/* The thread takes a step to its end, update included, while the program is elsewhere. */
static void alone(const char *algorithm) {
    static pair p;
    rill_comm *comm = make_comm(1), *beside = make_comm(0);
    check_case("%s ends alone", algorithm);
    pair_make(&p, comm, beside, algorithm, 0);
    for (int step = 0; step < STEPS; step++) {
        rill_request *request = pair_start(&p, step);
        rill_stats stats = RILL_STATS_INIT;
        int waited = 0;
        while (rill_request_stats(request, &stats) != RILL_OK && ++waited < PATIENCE_MS)
            usleep(1000);
        CHECK_INT(waited, <, PATIENCE_MS);
        CHECK(memcmp(p.update, p.want, sizeof p.want) == 0);
        if (step % 2) CHECK_OK(rill_wait(request));
        else CHECK_OK(rill_reducer_wait(p.reducer));
        pair_verify(&p);
    }
    pair_free(&p);
    CHECK_OK(rill_comm_free(&comm));
    CHECK_OK(rill_comm_free(&beside));
}

/* One rank has no gradient: everybody's request fails, and the next step has what was kept. */
static void failing(int thread, const char *algorithm) {
    static float gradient[DIM], update[DIM];
    rill_comm *comm = make_comm(thread);
    rill_reducer *r = NULL;
    rill_reducer_options o = options(algorithm);
    check_case("%s fails, thread %d", algorithm, thread);
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r));
    make_gradient(gradient, 1);
    int last = check.rank == check.size - 1;
    CHECK_OK(rill_reducer_start(r, last ? NULL : gradient, update));
    rill_request *requests[] = {NULL, rill_reducer_request(r)};
    CHECK_STATUS(rill_waitall(2, requests), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("gradient is NULL");
    const float *residual = rill_reducer_residual(r);
    int wrong = 0;
    for (int i = 0; i < DIM; i++)
        wrong += residual[i] != (last ? 0 : gradient[i]);
    CHECK_INT(wrong, ==, 0);
    CHECK_OK(rill_reducer_start(r, gradient, update));
    int index = 0;
    requests[1] = rill_reducer_request(r);
    CHECK_OK(rill_waitany(2, requests, &index));
    CHECK_INT(index, ==, 1);
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_comm_free(&comm));
}

static void ownership(void) {
    static float gradient[DIM], update[DIM];
    rill_comm *comm = make_comm(0);
    rill_reducer *r = NULL;
    check_case("a reducer's request is the reducer's");
    CHECK(rill_reducer_request(NULL) == NULL);
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, NULL, &r));
    make_gradient(gradient, 1);
    CHECK_OK(rill_reducer_start(r, gradient, update));
    rill_request *request = rill_reducer_request(r);
    CHECK_STATUS(rill_start(request), RILL_ERR_STATE);
    CHECK_DETAIL("reducer's");
    CHECK_STATUS(rill_request_free(&request), RILL_ERR_STATE);
    CHECK_DETAIL("reducer's");
    CHECK(request == rill_reducer_request(r));
    int done = 0;
    while (!done)
        CHECK_OK(rill_test(request, &done));
    CHECK_OK(rill_reducer_test(r, &done));
    CHECK(done);
    CHECK_OK(rill_reducer_start(r, gradient, update));
    CHECK_OK(rill_reducer_free(&r)); /* ends the step */
    CHECK_OK(rill_comm_free(&comm));
}

int main(int argc, char **argv) {
    threads = check_init_thread(&argc, &argv, MPI_THREAD_MULTIPLE) == MPI_THREAD_MULTIPLE;
#ifdef SMPI_H
    threads = 0;
#endif
    cases_init();
    const char *names[64];
    int n = 0;
    for (int i = 0; n < 32 && rill_algorithm_at(RILL_REDUCER, i, NULL); i++)
        names[n++] = rill_algorithm_at(RILL_REDUCER, i, NULL);
    for (int i = 0; n < 64 && rill_algorithm_at(RILL_ALLREDUCE, i, NULL); i++)
        names[n++] = rill_algorithm_at(RILL_ALLREDUCE, i, NULL);
    ownership();
    for (int a = 0; a < n; a++)
        for (int thread = 0; thread <= threads; thread++) {
            mixed(thread, names[a]);
            failing(thread, names[a]);
            if (thread) alone(names[a]);
        }
    return cases_finish(60);
}
