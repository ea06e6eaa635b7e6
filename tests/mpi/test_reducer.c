/* Reducers lose nothing: over many steps, ranks x mean updates + residuals = gradients, elementwise
 * and to rounding, for every algorithm, selection, value coding and type. Updates are bitwise the
 * same on all ranks and in a second run; under a lossless exact algorithm the residual is bitwise
 * the accumulator where nothing was sent, and 0 where it was.
 *   --steps N    (50)
 *   --full       every combination, not one selection and type for each algorithm and coding */
#include "cases.h"

#include <float.h>

static const char *const selections[] = {"topk",  "threshold", "gaussian", "bucket",
                                         "block", "random",    "nonzero"};
enum { SELECTIONS = sizeof selections / sizeof *selections };
static const int codings[] = {0, 16, 8, 4, 2};
enum { CODINGS = sizeof codings / sizeof *codings };
static const char *const codecs[] = {"auto", "raw", "bitpack", "elias_fano", "bitmap"};
enum { CODECS = sizeof codecs / sizeof *codecs };

typedef struct reducer_case {
    const char *algorithm, *select, *codec;
    int bits, exact;
    rill_type type;
    uint64_t dim;
    int average, nonblocking, micro_batches;
    uint64_t seed;
} reducer_case;

/* Gradients whose large entries differ between ranks and move slowly; one rank has none at all. */
static void fill_gradient(const reducer_case *c, int step, void *gradient) {
    rng r = rng_make(c->seed + (uint64_t)step, 77 + (uint64_t)check.rank);
    for (uint64_t i = 0; i < c->dim; i++) {
        double x = rng_unit(&r) - 0.5;
        if ((i * 31 + (uint64_t)check.rank + (uint64_t)step / 8) % 53 == 0) x *= 12;
        if (i % 5 == 0 || (check.rank == 1 && step % 3 == 0)) x = 0;
        value_store(c->type, gradient, i, x);
    }
}

/* What goes in and comes out, by element, in f64; size is the sum of all magnitudes, for rounding.
 */
typedef struct account {
    double *in, *out, *size;
    unsigned char *accumulator, *before;
} account;

static account account_make(const reducer_case *c) {
    size_t bytes = (size_t)c->dim * sizeof(double) + 8;
    return (account){calloc(1, bytes), calloc(1, bytes), calloc(1, bytes), malloc(bytes),
                     calloc(1, bytes)};
}
static void account_free(account *a) {
    free(a->in);
    free(a->out);
    free(a->size);
    free(a->accumulator);
    free(a->before);
}
static void account_gradient(const reducer_case *c, account *a, const void *gradient) {
    for (uint64_t i = 0; i < c->dim; i++) {
        double x = value_load(c->type, gradient, i);
        a->in[i] += x;
        a->size[i] += fabs(x);
    }
}
static void account_update(const reducer_case *c, account *a, const void *update,
                           const rill_reducer *r) {
    const void *residual = rill_reducer_residual(r);
    double share = c->average ? 1 : 1.0 / check.size;
    for (uint64_t i = 0; i < c->dim; i++) {
        double x = value_load(c->type, update, i) * share;
        a->out[i] += x;
        a->size[i] += fabs(x) + fabs(value_load(c->type, residual, i));
    }
}

static void check_conserved(const reducer_case *c, account *a, const rill_reducer *r) {
    const void *residual = rill_reducer_residual(r);
    double *balance = malloc((size_t)c->dim * sizeof *balance + 8);
    for (uint64_t i = 0; i < c->dim; i++)
        balance[i] = a->out[i] + value_load(c->type, residual, i) - a->in[i];
    MPI_Allreduce(MPI_IN_PLACE, balance, (int)c->dim, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, a->size, (int)c->dim, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double unit = value_epsilon(c->type);
    for (uint64_t i = 0; i < c->dim; i++) {
        /* The audit itself rounds as well, in f64. */
        double most = (2 * unit + 8 * DBL_EPSILON) * (a->size[i] + 1e-3);
        if (fabs(balance[i]) <= most) continue;
        check_failed(__FILE__, __LINE__, "entry %llu: %g too much, rounding explains %g",
                     (unsigned long long)i, balance[i], most);
        break;
    }
    check.checks++;
    free(balance);
}

/* Bit by bit: what was not sent is the old residual plus the gradient, what was sent is gone. */
static void check_residual(const reducer_case *c, account *a, const void *gradient,
                           const rill_reducer *r) {
    size_t size = value_size(c->type);
    const unsigned char *residual = rill_reducer_residual(r);
    rill_stats s = RILL_STATS_INIT;
    CHECK_OK(rill_reducer_stats(r, &s));
    uint64_t gone = 0, wrong = 0;
    for (uint64_t i = 0; i < c->dim; i++) {
        double sum = value_load(c->type, a->before, i) + value_load(c->type, gradient, i);
        value_store(c->type, a->accumulator, i, sum);
        int kept = memcmp(residual + i * size, a->accumulator + i * size, size) == 0;
        int zero = value_load(c->type, residual, i) == 0;
        gone += (uint64_t)(zero && !kept);
        wrong += (uint64_t)(!zero && !kept);
    }
    CHECK_INT(wrong, ==, 0);
    CHECK_INT(gone, <=, s.selected_k);
    memcpy(a->before, residual, (size_t)c->dim * size);
}

static void step(const reducer_case *c, rill_reducer *r, void *gradient, void *update, int number) {
    for (int i = 0; i < c->micro_batches; i++)
        CHECK_OK(rill_reducer_accumulate(r, gradient));
    if (!c->nonblocking) {
        CHECK_OK(rill_reducer_step(r, gradient, update));
        return;
    }
    CHECK_OK(rill_reducer_start(r, gradient, update));
    int done = number % 2;
    rill_status status = RILL_OK;
    while (!done)
        status = rill_reducer_test(r, &done);
    CHECK_OK(status);
    if (number % 2) CHECK_OK(rill_reducer_wait(r));
}

/* Runs the case on a communicator of its own and returns a hash of all updates. */
static uint64_t run_case(const reducer_case *c, int steps, int audit) {
    rill_comm *comm = NULL;
    rill_reducer *r = NULL;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = c->algorithm;
    o.select = c->select;
    o.codec = c->codec;
    o.value_bits = c->bits;
    o.density = 0.05;
    o.average = c->average;
    o.seed = 7;
    o.bucket = 64;
    o.block = 16;
    o.threshold_interval = 8;
    o.repartition_interval = 16;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    rill_status created = rill_reducer_create(comm, c->type, c->dim, &o, &r);
    uint64_t hash = 1;
    if (created == RILL_ERR_UNSUPPORTED && c->bits) { /* MPI sums values as they are */
        CHECK_DETAIL("value_bits");
        steps = 0;
    } else if (!check_status(__FILE__, __LINE__, "rill_reducer_create", created, RILL_OK)) {
        steps = 0;
    }
    account a = account_make(c);
    void *gradient = malloc((size_t)c->dim * 8 + 8), *update = malloc((size_t)c->dim * 8 + 8);
    for (int i = 0; i < steps; i++) {
        fill_gradient(c, i, gradient);
        for (int m = 0; audit && m <= c->micro_batches; m++)
            account_gradient(c, &a, gradient);
        void *into = i % 4 == 3 ? gradient : update; /* the update may take the gradient's place */
        step(c, r, gradient, into, i);
        hash = hash_bytes(hash, into, (size_t)c->dim * value_size(c->type));
        if (!audit) continue;
        account_update(c, &a, into, r);
        if (c->exact && !c->bits && !c->micro_batches && into != gradient)
            check_residual(c, &a, gradient, r);
        else memcpy(a.before, rill_reducer_residual(r), (size_t)c->dim * value_size(c->type));
    }
    if (audit && steps) check_conserved(c, &a, r);
    check_same_on_all_ranks("the update", hash);
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_comm_free(&comm));
    account_free(&a);
    free(gradient);
    free(update);
    return hash;
}

static void run_twice(const reducer_case *c, int steps, long number) {
    check_case("case %ld: %s, select %s, codec %s, %d bit, %s, dim %llu%s%s", number, c->algorithm,
               c->select ? c->select : "default", c->codec, c->bits, rill_type_name(c->type),
               (unsigned long long)c->dim, c->average ? "" : ", sum",
               c->nonblocking ? ", non-blocking" : "");
    uint64_t first = run_case(c, steps, 1);
    if (number % 4) return;
    CHECK(run_case(c, steps, 0) == first);
}

static const char *algorithm_at(int i, int *exact) {
    int n = 0;
    while (rill_algorithm_at(RILL_ALLREDUCE, n, NULL))
        n++;
    *exact = i < n;
    return i < n ? rill_algorithm_at(RILL_ALLREDUCE, i, NULL)
                 : rill_algorithm_at(RILL_REDUCER, i - n, NULL);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    int steps = (int)check_number(argc, argv, "--steps", 50);
    int full = check_argument(argc, argv, "--full") != NULL, exact;
    static const uint64_t dims[] = {1009, 257, 3001, 5};
    long number = 0;
    const char *name;
    for (int i = 0; (name = algorithm_at(i, &exact)); i++)
        for (int b = 0; b < CODINGS; b++)
            for (int s = -1; s < SELECTIONS; s++)
                for (int t = 0; t < TYPE_COUNT; t++) {
                    /* One of the selections and types, another for each algorithm and coding. */
                    int pick = (i * CODINGS + b) % (SELECTIONS + 1) - 1;
                    if (!full && (s != pick || t != (i + b) % TYPE_COUNT)) continue;
                    rng r = rng_make(check.seed, 900 + (uint64_t)number);
                    reducer_case c = {.algorithm = name,
                                      .select = s < 0 ? NULL : selections[s],
                                      .codec = codecs[number % CODECS],
                                      .bits = codings[b],
                                      .exact = exact,
                                      .type = test_types[t],
                                      .dim = dims[rng_below(&r, 16) % 13 / 4],
                                      .average = number % 3 != 0,
                                      .nonblocking = number % 2 != 0,
                                      .micro_batches = number % 5 == 0,
                                      .seed = rng_next(&r)};
                    run_twice(&c, steps, number++);
                }
    return check_finish(40);
}
