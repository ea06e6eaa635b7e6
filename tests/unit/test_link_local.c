/* The local link by itself: messages between threads, and in a world. */
#include "support/talk.h"

#include "link/local.h"
#include "link/world.h"

#include <pthread.h>
#include <stdio.h>

enum { RANKS = 4 };

/* ---- threads --------------------------------------------------------------------------------- */

static void *thread_body(void *argument) {
    rill__link *link = argument;
    talk_gather(link);
    talk(link);
    talk_gather(link);
    link->table->close(link);
    return NULL;
}

static void threads_talk(void **state) {
    (void)state;
    rill__link *links[RANKS];
    pthread_t threads[RANKS];
    assert_ok(rill__local_create(RANKS, NULL, links));
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_body, links[i]), 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
}

/* What was sent before a rank left arrives, also what was lent; what it is sent is dropped. */
static void leaving(void **state) {
    (void)state;
    rill__link *links[2];
    assert_ok(rill__local_create(2, NULL, links));
    const rill__link_table *t = links[0]->table;
    unsigned char *large = malloc(TALK_LARGE), got[8], *all = malloc(TALK_LARGE);
    assert_non_null(large);
    assert_non_null(all);
    for (int i = 0; i < TALK_LARGE; i++)
        large[i] = (unsigned char)talk_mix((uint64_t)i);
    rill__wire lent, back;
    assert_ok(t->send(links[0], 1, 5, large, TALK_LARGE, &lent));
    assert_int_equal(t->test(links[0], &lent, NULL), RILL_IN_PROGRESS);
    t->leave(links[0]);
    assert_ok(t->test(links[0], &lent, NULL));
    assert_ok(t->send(links[1], 0, 5, large, TALK_LARGE, &back));
    assert_ok(t->test(links[1], &back, NULL));
    assert_ok(t->close(links[0]));
    memset(large, 0, TALK_LARGE);
    rill__arrival a;
    assert_int_equal(t->probe(links[1], 0, 6, 1, &a), RILL_IN_PROGRESS);
    assert_ok(t->probe(links[1], 0, 5, 1, &a));
    assert_int_equal(a.bytes, TALK_LARGE);
    assert_ok(t->receive(links[1], &a, 5, all, true, &back));
    for (int i = 0; i < TALK_LARGE; i++)
        assert_int_equal(all[i], (unsigned char)talk_mix((uint64_t)i));
    assert_fails(t->allgather(links[1], got, 1, got), RILL_ERR_STATE, "freed");
    assert_ok(t->close(links[1]));
    free(large);
    free(all);
}

/* A posted receive has the first claim, also before a probe that would find the same message. */
static void posted_first(void **state) {
    (void)state;
    rill__link *links[2];
    assert_ok(rill__local_create(2, NULL, links));
    const rill__link_table *t = links[0]->table;
    char got[16] = "";
    rill__wire posted, wire;
    rill__arrival a;
    bool came;
    size_t bytes;
    assert_ok(t->post(links[1], 0, 1, got, sizeof got, &posted));
    assert_ok(t->send(links[0], 1, 1, "one", 4, &wire));
    assert_ok(t->send(links[0], 1, 1, "three", 6, &wire));
    assert_ok(t->probe(links[1], RILL__ANY, 1, 1, &a));
    assert_int_equal(a.bytes, 6);
    assert_ok(t->test(links[1], &posted, &bytes));
    assert_int_equal(bytes, 4);
    assert_string_equal(got, "one");
    assert_ok(t->post(links[1], 0, 3, got, sizeof got, &posted));
    t->cancel(links[1], &posted, &came);
    assert_false(came);
    assert_ok(t->post(links[1], 0, 1, got, 2, &posted));
    assert_fails(t->test(links[1], &posted, &bytes), RILL_ERR_MESSAGE, "cut");
    assert_ok(t->close(links[1]));
    assert_ok(t->close(links[0]));
}

/* ---- worlds ---------------------------------------------------------------------------------- */

typedef struct record {
    rill__world *world;
    uint64_t order; /* of events, as a hash */
    bool wait;
} record;

static void world_body(int rank, void *context) {
    record *r = context;
    rill__link *link = rill__world_link(r->world, rank);
    talk_gather(link);
    talk(link);
    r->order = talk_mix(r->order + (uint64_t)rank);
    rill__fail(RILL_ERR_IO, "rank %d", rank);
    talk_gather(link);
    char mine[16];
    snprintf(mine, sizeof mine, "rank %d", rank);
    assert_string_equal(rill_last_error(), mine);
    link->table->close(link);
}

static uint64_t run_world(uint64_t seed, int ranks) {
    rill__world_options options = {.kind = RILL__CHANCE, .ranks = ranks, .seed = seed};
    record r = {0};
    assert_ok(rill__world_create(&options, &r.world));
    for (int i = 0; i < 2; i++) {
        assert_ok(rill__world_run(r.world, world_body, &r));
        assert_ok(rill__world_reset(r.world, seed));
    }
    for (int i = 0; i < ranks; i++)
        rill__world_link(r.world, i)->table->close(rill__world_link(r.world, i));
    rill__world_free(r.world);
    return r.order;
}

static void worlds_repeat(void **state) {
    (void)state;
    bool differ = false;
    uint64_t first = run_world(1, RANKS);
    for (uint64_t seed = 1; seed < 20; seed++) {
        uint64_t order = run_world(seed, RANKS);
        assert_int_equal(order, run_world(seed, RANKS));
        differ |= order != first;
    }
    assert_true(differ);
}

static void waits_for_ever(int rank, void *context) {
    record *r = context;
    rill__link *link = rill__world_link(r->world, rank);
    rill__arrival a;
    while (rank != 1 && link->table->probe(link, 1, 9, 1, &a) != RILL_OK)
        link->table->idle(link, 1);
}

static void worlds_notice_deadlocks(void **state) {
    (void)state;
    rill__world_options options = {.kind = RILL__CHANCE, .ranks = 3, .seed = 5};
    record r = {0};
    assert_ok(rill__world_create(&options, &r.world));
    assert_fails(rill__world_run(r.world, waits_for_ever, &r), RILL_ERR_STATE, "2 ranks wait");
    assert_true(rill__world_stuck(r.world, 0));
    assert_false(rill__world_stuck(r.world, 1));
    for (int i = 0; i < 3; i++)
        rill__world_link(r.world, i)->table->close(rill__world_link(r.world, i));
    rill__world_free(r.world);
}

/* Rank 0 sends to 1 and 2; both messages share its way out, and each takes the latency. */
static void timed_body(int rank, void *context) {
    record *r = context;
    rill__link *link = rill__world_link(r->world, rank);
    const rill__link_table *t = link->table;
    static char data[1000];
    rill__wire wire;
    rill__arrival a;
    if (rank == 0) {
        assert_ok(t->send(link, 1, 0, data, sizeof data, &wire));
        assert_ok(t->send(link, 2, 0, data, sizeof data, &wire));
    } else {
        while (t->probe(link, RILL__ANY, 0, 1, &a) != RILL_OK)
            t->idle(link, 1);
        char got[1000];
        assert_ok(t->receive(link, &a, 0, got, true, &wire));
    }
}

static void worlds_take_time(void **state) {
    (void)state;
    rill__world_options options = {.kind = RILL__TIMED,
                                   .ranks = 3,
                                   .latency = 1,
                                   .byte = 0.001,
                                   .message = 0.25,
                                   .receive_work = 0.01};
    record r = {0};
    assert_ok(rill__world_create(&options, &r.world));
    assert_ok(rill__world_run(r.world, timed_body, &r));
    assert_float_equal(rill__world_clock(r.world, 0), 0.5, 1e-9);
    assert_float_equal(rill__world_clock(r.world, 1), 0.25 + 1 + 1 + 0.25 + 10, 1e-9);
    assert_float_equal(rill__world_clock(r.world, 2), 0.25 + 1 + 1 + 1 + 0.25 + 10, 1e-9);
    uint64_t bytes, messages;
    rill__world_sent(r.world, 0, &bytes, &messages);
    assert_int_equal(bytes, 2000);
    assert_int_equal(messages, 2);
    for (int i = 0; i < 3; i++)
        rill__world_link(r.world, i)->table->close(rill__world_link(r.world, i));
    rill__world_free(r.world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_talk),     cmocka_unit_test(leaving),
        cmocka_unit_test(posted_first),     cmocka_unit_test(worlds_repeat),
        cmocka_unit_test(worlds_take_time), cmocka_unit_test(worlds_notice_deadlocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
