/* The lock of an engine, and the progress thread that advances requests while nobody waits for
 * them.
 *
 * Idea. Messages move only while somebody steps the requests. A communicator may have a thread that
 * does so between the calls of its users; a caller who waits does it by itself, without a
 * hand-over, so that blocking calls are what they were. When. The thread works while a request is
 * active and no caller is in rill__engine_wait (a driver). Else it sleeps on a condition variable,
 * and whoever leaves the lock behind with work to do wakes it. Whose turn. A mutex is not fair: who
 * unlocks and locks again has it before a sleeper is up. So callers who find it taken are counted,
 * and the thread stays away until they have been in. What not. Requests that may block in MPI
 * (task.waited_for: blocking calls, whose caller is there to wait) are not the thread's: it would
 * block with the lock held. Cost. Idle: none. While nothing moves: polls for some 100 us, then
 * gives the processor away, then sleeps 1 to 50 us at a time; where it has no processor to itself,
 * from the beginning. */
#include "req/request.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

/* Polls without progress: so many at once, so many with a yield after each, then naps between them.
 */
enum { POLLS_AT_ONCE = 400, POLLS_WITH_YIELD = 2000, FEW_YIELDS = 10 };
/* Nanoseconds of the first nap and the longest. */
enum { SHORT_NAP = 1000, LONG_NAP = 50000 };
/* Yields until those who wait for the lock surely had their chance. */
enum { YIELDS_FOR_OTHERS = 64 };

/* ---- lock ------------------------------------------------------------------------------------ */

void rill__lock_contended(rill__engine *engine) {
    atomic_fetch_add(&engine->waiting, 1);
    pthread_mutex_lock(&engine->lock);
    atomic_fetch_sub(&engine->waiting, 1);
}

/* Whether there is something for the thread to do. Lock held. */
static bool has_work(const rill__engine *engine) {
    if (atomic_load_explicit(&engine->drivers, memory_order_relaxed)) return false;
    for (rill__task *r = engine->active; r; r = r->next)
        if (!r->waited_for) return true;
    return false;
}

void rill__unlock_threaded(rill__engine *engine) {
    rill__progress *p = &engine->progress;
    bool wake = p->asleep && engine->active && has_work(engine);
    if (wake) p->asleep = false;
    pthread_mutex_unlock(&engine->lock);
    if (wake) pthread_cond_signal(&p->wake);
}

void rill__give_way(rill__engine *engine) {
    unsigned idle = engine->idle_polls;
    rill__unlock(engine);
    rill__link *link = engine->link; /* rill_comm_shrink may change it: read once */
    link->table->idle(link, idle);
    for (int i = 0; i < YIELDS_FOR_OTHERS && atomic_load(&engine->waiting); i++)
        sched_yield();
    rill__lock(engine);
}

/* ---- thread ---------------------------------------------------------------------------------- */

static void nap(long *length) {
    struct timespec time = {.tv_nsec = *length};
    nanosleep(&time, NULL);
    *length = 2 * *length < LONG_NAP ? 2 * *length : LONG_NAP;
}

/* Without the lock: until no caller waits for it or holds it to wait for a request. Not for ever:
 * then the thread goes to sleep as it should, by the lock. */
static void stay_away(rill__engine *engine) {
    long length = SHORT_NAP;
    for (int i = 0; i < 2 * YIELDS_FOR_OTHERS; i++) {
        if (!atomic_load(&engine->waiting) &&
            !atomic_load_explicit(&engine->drivers, memory_order_relaxed))
            return;
        if (i < YIELDS_FOR_OTHERS) sched_yield();
        else nap(&length);
    }
}

/* After a turn, lock held on both sides. */
static void rest(rill__engine *engine, unsigned idle, long *length) {
    unsigned at_once = engine->progress.has_core ? POLLS_AT_ONCE : 0;
    unsigned with_yield = engine->progress.has_core ? POLLS_WITH_YIELD : FEW_YIELDS;
    bool wanted = atomic_load(&engine->waiting) > 0;
    if (idle <= at_once && !wanted) return;
    pthread_mutex_unlock(&engine->lock);
    if (!wanted && idle <= at_once + with_yield) sched_yield();
    else if (!wanted) nap(length);
    stay_away(engine);
    pthread_mutex_lock(&engine->lock);
}

static void *run(void *argument) {
    rill__engine *engine = argument;
    rill__progress *p = &engine->progress;
#ifdef __linux__
    prctl(PR_SET_NAME, "rill-progress");
    prctl(PR_SET_TIMERSLACK, 1000ul); /* else a nap of 1 us takes 50 */
#endif
    unsigned idle = 0;
    long length = SHORT_NAP;
    pthread_mutex_lock(&engine->lock);
    while (!p->stop) {
        if (!has_work(engine)) {
            p->asleep = true;
            pthread_cond_wait(&p->wake, &engine->lock);
            p->asleep = false;
            idle = 0;
            length = SHORT_NAP;
            continue;
        }
        if (rill__engine_progress(engine)) {
            idle = 0;
            length = SHORT_NAP;
        } else {
            idle++;
        }
        rest(engine, idle, &length);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

static bool has_second_core(void) {
#ifdef CPU_COUNT
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) return CPU_COUNT(&mine) > 1;
#endif
    return true;
}

rill_status rill__progress_start(rill__engine *engine, bool crowded) {
    rill__progress *p = &engine->progress;
    if (engine->link->simulated)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "setting progress_thread = 1: the ranks of a simulation have no threads");
    if (!engine->threaded)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "setting progress_thread = 1 needs MPI_THREAD_MULTIPLE, and "
                          "MPI_Init_thread gave less or was not asked for it");
    p->has_core = !crowded && has_second_core();
    p->stop = p->asleep = false;
    if (pthread_cond_init(&p->wake, NULL) != 0)
        return rill__fail(RILL_ERR_MEMORY, "setting progress_thread = 1: no condition variable");
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&p->thread, NULL, run, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        pthread_cond_destroy(&p->wake);
        return rill__fail(RILL_ERR_MEMORY, "setting progress_thread = 1: no thread: %s",
                          strerror(code));
    }
    p->on = true;
    return RILL_OK;
}

/* Not on any more before it has ended: who starts a request from now on advances it. */
void rill__progress_stop(rill__engine *engine) {
    rill__progress *p = &engine->progress;
    rill__lock(engine);
    bool on = p->on;
    p->stop = true;
    p->on = false;
    rill__unlock(engine);
    if (!on) return;
    pthread_cond_signal(&p->wake);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->wake);
}
