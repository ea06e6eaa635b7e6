/* One collective from its case: streams made, called in any of the three ways, result checked. */
#ifndef RILL_TESTS_RUNS_H
#define RILL_TESTS_RUNS_H

#include "cases.h"

typedef enum run_mode { RUN_BLOCKING, RUN_NONBLOCKING, RUN_PERSISTENT } run_mode;

typedef struct test_run {
    test_case c;
    rill_stream *in, *out; /* the same where the case says so, and for bcast */
    double *want;
    uint64_t first, count;
    rill_request *request;
} test_run;

static inline int run_has_op(const test_case *c) {
    return c->collective != RILL_ALLGATHER && c->collective != RILL_BCAST;
}
/* The one declared restriction: MPI can't carry a user's operation. */
static inline int run_is_unsupported(const test_case *c) {
    return c->op == OP_USER && run_has_op(c) && c->algorithm &&
           strcmp(c->algorithm, "dense") == 0 && !test_link_is_ucx();
}

/* A case of random parameters; the caller may overwrite what it wants fixed. */
static inline test_case run_random_case(rill_collective collective, uint64_t seed, uint64_t number,
                                        uint64_t largest) {
    static const uint64_t gaps[] = {1, 2, 5, 20, 100, 1000};
    rng r = rng_make(seed, number * 16 + (uint64_t)collective);
    uint64_t size = (uint64_t)check.size;
    uint64_t dims[] = {1, 2, 3, 7, size > 1 ? size - 1 : 1, size, 64, 1000, 4099, 65539};
    test_case c = {.collective = collective, .seed = rng_next(&r)};
    c.codec = case_random_codec(&r);
    c.partition = case_random_partition(&r);
    c.op = (test_op)rng_below(&r, OP_COUNT);
    c.type = test_types[rng_below(&r, TYPE_COUNT)];
    c.form = (form)rng_below(&r, FORM_COUNT);
    c.support = (support)rng_below(&r, SUPPORT_COUNT);
    do
        c.dim = dims[rng_below(&r, sizeof dims / sizeof *dims)];
    while (c.dim > largest);
    c.gap = gaps[rng_below(&r, 6)];
    c.root = (int)rng_below(&r, size);
    c.in_place = rng_below(&r, 3) == 0;
    c.expected_nnz = rng_below(&r, 4) ? 0 : rng_below(&r, c.dim + 1);
    int algorithms = 0;
    while (case_algorithm(collective, algorithms))
        algorithms++;
    uint64_t a = rng_below(&r, (uint64_t)algorithms + 1);
    c.algorithm = case_algorithm(collective, (int)a); /* past the end: unset */
    if (collective == RILL_ALLGATHER && c.support != SUPPORT_EMPTY && c.support != SUPPORT_ONE_RANK)
        c.support = SUPPORT_DISJOINT;
    if (run_is_unsupported(&c)) c.op = OP_MAX;
    return c;
}

/* New inputs of the case's seed into the streams, and what to expect of them. Collective. */
static inline void run_load(test_run *run) {
    const test_case *c = &run->c;
    contribution k = case_contribution(c, check.rank, check.size);
    if (run->in) case_fill_stream(c, check.rank, &k, run->in);
    free(run->want);
    run->want = case_expected(c, &k);
    contribution_free(&k);
}

static inline test_run run_make(const test_case *c) {
    test_run run = {.c = *c};
    int shared = c->in_place || c->collective == RILL_BCAST;
    CHECK_OK(rill_stream_create(c->type, c->dim, &run.in));
    if (shared) run.out = run.in;
    else if (c->collective != RILL_REDUCE || check.rank == c->root || c->seed & 1) {
        CHECK_OK(rill_stream_create(c->type, c->dim, &run.out));
        /* What the output had before doesn't matter. */
        uint32_t junk = (uint32_t)(c->dim - 1);
        double seven;
        value_store(c->type, &seven, 0, 7);
        CHECK_OK(rill_stream_set_pairs(run.out, 1, &junk, &seven));
        if (c->seed & 2) CHECK_OK(rill_stream_to_dense(run.out));
    }
    run_load(&run);
    return run;
}

static inline void run_free(test_run *run) {
    if (run->request) CHECK_OK(rill_request_free(&run->request));
    CHECK(run->request == NULL);
    if (run->out != run->in) rill_stream_free(&run->out);
    rill_stream_free(&run->in);
    free(run->want);
}

/* Calls the collective; mode tells which form. Non-blocking ones leave run->request started, a
 * persistent one has yet to be started. */
static inline rill_status run_call(test_run *run, rill_comm *comm, run_mode mode) {
    const test_case *c = &run->c;
    rill_options o = case_options(c);
    const rill_op *op = case_op(c);
    rill_stream *in = run->in, *out = run->out;
    rill_request **q = &run->request;
    uint64_t *f = &run->first, *n = &run->count;
    run->first = run->count = UINT64_MAX;
    switch (c->collective) {
    case RILL_ALLREDUCE:
        return mode == RUN_BLOCKING      ? rill_allreduce(comm, in, out, op, &o)
               : mode == RUN_NONBLOCKING ? rill_iallreduce(comm, in, out, op, &o, q)
                                         : rill_allreduce_init(comm, in, out, op, &o, q);
    case RILL_REDUCE:
        return mode == RUN_BLOCKING      ? rill_reduce(comm, in, out, op, c->root, &o)
               : mode == RUN_NONBLOCKING ? rill_ireduce(comm, in, out, op, c->root, &o, q)
                                         : rill_reduce_init(comm, in, out, op, c->root, &o, q);
    case RILL_REDUCE_SCATTER:
        return mode == RUN_BLOCKING      ? rill_reduce_scatter(comm, in, out, op, f, n, &o)
               : mode == RUN_NONBLOCKING ? rill_ireduce_scatter(comm, in, out, op, f, n, &o, q)
                                         : rill_reduce_scatter_init(comm, in, out, op, f, n, &o, q);
    case RILL_ALLGATHER:
        return mode == RUN_BLOCKING      ? rill_allgather(comm, in, out, &o)
               : mode == RUN_NONBLOCKING ? rill_iallgather(comm, in, out, &o, q)
                                         : rill_allgather_init(comm, in, out, &o, q);
    case RILL_BCAST:
        return mode == RUN_BLOCKING      ? rill_bcast(comm, in, c->root, &o)
               : mode == RUN_NONBLOCKING ? rill_ibcast(comm, in, c->root, &o, q)
                                         : rill_bcast_init(comm, in, c->root, &o, q);
    }
    return RILL_ERR_ARGUMENT;
}

/* My range is where those of the lower ranks end; the last ends at dim. */
static inline void run_check_ranges(const test_run *run) {
    uint64_t mine[2] = {run->first, run->count}, end = 0;
    uint64_t *all = malloc((size_t)check.size * sizeof mine);
    MPI_Allgather(mine, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < check.size; i++) {
        if (all[2 * i + 1]) CHECK_INT(all[2 * i], ==, end);
        end += all[2 * i + 1];
    }
    CHECK_INT(end, ==, run->c.dim);
    free(all);
}

/* Compares the result, and tries that all ranks have the same bits. Collective. */
static inline void run_verify(test_run *run) {
    const test_case *c = &run->c;
    double fill = op_neutral(run_has_op(c) ? c->op : OP_SUM);
    switch (c->collective) {
    case RILL_REDUCE:
        if (check.rank == c->root) check_values(run->out, run->want, 0, c->dim, fill, NULL, 0);
        break;
    case RILL_REDUCE_SCATTER:
        run_check_ranges(run);
        check_values(run->out, run->want, run->first, run->count, fill, NULL, 0);
        break;
    default:
        check_values(run->out, run->want, 0, c->dim, fill, NULL, 0);
        check_same_on_all_ranks("the stored result", stream_hash(run->out));
        break;
    }
}

/* Statistics that any collective must give. */
static inline void run_check_stats(const test_case *c, const rill_stats *s, uint64_t nnz_in,
                                   const rill_stream *out) {
    CHECK(s->algorithm && s->algorithm[0]);
    if (c->algorithm && strcmp(c->algorithm, "auto") != 0) CHECK_STRING(s->algorithm, c->algorithm);
    CHECK(strcmp(s->algorithm, "auto") != 0);
    CHECK(s->codec != NULL);
    CHECK(s->elapsed_s >= 0 && s->elapsed_s < 1000);
    CHECK_INT(s->selected_k, ==, 0);
    if (c->collective != RILL_BCAST) CHECK_INT(s->nnz_in, ==, nnz_in);
    if (out && (c->collective != RILL_REDUCE || check.rank == c->root))
        CHECK_INT(s->nnz_out, ==, rill_stream_nnz(out));
    if (check.size == 1) CHECK_INT(s->sent_bytes, ==, 0);
    if (check.size > 1 && c->collective == RILL_ALLREDUCE) {
        CHECK_INT(s->sent_bytes, >, 0);
        CHECK_INT(s->recv_bytes, >, 0);
        CHECK_INT(s->rounds, >, 0);
    }
}

#endif
