/* The reduce_scatter algorithms, and their common ending. */
#include "coll/reduce_scatter/reduce_scatter.h"

const rill__algorithm *const rill__reduce_scatter_table[] = {
    &rill__reduce_scatter_split,
    &rill__reduce_scatter_ring,
    NULL,
};

rill_status rill__finish_range(rill_request *r, const rill__split *split, const rill__part *part) {
    if (rill__task_failed(&r->task)) return RILL_OK;
    uint64_t end = part->first + part->range, dim = r->task.expect.dim;
    rill__part parts[3] = {rill__part_empty(0, part->first), *part,
                           rill__part_empty(end, dim - end)};
    if (r->first) *r->first = rill__split_first(split, r->task.engine->rank);
    if (r->count) *r->count = rill__split_range(split, r->task.engine->rank);
    return rill__finish_parts(r, 3, parts);
}
