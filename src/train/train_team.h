/* The ranks that train together: how they agree, sum and fail, and what their exchanges have cost.
 * train_team.c.
 *
 * How a failure of one rank becomes everybody's, between the start of an epoch and its end. Who
 * fails leaves the call that it is in, refuses those that the others may be in or come to
 * (rill__team_refuse, rill__exchange_refuse), and goes to the next agreement: that is what stands
 * before every other use of mpi in between. All ranks meet there, since those whose call was
 * refused come, too; after one that failed nobody goes to another. */
#ifndef RILL_TRAIN_TRAIN_TEAM_H
#define RILL_TRAIN_TRAIN_TEAM_H

#include "train/data_internal.h"

typedef struct rill__team {
    rill_comm *talk; /* agreements, and what else is not summed */
    void *mpi;       /* the same as a pointer to an MPI_Comm, where they are MPI's; or NULL */
    int rank, ranks;
    rill_comm *comm;     /* of exact sums; NULL: not needed yet */
    bool told;           /* all ranks know that this call has failed */
    bool profiled;       /* ranks wait for each other before an exchange, to tell both apart */
    uint64_t sent_bytes; /* of this epoch and rank, as are the next */
    double exchange_seconds, wait_seconds;
    const char *algorithm; /* of the last exchange */
} rill__team;

rill_status rill__team_agree(rill__team *, rill_status mine);
/* The next calls on comm, so many, fail on the others. Does not wait. */
void rill__team_refuse(rill__team *, int calls);
/* Agrees on the status, then sums over the ranks. */
rill_status rill__team_sum(rill__team *, rill_status mine, double *values, int n);
/* comm, as if it were new: an epoch that follows a checkpoint is then planned as one that follows
 * another epoch. All ranks. */
rill_status rill__team_comm(rill__team *);
/* One more communicator of these ranks; over MPI with the settings of its own. */
rill_status rill__team_another(rill__team *, const rill_config *or_null, rill_comm **out);
/* Slices of a vector, whole: counts and offsets of all ranks. */
rill_status rill__team_gather(rill__team *, float *values, const int *counts, const int *offsets);
/* Before an exchange: waits for all ranks, if it is profiled; a failure of one ends it then. */
rill_status rill__team_meet(rill__team *);
/* Accounts for an exchange that began at that time. */
void rill__team_account(rill__team *, double began, const rill_stats *);

#endif
