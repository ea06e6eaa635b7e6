/* Streams, selection and whole steps of reducers in a memory that host code cannot touch: the same bits as on
 * the host, and no touch outside of the memory's operations (space_mock.h). */
#include "../mpi/check.h"

#include "reduce/reducer.h"
#include "select/select.h"
#include "space/space_mock.h"

#include <setjmp.h>

/* ---- vectors in the memory ---------------------------------------------------------------- */

static const rill__space *space;

static void *make(const void *values, size_t bytes) {
    void *at = space->memory.allocate(&space->memory, bytes);
    CHECK(at);
    if (values) CHECK_OK(space->copy_in(space, at, values, bytes));
    return at;
}
static void drop(void *at, size_t bytes) { space->memory.release(&space->memory, at, bytes); }

static void check_same(const void *host, const void *there, size_t bytes) {
    void *copy = malloc(bytes + 1);
    CHECK_OK(space->copy_out(space, copy, there, bytes));
    CHECK(memcmp(host, copy, bytes) == 0);
    free(copy);
}

/* Entries, form and fill of a stream are those of another. */
static void check_stream(const rill_stream *host, const rill_stream *there) {
    rill_stream *copy;
    CHECK_OK(rill_stream_validate(there, NULL));
    CHECK_OK(rill_stream_create(rill_stream_type(there), rill_stream_dim(there), &copy));
    CHECK_OK(rill_stream_copy(copy, there));
    CHECK_INT(copy->form, ==, host->form);
    if (CHECK_INT(copy->nnz, ==, host->nnz) && host->nnz) {
        size_t size = value_size(host->type);
        CHECK(memcmp(copy->val.data, host->val.data, host->nnz * size) == 0);
        if (host->form == RILL__SPARSE)
            CHECK(memcmp(copy->idx.data, host->idx.data, host->nnz * host->index_bytes) == 0);
    }
    CHECK(memcmp(copy->fill, host->fill, value_size(host->type)) == 0);
    CHECK_OK(rill_stream_free(&copy));
}

static void *gradient_of(rill_type type, uint64_t dim, rng *random, bool sparse) {
    size_t size = value_size(type);
    char *values = calloc(dim + 1, size);
    for (uint64_t i = 0; i < dim; i++)
        if (!sparse || rng_below(random, 40) == 0) {
            double x = rng_unit(random) * 2 - 1;
            value_store(type, values, i, x * x * x);
        }
    return values;
}

/* ---- streams ------------------------------------------------------------------------------ */

static void check_dense(const rill_stream *host, const rill_stream *there) {
    size_t bytes = host->dim * value_size(host->type);
    void *expected = malloc(bytes + 1), *got = make(NULL, bytes);
    CHECK_OK(rill_stream_get_dense(host, expected));
    CHECK_OK(rill_stream_get_dense(there, got));
    check_same(expected, got, bytes);
    drop(got, bytes);
    free(expected);
}

static void set_both(rill_stream *host, rill_stream *there, uint64_t n, rng *random) {
    uint32_t *idx = malloc((n + 1) * sizeof *idx);
    size_t size = value_size(host->type);
    char *val = gradient_of(host->type, n, random, false);
    for (uint64_t i = 0; i < n; i++)
        idx[i] = (uint32_t)rng_below(random, host->dim);
    void *idx_there = make(idx, n * sizeof *idx), *val_there = make(val, n * size);
    CHECK_OK(rill_stream_set_pairs(host, n, idx, val));
    CHECK_OK(rill_stream_set_pairs(there, n, idx_there, val_there));
    drop(idx_there, n * sizeof *idx);
    drop(val_there, n * size);
    free(idx);
    free(val);
}

static void test_streams(rill_type type, uint64_t dim) {
    check_case("streams, type %s, dim %llu", rill_type_name(type), (unsigned long long)dim);
    rng random = rng_make(check.seed, dim);
    rill_stream *host[2], *there[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_stream_create(type, dim, &host[i]));
        CHECK_OK(rill__stream_create_in(space, type, dim, &there[i]));
        CHECK_INT(rill_stream_memory(host[i]), ==, RILL_HOST);
        CHECK_INT(rill_stream_memory(there[i]), ==, space->kind);
        set_both(host[i], there[i], dim / 10 + 3, &random);
        check_stream(host[i], there[i]);
        check_dense(host[i], there[i]);
    }
    CHECK_OK(rill_stream_add(host[0], host[1], RILL_MAX));
    CHECK_OK(rill_stream_add(there[0], there[1], RILL_MAX));
    check_stream(host[0], there[0]);
    check_dense(host[0], there[0]);
    CHECK_OK(rill_stream_add(there[0], host[1], RILL_SUM)); /* of both memories */
    CHECK_OK(rill_stream_add(host[0], there[1], RILL_SUM));
    check_stream(host[0], there[0]);
    const rill_stream *in[2] = {there[0], host[1]}, *in_host[2] = {host[0], host[1]};
    rill_stream *sum, *sum_there;
    CHECK_OK(rill_stream_create(type, dim, &sum));
    CHECK_OK(rill__stream_create_in(space, type, dim, &sum_there));
    CHECK_OK(rill_stream_sum(sum, 2, in_host, RILL_SUM));
    CHECK_OK(rill_stream_sum(sum_there, 2, in, RILL_SUM));
    check_stream(sum, sum_there);
    CHECK_OK(rill_stream_to_blocks(host[1], 8));
    CHECK_OK(rill_stream_to_blocks(there[1], 8));
    check_stream(host[1], there[1]);
    check_dense(host[1], there[1]);
    CHECK_OK(rill_stream_to_dense(host[0]));
    CHECK_OK(rill_stream_to_dense(there[0]));
    check_stream(host[0], there[0]);
    CHECK_OK(rill_stream_to_sparse(host[0]));
    CHECK_OK(rill_stream_to_sparse(there[0]));
    check_stream(host[0], there[0]);
    void *dense = gradient_of(type, dim, &random, true), *dense_there;
    dense_there = make(dense, dim * value_size(type));
    CHECK_OK(rill_stream_set_dense(host[0], dense));
    CHECK_OK(rill_stream_set_dense(there[0], dense_there));
    check_stream(host[0], there[0]);
    drop(dense_there, dim * value_size(type));
    free(dense);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_stream_free(&host[i]));
        CHECK_OK(rill_stream_free(&there[i]));
    }
    CHECK_OK(rill_stream_free(&sum));
    CHECK_OK(rill_stream_free(&sum_there));
}

static void test_public(void) {
    check_case("memories by name");
    rill_stream *s;
    CHECK_OK(rill_stream_create_in(RILL_HOST, -1, RILL_F32, 10, &s));
    CHECK_INT(rill_stream_memory(s), ==, RILL_HOST);
    CHECK_OK(rill_stream_free(&s));
    CHECK_STATUS(rill_stream_create_in(RILL_CUDA, -1, RILL_F32, 10, &s), RILL_ERR_UNSUPPORTED);
    CHECK_DETAIL("without CUDA");
    CHECK(!s);
    CHECK_STATUS(rill_stream_create_in(RILL_HOST, 0, RILL_F32, 10, &s), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("device 0");
    CHECK_STATUS(rill_stream_create_in((rill_memory)7, -1, RILL_F32, 10, &s), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("memory 7");
}

/* Operations wait in order until somebody needs them. */
static void test_order(void) {
    check_case("operations are late and in order");
    enum { N = 1000 };
    float ones[N], three = 3;
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    float *a = make(ones, sizeof ones), *b = make(NULL, sizeof ones);
    rill__dense_fill(space, RILL_F32, b, &three, N);
    rill__dense_add(space, RILL_F32, a, b, N);
    rill__dense_scale(space, RILL_F32, b, 2, a, N);
    uint64_t waiting = mock_pending(space);
    CHECK_INT(waiting, >=, 3);
    rill_status status = space->poll(space); /* runs one */
    CHECK_INT(status, ==, RILL_IN_PROGRESS);
    CHECK_INT(mock_pending(space), ==, waiting - 1);
    CHECK_NUMBER(rill__dense_norm(space, RILL_F32, b, N), sqrt(N) * 8); /* behind the others */
    CHECK_INT(mock_pending(space), ==, 0);
    CHECK_INT(space->poll(space), ==, RILL_OK);
    drop(a, sizeof ones);
    drop(b, sizeof ones);
}

static sigjmp_buf touched;
static void on_touch(int signal_number) {
    (void)signal_number;
    siglongjmp(touched, 1);
}

/* That the other cases end at all says that nobody touches the memory: here somebody does. */
static void test_wall(void) {
    check_case("a touch is a SIGSEGV");
    volatile char *at = make("x", 1);
    struct sigaction catches = {.sa_handler = on_touch}, before;
    volatile int caught = 0;
    sigaction(SIGSEGV, &catches, &before);
    if (sigsetjmp(touched, 1)) caught++;
    else *at = 'y';
    if (sigsetjmp(touched, 1)) caught++;
    else CHECK_INT(*at, !=, *at);
    sigaction(SIGSEGV, &before, NULL);
    CHECK_INT(caught, ==, 2);
    check_same("x", (const char *)at, 1);
    drop((char *)at, 1);
}

/* ---- selection ---------------------------------------------------------------------------- */

static void test_select(const char *method, rill_type type, uint64_t dim) {
    check_case("select %s, type %s", method, rill_type_name(type));
    rng random = rng_make(check.seed, 7);
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = method;
    o.density = 0.02;
    rill_selector *selector, *selector_there;
    rill_stream *out, *out_there;
    size_t bytes = dim * value_size(type);
    void *residual = calloc(dim, value_size(type)), *residual_there = make(residual, bytes);
    CHECK_OK(rill_selector_create(type, dim, &o, &selector));
    CHECK_OK(rill__selector_create_in(space, type, dim, &o, &selector_there));
    CHECK_OK(rill_stream_create(type, dim, &out));
    CHECK_OK(rill__stream_create_in(space, type, dim, &out_there));
    CHECK_STATUS(rill_select(selector, residual, out_there), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("'mock'");
    for (int step = 0; step < 4; step++) {
        void *gradient = gradient_of(type, dim, &random, false), *there = make(gradient, bytes);
        CHECK_OK(rill_select_residual(selector, gradient, residual, out));
        CHECK_OK(rill_select_residual(selector_there, there, residual_there, out_there));
        check_stream(out, out_there);
        check_same(residual, residual_there, bytes);
        drop(there, bytes);
        free(gradient);
    }
    CHECK_OK(rill_selector_free(&selector));
    CHECK_OK(rill_selector_free(&selector_there));
    CHECK_OK(rill_stream_free(&out));
    CHECK_OK(rill_stream_free(&out_there));
    drop(residual_there, bytes);
    free(residual);
}

/* ---- steps of reducers -------------------------------------------------------------------- */

typedef enum way { STEP, START, STREAM, TENSORS, WAYS } way;

/* A reducer on the host, and one in the memory, on communicators of their own: so they have the same number,
 * and round alike. */
typedef struct both {
    rill_comm *comm[2];
    rill_reducer *reducer[2];
    rill_type type;
    uint64_t dim;
    size_t bytes;
} both;

static void take_step(const both *b, way how, int which, const void *gradient, void *update,
                      rill_stream *stream) {
    rill_reducer *r = b->reducer[which];
    size_t size = value_size(b->type);
    uint64_t cut = b->dim / 3;
    rill_tensor tensors[2] = {{gradient, update, cut},
                              {(const char *)gradient + cut * size, (char *)update + cut * size,
                               b->dim - cut}};
    switch (how) {
    case START:
        CHECK_OK(rill_reducer_start(r, gradient, update));
        CHECK_OK(rill_reducer_wait(r));
        break;
    case STREAM: CHECK_OK(rill_reducer_step_stream(r, gradient, stream)); break;
    case TENSORS: CHECK_OK(rill_reducer_step_tensors(r, 2, tensors)); break;
    default: CHECK_OK(rill_reducer_step(r, gradient, update));
    }
}

static void compare_step(const both *b, way how, const void *gradient) {
    void *update = calloc(b->dim, value_size(b->type)), *there = make(gradient, b->bytes);
    void *update_there = make(update, b->bytes);
    rill_stream *stream, *stream_there;
    CHECK_OK(rill_stream_create(b->type, b->dim, &stream));
    CHECK_OK(rill__stream_create_in(space, b->type, b->dim, &stream_there));
    take_step(b, how, 0, gradient, update, stream);
    take_step(b, how, 1, there, update_there, stream_there);
    if (how == STREAM) check_stream(stream, stream_there);
    else check_same(update, update_there, b->bytes);
    check_same(rill_reducer_residual(b->reducer[0]), rill_reducer_residual(b->reducer[1]),
               b->bytes);
    rill_stats stats[2] = {RILL_STATS_INIT, RILL_STATS_INIT};
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_reducer_stats(b->reducer[i], &stats[i]));
    CHECK_INT(stats[0].selected_k, ==, stats[1].selected_k);
    /* s2 asks whether all have memory, unless it is there from the step before: in the user's stream or not. */
    if (how != STREAM) CHECK_INT(stats[0].sent_bytes, ==, stats[1].sent_bytes);
    CHECK_INT(stats[0].voided, ==, stats[1].voided);
    CHECK_OK(rill_stream_free(&stream));
    CHECK_OK(rill_stream_free(&stream_there));
    drop(there, b->bytes);
    drop(update_there, b->bytes);
    free(update);
}

static void open_both(both *b, const rill_reducer_options *o) {
    b->bytes = b->dim * value_size(b->type);
    CHECK_OK(rill_reducer_create(b->comm[0], b->type, b->dim, o, &b->reducer[0]));
    CHECK_OK(rill__reducer_create_in(b->comm[1], space, b->type, b->dim, o, &b->reducer[1]));
}
static void close_both(both *b) {
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_reducer_free(&b->reducer[i]));
}

static void accumulate(const both *b, rng *random) {
    void *gradient = gradient_of(b->type, b->dim, random, false), *there = make(gradient, b->bytes);
    CHECK_OK(rill_reducer_accumulate(b->reducer[0], gradient));
    CHECK_OK(rill_reducer_accumulate(b->reducer[1], there));
    drop(there, b->bytes);
    free(gradient);
}

static void test_reducer(both *b, const rill_reducer_options *o, way how, bool wild) {
    check_case("reducer %s, select %s, %d bits, type %s, momentum %g, clip %g, way %d%s",
               o->algorithm, o->select ? o->select : "default", o->value_bits,
               rill_type_name(b->type), o->momentum, o->clip, (int)how, wild ? ", with NaN" : "");
    rng random = rng_make(check.seed, 1000 + (uint64_t)check.rank);
    open_both(b, o);
    for (int step = 0; step < 5; step++) {
        if (step == 3) accumulate(b, &random);
        bool sparse = o->select && strcmp(o->select, "nonzero") == 0;
        void *gradient = gradient_of(b->type, b->dim, &random, sparse);
        if (wild && step == 2 && check.rank == 0) value_store(b->type, gradient, 5, (double)NAN);
        compare_step(b, how, gradient);
        free(gradient);
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_reducer_scale(b->reducer[i], 0.5));
    check_same(rill_reducer_residual(b->reducer[0]), rill_reducer_residual(b->reducer[1]),
               b->bytes);
    close_both(b);
}

/* Only what was selected is copied, not the vectors. */
static void test_staging(both *b) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "oktopk";
    o.select = "topk";
    o.k = b->dim / 100;
    check_case("staging");
    rng random = rng_make(check.seed, 3);
    open_both(b, &o);
    void *gradient = gradient_of(b->type, b->dim, &random, false),
         *there = make(gradient, b->bytes);
    mock_counts before = mock_counted(space);
    CHECK_OK(rill_reducer_step(b->reducer[1], there, there));
    mock_counts after = mock_counted(space);
    CHECK_INT(after.bytes_out - before.bytes_out, <=, o.k * 8);
    CHECK_INT(after.bytes_in - before.bytes_in, <=, 8 * o.k * (uint64_t)check.size * 2);
    CHECK_INT(after.late - before.late, >, 0);
    CHECK_OK(rill_reducer_step(b->reducer[0], gradient, gradient));
    check_same(gradient, there, b->bytes);
    drop(there, b->bytes);
    free(gradient);
    close_both(b);
}

/* A rank that has no memory in the space: all get the error, and nothing of the gradient is lost. */
static void test_no_memory(both *b) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "gtopk";
    o.select = "topk";
    o.k = 50;
    check_case("no memory in the space");
    open_both(b, &o);
    rng random = rng_make(check.seed, 4);
    void *gradient = gradient_of(b->type, b->dim, &random, false),
         *there = make(gradient, b->bytes);
    if (check.rank == check.size - 1) mock_fail_allocations(space, true);
    rill_status status = rill_reducer_step(b->reducer[1], there, there);
    mock_fail_allocations(space, false);
    CHECK_INT(status, ==, RILL_ERR_MEMORY);
    check_same(gradient, rill_reducer_residual(b->reducer[1]), b->bytes);
    drop(there, b->bytes);
    free(gradient);
    for (int i = 0; i < 2; i++) /* after a failure only this is promised */
        rill_reducer_free(&b->reducer[i]);
}

static void test_file(both *b) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "split_allgather";
    o.select = "threshold";
    o.k = 100;
    o.momentum = 0.9;
    check_case("a file");
    char path[64] = "";
    if (check.rank == 0) snprintf(path, sizeof path, "/tmp/rill-space-%ld", (long)getpid());
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    open_both(b, &o);
    rng random = rng_make(check.seed, 50 + (uint64_t)check.rank);
    void *gradient = gradient_of(b->type, b->dim, &random, false);
    for (int step = 0; step < 3; step++)
        compare_step(b, STEP, gradient);
    CHECK_OK(rill_reducer_save(b->reducer[1], path)); /* of the space; both go on from it */
    close_both(b);
    open_both(b, &o);
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_reducer_load(b->reducer[i], path));
    for (int step = 0; step < 3; step++)
        compare_step(b, STEP, gradient);
    free(gradient);
    close_both(b);
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) remove(path);
}

static void test_reducers(both *b) {
    static const struct {
        const char *algorithm, *select;
        int bits;
    } cases[] = {
        {"gtopk", "topk", 0},
        {"gtopk", "topk", 4},
        {"oktopk", "threshold", 0},
        {"oktopk", "topk", 4},
        {"spardl", "topk", 0},
        {"spardl", "topk", 4},
        {"split_allgather", "topk", 0},
        {"split_allgather", "threshold", 4},
        {"split_allgather", "bucket", 0},
        {"recursive_double", "random", 0},
        {"dsar", "gaussian", 4},
        {"block", "block", 0},
        {"s2", "block", 0},
        {"split_allgather", "nonzero", 0},
        {"dense", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int variant = 0; variant < 3; variant++) {
            rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
            o.algorithm = cases[i].algorithm;
            o.select = cases[i].select;
            o.value_bits = cases[i].bits;
            o.density = 0.02;
            o.threshold_interval = 3;
            o.block = strcmp(cases[i].algorithm, "s2") && strcmp(cases[i].algorithm, "block") ? 0
                                                                                              : 64;
            o.momentum = variant == 1 ? 0.9 : 0;
            o.clip = variant == 1 ? 1 : 0;
            b->type = variant == 2 ? RILL_F64 : RILL_F32;
            test_reducer(b, &o, (way)((i + (size_t)variant) % WAYS), variant == 2);
        }
    b->type = RILL_F32;
}

int main(int argc, char **argv) {
    static const char *const methods[] = {"topk",      "bucket",   "block",
                                          "threshold", "gaussian", "random"};
    check_init(&argc, &argv);
    space = mock_create();
    test_public();
    test_order();
    test_wall();
    for (int i = 0; i < TYPE_COUNT; i++) {
        test_streams(test_types[i], 500);
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
            test_select(methods[m], test_types[i], 5000);
    }
    both b = {.type = RILL_F32, .dim = 6000};
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &b.comm[i]));
    test_reducers(&b);
    test_staging(&b);
    test_file(&b);
    test_no_memory(&b);
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_free(&b.comm[i]));
    mock_free(space);
    return check_finish(60);
}
