/* How communicators are made. */
#ifndef RILL_API_COMM_H
#define RILL_API_COMM_H

#include "call/comm.h"

/* comm.c: a communicator over any link, which is its own from then on; a failure closes it.
 * Collective. */
rill_status rill__comm_open(rill__link *, const rill_config *or_null, const rill__info *or_null_too,
                            rill_comm **out);

/* settings.c: merges info (may be NULL) and environment on rank 0, agrees on them. Collective. */
rill_status rill__defaults_agree(const rill_config *, rill__link *, const rill__info *,
                                 rill__defaults *);
rill_status rill__config_check(const rill_config *or_null);

static inline double rill__comm_clock(const rill_comm *comm) {
    return comm->engine.table->clock(comm->engine.link);
}
/* What rank 0 has becomes everybody's. Collective. */
static inline rill_status rill__comm_spread(const rill_comm *comm, void *data, size_t bytes) {
    return comm->engine.table->bcast(comm->engine.link, data, bytes, 0);
}

/* comm_profile.c: the constants of the planner, from a profile or the network. Collective. */
rill_status rill__comm_profile(rill_comm *, double crowding);

#endif
