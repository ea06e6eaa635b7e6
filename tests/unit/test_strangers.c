/* A process that is no rank of a job connects to one, and sends what it likes: with another key in
 * the tag, and, as if it had guessed that, with headers, notes and words of rill but without the
 * rest of the key. The job goes on to the same results, and counts what it has dropped. */
#include "support/meeting.h"
#include "support/ranks.h"

#ifdef RILL_HAVE_UCX

#include "call/comm.h"
#include "link/link_ucx_own.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2, DIM = 4096, EACH = 40, SECONDS = 20 };
/* Entries of a call that is small, and goes through boxes, and of one that also looks for messages
 * under its tags. */
enum { FEW = 3, MANY = 300 };
enum { BUSY, KNOWN, SENT, FAILED };

/* What the stranger knows of rank 0. */
typedef struct board {
    atomic_int state;
    uint64_t key; /* of tags */
    rill__ucx_address address[RILL__UCX_PACES];
} board;

static board *b;
static meeting met;
static uint64_t counted;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- the stranger ---------------------------------------------------------------------------- */

typedef struct stranger {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h to[RILL__UCX_PACES];
} stranger;

static bool must(ucs_status_t status) {
    if (status != UCS_OK) atomic_store(&b->state, FAILED);
    return status == UCS_OK;
}

static bool arrive(stranger *s) {
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;
    /* Over the network: shared memory of another layout would break that of the job. */
    if (!must(ucp_config_read(NULL, NULL, &config)) ||
        !must(ucp_config_modify(config, "TLS", "tcp,self")) ||
        !must(ucp_init(&params, config, &s->context)) ||
        !must(ucp_worker_create(s->context, &worker, &s->worker)))
        return false;
    for (int pace = 0; pace < RILL__UCX_PACES; pace++) {
        const ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                    .address = (const ucp_address_t *)b->address[pace].text};
        if (!must(ucp_ep_create(s->worker, &ep, &s->to[pace]))) return false;
    }
    return true;
}

static void finish(const stranger *s, ucs_status_ptr_t p) {
    double until = now_s() + SECONDS;
    while (p && !UCS_PTR_IS_ERR(p) && ucp_request_check_status(p) == UCS_INPROGRESS &&
           now_s() < until)
        ucp_worker_progress(s->worker);
    if (p && UCS_PTR_IS_ERR(p)) must(UCS_PTR_STATUS(p));
    else if (p) ucp_request_free(p);
}

static void say(const stranger *s, uint64_t tag, const void *data, size_t bytes) {
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    rill__ucx_pace pace = rill__tag_passes((int)(tag & RILL__UCX_TAG_MASK)) ? RILL__UCX_CALM
                                                                            : RILL__UCX_FAST;
    finish(s, ucp_tag_send_nbx(s->to[pace], data, bytes, tag, &plain));
}

/* Five of each: what they would do is named, were they believed. */
static void be_strange(const stranger *s) {
    const uint64_t one = b->key | UINT64_C(1) << RILL__UCX_SOURCE_AT; /* as if by rank 1 */
    rng r = rng_make(3, 4);
    char noise[3000];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)rng_below(&r, 256);
    rill__header failed = {.magic = RILL__MAGIC,
                           .version = RILL__VERSION,
                           .form = RILL__M_FAILED,
                           .status = RILL_ERR_STATE,
                           .origin = 1,
                           .seq = 200},
                 gone = {.magic = RILL__MAGIC,
                         .version = RILL__VERSION,
                         .form = RILL__M_GONE,
                         .origin = 1,
                         .dim = UINT64_MAX};
    for (int i = 0; i < EACH; i++) {
        uint64_t other = (1 + rng_below(&r, (1u << 20) - 1)) << RILL__UCX_KEY_AT;
        say(s, (one ^ other) | (uint32_t)i, noise, (size_t)i * 70); /* any message */
        failed.seq += 10;
        say(s, one | RILL__TAG_NOTE, &failed, sizeof failed); /* ends a call */
        say(s, one | RILL__TAG_NOTE, noise, sizeof noise);
        say(s, one | RILL__TAG_PEERS, &gone, sizeof gone);            /* revokes the communicator */
        say(s, one | RILL__UCX_INNER | (1u + (uint32_t)i), noise, 8); /* an allgather's */
        for (uint32_t lane = 0; lane < RILL__LANES; lane++)           /* sums, if they come first */
            say(s, one | ((uint32_t)(300 + i) * RILL__LANES + lane), noise, 200);
    }
}

static void live_elsewhere(void) {
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    stranger s = {.context = NULL};
    double until = now_s() + SECONDS;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (atomic_load(&b->state) == BUSY && now_s() < until)
        usleep(1000);
    if (atomic_load(&b->state) != KNOWN || !arrive(&s)) _exit(1);
    be_strange(&s);
    finish(&s, ucp_worker_flush_nbx(s.worker, &plain));
    if (atomic_load(&b->state) == KNOWN) atomic_store(&b->state, SENT);
    pause(); /* until the job is over */
    _exit(0);
}

/* ---- the job --------------------------------------------------------------------------------- */

static void tell_address(const rill_comm *comm) {
    const rill__link_ucx *own = (const rill__link_ucx *)comm->engine.link;
    for (int pace = 0; pace < RILL__UCX_PACES; pace++) {
        ucp_address_t *address;
        size_t bytes;
        assert_int_equal(ucp_worker_get_address(own->ways[pace].worker, &address, &bytes), UCS_OK);
        assert_true(bytes <= sizeof b->address[pace].text);
        memcpy(b->address[pace].text, address, bytes);
        ucp_worker_release_address(own->ways[pace].worker, address);
    }
    b->key = own->key;
    atomic_store(&b->state, KNOWN);
}

/* Sums until rank 0 has seen enough, and says so in the first entry. */
static void work(int rank, rill_comm *comm) {
    const uint64_t enough = 5 * EACH;
    rill_stream *in = NULL, *out = NULL;
    rill_stats stats = RILL_STATS_INIT;
    double until = now_s() + SECONDS;
    static float got[RANKS][DIM];
    bool over = false;
    assert_ok(rill_stream_create(RILL_F32, DIM, &in));
    assert_ok(rill_stream_create(RILL_F32, DIM, &out));
    for (uint32_t step = 0; !over; step++) {
        uint32_t idx[MANY] = {0, 1 + step % 100, 200 + step % 100};
        float val[MANY] = {0, (float)(rank + 1), (float)step};
        for (uint32_t i = FEW; i < MANY; i++)
            idx[i] = 1000 + i;
        assert_ok(rill_comm_stats(comm, &stats));
        if (rank == 0 && ((stats.strangers >= enough && step > 400) || now_s() > until)) val[0] = 1;
        assert_ok(rill_stream_set_pairs(in, step % 2 ? FEW : MANY, idx, val));
        assert_ok(rill_allreduce(comm, in, out, RILL_SUM, NULL));
        assert_ok(rill_stream_get_dense(out, got[rank]));
        over = got[rank][0] != 0;
        assert_true(got[rank][idx[1]] == 3 && got[rank][idx[2]] == 2 * (float)step);
        got[rank][0] = got[rank][idx[1]] = got[rank][idx[2]] = 0;
        for (int i = 0; i < DIM; i++)
            assert_true(got[rank][i] == 0);
    }
    rill_stream_free(&in);
    rill_stream_free(&out);
}

static void be_rank(int rank, void *context) {
    (void)context;
    meeting_seat seat = {&met, rank};
    rill_bootstrap bootstrap = meeting_bootstrap(&seat);
    rill_comm *comm = NULL, *more = NULL;
    int mine = rank, all[RANKS], n = -1;
    assert_ok(rill_comm_create_ucx(&bootstrap, NULL, &comm));
    if (rank == 0) tell_address(comm);
    work(rank, comm);
    assert_ok(rill_comm_failed(comm, 0, NULL, &n));
    assert_int_equal(n, 0);
    assert_ok(rill_comm_gather_bytes(comm, &mine, sizeof mine, all));
    assert_int_equal(all[0] + all[1], 1);
    assert_ok(rill_comm_dup(comm, NULL, &more)); /* has a key of its own */
    rill_stats stats = RILL_STATS_INIT;
    assert_ok(rill_comm_stats(more, &stats));
    assert_int_equal(stats.strangers, 0);
    assert_ok(rill_comm_stats(comm, &stats));
    if (rank == 0) counted = stats.strangers;
    assert_ok(rill_comm_free(&more));
    assert_ok(rill_comm_free(&comm));
}

static void test_stranger(void **state) {
    (void)state;
    meeting_begin(&met, RANKS);
    ranks_run(RANKS, be_rank, NULL);
    pthread_barrier_destroy(&met.barrier);
    assert_int_equal(atomic_load(&b->state), SENT);
    assert_in_range(counted, 5 * EACH, (5 + RILL__LANES) * EACH);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stranger)};
    b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) return 1;
    pid_t child = fork(); /* before there is any UCX or thread */
    if (child < 0) return 1;
    if (child == 0) live_elsewhere();
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return failures;
}

#else

int main(void) { return 0; }

#endif
