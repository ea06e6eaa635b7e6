/* Threads of a rank: train_pool.c. */
#ifndef RILL_TRAIN_TRAIN_POOL_H
#define RILL_TRAIN_TRAIN_POOL_H

#include "rill/rill.h"

#include <stdint.h>

enum { RILL__MOST_THREADS = 256 };

typedef struct rill__pool rill__pool;
typedef void rill__pool_part(void *context, int thread, int threads);
/* *out is NULL for one thread, with which all calls work. */
rill_status rill__pool_open(int threads, rill__pool **out);
void rill__pool_close(rill__pool **);
int rill__pool_threads(const rill__pool *);
/* Returns when all threads have done their part. */
void rill__pool_run(rill__pool *, rill__pool_part *, void *context);
/* Where part i of so many begins. */
static inline uint64_t rill__pool_cut(uint64_t n, int i, int threads) {
    return n / (uint64_t)threads * (uint64_t)i +
           n % (uint64_t)threads * (uint64_t)i / (uint64_t)threads;
}

#endif
