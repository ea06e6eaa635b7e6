#include "coll/patterns/gather.h"
#include "coll/patterns/bundle.h"

#include <string.h>

static int rounds_of(int ranks) {
    int rounds = 0;
    while ((1 << rounds) < ranks)
        rounds++;
    return rounds;
}

double rill__gather_estimate(const rill__problem *p, rill__gather_kind kind, double bytes) {
    double all = bytes * (p->ranks - 1), wire = all * p->c->byte;
    switch (kind) {
    case RILL__BRUCK:
        /* All but the first message of each rank are copied into bundles once. */
        return rounds_of(p->ranks) * p->c->latency + wire + (all - bytes) * p->c->copy;
    case RILL__RING: return (p->ranks - 1) * p->c->latency + wire;
    default: return p->c->latency + (p->ranks - 2) * p->c->message + wire;
    }
}

rill__gather_kind rill__gather_choose(const rill__problem *p, double bytes) {
    return rill__gather_estimate(p, RILL__BRUCK, bytes) <
                   rill__gather_estimate(p, RILL__DIRECT, bytes)
               ? RILL__BRUCK
               : RILL__DIRECT;
}

rill_status rill__gather_start_among(rill_request *request, rill__gather *g,
                                     const rill__group *group, rill__gather_kind kind,
                                     rill__block *mine) {
    *g = (rill__gather){.kind = kind,
                        .group = rill__group_or_all(group, request->task.engine),
                        .mine = mine};
    int size = g->group.n, me = g->group.me;
    g->messages = rill__request_alloc(request, (size_t)size, sizeof *g->messages);
    g->blocks = rill__request_alloc(request, (size_t)size, sizeof *g->blocks);
    if (!g->messages || !g->blocks) return RILL_ERR_MEMORY;
    for (int i = 0; i < size; i++)
        g->messages[i].header.form = RILL__M_FAILED;
    RILL_TRY(
        rill__message_parse(rill__block_message(mine), mine->bytes, NULL, false, &g->messages[me]));
    g->blocks[me] = mine;
    return RILL_OK;
}

rill_status rill__gather_start(rill_request *request, rill__gather *g, rill__gather_kind kind,
                               rill__block *mine) {
    return rill__gather_start_among(request, g, &(rill__group){0}, kind, mine);
}

static rill_status send_to(rill_request *request, const rill__gather *g, int place,
                           rill__block *block) {
    return rill__send_block(&request->task, rill__group_rank(&g->group, place), RILL__LANE_B,
                            block);
}

static rill_status receive_from(rill_request *request, const rill__gather *g, int place,
                                rill__message *message, rill__block **block) {
    return rill__receive(&request->task, rill__group_rank(&g->group, place), RILL__LANE_B, message,
                         block, NULL);
}

static rill_status step_direct(rill_request *request, rill__gather *g) {
    int size = g->group.n, me = g->group.me;
    if (!g->sent) {
        for (int i = 1; i < size; i++)
            RILL_TRY(send_to(request, g, (me + i) % size, g->mine));
        g->sent = true;
        request->task.rounds++;
    }
    while (g->received < size - 1) {
        rill__message message;
        rill__block *block;
        int from;
        rill_status status = rill__receive(&request->task, RILL__ANY, RILL__LANE_B, &message,
                                           &block, &from);
        if (status != RILL_OK) return status;
        int place = rill__group_place(&g->group, from);
        if (place >= 0) g->messages[place] = message;
        g->received++;
    }
    return RILL_OK;
}

static rill_status step_ring(rill_request *request, rill__gather *g) {
    int size = g->group.n, rank = g->group.me;
    for (; g->round < size - 1; g->round++) {
        int sends = (rank - g->round + size) % size, comes = (sends - 1 + size) % size;
        if (!g->sent) {
            rill__block *block = g->blocks[sends];
            rill__part nothing = rill__part_empty(0, 0);
            if (rill__task_failed(&request->task))
                RILL_TRY(rill__encode(&request->task, &nothing, &block));
            RILL_TRY(send_to(request, g, (rank + 1) % size, block));
            request->task.rounds++;
            g->sent = true;
        }
        rill_status status = receive_from(request, g, (rank - 1 + size) % size, &g->messages[comes],
                                          &g->blocks[comes]);
        if (status != RILL_OK) return status;
        g->sent = false;
    }
    return RILL_OK;
}

/* ---- Bruck ------------------------------------------------------------------------------------------- */

/* The messages of ranks rank, rank + 1, ... rank + n - 1 in one. A single one goes as it is; in a
 * failed request the failure goes instead. */
static rill_status bundle(rill_request *request, const rill__gather *g, int n, rill__block **out) {
    int size = g->group.n, rank = g->group.me;
    rill__part nothing = rill__part_empty(0, 0);
    if (rill__task_failed(&request->task)) return rill__encode(&request->task, &nothing, out);
    if (n == 1) {
        *out = g->mine;
        return RILL_OK;
    }
    const void **start = rill__request_alloc(request, (size_t)n, sizeof *start);
    for (int i = 0; start && i < n; i++)
        start[i] = rill__message_start(&g->messages[(rank + i) % size]);
    return start ? rill__bundle(request, n, start, out)
                 : rill__encode(&request->task, &nothing, out);
}

static void unbundle(rill_request *request, rill__gather *g, const rill__message *received,
                     int first, int n) {
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
    for (int i = 0; i < n && status == RILL_OK; i++) {
        status = rill__message_next(received, &request->task.expect, &offset,
                                    &g->messages[(first + i) % size]);
        if (status == RILL_IN_PROGRESS)
            status = rill__fail(RILL_ERR_MESSAGE, "malformed message: a bundle is too short");
    }
    if (status != RILL_OK) rill__task_fail(&request->task, status);
}

static rill_status step_bruck(rill_request *request, rill__gather *g) {
    int size = g->group.n, rank = g->group.me;
    for (; (1 << g->round) < size; g->round++) {
        int distance = 1 << g->round;
        int n = distance < size - distance ? distance : size - distance;
        if (!g->sent) {
            rill__block *block;
            RILL_TRY(bundle(request, g, n, &block));
            RILL_TRY(send_to(request, g, (rank - distance + size) % size, block));
            request->task.rounds++;
            g->sent = true;
        }
        rill__message message;
        rill__block *block;
        rill_status status = receive_from(request, g, (rank + distance) % size, &message, &block);
        if (status != RILL_OK) return status;
        unbundle(request, g, &message, rank + distance, n);
        g->sent = false;
    }
    return RILL_OK;
}

rill_status rill__gather_step(rill_request *request, rill__gather *g) {
    switch (g->kind) {
    case RILL__DIRECT: return step_direct(request, g);
    case RILL__RING: return step_ring(request, g);
    default: return step_bruck(request, g);
    }
}

void rill__gather_parts(rill_request *request, const rill__gather *g, rill__part *parts) {
    for (int i = 0; i < g->group.n; i++) {
        if (g->messages[i].header.form == RILL__M_FAILED) {
            rill__task_fail(&request->task, rill__fail(RILL_ERR_MESSAGE, "rank %d sent no data",
                                                       rill__group_rank(&g->group, i)));
            parts[i] = rill__part_empty(0, 0);
        } else {
            parts[i] = rill__received_part(&request->task, &g->messages[i]);
        }
    }
}
