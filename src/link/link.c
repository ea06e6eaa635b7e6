/* What every link can do by its table. */
#include "link/link.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* Where messages come over a network the wait is long, and the kernel needs the processor to bring
 * them: on emulated hosts, which share processors, naps make a call faster by a tenth. Within a
 * host who has looked so often in vain has waited for about 10 ms, and a nap is under a hundredth
 * of that: the processor is better used by the rank that all wait for. */
enum { NAP = 20000 /* ns */, POLLS_BETWEEN_HOSTS = 400, POLLS_WITHIN_HOST = 10000 };

void rill__link_yield(rill__link *link, unsigned polls) {
    const struct timespec nap = {.tv_nsec = NAP};
    unsigned most = link->hosts > 1 ? POLLS_BETWEEN_HOSTS : POLLS_WITHIN_HOST;
    if (polls > most) nanosleep(&nap, NULL);
    else sched_yield();
}

rill_status rill__link_wait(rill__link *link, rill__wire *wire) {
    if (link->table->wait) return link->table->wait(link, wire);
    rill_status status;
    for (unsigned polls = 1; (status = link->table->test(link, wire, NULL)) == RILL_IN_PROGRESS;
         polls++)
        link->table->idle(link, polls);
    return status;
}

rill_status rill__link_most(rill__link *link, double *values, int n) {
    double mine[RILL__LINK_VALUES] = {0};
    int words = n ? n : 1;
    if (n) memcpy(mine, values, (size_t)n * sizeof *mine);
    RILL_TRY(link->table->allgather(link, mine, (size_t)words * sizeof *mine, link->values));
    for (int rank = 0; rank < link->ranks; rank++)
        for (int i = 0; i < n; i++) {
            double other = link->values[(size_t)rank * (size_t)words + (size_t)i];
            if (other > values[i]) values[i] = other;
        }
    return RILL_OK;
}

rill_status rill__link_worst(rill__link *link, rill_status mine, rill_status *worst) {
    double value = -(double)mine; /* failures are negative */
    *worst = mine;
    RILL_TRY(rill__link_most(link, &value, 1));
    *worst = (rill_status)-value;
    return RILL_OK;
}
