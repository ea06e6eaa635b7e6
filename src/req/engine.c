/* The engine of a communicator: starts, advances and completes requests. */
#include "req/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Requests that are advanced at once: the oldest. Who has thousands in flight would else look at
 * all of them for each. */
enum { WINDOW = 64 };

/* How long to spin before giving the processor away, and how often to look for notes. Between hosts
 * each look asks the kernel. */
enum { SPINS_BEFORE_YIELD = 200, SPINS_BETWEEN_HOSTS = 20 };
enum { POLLS_BETWEEN_NOTE_PROBES = 64 };

rill_status rill__engine_init(rill__engine *engine, rill__link *link) {
    engine->link = link;
    engine->table = link->table;
    engine->rank = link->rank;
    engine->size = link->ranks;
    engine->threaded = link->threads;
    engine->seal = link->key ? link->key & RILL__SEAL_MASK : RILL__SEAL;
    for (int i = 0; i < RILL__REMEMBERED; i++)
        engine->past[i].seq = UINT64_MAX;
    engine->sent = rill__calloc((size_t)engine->size, sizeof *engine->sent);
    engine->received = rill__calloc((size_t)engine->size, sizeof *engine->received);
    engine->announced = rill__calloc((size_t)engine->size, sizeof *engine->announced);
    if (!engine->sent || !engine->received || !engine->announced ||
        pthread_mutex_init(&engine->lock, NULL) != 0)
        return rill__fail(RILL_ERR_MEMORY, "out of memory for a communicator");
    engine->tag_calls = RILL__TAG_NOTE / RILL__LANES;
    engine->left_from = UINT64_MAX;
    RILL_TRY(rill__peers_reserve(engine));
    return rill__notes_reserve(engine);
}

void rill__engine_free(rill__engine *engine) {
    while (engine->early) {
        rill__early *early = engine->early;
        engine->early = early->next;
        rill__parcel_return(engine, early->transfer.parcel);
        free(early);
    }
    rill__notes_free(engine);
    rill__peers_free(engine);
    rill__parcels_free(engine);
    free(engine->orphans.at);
    free(engine->sent);
    free(engine->received);
    free(engine->announced);
    rill__hosts_free(&engine->hosts);
    pthread_mutex_destroy(&engine->lock);
}

/* ---- failures -------------------------------------------------------------------------------- */

rill_status rill__task_fail(rill__task *task, rill_status status) {
    if (task->status != RILL_OK) return RILL_OK;
    task->status = status;
    task->origin = task->engine->rank;
    snprintf(task->error, sizeof task->error, "%s", rill_last_error());
    return RILL_OK;
}

rill_status rill__task_abort(rill__task *task, rill_status status) {
    if (task->status != RILL_OK) return RILL_OK;
    rill__task_fail(task, status);
    rill__abort(task->engine, task->seq, task->status, task->origin, task->error);
    return RILL_OK;
}

/* ---- life of a request ----------------------------------------------------------------------- */

void rill__task_start(rill__task *task) {
    rill__engine *engine = task->engine;
    task->seq = engine->seq++;
    task->tag = (int)(task->seq % engine->tag_calls) * RILL__LANES;
    task->expect.seq = task->seq;
    task->status = RILL_OK;
    task->origin = engine->rank;
    task->error[0] = '\0';
    task->inquired = task->lent = false;
    task->hops = 0;
    task->lost = NULL;
    task->adds_bits = false;
    task->flags = 0;
    task->sent_bytes = task->recv_bytes = task->messages = task->rounds = 0;
    task->life = RILL__ACTIVE;
    rill__task_show(task, RILL__ACTIVE);
    task->next = NULL;
    if (engine->active_last) engine->active_last->next = task;
    else engine->active = task;
    engine->active_last = task;
    if (!(task->seq % RILL__CALLS_BETWEEN_LOOKS)) rill__peers_poll(engine);
}

bool rill__sends_done(rill__task *task) {
    for (int i = 0; i < task->sends.n;) {
        rill__transfer *t = &task->sends.at[i];
        if (rill__test(task->engine, t) == RILL_IN_PROGRESS) {
            i++;
            continue;
        }
        if (i < --task->sends.n) task->sends.at[i] = task->sends.at[task->sends.n];
        task->moved = true;
    }
    return task->sends.n == 0;
}

static inline void give_back(rill__engine *engine, rill__parcel **list) {
    while (*list) {
        rill__parcel *parcel = *list;
        *list = parcel->next;
        rill__parcel_return(engine, parcel);
    }
}

static void complete(rill__engine *engine, rill__task *task) {
    if (task->posted.parcel) rill__cancel_posted(task);
    give_back(engine, &task->held);
    give_back(engine, &task->spare);
    task->life = task->ending ? RILL__ENDING : RILL__COMPLETE;
    engine->past[task->seq % RILL__REMEMBERED] = task->expect;
    if (task->completed) task->completed(task);
}

static void advance(rill__engine *engine, rill__task *task) {
    if (task->life == RILL__ENDING) {
        if (task->ending(task) != RILL_IN_PROGRESS) task->life = RILL__COMPLETE;
        return;
    }
    if (!task->lent && engine->notes && rill__apply_notes(engine, task)) {
        complete(engine, task);
        return;
    }
    if (!task->lent && task->seq >= engine->left_from) {
        rill__left_alone(engine, task);
        complete(engine, task);
        return;
    }
    if (task->life == RILL__ACTIVE) {
        rill_status status = task->step(task);
        if (status == RILL_IN_PROGRESS) return;
        if (status < 0) { /* this rank cannot go on taking part */
            rill__task_fail(task, status);
            rill__abort(engine, task->seq, task->status, task->origin, task->error);
            return;
        }
        task->life = RILL__DRAINING;
        task->moved = true;
    }
    if (task->life == RILL__DRAINING && rill__sends_done(task)) complete(engine, task);
}

/* Nothing has moved for a while: is something wrong? */
static void idle(rill__engine *engine) {
    double now = engine->table->clock(engine->link);
    if (engine->idle_polls == POLLS_BETWEEN_NOTE_PROBES) engine->idle_since = now;
    rill__receive_notes(engine);
    rill__peers_poll(engine);
    if (engine->idle_polls == POLLS_BETWEEN_NOTE_PROBES) {
        engine->peers.idle_since = now;
        engine->peers.asked = 0;
    }
    if (engine->active) rill__peers_wait(engine);
    if (now - engine->idle_since > engine->link->patience) {
        rill__inquire(engine);
        engine->idle_since = now;
    }
    if (engine->orphans.n) rill__orphans_done(engine);
}

bool rill__engine_progress(rill__engine *engine) {
    bool moved = false;
    rill__task *before = NULL;
    uint64_t end = engine->active ? engine->active->seq + engine->tag_calls : 0;
    int looked = 0;
    for (rill__task *task = engine->active; task;) {
        if (task->seq >= end) break; /* its tags are still in use */
        if (looked++ >= WINDOW && !engine->driven) break;
        if (engine->driven != task && (task->waited_for || looked > WINDOW)) {
            before = task;
            task = task->next;
            continue;
        }
        task->moved = false;
        advance(engine, task);
        moved |= task->moved;
        rill__task *next = task->next;
        if (task->life == RILL__COMPLETE) {
            if (before) before->next = next;
            else engine->active = next;
            if (engine->active_last == task) engine->active_last = before;
            task->next = NULL;
            moved = true;
            rill__task_show(task, RILL__COMPLETE);
        } else {
            before = task;
        }
        task = next;
        /* Somebody wants to start a request, and a sweep over many may compute for long. */
        if (moved && !engine->driven &&
            atomic_load_explicit(&engine->waiting, memory_order_relaxed))
            break;
    }
    if (moved) {
        engine->idle_polls = 0;
        if (engine->notes) rill__forget_notes(engine);
    } else if (++engine->idle_polls % POLLS_BETWEEN_NOTE_PROBES == 0) {
        idle(engine);
    }
    return moved;
}

/* Only under the lock, so that a plain store will do. */
static void count_driver(rill__engine *engine, int change) {
    int now = atomic_load_explicit(&engine->drivers, memory_order_relaxed);
    atomic_store_explicit(&engine->drivers, now + change, memory_order_relaxed);
}

static unsigned spins_at_once(const rill__engine *engine) {
    return engine->link->hosts > 1 ? SPINS_BETWEEN_HOSTS : SPINS_BEFORE_YIELD;
}

void rill__engine_wait(rill__task *task) {
    rill__engine *engine = task->engine;
    count_driver(engine, 1);
    while (task->life != RILL__IDLE && task->life != RILL__COMPLETE) {
        engine->alone = !engine->crowded && engine->active == task && !task->next;
        engine->driven = task;
        bool moved = rill__engine_progress(engine);
        engine->alone = false;
        engine->driven = NULL;
        if (!moved && (engine->crowded || engine->idle_polls > spins_at_once(engine)))
            rill__give_way(engine); /* another thread may have what is waited for */
    }
    count_driver(engine, -1);
}
