/* A few threads that do parts of one loop, again and again.
 *
 * Idea: rill__pool_run gives every thread the same function and its number; the calling thread is
 * number 0 and returns when all are done. Between two runs the others sleep. What a part computes
 * must not depend on how many parts there are: the callers cut rows, whose results are kept by row,
 * or ranges of features, whose entries are summed in the order of rows. So the bits do not depend
 * on the number of threads.
 * Restriction: threads make no MPI calls. Simulated ranks are threads of one process already: there
 * the parts are done one after the other.
 * Memory: a stack per thread. Cost of a run: a wake-up and a sleep, some 10 us.
 */
#include "train/train_pool.h"
#include "train/data_internal.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct pool_worker {
    rill__pool *pool;
    pthread_t id;
    int number;
} pool_worker;

struct rill__pool {
    int threads, started; /* started: without the caller */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    uint64_t round; /* counts runs */
    int busy;
    bool ending;
    bool in_turn; /* there are no threads: the caller does one part after the other */
    rill__pool_part *part;
    void *context;
    pool_worker worker[];
};

int rill__pool_threads(const rill__pool *pool) { return pool ? pool->threads : 1; }

static void *work(void *argument) {
    const pool_worker *me = argument;
    rill__pool *pool = me->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->round == seen && !pool->ending)
            pthread_cond_wait(&pool->wake, &pool->lock);
        if (pool->ending) break;
        seen = pool->round;
        rill__pool_part *part = pool->part;
        void *context = pool->context;
        pthread_mutex_unlock(&pool->lock);
        part(context, me->number, pool->threads);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0) pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

rill_status rill__pool_open(int threads, rill__pool **out) {
    *out = NULL;
    if (threads <= 1) return RILL_OK; /* no pool: the caller does all of it */
    rill__pool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof pool->worker[0]);
    if (!pool) return rill__data_memory("threads");
    pool->threads = threads;
    pool->in_turn = rill__mpi_simulated();
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (int i = 1; i < threads && !pool->in_turn; i++) {
        pool_worker *w = &pool->worker[i];
        *w = (pool_worker){.pool = pool, .number = i};
        if (pthread_create(&w->id, NULL, work, w)) {
            rill__pool_close(&pool);
            return rill__data_fail(RILL_ERR_MEMORY, "thread %d of %d could not be started", i + 1,
                                   threads);
        }
        pool->started++;
    }
    *out = pool;
    return RILL_OK;
}

void rill__pool_close(rill__pool **pointer) {
    rill__pool *pool = *pointer;
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->ending = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->worker[i].id, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
    *pointer = NULL;
}

void rill__pool_run(rill__pool *pool, rill__pool_part *part, void *context) {
    if (!pool || pool->in_turn) {
        for (int i = 0; i < rill__pool_threads(pool); i++)
            part(context, i, rill__pool_threads(pool));
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->part = part;
    pool->context = context;
    pool->busy = pool->threads - 1;
    pool->round++;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    part(context, 0, pool->threads);
    pthread_mutex_lock(&pool->lock);
    while (pool->busy)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
