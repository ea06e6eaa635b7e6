/* Allocations after the last message of a call: if one failed, this rank would be the only one to
 * know. Only calls that end with an agreement on the status (call/commit.c) may make them. */
#ifndef RILL_TESTS_WORLD_WATCH_H
#define RILL_TESTS_WORLD_WATCH_H

#include "outcome.h"

#include "call/call.h"

/* The last allocation of a rank: of which call, and behind how many messages of it. */
typedef struct watch {
    bool any;
    uint64_t seq, messages;
    size_t bytes;
} watch;

static watch watches[MOST_RANKS];

static inline void watch_allocation(const rill_comm *comm, size_t bytes) {
    const rill__task *task = comm ? comm->engine.active : NULL;
    if (task) watches[comm->engine.rank] = (watch){true, task->seq, task->messages, bytes};
}

/* A call that is not one of several in flight has ended well. */
static inline void watch_end(outcome *o, int call, const rill_request *r) {
    const rill__task *task = &r->task;
    const watch *w = &watches[task->engine->rank];
    if (task->engine->size == 1 || r->phase == RILL__P_COMMIT) return;
    if (!w->any || w->seq != task->seq || w->messages != task->messages) return;
    wrong(o, "call %d, rank %d: %s allocates %zu bytes after its last message", call,
          task->engine->rank, r->plan.algorithm ? r->plan.algorithm->name : "it", w->bytes);
}

#endif
