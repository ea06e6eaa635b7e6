/* Selection: every method, type and instruction set against naive oracles; the fused form and
 * threads against the plain one; data that is meant to hurt; errors. The user's arrays end at a page
 * that can't be touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/values.h"

#include "select/select.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const isas[] = {"scalar", "avx2", "avx512"};
enum { ISAS = 3 };

/* ---- memory with a guard page ------------------------------------------------------------- */

typedef struct guarded {
    char *map;
    size_t mapped;
    void *data;
} guarded;

static guarded guarded_alloc(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page) / page * page;
    guarded g = {NULL, whole + page, NULL};
    g.map = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map + whole, page, PROT_NONE), 0);
    g.data = g.map + whole - bytes;
    return g;
}
static void guarded_free(guarded *g) { munmap(g->map, g->mapped); }

/* ---- data --------------------------------------------------------------------------------- */

enum data { NORMAL, HEAVY, CONSTANT, ZERO, SPARSE, SPECIAL, SUBNORMAL, TIES, ASCENDING, ALTERNATING,
            SAMPLED_LARGE, SAMPLED_SMALL, DATA };

static double normal(rng *r) {
    return sqrt(-2 * log(1 - rng_unit(r))) * cos(6.283185307179586 * rng_unit(r));
}

/* The entries that topk's sample reads, to mislead it. */
static int in_sample(rill_type type, uint64_t dim, uint64_t i) {
    uint64_t line = 64 / value_size(type), lines = 4096 / line, stride = dim / lines;
    if (dim <= 8192 || i / stride >= lines) return 0;
    uint64_t x = i / stride + 1;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    uint64_t at = (x ^ (x >> 31)) % (stride - line + 1);
    return i % stride >= at && i % stride < at + line;
}

static double datum(enum data kind, rill_type type, uint64_t dim, uint64_t i, rng *r) {
    double sign = rng_next(r) & 1 ? 1 : -1, tiny = type == RILL_F64   ? 0x1p-1070
                                                   : type == RILL_F32 ? 0x1p-145
                                                   : type == RILL_F16 ? 0x1p-24
                                                                      : 0x1p-133;
    switch (kind) {
    case NORMAL: return normal(r);
    case HEAVY: return sign * fmin(1e-3 * pow(1 - rng_unit(r), -1 / 1.5), 6e4);
    case CONSTANT: return 0.5;
    case ZERO: return i % 3 ? 0.0 : -0.0;
    case SPARSE: return rng_below(r, 1000) ? 0.0 : normal(r);
    case SPECIAL: {
        uint64_t what = rng_below(r, 40);
        return what == 0   ? (double)NAN
               : what == 1 ? sign * (double)INFINITY
               : what == 2 ? 0.0
                           : normal(r);
    }
    case SUBNORMAL: return sign * tiny * (double)rng_below(r, 9);
    case TIES: return sign * (double)rng_below(r, 4);
    case ASCENDING: return sign * (double)(i + 1) / (double)dim;
    case ALTERNATING: return i & 1 ? -1.0 : 1.0;
    case SAMPLED_LARGE: return in_sample(type, dim, i) ? 100 + rng_unit(r) : rng_unit(r);
    default: return in_sample(type, dim, i) ? 1e-3 : 1 + rng_unit(r);
    }
}

static void fill(void *x, enum data kind, rill_type type, uint64_t dim, uint64_t seed) {
    rng r = rng_make(seed, kind);
    for (uint64_t i = 0; i < dim; i++)
        value_store(type, x, i, datum(kind, type, dim, i, &r));
}

/* ---- oracles ------------------------------------------------------------------------------ */

typedef struct ranked {
    double magnitude;
    uint64_t index;
} ranked;

static int compare_ranked(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->magnitude != y->magnitude) return x->magnitude > y->magnitude ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}
/* NaN is above infinity. */
static double magnitude(double x) { return isnan(x) ? 3.0 : isinf(x) ? 2.0 : fabs(x) / 1e308 / 2; }
static double rank_value(rill_type type, const void *x, uint64_t i) {
    double v = value_load(type, x, i);
    return isfinite(v) ? (type == RILL_F64 ? fabs(v) : fabs(v)) : isnan(v) ? INFINITY : 1.7e308;
}

/* Marks the k largest of [first, first + n) that are not 0. */
static void mark_topk(rill_type type, const void *x, uint64_t first, uint64_t n, uint64_t k,
                      unsigned char *mark) {
    ranked *all = malloc((n + 1) * sizeof *all);
    uint64_t m = 0;
    (void)magnitude;
    for (uint64_t i = first; i < first + n; i++)
        if (value_load(type, x, i) != 0) all[m++] = (ranked){rank_value(type, x, i), i};
    qsort(all, m, sizeof *all, compare_ranked);
    for (uint64_t i = 0; i < m && i < k; i++)
        mark[all[i].index] = 1;
    free(all);
}

static uint64_t rounded(double x) { return (uint64_t)floor(x + 0.5); }
static uint64_t at_least_1(uint64_t x) { return x ? x : 1; }

static void oracle(const rill_select_options *o, rill_type type, const void *x, uint64_t dim,
                   unsigned char *mark) {
    double density = o->k ? (double)(o->k < dim ? o->k : dim) / (double)dim : o->density;
    uint64_t k = o->k ? (o->k < dim ? o->k : dim) : at_least_1(rounded(o->density * (double)dim));
    memset(mark, 0, dim);
    if (!strcmp(o->method, "topk")) {
        mark_topk(type, x, 0, dim, k, mark);
    } else if (!strcmp(o->method, "bucket")) {
        uint64_t b = o->bucket ? o->bucket : 512;
        if (b > dim) b = dim;
        for (uint64_t i = 0; i < dim; i += b)
            mark_topk(type, x, i, i + b < dim ? b : dim - i,
                      at_least_1(rounded(density * (double)b)), mark);
    } else if (!strcmp(o->method, "threshold")) {
        for (uint64_t i = 0; i < dim; i++)
            mark[i] = !(fabs(value_load(type, x, i)) < o->threshold);
    } else if (!strcmp(o->method, "block")) {
        uint64_t b = o->block ? o->block : 256;
        if (b > dim) b = dim;
        uint64_t n = (dim + b - 1) / b;
        double *norm = calloc(n, sizeof *norm);
        unsigned char *chosen = calloc(n, 1);
        for (uint64_t i = 0; i < dim; i++) {
            double v = value_load(type, x, i);
            norm[i / b] += v * v;
        }
        if (density == 0) density = 1.0 / 32;
        mark_topk(RILL_F64, norm, 0, n, at_least_1(rounded(density * (double)n)), chosen);
        for (uint64_t i = 0; i < dim; i++)
            mark[i] = chosen[i / b] && value_load(type, x, i) != 0;
        free(norm);
        free(chosen);
    }
}

/* ---- one selection, checked ---------------------------------------------------------------- */

static uint64_t index_at(const rill_stream *s, uint64_t i) {
    return rill_stream_indices32(s)[i];
}

/* out = the marked entries of x, bit for bit; `left` is x without them, if given. */
static void check_marked(const char *what, rill_type type, uint64_t dim, const void *x,
                         const unsigned char *mark, const rill_stream *out, const void *left) {
    size_t size = value_size(type);
    const char *reason = "";
    if (rill_stream_validate(out, &reason) != RILL_OK) fail_msg("%s: %s", what, reason);
    assert_false(rill_stream_is_dense(out));
    uint64_t at = 0, n = rill_stream_nnz(out);
    for (uint64_t i = 0; i < dim; i++) {
        const char *value = (const char *)x + i * size;
        if (left) {
            double expected = mark[i] ? 0.0 : value_load(type, x, i);
            if (!value_same(value_load(type, left, i), expected))
                fail_msg("%s: residual[%llu] is %g, not %g", what, (unsigned long long)i,
                         value_load(type, left, i), expected);
        }
        if (!mark[i]) continue;
        if (at == n || index_at(out, at) != i)
            fail_msg("%s: entry %llu (%g) is missing: %llu entries", what, (unsigned long long)i,
                     value_load(type, x, i), (unsigned long long)n);
        const char *got = (const char *)rill_stream_values(out) + at * size;
        if (memcmp(got, value, size) && !isnan(value_load(type, x, i)))
            fail_msg("%s: value %llu is wrong", what, (unsigned long long)i);
        at++;
    }
    if (at != n)
        fail_msg("%s: %llu entries, %llu expected", what, (unsigned long long)n,
                 (unsigned long long)at);
}

/* The selections of gaussian and random as marks, after checking what they promise. */
static void marks_of(const rill_select_options *o, rill_type type, const void *x, uint64_t dim,
                     const rill_stream *out, const char *what, unsigned char *mark) {
    uint64_t n = rill_stream_nnz(out), live = 0;
    uint64_t k = o->k ? (o->k < dim ? o->k : dim) : at_least_1(rounded(o->density * (double)dim));
    memset(mark, 0, dim);
    if (!strcmp(o->method, "random")) {
        assert_int_equal(n, k);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t q = dim / k, rest = dim % k, start = i * q + (i < rest ? i : rest);
            assert_in_range(index_at(out, i), start, start + q + (i < rest) - 1);
            mark[index_at(out, i)] = 1;
        }
        return;
    }
    for (uint64_t i = 0; i < dim; i++)
        live += value_load(type, x, i) != 0;
    uint64_t least = k - k / 4, most = k + k / 4;
    if (n > most || n < (live < least ? live : least))
        fail_msg("%s: %llu entries, k %llu", what, (unsigned long long)n, (unsigned long long)k);
    mark_topk(type, x, 0, dim, n, mark);
}

static void run_case(rill_select_options o, rill_type type, uint64_t dim, enum data kind) {
    size_t size = value_size(type);
    guarded x = guarded_alloc(dim * size), gradient = guarded_alloc(dim * size);
    guarded residual = guarded_alloc(dim * size), sum = guarded_alloc(dim * size);
    unsigned char *mark = malloc(dim + 1), *mark_sum = malloc(dim + 1);
    fill(x.data, kind, type, dim, dim);
    rng r = rng_make(dim, 99);
    for (uint64_t i = 0; i < dim; i++) {
        /* Half of x each, so that ties and zeros stay what they are in the sum. */
        double v = value_load(type, x.data, i), half = isfinite(v) ? v / 2 : v;
        value_store(type, gradient.data, i, half);
        value_store(type, residual.data, i, rng_below(&r, 50) ? half : -half);
        value_store(type, sum.data, i,
                    value_load(type, residual.data, i) + value_load(type, gradient.data, i));
    }
    guarded before = guarded_alloc(dim * size);
    memcpy(before.data, residual.data, dim * size);
    int exact = strcmp(o.method, "gaussian") && strcmp(o.method, "random");
    if (exact) {
        oracle(&o, type, x.data, dim, mark);
        oracle(&o, type, sum.data, dim, mark_sum);
    }
    for (int isa = 0; isa < ISAS; isa++) {
        const rill__select_kernels *kernels = rill__select_kernels_named(isas[isa]);
        if (!kernels) continue;
        rill__select_kernels_force(kernels);
        for (int threads = 1; threads <= (dim >= 32768 ? 3 : 1); threads += 2) {
            char what[160];
            snprintf(what, sizeof what, "%s %s %s dim %llu k %llu density %g data %d threads %d",
                     o.method, isas[isa], rill_type_name(type), (unsigned long long)dim,
                     (unsigned long long)o.k, o.density, (int)kind, threads);
            o.threads = threads;
            rill_selector *s = NULL;
            rill_stream *out = NULL;
            if (rill_selector_create(type, dim, &o, &s)) fail_msg("%s: %s", what, rill_last_error());
            assert_int_equal(rill_stream_create(type, dim, &out), RILL_OK);
            if (rill_select(s, x.data, out)) fail_msg("%s: %s", what, rill_last_error());
            if (!exact && threads == 1 && isa == 0) marks_of(&o, type, x.data, dim, out, what, mark);
            check_marked(what, type, dim, x.data, mark, out, NULL);
            memcpy(residual.data, before.data, dim * size);
            if (rill_select_residual(s, gradient.data, residual.data, out))
                fail_msg("%s: %s", what, rill_last_error());
            strcat(what, " fused");
            if (!exact && threads == 1 && isa == 0)
                marks_of(&o, type, sum.data, dim, out, what, mark_sum);
            check_marked(what, type, dim, sum.data, mark_sum, out, residual.data);
            rill_stream_free(&out);
            rill_selector_free(&s);
        }
    }
    rill__select_kernels_force(NULL);
    free(mark);
    free(mark_sum);
    guarded_free(&x);
    guarded_free(&gradient);
    guarded_free(&residual);
    guarded_free(&sum);
    guarded_free(&before);
}

static rill_select_options method(const char *name, uint64_t k, double density) {
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = name;
    o.k = k;
    o.density = density;
    return o;
}

static const uint64_t small_dims[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 1000, 4095, 4097};
enum { SMALL_DIMS = sizeof small_dims / sizeof *small_dims };

static void run_small(const char *name) {
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int d = 0; d < SMALL_DIMS; d++)
            for (int kind = 0; kind < DATA; kind++) {
                uint64_t dim = small_dims[d], ks[] = {1, dim / 10 + 1, dim - dim / 3, dim, dim + 5};
                for (int k = 0; k < 5; k++)
                    run_case(method(name, ks[k], 0), test_types[t], dim, (enum data)kind);
            }
}
static void run_large(const char *name) {
    static const uint64_t dims[] = {9001, 40000, 100003};
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int d = 0; d < 3; d++)
            for (int kind = 0; kind < DATA; kind++) {
                double density = kind % 3 == 0 ? 0.001 : kind % 3 == 1 ? 0.01 : 0.1;
                run_case(method(name, 0, density), test_types[t], dims[d], (enum data)kind);
            }
}

static void test_topk(void **state) {
    (void)state;
    run_small("topk");
    run_large("topk");
    /* Samples that mislead: too few found, so a second pass; too many, so pruning. */
    for (int t = 0; t < TYPE_COUNT; t++) {
        run_case(method("topk", 8000, 0), test_types[t], 20000, SAMPLED_LARGE);
        run_case(method("topk", 30000, 0), test_types[t], 70000, SAMPLED_LARGE);
        run_case(method("topk", 100, 0), test_types[t], 20000, SAMPLED_SMALL);
        run_case(method("topk", 1000, 0), test_types[t], 70000, SAMPLED_SMALL);
        run_case(method("topk", 20, 0), test_types[t], 70000, SPECIAL); /* NaNs fill it */
    }
}

static void test_bucket(void **state) {
    (void)state;
    run_small("bucket");
    run_large("bucket");
    for (int t = 0; t < TYPE_COUNT; t++) {
        rill_select_options o = method("bucket", 0, 0.03);
        o.bucket = 100;
        run_case(o, test_types[t], 5050, NORMAL);
        run_case(o, test_types[t], 5050, TIES);
        o.bucket = 1;
        run_case(o, test_types[t], 70, NORMAL);
    }
}

static void test_block(void **state) {
    (void)state;
    static const enum data exact[] = {CONSTANT, ZERO, TIES, ALTERNATING}; /* squares add exactly */
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int kind = 0; kind < 4; kind++) {
            for (int d = 0; d < SMALL_DIMS; d++)
                run_case(method("block", 0, 0), test_types[t], small_dims[d], exact[kind]);
            rill_select_options o = method("block", 0, 0.2);
            run_case(o, test_types[t], 100003, exact[kind]);
            o.block = 100;
            run_case(o, test_types[t], 40000, exact[kind]);
            o.block = 10000;
            run_case(o, test_types[t], 40001, exact[kind]);
            run_case(method("block", 700, 0), test_types[t], 9001, exact[kind]);
        }
}

static void test_threshold_fixed(void **state) {
    (void)state;
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int kind = 0; kind < DATA; kind++) {
            static const double levels[] = {0x1p-20, 0.1, 0.5, 1.7, 1e9};
            for (int l = 0; l < 5; l++) {
                rill_select_options o = method("threshold", 0, 0);
                o.threshold = levels[l];
                run_case(o, test_types[t], 1000, (enum data)kind);
                run_case(o, test_types[t], 40001, (enum data)kind);
            }
        }
}

static void test_gaussian(void **state) {
    (void)state;
    run_small("gaussian");
    run_large("gaussian");
}

static void test_random(void **state) {
    (void)state;
    run_small("random");
    run_large("random");
    /* Two ranks agree call by call; calls and seeds differ. */
    enum { DIM = 10000, K = 50 };
    static float x[DIM];
    fill(x, NORMAL, RILL_F32, DIM, 1);
    rill_select_options o = method("random", K, 0);
    rill_selector *s[3];
    rill_stream *out[3];
    uint32_t last[K] = {0};
    for (int i = 0; i < 3; i++) {
        o.seed = i < 2 ? 5 : 6;
        assert_int_equal(rill_selector_create(RILL_F32, DIM, &o, &s[i]), RILL_OK);
        assert_int_equal(rill_stream_create(RILL_F32, DIM, &out[i]), RILL_OK);
    }
    for (int call = 0; call < 4; call++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(rill_select(s[i], x, out[i]), RILL_OK);
        assert_memory_equal(rill_stream_indices32(out[0]), rill_stream_indices32(out[1]), K * 4);
        assert_memory_not_equal(rill_stream_indices32(out[0]), rill_stream_indices32(out[2]), K * 4);
        assert_memory_not_equal(rill_stream_indices32(out[0]), last, K * 4);
        memcpy(last, rill_stream_indices32(out[0]), K * 4);
    }
    for (int i = 0; i < 3; i++) {
        rill_selector_free(&s[i]);
        rill_stream_free(&out[i]);
    }
}

/* Every entry is drawn about as often as any other. */
static void test_random_uniform(void **state) {
    (void)state;
    enum { DIM = 103, K = 10, CALLS = 20000 };
    float x[DIM] = {0};
    int hits[DIM] = {0};
    rill_select_options o = method("random", K, 0);
    rill_selector *s;
    rill_stream *out;
    assert_int_equal(rill_selector_create(RILL_F32, DIM, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, DIM, &out), RILL_OK);
    for (int call = 0; call < CALLS; call++) {
        assert_int_equal(rill_select(s, x, out), RILL_OK);
        for (uint64_t i = 0; i < K; i++)
            hits[index_at(out, i)]++;
    }
    for (int i = 0; i < DIM; i++) { /* strata of 11 and 10; 5 sigma of 20000 draws is 220 */
        double mean = (double)CALLS / (i < 33 ? 11 : 10);
        assert_true(fabs(hits[i] - mean) < 230);
    }
    rill_selector_free(&s);
    rill_stream_free(&out);
}

/* ---- steering ----------------------------------------------------------------------------- */

static void test_steering(void **state) {
    (void)state;
    enum { DIM = 100000, K = 1000, CALLS = 200 };
    static float base[DIM], x[DIM];
    fill(base, NORMAL, RILL_F32, DIM, 3);
    rill_select_options o = method("threshold", K, 0);
    o.interval = 64;
    rill_selector *s;
    rill_stream *out;
    assert_int_equal(rill_selector_create(RILL_F32, DIM, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, DIM, &out), RILL_OK);
    double scale = 1, worst = 0;
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < DIM; i++)
            x[i] = base[(i + call * 37) % DIM] * (float)scale;
        assert_int_equal(rill_select(s, x, out), RILL_OK);
        double off = fabs((double)rill_stream_nnz(out) / K - 1);
        if (call % 64 == 0) assert_true(off == 0); /* the exact calls */
        if (off > worst) worst = off;
        scale *= call < 100 ? 1.005 : 0.995;
    }
    if (worst > 0.25) fail_msg("the count was off by %g", worst);
    /* A jump is not steered after, but evaluated anew in the next call. */
    for (int i = 0; i < DIM; i++)
        x[i] *= 100;
    assert_int_equal(rill_select(s, x, out), RILL_OK);
    assert_int_equal(rill_select(s, x, out), RILL_OK);
    assert_int_equal(rill_stream_nnz(out), K);
    memset(x, 0, sizeof x);
    for (int call = 0; call < 3; call++) {
        assert_int_equal(rill_select(s, x, out), RILL_OK);
        assert_int_equal(rill_stream_nnz(out), 0);
    }
    rill_selector_free(&s);
    rill_stream_free(&out);
}

/* The fused form, repeated: what was sent and what is left is what came in, each step. */
static void test_residual_steps(void **state) {
    (void)state;
    enum { DIM = 40000, STEPS = 6 };
    static double g[DIM], residual[DIM], total[DIM], sent[DIM];
    for (int m = 0; rill_selector_at(m, NULL); m++) {
        rill_select_options o = method(rill_selector_at(m, NULL), 0, 0.01);
        rill_selector *s;
        rill_stream *out;
        assert_int_equal(rill_selector_create(RILL_F64, DIM, &o, &s), RILL_OK);
        assert_int_equal(rill_stream_create(RILL_F64, DIM, &out), RILL_OK);
        memset(residual, 0, sizeof residual);
        memset(total, 0, sizeof total);
        memset(sent, 0, sizeof sent);
        for (int step = 0; step < STEPS; step++) {
            rng r = rng_make((uint64_t)step, 4);
            for (int i = 0; i < DIM; i++) {
                g[i] = (double)rng_below(&r, 2000) - 1000; /* exact sums */
                total[i] += g[i];
            }
            assert_int_equal(rill_select_residual(s, g, residual, out), RILL_OK);
            assert_true(rill_stream_nnz(out) > 0);
            for (uint64_t i = 0; i < rill_stream_nnz(out); i++)
                sent[index_at(out, i)] += ((const double *)rill_stream_values(out))[i];
            for (int i = 0; i < DIM; i++)
                assert_true(total[i] == sent[i] + residual[i]);
        }
        rill_selector_free(&s);
        rill_stream_free(&out);
    }
}

/* ---- kernels ------------------------------------------------------------------------------ */

/* Both index widths, which selections of a sane size don't reach, and kth at every rank. */
static void test_kernels(void **state) {
    (void)state;
    enum { N = 333, ROOM = N * 8 + RILL__SLACK };
    static _Alignas(64) char idx[ROOM], val[ROOM], a[4][ROOM];
    const rill__select_kernels *scalar = rill__select_kernels_named("scalar");
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int kind = 0; kind < DATA; kind++)
            for (unsigned width = 4; width <= 8; width += 4)
                for (int isa = 0; isa < ISAS; isa++) {
                    const rill__select_kernels *k = rill__select_kernels_named(isas[isa]);
                    if (!k) continue;
                    rill_type type = test_types[t];
                    rill__shape shape = {type, width};
                    size_t size = value_size(type);
                    fill(val, (enum data)kind, type, N, 8);
                    for (uint64_t i = 0; i < N; i++) {
                        uint64_t index = width == 8 ? (i << 33) + 7 : i * 5;
                        memcpy(idx + i * width, &index, width);
                    }
                    uint64_t low = rill__key_from(type, 0.3), high = rill__key_from(type, 1.1);
                    uint64_t n = scalar->keep(shape, idx, val, N, low, high, a[0], a[1]), m = 0;
                    for (uint64_t i = 0; i < N; i++) {
                        double x = fabs(value_load(type, val, i));
                        if (!(x >= rill__key_value(type, low) && x < rill__key_value(type, high)))
                            continue;
                        assert_memory_equal(a[0] + m * width, idx + i * width, width);
                        assert_memory_equal(a[1] + m++ * size, val + i * size, size);
                    }
                    assert_int_equal(m, n);
                    assert_int_equal(k->keep(shape, idx, val, N, low, high, a[2], a[3]), n);
                    assert_memory_equal(a[0], a[2], n * width);
                    assert_memory_equal(a[1], a[3], n * size);
                    assert_int_equal(k->keep(shape, idx, val, N, 5, 5, a[2], a[3]), 0);
                    assert_int_equal(k->keep(shape, idx, val, N, 0, UINT64_MAX, idx, val), N);

                    size_t bytes = rill__key_bytes(type);
                    n = k->keys(type, val, N, 0, UINT64_MAX, a[0]);
                    assert_int_equal(n, N);
                    for (uint64_t rank = 1; rank <= N; rank += 1 + rank / 3) {
                        rill__kth kth = k->kth(type, a[0], N, rank, a[1]);
                        uint64_t above = 0, equal = 0;
                        for (uint64_t i = 0; i < N; i++) {
                            uint64_t key = 0;
                            memcpy(&key, a[0] + i * bytes, bytes);
                            above += key > kth.key;
                            equal += key == kth.key;
                        }
                        assert_int_equal(above, kth.above);
                        assert_int_equal(equal, kth.equal);
                        assert_true(above < rank && above + equal >= rank);
                    }
                    double expected[2], sums[2];
                    for (uint64_t count = 0; count < N; count += 7) {
                        scalar->moments(type, val, count, expected);
                        k->moments(type, val, count, sums);
                        assert_true(value_same(sums[0], expected[0]));
                        assert_true(value_same(sums[1], expected[1]));
                    }
                }
}

/* Indices past 2^32: memory that is only read, and so costs page tables. */
static void test_wide(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#else
    const uint64_t dim = (UINT64_C(1) << 32) + 70000;
    uint16_t *x = mmap(NULL, dim * 2, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED) skip();
    madvise(x, dim * 2, MADV_HUGEPAGE);
    const uint64_t at[] = {3, 1000000, (UINT64_C(1) << 32) - 1, (UINT64_C(1) << 32) + 1, dim - 1};
    for (int i = 0; i < 5; i++)
        x[at[i]] = (uint16_t)(0x3f80 + 4 * i);
    rill_select_options o = method("topk", 4, 0);
    rill_selector *s;
    rill_stream *out;
    assert_int_equal(rill_selector_create(RILL_BF16, dim, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_BF16, dim, &out), RILL_OK);
    assert_int_equal(rill_select(s, x, out), RILL_OK);
    assert_int_equal(rill_stream_nnz(out), 4);
    assert_null(rill_stream_indices32(out));
    assert_memory_equal(rill_stream_indices64(out), at + 1, sizeof at - sizeof *at);
    rill_selector_free(&s);
    rill_stream_free(&out);
    munmap(x, dim * 2);
#endif
}

/* ---- errors ------------------------------------------------------------------------------- */

static void expect_error(rill_status got, rill_status status, const char *words) {
    assert_int_equal(got, status);
    if (!strstr(rill_last_error(), words))
        fail_msg("'%s' does not say '%s'", rill_last_error(), words);
}

static void test_errors(void **state) {
    (void)state;
    rill_selector *s = NULL;
    rill_select_options o = method("topk", 1, 0);
    expect_error(rill_selector_create(RILL_F32, 9, &o, NULL), RILL_ERR_ARGUMENT, "out is NULL");
    expect_error(rill_selector_create(RILL_F32, 9, NULL, &s), RILL_ERR_ARGUMENT, "options is NULL");
    expect_error(rill_selector_create((rill_type)9, 9, &o, &s), RILL_ERR_ARGUMENT, "type 9");
    o.method = "best";
    expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_UNKNOWN, "'best'");
    static const double bad[] = {-0.5, 1.5, (double)NAN};
    for (int i = 0; i < 3; i++) {
        o = method("topk", 0, bad[i]);
        expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "density");
    }
    for (int m = 0; rill_selector_at(m, NULL); m++) {
        const char *name = rill_selector_at(m, NULL), *description = NULL;
        assert_string_equal(rill_selector_at(m, &description), name);
        assert_non_null(description);
        o = method(name, 0, 0);
        if (!strcmp(name, "block")) continue;
        expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "density");
        expect_error(RILL_ERR_ARGUMENT, RILL_ERR_ARGUMENT, name);
    }
    assert_null(rill_selector_at(-1, NULL));
    assert_null(rill_selector_at(6, NULL));
    o = method("threshold", 0, 0);
    o.threshold = -1;
    expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "threshold -1");
    o = method("topk", 1, 0);
    o.threads = -2;
    expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "threads -2");
    o = method("topk", 1, 0);
    o.size = 3;
    expect_error(rill_selector_create(RILL_F32, 9, &o, &s), RILL_ERR_ARGUMENT, "size 3");
    assert_null(s);

    float x[9] = {0}, y[9] = {0};
    rill_stream *out, *other_dim, *other_type;
    o = method(NULL, 1, 0); /* topk */
    assert_int_equal(rill_selector_create(RILL_F32, 9, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, 9, &out), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, 10, &other_dim), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F64, 9, &other_type), RILL_OK);
    expect_error(rill_select(NULL, x, out), RILL_ERR_ARGUMENT, "selector is NULL");
    expect_error(rill_select(s, NULL, out), RILL_ERR_ARGUMENT, "dense is NULL");
    expect_error(rill_select(s, x, NULL), RILL_ERR_ARGUMENT, "out is NULL");
    expect_error(rill_select(s, x, other_dim), RILL_ERR_ARGUMENT, "dimension 10");
    expect_error(rill_select(s, x, other_type), RILL_ERR_ARGUMENT, "type f64");
    expect_error(rill_select_residual(s, NULL, y, out), RILL_ERR_ARGUMENT, "gradient is NULL");
    expect_error(rill_select_residual(s, x, NULL, out), RILL_ERR_ARGUMENT, "residual is NULL");
    expect_error(rill_select_residual(s, x, x, out), RILL_ERR_ARGUMENT, "gradient is residual");
    /* Whatever the stream was, it is the selection afterwards. */
    x[4] = -2;
    assert_int_equal(rill_stream_set_dense(out, x), RILL_OK);
    assert_int_equal(rill_stream_to_dense(out), RILL_OK);
    assert_int_equal(rill_select(s, x, out), RILL_OK);
    assert_int_equal(rill_stream_nnz(out), 1);
    assert_int_equal(index_at(out, 0), 4);
    rill_selector_free(&s);
    assert_null(s);
    assert_int_equal(rill_selector_free(&s), RILL_OK);
    rill_stream_free(&out);
    rill_stream_free(&other_dim);
    rill_stream_free(&other_type);
    /* Dimension 0 selects nothing. */
    assert_int_equal(rill_selector_create(RILL_F32, 0, &o, &s), RILL_OK);
    assert_int_equal(rill_stream_create(RILL_F32, 0, &out), RILL_OK);
    assert_int_equal(rill_select(s, NULL, out), RILL_OK);
    assert_int_equal(rill_stream_nnz(out), 0);
    rill_selector_free(&s);
    rill_stream_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),        cmocka_unit_test(test_topk),
        cmocka_unit_test(test_bucket),         cmocka_unit_test(test_block),
        cmocka_unit_test(test_threshold_fixed), cmocka_unit_test(test_gaussian),
        cmocka_unit_test(test_random),         cmocka_unit_test(test_random_uniform),
        cmocka_unit_test(test_steering),       cmocka_unit_test(test_residual_steps),
        cmocka_unit_test(test_wide),           cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
