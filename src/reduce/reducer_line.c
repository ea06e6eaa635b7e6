/* Threads of several steps in one process do not get into each other's way.
 *
 * Steps whose gradients are still to come stand in line, in the order of the calls. Only the first
 * looks often: each look takes CUDA's lock, which the user's launches need. The others are told
 * when it is their turn, and look now and then, as they may be on other streams.
 *
 * Of those that exchange, one thread of a communicator moves all on, and spins: messages come in
 * parts that each want a look. The others sleep until their call has ended or wants something
 * done, or it is their turn. */
#include "reduce/reducer.h"

#include <sched.h>
#include <time.h>

enum { SHORT_NAP = 2000, LONG_NAP = 50000, NOW_AND_THEN = 2000000 }; /* nanoseconds */
enum { SPINS = 2000 };

static struct {
    pthread_mutex_t lock;
    rill__on_step *first;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_uint_fast64_t numbers;

uint64_t rill__reducer_next_number(void) { return atomic_fetch_add(&numbers, 1); }

static void enter(rill__on_step *step) {
    pthread_mutex_lock(&line.lock);
    rill__on_step **at = &line.first;
    while (*at && (*at)->number < step->number)
        at = &(*at)->behind;
    step->behind = *at;
    *at = step;
    pthread_mutex_unlock(&line.lock);
}

static void leave(rill__on_step *step) {
    pthread_mutex_lock(&line.lock);
    rill__on_step **at = &line.first;
    while (*at != step)
        at = &(*at)->behind;
    *at = step->behind;
    if (at == &line.first && line.first) pthread_cond_signal(&line.first->turn);
    pthread_mutex_unlock(&line.lock);
}

static struct timespec now_and_then(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NOW_AND_THEN;
    if (until.tv_nsec < 1000000000) return until;
    until.tv_nsec -= 1000000000;
    until.tv_sec++;
    return until;
}

/* Until it may be worth a look. */
static void stand(rill__on_step *step, long *nap) {
    struct timespec until = now_and_then();
    pthread_mutex_lock(&line.lock);
    bool first = line.first == step;
    if (!first) pthread_cond_timedwait(&step->turn, &line.lock, &until);
    pthread_mutex_unlock(&line.lock);
    if (!first) return;
    nanosleep(&(struct timespec){.tv_nsec = *nap}, NULL);
    *nap = 2 * *nap < LONG_NAP ? 2 * *nap : LONG_NAP;
}

rill_status rill__reducer_await(const rill__space *space, rill__on_step *step) {
    rill_status status = space->order->reached(space, step->mark);
    long nap = SHORT_NAP;
    if (status == RILL_IN_PROGRESS) {
        enter(step);
        do {
            stand(step, &nap);
            status = space->order->reached(space, step->mark);
        } while (status == RILL_IN_PROGRESS);
        leave(step);
    }
    return status == RILL_OK ? space->order->follow_mark(space, step->mark) : status;
}

/* ---- exchanges ------------------------------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news; /* a call has ended or waits for its owner, or nobody moves them on */
} exchange = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};

void rill__reducer_news(void *reducer) {
    (void)reducer;
    pthread_mutex_lock(&exchange.lock);
    pthread_cond_broadcast(&exchange.news);
    pthread_mutex_unlock(&exchange.lock);
}

static bool has_ended(const rill_request *q) {
    return atomic_load_explicit(&q->ended, memory_order_acquire) != RILL__NOT_ENDED;
}

/* The call has ended, or wants something done (coll/away.h). */
static bool has_news(const rill_request *q) {
    const rill_reducer *r = q->sequel.whom;
    return has_ended(q) || rill__away_waits(&r->coder.away);
}

static void await_news(const rill_request *q) {
    struct timespec until = now_and_then();
    pthread_mutex_lock(&exchange.lock);
    if (!has_news(q) && atomic_load(&q->comm->engine.stepping))
        pthread_cond_timedwait(&exchange.news, &exchange.lock, &until);
    pthread_mutex_unlock(&exchange.lock);
}

static void drive(const rill_request *q, rill__engine *engine) {
    for (int spins = 0; !has_news(q);) {
        bool moved = false;
        if (!atomic_load_explicit(&engine->waiting, memory_order_relaxed) &&
            rill__trylock(engine)) {
            moved = rill__engine_progress(engine);
            rill__unlock(engine);
        }
        if (moved) spins = 0;
        else if (spins++ < SPINS) sched_yield();
        else nanosleep(&(struct timespec){.tv_nsec = LONG_NAP}, NULL);
    }
}

void rill__reducer_advance(rill_request *q) {
    rill__engine *engine = &q->comm->engine;
    rill_reducer *r = q->sequel.whom;
    while (!has_ended(q)) {
        if (rill__away_work(&r->coder.away)) continue;
        if (atomic_exchange(&engine->stepping, true)) {
            await_news(q);
            continue;
        }
        drive(q, engine);
        atomic_store(&engine->stepping, false);
        rill__reducer_news(NULL);
    }
}
