/* Non-blocking and persistent forms: many in flight, ends in any order, restarts, mixtures.
 *   --flight N   requests in flight (64)   --restarts N   of each persistent request (100) */
#include "runs.h"

static rill_comm *comm;
static uint64_t draw;

/* Of every collective in turn, every algorithm. */
static test_case next_case(uint64_t largest) {
    rill_collective collective = (rill_collective)(draw % RILL_COLLECTIVES);
    test_case c = run_random_case(collective, check.seed, draw++, largest);
    return c;
}

/* Every collective and algorithm once by itself, in each mode, with its statistics. */
static void each_alone(void) {
    for (int collective = 0; collective < RILL_COLLECTIVES; collective++)
        for (int a = 0; case_algorithm((rill_collective)collective, a); a++)
            for (int way = 0; way < 4; way++) {
                test_case c = run_random_case((rill_collective)collective, check.seed, draw++,
                                              5000);
                c.algorithm = case_algorithm(c.collective, a);
                if (run_is_unsupported(&c)) c.op = OP_PROD;
                case_announce(&c, (long)draw);
                test_run run = run_make(&c);
                uint64_t nnz_in = rill_stream_nnz(run.in);
                int done = 0;
                if (way == 3) {
                    if (!CHECK_OK(run_call(&run, comm, RUN_PERSISTENT))) continue;
                    CHECK_OK(rill_start(run.request));
                } else if (!CHECK_OK(run_call(&run, comm, RUN_NONBLOCKING))) {
                    continue;
                }
                CHECK(run.request != NULL);
                if (way == 1) { /* test in a loop */
                    while (!done && CHECK_OK(rill_test(run.request, &done)))
                        continue;
                } else if (way == 2) { /* rill_progress alone makes it end */
                    for (long i = 0; !done && CHECK_OK(rill_progress(comm)); i++)
                        if (i % 16 == 15) CHECK_OK(rill_test(run.request, &done));
                }
                CHECK_OK(rill_wait(run.request));
                CHECK_OK(rill_wait(run.request)); /* again: nothing left to do */
                done = 0;
                CHECK_OK(rill_test(run.request, &done));
                CHECK_INT(done, ==, 1);
                run_verify(&run);
                rill_stats stats = RILL_STATS_INIT;
                CHECK_OK(rill_request_stats(run.request, &stats));
                run_check_stats(&c, &stats, nnz_in, run.out);
                run_free(&run);
            }
}

/* Many at once; each rank waits in an order of its own. */
static void many_in_flight(int flight, int way) {
    test_run *runs = malloc((size_t)flight * sizeof *runs);
    rill_request **requests = malloc((size_t)flight * sizeof(rill_request *));
    int *order = malloc((size_t)flight * sizeof *order);
    for (int i = 0; i < flight; i++) {
        test_case c = next_case(1000);
        case_announce(&c, (long)draw);
        runs[i] = run_make(&c);
    }
    for (int i = 0; i < flight; i++) {
        check_case("%d in flight, way %d: start %d", flight, way, i);
        CHECK_OK(run_call(&runs[i], comm, RUN_NONBLOCKING));
        requests[i] = runs[i].request;
        order[i] = i;
    }
    check_case("%d in flight, way %d: wait", flight, way);
    rng r = rng_make(check.seed, 500 + (uint64_t)check.rank);
    for (int i = flight - 1; i > 0; i--) {
        int j = (int)rng_below(&r, (uint64_t)i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    if (way == 0) {
        for (int i = 0; i < flight; i++)
            CHECK_OK(rill_wait(requests[order[i]]));
    } else if (way == 1) {
        CHECK_OK(rill_waitall(flight, requests));
    } else if (way == 2) {
        for (int left = flight; left > 0; left--) {
            int index = -2;
            CHECK_OK(rill_waitany(flight, requests, &index));
            if (!CHECK(index >= 0 && index < flight && requests[index])) break;
            int done = 0;
            CHECK_OK(rill_test(requests[index], &done));
            CHECK_INT(done, ==, 1);
            requests[index] = NULL;
        }
        int index = -2;
        CHECK_OK(rill_waitany(flight, requests, &index));
        CHECK_INT(index, ==, -1);
    } else { /* free what is active: it ends first */
        for (int i = 0; i < flight; i++)
            CHECK_OK(rill_request_free(&runs[order[i]].request));
    }
    for (int i = 0; i < flight; i++) {
        case_announce(&runs[i].c, (long)i);
        run_verify(&runs[i]);
        run_free(&runs[i]);
    }
    free(runs);
    free(requests);
    free(order);
}

/* Persistent requests of every algorithm, restarted with other inputs each time. */
static void persistent(int restarts) {
    enum { KINDS = 10 };
    test_run runs[KINDS];
    rill_request *requests[KINDS];
    for (int i = 0; i < KINDS; i++) {
        test_case c = next_case(1000);
        c.in_place = 0;
        case_announce(&c, (long)draw);
        runs[i] = run_make(&c);
        CHECK_OK(run_call(&runs[i], comm, RUN_PERSISTENT));
        requests[i] = runs[i].request;
    }
    int index = -2;
    CHECK_OK(rill_waitany(KINDS, requests, &index)); /* none was started */
    CHECK_INT(index, ==, -1);
    for (int again = 0; again < restarts; again++) {
        for (int i = 0; i < KINDS; i++) {
            runs[i].c.seed = check.seed * 1000003 + (uint64_t)(again * KINDS + i);
            case_announce(&runs[i].c, again);
            run_load(&runs[i]);
        }
        for (int i = 0; i < KINDS; i++)
            CHECK_OK(rill_start(requests[i]));
        if (again % 2) CHECK_OK(rill_waitall(KINDS, requests));
        else
            for (int i = 0; i < KINDS; i++)
                CHECK_OK(rill_wait(requests[(i + check.rank) % KINDS]));
        for (int i = 0; i < KINDS; i++) {
            case_announce(&runs[i].c, again);
            run_verify(&runs[i]);
        }
    }
    for (int i = 0; i < KINDS; i++)
        run_free(&runs[i]);
}

/* Blocking calls between start and wait of others, on the same and on another communicator, with
 * every algorithm (also those that are MPI's own collectives inside). */
static void mixtures(void) {
    rill_comm *other = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &other));
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++)
        for (int b = 0; case_algorithm(RILL_ALLREDUCE, b); b++) {
            test_run runs[4];
            for (int i = 0; i < 4; i++) {
                test_case c = run_random_case(RILL_ALLREDUCE, check.seed, draw++, 5000);
                c.algorithm = case_algorithm(RILL_ALLREDUCE, i % 2 ? b : a);
                if (run_is_unsupported(&c)) c.op = OP_SUM;
                case_announce(&c, (long)draw);
                runs[i] = run_make(&c);
            }
            CHECK_OK(run_call(&runs[0], comm, RUN_NONBLOCKING));
            CHECK_OK(run_call(&runs[1], comm, RUN_BLOCKING));
            CHECK_OK(run_call(&runs[2], other, RUN_NONBLOCKING));
            /* Each rank progresses the communicators as it likes. */
            if (check.rank % 2) CHECK_OK(rill_progress(other));
            CHECK_OK(run_call(&runs[3], comm, RUN_NONBLOCKING));
            rill_request *requests[3] = {runs[3].request, runs[2].request, runs[0].request};
            if (check.rank % 2) CHECK_OK(rill_waitall(3, requests)); /* of two communicators */
            else
                for (int i = 0; i < 3; i++)
                    CHECK_OK(rill_wait(requests[2 - i]));
            for (int i = 0; i < 4; i++) {
                case_announce(&runs[i].c, i);
                run_verify(&runs[i]);
                run_free(&runs[i]);
            }
        }
    CHECK_OK(rill_comm_free(&other));
}

/* Misuse that is local and sends nothing: an error, and the communicator goes on. */
static void states(void) {
    check_case("states of requests");
    test_case c = run_random_case(RILL_ALLREDUCE, check.seed, draw++, 1000);
    c.algorithm = "recursive_double";
    test_run run = run_make(&c);
    int index = 0, done = 0;
    CHECK_STATUS(rill_start(NULL), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_wait(NULL), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_test(NULL, &done), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_waitany(1, NULL, &index), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_waitall(1, NULL), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_progress(NULL), RILL_ERR_ARGUMENT);
    CHECK_OK(rill_waitall(0, NULL));
    rill_request *none = NULL;
    CHECK_OK(rill_request_free(&none));
    CHECK_OK(rill_request_free(NULL));
    rill_stats stats = RILL_STATS_INIT;
    CHECK_STATUS(rill_request_stats(NULL, &stats), RILL_ERR_ARGUMENT);
    if (CHECK_OK(run_call(&run, comm, RUN_PERSISTENT))) {
        CHECK_STATUS(rill_test(run.request, NULL), RILL_ERR_ARGUMENT);
        /* Rank 0 starts before the others, so that its request can't end. */
        if (check.rank > 0) MPI_Barrier(MPI_COMM_WORLD);
        CHECK_OK(rill_start(run.request));
        if (check.rank == 0 && check.size > 1) {
            CHECK_STATUS(rill_start(run.request), RILL_ERR_STATE);
            CHECK_OK(rill_test(run.request, &done));
            CHECK_INT(done, ==, 0);
            rill_comm *same = comm;
            CHECK_STATUS(rill_comm_free(&same), RILL_ERR_STATE);
        }
        if (check.rank == 0) MPI_Barrier(MPI_COMM_WORLD);
        CHECK_OK(rill_wait(run.request));
        run_verify(&run);
    }
    run_free(&run);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    int flight = (int)check_number(argc, argv, "--flight", 64);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    each_alone();
    for (int way = 0; way < 4; way++)
        many_in_flight(flight, way);
    persistent((int)check_number(argc, argv, "--restarts", 100));
    mixtures();
    states();
    CHECK_OK(rill_comm_free(&comm));
    return cases_finish(100);
}
