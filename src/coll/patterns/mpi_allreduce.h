/* An allreduce of MPI's own, as part of a call that must not block: posted in the order of calls, in
 * parts that MPI can count, and awaited. Before it all ranks must have agreed that they have come to
 * this call and that none has failed, for MPI can't carry a status. */
#ifndef RILL_COLL_PATTERNS_MPI_ALLREDUCE_H
#define RILL_COLL_PATTERNS_MPI_ALLREDUCE_H

#include "coll/run.h"

typedef enum rill__mpi_sum {
    RILL__MPI_OP,  /* the call's type and op */
    RILL__MPI_F32, /* sums */
    RILL__MPI_F64,
    RILL__MPI_OR /* of 64-bit words */
} rill__mpi_sum;

typedef struct rill__mpi_allreduce {
    rill__mpi_sum what;
    const void *from;
    void *to;
    uint64_t count;
    bool last; /* the call posts no other afterwards: those behind it may go on */
    bool
        lends; /* while MPI has the vectors nobody else may: a call that is aborted leaves them to it */
    rill__block *lent[2]; /* where they lie (rill__mpi_room); NULL: elsewhere */
    /* so far */
    uint64_t done, posted;
    uint64_t request; /* an MPI_Request */
    bool waiting;
} rill__mpi_allreduce;

/* Whether MPI has the call's operation. */
bool rill__mpi_allreduce_serves(const rill__run *);
/* Memory for a vector, number i of 2, in a block that is lent to MPI; NULL: out of memory. */
void *rill__mpi_room(rill__run *, rill__mpi_allreduce *, int i, size_t bytes);
/* RILL_OK when the sum is there. The statistics then have what a ring moves: MPI does not tell. */
rill_status rill__mpi_allreduce_step(rill__run *, rill__mpi_allreduce *);
/* The call posts none after all: those behind it need not wait. */
void rill__mpi_allreduce_forgo(rill__run *);

#endif
