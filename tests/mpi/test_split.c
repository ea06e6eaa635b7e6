/* Messages over the split limit travel in parts: with a low limit all larger messages of every
 * collective do, and the results are the same. */
#include "runs.h"

/* Microseconds: more than ranks wait before they look around, which is sooner in a simulation. */
#ifdef SMPI_H
#define LATE 4000
#else
#define LATE 300000
#endif

/* A rank comes late, and the others look around while they wait: the first part of a later round's
 * message is taken in before its turn. */
static void late_rank(void) {
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *comm = NULL;
    config.split_limit = 1024;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++) {
        test_case c = run_random_case(RILL_ALLREDUCE, check.seed, (uint64_t)a, 20011);
        c.algorithm = case_algorithm(RILL_ALLREDUCE, a);
        c.dim = 20011;
        c.gap = 3;
        c.in_place = 0;
        c.op = OP_MIN;
        case_announce(&c, a);
        test_run run = run_make(&c);
        if (check.rank == a % check.size) usleep(LATE);
        CHECK_OK(run_call(&run, comm, RUN_BLOCKING));
        run_verify(&run);
        run_free(&run);
    }
    CHECK_OK(rill_comm_free(&comm));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    static const uint64_t limits[] = {1024, 1500, 4096, 65536};
    uint64_t rounds = check_number(argc, argv, "--rounds", 3);
    long number = 0;
    check_case("limits that are refused");
    static const uint64_t bad[] = {1, 64,
                                   UINT64_C(1) << 40}; /* a header must fit; counts are ints */
    for (int i = 0; i < 3; i++) {
        rill_config config = RILL_CONFIG_INIT;
        rill_comm *none = NULL;
        config.split_limit = bad[i];
        CHECK_STATUS(rill_comm_create(MPI_COMM_WORLD, &config, &none), RILL_ERR_ARGUMENT);
        CHECK_DETAIL("split_limit");
        CHECK(none == NULL);
    }
    for (int l = 0; l < 4; l++) {
        rill_config config = RILL_CONFIG_INIT;
        rill_comm *split = NULL, *whole = NULL;
        config.split_limit = limits[l];
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &split));
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &whole));
        for (int collective = 0; collective < RILL_COLLECTIVES; collective++)
            for (int a = 0; case_algorithm((rill_collective)collective, a); a++)
                for (uint64_t i = 0; i < rounds; i++) {
                    test_case c = run_random_case((rill_collective)collective, check.seed,
                                                  (uint64_t)number, 65539);
                    c.algorithm = case_algorithm(c.collective, a);
                    c.dim = limits[l] < 10000 ? 20011 : 300007;
                    c.gap = c.gap > 20 ? 20 : c.gap;
                    c.in_place = 0;
                    c.inexact = c.op == OP_SUM && run_has_op(&c);
                    if (limits[l] > 10000 && check.size > 4 && i) continue;
                    if (run_is_unsupported(&c)) c.op = OP_MIN;
                    case_announce(&c, number++);
                    /* The same mode: MPI's own reductions differ in order between the two. */
                    run_mode mode = i ? RUN_NONBLOCKING : RUN_BLOCKING;
                    test_run run = run_make(&c), other = run_make(&c);
                    if (check_all_ok(run_call(&run, split, mode)) &&
                        check_all_ok(run_call(&other, whole, mode))) {
                        if (run.request) CHECK_OK(rill_wait(run.request));
                        if (other.request) CHECK_OK(rill_wait(other.request));
                        if (!c.inexact) run_verify(&run);
                        if (c.collective != RILL_REDUCE || check.rank == c.root)
                            CHECK(stream_hash(run.out) == stream_hash(other.out));
                    }
                    run_free(&run);
                    run_free(&other);
                }
        CHECK_OK(rill_comm_free(&split));
        CHECK_OK(rill_comm_free(&whole));
    }
    late_rank();
    return cases_finish(4 * RILL_COLLECTIVES);
}
