/* Processes that meet by TCP: the rendezvous and the watch, with strangers at the door. Ranks are
 * threads here. */
#include "support/ranks.h"

#include "link/rendezvous.h"
#include "link/watch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A port that was free a moment ago. */
static uint16_t free_port(void) {
    uint16_t port = 0;
    int fd = rill__tcp_listen(NULL, &port);
    assert_true(fd >= 0);
    close(fd);
    return port;
}

static int dial(uint16_t port) {
    static const rill__tcp_address loopback = {.family = 4, .bytes = {127, 0, 0, 1}};
    rill__socket_address to = rill__tcp_make(&loopback, port);
    int fd = rill__tcp_connect(&to);
    if (fd >= 0 && rill__tcp_wait(fd, true, rill__tcp_clock() + 1) && rill__tcp_outcome(fd) == 0)
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* Somebody who knows the port and nothing else: bytes at random, half of a greeting, silence, a
 * hang-up. Goes on until it is told to stop. */
typedef struct stranger {
    pthread_t thread;
    uint16_t port;
    atomic_bool stop;
    int calls;
} stranger;

static void *disturb(void *argument) {
    stranger *s = argument;
    rng r = rng_make(5, s->port);
    int kept[20], n = 0;
    while (!atomic_load(&s->stop)) {
        int fd = dial(s->port);
        if (fd < 0) {
            usleep(200);
            continue;
        }
        char bytes[300];
        size_t length = rng_below(&r, sizeof bytes);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (char)rng_below(&r, 256);
        if (rng_below(&r, 2)) memcpy(bytes, rng_below(&r, 2) ? "RILLRV1" : "RILLWCH", 8);
        rill__tcp_write(fd, bytes, length);
        s->calls++;
        if (n < 20 && rng_below(&r, 3) == 0) kept[n++] = fd;
        else close(fd);
    }
    while (n)
        close(kept[--n]);
    return NULL;
}

static void stranger_begin(stranger *s, uint16_t port) {
    s->port = port;
    s->calls = 0;
    atomic_init(&s->stop, false);
    assert_int_equal(pthread_create(&s->thread, NULL, disturb, s), 0);
}

static void stranger_end(stranger *s) {
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
}

/* ---- rendezvous ------------------------------------------------------------------------------ */

enum { RANKS = 5 };

typedef struct meeting_place {
    char address[64];
    double patience;
    int expects[RANKS], calls_itself[RANKS];
    size_t bytes[RANKS];
    rill_status status[RANKS];
    char detail[RANKS][200];
} meeting_place;

static void attend(int who, void *context) {
    meeting_place *m = context;
    rill__rendezvous *r = NULL;
    int rank = m->calls_itself[who], ranks = m->expects[who];
    rill_status status = rill__rendezvous_open(m->address, rank, ranks, m->patience, &r);
    for (int turn = 0; status == RILL_OK && turn < 3; turn++) {
        size_t bytes = m->bytes[who] * (size_t)(turn + 1);
        unsigned char *mine = malloc(bytes), *all = malloc((size_t)ranks * bytes);
        memset(mine, 16 * turn + rank, bytes);
        status = rill__rendezvous_allgather(r, mine, bytes, all);
        for (int i = 0; status == RILL_OK && i < ranks; i++)
            for (size_t b = 0; b < bytes; b++)
                assert_int_equal(all[(size_t)i * bytes + b], 16 * turn + i);
        free(mine);
        free(all);
    }
    m->status[who] = status;
    snprintf(m->detail[who], sizeof m->detail[who], "%s", rill_last_error());
    rill__rendezvous_close(r);
}

static meeting_place place(double patience) {
    meeting_place m = {.patience = patience};
    snprintf(m.address, sizeof m.address, "127.0.0.1:%d", free_port());
    for (int i = 0; i < RANKS; i++) {
        m.expects[i] = RANKS;
        m.calls_itself[i] = i;
        m.bytes[i] = 70000;
    }
    return m;
}

static void test_meets(void **state) {
    (void)state;
    meeting_place m = place(30);
    stranger s;
    stranger_begin(&s, (uint16_t)atoi(strchr(m.address, ':') + 1));
    ranks_run(RANKS, attend, &m);
    stranger_end(&s);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(m.status[i], RILL_OK);
}

static void test_differs(void **state) {
    (void)state;
    meeting_place m = place(1);
    m.expects[3] = RANKS + 1; /* rank 3 hears why, and the others that it is missing */
    ranks_run(RANKS, attend, &m);
    assert_int_equal(m.status[3], RILL_ERR_MISMATCH);
    assert_non_null(strstr(m.detail[3], "expects 5 ranks"));
    assert_int_equal(m.status[0], RILL_ERR_PEER);
    assert_non_null(strstr(m.detail[0], "rank 3"));
    assert_int_equal(m.status[1], RILL_ERR_PEER);

    m = place(1);
    m.calls_itself[2] = 1;
    ranks_run(RANKS, attend, &m);
    bool first = m.status[1] == RILL_ERR_MISMATCH; /* who comes second is told */
    assert_int_equal(m.status[first ? 1 : 2], RILL_ERR_MISMATCH);
    assert_int_equal(m.status[0], RILL_ERR_PEER);

    m = place(10);
    m.bytes[4] = 3;
    ranks_run(RANKS, attend, &m);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(m.status[i], RILL_ERR_MISMATCH);
        assert_non_null(strstr(m.detail[i], "rank 4 brings 3 bytes"));
    }
}

static void test_addresses(void **state) {
    (void)state;
    static const char *const wrong[] = {"",       "host",   "host:",   ":7",
                                        "host:x", "host:0", "host:7x", "host:70000",
                                        "a:b:7",  "[::1]7", "[::1]:x", "127.0.0.1"};
    rill__rendezvous *r;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(rill__rendezvous_open(wrong[i], 0, 2, 0.1, &r), RILL_ERR_ARGUMENT);
    assert_int_equal(rill__rendezvous_open("127.0.0.1:1", 1, 2, 0.1, &r), RILL_ERR_PEER);
    assert_int_equal(rill__rendezvous_open("192.0.2.7:5000", 0, 2, 0.1, &r), RILL_ERR_IO);
}

/* ---- rank and ranks from the environment ----------------------------------------------------- */

static void test_environment(void **state) {
    (void)state;
    static const char *const names[] = {"RANK",     "SLURM_PROCID",        "OMPI_COMM_WORLD_RANK",
                                        "PMI_RANK", "WORLD_SIZE",          "SLURM_NTASKS",
                                        "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"};
    rill_bootstrap b;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    unsetenv("RILL_RENDEZVOUS");
    assert_int_equal(rill_bootstrap_create(NULL, -1, -1, NULL), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_bootstrap_create(NULL, -1, -1, &b), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_bootstrap_create(NULL, 2, 2, &b), RILL_ERR_ARGUMENT);
    assert_int_equal(rill_bootstrap_create(NULL, 1, 2, &b), RILL_ERR_ARGUMENT);
    assert_non_null(strstr(rill_last_error(), "RILL_RENDEZVOUS"));
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "1", 1);
    assert_ok(rill_bootstrap_create(NULL, -1, -1, &b));
    assert_int_equal(b.ranks, 1);
    int mine = 4, all = 0;
    assert_int_equal(b.allgather(&mine, sizeof mine, &all, b.context), 0);
    assert_int_equal(all, 4);
    rill_bootstrap_free(&b);
    assert_null(b.allgather);
    setenv("SLURM_PROCID", "x", 1); /* comes before PMI's */
    setenv("SLURM_NTASKS", "3", 1);
    assert_int_equal(rill_bootstrap_create(NULL, -1, -1, &b), RILL_ERR_ARGUMENT);
    assert_non_null(strstr(rill_last_error(), "SLURM_PROCID"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* ---- watch ----------------------------------------------------------------------------------- */

typedef struct watchers {
    pthread_barrier_t barrier;
    rill__watch *watch[RANKS];
    rill__watch_address address[RANKS];
} watchers;

static void watch_one(int rank, void *context) {
    watchers *all = context;
    static const uint8_t key[RILL__JOB_KEY] = "a key of 16 by.";
    static const bool same[RANKS] = {true, true, true, true, true};
    rill__watch *w;
    stranger s;
    assert_ok(rill__watch_create(rank, RANKS, &w, &all->address[rank]));
    stranger_begin(&s, all->address[rank].port);
    pthread_barrier_wait(&all->barrier);
    assert_ok(rill__watch_connect(w, all->address, sizeof *all->address, key, same,
                                  rill__tcp_clock() + 30));
    stranger_end(&s);
    assert_int_equal(rill__watch_poll(w), 0);
    pthread_barrier_wait(&all->barrier);
    if (rank == 2) rill__watch_leave(w);
    if (rank == 2 || rank == 3) rill__watch_free(w);
    pthread_barrier_wait(&all->barrier);
    if (rank == 2 || rank == 3) return;
    double until = rill__tcp_clock() + 10;
    while (rill__watch_poll(w) < 1 || rill__watch_state(w, 2) == RILL__WATCH_THERE)
        assert_true(rill__tcp_clock() < until);
    assert_int_equal(rill__watch_state(w, 2), RILL__WATCH_LEFT);
    assert_int_equal(rill__watch_state(w, 3), RILL__WATCH_GONE);
    assert_int_equal(rill__watch_poll(w), 1);
    rill__watch_leave(w);
    while (!rill__watch_all_left(w)) {
        rill__watch_poll(w);
        assert_true(rill__tcp_clock() < until);
    }
    rill__watch_free(w);
}

static void test_watch(void **state) {
    (void)state;
    watchers all;
    pthread_barrier_init(&all.barrier, NULL, RANKS);
    ranks_run(RANKS, watch_one, &all);
    pthread_barrier_destroy(&all.barrier);
}

/* Another job's key: nobody connects, and the error says who is missing. */
static void watch_with_other_key(int rank, void *context) {
    watchers *all = context;
    uint8_t key[RILL__JOB_KEY] = "a key of 16 by.";
    static const bool same[2] = {true, true};
    key[5] = (uint8_t)rank;
    assert_ok(rill__watch_create(rank, 2, &all->watch[rank], &all->address[rank]));
    pthread_barrier_wait(&all->barrier);
    assert_int_equal(rill__watch_connect(all->watch[rank], all->address, sizeof *all->address, key,
                                         same, rill__tcp_clock() + 0.5),
                     RILL_ERR_PEER);
    rill__watch_free(all->watch[rank]);
}

static void test_other_key(void **state) {
    (void)state;
    watchers all;
    pthread_barrier_init(&all.barrier, NULL, 2);
    ranks_run(2, watch_with_other_key, &all);
    pthread_barrier_destroy(&all.barrier);
}

/* One dies before it has connected, whom the others call or who should call them; or after it has
 * with some. They know in seconds, not when their patience is over. */
static int dead;

static void watch_a_death(int rank, void *context) {
    watchers *all = context;
    static const uint8_t key[RILL__JOB_KEY] = "a key of 16 by.";
    static const bool same[3] = {true, true, true};
    rill__watch *w;
    assert_ok(rill__watch_create(rank, 3, &w, &all->address[rank]));
    pthread_barrier_wait(&all->barrier);
    if (rank == dead) rill__watch_free(w);
    pthread_barrier_wait(&all->barrier);
    if (rank == dead) return;
    double began = rill__tcp_clock();
    assert_int_equal(rill__watch_connect(w, all->address, sizeof *all->address, key, same,
                                         began + 120),
                     RILL_ERR_PEER);
    assert_true(rill__tcp_clock() - began < 60);
    rill__watch_free(w);
}

static void test_dies_early(void **state) {
    (void)state;
    for (dead = 0; dead < 3; dead++) {
        watchers all;
        pthread_barrier_init(&all.barrier, NULL, 3);
        ranks_run(3, watch_a_death, &all);
        pthread_barrier_destroy(&all.barrier);
    }
}

/* ---- few open files -------------------------------------------------------------------------- */

static void watch_plainly(int rank, void *context) {
    watchers *all = context;
    static const uint8_t key[RILL__JOB_KEY] = "a key of 16 by.";
    static const bool same[2] = {true, true};
    assert_ok(rill__watch_create(rank, 2, &all->watch[rank], &all->address[rank]));
    pthread_barrier_wait(&all->barrier);
    assert_ok(rill__watch_connect(all->watch[rank], all->address, sizeof *all->address, key, same,
                                  rill__tcp_clock() + 30));
    pthread_barrier_wait(&all->barrier);
    rill__watch_free(all->watch[rank]);
}

/* So many more than are open now. */
static void allow_files(rlim_t more) {
    struct rlimit files;
    int next = dup(0);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = (rlim_t)next + more;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

/* A limit below the number of callers that there is room for is no hindrance. Without a file for
 * the next rank, or to call, the error says so, and does not wait for what cannot come. */
static void test_few_files(void **state) {
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    meeting_place m = place(30);
    watchers all;
    allow_files(30);
    ranks_run(RANKS, attend, &m);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(m.status[i], RILL_OK);
    pthread_barrier_init(&all.barrier, NULL, 2);
    ranks_run(2, watch_plainly, &all);
    pthread_barrier_destroy(&all.barrier);

    rill__rendezvous *r;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    m = place(3);
    pid_t other = fork();
    if (other == 0) _exit(rill__rendezvous_open(m.address, 1, 2, m.patience, &r) == RILL_ERR_PEER);
    allow_files(1); /* the listener */
    assert_int_equal(rill__rendezvous_open(m.address, 0, 2, 60, &r), RILL_ERR_IO);
    assert_non_null(strstr(rill_last_error(), "1 of 2 ranks have come"));
    int how;
    assert_int_equal(waitpid(other, &how, 0), other);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 1);
    allow_files(0);
    assert_int_equal(rill__rendezvous_open(m.address, 1, 2, 60, &r), RILL_ERR_IO);
    assert_non_null(strstr(rill_last_error(), "no more files"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meets),      cmocka_unit_test(test_differs),
        cmocka_unit_test(test_addresses),  cmocka_unit_test(test_environment),
        cmocka_unit_test(test_watch),      cmocka_unit_test(test_other_key),
        cmocka_unit_test(test_dies_early), cmocka_unit_test(test_few_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
