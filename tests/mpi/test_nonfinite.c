/* Values that are not finite in a reducer's gradients: the option nonfinite, with the value on each
 * rank, under every algorithm, width and form of a step. A void step is one that never was: a twin
 * that skips it stays beside. */
#include "cases.h"

enum { DIM = 1200, K = 60 };

static rill_comm *comm;

typedef enum way { PLAIN, HALVES, STREAM, TENSORS, MICRO, WAYS } way;
static const char *const way_names[] = {"step", "start", "stream", "tensors", "micro-batches"};

static rill_reducer_options options_of(const char *algorithm, int bits, const char *nonfinite) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.value_bits = bits;
    o.k = K;
    o.average = 0;
    o.threshold_interval = o.repartition_interval = 4;
    o.nonfinite = nonfinite;
    return o;
}

/* Different on each rank and in each step; never 0. */
static void gradient(rill_type type, void *g, int step) {
    rng r = rng_make(77 + (uint64_t)step, (uint64_t)check.rank);
    for (uint64_t i = 0; i < DIM; i++)
        value_store(type, g, i, (rng_unit(&r) - 0.5) * (i % 7 == 0 ? 8 : 1) + 0.001);
}

static rill_status take_step(rill_reducer *r, way how, rill_type type, void *g, void *u) {
    size_t size = value_size(type);
    static double half[DIM], zero[DIM];
    rill_stream *s = NULL;
    rill_status status;
    rill_tensor t[3] = {{g, u, 5},
                        {(char *)g + 5 * size, (char *)u + 5 * size, 700},
                        {(char *)g + 705 * size, (char *)u + 705 * size, DIM - 705}};
    switch (how) {
    case HALVES:
        memcpy(half, g, DIM * size);
        status = rill_reducer_start(r, half, u);
        memset(half, 0x55, sizeof half); /* it is free again */
        return status == RILL_OK ? rill_reducer_wait(r) : status;
    case STREAM:
        CHECK_OK(rill_stream_create(type, DIM, &s));
        status = rill_reducer_step_stream(r, g, s);
        if (status == RILL_OK) {
            unsigned char fill[8] = {0};
            CHECK_OK(rill_stream_fill(s, fill));
            if (isnan(value_load(type, fill, 0))) CHECK_INT(rill_stream_nnz(s), ==, 0);
            CHECK_OK(rill_stream_get_dense(s, u));
        }
        rill_stream_free(&s);
        return status;
    case TENSORS: return rill_reducer_step_tensors(r, 3, t);
    case MICRO:
        memset(zero, 0, sizeof zero);
        CHECK_OK(rill_reducer_accumulate(r, g));
        return rill_reducer_step(r, zero, u);
    default: return rill_reducer_step(r, g, u);
    }
}

static uint64_t nonfinite_in(rill_type type, const void *x) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < DIM; i++)
        n += !isfinite(value_load(type, x, i));
    return n;
}

/* Three steps, one that has a bad value on one rank, and three more. */
static void test_void(const char *algorithm, rill_type type, int bits, way how, int bad,
                      double value, double momentum) {
    check_case("void: %s, %s, bits %d, %s, %g on rank %d, momentum %g", algorithm,
               rill_type_name(type), bits, way_names[how], value, bad, momentum);
    static double g[DIM], u[DIM], before[DIM];
    double held[DIM], all[DIM];
    rill_reducer_options o = options_of(algorithm, bits, NULL);
    o.momentum = momentum;
    rill_reducer *r = NULL;
    if (!CHECK_OK(rill_reducer_create(comm, type, DIM, &o, &r))) return;
    for (uint64_t i = 0; i < DIM; i++)
        held[i] = 0;
    rill_stats stats = RILL_STATS_INIT;
    double eps = type == RILL_F64 ? 0x1p-50 : type == RILL_F32 ? 0x1p-21 : 0x1p-7;
    for (int step = 0; step < 7; step++) {
        gradient(type, g, step);
        if (step == 3) memcpy(before, rill_reducer_residual(r), DIM * value_size(type));
        if (step == 3 && check.rank == bad) value_store(type, g, 7, value);
        if (!CHECK_OK(take_step(r, how, type, g, u))) break;
        CHECK_OK(rill_reducer_stats(r, &stats));
        CHECK_INT(stats.voided, ==, step == 3);
        CHECK_INT(stats.voided_total, ==, step >= 3);
        CHECK_INT(nonfinite_in(type, u), ==, step == 3 ? DIM : 0);
        const void *residual = rill_reducer_residual(r);
        CHECK_INT(nonfinite_in(type, residual), ==, 0);
        for (uint64_t i = 0; i < DIM && step != 3; i++)
            held[i] += value_load(type, g, i) - (check.rank ? 0 : value_load(type, u, i));
        for (uint64_t i = 0; i < DIM && step == 3; i++) {
            double old = value_load(type, before, i), given = value_load(type, g, i);
            double most = eps * (fabs(old) + (isfinite(given) ? fabs(given) : 0));
            if (momentum != 0) most = eps * 64;
            if (!CHECK(fabs(value_load(type, residual, i) - old) <= most)) break;
        }
    }
    /* What was given in the steps that count, less the updates, is in the residuals. */
    const void *residual = rill_reducer_residual(r);
    for (uint64_t i = 0; i < DIM; i++)
        held[i] -= value_load(type, residual, i);
    MPI_Allreduce(held, all, DIM, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (uint64_t i = 0; i < DIM && momentum == 0; i++)
        if (!CHECK(fabs(all[i]) <= 100 * eps * check.size)) break;
    CHECK_OK(rill_reducer_free(&r));
}

/* The steps after a void one are those of a reducer that never saw it: thresholds, partitions and
 * warm-up stay. */
static void test_twin(const char *algorithm) {
    check_case("twin: %s", algorithm);
    rill_reducer_options o = options_of(algorithm, 0, NULL);
    o.warmup_steps = 2;
    rill_reducer *r[2] = {NULL, NULL};
    rill_comm *own[2];
    static float g[DIM], u[2][DIM];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &own[i]));
        CHECK_OK(rill_reducer_create(own[i], RILL_F32, DIM, &o, &r[i]));
    }
    for (int step = 0; step < 12; step++) {
        gradient(RILL_F32, g, step);
        for (uint64_t i = 0; i < DIM; i++)
            g[i] = floorf(g[i] * 64) / 64; /* sums and differences are exact */
        for (int i = 0; i < 2; i++)
            CHECK_OK(rill_reducer_step(r[i], g, u[i]));
        if (!CHECK(memcmp(u[0], u[1], sizeof u[0]) == 0)) break;
        if (step != 4 && step != 5) continue;
        if (check.rank == 0) g[3] = NAN;
        CHECK_OK(rill_reducer_step(r[1], g, u[1]));
        CHECK(isnan(u[1][0]));
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_reducer_free(&r[i]));
        CHECK_OK(rill_comm_free(&own[i]));
    }
}

static void test_zero_and_pass(const char *algorithm, const char *select, int feedback) {
    check_case("zero and pass: %s, select %s, feedback %d", algorithm, select ? select : "-",
               feedback);
    static float g[DIM], u[DIM];
    for (int pass = 0; pass < 2; pass++) {
        rill_reducer_options o = options_of(algorithm, 0, pass ? "pass" : "zero");
        o.select = select;
        o.feedback = feedback;
        rill_reducer *r = NULL;
        rill_stats stats = RILL_STATS_INIT;
        if (!CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r))) return;
        uint64_t seen = 0;
        for (int step = 0; step < 3; step++) {
            gradient(RILL_F32, g, step);
            if (step == 1 && check.rank == 0) g[7] = NAN;
            CHECK_OK(rill_reducer_step(r, g, u));
            CHECK_OK(rill_reducer_stats(r, &stats));
            CHECK_INT(stats.voided, ==, 0);
            seen += nonfinite_in(RILL_F32, u);
            if (!pass) CHECK_INT(nonfinite_in(RILL_F32, rill_reducer_residual(r)), ==, 0);
        }
        if (pass) CHECK_INT(seen, >, 0);
        else CHECK_INT(seen, ==, 0);
        CHECK_OK(rill_reducer_free(&r));
    }
}

/* Finite on every rank, but not their sum. */
static void test_overflow(const char *algorithm) {
    check_case("overflow: %s", algorithm);
    if (check.size < 2) return;
    rill_reducer_options o = options_of(algorithm, 0, "void");
    rill_reducer *r = NULL;
    static float g[DIM], u[DIM];
    rill_stats stats = RILL_STATS_INIT;
    if (!CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r))) return;
    for (int step = 0; step < 3; step++) {
        gradient(RILL_F32, g, step);
        if (step == 1) g[9] = 3e38f;
        CHECK_OK(rill_reducer_step(r, g, u));
        CHECK_OK(rill_reducer_stats(r, &stats));
        CHECK_INT(stats.voided, ==, step == 1);
        CHECK_INT(nonfinite_in(RILL_F32, u), ==, step == 1 ? DIM : 0);
    }
    CHECK_INT(nonfinite_in(RILL_F32, rill_reducer_residual(r)), ==, 0);
    CHECK_OK(rill_reducer_free(&r));
}

static void test_options(void) {
    check_case("options");
    rill_reducer_options o = options_of("oktopk", 0, "ignore");
    rill_reducer *r = NULL;
    CHECK_STATUS(rill_reducer_create(comm, RILL_F32, DIM, &o, &r), RILL_ERR_UNKNOWN);
    CHECK_DETAIL("ignore");
    CHECK(r == NULL);
}

/* What comes back of an update that nobody applied is delivered later, once. */
static void test_give_back(int average) {
    check_case("give back, average %d", average);
    rill_reducer_options o = options_of("split_allgather", 0, NULL);
    o.k = DIM;
    o.average = average;
    rill_reducer *r = NULL;
    static float g[DIM], u[DIM], again[DIM], zero[DIM];
    if (!CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r))) return;
    for (uint64_t i = 0; i < DIM; i++)
        g[i] = (float)(check.size * (int)(i % 9));
    CHECK_OK(rill_reducer_step(r, g, u));
    CHECK_OK(rill_reducer_give_back(r, 10, 20, u + 10));
    CHECK_OK(rill_reducer_step(r, zero, again));
    for (uint64_t i = 0; i < DIM; i++)
        if (!CHECK_NUMBER(again[i], i >= 10 && i < 30 ? u[i] : 0)) break;
    CHECK_STATUS(rill_reducer_give_back(r, DIM, 1, u), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_reducer_give_back(r, 0, 1, NULL), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_reducer_give_back(NULL, 0, 0, NULL), RILL_ERR_ARGUMENT);
    CHECK_OK(rill_reducer_free(&r));
}

/* Residual and momentum of a checkpoint: the momentum does not see the residual. */
static void test_keep(void) {
    check_case("keep");
    rill_reducer_options o = options_of("split_allgather", 0, NULL);
    o.k = DIM;
    o.masking = 0;
    o.average = 1;
    rill_reducer *plain = NULL, *r = NULL;
    static float g[DIM], u[DIM], waits[DIM], zero[DIM];
    if (!CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &plain))) return;
    o.momentum = 0.5;
    if (!CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r))) return;
    for (uint64_t i = 0; i < DIM; i++) {
        g[i] = (float)(i % 9);
        waits[i] = (float)(i % 5);
    }
    CHECK_OK(rill_reducer_step(r, g, u));
    CHECK(memcmp(rill_reducer_momentum(r), g, sizeof g) == 0);
    CHECK_OK(rill_reducer_keep(r, waits, g));
    for (int step = 0; step < 2; step++) {
        CHECK_OK(rill_reducer_step(r, zero, u));
        for (uint64_t i = 0; i < DIM; i++)
            if (!CHECK_NUMBER(u[i], step ? g[i] / 2 : waits[i] + g[i])) break;
    }
    CHECK(!rill_reducer_momentum(plain) && !rill_reducer_momentum(NULL));
    CHECK_OK(rill_reducer_keep(plain, NULL, NULL));
    CHECK_STATUS(rill_reducer_keep(plain, NULL, g), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_reducer_keep(NULL, NULL, NULL), RILL_ERR_ARGUMENT);
    CHECK_OK(rill_reducer_free(&plain));
    CHECK_OK(rill_reducer_free(&r));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    int full = check_argument(argc, argv, "--full") != NULL, turn = 0;
    const char *name;
    static const int widths[] = {0, 16, 8, 4, 2};
    for (int table = 0; table < 2; table++)
        for (int a = 0; (name = rill_algorithm_at(table ? RILL_REDUCER : RILL_ALLREDUCE, a, NULL));
             a++) {
            int uncoded = strcmp(name, "dense") == 0 || strcmp(name, "s2") == 0;
            for (int w = 0; w < (uncoded ? 1 : 5); w++)
                for (int how = 0; how < WAYS; how++) {
                    if (!full && how != turn % WAYS) continue;
                    for (int bad = 0; bad < check.size; bad++)
                        test_void(name, RILL_F32, widths[w], (way)how, bad,
                                  bad % 2 ? INFINITY : NAN, full && how == 0 && bad ? 0.5 : 0);
                    turn++;
                }
            for (int type = RILL_F64; type <= RILL_BF16; type++)
                test_void(name, (rill_type)type, 0, (way)(turn++ % WAYS), 0, -INFINITY, 0);
            test_void(name, RILL_F32, 0, (way)(turn % WAYS), check.size - 1, NAN, 0.5);
            if (strcmp(name, "s2") != 0) test_twin(name); /* its hashes are those of the step */
            test_zero_and_pass(name, NULL, 1);
            test_overflow(name);
        }
    test_void("auto", RILL_F32, 0, PLAIN, 0, NAN, 0);
    static const char *const ways[] = {"topk",   "bucket",  "block", "threshold",
                                       "random", "nonzero", "auto"};
    for (int i = 0; i < 7; i++)
        for (int feedback = 0; feedback < 2; feedback++)
            if (strcmp(ways[i], "random") != 0)
                test_zero_and_pass("split_allgather", ways[i], feedback);
    test_options();
    test_give_back(0);
    test_give_back(1);
    test_keep();
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(60);
}
