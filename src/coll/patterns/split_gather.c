#include "coll/patterns/split_gather.h"
#include "coll/cost.h"

/* Of the constant bits, for an index of the range: as measured with sums beyond the caches. */
#define PACK 0.3
#define UNPACK 0.2 /* beyond a copy of dense values */

/* Seconds to pack an owner's sum to bits and values, and to unpack all. */
static double packing_estimate(const rill__problem *p) {
    return (double)p->dim * p->c->bits * (PACK / p->ranks + UNPACK);
}

/* Whether dense sums of owners go as bits and values. Within a host that took 1.2 times as long:
 * memory is as fast there as what a message goes through. */
static bool packs(const rill__problem *p) {
    if (p->hosts < 2) return false;
    double dim = (double)p->dim, limit = (double)rill__dense_switch(p->type, p->dim);
    bool bits = !p->value_bits && p->index_cost < 0 &&
                rill__wire_adds_bits(p->type, p->op, p->sums_bits);
    if (rill__wire_form_of(p->result, dim, limit, bits) != RILL__WIRE_BITS) return false;
    double saved = (dim - p->result) * p->value_cost - dim / 8;
    return saved * (1 - 1.0 / p->ranks) * p->c->byte > packing_estimate(p);
}

double rill__owned_bytes(const rill__problem *p, bool dense) {
    double range = (double)p->dim / p->ranks, pairs = p->result / p->ranks;
    double bytes = packs(p) ? pairs * p->value_cost + range / 8
                   : dense  ? range * p->value_cost
                            : rill__form_bytes(p, pairs, range);
    return bytes + RILL__SHORT_BYTES;
}

double rill__owners_gather_estimate(const rill__problem *p, bool dense) {
    double bytes = rill__owned_bytes(p, dense);
    return rill__gather_estimate(p, rill__gather_choose(p, bytes), bytes) +
           (p->ranks + 1) * bytes * p->transcode + (packs(p) ? packing_estimate(p) : 0);
}

rill_status rill__split_sum_step(rill__run *run, rill__split *split, bool dense) {
    rill_status status = rill__split_step(run, split);
    if (status != RILL_OK) return status;
    int me = split->group.me;
    rill__run_sum(run, rill__split_first(split, me), rill__split_range(split, me), split->group.n,
                  split->parts, dense, &run->piece[0]);
    return RILL_OK;
}

/* How uneven the ranges are, for the planner: all ranks see the same messages. Of balanced ranges
 * it says nothing. */
static double largest_share(const rill__run *run, int size, const rill__part *parts) {
    uint64_t most = 0, all = 0;
    if (run->problem->partition == RILL__BALANCED) return 0;
    for (int i = 0; i < size; i++) {
        most = rill__max_u64(most, parts[i].n);
        all += parts[i].n;
    }
    return all ? (double)most * size / (double)all : 0;
}

void rill__split_gather_begin(rill__run *run, rill__split_gather *s, const rill__problem *p,
                              bool dense) {
    s->kind = rill__gather_choose(p, rill__owned_bytes(p, dense));
    s->dense = dense;
    s->sums = run->coding;
    s->sums.packs_dense = packs(p);
    if (dense && !run->problem->all_values && rill__run_is_lossy(run)) {
        s->exact = run->coding;
        s->exact.value = &rill__value_raw;
        s->split.coding = &s->exact;
    }
    s->begun = true;
}

/* Of halves, where the agreement on bounds has not brought everybody's statistics: the message of
 * an owner's sum speaks for the owner. */
static void count(rill__run *run, const rill__split_gather *s) {
    if (!s->by_halves || run->problem->partition == RILL__BALANCED || rill__run_failed(run)) return;
    for (int i = 0; i < run->size; i++)
        if (i != run->rank) rill__run_count(run, &s->gather.messages[i].header);
}

rill_status rill__split_gather_step(rill__run *run, rill__split_gather *s) {
    if (!s->gathering) {
        rill_status status = s->by_halves ? rill__halves_sum_step(run, &s->halves, &s->split)
                                          : rill__split_sum_step(run, &s->split, s->dense);
        if (status != RILL_OK) return status;
        rill__parcel *mine;
        RILL_TRY(rill__run_encode(run, &s->sums, &run->piece[0].part, &mine));
        RILL_TRY(rill__gather_start_among(run, &s->gather, &s->split.group, s->kind, mine));
        s->gathering = true;
    }
    rill_status status = rill__gather_step(run, &s->gather);
    if (status != RILL_OK) return status;
    int size = s->split.group.n;
    rill__part *parts = rill__run_alloc(run, (size_t)size, sizeof *parts);
    if (!parts) return RILL_ERR_MEMORY;
    rill__gather_parts(run, &s->gather, parts);
    count(run, s);
    run->skew = largest_share(run, size, parts);
    return rill__finish_parts(run, size, parts);
}
