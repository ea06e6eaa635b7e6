/* Cases of collectives: what every rank contributes, made from a seed alone, so that any rank knows
 * what any other has; the expected result, by MPI's own dense reduction of doubles; the checks. */
#ifndef RILL_TESTS_CASES_H
#define RILL_TESTS_CASES_H

#include "check.h"

typedef enum support {
    SUPPORT_EMPTY,
    SUPPORT_SOME_EMPTY,
    SUPPORT_IDENTICAL,
    SUPPORT_DISJOINT,
    SUPPORT_UNIFORM,
    SUPPORT_SKEWED,
    SUPPORT_ONE_RANK,
    SUPPORT_FULL,
    SUPPORT_COUNT
} support;
static const char *const support_names[SUPPORT_COUNT] = {"empty",    "some_empty", "identical",
                                                         "disjoint", "uniform",    "skewed",
                                                         "one_rank", "full"};

typedef enum form { FORM_SPARSE, FORM_DENSE, FORM_MIXED, FORM_COUNT } form;
static const char *const form_names[FORM_COUNT] = {"sparse", "dense", "mixed"};

typedef struct test_case {
    rill_collective collective;
    const char *algorithm, *codec, *partition; /* NULL: unset */
    test_op op;
    rill_type type;
    form form;
    support support;
    uint64_t dim;
    uint64_t gap; /* mean distance of neighbours */
    uint64_t expected_nnz;
    int root;
    int in_place;
    int inexact; /* random values, whose sums round */
    uint64_t seed;
} test_case;

static rill_op *case_user_op; /* made by cases_init */

static inline void cases_init(void) {
    CHECK_OK(rill_op_create("lowest", user_op_fn, NULL, USER_NEUTRAL, 0, &case_user_op));
}
static inline int cases_finish(long least_cases) {
    rill_op_free(&case_user_op);
    return check_finish(least_cases);
}

static inline void case_announce(const test_case *c, long number) {
    check_case("case %ld: %s %s codec=%s partition=%s %s %s %s %s dim=%llu gap=%llu root=%d%s%s "
               "seed=%#llx",
               number, rill_collective_name(c->collective), c->algorithm ? c->algorithm : "(unset)",
               c->codec ? c->codec : "(unset)", c->partition ? c->partition : "(unset)",
               test_op_names[c->op], rill_type_name(c->type), form_names[c->form],
               support_names[c->support], (unsigned long long)c->dim, (unsigned long long)c->gap,
               c->root, c->in_place ? " in_place" : "", c->inexact ? " inexact" : "",
               (unsigned long long)c->seed);
}

static inline rill_options case_options(const test_case *c) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = c->algorithm;
    o.codec = c->codec;
    o.partition = c->partition;
    o.expected_nnz = c->expected_nnz;
    return o;
}
static inline const rill_op *case_op(const test_case *c) { return op_rill(c->op, case_user_op); }

/* "auto", then every name of a table, then NULL (unset), which is the end for callers' loops. */
static inline const char *case_algorithm(rill_collective c, int i) {
    return i == 0 ? "auto" : rill_algorithm_at(c, i - 1, NULL);
}
static inline const char *case_random_codec(rng *r) {
    int n = 0;
    while (rill_codec_at(n, NULL))
        n++;
    uint64_t k = rng_below(r, (uint64_t)n + 2);
    return k == 0 ? NULL : k == 1 ? "auto" : rill_codec_at((int)k - 2, NULL);
}
static inline const char *case_random_partition(rng *r) {
    static const char *const names[] = {NULL, "uniform", "balanced"};
    return names[rng_below(r, 3)];
}

/* ---- contributions ------------------------------------------------------------------------ */

typedef struct contribution {
    uint64_t n, *idx; /* ascending */
    double *val;
} contribution;

static inline void contribution_free(contribution *k) {
    free(k->idx);
    free(k->val);
}

static inline int case_rank_is_dense(const test_case *c, int rank) {
    return c->form == FORM_DENSE ||
           (c->form == FORM_MIXED && ((c->seed >> 8) + (uint64_t)rank) % 2);
}

/* What a rank of size puts in: entries that count as present. */
static inline contribution case_contribution(const test_case *c, int rank, int size) {
    contribution k = {0, NULL, NULL};
    rng values = rng_make(c->seed, 2 + (uint64_t)rank), places = values;
    support s = c->support;
    places.state ^= 0x5555;
    uint64_t low = 0, high = c->dim, gap = c->gap ? c->gap : 1, one_in = 1, mine = 0;
    if (s == SUPPORT_SOME_EMPTY && rng_next(&places) & 1) return k;
    if (s == SUPPORT_EMPTY) return k;
    if (s == SUPPORT_ONE_RANK && (uint64_t)rank != c->seed % (uint64_t)size) return k;
    if (s == SUPPORT_IDENTICAL || s == SUPPORT_DISJOINT) places = rng_make(c->seed, 1);
    if (s == SUPPORT_DISJOINT) one_in = (uint64_t)size, mine = (uint64_t)rank;
    if (s == SUPPORT_FULL) gap = 1;
    if (s == SUPPORT_SKEWED) {
        rng region = rng_make(c->seed, 0);
        uint64_t width = c->dim / 16 ? c->dim / 16 : 1;
        low = rng_below(&region, c->dim - width + 1);
        high = low + width;
        gap = gap / 16 ? gap / 16 : 1;
    }
    uint64_t room = 0, at = low + (gap > 1 ? rng_below(&places, gap) : 0);
    if (s == SUPPORT_UNIFORM && rng_next(&places) % 4 == 0) at = 0;
    for (uint64_t number = 0; at < high; number++) {
        if (number % one_in == mine) {
            if (k.n == room) {
                room = room * 2 + 16;
                k.idx = realloc(k.idx, room * sizeof *k.idx);
                k.val = realloc(k.val, room * sizeof *k.val);
                if (!k.idx || !k.val) MPI_Abort(MPI_COMM_WORLD, 1);
            }
            double x = c->inexact ? rng_unit(&values) - 0.3 : op_exact_value(c->op, &values, rank);
            if (!c->inexact && rng_below(&values, 8) == 0) x = 0;
            if (x != 0 || !case_rank_is_dense(c, rank)) { /* zeros of dense arrays are absent */
                k.idx[k.n] = at;
                k.val[k.n++] = x;
            }
        }
        uint64_t step = gap > 1 ? 1 + rng_below(&places, 2 * gap - 1) : 1;
        if (step > high - at && s == SUPPORT_UNIFORM && at < high - 1) step = high - 1 - at;
        if (step >= high - at) break;
        at += step;
    }
    return k;
}

/* A stream of the contribution: pairs in any order, or a dense array. */
static inline void case_fill_stream(const test_case *c, int rank, const contribution *k,
                                    rill_stream *s) {
    rng r = rng_make(c->seed, 1000 + (uint64_t)rank);
    size_t bytes = value_size(c->type);
    if (case_rank_is_dense(c, rank)) {
        void *dense = calloc(c->dim, bytes);
        for (uint64_t i = 0; i < k->n; i++)
            value_store(c->type, dense, k->idx[i], k->val[i]);
        CHECK_OK(rill_stream_set_dense(s, dense));
        free(dense);
        if (rng_below(&r, 4)) CHECK_OK(rill_stream_to_dense(s));
        return;
    }
    void *val = malloc(k->n * bytes + 8);
    uint64_t *wide = malloc(k->n * 8 + 8);
    uint32_t *narrow = malloc(k->n * 4 + 8);
    uint64_t turn = k->n && rng_below(&r, 2) ? rng_below(&r, k->n) : 0; /* rotated: unsorted */
    for (uint64_t i = 0; i < k->n; i++) {
        uint64_t j = (i + turn) % k->n;
        wide[i] = k->idx[j];
        narrow[i] = (uint32_t)k->idx[j];
        value_store(c->type, val, i, k->val[j]);
    }
    if (c->dim > UINT64_C(1) << 32 || rng_below(&r, 2))
        CHECK_OK(rill_stream_set_pairs64(s, k->n, wide, val));
    else CHECK_OK(rill_stream_set_pairs(s, k->n, narrow, val));
    free(val);
    free(wide);
    free(narrow);
}

/* ---- expectations ------------------------------------------------------------------------- */

static inline MPI_Op case_mpi_op(test_op op) {
    return op == OP_SUM ? MPI_SUM : op == OP_PROD ? MPI_PROD : op == OP_MAX ? MPI_MAX : MPI_MIN;
}
/* The dense result in doubles: absent entries are the neutral element. Collective. */
static inline double *case_expected(const test_case *c, const contribution *k) {
    double *mine = malloc((c->dim + 1) * sizeof(double)),
           *all = malloc((c->dim + 1) * sizeof(double));
    test_op op = c->collective == RILL_ALLGATHER || c->collective == RILL_BCAST ? OP_SUM : c->op;
    if (!mine || !all) MPI_Abort(MPI_COMM_WORLD, 1);
    for (uint64_t i = 0; i < c->dim; i++)
        mine[i] = op_neutral(op);
    for (uint64_t i = 0; i < k->n; i++) {
        double rounded;
        value_store(c->type, &rounded, 0, k->val[i]);
        mine[k->idx[i]] = value_load(c->type, &rounded, 0);
    }
    if (c->collective == RILL_BCAST) {
        memcpy(all, mine, c->dim * sizeof(double));
        MPI_Bcast(all, (int)c->dim, MPI_DOUBLE, c->root, MPI_COMM_WORLD);
    } else {
        MPI_Allreduce(mine, all, (int)c->dim, MPI_DOUBLE, case_mpi_op(op), MPI_COMM_WORLD);
    }
    free(mine);
    return all;
}

/* Whether the call succeeded on all ranks: what they do next must be the same. Collective. */
static inline int check_all_ok(rill_status status) {
    int ok = CHECK_OK(status), all = 0;
    MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

/* ---- checks of a result ------------------------------------------------------------------- */

static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001B3);
    return h ^ (h >> 29);
}
/* All of the stored form: count, form, fill, indices, values. */
static inline uint64_t stream_hash(const rill_stream *s) {
    uint64_t n = rill_stream_nnz(s), h = hash_bytes(UINT64_C(0xCBF29CE484222325), &n, sizeof n);
    int dense = rill_stream_is_dense(s);
    size_t bytes = value_size(rill_stream_type(s));
    unsigned char fill[8] = {0};
    CHECK_OK(rill_stream_fill(s, fill));
    h = hash_bytes(hash_bytes(h, &dense, sizeof dense), fill, bytes);
    if (!dense && n && rill_stream_indices32(s)) h = hash_bytes(h, rill_stream_indices32(s), n * 4);
    if (!dense && n && rill_stream_indices64(s)) h = hash_bytes(h, rill_stream_indices64(s), n * 8);
    uint64_t block = rill_stream_block(s), blocks;
    const uint64_t *numbers = rill_stream_blocks(s, &blocks);
    h = hash_bytes(h, &block, sizeof block);
    if (blocks) h = hash_bytes(h, numbers, blocks * sizeof *numbers);
    return n ? hash_bytes(h, rill_stream_values(s), n * bytes) : h;
}
/* The indices of the stored entries of a sparse or block-sparse stream; to be freed. */
static inline uint64_t *stream_indices(const rill_stream *s) {
    uint64_t n = rill_stream_nnz(s), block = rill_stream_block(s);
    const uint32_t *i32 = rill_stream_indices32(s);
    const uint64_t *i64 = rill_stream_indices64(s), *numbers = rill_stream_blocks(s, NULL);
    uint64_t *idx = malloc((n + 1) * sizeof *idx);
    for (uint64_t i = 0; idx && i < n; i++)
        idx[i] = block ? numbers[i / block] * block + i % block : i32 ? i32[i] : i64[i];
    return idx;
}
static inline void check_same_on_all_ranks(const char *what, uint64_t h) {
    uint64_t both[2] = {h, ~h}, most[2];
    MPI_Allreduce(both, most, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    check.checks++;
    if (most[0] != ~most[1]) check_failed(__FILE__, __LINE__, "%s differs between ranks", what);
}
static inline void check_valid(const rill_stream *s) {
    const char *reason = NULL;
    check.checks++;
    if (rill_stream_validate(s, &reason) != RILL_OK)
        check_failed(__FILE__, __LINE__, "invalid stream: %s", reason ? reason : "(no reason)");
}
static inline double stream_fill(const rill_stream *s) {
    unsigned char fill[8] = {0};
    CHECK_OK(rill_stream_fill(s, fill));
    return value_load(rill_stream_type(s), fill, 0);
}
/* The stream is want inside of [first, first + count) and its fill outside. tolerance: relative to
 * scale[i] (NULL: exact). */
static inline void check_values(const rill_stream *s, const double *want, uint64_t first,
                                uint64_t count, double fill, const double *scale,
                                double tolerance) {
    rill_type type = rill_stream_type(s);
    uint64_t dim = rill_stream_dim(s);
    void *dense = malloc(dim * value_size(type) + 8);
    check_valid(s);
    CHECK_NUMBER(stream_fill(s), fill);
    if (CHECK_OK(rill_stream_get_dense(s, dense))) {
        check.checks++;
        for (uint64_t i = 0; i < dim; i++) {
            double got = value_load(type, dense, i), w = i - first < count ? want[i] : fill;
            if (value_same(got, w) || (scale && fabs(got - w) <= tolerance * scale[i])) continue;
            check_failed(__FILE__, __LINE__,
                         "entry %llu of %llu is %.17g, not %.17g (range %llu + %llu)",
                         (unsigned long long)i, (unsigned long long)dim, got, w,
                         (unsigned long long)first, (unsigned long long)count);
            break;
        }
    }
    free(dense);
}

#endif
