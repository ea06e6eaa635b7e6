/* Threads, where MPI gives MPI_THREAD_MULTIPLE: each with a communicator of its own, and several
 * that share one and wait for different requests. */
#include "runs.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define CALLS 60

static atomic_long failures, calls;
static rill_comm *shared;

typedef struct worker {
    pthread_t thread;
    int number;
    rill_comm *comm;
    rill_request *request; /* of shared */
    rill_stream *stream;
} worker;

static void must(rill_status status, const char *what) {
    if (status == RILL_OK) return;
    failures++;
    fprintf(stderr, "test_threads: rank %d: %s: %s: %s\n", check.rank, what, rill_strerror(status),
            rill_last_error());
}

/* Entry i of thread t is i + t on every rank that has it: all those where (i + rank) is even. */
static void load(rill_stream *s, int t, int call) {
    uint32_t idx[100];
    float val[100];
    uint32_t n = 0;
    for (uint32_t i = 0; i < 100; i++)
        if ((i + (uint32_t)check.rank) % 2 == 0) {
            idx[n] = i * 10;
            val[n++] = (float)((int)i + t + call);
        }
    must(rill_stream_set_pairs(s, n, idx, val), "set_pairs");
}
static void verify(const rill_stream *s, int t, int call) {
    float got[1000];
    must(rill_stream_get_dense(s, got), "get_dense");
    int even = (check.size + 1) / 2, odd = check.size / 2;
    for (int i = 0; i < 1000; i++) {
        float want = i % 10 ? 0 : (float)((i / 10 + t + call) * (i / 10 % 2 ? odd : even));
        if (got[i] == want) continue;
        failures++;
        fprintf(stderr, "test_threads: rank %d, thread %d, call %d: entry %d is %g, not %g\n",
                check.rank, t, call, i, (double)got[i], (double)want);
        return;
    }
    calls++;
}

/* Blocking, non-blocking and every algorithm on a communicator that no other thread uses. */
static void *alone(void *argument) {
    worker *w = argument;
    int algorithms = 0;
    while (case_algorithm(RILL_ALLREDUCE, algorithms))
        algorithms++;
    for (int call = 0; call < CALLS; call++) {
        rill_options o = RILL_OPTIONS_INIT;
        o.algorithm = case_algorithm(RILL_ALLREDUCE, (call + w->number) % algorithms);
        load(w->stream, w->number, call);
        if (call % 2) {
            must(rill_allreduce(w->comm, w->stream, w->stream, RILL_SUM, &o), "allreduce");
        } else {
            rill_request *request = NULL;
            must(rill_iallreduce(w->comm, w->stream, w->stream, RILL_SUM, &o, &request),
                 "iallreduce");
            must(rill_wait(request), "wait");
            must(rill_request_free(&request), "request_free");
        }
        verify(w->stream, w->number, call);
    }
    return NULL;
}

/* Waits for a request that the main thread started. */
static void *wait_only(void *argument) {
    worker *w = argument;
    int done = 0;
    if (w->number % 2)
        while (!done)
            must(rill_test(w->request, &done), "test");
    else must(rill_wait(w->request), "wait");
    return NULL;
}

static void own_communicators(void) {
    worker workers[THREADS];
    check_case("a communicator for each of %d threads", THREADS);
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &workers[i].comm));
        CHECK_OK(rill_stream_create(RILL_F32, 1000, &workers[i].stream));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&workers[i].thread, NULL, alone, &workers[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        CHECK_OK(rill_comm_free(&workers[i].comm));
        rill_stream_free(&workers[i].stream);
    }
    CHECK_INT(atomic_load(&calls), ==, THREADS * CALLS);
}

static void one_communicator(void) {
    worker workers[THREADS];
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &shared));
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        CHECK_OK(rill_stream_create(RILL_F32, 1000, &workers[i].stream));
    }
    calls = 0;
    int algorithms = 0;
    while (case_algorithm(RILL_ALLREDUCE, algorithms))
        algorithms++;
    for (int call = 0; call < CALLS; call++) {
        rill_options o = RILL_OPTIONS_INIT;
        o.algorithm = case_algorithm(RILL_ALLREDUCE, call % algorithms);
        check_case("%d threads wait on one communicator, %s", THREADS, o.algorithm);
        for (int i = 0; i < THREADS; i++) {
            worker *w = &workers[i];
            load(w->stream, i, call);
            CHECK_OK(rill_iallreduce(shared, w->stream, w->stream, RILL_SUM, &o, &w->request));
        }
        for (int i = 0; i < THREADS; i++)
            pthread_create(&workers[i].thread, NULL, wait_only, &workers[i]);
        for (int i = 0; i < THREADS; i++)
            pthread_join(workers[i].thread, NULL);
        for (int i = 0; i < THREADS; i++) {
            CHECK_OK(rill_request_free(&workers[i].request));
            verify(workers[i].stream, i, call);
        }
    }
    CHECK_INT(atomic_load(&calls), ==, THREADS * CALLS);
    for (int i = 0; i < THREADS; i++)
        rill_stream_free(&workers[i].stream);
    CHECK_OK(rill_comm_free(&shared));
}

static void *blocks(void *argument) {
    worker *w = argument;
    for (int call = 0; call < CALLS; call++) {
        uint32_t index = (uint32_t)check.rank;
        float one = 1, dense[1000];
        if (rill_stream_set_pairs(w->stream, 1, &index, &one) != RILL_OK ||
            rill_allreduce(shared, w->stream, w->stream, RILL_SUM, NULL) != RILL_OK ||
            rill_stream_get_dense(w->stream, dense) != RILL_OK || dense[check.size - 1] != 1)
            atomic_fetch_add(&failures, 1);
    }
    return NULL;
}

/* Blocking calls of one kind, alike, from all threads at once, of which nothing is known at first:
 * a call may start while the one before it is under way, on one rank and not on another. */
static void blocking_at_once(void) {
    for (int again = 0; again < 6; again++) {
        check_case("%d threads block on one communicator, %d", THREADS, again);
        worker workers[THREADS];
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &shared));
        for (int i = 0; i < THREADS; i++)
            CHECK_OK(rill_stream_create(RILL_F32, 1000, &workers[i].stream));
        for (int i = 0; i < THREADS; i++)
            pthread_create(&workers[i].thread, NULL, blocks, &workers[i]);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(workers[i].thread, NULL);
            rill_stream_free(&workers[i].stream);
        }
        CHECK_OK(rill_comm_free(&shared));
    }
}

int main(int argc, char **argv) {
    int provided = check_init_thread(&argc, &argv, MPI_THREAD_MULTIPLE);
    if (provided < MPI_THREAD_MULTIPLE) return check_skip("no MPI_THREAD_MULTIPLE");
    own_communicators();
    one_communicator();
    blocking_at_once();
    CHECK_INT(atomic_load(&failures), ==, 0);
    return check_finish(2);
}
