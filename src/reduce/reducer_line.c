/* Steps of this process whose gradients are still to come, in the order of the calls.
 *
 * Only the first looks often: each look takes CUDA's lock, which the user's launches need. The
 * others are told when it is their turn, and look now and then, as they may be on other streams. */
#include "reduce/reducer.h"

#include <time.h>

enum { SHORT_NAP = 2000, LONG_NAP = 50000, NOW_AND_THEN = 2000000 }; /* nanoseconds */

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

/* Until it may be worth a look. */
static void stand(rill__on_step *step, long *nap) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NOW_AND_THEN;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
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
