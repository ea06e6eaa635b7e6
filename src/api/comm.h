/* The communicator: engine, settings, planner, and requests kept for the next call. */
#ifndef RILL_API_COMM_H
#define RILL_API_COMM_H

#include "core/clock.h"
#include "core/settings.h"
#include "plan/plan.h"

_Static_assert(sizeof((rill__defaults){0}.hosts_of) == RILL__HOSTS_TEXT, "one length of the text");

struct rill_comm {
    rill__engine engine; /* first */
    rill__defaults defaults;
    rill__planner planner;
    MPI_Op min, max, half[2][4]; /* half: f16 and bf16 by kind */
    bool has_ops;                /* they are set, if only to MPI_OP_NULL */
    rill__clock clock;
    rill_stats last; /* of the last blocking call, but for the time */
    uint64_t last_elapsed;
    rill_request *idle; /* complete requests with their memory */
    int requests;       /* that the user holds */
    uint64_t reducers;  /* created so far */
};

/* settings.c: merges info and environment on rank 0, agrees on them. Collective. */
rill_status rill__defaults_agree(const rill_config *, MPI_Comm user, MPI_Comm dup,
                                 rill__defaults *);
/* The same of one process alone, with MPI_Info or whatever else there is as sources. */
rill_status rill__defaults_gather(const rill_config *, const rill__setting_source *, int n,
                                  rill__defaults *);
/* Resolves the options of a call; an unknown name is an error that says so. */
rill_status rill__settings_resolve(const rill_comm *, rill_collective, const rill_options *,
                                   rill__settings *);
/* What was resolved, as options: two calls that mean the same have the same. */
rill_options rill__settings_options(const rill__settings *);

/* comm_profile.c: the constants of the planner, from a profile or the network. Collective. */
rill_status rill__comm_profile(rill_comm *, double crowding);

/* mpi_op.c: local. Free takes what a failed create left. */
rill_status rill__mpi_ops_create(rill_comm *);
void rill__mpi_ops_free(rill_comm *);

#endif
