/* shared: the root puts its entries once where all ranks of the host can read them, and each copies
 * them from there.
 *
 * Source. Beyond the papers of the project; as the broadcasts of MPI libraries within a host.
 * Restriction. None. Ranks that share no memory with the root get a message each.
 * Memory. Of shared memory, the entries.
 * Cost.  latency + (P-2) message + bytes 3 copy, and for those without shared memory bytes byte */
#include "coll/bcast/bcast.h"
#include "coll/patterns/host_ranges.h"

#include <string.h>

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    rill__host_way w = rill__host_way_of(p, RILL__ALL_RANKS);
    double messages = w.byte != 0 ? p->ranks - 1 : 0, bytes = rill__host_bytes(p, p->nnz_max);
    return p->c->overhead + w.latency + (p->ranks - 2) * p->c->message +
           bytes * (3 * p->c->copy + messages * w.byte);
}

static rill_status step(rill__run *run) {
    if (run->rank == run->root)
        return rill__host_give(run, RILL__ALL_RANKS, 0, run->size, RILL__LANE_A, run->input);
    rill__host_part taken;
    rill__header header;
    rill_status status = rill__host_take(run, RILL__ALL_RANKS, run->root, RILL__LANE_A, 0, run->dim,
                                         &taken, &header);
    if (status != RILL_OK) return status;
    rill__run_round(run);
    rill__host_check(run, &taken);
    if (!rill__run_failed(run)) {
        memcpy(run->fill, &header.fill, sizeof run->fill);
        status = rill__finish_copy(run, &taken.part);
    }
    rill__host_release(run, &taken);
    return status;
}

const rill__algorithm rill__bcast_shared = {
    .name = "shared",
    .description = "the root's entries lie once in memory that the ranks of a host share",
    .supports = supports,
    .estimate = estimate,
    .step = step,
    .joins_hosts = true,
};
