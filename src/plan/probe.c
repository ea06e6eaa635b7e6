/* What kind of network is this? All ranks send to their right neighbour at once, as much as takes a
 * few milliseconds; the slowest counts, since it is the one that crosses from host to host. */
#include "plan/profile.h"

#include <stdlib.h>

#define ENOUGH 2e-3 /* seconds: longer than what buffers on the way let pass ahead of the rate */
enum { TAG = 1, TRIES = 4, LEAST_BYTES = 16 << 10, MOST_BYTES = 4 << 20 };

/* Sends to the right neighbour and receives from the left one. */
static rill_status shift_once(rill__link *link, char *out, char *in, int bytes) {
    const rill__link_table *table = link->table;
    int right = (link->rank + 1) % link->ranks, left = (link->rank + link->ranks - 1) % link->ranks;
    rill__wire from, to;
    RILL_TRY(table->post(link, left, TAG, in, (size_t)bytes, &from));
    RILL_TRY(table->send(link, right, TAG, out, (size_t)bytes, &to));
    RILL_TRY(rill__link_wait(link, &from));
    return rill__link_wait(link, &to);
}

/* Seconds of the slowest rank, each by the fastest of several shifts, since other work on a host
 * makes them only slower. */
static rill_status shift(rill__link *link, char *out, char *in, int bytes, int tries,
                         double *seconds) {
    double best = 1e300;
    for (int i = 0; i < tries; i++) {
        RILL_TRY(rill__link_most(link, NULL, 0));
        double start = link->table->clock(link);
        RILL_TRY(shift_once(link, out, in, bytes));
        double took = link->table->clock(link) - start;
        if (took < best) best = took;
    }
    *seconds = best;
    return rill__link_most(link, seconds, 1);
}

rill_status rill__probe_latency(rill__link *link, double *latency) {
    char out = 0, in = 0;
    RILL_TRY(shift(link, &out, &in, 1, 1, latency)); /* connects */
    return shift(link, &out, &in, 1, TRIES, latency);
}

static rill_status measure(rill__link *link, char *out, char *in, double *latency,
                           double *bits_per_second) {
    double small, time;
    int bytes = LEAST_BYTES;
    RILL_TRY(shift(link, out, in, 1, 1, &small)); /* connects */
    RILL_TRY(shift(link, out, in, 1, TRIES, &small));
    for (;; bytes *= 4) {
        RILL_TRY(shift(link, out, in, bytes, TRIES, &time));
        if (time >= ENOUGH || bytes >= MOST_BYTES) break;
    }
    *latency = small;
    *bits_per_second = 8.0 * bytes / (time > 2 * small ? time - small : time / 2);
    return RILL_OK;
}

rill_status rill__probe_network(rill__link *link, double *latency, double *bits_per_second) {
    *latency = 25e-6;
    *bits_per_second = 1e10;
    char *out = rill__calloc(1, MOST_BYTES), *in = rill__calloc(1, MOST_BYTES);
    double failed = !out || !in;
    rill_status status = rill__link_most(link, &failed, 1);
    if (status == RILL_OK && failed > 0)
        status = rill__fail(RILL_ERR_MEMORY, "out of memory for a communicator");
    if (status == RILL_OK) status = measure(link, out, in, latency, bits_per_second);
    free(out);
    free(in);
    return status;
}
