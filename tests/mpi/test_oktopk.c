/* What is special to the reducer algorithm oktopk.
 *   oracle     a selector of our own tells what every rank sends; of its dense sum exactly the
 * entries from some magnitude on are delivered, with the bits of that sum, and all others stay
 *   volume     words per rank in steps without re-evaluation, on uniform supports: 6k(P-1)/P at
 * most skew       all entries in one region: regions by quantiles, and shares that are evened out,
 * relieve the busiest rank, and change no bit of the result count      entries delivered stay near
 * k while gradients drift failure    after a failed step, the next ones work
 *   --verbose  prints the volumes and counts that were measured */
#include "cases.h"

enum { BARE = 48, SHORT = 64 }; /* bytes of headers, docs/reference/format.md */

static int verbose;

/* ---- gradients ------------------------------------------------------------------------------ */

typedef enum shape {
    UNIFORM,
    REGION,
    OWN_REGIONS,
    ONE_RANK,
    EMPTY,
    CANCELLING,
    FULL,
    SHAPES
} shape;
static const char *const shape_names[SHAPES] = {"uniform", "region",     "own_regions", "one_rank",
                                                "empty",   "cancelling", "full"};

typedef struct ok_case {
    shape shape;
    rill_type type;
    uint64_t dim, k;
    const char *partition, *select, *codec;
    int bits;
    double trigger;
    uint64_t seed;
} ok_case;

/* Integers whose sums over ranks and steps are exact in the type. */
static double exact_value(rill_type type, rng *r) {
    double most = type == RILL_F16 ? 7 : type == RILL_BF16 ? 3 : 4095;
    double x = floor(rng_unit(r) * (2 * most + 1)) - most;
    return x;
}

static int in_support(const ok_case *c, uint64_t i) {
    uint64_t part = c->dim / 16 + 1, size = (uint64_t)check.size, rank = (uint64_t)check.rank;
    switch (c->shape) {
    case REGION: return i < part;
    case OWN_REGIONS: return i / part == (rank < 2 ? rank : 14) % 16;
    case ONE_RANK: return rank == c->seed % size;
    case EMPTY: return 0;
    default: return 1;
    }
}

static void fill_gradient(const ok_case *c, int step, void *gradient) {
    rng r = rng_make(c->seed + (uint64_t)step * 1000, (uint64_t)check.rank);
    rng shared = rng_make(c->seed + (uint64_t)step * 1000, 5000);
    for (uint64_t i = 0; i < c->dim; i++) {
        double x = exact_value(c->type, &r), common = exact_value(c->type, &shared);
        if (c->shape == CANCELLING && check.size % 2 == 0) x = check.rank % 2 ? common : -common;
        if (c->shape != FULL && c->shape != CANCELLING && rng_below(&r, 4)) x = 0;
        if (!in_support(c, i)) x = 0;
        value_store(c->type, gradient, i, x);
    }
}

static rill_reducer *make_reducer(rill_comm *comm, const ok_case *c) {
    rill_reducer *r = NULL;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "oktopk";
    o.select = c->select;
    o.codec = c->codec;
    o.value_bits = c->bits;
    o.partition = c->partition;
    o.k = c->k;
    o.average = 0;
    o.threshold_interval = 4;
    o.repartition_interval = 6;
    o.balance_trigger = c->trigger;
    CHECK_OK(rill_reducer_create(comm, c->type, c->dim, &o, &r));
    return r;
}

/* ---- oracle --------------------------------------------------------------------------------- */

typedef struct oracle {
    rill_selector *selector;
    rill_stream *selected;
    void *kept;           /* residual after the selection */
    double *sum;          /* of what all ranks selected */
    unsigned char *gives; /* this rank selected it */
    void *given;          /* with that value */
} oracle;

static oracle oracle_make(const ok_case *c) {
    oracle o = {NULL,
                NULL,
                malloc(c->dim * 8 + 8),
                malloc(c->dim * 8 + 8),
                malloc(c->dim + 8),
                malloc(c->dim * 8 + 8)};
    rill_select_options s = RILL_SELECT_OPTIONS_INIT;
    s.method = c->select ? c->select : "threshold";
    s.k = c->k < c->dim ? c->k : c->dim;
    s.interval = 4;
    CHECK_OK(rill_selector_create(c->type, c->dim, &s, &o.selector));
    CHECK_OK(rill_stream_create(c->type, c->dim, &o.selected));
    return o;
}

static void oracle_free(oracle *o) {
    rill_selector_free(&o->selector);
    rill_stream_free(&o->selected);
    free(o->kept);
    free(o->sum);
    free(o->gives);
    free(o->given);
}

/* Before the step: what all ranks are about to send. Collective. */
static void oracle_select(const ok_case *c, oracle *o, const rill_reducer *r,
                          const void *gradient) {
    size_t size = value_size(c->type);
    memcpy(o->kept, rill_reducer_residual(r), c->dim * size);
    CHECK_OK(rill_select_residual(o->selector, gradient, o->kept, o->selected));
    CHECK_OK(rill_stream_get_dense(o->selected, o->given));
    uint64_t n = rill_stream_nnz(o->selected), *idx = stream_indices(o->selected);
    memset(o->gives, 0, c->dim);
    for (uint64_t i = 0; i < n; i++)
        o->gives[idx[i]] = 1;
    free(idx);
    for (uint64_t i = 0; i < c->dim; i++)
        o->sum[i] = value_load(c->type, o->given, i);
    MPI_Allreduce(MPI_IN_PLACE, o->sum, (int)c->dim, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void oracle_check(const ok_case *c, const oracle *o, const rill_reducer *r,
                         rill_stream *update) {
    size_t size = value_size(c->type);
    check_valid(update);
    CHECK_OK(rill_stream_to_sparse(update));
    uint64_t n = rill_stream_nnz(update), *idx = stream_indices(update), at = 0;
    const unsigned char *val = rill_stream_values(update), *kept = o->kept, *given = o->given;
    const unsigned char *residual = rill_reducer_residual(r);
    double least = INFINITY, most = 0;
    uint64_t wrong_value = 0, wrong_residual = 0;
    for (uint64_t i = 0; i < c->dim; i++) {
        int delivered = at < n && idx[at] == i;
        double magnitude = fabs(o->sum[i]);
        if (delivered) {
            least = fmin(least, magnitude);
            unsigned char want[8];
            value_store(c->type, want, 0, o->sum[i]);
            wrong_value += memcmp(val + at++ * size, want, size) != 0;
        } else {
            most = fmax(most, magnitude);
        }
        const unsigned char *stays = o->gives[i] && !delivered ? given : kept;
        wrong_residual += value_load(c->type, residual, i) != value_load(c->type, stays, i);
    }
    CHECK_INT(at, ==, n);
    CHECK_INT(wrong_value, ==, 0);
    CHECK_INT(wrong_residual, ==, 0);
    CHECK(least > most); /* everything from a threshold on, and nothing below */
    free(idx);
}

/* Runs some steps; a hash of all updates. */
static uint64_t run_case(rill_comm *comm, const ok_case *c, int steps, int audit) {
    rill_reducer *r = make_reducer(comm, c);
    rill_stream *update = NULL;
    CHECK_OK(rill_stream_create(c->type, c->dim, &update));
    oracle o = oracle_make(c);
    void *gradient = malloc(c->dim * 8 + 8);
    uint64_t hash = 1;
    for (int i = 0; i < steps; i++) {
        fill_gradient(c, i, gradient);
        if (audit) oracle_select(c, &o, r, gradient);
        if (!check_all_ok(rill_reducer_step_stream(r, gradient, update))) break;
        CHECK_OK(rill_stream_to_sparse(update));
        uint64_t own = stream_hash(update);
        hash = hash_bytes(hash, &own, sizeof own);
        if (audit) oracle_check(c, &o, r, update);
    }
    check_same_on_all_ranks("the update", hash);
    CHECK_OK(rill_reducer_free(&r));
    rill_stream_free(&update);
    oracle_free(&o);
    free(gradient);
    return hash;
}

static void test_oracle(rill_comm *comm, int rounds) {
    static const char *const partitions[] = {NULL, "uniform", "balanced"};
    static const char *const codecs[] = {"raw", "auto", "bitpack"};
    uint64_t size = (uint64_t)check.size;
    uint64_t dims[] = {1, size > 1 ? size - 1 : 1, 3 * size, 1000, 3001};
    for (int number = 0; number < rounds * SHAPES; number++) {
        rng q = rng_make(check.seed, 300 + (uint64_t)number);
        ok_case c = {.shape = (shape)(number % SHAPES),
                     .type = test_types[rng_below(&q, TYPE_COUNT)],
                     .dim = dims[rng_below(&q, 5)],
                     .codec = codecs[rng_below(&q, 3)],
                     .partition = partitions[rng_below(&q, 3)],
                     .trigger = rng_below(&q, 2) ? 1.01 : 0,
                     .seed = rng_next(&q)};
        uint64_t ks[] = {1, size / 2 + 1, c.dim / 50 + 1, c.dim / 4 + 1, c.dim};
        c.k = ks[rng_below(&q, 5)];
        check_case("oracle %d: %s %s dim=%llu k=%llu partition=%s trigger=%g codec=%s", number,
                   shape_names[c.shape], rill_type_name(c.type), (unsigned long long)c.dim,
                   (unsigned long long)c.k, c.partition ? c.partition : "(unset)", c.trigger,
                   c.codec);
        uint64_t hash = run_case(comm, &c, 10, 1);
        if (number % 3 == 0) CHECK(run_case(comm, &c, 10, 0) == hash);
    }
}

/* ---- volume --------------------------------------------------------------------------------- */

/* Bytes of headers that a rank sends (and receives) in a step without agreements. */
static uint64_t header_bytes(void) {
    uint64_t bytes = (uint64_t)(check.size - 1) * BARE;
    for (int reach = 1; reach < check.size; reach *= 2) {
        int n = reach < check.size - reach ? reach : check.size - reach;
        bytes += (uint64_t)n * SHORT; /* a share's says how many entries are near the threshold */
        if (n > 1) bytes += BARE;     /* the bundle's own */
    }
    return bytes;
}

/* Sent and received words of the last step, without headers: the most of any rank. */
static void busiest(const rill_reducer *r, double words[2]) {
    rill_stats s = RILL_STATS_INIT;
    CHECK_OK(rill_reducer_stats(r, &s));
    double own[2] = {(double)s.sent_bytes, (double)s.recv_bytes};
    for (int i = 0; i < 2; i++)
        own[i] = (own[i] - (double)header_bytes()) / 4;
    MPI_Allreduce(own, words, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

/* Normal deviates, near enough; large in one region only where asked. */
static void fill_normal(uint64_t dim, int step, int region, float *gradient) {
    rng r = rng_make(check.seed * 77 + (uint64_t)step, 40 + (uint64_t)check.rank);
    for (uint64_t i = 0; i < dim; i++) {
        uint64_t bits = rng_next(&r);
        double x = 0;
        for (int j = 0; j < 8; j++, bits >>= 8)
            x += (double)(bits & 255) - 127.5;
        int small = region && i >= dim / (uint64_t)check.size;
        gradient[i] = (float)(small ? x * 1e-4 : x);
    }
}

static void test_volume(rill_comm *comm, uint64_t dim, int steps) {
    if (check.size == 1) return;
    uint64_t k = dim / 100;
    check_case("volume: dim=%llu k=%llu", (unsigned long long)dim, (unsigned long long)k);
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "oktopk";
    o.codec = "raw";
    o.value_bits = 0;
    o.k = k;
    o.feedback = 0; /* gradients are all alike; a residual would grow at first */
    rill_reducer *r = NULL;
    rill_stream *update = NULL;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, dim, &o, &r));
    CHECK_OK(rill_stream_create(RILL_F32, dim, &update));
    float *gradient = malloc(dim * sizeof *gradient);
    double unit = 2.0 * (double)k * (check.size - 1) / check.size, most = 0, mean = 0;
    for (int i = 0; i < steps; i++) {
        fill_normal(dim, i, 0, gradient);
        if (!check_all_ok(rill_reducer_step_stream(r, gradient, update))) break;
        if (i % 32 == 0) continue; /* the threshold is evaluated, and every 64 the bounds */
        double words[2];
        busiest(r, words);
        double more = fmax(words[0], words[1]);
        most = fmax(most, more);
        mean += more / (steps - (steps + 31) / 32);
    }
    if (verbose && check.rank == 0)
        printf("volume P=%d k=%llu: %.0f words mean, %.0f most of 6k(P-1)/P = %.0f; lower bound "
               "2k(P-1)/P = %.0f; headers %llu bytes\n",
               check.size, (unsigned long long)k, mean, most, 3 * unit, unit,
               (unsigned long long)header_bytes());
    CHECK(most <= 3 * unit);
    CHECK(most >= unit);
    CHECK_OK(rill_reducer_free(&r));
    rill_stream_free(&update);
    free(gradient);
}

/* ---- skew ----------------------------------------------------------------------------------- */

/* Mean words of the busiest rank, in steps without re-evaluation; a hash of the updates. */
static uint64_t run_skewed(rill_comm *comm, const char *partition, double trigger,
                           double words[2]) {
    enum { STEPS = 12 };
    uint64_t dim = 1600 * (uint64_t)check.size, k = 800, hash = 1;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "oktopk";
    o.codec = "raw";
    o.value_bits = 0;
    o.k = k;
    o.partition = partition;
    o.balance_trigger = trigger;
    rill_reducer *r = NULL;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, dim, &o, &r));
    float *gradient = malloc(dim * sizeof *gradient), *update = malloc(dim * sizeof *update);
    words[0] = words[1] = 0;
    for (int i = 0; i < STEPS; i++) {
        fill_normal(dim, i, 1, gradient);
        if (!check_all_ok(rill_reducer_step(r, gradient, update))) break;
        hash = hash_bytes(hash, update, dim * sizeof *update);
        double both[2];
        busiest(r, both);
        for (int j = 0; i && j < 2; j++)
            words[j] += both[j] / (STEPS - 1);
    }
    check_same_on_all_ranks("the update", hash);
    CHECK_OK(rill_reducer_free(&r));
    free(gradient);
    free(update);
    return hash;
}

static void test_skew(rill_comm *comm) {
    if (check.size < 8) return; /* with few ranks there is little to gain */
    check_case("skew");
    static const double never = 1e30;
    double ours[2], plain[2], evened[2], regions[2];
    uint64_t hash = run_skewed(comm, NULL, 0, ours);
    CHECK(run_skewed(comm, "uniform", never, plain) == hash);
    /* Shares that are moved pass a threshold for k, others one for more, so these bits may differ.
     */
    run_skewed(comm, "uniform", 0, evened);
    CHECK(run_skewed(comm, "balanced", never, regions) == hash);
    if (verbose && check.rank == 0)
        printf("skew P=%d, sent and received words of the busiest: uniform regions, direct %.0f "
               "%.0f; shares evened %.0f %.0f; balanced regions %.0f %.0f; both %.0f %.0f\n",
               check.size, plain[0], plain[1], evened[0], evened[1], regions[0], regions[1],
               ours[0], ours[1]);
    CHECK(fmax(plain[0], plain[1]) >= 3 * fmax(ours[0], ours[1]));
    /* The owner of everything sends its share once, and not in every round of the allgather. */
    CHECK(evened[0] < 0.9 * plain[0]);
}

/* What lossy values lose on the way to another owner stays somewhere, too. */
static void test_lossy_skew(rill_comm *comm) {
    static const int bits[] = {16, 8, 2};
    for (int b = 0; b < 3; b++) {
        check_case("lossy skew, %d bit", bits[b]);
        ok_case c = {.shape = REGION,
                     .type = RILL_F64,
                     .dim = 800,
                     .k = 40,
                     .codec = "auto",
                     .partition = "uniform",
                     .bits = bits[b],
                     .trigger = 1.01,
                     .seed = check.seed};
        rill_reducer *r = make_reducer(comm, &c);
        double *gradient = malloc(c.dim * 8), *update = malloc(c.dim * 8);
        double *account = calloc(c.dim, 8);
        for (int i = 0; i < 12; i++) {
            fill_gradient(&c, i, gradient);
            for (uint64_t j = 0; j < c.dim; j++)
                account[j] -= gradient[j];
            CHECK_OK(rill_reducer_step(r, gradient, update));
            for (uint64_t j = 0; j < c.dim; j++)
                account[j] += update[j] / check.size;
        }
        const double *residual = rill_reducer_residual(r);
        for (uint64_t j = 0; j < c.dim; j++)
            account[j] += residual[j];
        MPI_Allreduce(MPI_IN_PLACE, account, (int)c.dim, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        double worst = 0;
        for (uint64_t j = 0; j < c.dim; j++)
            worst = fmax(worst, fabs(account[j]));
        CHECK(worst < 1e-8);
        CHECK_OK(rill_reducer_free(&r));
        free(gradient);
        free(update);
        free(account);
    }
}

/* ---- count ---------------------------------------------------------------------------------- */

/* A pattern that drifts, and noise. */
static void fill_drifting(uint64_t dim, int step, float *gradient) {
    rng r = rng_make(check.seed * 13 + (uint64_t)step, 90 + (uint64_t)check.rank);
    rng fixed = rng_make(check.seed, 7);
    double turn[2] = {cos(0.01 * step), sin(0.01 * step)}, swell = 1 + 0.5 * sin(0.03 * step);
    for (uint64_t i = 0; i < dim; i++) {
        double scale = 1 / (0.05 + rng_unit(&fixed)), a = 2 * rng_unit(&fixed) - 1;
        double pattern = a * turn[0] + (2 * rng_unit(&fixed) - 1) * turn[1];
        gradient[i] = (float)((scale * pattern + 2 * (rng_unit(&r) - 0.5)) * swell);
    }
}

/* Without feedback both thresholds, a rank's own and that of the sum, follow gradients that drift;
 * with it, and exactly k entries of every rank, that of the sum follows residuals which fill up at
 * first. */
static void test_count(rill_comm *comm, const char *select, int feedback, uint64_t dim, int steps,
                       double limit) {
    if (check.size == 1) return; /* the selector's count, and not ours */
    uint64_t k = dim / 20;
    check_case("count: dim=%llu k=%llu select=%s feedback=%d", (unsigned long long)dim,
               (unsigned long long)k, select, feedback);
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "oktopk";
    o.k = k;
    o.select = select;
    o.feedback = feedback;
    rill_reducer *r = NULL;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, dim, &o, &r));
    float *gradient = malloc(dim * sizeof *gradient), *update = malloc(dim * sizeof *update);
    double off = 0, local = 0, mean = 0, most = 0;
    for (int i = 0; i < steps; i++) {
        fill_drifting(dim, i, gradient);
        if (!check_all_ok(rill_reducer_step(r, gradient, update))) break;
        rill_stats s = RILL_STATS_INIT;
        CHECK_OK(rill_reducer_stats(r, &s));
        double ratio = (double)s.nnz_out / (double)k, own = (double)s.selected_k / (double)k;
        off += fabs(ratio - 1) / steps;
        local += fabs(own - 1) / steps;
        mean += ratio / steps;
        most = fmax(most, fabs(ratio - 1));
    }
    if (verbose && check.rank == 0)
        printf(
            "count P=%d k=%llu %s: mean of |k_t - k| / k %.3f, most %.3f, mean k_t / k %.3f; own "
            "selection %.3f\n",
            check.size, (unsigned long long)k, select, off, most, mean, local);
    CHECK(off <= limit);
    CHECK(fabs(mean - 1) <= limit);
    CHECK_OK(rill_reducer_free(&r));
    free(gradient);
    free(update);
}

/* ---- failure -------------------------------------------------------------------------------- */

static void test_failure(rill_comm *comm) {
    ok_case c = {.shape = UNIFORM,
                 .type = RILL_F32,
                 .dim = 500,
                 .k = 25,
                 .codec = "raw",
                 .seed = check.seed};
    check_case("a step without a gradient on one rank");
    rill_reducer *r = make_reducer(comm, &c);
    rill_stream *update = NULL;
    CHECK_OK(rill_stream_create(c.type, c.dim, &update));
    float *gradient = malloc(c.dim * sizeof *gradient);
    for (int i = 0; i < 9; i++) {
        fill_gradient(&c, i, gradient);
        int fails = i == 0 || i == 3 || i == 4;
        const void *given = fails && check.rank == check.size - 1 ? NULL : gradient;
        CHECK_STATUS(rill_reducer_step_stream(r, given, update),
                     fails ? RILL_ERR_ARGUMENT : RILL_OK);
        if (!fails) check_same_on_all_ranks("the update", stream_hash(update));
        if (!fails && check.size > 1) CHECK_INT(rill_stream_nnz(update), >=, 10);
    }
    CHECK_OK(rill_reducer_free(&r));
    rill_stream_free(&update);
    free(gradient);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    verbose = check_argument(argc, argv, "--verbose") != NULL;
    uint64_t dim = check_number(argc, argv, "--dim", 20011);
    int steps = (int)check_number(argc, argv, "--steps", 110);
    rill_comm *comm = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    test_oracle(comm, (int)check_number(argc, argv, "--rounds", 6));
    test_volume(comm, 2 * dim, 20);
    test_skew(comm);
    test_lossy_skew(comm);
    test_count(comm, "threshold", 0, dim, steps, 0.05);
    test_count(comm, "topk", 1, dim, steps, 0.08);
    test_failure(comm);
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(14);
}
