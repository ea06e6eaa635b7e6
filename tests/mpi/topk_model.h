/* For tests of top-k reducers: a reducer whose inputs and results are known on all ranks, and the
 * pieces of the models, written apart from the library on dense vectors of doubles.
 *
 * Gradients of small integers sum up exactly, so that models are compared exactly. */
#ifndef RILL_TESTS_TOPK_MODEL_H
#define RILL_TESTS_TOPK_MODEL_H

#include "cases.h"

#define HEADER_BYTES 48

typedef struct topk_run {
    rill_comm *comm;
    rill_reducer *reducer;
    uint64_t dim, k;
    float *gradient, *update;
    double *fed;    /* of all ranks, one after the other: residual before the step + gradient */
    double *kept;   /* of all ranks: residual after it */
    double *result; /* the sum that was delivered */
    rill_stats stats;
} topk_run;

static inline topk_run topk_open(rill_comm *comm, uint64_t dim, const rill_reducer_options *given) {
    topk_run t = {.comm = comm, .dim = dim, .k = given->k};
    rill_reducer_options o = *given;
    o.average = 0;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, dim, &o, &t.reducer));
    size_t all = (size_t)(dim + 1) * (size_t)check.size;
    t.gradient = calloc(dim + 1, sizeof *t.gradient);
    t.update = calloc(dim + 1, sizeof *t.update);
    t.result = calloc(dim + 1, sizeof *t.result);
    t.fed = calloc(all, sizeof *t.fed);
    t.kept = calloc(all, sizeof *t.kept);
    return t;
}

static inline void topk_close(topk_run *t) {
    CHECK_OK(rill_reducer_free(&t->reducer));
    free(t->gradient);
    free(t->update);
    free(t->result);
    free(t->fed);
    free(t->kept);
}

static inline void topk_gather(const topk_run *t, const float *own, double *all) {
    double *wide = calloc(t->dim + 1, sizeof *wide);
    for (uint64_t i = 0; i < t->dim; i++)
        wide[i] = (double)own[i];
    MPI_Allgather(wide, (int)t->dim, MPI_DOUBLE, all, (int)t->dim, MPI_DOUBLE, MPI_COMM_WORLD);
    free(wide);
}

static inline uint64_t bytes_hash(const void *bytes, size_t n) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* One step with t->gradient: all ranks must get the same bits. */
static inline int topk_step(topk_run *t) {
    const float *residual = rill_reducer_residual(t->reducer);
    float *fed = calloc(t->dim + 1, sizeof *fed);
    for (uint64_t i = 0; i < t->dim; i++)
        fed[i] = residual[i] + t->gradient[i];
    int ok = CHECK_OK(rill_reducer_step(t->reducer, t->gradient, t->update));
    topk_gather(t, fed, t->fed);
    topk_gather(t, rill_reducer_residual(t->reducer), t->kept);
    for (uint64_t i = 0; i < t->dim; i++)
        t->result[i] = (double)t->update[i];
    check_same_on_all_ranks("the update", bytes_hash(t->update, t->dim * sizeof(float)));
    CHECK_OK(rill_reducer_stats(t->reducer, &t->stats));
    free(fed);
    return ok;
}

/* The most that is missing at an index: fed - delivered - residuals, over all ranks; in shares of
 * all these magnitudes (coding may send far more than was fed, and keep the difference). residuals:
 * of all ranks. */
static inline double topk_missing(const topk_run *t, const double *residuals) {
    double worst = 0;
    for (uint64_t i = 0; i < t->dim; i++) {
        double missing = -t->result[i], scale = 1e-30 + fabs(t->result[i]);
        for (int g = 0; g < check.size; g++) {
            double fed = t->fed[(uint64_t)g * t->dim + i];
            double kept = residuals[(uint64_t)g * t->dim + i];
            missing += fed - kept;
            scale += fabs(fed) + fabs(kept);
        }
        worst = fmax(worst, fabs(missing) / scale);
    }
    return worst;
}

/* ---- models ------------------------------------------------------------------------------- */

typedef struct ranked {
    double magnitude;
    uint64_t index;
} ranked;

static inline int ranked_order(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->magnitude != y->magnitude) return x->magnitude < y->magnitude ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

/* Of v[from..to) only the k largest magnitudes stay; ties go to the lower index. */
static inline void model_keep(double *v, uint64_t from, uint64_t to, uint64_t k) {
    ranked *all = malloc((to - from + 1) * sizeof *all);
    for (uint64_t i = from; i < to; i++)
        all[i - from] = (ranked){fabs(v[i]), i};
    qsort(all, to - from, sizeof *all, ranked_order);
    for (uint64_t i = k; i < to - from; i++)
        v[all[i].index] = 0;
    free(all);
}

static inline double *model_copy(const double *v, uint64_t n) {
    double *copy = malloc((n + 1) * sizeof *copy);
    return memcpy(copy, v, n * sizeof *copy);
}

static inline uint64_t model_bound(uint64_t n, uint64_t i, uint64_t parts) {
    return n * i / parts; /* tests are small */
}

static inline double mass_of(const double *v, uint64_t n) {
    double mass = 0;
    for (uint64_t i = 0; i < n; i++)
        mass += fabs(v[i]);
    return mass;
}

static inline void check_result(const topk_run *t, const double *want) {
    for (uint64_t i = 0; i < t->dim; i++) {
        check.checks++;
        if (t->result[i] == want[i]) continue;
        check_failed(__FILE__, __LINE__, "result[%llu] is %g, expected %g", (unsigned long long)i,
                     t->result[i], want[i]);
        return;
    }
}

static inline int rounds_of(int ranks) {
    int rounds = 0;
    while ((1 << rounds) < ranks)
        rounds++;
    return rounds;
}

/* ---- gradients ---------------------------------------------------------------------------- */

/* Integers; about one in gap is not 0. */
static inline void gradient_integers(topk_run *t, rng *r, uint64_t gap, int positive) {
    for (uint64_t i = 0; i < t->dim; i++) {
        double x = (double)(1 + rng_below(r, 1000));
        if (!positive && rng_next(r) & 1) x = -x;
        t->gradient[i] = (float)(rng_below(r, gap) ? 0 : x);
    }
}
static inline void gradient_real(topk_run *t, rng *r) {
    for (uint64_t i = 0; i < t->dim; i++)
        t->gradient[i] = (float)((rng_unit(r) - 0.5) * (rng_below(r, 20) ? 1 : 30));
}

/* ---- what both trees must do under every coding ------------------------------------------- */

/* Some steps with a coding: conserving, the same on all ranks. Gives a hash of all updates. */
static inline uint64_t run_coding(rill_comm *comm, const rill_reducer_options *o, uint64_t steps) {
    topk_run t = topk_open(comm, 2503, o);
    rng r = rng_make(check.seed + 77, (uint64_t)check.rank);
    double tolerance = 8 * check.size * value_epsilon(RILL_F32);
    uint64_t hash = 0;
    for (uint64_t i = 0; i < steps; i++) {
        gradient_real(&t, &r);
        if (!topk_step(&t)) break;
        CHECK_STRING(t.stats.algorithm, o->algorithm);
        double missing = topk_missing(&t, t.kept);
        if (!(missing <= tolerance)) CHECK_NUMBER(missing, tolerance);
        hash = hash * 31 + bytes_hash(t.update, t.dim * sizeof(float));
    }
    topk_close(&t);
    return hash;
}

/* A rank that fails tells all others, wherever it is in the tree. */
static inline void check_failures(const char *algorithm) {
    for (int failing = 0; failing < check.size; failing++) {
        check_case("%s: rank %d has no gradient", algorithm, failing);
        rill_comm *comm = NULL;
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
        rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
        o.algorithm = algorithm;
        o.k = 20;
        topk_run t = topk_open(comm, 500, &o);
        rng r = rng_make(check.seed, (uint64_t)check.rank);
        gradient_integers(&t, &r, 1, 0);
        const float *gradient = check.rank == failing ? NULL : t.gradient;
        CHECK_STATUS(rill_reducer_step(t.reducer, gradient, t.update), RILL_ERR_ARGUMENT);
        CHECK_DETAIL("gradient is NULL");
        /* What was fed is kept. */
        const float *kept = rill_reducer_residual(t.reducer);
        for (uint64_t i = 0; i < t.dim; i++)
            if (!CHECK_NUMBER((double)kept[i], gradient ? (double)gradient[i] : 0)) break;
        topk_close(&t);
        CHECK_OK(rill_comm_free(&comm));
    }
}

/* All codecs, value_bits and selections, and twice the same bits. */
static inline void check_codings(const char *algorithm, uint64_t steps) {
    static const char *const codecs[] = {"auto", "raw", "bitpack", "elias_fano", "bitmap", "rice"};
    static const char *const selects[] = {"topk",   "threshold", "gaussian", "bucket",
                                          "random", "nonzero",   "block"};
    static const int bits[] = {0, 16, 8, 4, 2};
    /* Two: the reducers of one have numbers, which the random rounding sees. */
    rill_comm *comms[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comms[i]));
    for (int c = 0; c < 35; c++) {
        rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
        o.algorithm = algorithm;
        o.codec = codecs[c % 6];
        o.value_bits = bits[(c / 5 + c) % 5];
        o.select = selects[c % 7];
        o.k = 1 + (uint64_t)(c * 29) % 700;
        check_case("%s codec %s value_bits %d select %s k %llu", algorithm, o.codec, o.value_bits,
                   o.select, (unsigned long long)o.k);
        uint64_t once = run_coding(comms[0], &o, steps);
        CHECK(once == run_coding(comms[1], &o, steps));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_free(&comms[i]));
}

#endif
