/* The communicator: engine, settings, planner, and requests kept for the next call. */
#ifndef RILL_API_COMM_H
#define RILL_API_COMM_H

#include "core/settings.h"
#include "link/clock.h"
#include "plan/plan.h"
#include "req/request.h"

_Static_assert(sizeof((rill__defaults){0}.hosts_of) == RILL__HOSTS_TEXT, "one length of the text");

struct rill_comm {
    rill__engine engine; /* first */
    rill__defaults defaults;
    rill__planner planner;
    rill__clock clock;
    rill_stats last; /* of the last blocking call, but for the time */
    uint64_t last_elapsed;
    rill_request *idle; /* complete requests with their memory */
    int requests;       /* that the user holds */
    uint64_t reducers;  /* created so far */
};

/* comm.c: a communicator over any link, which is its own from then on; a failure closes it. Collective. */
rill_status rill__comm_open(rill__link *, const rill_config *or_null, const rill__info *or_null_too,
                            rill_comm **out);

/* settings.c: merges info (may be NULL) and environment on rank 0, agrees on them. Collective. */
rill_status rill__defaults_agree(const rill_config *, rill__link *, const rill__info *,
                                 rill__defaults *);
rill_status rill__config_check(const rill_config *or_null);
/* Resolves the options of a call; an unknown name is an error that says so. */
rill_status rill__settings_resolve(const rill_comm *, rill_collective, const rill_options *,
                                   rill__settings *);
/* What was resolved, as options: two calls that mean the same have the same. */
rill_options rill__settings_options(const rill__settings *);

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
