/* tree: the root's stream goes down a binomial tree, as it was encoded once.
 *
 * Source. The classic binomial broadcast of MPI libraries.
 * Restriction. None.
 * Memory. One message.
 * Cost.  ceil(log2 P) (latency + bytes byte) + 2 bytes copy */
#include "coll/bcast/bcast.h"
#include "coll/cost.h"
#include "coll/patterns/fan_out.h"

#include <string.h>

typedef struct state {
    int distance; /* to my parent, then to my children; 0 before the start */
    bool have;
    rill__parcel *parcel;
    rill__received received; /* not on the root */
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    double bytes = rill__form_bytes(p, p->nnz_max, (double)p->dim), time = p->c->overhead;
    for (int reach = 1; reach < p->ranks; reach *= 2)
        time += p->c->latency + bytes * p->c->byte;
    return time + bytes * p->transcode;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    int size = run->size, from_root = (run->rank - run->root + size) % size;
    if (!s->distance) {
        s->distance =
            1; /* the lowest bit set is the distance to the parent; the root's is over all */
        while (s->distance < size && !(from_root & s->distance))
            s->distance *= 2;
        if (!from_root) {
            RILL_TRY(rill__run_encode(run, &run->coding, run->input, &s->parcel));
            s->have = true;
            if (rill__run_is_lossy(run)) { /* the root ends with what the others get */
                rill__part part = rill__run_own_part(run, s->parcel);
                RILL_TRY(rill__finish_copy(run, &part));
            }
        }
    }
    if (!s->have) {
        int parent = (from_root - s->distance + run->root) % size;
        rill_status status = rill__run_receive(run, parent, RILL__LANE_A, &s->received);
        if (status != RILL_OK) return status;
        s->parcel = s->received.parcel;
        rill__run_round(run);
        s->have = true;
    }
    rill_status sent = rill__fan_out(run, run->root, from_root, &s->distance, RILL__LANE_A,
                                     s->parcel);
    if (sent != RILL_OK) return sent;
    if (!from_root || rill__run_failed(run)) return RILL_OK;
    memcpy(run->fill, &s->received.message.header.fill, sizeof run->fill);
    rill__part part = rill__run_part(run, &s->received.message);
    return rill__finish_copy(run, &part);
}

const rill__algorithm rill__bcast_tree = {
    .name = "tree",
    .description = "down a binomial tree, encoded once",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
