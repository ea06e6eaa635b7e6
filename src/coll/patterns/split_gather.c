#include "coll/patterns/split_gather.h"

rill_status rill__split_sum_step(rill_request *r, rill__split *split, bool dense) {
    rill_status status = rill__split_step(r, split);
    if (status != RILL_OK) return status;
    int me = split->group.me;
    rill__request_sum(r, rill__split_first(split, me), rill__split_range(split, me), split->group.n,
                      split->parts, dense, &r->piece[0]);
    return RILL_OK;
}

/* How uneven the ranges are, for the planner: all ranks see the same messages. Of balanced ranges it
 * says nothing. */
static double largest_share(const rill_request *r, int size, const rill__part *parts) {
    uint64_t most = 0, all = 0;
    if (r->problem.partition == RILL__BALANCED) return 0;
    for (int i = 0; i < size; i++) {
        most = rill__max_u64(most, parts[i].n);
        all += parts[i].n;
    }
    return all ? (double)most * size / (double)all : 0;
}

rill_status rill__split_gather_step(rill_request *r, rill__split_gather *s, bool dense,
                                    double owned_bytes) {
    if (!s->gathering) {
        const rill__value_codec *coded = r->task.coding.value;
        if (dense && !r->settings.all_values) r->task.coding.value = &rill__value_raw;
        rill_status status = rill__split_sum_step(r, &s->split, dense);
        r->task.coding.value = coded;
        if (status != RILL_OK) return status;
        rill__block *mine;
        RILL_TRY(rill__encode(&r->task, &r->piece[0].part, &mine));
        rill__problem among = r->problem;
        among.ranks = s->split.group.n;
        RILL_TRY(rill__gather_start_among(r, &s->gather, &s->split.group,
                                          rill__gather_choose(&among, owned_bytes), mine));
        s->gathering = true;
    }
    rill_status status = rill__gather_step(r, &s->gather);
    if (status != RILL_OK) return status;
    int size = s->split.group.n;
    rill__part *parts = rill__request_alloc(r, (size_t)size, sizeof *parts);
    if (!parts) return RILL_ERR_MEMORY;
    rill__gather_parts(r, &s->gather, parts);
    r->skew = largest_share(r, size, parts);
    return rill__finish_parts(r, size, parts);
}
