/* What reducers offer beside the plain step: streams, fused tensors, several under way, momentum,
 * clipping, warm-up, the choice for a tensor, statistics, and errors that reach all ranks. */
#include "cases.h"

enum { DIM = 2003 };

static rill_comm *comm;

static rill_reducer *make_on(rill_comm *c, const rill_reducer_options *o, uint64_t dim) {
    rill_reducer *r = NULL;
    CHECK_OK(rill_reducer_create(c, RILL_F32, dim, o, &r));
    return r;
}
static rill_reducer *make(const rill_reducer_options *o, uint64_t dim) {
    return make_on(comm, o, dim);
}

/* Small integers over a power of two: sums are exact, so that results can be compared bit by bit.
 */
static void exact_gradient(float *g, uint64_t n, uint64_t seed, uint64_t stride) {
    rng r = rng_make(seed, 5 + (uint64_t)check.rank);
    for (uint64_t i = 0; i < n; i++) {
        float x = (float)((int)rng_below(&r, 33) - 16) / 16;
        g[i] = stride && i % stride ? 0 : x;
    }
}

static void check_equal(const float *a, const float *b, uint64_t n) {
    uint64_t at = 0;
    while (at < n && a[at] == b[at])
        at++;
    if (CHECK_INT(at, ==, n)) return;
    fprintf(stderr, "  at %llu: %g, %g\n", (unsigned long long)at, a[at], b[at]);
}

static void check_close(const float *a, const float *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (!CHECK(fabsf(a[i] - b[i]) <= 1e-4f)) return;
}

/* ---- forms -------------------------------------------------------------------------------- */

/* The same steps as dense vectors, as streams, as fused tensors, and in two halves. */
static void test_forms(const char *algorithm) {
    check_case("forms of a step, %s", algorithm);
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.density = 0.1;
    rill_reducer *r[4];
    rill_comm *own[4]; /* reducers of one communicator have random numbers of their own each */
    for (int i = 0; i < 4; i++) {
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &own[i]));
        r[i] = make_on(own[i], &o, DIM);
    }
    static float g[DIM], dense[DIM], other[DIM];
    rill_stream *s = NULL;
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &s));
    for (int step = 0; step < 6; step++) {
        exact_gradient(g, DIM, (uint64_t)step, 0);
        CHECK_OK(rill_reducer_step(r[0], g, dense));
        CHECK_OK(rill_reducer_step_stream(r[1], g, s));
        check_valid(s);
        CHECK_OK(rill_stream_get_dense(s, other));
        check_equal(other, dense, DIM);
        memcpy(other, g, sizeof g);
        rill_tensor parts[4] = {{other, other, 7},
                                {other + 7, other + 7, 0},
                                {other + 7, other + 7, 1000},
                                {other + 1007, other + 1007, DIM - 1007}};
        CHECK_OK(rill_reducer_step_tensors(r[2], 4, parts));
        check_equal(other, dense, DIM);
        CHECK_OK(rill_reducer_start(r[3], g, other));
        memset(g, 0x7f, sizeof g); /* free again */
        CHECK_OK(rill_reducer_wait(r[3]));
        /* MPI's own sum may take another order when it does not block: rill.h says so. */
        if (strcmp(algorithm, "s2") == 0) check_close(other, dense, DIM);
        else check_equal(other, dense, DIM);
    }
    rill_stats stats = RILL_STATS_INIT;
    CHECK_OK(rill_reducer_stats(r[0], &stats));
    CHECK(stats.elapsed_s >= stats.select_s + stats.update_s && stats.select_s >= 0);
    CHECK(stats.selected_k > 0 && stats.selected_k <= DIM);
    CHECK_OK(rill_stream_free(&s));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(rill_reducer_free(&r[i]));
        CHECK_OK(rill_comm_free(&own[i]));
    }
}

/* One reducer a layer, all under way, completed in another order than started. */
static void test_many(const char *algorithm) {
    enum { LAYERS = 9 };
    check_case("several under way, %s", algorithm);
    static float g[LAYERS][DIM], u[LAYERS][DIM], alone[DIM];
    rill_reducer *r[LAYERS], *single[LAYERS];
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.density = 0.05;
    rill_comm *own[2];
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &own[i]));
    for (int i = 0; i < LAYERS; i++) {
        r[i] = make_on(own[0], &o, DIM - (uint64_t)i * 100);
        single[i] = make_on(own[1], &o, DIM - (uint64_t)i * 100);
    }
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < LAYERS; i++) {
            exact_gradient(g[i], rill_reducer_dim(r[i]), (uint64_t)(step * LAYERS + i), 0);
            CHECK_OK(rill_reducer_start(r[i], g[i], u[i]));
        }
        for (int i = LAYERS - 1; i >= 0; i--)
            CHECK_OK(rill_reducer_wait(r[i]));
        for (int i = 0; i < LAYERS; i++) {
            CHECK_OK(rill_reducer_step(single[i], g[i], alone));
            if (strcmp(algorithm, "s2") == 0) check_close(u[i], alone, rill_reducer_dim(r[i]));
            else check_equal(u[i], alone, rill_reducer_dim(r[i]));
        }
    }
    for (int i = 0; i < LAYERS; i++) {
        CHECK_OK(rill_reducer_free(&r[i]));
        CHECK_OK(rill_reducer_free(&single[i]));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_free(&own[i]));
}

/* ---- feedback ----------------------------------------------------------------------------- */

/* Momentum correction against a plain model: u = m u + g, v += u, both forget what was sent. */
static void test_momentum(void) {
    check_case("momentum and masking");
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "allgather";
    o.k = 50;
    o.momentum = 0.5;
    for (int masking = 0; masking < 2; masking++) {
        o.masking = masking;
        rill_reducer *r = make(&o, DIM);
        static float g[DIM], update[DIM], velocity[DIM], kept[DIM];
        memset(velocity, 0, sizeof velocity);
        memset(kept, 0, sizeof kept);
        for (int step = 0; step < 10; step++) {
            exact_gradient(g, DIM, 100 + (uint64_t)step, 0);
            CHECK_OK(rill_reducer_step(r, g, update));
            const float *residual = rill_reducer_residual(r);
            for (int i = 0; i < DIM; i++) {
                velocity[i] = 0.5f * velocity[i] + g[i];
                kept[i] += velocity[i];
                if (residual[i] == 0 && kept[i] != 0) { /* sent */
                    kept[i] = 0;
                    if (masking) velocity[i] = 0;
                }
            }
            check_equal(residual, kept, DIM);
        }
        CHECK_OK(rill_reducer_free(&r));
    }
}

static void test_clip(void) {
    check_case("clipping");
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "dense";
    o.average = 0;
    o.clip = 2;
    rill_reducer *r = make(&o, DIM);
    static float g[DIM], update[DIM];
    for (int i = 0; i < DIM; i++)
        g[i] = 3;
    CHECK_OK(rill_reducer_step(r, g, update));
    /* Every rank gives a vector of norm clip / sqrt(P). */
    double expected = 2 * sqrt(check.size) / sqrt(DIM);
    CHECK(fabs(update[0] - expected) < 1e-5 && update[0] == update[DIM - 1]);
    for (int i = 0; i < DIM; i++)
        g[i] = 1e-4f;
    CHECK_OK(rill_reducer_step(r, g, update));
    CHECK(fabs(update[1] - 1e-4 * check.size) < 1e-9);
    CHECK_OK(rill_reducer_free(&r));
}

static void test_warmup(void) {
    check_case("warm-up of the density");
    static const double stages[] = {0.5, 0.1, 0.001};
    static const uint64_t expected[] = {1000, 1000, 200, 200, 20, 20, 20};
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "allgather";
    o.density = 0.01;
    o.warmup = stages;
    o.warmup_stages = 3;
    o.warmup_steps = 2;
    rill_reducer *r = make(&o, 2000);
    static float g[DIM], update[DIM];
    for (int step = 0; step < 7; step++) {
        for (int i = 0; i < 2000; i++)
            g[i] = 1 + (float)i;
        CHECK_OK(rill_reducer_step(r, g, update));
        rill_stats s = RILL_STATS_INIT;
        CHECK_OK(rill_reducer_stats(r, &s));
        CHECK_INT(s.selected_k, ==, expected[step]);
    }
    CHECK_OK(rill_reducer_free(&r));
}

/* What waits counts half; what is sent in this step comes with the gradient. */
static void test_scale(void) {
    check_case("a scaled residual");
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "gtopk";
    o.k = 10;
    rill_reducer *r = make(&o, DIM);
    static float g[DIM], update[DIM], expected[DIM];
    CHECK_OK(rill_reducer_scale(r, 3)); /* of nothing */
    exact_gradient(g, DIM, 11, 0);
    CHECK_OK(rill_reducer_step(r, g, update));
    const float *residual = rill_reducer_residual(r);
    double mass = 0;
    for (int i = 0; i < DIM; i++) {
        expected[i] = residual[i] / 2;
        mass += fabs((double)expected[i]);
    }
    CHECK(mass > 0);
    CHECK_OK(rill_reducer_scale(r, 0.5));
    check_equal(rill_reducer_residual(r), expected, DIM);
    CHECK_STATUS(rill_reducer_scale(r, (double)NAN), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("not finite");
    CHECK_STATUS(rill_reducer_scale(NULL, 1), RILL_ERR_ARGUMENT);
    CHECK_OK(rill_reducer_start(r, g, update));
    CHECK_STATUS(rill_reducer_scale(r, 2), RILL_ERR_STATE);
    CHECK_OK(rill_reducer_wait(r));
    CHECK_OK(rill_reducer_free(&r));
}

/* Coding with few bits on several hops must not feed more back than it delivers. */
static void test_stability(const char *algorithm) {
    enum { STEPS = 60 };
    check_case("stability with 2 bits, %s", algorithm);
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.density = 0.02;
    static float g[DIM], update[DIM];
    double norm[2] = {0};
    for (int coded = 0; coded < 2; coded++) {
        o.value_bits = coded ? 2 : 0;
        rill_reducer *r = NULL;
        rill_status status = rill_reducer_create(comm, RILL_F32, DIM, &o, &r);
        if (coded && status == RILL_ERR_UNSUPPORTED) return;
        CHECK_STATUS(status, RILL_OK);
        for (int step = 0; step < STEPS; step++) {
            exact_gradient(g, DIM, 700 + (uint64_t)step, 0);
            for (int i = 0; i < DIM; i += 31)
                g[i] *= 10;
            CHECK_OK(rill_reducer_step(r, g, update));
        }
        const float *residual = rill_reducer_residual(r);
        for (int i = 0; i < DIM; i++)
            norm[coded] += (double)residual[i] * residual[i];
        MPI_Allreduce(MPI_IN_PLACE, &norm[coded], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        CHECK_OK(rill_reducer_free(&r));
    }
    if (!CHECK(norm[1] <= 16 * norm[0]))
        fprintf(stderr, "  squared norms %g, %g\n", norm[0], norm[1]);
}

/* ---- choice ------------------------------------------------------------------------------- */

static const char *ran(const rill_reducer *r, rill_stats *s) {
    CHECK_OK(rill_reducer_stats(r, s));
    check_same_on_all_ranks("the algorithm", hash_bytes(1, s->algorithm, strlen(s->algorithm)));
    return s->algorithm;
}

/* Parallax's choice: small and dense, naturally sparse, large. */
static void test_choice(void) {
    enum { LARGE = 1 << 21 };
    check_case("the choice for a tensor");
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.select = "auto";
    float *g = calloc(LARGE, sizeof *g), *update = calloc(LARGE, sizeof *update);
    rill_stats s = RILL_STATS_INIT;

    rill_reducer *sparse = make(&o, LARGE); /* a few rows of an embedding: exact, no residual */
    for (int i = 0; i < 3000; i++)
        g[(i * 701 + check.rank * 13) % LARGE] = 1;
    CHECK_OK(rill_reducer_step(sparse, g, update));
    ran(sparse, &s);
    CHECK_INT(s.selected_k, ==, 3000);
    const float *residual = rill_reducer_residual(sparse);
    int left = 0;
    for (int i = 0; i < LARGE; i++)
        left += residual[i] != 0;
    CHECK_INT(left, ==, 0);
    CHECK_OK(rill_reducer_free(&sparse));

    if (check.size > 1) {
        o.density = 0.001;
        rill_reducer *large = make(&o, LARGE);
        rng r = rng_make(9, (uint64_t)check.rank);
        for (int i = 0; i < LARGE; i++)
            g[i] = (float)rng_unit(&r) + 0.1f;
        CHECK_OK(rill_reducer_step(large, g, update));
        CHECK(strcmp(ran(large, &s), "dense") != 0);
        CHECK_INT(s.selected_k, <, LARGE / 100);
        CHECK_OK(rill_reducer_free(&large));
    }
    o.density = 0.5;
    rill_reducer *small = make(&o, 16); /* a bias: everything goes */
    CHECK_OK(rill_reducer_step(small, g, update));
    ran(small, &s);
    CHECK_INT(s.selected_k, ==, 16);
    CHECK_OK(rill_reducer_free(&small));
    free(g);
    free(update);
}

/* ---- errors ------------------------------------------------------------------------------- */

static void test_bad_options(void) {
    check_case("options that are wrong");
    rill_reducer *r = NULL;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
#define WRONG(field, value, status, text)                                                          \
    do {                                                                                           \
        o = (rill_reducer_options)RILL_REDUCER_OPTIONS_INIT;                                       \
        o.field = value;                                                                           \
        CHECK_STATUS(rill_reducer_create(comm, RILL_F32, DIM, &o, &r), status);                    \
        CHECK_DETAIL(text);                                                                        \
        CHECK(r == NULL);                                                                          \
    } while (0)
    WRONG(algorithm, "quick", RILL_ERR_UNKNOWN, "quick");
    WRONG(select, "best", RILL_ERR_UNKNOWN, "best");
    WRONG(codec, "zip", RILL_ERR_UNKNOWN, "zip");
    WRONG(density, 1.5, RILL_ERR_ARGUMENT, "1.5");
    WRONG(density, -0.1, RILL_ERR_ARGUMENT, "-0.1");
    WRONG(momentum, 1.0, RILL_ERR_ARGUMENT, "momentum");
    WRONG(clip, -1.0, RILL_ERR_ARGUMENT, "clip");
    WRONG(value_bits, 3, RILL_ERR_ARGUMENT, "3");
    WRONG(sketch_rows, 99, RILL_ERR_ARGUMENT, "99");
    WRONG(lambda, -2.0, RILL_ERR_ARGUMENT, "lambda");
    o = (rill_reducer_options)RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "dense";
    o.value_bits = 4;
    CHECK_STATUS(rill_reducer_create(comm, RILL_F32, DIM, &o, &r), RILL_ERR_UNSUPPORTED);
    CHECK_STATUS(rill_reducer_create(comm, (rill_type)9, DIM, NULL, &r), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_reducer_create(NULL, RILL_F32, DIM, NULL, &r), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_reducer_step(NULL, NULL, NULL), RILL_ERR_ARGUMENT);
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_reducer_create(comm, RILL_F32, 0, NULL, &r));
    CHECK_OK(rill_reducer_step(r, NULL, NULL)); /* nothing to do */
    CHECK_STATUS(rill_reducer_wait(r), RILL_ERR_STATE);
    CHECK_OK(rill_reducer_free(&r));
}

/* One rank has no gradient: everybody's error, and nobody hangs; what was selected is kept. */
static void test_failure(const char *algorithm) {
    check_case("a rank without a gradient, %s", algorithm);
    rill_comm *own = NULL;
    rill_reducer *r = NULL;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    static float g[DIM], update[DIM];
    exact_gradient(g, DIM, 3, 0);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &own));
    CHECK_OK(rill_reducer_create(own, RILL_F32, DIM, &o, &r));
    int bad = check.size - 1;
    CHECK_STATUS(rill_reducer_step(r, check.rank == bad ? NULL : g, update), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("gradient is NULL");
    const float *residual = rill_reducer_residual(r);
    if (check.rank != bad && strcmp(algorithm, "dense") != 0) check_equal(residual, g, DIM);
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_comm_free(&own));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    const char *name;
    for (int table = 0; table < 2; table++)
        for (int i = 0; (name = rill_algorithm_at(table ? RILL_REDUCER : RILL_ALLREDUCE, i, NULL));
             i++) {
            test_forms(name);
            test_many(name);
            test_failure(name);
            test_stability(name);
        }
    test_forms("auto");
    test_momentum();
    test_clip();
    test_warmup();
    test_scale();
    test_choice();
    test_bad_options();
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(20);
}
