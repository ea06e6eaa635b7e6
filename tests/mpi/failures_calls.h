/* Scenarios of test_failures.c: communicators, collectives, tuning. */
#ifndef RILL_TESTS_FAILURES_CALLS_H
#define RILL_TESTS_FAILURES_CALLS_H

#include "failures.h"

enum { CALL_DIM = 5000, CALL_NNZ = 300, FEW_NNZ = 16, MORE_NNZ = 90 };

/* ---- collectives ----------------------------------------------------------------------------- */

typedef struct call_streams {
    rill_stream *in, *out;
    uint64_t first, count;
} call_streams;

/* Small integers, whose sums are exact; for allgather no index is on two ranks. */
static void fill_entries(const scenario *s, rill_stream *in, uint32_t n) {
    uint32_t idx[CALL_NNZ], width = (uint32_t)(CALL_DIM / check.size);
    float val[CALL_NNZ];
    uint32_t shift = s->collective == RILL_ALLGATHER ? (uint32_t)check.rank * width : 0;
    for (uint32_t i = 0; i < n; i++) {
        idx[i] = shift + (i * 37 + (uint32_t)check.rank * 5) % width;
        val[i] = (float)(1 + (i + (uint32_t)check.rank) % 7);
    }
    CHECK_OK(rill_stream_set_pairs(in, n, idx, val));
}
static void fill_input(const scenario *s, rill_stream *in) { fill_entries(s, in, CALL_NNZ); }

static rill_status call_collective(const scenario *s, call_streams *x) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = s->algorithm;
    o.value_bits = s->bits;
    rill_comm *c = failing.comm;
    rill_request *q = NULL;
    rill_status status = RILL_OK;
    switch (s->collective) {
    case RILL_ALLREDUCE:
        status = s->form == 0   ? rill_allreduce(c, x->in, x->out, RILL_SUM, &o)
                 : s->form == 1 ? rill_iallreduce(c, x->in, x->out, RILL_SUM, &o, &q)
                                : rill_allreduce_init(c, x->in, x->out, RILL_SUM, &o, &q);
        break;
    case RILL_REDUCE:
        status = s->form == 0   ? rill_reduce(c, x->in, x->out, RILL_SUM, 0, &o)
                 : s->form == 1 ? rill_ireduce(c, x->in, x->out, RILL_SUM, 0, &o, &q)
                                : rill_reduce_init(c, x->in, x->out, RILL_SUM, 0, &o, &q);
        break;
    case RILL_REDUCE_SCATTER:
        status = s->form == 0
                     ? rill_reduce_scatter(c, x->in, x->out, RILL_SUM, &x->first, &x->count, &o)
                 : s->form == 1 ? rill_ireduce_scatter(c, x->in, x->out, RILL_SUM, &x->first,
                                                       &x->count, &o, &q)
                                : rill_reduce_scatter_init(c, x->in, x->out, RILL_SUM, &x->first,
                                                           &x->count, &o, &q);
        break;
    case RILL_ALLGATHER:
        status = s->form == 0   ? rill_allgather(c, x->in, x->out, &o)
                 : s->form == 1 ? rill_iallgather(c, x->in, x->out, &o, &q)
                                : rill_allgather_init(c, x->in, x->out, &o, &q);
        break;
    case RILL_BCAST:
        status = s->form == 0   ? rill_bcast(c, x->in, 0, &o)
                 : s->form == 1 ? rill_ibcast(c, x->in, 0, &o, &q)
                                : rill_bcast_init(c, x->in, 0, &o, &q);
        break;
    }
    if (s->form ==
        2) { /* init is local: it may fail on one rank, whose program then has to tell the others */
        CHECK_OK(status);
        if (!s->plain) fail_on();
        status = rill_start(q);
    }
    if (s->form != 0 && status == RILL_OK) status = rill_wait(q);
    char detail[300];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    fail_off();
    rill_request_free(&q);
    rill_error_set(status, detail);
    return status;
}

/* What all ranks have must be the same bits; without rounding, the sum (of one contribution:
 * itself). */
static void verify_result(const scenario *s, const call_streams *x, const float *mine) {
    static float got[CALL_DIM], want[CALL_DIM];
    rill_collective c = s->collective;
    const rill_stream *result = c == RILL_BCAST ? x->in : x->out;
    uint64_t first = 0, count = CALL_DIM;
    if (c == RILL_REDUCE_SCATTER) first = x->first, count = x->count;
    if (c == RILL_REDUCE && check.rank != 0) count = 0;
    memcpy(want, mine, sizeof want);
    if (c == RILL_BCAST) MPI_Bcast(want, CALL_DIM, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else MPI_Allreduce(mine, want, CALL_DIM, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK_OK(rill_stream_get_dense(result, got));
    if (c == RILL_ALLREDUCE || c == RILL_ALLGATHER || c == RILL_BCAST)
        same_bits("the result", got, sizeof got);
    for (uint64_t i = first; s->bits == 0 && i < first + count; i++)
        if (got[i] != want[i]) {
            violated("entry %llu is %g, not %g", (unsigned long long)i, (double)got[i],
                     (double)want[i]);
            break;
        }
}

static void attempt_collective(const scenario *s) {
    static float mine[CALL_DIM];
    call_streams x = {NULL, NULL, 0, 0};
    if (s->reads) setenv("RILL_READ_BYTES", "1", 1);
    need_comm();
    unsetenv("RILL_READ_BYTES");
    CHECK_OK(rill_stream_create(RILL_F32, CALL_DIM, &x.in));
    CHECK_OK(rill_stream_create(RILL_F32, CALL_DIM, &x.out));
    fill_input(s, x.in);
    CHECK_OK(rill_stream_get_dense(x.in, mine));
    if (!s->plain && s->form != 2) fail_on();
    rill_status status = call_collective(s, &x);
    int hit = !s->plain && failing.hit, ok = fail_agreed("the call", status);
    MPI_Bcast(&hit, 1, MPI_INT, failing.rank, MPI_COMM_WORLD);
    if (ok) verify_result(s, &x, mine);
    else if (!hit && status == RILL_ERR_UNSUPPORTED) failing.refused++;
    else if (!hit) violated("fails by itself: %d (%s)", (int)status, rill_last_error());
    rill_stream_free(&x.in);
    rill_stream_free(&x.out);
    drop_comm(); /* after a failed call nothing else is promised */
}

/* ---- small calls ----------------------------------------------------------------------------- */

/* What a call may bring that those before it did not. */
enum { SMALL_SAME, SMALL_FRESH, SMALL_MORE, SMALL_FORMS };
static const char *const small_names[] = {"same streams", "fresh result", "more entries"};

/* A call of a few entries after others of its kind: it may go without a request (call/again.h), and
 * where it lacks memory it must not go on so. */
static void attempt_small(const scenario *s) {
    enum { BEFORE = 6 };
    static float mine[CALL_DIM];
    call_streams x = {NULL, NULL, 0, 0};
    scenario call = *s;
    call.form = 0;
    need_comm();
    CHECK_OK(rill_stream_create(RILL_F32, CALL_DIM, &x.in));
    CHECK_OK(rill_stream_create(RILL_F32, CALL_DIM, &x.out));
    fill_entries(s, x.in, FEW_NNZ);
    for (int i = 0; i < BEFORE; i++)
        CHECK_OK(call_collective(&call, &x));
    if (s->form == SMALL_FRESH) {
        rill_stream_free(&x.out);
        CHECK_OK(rill_stream_create(RILL_F32, CALL_DIM, &x.out));
    }
    if (s->form == SMALL_MORE) fill_entries(s, x.in, MORE_NNZ);
    CHECK_OK(rill_stream_get_dense(x.in, mine));
    fail_on();
    rill_status status = call_collective(&call, &x);
    int hit = failing.hit, ok = fail_agreed("the call", status);
    MPI_Bcast(&hit, 1, MPI_INT, failing.rank, MPI_COMM_WORLD);
    if (ok) verify_result(s, &x, mine);
    else if (!hit) violated("fails by itself: %d (%s)", (int)status, rill_last_error());
    rill_stream_free(&x.in);
    rill_stream_free(&x.out);
    drop_comm();
}

/* ---- rill_comm_create ------------------------------------------------------------------------ */

static void attempt_create(const scenario *s) {
    scenario call = {.collective = RILL_ALLREDUCE, .algorithm = "auto", .plain = 1};
    rill_config config = RILL_CONFIG_INIT;
    config.progress_thread = s->form;
    rill_comm *comm = NULL;
    fail_on();
    rill_status status = rill_comm_create(MPI_COMM_WORLD, &config, &comm);
    int ok = fail_agreed("rill_comm_create", status);
    if (status != RILL_OK && comm) violated("failed with a communicator");
    if (ok) {
        failing.comm = comm;
        attempt_collective(&call);
    }
}

/* One more of the same ranks. The first goes on, whatever becomes of the second. */
static void attempt_dup(const scenario *s) {
    scenario call = {.collective = RILL_ALLREDUCE, .algorithm = "auto", .plain = 1};
    rill_comm *first, *second = NULL;
    (void)s;
    need_comm();
    first = failing.comm;
    fail_on();
    rill_status status = rill_comm_dup(first, NULL, &second);
    int ok = fail_agreed("rill_comm_dup", status);
    if (status != RILL_OK && second) violated("failed with a communicator");
    attempt_collective(&call); /* which frees it */
    failing.comm = second;
    if (ok) attempt_collective(&call);
    failing.comm = NULL;
}

/* ---- rill_tune ------------------------------------------------------------------------------- */

static void attempt_tune(const scenario *s) {
    rill_tune_options o = RILL_TUNE_OPTIONS_INIT;
    rill_tune_report report = RILL_TUNE_REPORT_INIT;
    o.profile = failing.path;
    o.seconds = 0.02;
    (void)s;
    need_comm();
    if (file_hash(failing.path) == 0)
        fail_free_call("a first rill_tune", rill_tune(failing.comm, &o, &report));
    uint64_t before = file_hash(failing.path);
    fail_on();
    rill_status status = rill_tune(failing.comm, &o, &report);
    if (!fail_agreed("rill_tune", status)) files_as_before(before, 1);
    else if (check.rank == 0) {
        rill_plan_query q = RILL_PLAN_QUERY_INIT;
        rill_plan_row rows[32];
        int n;
        q.profile = failing.path;
        q.ranks = check.size;
        q.dim = 1000;
        if (rill_plan(&q, rows, 32, &n) != RILL_OK) violated("the profile: %s", rill_last_error());
    }
    drop_comm();
}

#endif
