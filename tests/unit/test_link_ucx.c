/* The link over UCX by itself: what any link must do, messages of strangers, ranks that close or
 * fail. Ranks are threads here; tests/mpi and tests/plain have processes. */
#include "support/meeting.h"
#include "support/ranks.h"
#include "support/talk.h"

#ifdef RILL_HAVE_UCX

#include "call/comm.h"
#include "link/link_ucx_own.h"
#include "link/watch_own.h"

#include <unistd.h>

enum { RANKS = 4 };

typedef struct world {
    meeting met;
    rill__link *links[RANKS];
    rill_status status[RANKS];
    uint64_t strangers;
} world;

static rill__link *open_one(world *w, int rank) {
    meeting_seat seat = {&w->met, rank};
    rill_bootstrap b = meeting_bootstrap(&seat);
    assert_ok(rill__link_ucx_open(&b, &w->links[rank]));
    return w->links[rank];
}

static void run(int ranks, ranks_body *body, world *w) {
    memset(w, 0, sizeof *w);
    meeting_begin(&w->met, ranks);
    ranks_run(ranks, body, w);
    pthread_barrier_destroy(&w->met.barrier);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void talk_one(int rank, void *context) {
    rill__link *link = open_one(context, rank);
    talk_gather(link);
    talk(link);
    talk_gather(link);
    assert_ok(link->table->close(link));
}

static void test_messages(void **state) {
    (void)state;
    world w;
    run(RANKS, talk_one, &w);
}

/* ---- strangers ------------------------------------------------------------------------------- */

enum { STRANGE = 300, LARGE = 1 << 20 };

static void send_raw(rill__link_ucx *own, rill__ucx_pace pace, uint64_t tag, const void *data,
                     size_t bytes) {
    assert_non_null(rill__ucx_endpoint(own, pace, 0));
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    ucs_status_ptr_t p = ucp_tag_send_nbx(own->ways[pace].peers[0], data, bytes, tag, &plain);
    assert_false(UCS_PTR_IS_ERR(p));
    for (int i = 0; p && ucp_request_check_status(p) == UCS_INPROGRESS && i < 10000000; i++)
        ucp_worker_progress(own->ways[pace].worker);
    if (p) ucp_request_free(p);
}

/* Rank 1 sends rank 0 what others might: with another key, and with a source that there is not. */
static void meet_strangers(int rank, void *context) {
    world *w = context;
    rill__link *link = open_one(w, rank);
    rill__link_ucx *own = (rill__link_ucx *)link;
    char *data = calloc(1, LARGE);
    rill__arrival a;
    rill__wire wire = {0};
    assert_non_null(data);
    if (rank == 1) {
        rng r = rng_make(1, 2);
        for (int i = 0; i < STRANGE; i++) {
            uint64_t key = own->key ^ (1 + rng_below(&r, (1u << 20) - 1)) << RILL__UCX_KEY_AT;
            send_raw(own, i % 2 ? RILL__UCX_CALM : RILL__UCX_FAST, (key & RILL__UCX_KEY_MASK) | 7,
                     data, i % 50 ? (size_t)i : LARGE);
        }
        send_raw(own, RILL__UCX_FAST, own->key | UINT64_C(77) << RILL__UCX_SOURCE_AT | 7, data, 3);
        assert_ok(link->table->send(link, 0, 7, "friend", 7, &wire));
        assert_ok(rill__link_wait(link, &wire));
    } else {
        while (link->table->probe(link, RILL__ANY, 7, 1, &a) != RILL_OK ||
               rill__link_ucx_strangers(link) < STRANGE + 1)
            link->table->probe(link, RILL__ANY, RILL__EPOCH_TAGS - 2, 1, &a); /* the calm way */
        assert_int_equal(a.source, 1);
        assert_int_equal(a.bytes, 7);
        assert_ok(link->table->receive(link, &a, 7, data, true, &wire));
        assert_string_equal(data, "friend");
        w->strangers = rill__link_ucx_strangers(link);
    }
    assert_ok(rill__link_most(link, NULL, 0));
    assert_ok(link->table->close(link));
    free(data);
}

static void test_strangers(void **state) {
    (void)state;
    world w;
    run(2, meet_strangers, &w);
    assert_int_equal(w.strangers, STRANGE + 1);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Rank 1 dies, as far as sockets show it. The others learn it, and their wires end. */
static void lose_one(int rank, void *context) {
    world *w = context;
    rill__link *link = open_one(w, rank);
    rill__link_ucx *own = (rill__link_ucx *)link;
    rill__wire wire = {0};
    int mine = rank, all[RANKS];
    if (rank == 1) {
        for (int i = 0; i < RANKS; i++)
            if (i != rank) shutdown(own->watch->fds[i], SHUT_RDWR);
        pthread_barrier_wait(&w->met.barrier);
        pthread_barrier_wait(&w->met.barrier);
        assert_ok(link->table->close(link));
        return;
    }
    uint8_t fate[RANKS] = {0};
    assert_ok(link->table->post(link, 1, 3, all, sizeof all, &wire));
    assert_int_equal(link->table->test(link, &wire, NULL), RILL_IN_PROGRESS);
    pthread_barrier_wait(&w->met.barrier);
    while (!link->table->failed(link, fate))
        continue;
    assert_int_equal(fate[1], RILL__DEAD);
    assert_int_equal(fate[0] + fate[2] + fate[3], 0);
    assert_int_equal(link->table->test(link, &wire, NULL), RILL_ERR_PEER);
    assert_non_null(strstr(rill_last_error(), "rank 1"));
    assert_int_equal(link->table->allgather(link, &mine, sizeof mine, all), RILL_ERR_PEER);
    pthread_barrier_wait(&w->met.barrier);
    assert_ok(link->table->close(link));
}

static void test_death(void **state) {
    (void)state;
    world w;
    run(RANKS, lose_one, &w);
}

/* A communicator is shrunk with everybody there, twice. The link's thread goes on from then on, and
 * leaves the fast way, which has no lock, to the rank. */
static void sum_ranks(rill_comm *comm) {
    float mine = 1, all = 0;
    rill_stream *stream = NULL;
    assert_ok(rill_stream_create(RILL_F32, 1, &stream));
    assert_ok(rill_stream_set_dense(stream, &mine));
    assert_ok(rill_allreduce(comm, stream, stream, RILL_SUM, NULL));
    assert_ok(rill_stream_get_dense(stream, &all));
    assert_true(all == RANKS);
    rill_stream_free(&stream);
}

static void shrink_one(int rank, void *context) {
    world *w = context;
    meeting_seat seat = {&w->met, rank};
    rill_bootstrap b = meeting_bootstrap(&seat);
    rill_comm *comms[3] = {NULL};
    assert_ok(rill_comm_create_ucx(&b, NULL, &comms[0]));
    const rill__link_ucx *own = (const rill__link_ucx *)comms[0]->engine.link;
    assert_int_equal(own->has_thread, !own->one_host);
    for (int i = 0; i < RANKS; i++) /* else they would connect while ranks die */
        assert_true(i == rank || own->ways[RILL__UCX_CALM].peers[i]);
    sum_ranks(comms[0]);
    for (int i = 1; i < 3; i++) {
        pthread_barrier_wait(&w->met.barrier); /* nobody is in a call that shrinking ends */
        assert_ok(rill_comm_shrink(comms[i - 1], &comms[i]));
        assert_int_equal(rill_comm_size(comms[i]), RANKS);
        assert_true(own->has_thread && own->first_lost < 0);
        assert_int_equal(own->survived, own->one_host);
        sum_ranks(comms[i]);
    }
    for (int i = 0; i < 3; i++)
        assert_ok(rill_comm_free(&comms[rank % 2 ? i : 2 - i]));
}

static void test_shrink(void **state) {
    (void)state;
    world w;
    run(RANKS, shrink_one, &w);
}

/* One rank cannot bring what it should: all fail, and none hangs. */
static int broken_allgather(const void *mine, size_t bytes, void *all, void *context) {
    (void)meeting_allgather(mine, bytes, all, context);
    return 7;
}

static void fail_one(int rank, void *context) {
    world *w = context;
    meeting_seat seat = {&w->met, rank};
    rill_bootstrap b = meeting_bootstrap(&seat);
    rill_comm *comm = NULL;
    b.allgather = broken_allgather;
    w->status[rank] = rill_comm_create_ucx(&b, NULL, &comm);
    assert_null(comm);
    assert_non_null(strstr(rill_last_error(), "allgather"));
}

static void mix_ranks(int rank, void *context) {
    world *w = context;
    meeting_seat seat = {&w->met, rank};
    rill_bootstrap b = meeting_bootstrap(&seat);
    rill_comm *comm = NULL;
    b.rank = (rank + 1) % 2; /* and sits in the place of the other */
    w->status[rank] = rill_comm_create_ucx(&b, NULL, &comm);
    assert_null(comm);
}

static void test_failures(void **state) {
    (void)state;
    world w;
    run(2, fail_one, &w);
    assert_int_equal(w.status[0], RILL_ERR_IO);
    assert_int_equal(w.status[1], RILL_ERR_IO);
    run(2, mix_ranks, &w);
    assert_int_equal(w.status[0], RILL_ERR_MISMATCH);
    assert_int_equal(w.status[1], RILL_ERR_MISMATCH);
}

/* Rank 1 lacks the memory for one thing after the other: both fail, and none hangs. */
static _Thread_local int allowed = -1; /* allocations; -1: all */
static int nth;

static bool refuse(size_t bytes) {
    (void)bytes;
    return allowed >= 0 && allowed-- == 0;
}

static void lack_memory(int rank, void *context) {
    world *w = context;
    meeting_seat seat = {&w->met, rank};
    rill_bootstrap b = meeting_bootstrap(&seat);
    rill__link *link = NULL;
    allowed = rank == 1 ? nth : -1;
    w->status[rank] = rill__link_ucx_open(&b, &link);
    allowed = -1;
    if (w->status[rank] == RILL_OK) assert_ok(link->table->close(link));
}

static void test_memory(void **state) {
    (void)state;
    world w = {.status = {RILL_ERR_MEMORY}};
    rill__memory_refuses = refuse;
    for (nth = 0; nth < 100 && w.status[0] != RILL_OK; nth++) {
        run(2, lack_memory, &w);
        assert_int_equal(w.status[0], w.status[1]);
        assert_true(w.status[0] == RILL_OK || w.status[0] == RILL_ERR_MEMORY);
    }
    rill__memory_refuses = NULL;
    assert_in_range(nth, 10, 99);
}

static void test_arguments(void **state) {
    (void)state;
    rill_comm *comm = NULL;
    meeting_seat seat = {NULL, 0};
    rill_bootstrap good = {sizeof good, 0, 1, meeting_allgather, &seat}, b = good;
    assert_int_equal(rill_comm_create_ucx(NULL, NULL, &comm), RILL_ERR_ARGUMENT);
    b.size = 3;
    assert_int_equal(rill_comm_create_ucx(&b, NULL, &comm), RILL_ERR_ARGUMENT);
    b = good, b.ranks = 1 << 20;
    assert_int_equal(rill_comm_create_ucx(&b, NULL, &comm), RILL_ERR_ARGUMENT);
    b = good, b.rank = 1;
    assert_int_equal(rill_comm_create_ucx(&b, NULL, &comm), RILL_ERR_ARGUMENT);
    b = good, b.ranks = 2, b.allgather = NULL;
    assert_int_equal(rill_comm_create_ucx(&b, NULL, &comm), RILL_ERR_ARGUMENT);
}

/* One rank needs nobody to find. */
static void test_alone(void **state) {
    (void)state;
    rill_bootstrap alone = RILL_BOOTSTRAP_INIT;
    rill_comm *comm = NULL, *next = NULL;
    int lost = -1;
    assert_int_equal(rill_comm_create_ucx(&alone, NULL, NULL), RILL_ERR_ARGUMENT);
    assert_ok(rill_comm_create_ucx(&alone, NULL, &comm));
    assert_ok(rill_comm_failed(comm, 0, NULL, &lost));
    assert_int_equal(lost, 0);
    assert_ok(rill_comm_shrink(comm, &next));
    assert_ok(rill_comm_free(&next));
    assert_ok(rill_comm_free(&comm));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_death),    cmocka_unit_test(test_shrink),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_memory),   cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void test_none(void **state) {
    (void)state;
    rill_bootstrap b = RILL_BOOTSTRAP_INIT;
    rill_comm *comm = NULL;
    assert_int_equal(rill_comm_create_ucx(&b, NULL, &comm), RILL_ERR_UNSUPPORTED);
    assert_non_null(strstr(rill_last_error(), "UCX"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
