/* Progress threads: requests end while the program is elsewhere, errors reach whoever asks later,
 * blocking calls, reducers and other threads share the communicator with it, and settings decide.
 */
#include "runs.h"

#include <pthread.h>
#include <stdatomic.h>

#define FLIGHT 12
#define PATIENCE_MS 10000

static int rounds;

static rill_comm *make_comm(void) {
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *comm = NULL;
    config.progress_thread = 1;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
    return comm;
}

/* Whether the request ends without any call that advances it. */
static int ends_alone(const rill_request *request) {
    rill_stats stats = RILL_STATS_INIT;
    for (int waited = 0; waited < PATIENCE_MS; waited++) {
        if (rill_request_stats(request, &stats) == RILL_OK) return 1;
        usleep(1000);
    }
    return 0;
}

static test_case make_case(rill_collective collective, const char *algorithm, long number) {
    test_case c = run_random_case(collective, check.seed, (uint64_t)number, 65539);
    c.algorithm = algorithm;
    if (number % 2) { /* enough that the start leaves the first steps to the thread, too */
        c.dim = 65539;
        c.gap = 2 + (uint64_t)number % 4;
    }
    if (run_is_unsupported(&c)) c.op = OP_SUM;
    return c;
}

/* Every algorithm of every collective; non-blocking, and persistent ones started twice. */
static void every_algorithm(void) {
    rill_comm *comm = make_comm();
    long number = 0;
    for (int round = 0; round < rounds; round++)
        for (int kind = 0; kind < RILL_COLLECTIVES; kind++)
            for (int a = 0; case_algorithm((rill_collective)kind, a); a++, number++) {
                rill_collective collective = (rill_collective)kind;
                test_case c = make_case(collective, case_algorithm(collective, a), number);
                run_mode mode = number % 3 ? RUN_NONBLOCKING : RUN_PERSISTENT;
                case_announce(&c, number);
                test_run run = run_make(&c);
                if (!check_all_ok(run_call(&run, comm, mode))) return;
                for (int start = 0; start < (mode == RUN_PERSISTENT ? 2 : 1); start++) {
                    if (start) {
                        run.c.seed++;
                        run_load(&run);
                    }
                    if (mode == RUN_PERSISTENT) CHECK_OK(rill_start(run.request));
                    CHECK(ends_alone(run.request));
                    CHECK_OK(rill_wait(run.request));
                    run_verify(&run);
                }
                run_free(&run);
            }
    CHECK_OK(rill_comm_free(&comm));
}

/* Many at once, on three communicators with a thread each; blocking calls (MPI's collectives among
 * them, which only their caller may enter) in between. */
static void many_in_flight(void) {
    rill_comm *comms[3];
    test_run runs[FLIGHT];
    for (int i = 0; i < 3; i++)
        comms[i] = make_comm();
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < FLIGHT; i++) {
            test_case c = make_case(RILL_ALLREDUCE, case_algorithm(RILL_ALLREDUCE, i % 8), i);
            case_announce(&c, i);
            runs[i] = run_make(&c);
        }
        for (int i = 0; i < FLIGHT; i++)
            CHECK_OK(run_call(&runs[i], comms[i % 3], RUN_NONBLOCKING));
        for (int i = 0; i < 6; i++) {
            test_case c = make_case(RILL_ALLREDUCE, i % 2 ? "dense" : "auto", 100 + i);
            case_announce(&c, 100 + i);
            test_run blocking = run_make(&c);
            if (check_all_ok(run_call(&blocking, comms[i % 3], RUN_BLOCKING)))
                run_verify(&blocking);
            run_free(&blocking);
        }
        for (int i = 0; i < FLIGHT; i++) {
            check_case("request %d of %d in flight", i, FLIGHT);
            CHECK(ends_alone(runs[i].request));
            CHECK_OK(rill_wait(runs[i].request));
            run_verify(&runs[i]);
            run_free(&runs[i]);
        }
    }
    for (int i = 0; i < 3; i++)
        CHECK_OK(rill_comm_free(&comms[i]));
}

/* The same steps with and without a thread give the same bits. */
static void reducers(void) {
    enum { DIM = 30000, STEPS = 6 };
    static float gradient[DIM], update[2][DIM];
    rill_comm *comms[2] = {make_comm(), NULL};
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comms[1]));
    const char *names[64];
    int n = 0;
    for (int i = 0; n < 32 && rill_algorithm_at(RILL_REDUCER, i, NULL); i++)
        names[n++] = rill_algorithm_at(RILL_REDUCER, i, NULL);
    for (int i = 0; n < 64 && rill_algorithm_at(RILL_ALLREDUCE, i, NULL); i++)
        names[n++] = rill_algorithm_at(RILL_ALLREDUCE, i, NULL);
    for (int a = 0; a < n; a++) {
        check_case("reducer %s", names[a]);
        rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
        rill_reducer *r[2] = {NULL, NULL};
        o.algorithm = names[a];
        o.density = a % 2 ? 0.3 : 0.01;
        o.value_bits = strcmp(names[a], "dense") && strcmp(names[a], "s2") ? 8 : 0;
        for (int i = 0; i < 2; i++)
            CHECK_OK(rill_reducer_create(comms[i], RILL_F32, DIM, &o, &r[i]));
        for (int step = 0; step < STEPS; step++) {
            rng g = rng_make(check.seed + (uint64_t)step, (uint64_t)check.rank);
            for (int i = 0; i < DIM; i++)
                gradient[i] = (float)(rng_below(&g, 2001)) - 1000;
            for (int i = 0; i < 2; i++)
                CHECK_OK(rill_reducer_start(r[i], gradient, update[i]));
            if (step % 2) usleep(2000);
            for (int i = 0, done = 0; step % 3 == 0 && !done && i < PATIENCE_MS; i++) {
                CHECK_OK(rill_reducer_test(r[0], &done));
                if (!done) usleep(100);
            }
            if (step % 3) CHECK_OK(rill_reducer_wait(r[0]));
            CHECK_OK(rill_reducer_wait(r[1]));
            CHECK(memcmp(update[0], update[1], sizeof update[0]) == 0);
        }
        /* In one step, under way together with a call of the user's. */
        test_case c = make_case(RILL_ALLREDUCE, "dense", 201);
        test_run run = run_make(&c);
        CHECK_OK(run_call(&run, comms[0], RUN_NONBLOCKING));
        CHECK_OK(rill_reducer_step(r[0], gradient, update[0]));
        CHECK_OK(rill_wait(run.request));
        run_verify(&run);
        run_free(&run);
        for (int i = 0; i < 2; i++)
            CHECK_OK(rill_reducer_free(&r[i]));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_free(&comms[i]));
}

/* A rank that cannot take part: the others' requests end, and their wait has the detail. */
static void failing_rank(void) {
    if (check.size == 1) return;
    rill_comm *comm = make_comm();
    check_case("rank %d calls without a stream", check.size - 1);
    test_case c = make_case(RILL_ALLREDUCE, "split_allgather", 1);
    test_run run = run_make(&c);
    int failing = check.rank == check.size - 1;
    rill_options o = case_options(&c);
    rill_status status = rill_iallreduce(comm, failing ? NULL : run.in, run.out, case_op(&c), &o,
                                         &run.request);
    if (failing) {
        CHECK_STATUS(status, RILL_ERR_ARGUMENT);
    } else {
        CHECK_OK(status);
        CHECK(ends_alone(run.request));
        rill_error_set(RILL_OK, ""); /* of this thread; the failure was found by another */
        CHECK_STATUS(rill_wait(run.request), RILL_ERR_ARGUMENT);
        CHECK_DETAIL("in is NULL");
        CHECK_STATUS(rill_wait(run.request), RILL_ERR_ARGUMENT);
    }
    run_free(&run);
    CHECK_OK(rill_comm_free(&comm));
}

static void early_free(void) {
    rill_comm *comm = make_comm();
    check_case("rill_comm_free with a request");
    test_case c = make_case(RILL_ALLREDUCE, "ring", 3);
    test_run run = run_make(&c);
    CHECK_OK(run_call(&run, comm, RUN_NONBLOCKING));
    CHECK_STATUS(rill_comm_free(&comm), RILL_ERR_STATE);
    CHECK(comm != NULL);
    CHECK(ends_alone(run.request));
    CHECK_OK(rill_wait(run.request));
    run_verify(&run);
    run_free(&run);
    CHECK_OK(rill_comm_free(&comm));
}

/* ---- other threads --------------------------------------------------------------------------- */

enum { THREADS = 4 };
static atomic_int failures;

static void *finish_one(void *argument) {
    test_run *run = argument;
    int done = 0;
    if (run->c.seed % 2)
        while (!done && rill_test(run->request, &done) == RILL_OK)
            ;
    else done = rill_wait(run->request) == RILL_OK;
    if (!done || rill_request_free(&run->request) != RILL_OK) atomic_fetch_add(&failures, 1);
    return NULL;
}

static void with_threads(void) {
    rill_comm *comm = make_comm();
    for (int round = 0; round < 4 * rounds; round++) {
        test_run runs[THREADS];
        pthread_t threads[THREADS];
        const char *algorithm = case_algorithm(RILL_ALLREDUCE, round % 8);
        for (int i = 0; i < THREADS; i++) {
            test_case c = make_case(RILL_ALLREDUCE, algorithm, THREADS * round + i);
            case_announce(&c, i);
            runs[i] = run_make(&c);
        }
        for (int i = 0; i < THREADS; i++) {
            CHECK_OK(run_call(&runs[i], comm, RUN_NONBLOCKING));
            CHECK(!pthread_create(&threads[i], NULL, finish_one, &runs[i]));
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < THREADS; i++) {
            run_verify(&runs[i]);
            run_free(&runs[i]);
        }
    }
    CHECK_INT(atomic_load(&failures), ==, 0);
    CHECK_OK(rill_comm_free(&comm));
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Whether the communicator has a thread: rank 0's message is there before the others', so that
 * without a thread its request cannot end before it is waited for. */
static void expect_thread(rill_config *config, int wanted) {
    rill_comm *comm = NULL;
    rill_stream *s = NULL;
    rill_request *request = NULL;
    rill_stats stats = RILL_STATS_INIT;
    uint32_t idx = (uint32_t)check.rank;
    float one = 1;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, config, &comm));
    CHECK_OK(rill_stream_create(RILL_F32, 1000, &s));
    CHECK_OK(rill_stream_set_pairs(s, 1, &idx, &one));
    if (check.rank != 0) MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(rill_iallreduce(comm, s, s, RILL_SUM, NULL, &request));
    if (check.rank == 0) MPI_Barrier(MPI_COMM_WORLD);
    if (wanted) {
        CHECK(ends_alone(request));
    } else if (check.rank == 0 && check.size > 1) {
        usleep(20000);
        CHECK_STATUS(rill_request_stats(request, &stats), RILL_ERR_STATE);
    }
    CHECK_OK(rill_wait(request));
    CHECK_INT(rill_stream_nnz(s), ==, check.size);
    CHECK_OK(rill_request_free(&request));
    rill_stream_free(&s);
    CHECK_OK(rill_comm_free(&comm));
}

/* Started and ended while requests are under way; twice the same is fine. */
static void on_and_off(void) {
    rill_comm *comm = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    CHECK_STATUS(rill_comm_progress_thread(NULL, 1), RILL_ERR_ARGUMENT);
    for (int round = 0; round < 4 * rounds; round++) {
        test_case c = make_case(RILL_ALLREDUCE, case_algorithm(RILL_ALLREDUCE, round % 8), round);
        case_announce(&c, round);
        test_run run = run_make(&c);
        CHECK_OK(run_call(&run, comm, RUN_NONBLOCKING));
        CHECK_OK(rill_comm_progress_thread(comm, 1));
        CHECK_OK(rill_comm_progress_thread(comm, 1));
        CHECK(ends_alone(run.request));
        CHECK_OK(rill_wait(run.request));
        run_verify(&run);
        run_free(&run);
        if (round % 2) {
            CHECK_OK(rill_comm_progress_thread(comm, 0));
            CHECK_OK(rill_comm_progress_thread(comm, 0));
        }
    }
    CHECK_OK(rill_comm_free(&comm));
}

static void settings(void) {
    for (int way = 0; way < 8; way++) {
        rill_config config = RILL_CONFIG_INIT;
        MPI_Info info = MPI_INFO_NULL;
        int by_info = way & 1, by_environment = way >> 1 & 1, off = way >> 2;
        check_case("thread by info: %d, by environment: %d, off by the struct: %d", by_info,
                   by_environment, off);
        if (by_info) {
            MPI_Info_create(&info);
            config.info = &info;
            MPI_Info_set(info, "rill_progress_thread", "1");
        }
        if (by_environment && check.rank == 0) setenv("RILL_PROGRESS_THREAD", "1", 1);
        if (off) config.progress_thread = 0;
        expect_thread(&config, (by_info || by_environment) && !off);
        unsetenv("RILL_PROGRESS_THREAD");
        if (by_info) MPI_Info_free(&info);
    }
    check_case("a struct from before the setting");
    rill_config config = RILL_CONFIG_INIT;
    config.size = offsetof(rill_config, progress_thread);
    config.progress_thread = 1;
    expect_thread(&config, 0);
    check_case("a thread by the struct");
    config.size = sizeof config;
    expect_thread(&config, 1);
}

int main(int argc, char **argv) {
    int provided = check_init_thread(&argc, &argv, MPI_THREAD_MULTIPLE);
    rounds = (int)check_number(argc, argv, "--rounds", 2);
#ifdef SMPI_H
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *comm = NULL;
    (void)provided;
    check_case("no threads in a simulation");
    config.progress_thread = 1;
    CHECK_STATUS(rill_comm_create(MPI_COMM_WORLD, &config, &comm), RILL_ERR_UNSUPPORTED);
    CHECK_DETAIL("progress_thread");
    CHECK(comm == NULL);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    CHECK_STATUS(rill_comm_progress_thread(comm, 1), RILL_ERR_UNSUPPORTED);
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(1);
#endif
    if (provided < MPI_THREAD_MULTIPLE) return check_skip("no MPI_THREAD_MULTIPLE");
    cases_init();
    settings();
    on_and_off();
    every_algorithm();
    many_in_flight();
    reducers();
    failing_rank();
    early_free();
    with_threads();
    return cases_finish(60);
}
