/* tree: the root's stream goes down a binomial tree, as it was encoded once.
 *
 * Source. The classic binomial broadcast of MPI libraries.
 * Restriction. None.
 * Memory. One message.
 * Cost.  ceil(log2 P) (latency + bytes byte) + 2 bytes copy */
#include "coll/allreduce/allreduce.h"
#include "coll/patterns/fan_out.h"

#include <string.h>

typedef struct state {
    int distance; /* to my parent, then to my children; 0 before the start */
    bool have;
    rill__block *block;
    rill__message message;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    double bytes = rill__form_bytes(p, p->nnz_max, (double)p->dim), time = p->c->overhead;
    for (int reach = 1; reach < p->ranks; reach *= 2)
        time += p->c->latency + bytes * p->c->byte;
    return time + bytes * p->handle;
}

static rill_status step(rill_request *r) {
    state *s = r->state.data;
    int size = r->task.engine->size, from_root = (r->task.engine->rank - r->root + size) % size;
    if (!s->distance) {
        s->distance =
            1; /* the lowest bit set is the distance to the parent; the root's is over all */
        while (s->distance < size && !(from_root & s->distance))
            s->distance *= 2;
        if (!from_root) {
            RILL_TRY(rill__encode(&r->task, &r->input, &s->block));
            s->have = true;
            if (rill__request_is_lossy(r)) { /* the root ends with what the others get */
                rill__part part = rill__own_part(r, s->block);
                if (!rill__task_failed(&r->task))
                    RILL_TRY(rill__stream_set_part(r->out, r->fill, &part));
            }
        }
    }
    if (!s->have) {
        int parent = (from_root - s->distance + r->root) % size;
        rill_status status = rill__receive(&r->task, parent, RILL__LANE_A, &s->message, &s->block,
                                           NULL);
        if (status != RILL_OK) return status;
        r->task.rounds++;
        s->have = true;
    }
    rill_status sent = rill__fan_out(r, r->root, from_root, &s->distance, RILL__LANE_A, s->block);
    if (sent != RILL_OK) return sent;
    if (!from_root || rill__task_failed(&r->task)) return RILL_OK;
    memcpy(r->fill, &s->message.header.fill, sizeof r->fill);
    rill__part part = rill__received_part(&r->task, &s->message);
    if (rill__task_failed(&r->task)) return RILL_OK;
    return rill__stream_set_part(r->out, r->fill, &part);
}

static const rill__algorithm bcast_tree = {
    .name = "tree",
    .description = "down a binomial tree, encoded once",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};

const rill__algorithm *const rill__bcast_table[] = {&bcast_tree, NULL};
