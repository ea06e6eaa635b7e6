#include "coll/patterns/split.h"
#include "coll/cost.h"
#include "coll/patterns/quantiles.h"

#include <math.h>

enum { START, AGREEING, BOUNDS_KNOWN, RECEIVING, DONE };

double rill__owner_share(const rill__problem *p) {
    return p->partition == RILL__BALANCED ? 1.0 : fmax(1.0, p->skew);
}

double rill__bounds_estimate(const rill__problem *p) {
    double agree = 0;
    if (p->partition == RILL__BALANCED)
        for (int reach = 1; reach < p->ranks; reach *= 2)
            agree += p->c->latency + 8 * p->ranks * p->c->byte;
    return agree;
}

double rill__split_estimate(const rill__problem *p) {
    double most = fmax(p->nnz_max, p->nnz * rill__owner_share(p));
    bool dense = p->index_cost < 0 && p->nnz_max > (double)rill__dense_switch(p->type, p->dim);
    double all = dense ? rill__input_bytes(p, p->nnz_max, (double)p->dim)
                       : rill__pairs_bytes(p, most, (double)p->dim);
    double sent = all * (p->ranks - 1) / p->ranks;
    return rill__bounds_estimate(p) + p->c->latency + (p->ranks - 2) * p->c->message +
           sent * (rill__byte_of_many(p) + p->transcode);
}

/* bounds[1..P-1] = this rank's quantiles, in units; ranks without entries or with dense ones keep
 * their uniform bounds. */
static void own_quantiles(const rill__run *run, const rill__part *in, int size, uint64_t *bounds) {
    if (in->form == RILL__DENSE || !in->n) return;
    bool blocks = in->form == RILL__BLOCKS;
    uint64_t n = blocks ? rill__blocks_in(in->n, in->block) : in->n;
    if (run->spread && !blocks && run->spread->at[RILL__SPREAD] == run->dim) {
        rill__mixed_quantiles(in, run->shape.index_bytes, run->spread, size, bounds);
        return;
    }
    for (int i = 1; i < size; i++)
        bounds[i] = rill__part_index(run->shape, in, rill__uniform_bound(n, i, size));
}

static void scale_bounds(rill__split *s, int size, uint64_t dim) {
    for (int i = 1; s->unit && i < size; i++)
        s->bounds[i] = s->bounds[i] > dim / s->unit ? dim : s->bounds[i] * s->unit;
    s->bounds[size] = dim;
}

rill_status rill__split_bounds(rill__run *run, rill__split *s) {
    s->group = rill__run_group(run, &s->group);
    int size = s->group.n;
    uint64_t dim = run->dim;
    if (s->stage == START) {
        if (!s->input) s->input = run->input;
        if (!s->coding) s->coding = &run->coding;
        s->bounds = rill__run_alloc(run, (size_t)size + 1, sizeof *s->bounds);
        if (!s->bounds) return RILL_ERR_MEMORY;
        s->stage = BOUNDS_KNOWN;
        uint64_t units = s->unit ? rill__blocks_in(dim, s->unit) : dim;
        for (int i = 0; i <= size; i++)
            s->bounds[i] = rill__uniform_bound(units, i, size);
        if (run->problem->partition == RILL__BALANCED) {
            own_quantiles(run, s->input, size, s->bounds);
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
        rill_status status = rill__run_agree(run, &s->agree);
        if (status != RILL_OK) return status;
        scale_bounds(s, size, dim);
        s->stage = BOUNDS_KNOWN;
    }
    return RILL_OK;
}

rill_status rill__split_send(rill__run *run, const rill__collect *c, const rill__coding *coding,
                             const rill__part *part, const uint64_t *bounds, int *sent) {
    const rill__group *group = &c->group;
    while (*sent < group->n - 1 && *sent < c->received + RILL__SPLIT_WINDOW) {
        int to = (group->me + ++*sent) % group->n;
        rill__part slice = rill__part_slice(run->shape, part, bounds[to],
                                            bounds[to + 1] - bounds[to]);
        RILL_TRY(rill__run_send(run, rill__group_rank(group, to), RILL__LANE_A, coding, &slice));
    }
    return RILL_OK;
}

static rill_status start_exchange(rill__run *run, rill__split *s, uint64_t first, uint64_t range) {
    s->parts = rill__run_alloc(run, (size_t)s->group.n, sizeof *s->parts);
    if (!s->parts) return RILL_ERR_MEMORY;
    for (int i = 0; i < s->group.n; i++)
        s->parts[i] = rill__part_empty(first, range);
    s->parts[s->group.me] = rill__part_slice(run->shape, s->input, first, range);
    RILL_TRY(rill__collect_start(run, &s->collect, &s->group, RILL__LANE_A));
    rill__run_round(run);
    return RILL_OK;
}

/* The entries for this rank's range. */
static void take(rill__run *run, rill__split *s, const rill__received *received) {
    rill__part *own = &s->parts[s->group.me];
    if (rill__received_nothing(received)) return;
    /* An agreement on the bounds has brought everybody's statistics already. */
    if (run->problem->partition != RILL__BALANCED) {
        const rill__header *h = &received->message.header;
        s->heard.nnz_sum += h->nnz_sum;
        s->heard.nnz_max = rill__most_of(s->heard.nnz_max, h->nnz_max);
    }
    rill__part part = rill__run_part(run, &received->message);
    if (part.first == own->first && part.range == own->range) s->parts[received->place] = part;
    else
        rill__run_fail(run,
                       rill__fail(RILL_ERR_MESSAGE, "rank %d sent another range than this rank's",
                                  received->from));
}

rill_status rill__split_step(rill__run *run, rill__split *s) {
    rill_status status;
    if (s->stage < BOUNDS_KNOWN) {
        status = rill__split_bounds(run, s);
        if (status != RILL_OK) return status;
    }
    if (s->stage == BOUNDS_KNOWN) {
        int me = s->group.me;
        RILL_TRY(start_exchange(run, s, rill__split_first(s, me), rill__split_range(s, me)));
        s->stage = RECEIVING;
    }
    while (s->stage == RECEIVING) {
        rill__received received;
        RILL_TRY(rill__split_send(run, &s->collect, s->coding, s->input, s->bounds, &s->sent));
        status = rill__collect_next(run, &s->collect, &received);
        if (status != RILL_OK) return status;
        if (received.place >= 0) take(run, s, &received);
        else s->stage = DONE;
    }
    rill__run_count(run, &s->heard);
    return RILL_OK;
}
