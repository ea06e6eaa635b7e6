/* reduce, reduce_scatter, allgather and bcast: every algorithm of each, all roots, against MPI's
 * dense reduction, exactly.
 *   --rounds N   samples of each (collective, algorithm, type) */
#include "runs.h"

static rill_comm *comm;
static long number;

static void renew(void) {
    CHECK_OK(rill_comm_free(&comm));
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
}

static void one_case(const test_case *c) {
    case_announce(c, number++);
    test_run run = run_make(c);
    uint64_t nnz_in = rill_stream_nnz(run.in), before = stream_hash(run.in);
    if (run_is_unsupported(c)) {
        CHECK_STATUS(run_call(&run, comm, RUN_BLOCKING), RILL_ERR_UNSUPPORTED);
        renew();
    } else if (check_all_ok(run_call(&run, comm, RUN_BLOCKING))) {
        run_verify(&run);
        if (run.in != run.out) CHECK(stream_hash(run.in) == before);
        rill_stats stats = RILL_STATS_INIT;
        CHECK_OK(rill_comm_stats(comm, &stats));
        run_check_stats(c, &stats, nnz_in, run.out);
    } else {
        renew();
    }
    run_free(&run);
}

static void walk(rill_collective collective, uint64_t rounds) {
    uint64_t draw = 0;
    for (int a = 0; case_algorithm(collective, a); a++)
        for (int t = 0; t < TYPE_COUNT; t++)
            for (int op = 0; op < OP_COUNT; op++)
                for (uint64_t i = 0; i < rounds; i++) {
                    test_case c = run_random_case(collective, check.seed, draw++, 65539);
                    c.algorithm = case_algorithm(collective, a);
                    c.type = test_types[t];
                    if (run_has_op(&c)) c.op = (test_op)op;
                    one_case(&c);
                }
    /* Every root, with something and with nothing to send. */
    for (int a = 0; case_algorithm(collective, a); a++)
        for (int root = 0; root < check.size; root++)
            for (int s = 0; s < SUPPORT_COUNT; s++) {
                test_case c = run_random_case(collective, check.seed + 1, draw++, 1000);
                if (collective == RILL_ALLGATHER) continue;
                c.algorithm = case_algorithm(collective, a);
                c.op = OP_SUM;
                c.root = root;
                c.support = (support)s;
                one_case(&c);
            }
}

/* One index that two ranks have is an error on all ranks; the streams stay valid. */
static void overlap(void) {
    for (int a = 0; case_algorithm(RILL_ALLGATHER, a); a++)
        for (int who = 0; who < check.size; who++)
            for (int form_of = 0; form_of < FORM_COUNT; form_of++) {
                rill_options o = RILL_OPTIONS_INIT;
                o.algorithm = case_algorithm(RILL_ALLGATHER, a);
                check_case("overlap of %d with the next rank, %s, %s", who, o.algorithm,
                           form_names[form_of]);
                rill_stream *in = NULL, *out = NULL;
                CHECK_OK(rill_stream_create(RILL_F32, 500, &in));
                CHECK_OK(rill_stream_create(RILL_F32, 500, &out));
                uint32_t idx[2] = {(uint32_t)check.rank * 3, 499};
                float val[2] = {1, 2};
                int both = check.rank == who || check.rank == (who + 1) % check.size;
                CHECK_OK(rill_stream_set_pairs(in, both ? 2 : 1, idx, val));
                if (form_of == FORM_DENSE || (form_of == FORM_MIXED && check.rank % 2))
                    CHECK_OK(rill_stream_to_dense(in));
                rill_status want = check.size > 1 ? RILL_ERR_OVERLAP : RILL_OK;
                CHECK_STATUS(rill_allgather(comm, in, out, &o), want);
                if (want) CHECK(rill_last_error()[0] != 0);
                check_valid(in);
                check_valid(out);
                if (want) renew();
                rill_stream_free(&in);
                rill_stream_free(&out);
            }
}

/* The fill goes along with a broadcast: the result of a minimum stays one. */
static void bcast_keeps_the_fill(void) {
    for (int a = 0; case_algorithm(RILL_BCAST, a); a++)
        for (int root = 0; root < check.size; root++)
            for (int dense = 0; dense < 2; dense++) {
                rill_options o = RILL_OPTIONS_INIT;
                o.algorithm = case_algorithm(RILL_BCAST, a);
                check_case("fill of a broadcast, %s, root %d, dense %d", o.algorithm, root, dense);
                rill_stream *s = NULL, *t = NULL;
                CHECK_OK(rill_stream_create(RILL_F64, 50, &s));
                CHECK_OK(rill_stream_create(RILL_F64, 50, &t));
                uint32_t idx[2] = {3, 49};
                double val[2] = {1, 2};
                CHECK_OK(rill_stream_set_pairs(t, 2, idx, val));
                if (check.rank == root) {
                    CHECK_OK(rill_stream_add(s, t, RILL_MIN));
                    if (dense) CHECK_OK(rill_stream_to_dense(s));
                } else {
                    CHECK_OK(rill_stream_add(s, t, check.rank % 2 ? RILL_MAX : RILL_SUM));
                    if (check.rank % 3 == 1) CHECK_OK(rill_stream_to_dense(s));
                }
                if (check_all_ok(rill_bcast(comm, s, root, &o))) {
                    double want[50];
                    for (int i = 0; i < 50; i++)
                        want[i] = (double)INFINITY;
                    want[3] = 1;
                    want[49] = 2;
                    check_values(s, want, 0, 50, (double)INFINITY, NULL, 0);
                    check_same_on_all_ranks("the stored result", stream_hash(s));
                }
                rill_stream_free(&s);
                rill_stream_free(&t);
            }
}

/* The result of one op as input of another: fills don't contribute, in either form. */
static void results_as_inputs(void) {
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++)
        for (int first = 0; first < OP_USER; first++)
            for (int second = 0; second < OP_USER; second++)
                for (int form_of = 0; form_of < FORM_COUNT; form_of++) {
                    rill_options o = RILL_OPTIONS_INIT;
                    o.algorithm = case_algorithm(RILL_ALLREDUCE, a);
                    check_case("%s of %s, %s, %s", test_op_names[second], test_op_names[first],
                               o.algorithm, form_names[form_of]);
                    /* Index 5 + rank is this rank's alone, index 60 everybody's. */
                    rill_stream *s = NULL;
                    uint32_t idx[2] = {5 + (uint32_t)check.rank, 60};
                    float val[2] = {2, 4};
                    CHECK_OK(rill_stream_create(RILL_F32, 70, &s));
                    rill_stream *t = NULL;
                    CHECK_OK(rill_stream_create(RILL_F32, 70, &t));
                    CHECK_OK(rill_stream_set_pairs(t, 2, idx, val));
                    CHECK_OK(rill_stream_add(s, t, op_rill((test_op)first, NULL)));
                    if (form_of == FORM_DENSE || (form_of == FORM_MIXED && check.rank % 2))
                        CHECK_OK(rill_stream_to_dense(s));
                    if (check_all_ok(
                            rill_allreduce(comm, s, s, op_rill((test_op)second, NULL), &o))) {
                        double want[70], four = 4;
                        for (int i = 0; i < 70; i++)
                            want[i] = op_neutral((test_op)second);
                        for (int p = 0; p < check.size; p++)
                            want[5 + p] = 2;
                        for (int p = 1; p < check.size; p++)
                            four = op_apply((test_op)second, four, 4);
                        want[60] = four;
                        check_values(s, want, 0, 70, op_neutral((test_op)second), NULL, 0);
                        check_same_on_all_ranks("the stored result", stream_hash(s));
                    }
                    rill_stream_free(&s);
                    rill_stream_free(&t);
                }
}

/* A sub-communicator, and one with the ranks in reverse. */
static void other_communicators(void) {
    check_case("halves, reversed");
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, check.rank % 2, -check.rank, &half);
    rill_comm *part = NULL;
    int rank, size;
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    CHECK_OK(rill_comm_create(half, NULL, &part));
    CHECK_INT(rill_comm_rank(part), ==, rank);
    CHECK_INT(rill_comm_size(part), ==, size);
    rill_stream *s = NULL;
    uint32_t idx[2] = {(uint32_t)rank, 99};
    float val[2] = {1, 1}, got[100];
    CHECK_OK(rill_stream_create(RILL_F32, 100, &s));
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++) {
        rill_options o = RILL_OPTIONS_INIT;
        o.algorithm = case_algorithm(RILL_ALLREDUCE, a);
        CHECK_OK(rill_stream_set_pairs(s, 2, idx, val));
        CHECK_OK(rill_allreduce(part, s, s, RILL_SUM, &o));
        CHECK_OK(rill_stream_get_dense(s, got));
        CHECK_NUMBER((double)got[99], (double)size);
        CHECK_NUMBER((double)got[size - 1], 1);
        CHECK_NUMBER((double)got[size], 0);
    }
    rill_stream_free(&s);
    CHECK_OK(rill_comm_free(&part));
    MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    uint64_t rounds = check_number(argc, argv, "--rounds", 3);
    walk(RILL_REDUCE, rounds);
    walk(RILL_REDUCE_SCATTER, rounds);
    walk(RILL_ALLGATHER, rounds);
    walk(RILL_BCAST, rounds);
    overlap();
    bcast_keeps_the_fill();
    results_as_inputs();
    other_communicators();
    CHECK_OK(rill_comm_free(&comm));
    return cases_finish(4 * OP_COUNT * TYPE_COUNT);
}
