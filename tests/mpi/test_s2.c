/* What is special to algorithm "s2": the union is exact, a roomy sketch is too, sizes are those of
 * the formulas, nothing is lost with feedback and residuals stay bounded, hashes repeat. */
#include "cases.h"

#include <stdbool.h>

enum { DIM = 3001 };

static rill_comm *comm;
static bool reads; /* sketches are read from the others' memory, where that is allowed */

static uint64_t bytes_hash(const void *bytes, size_t n) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static rill_reducer_options options(void) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "s2";
    o.seed = check.seed;
    return o;
}

static rill_reducer *reducer(rill_type type, uint64_t dim, const rill_reducer_options *o) {
    rill_reducer *r = NULL;
    CHECK_OK(rill_reducer_create(comm, type, dim, o, &r));
    return r;
}

/* Small integers at about one entry in gap; none on this rank where it is idle. */
static void sparse_gradient(rill_type type, uint64_t dim, uint64_t gap, int idle, rng *r,
                            void *gradient) {
    for (uint64_t i = 0; i < dim; i++) {
        double x = (double)(1 + rng_below(r, 8)) * (rng_next(r) & 1 ? 1 : -1);
        value_store(type, gradient, i, !idle && rng_below(r, gap) == 0 ? x : 0);
    }
}

/* Marks the entries that a rank has, or whose block of that size has one. */
static uint64_t union_of(rill_type type, uint64_t dim, uint64_t block, const void *gradient,
                         double *sum, char *in_union) {
    double *mine = calloc(dim + 1, sizeof *mine);
    char *marks = calloc(dim + 1, 1);
    uint64_t n = 0;
    for (uint64_t i = 0; i < dim; i++) {
        mine[i] = value_load(type, gradient, i);
        if (mine[i] == 0) continue;
        for (uint64_t j = i / block * block; j < dim && j < (i / block + 1) * block; j++)
            marks[j] = 1;
    }
    MPI_Allreduce(mine, sum, (int)dim, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(marks, in_union, (int)dim, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    for (uint64_t i = 0; i < dim; i++)
        n += (uint64_t)in_union[i];
    free(mine);
    free(marks);
    return n;
}

static uint64_t bytes_of_ring(uint64_t bytes) {
    return 2 * (uint64_t)(check.size - 1) * bytes / (uint64_t)check.size;
}

/* Sketch and bitmap, and 128 bytes for each message of an agreement. */
static void check_volume(const rill_reducer *r, rill_type type, uint64_t dim, uint64_t block,
                         int rows, double lambda, uint64_t entries) {
    rill_stats st = RILL_STATS_INIT;
    CHECK_OK(rill_reducer_stats(r, &st));
    CHECK_STRING(st.algorithm, "s2");
    CHECK_STRING(st.codec, "raw");
    CHECK_INT(st.nnz_out, ==, entries);
    if (check.size == 1) {
        CHECK_INT(st.sent_bytes, ==, 0);
        return;
    }
    if (test_link_is_ucx() || reads) return; /* sums of rill's own have other bytes */
    uint64_t units = (dim + block - 1) / block, bitmap = (units + 63) / 64 * 8;
    uint64_t width = (uint64_t)ceil(lambda * (double)entries / rows);
    if (width > entries) width = entries;
    uint64_t sketch = width * (uint64_t)rows * (type == RILL_F64 ? 8 : 4);
    uint64_t ring = 2 * (uint64_t)(check.size - 1) * (sketch ? 2 : 1);
    CHECK_INT(st.messages, >=, ring);
    CHECK_INT(st.sent_bytes, ==,
              bytes_of_ring(bitmap) + bytes_of_ring(sketch) + 128 * (st.messages - ring));
    CHECK_INT(st.recv_bytes, >=, bytes_of_ring(bitmap) + bytes_of_ring(sketch));
}

/* Without feedback: indices are the union of the supports; values exact where the sketch has room.
 */
static void exact(rill_type type, uint64_t dim, uint64_t gap, uint64_t block, int rows,
                  double lambda, int idle) {
    check_case("exact: %s, dim %llu, 1 in %llu, block %llu, rows %d, lambda %g, idle %d",
               rill_type_name(type), (unsigned long long)dim, (unsigned long long)gap,
               (unsigned long long)block, rows, lambda, idle);
    rill_reducer_options o = options();
    o.feedback = o.average = 0;
    o.select = "nonzero";
    o.block = block;
    o.lambda = lambda;
    o.sketch_rows = rows;
    rill_reducer *r = reducer(type, dim, &o);
    rill_stream *update = NULL;
    CHECK_OK(rill_stream_create(type, dim, &update));
    void *gradient = calloc(dim + 1, rill_type_size(type));
    double *sum = calloc(dim + 1, sizeof *sum), *got = calloc(dim + 1, sizeof *got);
    char *marks = calloc(dim + 1, 1);
    rng g = rng_make(check.seed + 100, (uint64_t)check.rank);
    for (int t = 0; t < 3; t++) {
        int quiet = idle == 2 || (idle == 1 && check.rank % 2 == 0);
        sparse_gradient(type, dim, gap, quiet, &g, gradient);
        uint64_t unit = check.size > 1 && block ? block : 1; /* alone, the input is the result */
        uint64_t entries = union_of(type, dim, unit, gradient, sum, marks);
        CHECK_OK(rill_reducer_step_stream(r, gradient, update));
        check_volume(r, type, dim, unit, rows, lambda, entries);
        check_same_on_all_ranks("the update", stream_hash(update));
        if (!CHECK_INT(rill_stream_nnz(update), ==, entries)) break;
        const uint32_t *idx = rill_stream_indices32(update);
        const void *val = rill_stream_values(update);
        for (uint64_t i = 0, n = 0; i < dim && entries; i++) {
            if (!marks[i]) continue;
            CHECK_INT(idx[n], ==, i);
            if (lambda >= rows) CHECK_NUMBER(value_load(type, val, n), sum[i]);
            n++;
        }
        rill_stats st = RILL_STATS_INIT;
        CHECK_OK(rill_reducer_stats(r, &st));
        if (lambda >= rows || check.size == 1 || entries < 2) CHECK(st.collision_error == 0);
        else if (entries > 100 && !block) CHECK(st.collision_error > 0.1 && st.collision_error < 5);
        const void *residual = rill_reducer_residual(r);
        for (uint64_t i = 0; i < dim; i++)
            if (!CHECK_NUMBER(value_load(type, residual, i), 0)) break;
    }
    free(gradient);
    free(sum);
    free(got);
    free(marks);
    rill_stream_free(&update);
    CHECK_OK(rill_reducer_free(&r));
}

/* The estimate has no bias: averaged over steps of the same gradient it comes close to the sum. */
static void unbiased(void) {
    enum { N = 300, STEPS = 150 };
    check_case("unbiased");
    rill_reducer_options o = options();
    o.feedback = o.average = 0;
    o.select = "nonzero";
    rill_reducer *r = reducer(RILL_F32, N, &o);
    float gradient[N], update[N];
    double mean[N] = {0}, sum[N], error2 = 0, norm2 = 0, first = 0;
    char marks[N];
    rng g = rng_make(check.seed, (uint64_t)check.rank);
    sparse_gradient(RILL_F32, N, 1, 0, &g, gradient);
    union_of(RILL_F32, N, 1, gradient, sum, marks);
    for (int t = 0; t < STEPS; t++) {
        CHECK_OK(rill_reducer_step(r, gradient, update));
        for (int i = 0; i < N; i++)
            mean[i] += (double)update[i] / STEPS;
        for (int i = 0; i < N && t == 0; i++)
            first += ((double)update[i] - sum[i]) * ((double)update[i] - sum[i]);
    }
    for (int i = 0; i < N; i++) {
        error2 += (mean[i] - sum[i]) * (mean[i] - sum[i]);
        norm2 += sum[i] * sum[i];
    }
    rill_stats st = RILL_STATS_INIT;
    CHECK_OK(rill_reducer_stats(r, &st));
    if (check.size == 1) CHECK(error2 < 1e-20 * norm2);
    else { /* errors of steps are independent: 150 of them leave a 12th */
        CHECK(sqrt(error2 / norm2) < 2 * sqrt(first / norm2) / sqrt(STEPS));
        double ratio = st.collision_error / sqrt(first / norm2);
        CHECK(ratio > 0.5 && ratio < 2);
    }
    CHECK_OK(rill_reducer_free(&r));
}

/* Sums over all ranks of what was fed, and of what was given plus what is left, agree. */
static double violation(uint64_t dim, const double *fed, const double *given, const void *residual,
                        rill_type type, double *largest) {
    double *mine = calloc(2 * dim + 1, sizeof *mine), *all = calloc(2 * dim + 1, sizeof *all);
    for (uint64_t i = 0; i < dim; i++) {
        mine[i] = fed[i];
        mine[dim + i] = value_load(type, residual, i);
    }
    MPI_Allreduce(mine, all, (int)(2 * dim), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double worst = 0;
    for (uint64_t i = 0; i < dim; i++) {
        worst = fmax(worst, fabs(given[i] + all[dim + i] - all[i]));
        *largest = fmax(*largest, fabs(all[i]));
    }
    free(mine);
    free(all);
    return worst;
}

static double norm_of(rill_type type, const void *values, uint64_t dim) {
    double square = 0;
    for (uint64_t i = 0; i < dim; i++)
        square += value_load(type, values, i) * value_load(type, values, i);
    return sqrt(square);
}

/* Ranks differ by noise, and by a part that is the same in each step. */
static void conserves(rill_type type, const char *select, uint64_t block, int rows, double lambda,
                      double density) {
    enum { STEPS = 50 };
    check_case("conserves: %s, %s, block %llu, rows %d, lambda %g", rill_type_name(type), select,
               (unsigned long long)block, rows, lambda);
    rill_reducer_options o = options();
    o.select = select;
    o.block = block;
    o.sketch_rows = rows;
    o.lambda = lambda;
    o.density = density;
    o.average = 0;
    rill_reducer *r = reducer(type, DIM, &o);
    size_t size = rill_type_size(type);
    char *gradient = calloc(DIM, size), *update = calloc(DIM, size);
    double *fed = calloc(DIM, sizeof *fed), *given = calloc(DIM, sizeof *given);
    rng g = rng_make(check.seed + 7, (uint64_t)check.rank);
    double early = 0, late = 0, one = 0;
    for (int t = 0; t < STEPS; t++) {
        rng own = rng_make(check.seed + 8, (uint64_t)check.rank);
        for (uint64_t i = 0; i < DIM; i++) {
            double x = rng_unit(&g) - 0.5 + 0.3 * (rng_unit(&own) - 0.5);
            value_store(type, gradient, i, x);
            fed[i] += value_load(type, gradient, i);
        }
        CHECK_OK(rill_reducer_step(r, gradient, update));
        for (uint64_t i = 0; i < DIM; i++)
            given[i] += value_load(type, update, i);
        if (t % 10 == 0) check_same_on_all_ranks("the update", bytes_hash(update, DIM * size));
        one = norm_of(type, gradient, DIM);
        double now = norm_of(type, rill_reducer_residual(r), DIM);
        if (t == STEPS / 2) early = now;
        if (t == STEPS - 1) late = now;
    }
    double largest = 0;
    double worst = violation(DIM, fed, given, rill_reducer_residual(r), type, &largest);
    double unit = type == RILL_F64 ? 0x1p-53 : type == RILL_F32 ? 0x1p-24 : 0x1p-8;
    CHECK(worst <= 4.0 * STEPS * check.size * unit * largest);
    /* With all entries sent and a cell for each, nothing waits; with fewer cells each residual is a
     * few gradients; with some entries sent, the others wait their turn. */
    if (density == 1 && lambda >= rows) CHECK(late <= 1e-5 * one);
    else if (density == 1 && check.size > 1) CHECK(late < 1.5 * early && late < 12 * one);
    else CHECK(late <= 2.5 * early);
    free(gradient);
    free(update);
    free(fed);
    free(given);
    CHECK_OK(rill_reducer_free(&r));
}

/* Several steps in flight, with a collective of MPI's in between, waited for in any order. */
static void in_flight(void) {
    enum { N = 3, LENGTH = 700 };
    check_case("in flight");
    rill_reducer *r[N];
    static float gradient[N][LENGTH], update[N][LENGTH], again[N][LENGTH];
    rill_stream *s = NULL;
    CHECK_OK(rill_stream_create(RILL_F32, LENGTH, &s));
    for (int i = 0; i < N; i++) {
        rill_reducer_options o = options();
        o.density = 0.1;
        o.lambda = 8; /* exact, so that the seed of a reducer does not matter */
        r[i] = reducer(RILL_F32, LENGTH, &o);
        rng g = rng_make(check.seed + (uint64_t)i, (uint64_t)check.rank);
        for (int j = 0; j < LENGTH; j++)
            gradient[i][j] = (float)rng_unit(&g);
    }
    for (int t = 0; t < 5; t++) {
        rill_options dense = RILL_OPTIONS_INIT;
        dense.algorithm = "dense";
        rill_request *q = NULL;
        float one = 1;
        uint32_t at = 3;
        CHECK_OK(rill_stream_set_pairs(s, 1, &at, &one));
        CHECK_OK(rill_reducer_start(r[0], gradient[0], update[0]));
        CHECK_OK(rill_reducer_start(r[1], gradient[1], update[1]));
        CHECK_OK(rill_iallreduce(comm, s, s, RILL_SUM, &dense, &q));
        CHECK_OK(rill_reducer_start(r[2], gradient[2], update[2]));
        for (int i = 0; i < N; i++)
            CHECK_OK(rill_reducer_wait(r[(i + check.rank + t) % N]));
        CHECK_OK(rill_wait(q));
        CHECK_OK(rill_request_free(&q));
        float values[LENGTH];
        CHECK_OK(rill_stream_get_dense(s, values));
        CHECK_NUMBER((double)values[3], check.size);
    }
    for (int i = 0; i < N; i++) {
        CHECK_OK(rill_reducer_free(&r[i]));
        rill_reducer_options o = options();
        o.density = 0.1;
        o.lambda = 8;
        r[i] = reducer(RILL_F32, LENGTH, &o);
        for (int t = 0; t < 5; t++)
            CHECK_OK(rill_reducer_step(r[i], gradient[i], again[i]));
        for (int j = 0; j < LENGTH; j++)
            CHECK(fabsf(again[i][j] - update[i][j]) < 1e-4f); /* MPI sums in another order */
        CHECK_OK(rill_reducer_free(&r[i]));
    }
    rill_stream_free(&s);
}

/* Hashes come from the seed and the step alone. */
static uint64_t run_hash(uint64_t seed, int steps) {
    rill_comm *fresh = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &fresh));
    rill_reducer_options o = options();
    o.seed = seed;
    o.density = 0.05;
    rill_reducer *r = NULL;
    CHECK_OK(rill_reducer_create(fresh, RILL_F32, DIM, &o, &r));
    float *gradient = calloc(DIM, sizeof *gradient), *update = calloc(DIM, sizeof *update);
    rng g = rng_make(5, (uint64_t)check.rank);
    for (int t = 0; t < steps; t++) {
        for (int i = 0; i < DIM; i++)
            gradient[i] = (float)(rng_unit(&g) - 0.5);
        CHECK_OK(rill_reducer_step(r, gradient, update));
    }
    uint64_t hash = bytes_hash(update, DIM * sizeof *update);
    free(gradient);
    free(update);
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_comm_free(&fresh));
    return hash;
}

static void repeats(void) {
    check_case("repeats");
    CHECK(run_hash(1, 4) == run_hash(1, 4));
    if (check.size > 1) CHECK(run_hash(1, 4) != run_hash(2, 4));
}

static void refuses(void) {
    check_case("refuses");
    rill_reducer_options o = options();
    o.value_bits = 8;
    rill_reducer *r = NULL;
    CHECK_STATUS(rill_reducer_create(comm, RILL_F32, DIM, &o, &r), RILL_ERR_UNSUPPORTED);
    CHECK_DETAIL("value_bits must be 0");
    CHECK(r == NULL);
}

/* On one host, sketches of any length are summed as long ones are. */
static void by_reading(void) {
    setenv("RILL_READ_BYTES", "1", 1);
    reads = true;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    for (int t = 0; t < TYPE_COUNT; t++)
        exact(test_types[t], DIM, 50, 0, 3, 8, 0);
    exact(RILL_F32, DIM, 50, 0, 3, 0.5, 0);
    exact(RILL_F32, DIM, 20, 0, 3, 0.5, 2);
    exact(RILL_F64, 1, 1, 0, 3, 0.5, 0);
    exact(RILL_F32, 300000, 3, 0, 3, 8, 1);
    unbiased();
    conserves(RILL_F32, "topk", 0, 3, 0.5, 0.05);
    conserves(RILL_F64, "random", 64, 2, 2, 0.05);
    conserves(RILL_BF16, "topk", 0, 3, 0.5, 0.05);
    in_flight();
    repeats();
    CHECK_OK(rill_comm_free(&comm));
    unsetenv("RILL_READ_BYTES");
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    for (int t = 0; t < TYPE_COUNT; t++) {
        exact(test_types[t], DIM, 50, 0, 3, 8, 0);
        exact(test_types[t], DIM, 50, 0, 3, 0.5, 0);
        exact(test_types[t], DIM, 400, 16, 1, 1, 0);
    }
    exact(RILL_F32, DIM, 20, 0, 1, 0.5, 1);
    exact(RILL_F32, DIM, 20, 0, 3, 0.5, 2);
    exact(RILL_F32, DIM, 1, 0, 4, 0.3, 0);
    exact(RILL_F32, DIM, 300, 100, 5, 0.5, 1);
    exact(RILL_F32, DIM, 300, 2 * DIM, 3, 0.5, 0);
    exact(RILL_F64, 1, 1, 0, 3, 0.5, 0);
    exact(RILL_F32, 3, 2, 0, 3, 0.5, 1);
    exact(RILL_F32, 64, 3, 1, 15, 0.5, 0);
    unbiased();
    conserves(RILL_F32, "topk", 0, 3, 0.5, 0.05);
    conserves(RILL_F32, "topk", 0, 1, 0.5, 1);
    conserves(RILL_F32, "topk", 0, 3, 0.5, 1);
    conserves(RILL_F32, "topk", 0, 1, 1, 1);
    conserves(RILL_F32, "topk", 0, 4, 0.5, 1);
    conserves(RILL_F32, "block", 32, 3, 0.5, 0.1);
    conserves(RILL_F64, "threshold", 0, 3, 0.5, 0.05);
    conserves(RILL_F64, "random", 64, 2, 2, 0.05);
    conserves(RILL_BF16, "topk", 0, 3, 0.5, 0.05);
    conserves(RILL_F16, "gaussian", 0, 3, 1, 0.05);
    in_flight();
    repeats();
    refuses();
    CHECK_OK(rill_comm_free(&comm));
    by_reading();
    return check_finish(36);
}
