/* Small sums that are like the last call (call/again.h): the same results and statistics as those
 * of a request (persistent ones are never without one), whatever changes from one call to the next,
 * and errors that reach every rank. */
#include "check.h"

#include <stdbool.h>
#include <string.h>

enum { DIM = 4096, MOST = 600, WARM = 6 };

typedef struct sum {
    rill_type type;
    uint64_t dim;
    const rill_op *op;
    const char *algorithm, *codec;
    bool in_place;
    int n; /* entries of rank 0; others have one more each */
    int seed;
} sum;

static rill_options options_of(const sum *s) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = s->algorithm;
    o.codec = s->codec;
    return o;
}

/* Values that sum exactly in every type. */
static void fill(rill_stream *stream, const sum *s, int rank) {
    static uint32_t index[MOST];
    static double f64[MOST];
    static float f32[MOST];
    int n = s->n + (s->n ? rank : 0);
    uint64_t step = s->dim / (uint64_t)(n + 1);
    for (int i = 0; i < n; i++) {
        index[i] = (uint32_t)((uint64_t)i * step + (uint64_t)(s->seed * 7 + rank * 3 + i) % step);
        f64[i] = f32[i] = (float)(1 + (i + s->seed) % 5);
    }
    CHECK_OK(rill_stream_set_pairs(stream, (uint64_t)n, index,
                                   s->type == RILL_F64 ? (void *)f64 : (void *)f32));
}

static void make(const sum *s, rill_stream **in, rill_stream **out) {
    CHECK_OK(rill_stream_create(s->type, s->dim, in));
    CHECK_OK(rill_stream_create(s->type, s->dim, out));
    fill(*in, s, check.rank);
    if (s->in_place) fill(*out, s, check.rank);
}

/* The bits of the result, and what the call says of itself. */
typedef struct said {
    double dense[DIM];
    uint64_t nnz;
    rill_stats stats;
} said;

static void note(const rill_stream *out, said *x) {
    static float f32[DIM];
    memset(x->dense, 0, sizeof x->dense);
    x->nnz = rill_stream_nnz(out);
    if (rill_stream_type(out) == RILL_F64) CHECK_OK(rill_stream_get_dense(out, x->dense));
    else CHECK_OK(rill_stream_get_dense(out, f32));
    for (uint64_t i = 0; rill_stream_type(out) != RILL_F64 && i < rill_stream_dim(out); i++)
        x->dense[i] = f32[i];
}

static void blocking(rill_comm *comm, const sum *s, said *x) {
    rill_stream *in = NULL, *out = NULL;
    rill_options o = options_of(s);
    make(s, &in, &out);
    bool bare = !s->algorithm && !s->codec;
    CHECK_OK(rill_allreduce(comm, s->in_place ? out : in, out, s->op, bare ? NULL : &o));
    x->stats = (rill_stats)RILL_STATS_INIT;
    CHECK_OK(rill_comm_stats(comm, &x->stats));
    note(out, x);
    rill_stream_free(&in);
    rill_stream_free(&out);
}

static void persistent(rill_comm *comm, const sum *s, said *x) {
    rill_stream *in = NULL, *out = NULL;
    rill_request *request = NULL;
    rill_options o = options_of(s);
    make(s, &in, &out);
    CHECK_OK(rill_allreduce_init(comm, s->in_place ? out : in, out, s->op, &o, &request));
    CHECK_OK(rill_start(request));
    CHECK_OK(rill_wait(request));
    x->stats = (rill_stats)RILL_STATS_INIT;
    CHECK_OK(rill_request_stats(request, &x->stats));
    CHECK_OK(rill_request_free(&request));
    note(out, x);
    rill_stream_free(&in);
    rill_stream_free(&out);
}

/* x: without a request, perhaps; y: with one. */
static void same(const said *x, const said *y) {
    CHECK_INT(memcmp(x->dense, y->dense, sizeof x->dense), ==, 0);
    CHECK_INT(x->nnz, ==, y->nnz);
    CHECK_INT(x->stats.nnz_in, ==, y->stats.nnz_in);
    CHECK_INT(x->stats.nnz_out, ==, y->stats.nnz_out);
    CHECK_INT(strcmp(x->stats.algorithm, y->stats.algorithm), ==, 0);
    CHECK(x->stats.elapsed_s > 0);
    if (strcmp(x->stats.codec, y->stats.codec) != 0) return; /* the planner's choice of another */
    CHECK_INT(x->stats.sent_bytes, ==, y->stats.sent_bytes);
    CHECK_INT(x->stats.recv_bytes, ==, y->stats.recv_bytes);
    CHECK_INT(x->stats.messages, ==, y->stats.messages);
    CHECK_INT(x->stats.rounds, ==, y->stats.rounds);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Calls of a kind with n entries and then others: fewer, none, many, and n again. */
static void counts(rill_comm *comm, rill_comm *other, sum s) {
    static said x, y;
    static const int n[] = {16, 16, 16, 17, 3, 16, 0, 16, 16, 200, 16, 260, 16, 400, 16, 16};
    for (int i = 0; i < (int)(sizeof n / sizeof *n); i++) {
        s.n = n[i];
        s.seed = i;
        for (int k = 0; k < (i ? 2 : WARM); k++) {
            blocking(comm, &s, &x);
            persistent(other, &s, &y);
            same(&x, &y);
        }
    }
}

static void kinds(rill_comm *comm, rill_comm *other) {
    static const sum all[] = {
        {RILL_F32, DIM, NULL, "recursive_double", NULL, false, 16, 0},
        {RILL_F64, DIM, NULL, "recursive_double", NULL, false, 16, 0},
        {RILL_F32, DIM, NULL, "recursive_double", "raw", true, 16, 0},
        {RILL_F32, DIM - 1, NULL, "recursive_double", "bitpack", false, 16, 0},
        {RILL_F32, DIM, NULL, "split_allgather", NULL, false, 16, 0},
    };
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
        sum s = all[i];
        check_case("kind %d", i);
        s.op = RILL_SUM;
        counts(comm, other, s);
        s.op = RILL_MAX;
        counts(comm, other, s);
    }
}

/* One thing differs from call to call, and comes back. */
static void changes(rill_comm *comm, rill_comm *other) {
    static said x, y;
    check_case("what changes from call to call");
    const sum usual = {RILL_F32, DIM, RILL_SUM, "recursive_double", NULL, false, 20, 1};
    for (int i = 0; i < 60; i++) {
        sum s = usual;
        s.seed = i;
        switch (i % 12) {
        case 2: s.dim = DIM / 2; break;
        case 4: s.type = RILL_F64; break;
        case 5: s.op = RILL_MIN; break;
        case 7: s.algorithm = "ring"; break;
        case 8: s.codec = "elias_fano"; break;
        case 10: s.in_place = true; break;
        default: break;
        }
        blocking(comm, &s, &x);
        persistent(other, &s, &y);
        same(&x, &y);
    }
    char name[32] = "recursive_double"; /* the same text in the same place need not stay it */
    sum s = usual;
    s.algorithm = name;
    for (int i = 0; i < 12; i++) {
        strcpy(name, i % 4 == 3 ? "allgather" : "recursive_double");
        blocking(comm, &s, &x);
        CHECK_INT(strcmp(x.stats.algorithm, name), ==, 0);
    }
}

/* A rank that is in something else, while the others go on as before. */
static void mistakes(rill_comm *comm, rill_comm *other) {
    static said x, y;
    check_case("one rank makes another call");
    if (check.size < 2) return;
    const sum usual = {RILL_F32, DIM, RILL_SUM, "recursive_double", NULL, false, 16, 2};
    for (int i = 0; i < 24; i++) {
        for (int k = 0; k < WARM; k++)
            blocking(comm, &usual, &x);
        persistent(other, &usual, &y);
        same(&x, &y);
        sum wrong = usual;
        bool mine = check.rank == i % check.size;
        if (mine && i % 3 == 0) wrong.dim = DIM / 4;
        if (mine && i % 3 == 1) wrong.op = RILL_PROD;
        if (mine && i % 3 == 2) wrong.codec = "bitpack";
        rill_stream *in = NULL, *out = NULL;
        rill_options o = options_of(&wrong);
        make(&wrong, &in, &out);
        rill_status status = rill_allreduce(comm, in, out, wrong.op, &o);
        CHECK_STATUS(status, RILL_ERR_MISMATCH);
        CHECK_STATUS(rill_allreduce(comm, mine ? NULL : in, out, wrong.op, &o), RILL_ERR_ARGUMENT);
        rill_stream_free(&in);
        rill_stream_free(&out);
    }
}

/* Others are under way: requests, and what they leave. */
static void mixtures(rill_comm *comm, rill_comm *other) {
    static said x, y;
    check_case("between other calls");
    const sum usual = {RILL_F32, DIM, RILL_SUM, "recursive_double", NULL, false, 16, 3};
    rill_stream *in = NULL, *out = NULL;
    rill_options o = options_of(&usual);
    make(&usual, &in, &out);
    for (int i = 0; i < 40; i++) {
        rill_request *request = NULL;
        if (i % 3 == 0) CHECK_OK(rill_iallreduce(comm, in, out, RILL_SUM, &o, &request));
        blocking(comm, &usual, &x);
        if (request) CHECK_OK(rill_wait(request));
        blocking(comm, &usual, &x);
        if (request) CHECK_OK(rill_request_free(&request));
        persistent(other, &usual, &y);
        same(&x, &y);
    }
    rill_stream_free(&in);
    rill_stream_free(&out);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    rill_comm *comm = NULL, *other = NULL;
    setenv("RILL_MAIL_BYTES", "4096", 1);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &other));
    unsetenv("RILL_MAIL_BYTES");
    kinds(comm, other);
    changes(comm, other);
    mistakes(comm, other);
    mixtures(comm, other);
    CHECK_OK(rill_comm_free(&other));
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(8);
}
