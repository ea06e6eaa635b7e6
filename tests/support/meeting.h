/* An allgather of threads: a bootstrap for ranks of one process. */
#ifndef RILL_TESTS_MEETING_H
#define RILL_TESTS_MEETING_H

#include "rill/rill.h"

#include <pthread.h>
#include <string.h>

enum { MEETING_MOST = 16 };

typedef struct meeting {
    pthread_barrier_t barrier;
    int ranks;
    const void *brought[MEETING_MOST];
} meeting;

typedef struct meeting_seat {
    meeting *at;
    int rank;
} meeting_seat;

static inline void meeting_begin(meeting *m, int ranks) {
    m->ranks = ranks;
    pthread_barrier_init(&m->barrier, NULL, (unsigned)ranks);
}

static inline int meeting_allgather(const void *mine, size_t bytes, void *all, void *context) {
    const meeting_seat *seat = context;
    seat->at->brought[seat->rank] = mine;
    pthread_barrier_wait(&seat->at->barrier);
    for (int i = 0; i < seat->at->ranks; i++)
        memcpy((char *)all + (size_t)i * bytes, seat->at->brought[i], bytes);
    pthread_barrier_wait(&seat->at->barrier);
    return 0;
}

static inline rill_bootstrap meeting_bootstrap(meeting_seat *seat) {
    rill_bootstrap b = RILL_BOOTSTRAP_INIT;
    b.rank = seat->rank;
    b.ranks = seat->at->ranks;
    b.allgather = meeting_allgather;
    b.context = seat;
    return b;
}

#endif
