#include "coll/patterns/split.h"
#include "coll/allreduce/allreduce.h"
#include "coll/patterns/quantiles.h"
#include "stream/blocks.h"

#include <math.h>

enum { START, AGREEING, BOUNDS_KNOWN, RECEIVING, DONE };

double rill__owner_share(const rill__problem *p) {
    return p->partition == RILL__BALANCED ? 1.0 : fmax(1.0, p->skew);
}

double rill__split_estimate(const rill__problem *p) {
    double agree = 0, most = fmax(p->nnz_max, p->nnz * rill__owner_share(p));
    if (p->partition == RILL__BALANCED)
        for (int reach = 1; reach < p->ranks; reach *= 2)
            agree += p->c->latency + 8 * p->ranks * p->c->byte;
    bool dense = p->index_cost < 0 && p->nnz_max > (double)rill__dense_switch(p->type, p->dim);
    double all = dense ? rill__input_bytes(p, p->nnz_max, (double)p->dim)
                       : rill__pairs_bytes(p, most, (double)p->dim);
    double sent = all * (p->ranks - 1) / p->ranks;
    return agree + p->c->latency + (p->ranks - 2) * p->c->message + sent * (p->c->byte + p->handle);
}

/* bounds[1..P-1] = this rank's quantiles, in units; ranks without entries or with dense ones keep
 * their uniform bounds. */
static void own_quantiles(const rill_request *request, int size, uint64_t *bounds) {
    const rill__part *in = &request->input;
    if (in->form == RILL__DENSE || !in->n) return;
    bool blocks = in->form == RILL__BLOCKS;
    uint64_t n = blocks ? rill__blocks_in(in->n, in->block) : in->n;
    unsigned width = blocks ? 8 : request->task.shape.index_bytes;
    if (request->spread && !blocks &&
        request->spread->at[RILL__SPREAD] == request->task.expect.dim) {
        rill__mixed_quantiles(in, width, request->spread, size, bounds);
        return;
    }
    for (int i = 1; i < size; i++)
        bounds[i] = rill__index_at(width, in->idx, rill__uniform_bound(n, i, size));
}

static void scale_bounds(rill__split *s, int size, uint64_t dim) {
    for (int i = 1; s->unit && i < size; i++)
        s->bounds[i] = s->bounds[i] > dim / s->unit ? dim : s->bounds[i] * s->unit;
    s->bounds[size] = dim;
}

rill_status rill__split_bounds(rill_request *request, rill__split *s) {
    s->group = rill__group_or_all(&s->group, request->task.engine);
    int size = s->group.n;
    uint64_t dim = request->task.expect.dim;
    if (s->stage == START) {
        s->bounds = rill__request_alloc(request, (size_t)size + 1, sizeof *s->bounds);
        if (!s->bounds) return RILL_ERR_MEMORY;
        s->stage = BOUNDS_KNOWN;
        uint64_t units = s->unit ? rill__blocks_in(dim, s->unit) : dim;
        for (int i = 0; i <= size; i++)
            s->bounds[i] = rill__uniform_bound(units, i, size);
        if (request->problem.partition == RILL__BALANCED) {
            own_quantiles(request, size, s->bounds);
            /* Sums of bounds near 2^64 would overflow: average before adding. The remainders that
             * this drops move a bound by less than P. */
            for (int i = 1; i < size; i++)
                s->bounds[i] /= (uint64_t)size;
            rill__agree_start(&s->agree, 0, s->bounds + 1, (uint64_t)size - 1);
            s->agree.group = s->group;
            s->stage = AGREEING;
        } else {
            scale_bounds(s, size, dim);
        }
    }
    if (s->stage == AGREEING) {
        rill_status status = rill__agree_step(&request->task, &s->agree);
        if (status != RILL_OK) return status;
        scale_bounds(s, size, dim);
        s->stage = BOUNDS_KNOWN;
    }
    return RILL_OK;
}

rill_status rill__split_send(rill_request *request, const rill__group *group,
                             const uint64_t *bounds, int *sent, int received) {
    while (*sent < group->n - 1 && *sent < received + RILL__SPLIT_WINDOW) {
        int to = (group->me + ++*sent) % group->n;
        rill__part slice = rill__part_slice(request->task.shape, &request->input, bounds[to],
                                            bounds[to + 1] - bounds[to]);
        RILL_TRY(rill__send(&request->task, rill__group_rank(group, to), RILL__LANE_A, &slice));
    }
    return RILL_OK;
}

rill_status rill__split_step(rill_request *request, rill__split *s) {
    if (s->stage < BOUNDS_KNOWN) {
        rill_status status = rill__split_bounds(request, s);
        if (status != RILL_OK) return status;
    }
    int me = s->group.me, size = s->group.n;
    uint64_t first = rill__split_first(s, me), range = rill__split_range(s, me);
    if (s->stage == BOUNDS_KNOWN) {
        s->parts = rill__request_alloc(request, (size_t)size, sizeof *s->parts);
        if (!s->parts) return RILL_ERR_MEMORY;
        for (int i = 0; i < size; i++)
            s->parts[i] = rill__part_empty(first, range);
        RILL_TRY(rill__split_send(request, &s->group, s->bounds, &s->sent, s->received));
        s->parts[me] = rill__part_slice(request->task.shape, &request->input, first, range);
        request->task.rounds++;
        s->stage = RECEIVING;
    }
    while (s->received < size - 1) {
        rill__message message;
        rill__block *block;
        int from;
        rill_status status = rill__receive(&request->task, RILL__ANY, RILL__LANE_A, &message,
                                           &block, &from);
        if (status != RILL_OK) return status;
        s->received++;
        RILL_TRY(rill__split_send(request, &s->group, s->bounds, &s->sent, s->received));
        if (message.header.form == RILL__M_FAILED) continue;
        /* An agreement on the bounds has brought everybody's statistics already. */
        if (request->problem.partition != RILL__BALANCED) rill__add_nnz(request, &message.header);
        int place = rill__group_place(&s->group, from);
        rill__part part = rill__received_part(&request->task, &message);
        if (place >= 0 && part.first == first && part.range == range) {
            s->parts[place] = part;
        } else {
            rill__task_fail(&request->task,
                            rill__fail(RILL_ERR_MESSAGE,
                                       "rank %d sent another range than this rank's", from));
        }
    }
    s->stage = DONE;
    return RILL_OK;
}
