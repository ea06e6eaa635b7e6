#include "coll/patterns/split_gather.h"
#include "coll/cost.h"

double rill__owned_bytes(const rill__problem *p) {
    return rill__form_bytes(p, p->result / p->ranks, (double)p->dim / p->ranks) + RILL__SHORT_BYTES;
}

double rill__owners_gather_estimate(const rill__problem *p, double bytes) {
    return rill__gather_estimate(p, rill__gather_choose(p, bytes), bytes) +
           (p->ranks + 1) * bytes * p->transcode;
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

void rill__split_gather_begin(rill__run *run, rill__split_gather *s, bool dense,
                              double owned_bytes) {
    rill__problem among = *run->problem;
    among.ranks = rill__run_group(run, &s->split.group).n;
    s->kind = rill__gather_choose(&among, owned_bytes);
    s->dense = dense;
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
        RILL_TRY(rill__run_encode(run, &run->coding, &run->piece[0].part, &mine));
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
