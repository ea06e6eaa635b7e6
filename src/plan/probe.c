/* What kind of network is this? All ranks send to their right neighbour at once, as much as takes a
 * few milliseconds; the slowest counts, since it is the one that crosses from host to host. Then
 * each sends small messages to several others: what the further messages of a round take is the
 * processors' matter, and nothing else tells of it. */
#include "plan/profile.h"

#include <math.h>
#include <stdlib.h>

#define ENOUGH 2e-3 /* seconds: longer than what buffers on the way let pass ahead of the rate */
enum { TAG = 1, TRIES = 4, LEAST_BYTES = 16 << 10, MOST_BYTES = 4 << 20 };
/* Short messages are sent more often, as long as it takes no longer: others may be on the
 * processors. */
#define LONGEST 4e-3
/* What a message of a call takes of a processor, against a bare one: it has a header, and is looked
 * for among others. */
#define IN_CALLS 1.5
enum { AT_ONCE = 4, MOST_TRIES = 64, SMALL = 256, POLLS_BETWEEN_LOOKS = 1000 };

/* Some rank is gone: no probe tells of it. */
static bool is_broken(rill__link *link) {
    uint8_t *fate = link->table->failed ? rill__calloc((size_t)link->ranks, 1) : NULL;
    bool broken = fate && link->table->failed(link, fate);
    free(fate);
    return broken;
}

/* The next message, as calls receive small ones: they do not know who comes first, and with many
 * ranks they do not wait for each one by one. */
static rill_status receive_next(rill__link *link, char *in, int bytes, rill__wire *wire) {
    const rill__link_table *table = link->table;
    rill__arrival arrival;
    rill_status status;
    for (unsigned polls = 1;; polls++) {
        status = table->probe(link, RILL__ANY, TAG, 1, &arrival);
        if (status != RILL_IN_PROGRESS) break;
        if (polls % POLLS_BETWEEN_LOOKS == 0 && is_broken(link))
            return rill__fail(RILL_ERR_PEER, "a rank is gone");
        table->idle(link, polls);
    }
    RILL_TRY(status);
    if (arrival.bytes > (size_t)bytes) return rill__fail(RILL_ERR_MESSAGE, "malformed message");
    return table->receive(link, &arrival, TAG, in, link->ranks <= link->most_at_once, wire);
}

typedef struct peers {
    int n, first, apart; /* so many, the first at this distance, and so far from one to the next */
} peers;

/* Each rank sends to these, and receives from as many. */
static rill_status exchange(rill__link *link, char *out, char *in, int bytes, peers with) {
    const rill__link_table *table = link->table;
    rill__wire from[AT_ONCE], to[AT_ONCE];
    int ranks = link->ranks, first = with.first;
    if (with.n == 1)
        RILL_TRY(
            table->post(link, (link->rank + ranks - first) % ranks, TAG, in, (size_t)bytes, from));
    for (int i = 0; i < with.n; i++)
        RILL_TRY(table->send(link, (link->rank + first + i * with.apart) % ranks, TAG, out,
                             (size_t)bytes, &to[i]));
    for (int i = 0; i < with.n && with.n > 1; i++)
        RILL_TRY(receive_next(link, in + (ptrdiff_t)i * bytes, bytes, &from[i]));
    for (int i = 0; i < with.n; i++)
        RILL_TRY(rill__link_wait(link, &from[i]));
    for (int i = 0; i < with.n; i++)
        RILL_TRY(rill__link_wait(link, &to[i]));
    return RILL_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* To the right neighbour: seconds of the slowest rank, each by its fastest, since other work on a
 * host makes long messages only slower. */
static rill_status shift(rill__link *link, char *out, char *in, int bytes, int tries,
                         double *seconds) {
    *seconds = 1e300;
    for (int i = 0; i < tries; i++) {
        RILL_TRY(rill__link_most(link, NULL, 0));
        double start = link->table->clock(link);
        RILL_TRY(exchange(link, out, in, bytes, (peers){1, 1, 0}));
        *seconds = fmin(*seconds, link->table->clock(link) - start);
    }
    return rill__link_most(link, seconds, 1);
}

/* Seconds of the slowest rank, by the lower quarter of so many exchanges. */
static rill_status repeat(rill__link *link, char *out, char *in, peers with, int tries,
                          double *seconds) {
    double took[MOST_TRIES], start = 0, end = 0;
    for (int i = 0; i <= tries; i++) {
        double last = end - start;
        RILL_TRY(rill__link_most(link, &last, 1)); /* a barrier, too */
        if (i > 0) took[i - 1] = last;
        if (i == tries) break;
        start = link->table->clock(link);
        RILL_TRY(exchange(link, out, in, SMALL, with));
        end = link->table->clock(link);
    }
    qsort(took, (size_t)tries, sizeof *took, ascending);
    *seconds = took[tries / 4];
    return RILL_OK;
}

/* A small message to each, as it is often: where ranks share processors, they wait for each other
 * in calls, too. */
static rill_status often(rill__link *link, char *out, char *in, peers with, double *seconds) {
    int tries = TRIES;
    RILL_TRY(repeat(link, out, in, with, tries, seconds)); /* connects */
    if (link->simulated || *seconds * tries > LONGEST) return RILL_OK;
    tries = *seconds * MOST_TRIES > LONGEST ? (int)(LONGEST / *seconds) : MOST_TRIES;
    return repeat(link, out, in, with, tries, seconds);
}

rill_status rill__probe_latency(rill__link *link, double *latency) {
    char out = 0, in = 0;
    RILL_TRY(shift(link, &out, &in, 1, 1, latency)); /* connects */
    return shift(link, &out, &in, 1, TRIES, latency);
}

/* Two ranks that exchange are the nearest to what most rounds do; but those half of all ranks apart
 * may be on one host. */
static rill_status measure_small(rill__link *link, char *out, char *in, rill__network *network) {
    double shifted, paired, all;
    network->message = 0;
    int ranks = link->ranks, n = ranks - 1 < AT_ONCE ? ranks - 1 : AT_ONCE;
    RILL_TRY(often(link, out, in, (peers){1, 1, 0}, &shifted));
    network->latency = shifted;
    if (n < 2) return RILL_OK;
    if (ranks % 2 == 0) {
        RILL_TRY(often(link, out, in, (peers){1, ranks / 2, 0}, &paired));
        if (paired > shifted / 4 && paired < shifted) network->latency = paired;
    }
    RILL_TRY(often(link, out, in, (peers){n, 1, (ranks - 2) / (n - 1)}, &all));
    network->message = IN_CALLS * fmax(all - network->latency, 1e-9) / (n - 1);
    return RILL_OK;
}

static rill_status measure_rate(rill__link *link, char *out, char *in, double small, double *rate) {
    double time;
    int bytes = LEAST_BYTES;
    for (;; bytes *= 4) {
        RILL_TRY(shift(link, out, in, bytes, TRIES, &time));
        if (time >= ENOUGH || bytes >= MOST_BYTES) break;
    }
    *rate = 8.0 * bytes / (time > 2 * small ? time - small : time / 2);
    return RILL_OK;
}

/* Small messages twice: other processes of the job may still start at first, and links may have
 * long messages to get rid of then. */
static rill_status measure(rill__link *link, char *out, char *in, rill__network *network) {
    double small;
    rill__network again;
    RILL_TRY(shift(link, out, in, 1, 1, &small)); /* connects */
    RILL_TRY(shift(link, out, in, 1, TRIES, &small));
    *network = (rill__network){.latency = small};
    bool far = small > RILL__FAR;
    if (!far) RILL_TRY(measure_small(link, out, in, network));
    RILL_TRY(measure_rate(link, out, in, small, &network->rate));
    if (far || link->simulated) return RILL_OK;
    again.rate = network->rate;
    RILL_TRY(measure_small(link, out, in, &again));
    if (again.latency < network->latency) *network = again;
    return RILL_OK;
}

rill_status rill__probe_network(rill__link *link, rill__network *network) {
    *network = (rill__network){.latency = 25e-6, .rate = 1e10};
    char *out = rill__calloc(1, MOST_BYTES), *in = rill__calloc(1, MOST_BYTES);
    double failed = !out || !in;
    rill_status status = rill__link_most(link, &failed, 1);
    if (status == RILL_OK && failed > 0)
        status = rill__fail(RILL_ERR_MEMORY, "out of memory for a communicator");
    if (status == RILL_OK) status = measure(link, out, in, network);
    free(out);
    free(in);
    return status;
}
