/* Collectives of streams, and whole steps of reducers, in a memory that host code cannot touch: the
 * same bits as on the host, and no touch outside of the memory's operations (space_mock.h). */
#include "there.h"

/* ---- collectives -------------------------------------------------------------------------- */

typedef struct call {
    rill_comm *comm;
    rill_stream *in, *out;
    const rill_options *options;
} call;

/* The collectives, in the order of their names; out may be in. */
static void run_collective(const call *c, rill_collective what) {
    uint64_t first = 0, count = 0;
    int root = check.size - 1;
    switch (what) {
    case RILL_ALLREDUCE:
        CHECK_OK(rill_allreduce(c->comm, c->in, c->out, RILL_SUM, c->options));
        break;
    case RILL_REDUCE:
        CHECK_OK(rill_reduce(c->comm, c->in, c->out, RILL_MAX, root, c->options));
        break;
    case RILL_REDUCE_SCATTER:
        CHECK_OK(rill_reduce_scatter(c->comm, c->in, c->out, RILL_SUM, &first, &count, c->options));
        break;
    case RILL_ALLGATHER: CHECK_OK(rill_allgather(c->comm, c->in, c->out, c->options)); break;
    default: CHECK_OK(rill_bcast(c->comm, c->out, root, c->options));
    }
}

/* This rank's share of the indices, so that supports are disjoint. */
static void fill_share(rill_stream *host, rill_stream *there, rng *random, bool dense) {
    uint32_t idx[200];
    uint64_t n = dense ? 200 : 20;
    float val[200];
    for (uint64_t i = 0; i < n; i++) {
        idx[i] = (uint32_t)(i * (uint64_t)check.size + (uint64_t)check.rank);
        val[i] = (float)(rng_unit(random) - 0.5);
    }
    void *idx_there = make(idx, n * sizeof *idx), *val_there = make(val, n * sizeof *val);
    CHECK_OK(rill_stream_set_pairs(host, n, idx, val));
    CHECK_OK(rill_stream_set_pairs(there, n, idx_there, val_there));
    if (dense) {
        CHECK_OK(rill_stream_to_dense(host));
        CHECK_OK(rill_stream_to_dense(there));
    }
    drop(idx_there, n * sizeof *idx);
    drop(val_there, n * sizeof *val);
}

static void test_collective(rill_comm *const comm[2], rill_collective what, bool in_place,
                            bool dense) {
    check_case("%s%s%s of streams", rill_collective_name(what), in_place ? ", in place" : "",
               dense ? ", dense" : "");
    rng random = rng_make(check.seed, 9 + (uint64_t)check.rank);
    uint64_t dim = 200 * (uint64_t)check.size;
    rill_options o = RILL_OPTIONS_INIT;
    rill_stream *s[2][2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_stream_create(RILL_F32, dim, &s[0][i]));
        CHECK_OK(rill__stream_create_in(space, RILL_F32, dim, &s[1][i]));
    }
    if (what == RILL_ALLREDUCE) o.algorithm = dense ? "dsar" : "split_allgather";
    for (int round = 0; round < 3; round++) { /* the planner and the memory of a call learn */
        fill_share(s[0][0], s[1][0], &random, dense && what != RILL_ALLGATHER);
        if (what == RILL_BCAST)
            for (int i = 0; i < 2; i++)
                CHECK_OK(rill_stream_copy(s[i][1], s[i][0]));
        for (int i = 0; i < 2; i++) {
            rill_stream *out = s[i][in_place ? 0 : 1];
            run_collective(&(call){comm[i], s[i][0], out, &o}, what);
        }
        check_stream(s[0][in_place ? 0 : 1], s[1][in_place ? 0 : 1]);
    }
    /* From one memory to the other. */
    fill_share(s[0][0], s[1][0], &random, false);
    if (what != RILL_BCAST && !in_place) {
        run_collective(&(call){comm[0], s[0][0], s[1][1], &o}, what);
        run_collective(&(call){comm[1], s[1][0], s[0][1], &o}, what);
        check_stream(s[0][1], s[1][1]);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_stream_free(&s[0][i]));
        CHECK_OK(rill_stream_free(&s[1][i]));
    }
}

static void test_collectives(rill_comm *const comm[2]) {
    static const rill_collective all[] = {RILL_ALLREDUCE, RILL_REDUCE, RILL_REDUCE_SCATTER,
                                          RILL_ALLGATHER, RILL_BCAST};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int variant = 0; variant < 4; variant++)
            if (all[i] != RILL_BCAST || variant % 2 == 0)
                test_collective(comm, all[i], variant % 2, variant / 2);
}

/* ---- steps of reducers -------------------------------------------------------------------- */

typedef enum way { STEP, START, STREAM, TENSORS, WAYS } way;

/* A reducer on the host, and one in the memory, on communicators of their own: so they have the
 * same number, and round alike. */
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
    /* s2 asks whether all have memory, unless it is there from the step before: in the user's
     * stream or not. */
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

/* A rank that has no memory in the space: all get the error, and nothing of the gradient is lost.
 */
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
    check_init(&argc, &argv);
    space = mock_create();
    both b = {.type = RILL_F32, .dim = 6000};
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &b.comm[i]));
    test_collectives(b.comm);
    test_reducers(&b);
    test_staging(&b);
    test_file(&b);
    test_no_memory(&b);
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_free(&b.comm[i]));
    mock_free(space);
    return check_finish(60);
}
