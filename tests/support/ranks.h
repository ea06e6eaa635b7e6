/* Ranks of one process: a thread each. */
#ifndef RILL_TESTS_RANKS_H
#define RILL_TESTS_RANKS_H

#include "unit.h"

#include <pthread.h>

enum { RANKS_MOST = 16 };

typedef void ranks_body(int rank, void *context);

typedef struct ranks_one {
    ranks_body *body;
    void *context;
    int rank;
} ranks_one;

static inline void *ranks_thread(void *argument) {
    const ranks_one *one = argument;
    one->body(one->rank, one->context);
    return NULL;
}

/* Until all are through. */
static inline void ranks_run(int n, ranks_body *body, void *context) {
    pthread_t threads[RANKS_MOST];
    ranks_one all[RANKS_MOST];
    assert_true(n <= RANKS_MOST);
    for (int i = 0; i < n; i++) {
        all[i] = (ranks_one){body, context, i};
        assert_int_equal(pthread_create(&threads[i], NULL, ranks_thread, &all[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* Steps of a reducer over small integers, whose sums are exact: what came in, on all ranks, has
 * gone out or is kept. Blocks: each rank is a thread's. */
enum { RANKS_DIM = 5000, RANKS_STEPS = 5 };

typedef struct ranks_account {
    pthread_mutex_t lock;
    rill_comm *comms[RANKS_MOST];
    const rill_reducer_options *options;
    double balance[RANKS_DIM]; /* fed, less what came out and what is kept */
    uint64_t sent;             /* entries that left the residual of rank 0 in the last step */
} ranks_account;

static inline void ranks_reduce(int rank, void *context) {
    ranks_account *a = context;
    rng random = rng_make(7, (uint64_t)rank);
    rill_reducer *r = NULL;
    float *gradient = calloc(RANKS_DIM, sizeof(float)), *update = calloc(RANKS_DIM, sizeof(float));
    double *mine = calloc(RANKS_DIM, sizeof(double));
    assert_true(gradient && update && mine);
    assert_ok(rill_reducer_create(a->comms[rank], RILL_F32, RANKS_DIM, a->options, &r));
    for (int step = 0; step < RANKS_STEPS; step++) {
        for (int i = 0; i < RANKS_DIM; i++) {
            gradient[i] = (float)rng_below(&random, 200) - 100;
            mine[i] += (double)gradient[i];
        }
        assert_ok(rill_reducer_step(r, gradient, update));
        for (int i = 0; rank == 0 && i < RANKS_DIM; i++)
            mine[i] -= (double)update[i];
    }
    const float *residual = rill_reducer_residual(r);
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < RANKS_DIM; i++)
        a->balance[i] += mine[i] - (double)residual[i];
    if (rank == 0) {
        rill_stats stats = RILL_STATS_INIT;
        assert_ok(rill_reducer_stats(r, &stats));
        a->sent = stats.nnz_in;
    }
    pthread_mutex_unlock(&a->lock);
    assert_ok(rill_reducer_free(&r));
    free(gradient);
    free(update);
    free(mine);
}

/* Over communicators that are there. Returns what rank 0 sent in the last step. */
static inline uint64_t ranks_check_reducer(int n, rill_comm *const *comms,
                                           const rill_reducer_options *options) {
    static ranks_account a;
    memset(&a, 0, sizeof a);
    pthread_mutex_init(&a.lock, NULL);
    memcpy(a.comms, comms, (size_t)n * sizeof *comms);
    a.options = options;
    ranks_run(n, ranks_reduce, &a);
    pthread_mutex_destroy(&a.lock);
    for (int i = 0; i < RANKS_DIM; i++)
        if (a.balance[i] != 0) fail_msg("%g of entry %d is lost", a.balance[i], i);
    return a.sent;
}

#endif
