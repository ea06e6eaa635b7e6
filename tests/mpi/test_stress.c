/* What no usual program does: thousands of requests in flight, more than there are tags, ranks that
 * are far ahead of others; a rank that frees the communicator while others are in a call; creations
 * that differ between ranks; entries that are absent, under codes of few bits; steps that one rank
 * breaks off. */
#include "cases.h"

static rill_comm *comm;

/* ---- many requests -------------------------------------------------------------------------- */

/* Rank 0 begins when the others have started all of theirs. */
static void test_many(const char *algorithm, int n) {
    check_case("%d in flight, %s", n, algorithm);
    rill_stream **in = calloc((size_t)n, sizeof *in), **out = calloc((size_t)n, sizeof *out);
    rill_request **q = calloc((size_t)n, sizeof *q);
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = algorithm;
    if (check.rank == 0) MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        uint32_t index = (uint32_t)i % 100;
        float value = (float)(i + check.rank);
        CHECK_OK(rill_stream_create(RILL_F32, 100, &in[i]));
        CHECK_OK(rill_stream_create(RILL_F32, 100, &out[i]));
        CHECK_OK(rill_stream_set_pairs(in[i], 1, &index, &value));
        if (!CHECK_OK(rill_iallreduce(comm, in[i], out[i], RILL_SUM, &o, &q[i]))) return;
    }
    if (check.rank) MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        int at = check.rank % 2 ? i : n - 1 - i; /* each in an order of its own */
        float dense[100];
        CHECK_OK(rill_wait(q[at]));
        CHECK_OK(rill_stream_get_dense(out[at], dense));
        float sum = (float)(check.size * at) + (float)(check.size * (check.size - 1) / 2);
        if (!CHECK_NUMBER(dense[at % 100], sum)) break;
    }
    for (int i = 0; i < n; i++) {
        CHECK_OK(rill_request_free(&q[i]));
        rill_stream_free(&in[i]);
        rill_stream_free(&out[i]);
    }
    free(in);
    free(out);
    free(q);
}

/* Only the root waits for anybody: the others are through with all calls before it begins. */
static void test_ahead(int n) {
    check_case("%d calls ahead of the root", n);
    rill_stream *in = NULL, *out = NULL;
    CHECK_OK(rill_stream_create(RILL_F32, 8, &in));
    CHECK_OK(rill_stream_create(RILL_F32, 8, &out));
    if (check.rank == 0) usleep(100000);
    for (int i = 0; i < n; i++) {
        rill_options o = RILL_OPTIONS_INIT;
        o.algorithm = i % 2 ? "split_gather" : "tree";
        float dense[8] = {(float)i, 1};
        CHECK_OK(rill_stream_set_dense(in, dense));
        if (!CHECK_OK(rill_reduce(comm, in, out, RILL_SUM, 0, &o))) break;
        if (check.rank) continue;
        CHECK_OK(rill_stream_get_dense(out, dense));
        if (!CHECK_NUMBER(dense[0], (double)i * check.size)) break;
    }
    rill_stream_free(&in);
    rill_stream_free(&out);
}

/* ---- ranks that do different things ---------------------------------------------------------- */

static void test_farewell(rill_collective collective, const char *algorithm, int leaver) {
    check_case("rank %d leaves, others in %s %s", leaver, rill_collective_name(collective),
               algorithm);
    rill_comm *own = NULL;
    rill_stream *s = NULL;
    rill_options o = RILL_OPTIONS_INIT;
    float dense[50] = {1, 2, 3};
    o.algorithm = algorithm;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &own));
    CHECK_OK(rill_stream_create(RILL_F32, 50, &s));
    CHECK_OK(rill_stream_set_dense(s, dense));
    CHECK_OK(rill_allreduce(own, s, s, RILL_SUM, NULL));
    if (check.rank != leaver) {
        rill_status status = collective == RILL_BCAST ? rill_bcast(own, s, leaver, &o)
                                                      : rill_allreduce(own, s, s, RILL_SUM, &o);
        CHECK_STATUS(status, RILL_ERR_STATE);
        CHECK_DETAIL("frees the communicator");
    }
    CHECK_OK(rill_comm_free(&own));
    rill_stream_free(&s);
}

/* A call that one rank refuses is over for all; the ranks go on alike, whatever each has counted.
 */
static void test_refused(const char *algorithm, int before, int nonblocking) {
    check_case("refused after %d calls, %s, non-blocking %d", before, algorithm, nonblocking);
    rill_comm *own = NULL;
    rill_stream *in = NULL, *out = NULL;
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = algorithm;
    float dense[50] = {1, 2, 3};
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &own));
    CHECK_OK(rill_stream_create(RILL_F32, 50, &in));
    CHECK_OK(rill_stream_create(RILL_F32, 50, &out));
    CHECK_OK(rill_stream_set_dense(in, dense));
    for (int call = 0; call < before + 5; call++) {
        const rill_stream *given = call == before && check.rank == 0 ? NULL : in;
        rill_request *q = NULL;
        rill_status status = nonblocking && call == before
                                 ? rill_iallreduce(own, given, out, RILL_SUM, &o, &q)
                                 : rill_allreduce(own, given, out, RILL_SUM, &o);
        if (q) status = rill_wait(q);
        CHECK_STATUS(status, call == before ? RILL_ERR_ARGUMENT : RILL_OK);
        CHECK_OK(rill_request_free(&q));
    }
    CHECK_OK(rill_comm_free(&own));
    rill_stream_free(&in);
    rill_stream_free(&out);
}

/* Selectors of all ranks go on alike after a step in which one of them did not select. */
static void test_alike(int why) {
    enum { N = 1000, K = 50 };
    static const char *const reasons[] = {"clip", "momentum", "no feedback", "no gradient"};
    check_case("random indices after a step without one rank: %s", reasons[why]);
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "split_allgather";
    o.select = "random";
    o.k = K;
    if (why == 0) o.clip = 1;
    if (why == 1) o.momentum = 0.5;
    if (why == 2) o.feedback = 0;
    rill_reducer *r = NULL;
    static float g[N], u[N];
    CHECK_OK(rill_reducer_create(comm, RILL_F32, N, &o, &r));
    for (int step = 0; step < 8; step++) {
        for (int i = 0; i < N; i++)
            g[i] = 1 + (float)(i % 5);
        int bad = step == 3 && check.rank == 0;
        if (bad) g[3] = NAN;
        rill_status status = rill_reducer_step(r, bad && why == 3 ? NULL : g, u);
        CHECK_STATUS(status, step == 3 && why == 3 ? RILL_ERR_ARGUMENT : RILL_OK);
        int entries = 0;
        for (int i = 0; i < N; i++)
            entries += u[i] != 0;
        if (step != 3) CHECK_INT(entries, ==, K);
    }
    CHECK_OK(rill_reducer_free(&r));
}

static void differ(const char *what, rill_reducer_options o, uint64_t dim, rill_status expected) {
    check_case("creations differ in %s", what);
    rill_reducer *r = NULL;
    rill_status status = rill_reducer_create(comm, RILL_F32, dim, &o, &r);
    CHECK_STATUS(status, expected);
    CHECK(r == NULL);
    CHECK(rill_last_error()[0]);
}

static void test_create(void) {
    int last = check.rank == check.size - 1;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT, bad = o;
    bad.density = last ? 0.2 : 0.1;
    differ("density", bad, 1000, RILL_ERR_MISMATCH);
    bad = o;
    bad.algorithm = last ? "gtopk" : "oktopk";
    differ("algorithm", bad, 1000, RILL_ERR_MISMATCH);
    differ("dimension", o, last ? 1001 : 1000, RILL_ERR_MISMATCH);
    bad = o;
    if (last) bad.density = 2;
    differ("an error", bad, 1000, RILL_ERR_ARGUMENT);
    /* After that reducers have the same numbers on all ranks: the sketch's hashes are made of them.
     */
    check_case("s2 after creations that failed");
    enum { N = 2000 };
    static float g[N], u[N], sum[N];
    rill_reducer *r = NULL;
    o.algorithm = "s2";
    o.k = 50;
    o.lambda = 4;
    o.average = 0;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, N, &o, &r));
    for (int i = 0; i < N; i++)
        g[i] = i % 40 == 0 ? (float)(10 + i % 7) : 0, sum[i] = 0;
    for (int step = 0; step < 5; step++) {
        CHECK_OK(rill_reducer_step(r, g, u));
        for (int i = 0; i < N; i++)
            sum[i] += u[i];
        if (step == 0)
            for (int i = 0; i < N; i++)
                g[i] = 0;
    }
    for (int i = 0; i < N; i++)
        if (!CHECK_NUMBER(sum[i], i % 40 == 0 ? (double)(10 + i % 7) * check.size : 0)) break;
    CHECK_OK(rill_reducer_free(&r));
}

/* ---- absent entries -------------------------------------------------------------------------- */

/* A quarter of the entries no rank has, and a quarter one rank alone. */
static void test_absent(const rill_op *op, const char *algorithm, int bits) {
    enum { N = 1000 };
    check_case("absent: %s, %s, bits %d", rill_op_name(op), algorithm, bits);
    static float x[N], y[N];
    for (int i = 0; i < N; i++)
        x[i] = i % 4 >= (check.rank ? 2 : 1);
    rill_stream *in = NULL, *out = NULL;
    CHECK_OK(rill_stream_create(RILL_F32, N, &in));
    CHECK_OK(rill_stream_create(RILL_F32, N, &out));
    CHECK_OK(rill_stream_set_dense(in, x));
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.value_bits = bits;
    float fill = 0;
    if (CHECK_OK(rill_allreduce(comm, in, out, op, &o))) {
        CHECK_OK(rill_stream_get_dense(out, y));
        CHECK_OK(rill_stream_fill(out, &fill));
        for (int i = 0; i < N; i++) {
            if (i % 4 == 0 ? !CHECK_NUMBER(y[i], fill) : !CHECK(fabsf(y[i] - 1) <= 0.5f)) break;
        }
    }
    rill_stream_free(&in);
    rill_stream_free(&out);
}

/* ---- steps that are broken off --------------------------------------------------------------- */

/* One rank has no gradient in the first step: those of the others, and all micro-batches, are
 * delivered later. */
static void test_broken_off(const char *algorithm, const char *select, int micro) {
    enum { N = 64, STEPS = 60 };
    check_case("broken off: %s, select %s, micro-batches %d", algorithm, select ? select : "-",
               micro);
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.select = select;
    o.k = 16;
    o.average = 0;
    o.lambda = 4;
    rill_reducer *r = NULL;
    double g[N], zero[N] = {0}, u[N], sum[N] = {0};
    for (int i = 0; i < N; i++)
        g[i] = 1 + i % 3;
    if (!CHECK_OK(rill_reducer_create(comm, RILL_F64, N, &o, &r))) return;
    if (micro) CHECK_OK(rill_reducer_accumulate(r, g));
    CHECK_STATUS(rill_reducer_step(r, check.rank ? g : NULL, u), RILL_ERR_ARGUMENT);
    for (int step = 0; step < STEPS; step++) {
        if (!CHECK_OK(rill_reducer_step(r, zero, u))) break;
        for (int i = 0; i < N; i++)
            sum[i] += u[i];
    }
    double held[N], all[N];
    memcpy(held, rill_reducer_residual(r), sizeof held);
    MPI_Allreduce(held, all, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
        double given = g[i] * (check.size - 1 + (micro ? check.size : 0));
        if (!CHECK(fabs(sum[i] + all[i] - given) < 1e-9)) break;
    }
    CHECK_OK(rill_reducer_free(&r));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    int n = (int)check_number(argc, argv, "--flight", 9000);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    test_many("recursive_double", n);
    test_many("split_allgather", n);
    test_many("dense", n / 20);
    test_ahead(n);
    const char *name;
    for (int a = 0; (name = rill_algorithm_at(RILL_ALLREDUCE, a, NULL)); a++) {
        if (check.size > 1) test_farewell(RILL_ALLREDUCE, name, a % check.size);
        for (int bits = 16; bits >= 2 && strcmp(name, "dense") != 0; bits /= 2) {
            test_absent(RILL_MIN, name, bits);
            test_absent(RILL_MAX, name, bits);
            test_absent(RILL_PROD, name, bits);
        }
    }
    for (int why = 0; why < 4; why++)
        test_alike(why);
    if (check.size > 1) {
        for (int before = 0; before < 4; before++)
            for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
                test_refused("recursive_double", before, nonblocking);
                test_refused("auto", before, nonblocking);
            }
        test_farewell(RILL_BCAST, "tree", 1);
        test_create();
    }
    for (int table = 0; table < 2; table++)
        for (int a = 0; (name = rill_algorithm_at(table ? RILL_REDUCER : RILL_ALLREDUCE, a, NULL));
             a++)
            for (int micro = 0; micro < 2; micro++)
                test_broken_off(name, NULL, micro);
    test_broken_off("auto", "auto", 0);
    test_broken_off("split_allgather", "nonzero", 1);
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(40);
}
