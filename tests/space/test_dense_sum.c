/* The dense sums that stand in for MPI's where a link has none (coll/patterns/dense_sum.h), or
 * where ranks can read each other's memory (coll/patterns/host_sum.h), beside MPI's: a communicator
 * that is told that it has no MPI, and one that may read, give the same bits for values that sum
 * exactly. And local communicators, which have no MPI. */
#include "../mpi/check.h"
#include "../support/model.h"

#include "api/comm.h"

enum { MPIS, OWN, READS, COMMS };

static rill_comm *comm[COMMS];
static rill_op *lowest;

static model input_of(uint64_t dim, double density, test_op op, int rank) {
    rng r = rng_make(check.seed + dim, (uint64_t)rank);
    return model_random(dim, density, op, &r, rank);
}

static model expected_of(uint64_t dim, double density, test_op op, int ranks) {
    model sum = input_of(dim, density, op, 0);
    for (int rank = 1; rank < ranks; rank++) {
        model one = input_of(dim, density, op, rank);
        model_add(&sum, &one, op);
        model_free(&one);
    }
    sum.fill = op_neutral(op);
    return sum;
}

static void fill(rill_stream *s, const model *m, test_op op, bool dense) {
    CHECK_OK(model_set_pairs(m, s));
    if (dense && op == OP_SUM) CHECK_OK(rill_stream_to_dense(s));
}

static void check_against(const model *expected, const rill_stream *s) {
    double got = 0;
    uint64_t at = model_compare(expected, s, &got);
    CHECK_INT(at, ==, expected->dim);
    if (at < expected->dim) CHECK_NUMBER(got, model_at(expected, at));
}

/* ---- dense ---------------------------------------------------------------------------------- */

static void test_dense(rill_type type, test_op op, uint64_t dim, double density, bool in_place) {
    check_case("dense: %s of %s, dim %llu, density %g%s", test_op_names[op], rill_type_name(type),
               (unsigned long long)dim, density, in_place ? ", in place" : "");
    model mine = input_of(dim, density, op, check.rank);
    model expected = expected_of(dim, density, op, check.size);
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = "dense";
    for (int which = op == OP_USER ? OWN : MPIS; which < COMMS; which++) {
        rill_stream *in = NULL, *out = NULL;
        CHECK_OK(rill_stream_create(type, dim, &in));
        CHECK_OK(rill_stream_create(type, dim, &out));
        fill(in, &mine, op, density == 1);
        rill_stream *to = in_place ? in : out;
        CHECK_OK(rill_allreduce(comm[which], in, to, op_rill(op, lowest), &o));
        check_against(&expected, to);
        if (which != MPIS && check.size > 1) {
            rill_stats st = RILL_STATS_INIT;
            CHECK_OK(rill_comm_stats(comm[which], &st));
            CHECK(st.sent_bytes > 0);
            if (which == READS && comm[READS]->planner.read_bytes)
                CHECK_INT(st.messages, ==, 3 * (uint64_t)(check.size - 1));
            CHECK_STRING(st.algorithm, "dense");
        }
        rill_stream_free(&in);
        rill_stream_free(&out);
    }
    model_free(&mine);
    model_free(&expected);
}

/* Short ones double, long ones go to owners; some ranks own nothing of the shortest. */
static void test_denses(void) {
    static const uint64_t dims[] = {1, 3, 130, 5003, 90001};
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int type = 0; type < TYPE_COUNT; type++)
            for (int op = 0; op < OP_COUNT; op++)
                test_dense(test_types[type], (test_op)op, dims[d], op % 2 ? 0.3 : 1,
                           (type + op) % 2);
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* An operation that fails on one rank when it has added that many values. */
typedef struct tired {
    bool here;
    uint64_t left;
} tired;

static void tired_fn(const void *lower, const void *upper, void *result, uint64_t n, rill_type type,
                     void *context) {
    tired *t = context;
    for (uint64_t i = 0; i < n; i++)
        value_store(type, result, i, value_load(type, lower, i) + value_load(type, upper, i));
    t->left -= n < t->left ? n : t->left;
    if (t->here && !t->left) rill_error_set(RILL_OK, "tired");
}

static void test_tired(rill_comm *hosts, const rill_stream *in, rill_stream *out,
                       const rill_options *o) {
    tired t = {check.rank == check.size - 1, 100000};
    rill_op *op = NULL;
    CHECK_OK(rill_op_create("tired", tired_fn, &t, 0, 0, &op));
    CHECK_STATUS(rill_allreduce(hosts, in, out, op, o), RILL_ERR_ARGUMENT);
    CHECK(strstr(rill_last_error(), "tired"));
    rill_op_free(&op);
}

/* Pairs that turn dense piece by piece: to the bits of a vector that was dense before. */
static void test_sparse_pieces(rill_comm *hosts, uint64_t dim, const rill_options *o) {
    enum { STEP = 37 };
    uint64_t n = 0;
    uint32_t *idx = malloc((dim / STEP + 2) * sizeof *idx);
    float *values = malloc((dim / STEP + 2) * sizeof *values);
    rill_stream *in = NULL, *whole = NULL, *out = NULL;
    rng r = rng_make(check.seed, 950 + (uint64_t)check.rank);
    for (uint64_t at = (uint64_t)check.rank % STEP; at < dim; at += 1 + rng_below(&r, 2 * STEP)) {
        if (n == dim / STEP) break;
        idx[n] = (uint32_t)at;
        values[n++] = (float)rng_normal(&r);
    }
    CHECK_OK(rill_stream_create(RILL_F32, dim, &in));
    CHECK_OK(rill_stream_create(RILL_F32, dim, &whole));
    CHECK_OK(rill_stream_create(RILL_F32, dim, &out));
    CHECK_OK(rill_stream_set_pairs(in, n, idx, values));
    CHECK_OK(rill_allreduce(comm[OWN], in, whole, RILL_SUM, o));
    CHECK_OK(rill_stream_to_dense(whole));
    for (int round = 0; round < 2; round++) {
        CHECK_OK(rill_allreduce(hosts, in, out, RILL_SUM, o));
        CHECK_OK(rill_stream_to_dense(out));
        CHECK(memcmp(rill_stream_values(whole), rill_stream_values(out), dim * sizeof *values) ==
              0);
    }
    CHECK_OK(rill_allreduce(hosts, in, in, RILL_SUM, o));
    CHECK_OK(rill_stream_to_dense(in));
    CHECK(memcmp(rill_stream_values(whole), rill_stream_values(in), dim * sizeof *values) == 0);
    rill_stream_free(&in);
    rill_stream_free(&whole);
    rill_stream_free(&out);
    free(idx);
    free(values);
}

/* This rank's values, in a stream; what owners who get messages make of them; and a result. */
static float *make_streams(uint64_t dim, uint64_t stream, const rill_options *o, rill_stream **in,
                           rill_stream **whole, rill_stream **out) {
    float *values = malloc(dim * sizeof *values);
    rng r = rng_make(check.seed, stream + (uint64_t)check.rank);
    for (uint64_t i = 0; i < dim; i++)
        values[i] = (float)rng_normal(&r);
    CHECK_OK(rill_stream_create(RILL_F32, dim, in));
    CHECK_OK(rill_stream_create(RILL_F32, dim, whole));
    CHECK_OK(rill_stream_create(RILL_F32, dim, out));
    CHECK_OK(rill_stream_set_dense(*in, values));
    CHECK_OK(rill_allreduce(comm[OWN], *in, *whole, RILL_SUM, o));
    return values;
}

/* Between hosts long ranges go in pieces: to the bits of those that go whole. */
static void test_pieces(uint64_t dim) {
    check_case("pieces: dim %llu", (unsigned long long)dim);
    rill_comm *hosts = NULL;
    rill_stream *in = NULL, *whole = NULL, *out = NULL;
    rill_stats st = RILL_STATS_INIT;
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = "dense";
    setenv("RILL_HOSTS_OF", "1", 1);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &hosts));
    unsetenv("RILL_HOSTS_OF");
    hosts->planner.mpi_sums = false;
    float *values = make_streams(dim, 900, &o, &in, &whole, &out);
    for (int round = 0; round < 4; round++) {
        CHECK_OK(rill_allreduce(hosts, in, out, RILL_SUM, &o));
        CHECK(memcmp(rill_stream_values(whole), rill_stream_values(out), dim * sizeof *values) ==
              0);
    }
    CHECK_OK(rill_comm_stats(hosts, &st));
    CHECK_INT(st.messages, >=, 4 * (uint64_t)(check.size - 1)); /* of parts and of sums */
    test_sparse_pieces(hosts, dim, &o);
    test_tired(hosts, in, out, &o);
    CHECK_OK(rill_allreduce(hosts, in, out, RILL_SUM, &o));
    CHECK(memcmp(rill_stream_values(whole), rill_stream_values(out), dim * sizeof *values) == 0);
    CHECK_OK(rill_comm_free(&hosts));
    rill_stream_free(&in);
    rill_stream_free(&whole);
    rill_stream_free(&out);
    free(values);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Where ranks read each other's memory: to the bits of owners who get messages, and whatever fails
 * on one rank fails on all. */
static void test_reading(uint64_t dim) {
    check_case("reading: dim %llu", (unsigned long long)dim);
    rill_comm *reads = comm[READS];
    if (!reads->planner.read_bytes) return; /* they may not, here */
    rill_stream *in = NULL, *whole = NULL, *out = NULL;
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = "dense";
    float *values = make_streams(dim, 970, &o, &in, &whole, &out);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(rill_allreduce(reads, in, out, RILL_SUM, &o));
        CHECK(memcmp(rill_stream_values(whole), rill_stream_values(out), dim * sizeof *values) ==
              0);
    }
    test_sparse_pieces(reads, dim, &o);
    test_tired(reads, in, out, &o);
    /* Nobody is at that number: what can't be read is waited for, and not for ever. */
    if (check.size > 1) {
        int64_t *process = &reads->engine.reach.process[(check.rank + 1) % check.size], there;
        there = *process;
        if (check.rank == 0) *process = INT32_MAX;
        CHECK_STATUS(rill_allreduce(reads, in, out, RILL_SUM, &o), RILL_ERR_STATE);
        CHECK(strstr(rill_last_error(), "can't be read"));
        *process = there;
    }
    CHECK_OK(rill_allreduce(reads, in, out, RILL_SUM, &o));
    CHECK(memcmp(rill_stream_values(whole), rill_stream_values(out), dim * sizeof *values) == 0);
    rill_stream_free(&in);
    rill_stream_free(&whole);
    rill_stream_free(&out);
    free(values);
}

/* By default long vectors of one host alone are summed so. */
static void test_default(void) {
    check_case("who reads by default");
    rill_comm *hosts = NULL, *none = NULL;
    uint64_t bytes = comm[MPIS]->planner.read_bytes;
    CHECK(bytes == 0 || bytes >= 1 << 20);
    if (check.size > 1) CHECK((bytes != 0) == (comm[READS]->planner.read_bytes != 0));
    else CHECK_INT(bytes, ==, 0);
    setenv("RILL_HOSTS_OF", "1", 1);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &hosts));
    unsetenv("RILL_HOSTS_OF");
    setenv("RILL_READ_BYTES", "0", 1);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &none));
    unsetenv("RILL_READ_BYTES");
    CHECK_INT(hosts->planner.read_bytes, ==, 0);
    CHECK_INT(none->planner.read_bytes, ==, 0);
    CHECK_OK(rill_comm_free(&hosts));
    CHECK_OK(rill_comm_free(&none));
}

/* ---- reducers ------------------------------------------------------------------------------- */

/* All communicators' updates are the same to the bit, as sums of small whole numbers are exact. */
static void test_reducer(const char *algorithm, rill_type type, uint64_t dim, double lambda) {
    check_case("reducer %s of %s, dim %llu, lambda %g", algorithm, rill_type_name(type),
               (unsigned long long)dim, lambda);
    rill_reducer *r[COMMS] = {NULL};
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.lambda = lambda;
    o.density = 0.1;
    o.feedback = o.average = 0;
    o.seed = check.seed;
    size_t bytes = dim * value_size(type);
    void *gradient = calloc(1, bytes), *update[COMMS];
    for (int which = 0; which < COMMS; which++) {
        CHECK_OK(rill_reducer_create(comm[which], type, dim, &o, &r[which]));
        update[which] = calloc(1, bytes);
    }
    rng random = rng_make(check.seed, 77 + (uint64_t)check.rank);
    for (int step = 0; step < 3; step++) {
        for (uint64_t i = 0; i < dim; i++)
            value_store(type, gradient, i, op_exact_value(OP_SUM, &random, 0));
        for (int which = 0; which < COMMS; which++)
            CHECK_OK(rill_reducer_step(r[which], gradient, update[which]));
        for (int which = 1; which < COMMS; which++)
            CHECK(memcmp(update[MPIS], update[which], bytes) == 0);
    }
    for (int which = 0; which < COMMS; which++) {
        CHECK_OK(rill_reducer_free(&r[which]));
        free(update[which]);
    }
    free(gradient);
}

/* ---- ranks without MPI ---------------------------------------------------------------------- */

/* One thread has all ranks. dense: the algorithm; else "auto" with dense inputs. */
static void test_local(int ranks, test_op op, uint64_t dim, bool dense) {
    enum { MOST = 6 };
    check_case("local: %d ranks, %s, dim %llu, %s", ranks, test_op_names[op],
               (unsigned long long)dim, dense ? "dense" : "auto");
    rill_comm *comms[MOST];
    rill_stream *in[MOST], *out[MOST];
    rill_request *request[MOST];
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = dense ? "dense" : "auto";
    model expected = expected_of(dim, 1, op, ranks);
    CHECK_OK(rill_comm_create_local(ranks, NULL, comms));
    for (int i = 0; i < ranks; i++) {
        model mine = input_of(dim, 1, op, i);
        CHECK_OK(rill_stream_create(RILL_F32, dim, &in[i]));
        CHECK_OK(rill_stream_create(RILL_F32, dim, &out[i]));
        fill(in[i], &mine, op, true);
        model_free(&mine);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < ranks; i++)
            CHECK_OK(
                rill_iallreduce(comms[i], in[i], out[i], op_rill(op, lowest), &o, &request[i]));
        CHECK_OK(rill_waitall(ranks, request));
        for (int i = 0; i < ranks; i++) {
            check_against(&expected, out[i]);
            CHECK_OK(rill_request_free(&request[i]));
        }
    }
    for (int i = 0; i < ranks; i++) {
        rill_stream_free(&in[i]);
        rill_stream_free(&out[i]);
        CHECK_OK(rill_comm_free(&comms[i]));
    }
    model_free(&expected);
}

static void test_locals(void) {
    for (int ranks = 2; ranks <= 6; ranks++) {
        test_local(ranks, OP_SUM, 100, true);
        test_local(ranks, OP_USER, 20000, true);
        test_local(ranks, OP_SUM, 20000, false);
    }
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    CHECK_OK(rill_op_create("lowest", user_op_fn, NULL, USER_NEUTRAL, 0, &lowest));
    for (int which = 0; which < COMMS; which++) {
        if (which == READS) setenv("RILL_READ_BYTES", "1", 1);
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm[which]));
    }
    unsetenv("RILL_READ_BYTES");
    comm[OWN]->planner.read_bytes = 0;
    if (!comm[READS]->planner.read_bytes) comm[READS]->planner.mpi_sums = false;
    comm[OWN]->planner.mpi_sums = false;
    test_denses();
    test_default();
    if (check.size > 1) test_pieces(524288 * (uint64_t)check.size + 77);
    test_reading(150001 * (uint64_t)check.size + 13);
    for (int type = 0; type < TYPE_COUNT; type++) {
        test_reducer("dense", test_types[type], 700, 1);
        test_reducer("s2", test_types[type], 700, 0.5);
        test_reducer("s2", test_types[type], 40000, 3);
    }
    for (int which = 0; which < COMMS; which++)
        CHECK_OK(rill_comm_free(&comm[which]));
    for (int reads = 0; reads < 2 && check.rank == 0; reads++) {
        if (reads) setenv("RILL_READ_BYTES", "1", 1);
        test_locals();
        unsetenv("RILL_READ_BYTES");
    }
    rill_op_free(&lowest);
    return check_finish(100);
}
