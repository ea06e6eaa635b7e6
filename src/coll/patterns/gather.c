#include "coll/patterns/gather.h"
#include "coll/cost.h"

#include <string.h>

static int rounds_of(int ranks) {
    int rounds = 0;
    while ((1 << rounds) < ranks)
        rounds++;
    return rounds;
}

double rill__gather_estimate(const rill__problem *p, rill__gather_kind kind, double bytes) {
    double all = bytes * (p->ranks - 1);
    int rounds = rounds_of(p->ranks);
    switch (kind) {
    case RILL__BRUCK:
        /* All but the first message of each rank are copied into bundles once. */
        return rounds * p->c->latency + all * rill__byte_of_rounds(p, rounds) +
               (all - bytes) * p->c->copy;
    case RILL__RING: return (p->ranks - 1) * p->c->latency + all * p->c->byte;
    default: return p->c->latency + (p->ranks - 2) * p->c->message + all * rill__byte_of_many(p);
    }
}

rill__gather_kind rill__gather_choose(const rill__problem *p, double bytes) {
    return rill__gather_estimate(p, RILL__BRUCK, bytes) <
                   rill__gather_estimate(p, RILL__DIRECT, bytes)
               ? RILL__BRUCK
               : RILL__DIRECT;
}

rill_status rill__gather_start_among(rill__run *run, rill__gather *g, const rill__group *group,
                                     rill__gather_kind kind, rill__parcel *mine) {
    *g = (rill__gather){.kind = kind, .group = rill__run_group(run, group), .mine = mine};
    int size = g->group.n, me = g->group.me;
    g->messages = rill__run_alloc(run, (size_t)size, sizeof *g->messages);
    g->parcels = rill__run_alloc(run, (size_t)size, sizeof *g->parcels);
    if (!g->messages || !g->parcels) return RILL_ERR_MEMORY;
    for (int i = 0; i < size; i++)
        g->messages[i].header.form = RILL__M_FAILED;
    RILL_TRY(rill__own_message(mine, &g->messages[me]));
    g->parcels[me] = mine;
    return RILL_OK;
}

rill_status rill__gather_start(rill__run *run, rill__gather *g, rill__gather_kind kind,
                               rill__parcel *mine) {
    return rill__gather_start_among(run, g, &(rill__group){0}, kind, mine);
}

static rill_status send_to(rill__run *run, const rill__gather *g, int place, rill__parcel *parcel) {
    return rill__run_send_parcel(run, rill__group_rank(&g->group, place), RILL__LANE_B, parcel);
}

static rill_status receive_from(rill__run *run, const rill__gather *g, int place,
                                rill__received *received) {
    return rill__run_receive(run, rill__group_rank(&g->group, place), RILL__LANE_B, received);
}

static rill_status step_direct(rill__run *run, rill__gather *g) {
    int size = g->group.n, me = g->group.me;
    if (!g->sent) {
        for (int i = 1; i < size; i++)
            RILL_TRY(send_to(run, g, (me + i) % size, g->mine));
        RILL_TRY(rill__collect_start(run, &g->collect, &g->group, RILL__LANE_B));
        g->sent = true;
        rill__run_round(run);
    }
    for (;;) {
        rill__received received;
        rill_status status = rill__collect_next(run, &g->collect, &received);
        if (status != RILL_OK || received.place < 0) return status;
        g->messages[received.place] = received.message;
    }
}

static rill_status step_ring(rill__run *run, rill__gather *g) {
    int size = g->group.n, rank = g->group.me;
    for (; g->round < size - 1; g->round++) {
        int sends = (rank - g->round + size) % size, comes = (sends - 1 + size) % size;
        if (!g->sent) {
            rill__parcel *parcel = g->parcels[sends];
            rill__part nothing = rill__part_empty(0, 0);
            if (rill__run_failed(run))
                RILL_TRY(rill__run_encode(run, &run->coding, &nothing, &parcel));
            RILL_TRY(send_to(run, g, (rank + 1) % size, parcel));
            rill__run_round(run);
            g->sent = true;
        }
        rill__received received;
        rill_status status = receive_from(run, g, (rank - 1 + size) % size, &received);
        if (status != RILL_OK) return status;
        g->messages[comes] = received.message;
        g->parcels[comes] = received.parcel;
        g->sent = false;
    }
    return RILL_OK;
}

/* ---- Bruck ----------------------------------------------------------------------------------- */

/* The messages of ranks rank, rank + 1, ... rank + n - 1 in one. A single one goes as it is; in a
 * failed request the failure goes instead. */
static rill_status bundle(rill__run *run, const rill__gather *g, int n, rill__parcel **out) {
    int size = g->group.n, rank = g->group.me;
    rill__part nothing = rill__part_empty(0, 0);
    if (rill__run_failed(run)) return rill__run_encode(run, &run->coding, &nothing, out);
    if (n == 1) {
        *out = g->mine;
        return RILL_OK;
    }
    const void **start = rill__run_alloc(run, (size_t)n, sizeof *start);
    for (int i = 0; start && i < n; i++)
        start[i] = rill__message_start(&g->messages[(rank + i) % size]);
    return start ? rill__run_bundle(run, n, start, out)
                 : rill__run_encode(run, &run->coding, &nothing, out);
}

static void unbundle(rill__run *run, rill__gather *g, const rill__message *received, int first,
                     int n) {
    int size = g->group.n;
    if (received->header.form == RILL__M_FAILED) return;
    if (n == 1 && received->header.form != RILL__M_BUNDLE) {
        g->messages[first % size] = *received;
        return;
    }
    size_t offset = 0;
    rill_status status = RILL_OK;
    if (received->header.form != RILL__M_BUNDLE || received->header.count != (uint64_t)n)
        status = rill__fail(RILL_ERR_MESSAGE, "malformed message: not a bundle of %d", n);
    for (int i = 0; i < n && status == RILL_OK; i++)
        status = rill__run_unbundle(run, received, &offset, &g->messages[(first + i) % size]);
    if (status != RILL_OK) rill__run_fail(run, status);
}

static rill_status step_bruck(rill__run *run, rill__gather *g) {
    int size = g->group.n, rank = g->group.me;
    for (; (1 << g->round) < size; g->round++) {
        int distance = 1 << g->round;
        int n = distance < size - distance ? distance : size - distance;
        if (!g->sent) {
            rill__parcel *parcel;
            RILL_TRY(bundle(run, g, n, &parcel));
            RILL_TRY(send_to(run, g, (rank - distance + size) % size, parcel));
            rill__run_round(run);
            g->sent = true;
        }
        rill__received received;
        rill_status status = receive_from(run, g, (rank + distance) % size, &received);
        if (status != RILL_OK) return status;
        unbundle(run, g, &received.message, rank + distance, n);
        g->sent = false;
    }
    return RILL_OK;
}

rill_status rill__gather_step(rill__run *run, rill__gather *g) {
    switch (g->kind) {
    case RILL__DIRECT: return step_direct(run, g);
    case RILL__RING: return step_ring(run, g);
    default: return step_bruck(run, g);
    }
}

void rill__gather_parts(rill__run *run, const rill__gather *g, rill__part *parts) {
    for (int i = 0; i < g->group.n; i++) {
        if (g->messages[i].header.form == RILL__M_FAILED) {
            rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE, "rank %d sent no data",
                                           rill__group_rank(&g->group, i)));
            parts[i] = rill__part_empty(0, 0);
        } else {
            parts[i] = rill__run_part(run, &g->messages[i]);
        }
    }
}
