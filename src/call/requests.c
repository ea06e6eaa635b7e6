/* Requests as the user sees them. */
#include "call/call.h"

#include <string.h>

/* With or without the lock. */
static bool active(const rill_request *r) { return rill__task_shown(&r->task) == RILL__ACTIVE; }

/* Advances all requests, but not where that meant to wait: who has the lock is at it, or about to
 * be; and who waits for it goes first. */
static void advance_if_free(rill__engine *engine) {
    if (atomic_load_explicit(&engine->waiting, memory_order_relaxed) || !rill__trylock(engine))
        return;
    bool moved = rill__engine_progress(engine);
    rill__unlock(engine);
    rill__link *link = engine->link;
    if (!moved && link->table->help) link->table->help(link);
}

static rill_status tell(rill_request *r) {
    atomic_store_explicit(&r->told, true, memory_order_relaxed);
    return rill__request_result(r);
}

/* Nothing has come for any of several requests, this one among them. */
static void rest(rill_request *r) {
    rill__link *link = r->comm->engine.link;
    link->table->idle(link, 1);
}

rill_status rill_start(rill_request *r) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_start: request is NULL");
    if (r->sequel.complete)
        return rill__fail(RILL_ERR_STATE,
                          "rill_start: the request is a reducer's, which starts it");
    if (!r->persistent)
        return rill__fail(RILL_ERR_STATE, "rill_start: the request is not persistent");
    rill__engine *engine = &r->comm->engine;
    rill__lock(engine);
    rill_status status;
    if (active(r)) {
        status = rill__fail(RILL_ERR_STATE, "rill_start: the request is active");
    } else {
        status = rill__request_begin(r);
        rill__request_launch(r);
    }
    rill__unlock(engine);
    return status;
}

rill_status rill_test(rill_request *r, int *done) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_test: request is NULL");
    if (!done) return rill__fail(RILL_ERR_ARGUMENT, "rill_test: done is NULL");
    rill__engine *engine = &r->comm->engine;
    if (active(r)) advance_if_free(engine);
    *done = !active(r);
    return *done ? tell(r) : RILL_OK;
}

rill_status rill_wait(rill_request *r) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_wait: request is NULL");
    rill__lock(&r->comm->engine);
    rill__engine_wait(&r->task);
    rill_status status = tell(r);
    rill__unlock(&r->comm->engine);
    return status;
}

/* The requests may be of several communicators, so all of them are advanced in turn. */
rill_status rill_waitall(int n, rill_request **requests) {
    if (n < 0) return rill__fail(RILL_ERR_ARGUMENT, "rill_waitall: n = %d is negative", n);
    if (n && !requests) return rill__fail(RILL_ERR_ARGUMENT, "rill_waitall: requests is NULL");
    rill_status first = RILL_OK;
    int failed = -1;
    rill_request *open;
    do {
        open = NULL;
        for (int i = 0; i < n; i++) {
            int done = 1;
            if (!requests[i]) continue;
            rill_status status = rill_test(requests[i], &done);
            if (!done) open = requests[i];
            else if (status != RILL_OK && first == RILL_OK) first = status, failed = i;
        }
        if (open) rest(open);
    } while (open);
    return failed < 0 ? RILL_OK : rill__request_result(requests[failed]);
}

rill_status rill_waitany(int n, rill_request **requests, int *index) {
    if (n < 0) return rill__fail(RILL_ERR_ARGUMENT, "rill_waitany: n = %d is negative", n);
    if (n && !requests) return rill__fail(RILL_ERR_ARGUMENT, "rill_waitany: requests is NULL");
    if (!index) return rill__fail(RILL_ERR_ARGUMENT, "rill_waitany: index is NULL");
    *index = -1;
    for (;;) {
        rill_request *any = NULL;
        for (int i = 0; i < n; i++) {
            if (!requests[i] || rill__task_shown(&requests[i]->task) == RILL__IDLE) continue;
            any = requests[i];
            int done = 0;
            rill_status status = rill_test(requests[i], &done);
            if (!done) continue;
            *index = i;
            return status;
        }
        if (!any) return RILL_OK;
        rest(any);
    }
}

rill_status rill_progress(rill_comm *comm) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "rill_progress: comm is NULL");
    advance_if_free(&comm->engine);
    return RILL_OK;
}

/* Older programs have a shorter struct: only what fits is written. One that forgot to set the size
 * has at least the first version's fields. */
void rill__stats_copy(rill_stats *to, const rill_stats *from) {
    size_t size = to->size < sizeof *to ? to->size : sizeof *to;
    const size_t first_version = offsetof(rill_stats, elapsed_s) + sizeof(double);
    if (size < first_version) size = first_version;
    memcpy((char *)to + sizeof to->size, (const char *)from + sizeof from->size,
           size - sizeof to->size);
}

rill_status rill_request_stats(const rill_request *r, rill_stats *stats) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_request_stats: request is NULL");
    if (!stats) return rill__fail(RILL_ERR_ARGUMENT, "rill_request_stats: stats is NULL");
    if (active(r)) return rill__fail(RILL_ERR_STATE, "rill_request_stats: the request is active");
    if (r->sequel.complete) {
        rill__stats_copy(stats, r->sequel.stats);
        return RILL_OK;
    }
    rill_stats now = RILL_STATS_INIT;
    rill__request_statistics(r, &now);
    now.elapsed_s = rill__clock_seconds(&r->comm->clock, r->elapsed);
    rill__stats_copy(stats, &now);
    return RILL_OK;
}

rill_status rill_request_free(rill_request **pointer) {
    if (pointer && *pointer && (*pointer)->sequel.complete)
        return rill__fail(RILL_ERR_STATE,
                          "rill_request_free: the request is a reducer's, which frees it");
    return rill__request_release(pointer);
}

rill_status rill__request_release(rill_request **pointer) {
    if (!pointer || !*pointer) return RILL_OK;
    rill_request *r = *pointer;
    rill_status status = RILL_OK;
    rill__lock(&r->comm->engine);
    if (active(r)) {
        rill__engine_wait(&r->task);
        status = rill__request_result(r);
    }
    r->comm->requests--;
    r->task.life = RILL__IDLE;
    rill__task_show(&r->task, RILL__IDLE);
    rill__request_recycle(r);
    rill__unlock(&r->comm->engine);
    *pointer = NULL;
    return status;
}
