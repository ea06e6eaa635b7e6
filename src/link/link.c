/* What every link can do by its table. */
#include "link/link.h"

#include <string.h>

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
