/* A link is a file. A toy is opened as any other, and collectives and reducers run over it: who
 * comes with a transport of his own needs no more than link/link.h says. */
#include "support/ranks.h"
#include "support/talk.h"

#include "api/comm.h"

#include "../toy/link_queue.c"

enum { RANKS = 5, DIM = 20000 };

typedef struct world {
    rill__link *links[RANKS];
    rill_comm *comms[RANKS];
    const char *algorithm;
    rill_stream *in[RANKS], *out[RANKS];
    rill_status status[RANKS];
    uint64_t dim[RANKS];
} world;

static void open_one(int rank, void *context) {
    world *w = context;
    assert_ok(rill__comm_open(w->links[rank], NULL, NULL, &w->comms[rank]));
}

static void close_one(int rank, void *context) {
    assert_ok(rill_comm_free(&((world *)context)->comms[rank]));
}

static void begin(world *w) {
    *w = (world){.algorithm = NULL};
    assert_true(queue_create(RANKS, w->links));
    ranks_run(RANKS, open_one, w);
}

/* ---- the link by itself ---------------------------------------------------------------------- */

static void talk_one(int rank, void *context) {
    rill__link *link = ((world *)context)->links[rank];
    talk_gather(link);
    talk(link);
    talk_gather(link);
    assert_ok(link->table->close(link));
}

static void test_messages(void **state) {
    (void)state;
    world w;
    assert_true(queue_create(RANKS, w.links));
    ranks_run(RANKS, talk_one, &w);
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void reduce_one(int rank, void *context) {
    world *w = context;
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = w->algorithm;
    w->status[rank] = rill_allreduce(w->comms[rank], w->in[rank], w->out[rank], RILL_SUM, &o);
}

/* Several at once, waited for in the opposite order. */
static void reduce_many(int rank, void *context) {
    world *w = context;
    rill_options o = RILL_OPTIONS_INIT;
    enum { FLIGHT = 4 };
    rill_stream *out[FLIGHT];
    rill_request *request[FLIGHT] = {NULL};
    o.algorithm = w->algorithm;
    for (int i = 0; i < FLIGHT; i++) {
        out[i] = unit_stream(RILL_F32, w->dim[rank]);
        assert_ok(rill_iallreduce(w->comms[rank], w->in[rank], out[i], RILL_SUM, &o, &request[i]));
    }
    for (int i = FLIGHT - 1; i >= 0; i--) {
        assert_ok(rill_wait(request[i]));
        assert_int_equal(rill_stream_nnz(out[i]), rill_stream_nnz(w->out[rank]));
        assert_memory_equal(rill_stream_values(out[i]), rill_stream_values(w->out[rank]),
                            rill_stream_nnz(out[i]) * sizeof(float));
        rill_request_free(&request[i]);
        rill_stream_free(&out[i]);
    }
}

static model make_inputs(world *w, double density, uint64_t seed) {
    model sum = model_make(DIM);
    for (int i = 0; i < RANKS; i++) {
        rng r = rng_make(seed, (uint64_t)i);
        model one = model_random(DIM, density, OP_SUM, &r, i);
        w->dim[i] = DIM;
        w->in[i] = unit_stream(RILL_F32, DIM);
        w->out[i] = unit_stream(RILL_F32, DIM);
        assert_ok(model_set_pairs(&one, w->in[i]));
        model_add(&sum, &one, OP_SUM);
        model_free(&one);
    }
    return sum;
}

static void free_inputs(world *w) {
    for (int i = 0; i < RANKS; i++) {
        rill_stream_free(&w->in[i]);
        rill_stream_free(&w->out[i]);
    }
}

/* Each algorithm of the table, with messages in one part and in many. */
static void test_allreduce(void **state) {
    (void)state;
    static const double densities[] = {0.0005, 0.02, 0.6};
    world w;
    int served = 0;
    begin(&w);
    for (int a = 0; rill_algorithm_at(RILL_ALLREDUCE, a, NULL); a++)
        for (int d = 0; d < 3; d++) {
            model sum = make_inputs(&w, densities[d], (uint64_t)d);
            w.algorithm = rill_algorithm_at(RILL_ALLREDUCE, a, NULL);
            ranks_run(RANKS, reduce_one, &w);
            for (int i = 0; i < RANKS; i++) {
                assert_int_equal(w.status[i], RILL_OK);
                assert_model(w.out[i], &sum);
            }
            ranks_run(RANKS, reduce_many, &w);
            served++;
            model_free(&sum);
            free_inputs(&w);
        }
    assert_true(served >= 8 * 3);
    ranks_run(RANKS, close_one, &w);
}

/* A rank with another dimension: all ranks have an error, nobody waits for ever, and no message is
 * left. */
static void test_failure(void **state) {
    (void)state;
    world w;
    for (int a = 0; rill_algorithm_at(RILL_ALLREDUCE, a, NULL); a++) {
        begin(&w);
        model sum = make_inputs(&w, 0.02, 1);
        rill_stream_free(&w.in[2]);
        rill_stream_free(&w.out[2]);
        w.in[2] = unit_stream(RILL_F32, DIM + 1);
        w.out[2] = unit_stream(RILL_F32, DIM + 1);
        w.algorithm = rill_algorithm_at(RILL_ALLREDUCE, a, NULL);
        ranks_run(RANKS, reduce_one, &w);
        for (int i = 0; i < RANKS; i++)
            assert_int_equal(w.status[i], RILL_ERR_MISMATCH);
        model_free(&sum);
        free_inputs(&w);
        ranks_run(RANKS, close_one, &w);
    }
}

/* ---- reducers -------------------------------------------------------------------------------- */

static void test_reducer(void **state) {
    (void)state;
    static const char *const names[] = {"oktopk", "spardl", "gtopk", "split_allgather"};
    world w;
    begin(&w);
    for (int i = 0; i < 4; i++) {
        rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
        o.algorithm = names[i];
        o.k = 400;
        o.average = 0;
        assert_true(ranks_check_reducer(RANKS, w.comms, &o) >= 200);
    }
    ranks_run(RANKS, close_one, &w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_allreduce),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_reducer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
