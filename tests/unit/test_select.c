/* Selection: every method, type and instruction set against naive oracles; the fused form and
 * threads against the plain one, on data that is meant to hurt. The user's arrays end at a page
 * that can't be touched. */
#include "test_select.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

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
/* NaN is above infinity, and infinity above all that tests use. */
static double rank_value(rill_type type, const void *x, uint64_t i) {
    double v = fabs(value_load(type, x, i));
    return isnan(v) ? (double)INFINITY : fmin(v, 1e308);
}

/* Marks the k largest of [first, first + n) that are not 0. */
static void mark_topk(rill_type type, const void *x, uint64_t first, uint64_t n, uint64_t k,
                      unsigned char *mark) {
    ranked *all = malloc((n + 1) * sizeof *all);
    uint64_t m = 0;
    for (uint64_t i = first; i < first + n; i++)
        if (value_load(type, x, i) != 0) all[m++] = (ranked){rank_value(type, x, i), i};
    qsort(all, m, sizeof *all, compare_ranked);
    for (uint64_t i = 0; i < m && i < k; i++)
        mark[all[i].index] = 1;
    free(all);
}

static uint64_t rounded(double x) { return (uint64_t)floor(x + 0.5); }
static uint64_t at_least_1(uint64_t x) { return x ? x : 1; }

/* False: which entries it takes can't be told from outside. */
static bool oracle(const rill_select_options *o, rill_type type, const void *x, uint64_t dim,
                   bool squares_add, unsigned char *mark) {
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
    } else if (!strcmp(o->method, "threshold") && o->threshold > 0) {
        for (uint64_t i = 0; i < dim; i++)
            mark[i] = !(fabs(value_load(type, x, i)) < o->threshold);
    } else if (!strcmp(o->method, "block") && squares_add) {
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
    } else {
        return false;
    }
    return true;
}

/* ---- one selection, checked ---------------------------------------------------------------- */

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

/* Other selections as marks, after checking what they promise. Of a method that is not known here
 * this is nothing but entries of x. */
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
    if (strcmp(o->method, "gaussian")) {
        for (uint64_t i = 0; i < n; i++)
            mark[index_at(out, i)] = 1;
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
    bool squares_add = kind == CONSTANT || kind == ZERO || kind == TIES || kind == ALTERNATING;
    bool exact = oracle(&o, type, x.data, dim, squares_add, mark) &&
                 oracle(&o, type, sum.data, dim, squares_add, mark_sum);
    for (int isa = 0; isa < ISAS; isa++) {
        if (!rill__isa_force(isas[isa])) continue;
        for (int threads = 1; threads <= (dim >= 32768 ? 3 : 1); threads += 2) {
            char what[160];
            snprintf(what, sizeof what, "%s %s %s dim %llu k %llu density %g %s threads %d",
                     o.method, isas[isa], rill_type_name(type), (unsigned long long)dim,
                     (unsigned long long)o.k, o.density, data_names[kind], threads);
            o.threads = threads;
            rill_selector *s = NULL;
            rill_stream *out = NULL;
            if (rill_selector_create(type, dim, &o, &s))
                fail_msg("%s: %s", what, rill_last_error());
            s->least_slice = 1 << 14;
            assert_int_equal(rill_stream_create(type, dim, &out), RILL_OK);
            if (rill_select(s, x.data, out)) fail_msg("%s: %s", what, rill_last_error());
            if (!exact && threads == 1 && isa == 0)
                marks_of(&o, type, x.data, dim, out, what, mark);
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
    rill__isa_force(NULL);
    free(mark);
    free(mark_sum);
    guarded_free(&x);
    guarded_free(&gradient);
    guarded_free(&residual);
    guarded_free(&sum);
    guarded_free(&before);
}

static const uint64_t small_dims[] = {1, 2, 15, 16, 17, 63, 64, 65, 129, 1000, 4097};
enum { SMALL_DIMS = sizeof small_dims / sizeof *small_dims };

static void run_small(const char *name) {
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int d = 0; d < SMALL_DIMS; d++)
            for (int kind = 0; kind < DATA; kind++) {
                uint64_t dim = small_dims[d], ks[] = {1, dim / 10 + 1, dim - dim / 3, dim + 5};
                for (int k = 0; k < 4; k++)
                    run_case(method(name, ks[k], 0), test_types[t], dim, (enum data)kind);
            }
}
static void run_large(const char *name) {
    static const uint64_t dims[] = {9001, 50003};
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int d = 0; d < 2; d++)
            for (int kind = 0; kind < DATA; kind++) {
                double density = kind % 3 == 0 ? 0.001 : kind % 3 == 1 ? 0.01 : 0.1;
                run_case(method(name, 0, density), test_types[t], dims[d], (enum data)kind);
            }
}

/* Every row of the table. */
static void test_methods(void **state) {
    (void)state;
    const char *name, *text;
    int n = 0;
    for (; (name = rill_selector_at(n, &text)); n++) {
        assert_true(text && *text);
        run_small(name);
        run_large(name);
    }
    assert_true(n >= 6);
    assert_null(rill_selector_at(-1, NULL));
}

static void test_topk(void **state) {
    (void)state;
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
    for (int t = 0; t < TYPE_COUNT; t++) {
        rill_select_options o = method("bucket", 0, 0.03);
        o.bucket = 100;
        run_case(o, test_types[t], 5050, NORMAL);
        run_case(o, test_types[t], 5050, TIES);
        run_case(o, test_types[t], 5050, UNEVEN);
        run_case(method("bucket", 0, 0.01), test_types[t], 5050, UNEVEN);
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
            static const double levels[] = {0x1p-20, 0.5, 1.7, 1e9};
            for (int l = 0; l < 4; l++) {
                rill_select_options o = method("threshold", 0, 0);
                o.threshold = levels[l];
                run_case(o, test_types[t], 1000, (enum data)kind);
                run_case(o, test_types[t], 40001, (enum data)kind);
            }
        }
}

static void test_random(void **state) {
    (void)state;
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
        assert_memory_not_equal(rill_stream_indices32(out[0]), rill_stream_indices32(out[2]),
                                K * 4);
        assert_memory_not_equal(rill_stream_indices32(out[0]), last, K * 4);
        memcpy(last, rill_stream_indices32(out[0]), K * 4);
    }
    for (int i = 0; i < 3; i++) {
        rill_selector_free(&s[i]);
        rill_stream_free(&out[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods), cmocka_unit_test(test_topk),
        cmocka_unit_test(test_bucket),  cmocka_unit_test(test_block),
        cmocka_unit_test(test_random),  cmocka_unit_test(test_threshold_fixed),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
