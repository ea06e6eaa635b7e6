/* Ranks that are gone, among threads: they hang, and the others go on without them. Ranks that die
 * are in tests/world/test_deaths.c. Communicators that are shrunk with everybody there, reducers
 * that move to more ranks, and links that cannot tell. */
#include "support/ranks.h"

#include "api/comm.h"
#include "reduce/reducer.h"

#include "../toy/link_queue.c"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { RANKS = 4, DIM = 1000 };

typedef struct group {
    rill_comm *comms[RANKS];
    int hang_from, hang_to; /* ranks that make no call, for a while */
    int survivors;
    rill_status shrinks; /* what it gives to who does not hang */
    atomic_int through;
} group;

static void begin(group *g, int timeout, int minority, int thread) {
    rill_config config = RILL_CONFIG_INIT;
    config.timeout_s = timeout;
    config.minority = minority;
    config.progress_thread = thread;
    *g = (group){.hang_from = -1, .hang_to = -1};
    assert_ok(rill_comm_create_local(RANKS, &config, g->comms));
}

static rill_status sum_of(rill_comm *comm, float mine, float *all) {
    float values[DIM] = {0}, got[DIM];
    rill_stream *in = NULL, *out = NULL;
    rill_request *requests[2] = {NULL, NULL};
    values[7] = mine;
    assert_ok(rill_stream_create(RILL_F32, DIM, &in));
    assert_ok(rill_stream_create(RILL_F32, DIM, &out));
    assert_ok(rill_stream_set_dense(in, values));
    rill_status status = rill_iallreduce(comm, in, out, RILL_SUM, NULL, &requests[0]);
    if (status == RILL_OK) status = rill_waitall(2, requests);
    char detail[200];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    rill_request_free(&requests[0]);
    if (status == RILL_OK) assert_ok(rill_stream_get_dense(out, got));
    *all = status == RILL_OK ? got[7] : -1;
    rill_stream_free(&in);
    rill_stream_free(&out);
    return status == RILL_OK ? status : rill_error_set(status, detail);
}

/* ---- hanging --------------------------------------------------------------------------------- */

static bool hangs(const group *g, int rank) { return rank >= g->hang_from && rank <= g->hang_to; }

static void stay_out(group *g, rill_comm **comm) {
    float all;
    rill_comm *out;
    while (atomic_load(&g->through) < g->survivors)
        usleep(1000);
    assert_fails(sum_of(*comm, 1, &all), RILL_ERR_STATE, "go on without this rank");
    assert_fails(rill_comm_shrink(*comm, &out), RILL_ERR_STATE, "without this rank");
    assert_null(out);
}

static void go_on(group *g, int rank, rill_comm **comm) {
    float all;
    int gone[RANKS], n = 0;
    rill_comm *out = NULL;
    assert_fails(sum_of(*comm, 1, &all), RILL_ERR_PEER, "gone");
    assert_fails(sum_of(*comm, 1, &all), RILL_ERR_PEER, "gone");
    assert_ok(rill_comm_failed(*comm, RANKS, gone, &n));
    assert_int_equal(n, g->hang_to - g->hang_from + 1);
    assert_int_equal(gone[0], g->hang_from);
    assert_ok(rill_comm_failed(*comm, 0, NULL, &n));
    rill_status status = rill_comm_shrink(*comm, &out);
    assert_int_equal(status, g->shrinks);
    atomic_fetch_add(&g->through, 1);
    if (status != RILL_OK) {
        assert_non_null(strstr(rill_last_error(), "minority"));
        return;
    }
    assert_int_equal(rill_comm_size(out), g->survivors);
    for (int i = 1; i <= 20; i++) {
        assert_ok(sum_of(out, (float)(i * (rank + 1)), &all));
        float sum = 0;
        for (int other = 0; other < RANKS; other++)
            sum += hangs(g, other) ? 0 : (float)(i * (other + 1));
        assert_true(all == sum);
    }
    rill_comm *other = NULL;
    assert_fails(rill_comm_shrink(*comm, &other), RILL_ERR_STATE, "has been shrunk");
    assert_null(other);
    assert_ok(rill_comm_free(&out));
}

static void hang_one(int rank, void *context) {
    group *g = context;
    float all;
    rill_comm *comm = g->comms[rank];
    assert_ok(sum_of(comm, 1, &all));
    assert_true(all == RANKS);
    if (hangs(g, rank)) stay_out(g, &comm);
    else go_on(g, rank, &comm);
    assert_ok(rill_comm_free(&comm));
}

static const struct {
    int from, to, minority, thread;
    rill_status shrinks;
} hanging[] = {
    {3, 3, 0, 0, RILL_OK},
    /* Threads wait. */
    {0, 0, 0, 1, RILL_OK},
    /* Ranks 0 and 1 may live where the network does not reach, and are as many. */
    {0, 1, 0, 0, RILL_ERR_STATE},
    /* A minority may go on. */
    {0, 1, 1, 0, RILL_OK},
    /* A half with rank 0 goes on. */
    {2, 3, 0, 0, RILL_OK},
};

static void run_hanging(int row, void *context) {
    (void)context;
    group g;
    begin(&g, 5, hanging[row].minority,
          hanging[row].thread); /* a busy machine may keep a thread waiting */
    g.hang_from = hanging[row].from;
    g.hang_to = hanging[row].to;
    g.survivors = RANKS - (g.hang_to - g.hang_from + 1);
    g.shrinks = hanging[row].shrinks;
    ranks_run(RANKS, hang_one, &g);
}

/* All beside each other, since they wait. */
static void ranks_hang(void **state) {
    (void)state;
    ranks_run((int)(sizeof hanging / sizeof *hanging), run_hanging, NULL);
}

/* ---- nobody is gone -------------------------------------------------------------------------- */

/* Rank 0 begins; the others are in a call, which ends. */
static void shrink_one(int rank, void *context) {
    group *g = context;
    rill_comm *comm = g->comms[rank], *out = NULL, *third = NULL;
    float all;
    int n = -1;
    if (rank) assert_fails(sum_of(comm, 1, &all), RILL_ERR_PEER, "shrinks");
    assert_ok(rill_comm_failed(comm, 0, NULL, &n));
    assert_int_equal(n, 0);
    assert_ok(rill_comm_shrink(comm, &out));
    assert_int_equal(rill_comm_size(out), RANKS);
    assert_int_equal(rill_comm_rank(out), rank);
    assert_ok(sum_of(out, 2, &all));
    assert_true(all == 2 * RANKS);
    atomic_fetch_add(&g->through, 1); /* who shrinks now would end the sum of who is still in it */
    while (atomic_load(&g->through) < RANKS)
        usleep(100);
    if (rank == 1) assert_ok(rill_comm_free(&comm)); /* before those that came of it, or after */
    assert_ok(rill_comm_shrink(out, &third));
    assert_ok(sum_of(third, 3, &all));
    assert_true(all == 3 * RANKS);
    assert_fails(sum_of(out, 1, &all), RILL_ERR_PEER, "shrinks");
    assert_ok(rill_comm_free(&out));
    assert_ok(rill_comm_free(&third));
    assert_ok(rill_comm_free(&comm));
}

static void everybody_lives(void **state) {
    (void)state;
    group g;
    begin(&g, 0, 0, 0);
    ranks_run(RANKS, shrink_one, &g);
}

/* ---- a rank joins ---------------------------------------------------------------------------- */

typedef struct joining {
    rill_comm *few[RANKS], *more[RANKS];
    float update[RANKS][DIM], last[RANKS][DIM];
    double fed[DIM], given[DIM], kept[RANKS][DIM];
} joining;

static void gradient_of(int rank, int step, float *gradient) {
    for (int i = 0; i < DIM; i++)
        gradient[i] = (float)((i * 7 + rank * 13 + step * 29) % 31 - 15);
}

static void join_one(int rank, void *context) {
    joining *j = context;
    bool fresh = rank == RANKS - 1;
    rill_comm *own = NULL;
    if (fresh) assert_ok(rill_comm_create_local(1, NULL, &own));
    else own = j->few[rank];
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.density = 0.05;
    o.average = 0;
    rill_reducer *r = NULL;
    float gradient[DIM];
    assert_ok(rill_reducer_create(own, RILL_F32, DIM, &o, &r));
    assert_fails(rill_reducer_update(r, gradient), RILL_ERR_STATE, "no step is complete");
    for (int step = 0; step < 3 && !fresh; step++) {
        gradient_of(rank, step, gradient);
        assert_ok(rill_reducer_step(r, gradient, j->update[rank]));
        assert_ok(rill_reducer_update(r, j->last[rank]));
        assert_memory_equal(j->last[rank], j->update[rank], sizeof j->update[rank]);
        for (int i = 0; i < DIM && rank == 0; i++)
            j->given[i] += (double)j->update[rank][i];
    }
    int again = -1;
    assert_ok(rill_reducer_move(r, j->more[rank], &again));
    assert_int_equal(again, 0);
    assert_ok(rill_comm_free(&own));
    assert_int_equal(r->steps, 3);
    for (int step = 3; step < 6; step++) {
        gradient_of(rank, step, gradient);
        assert_ok(rill_reducer_step(r, gradient, j->update[rank]));
        for (int i = 0; i < DIM && rank == 0; i++)
            j->given[i] += (double)j->update[rank][i];
    }
    const float *residual = rill_reducer_residual(r);
    for (int i = 0; i < DIM; i++)
        j->kept[rank][i] = (double)residual[i];
    assert_ok(rill_reducer_free(&r));
    assert_ok(rill_comm_free(&j->more[rank]));
}

static void a_rank_joins(void **state) {
    (void)state;
    static joining j;
    assert_ok(rill_comm_create_local(RANKS - 1, NULL, j.few));
    assert_ok(rill_comm_create_local(RANKS, NULL, j.more));
    ranks_run(RANKS, join_one, &j);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_memory_equal(j.update[rank], j.update[0], sizeof j.update[0]);
        for (int step = rank == RANKS - 1 ? 3 : 0; step < 6; step++) {
            float gradient[DIM];
            gradient_of(rank, step, gradient);
            for (int i = 0; i < DIM; i++)
                j.fed[i] += (double)gradient[i];
        }
    }
    for (int i = 0; i < DIM; i++) {
        double left = j.fed[i] - j.given[i];
        for (int rank = 0; rank < RANKS; rank++)
            left -= j.kept[rank][i];
        assert_true(left > -1e-3 && left < 1e-3);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void wrong_calls(void **state) {
    (void)state;
    rill_comm *comm = NULL, *out = NULL;
    rill_reducer *r = NULL;
    int n = 0, again = 0;
    assert_fails(rill_comm_failed(NULL, 0, NULL, &n), RILL_ERR_ARGUMENT, "comm is NULL");
    assert_fails(rill_comm_shrink(NULL, &out), RILL_ERR_ARGUMENT, "comm is NULL");
    assert_ok(rill_comm_create_local(1, NULL, &comm));
    assert_fails(rill_comm_failed(comm, 0, NULL, NULL), RILL_ERR_ARGUMENT, "n is NULL");
    assert_fails(rill_comm_failed(comm, 3, NULL, &n), RILL_ERR_ARGUMENT, "no room for 3");
    assert_fails(rill_comm_shrink(comm, NULL), RILL_ERR_ARGUMENT, "out is NULL");
    assert_fails(rill_reducer_move(NULL, comm, &again), RILL_ERR_ARGUMENT, "reducer is NULL");
    assert_fails(rill_reducer_update(NULL, &n), RILL_ERR_ARGUMENT, "reducer is NULL");
    assert_ok(rill_reducer_create(comm, RILL_F32, DIM, NULL, &r));
    assert_fails(rill_reducer_move(r, NULL, &again), RILL_ERR_ARGUMENT, "comm is NULL");
    assert_fails(rill_reducer_move(r, comm, NULL), RILL_ERR_ARGUMENT, "again is NULL");
    assert_fails(rill_reducer_update(r, NULL), RILL_ERR_ARGUMENT, "update is NULL");
    assert_ok(rill_reducer_free(&r));
    assert_ok(rill_comm_free(&comm));
}

static void a_link_that_cannot_tell(void **state) {
    (void)state;
    rill__link *link;
    rill_comm *comm = NULL, *out = NULL;
    int n = 0;
    assert_true(queue_create(1, &link));
    assert_ok(rill__comm_open(link, NULL, NULL, &comm));
    assert_fails(rill_comm_failed(comm, 0, NULL, &n), RILL_ERR_UNSUPPORTED, "cannot tell");
    assert_fails(rill_comm_shrink(comm, &out), RILL_ERR_UNSUPPORTED, "cannot tell");
    assert_ok(rill_comm_free(&comm));
}

int main(void) {
    setenv("RILL_PROFILE", "none", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_hang),
        cmocka_unit_test(everybody_lives),
        cmocka_unit_test(a_rank_joins),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(a_link_that_cannot_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
