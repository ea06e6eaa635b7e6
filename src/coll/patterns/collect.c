#include "coll/patterns/collect.h"

rill_status rill__collect_start(rill__run *run, rill__collect *c, const rill__group *group,
                                int lane) {
    *c = (rill__collect){.group = rill__run_group(run, group), .lane = lane};
    if (c->group.n <= 64) return RILL_OK;
    c->many = rill__run_alloc(run, ((size_t)c->group.n + 63) / 64, sizeof *c->many);
    return c->many ? RILL_OK : RILL_ERR_MEMORY;
}

static bool is_new(rill__collect *c, int place) {
    if (place < 0 || place >= c->group.n) return false;
    uint64_t *word = c->many ? &c->many[place / 64] : &c->few, bit = UINT64_C(1) << place % 64;
    bool seen = *word & bit;
    *word |= bit;
    return !seen && place != c->group.me;
}

rill_status rill__collect_next(rill__run *run, rill__collect *c, rill__received *r) {
    while (c->received < c->group.n - 1) {
        rill_status status = rill__run_receive(run, RILL__FROM_ANY, c->lane, r);
        if (status != RILL_OK) return status;
        c->received++;
        r->place = rill__group_place(&c->group, r->from);
        if (is_new(c, r->place)) return RILL_OK;
        rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE,
                                       "rank %d sent a message that nobody waits for", r->from));
    }
    r->place = -1;
    return RILL_OK;
}
