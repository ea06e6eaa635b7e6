/* An allreduce of MPI's own, as part of a call that must not block: posted in the order of calls,
 * in parts that MPI can count, and awaited. Before it all ranks must have agreed that they have
 * come to this call and that none has failed, for MPI can't carry a status. */
#ifndef RILL_COLL_PATTERNS_MPI_ALLREDUCE_H
#define RILL_COLL_PATTERNS_MPI_ALLREDUCE_H

#include "coll/run.h"
#include "link/link.h"

bool rill__mpi_is_built_in(void);

struct rill__mpi_sums;
/* Operations that MPI has not, or not as we promise them; engine.mpi_sums. Local. Free takes NULL,
 * too. */
rill_status rill__mpi_sums_create(struct rill__mpi_sums **);
void rill__mpi_sums_free(struct rill__mpi_sums *);

typedef struct rill__mpi_allreduce {
    bool words; /* 64-bit words by OR; else values: */
    rill_type type;
    rill__op_kind op; /* not RILL__USER */
    size_t size;      /* bytes of one element */
    const void *from;
    void *to;
    uint64_t count;
    bool last;  /* the call posts no other afterwards: those behind it may go on */
    bool lends; /* while MPI has the vectors nobody else may: an aborted call leaves them to it */
    rill__parcel *lent[2]; /* where they lie (rill__mpi_room); NULL: elsewhere */
    /* so far */
    uint64_t done, posted;
    rill__wire wire;
    bool waiting;
} rill__mpi_allreduce;

/* Memory for a vector, number i of 2, in a parcel that is lent to MPI; NULL: out of memory. */
void *rill__mpi_room(rill__run *, rill__mpi_allreduce *, int i, size_t bytes);
/* RILL_OK when the sum is there. The statistics then have what a ring moves: MPI does not tell. */
rill_status rill__mpi_allreduce_step(rill__run *, rill__mpi_allreduce *);
/* The call posts none after all: those behind it need not wait. */
void rill__mpi_allreduce_forgo(rill__run *);

#endif
