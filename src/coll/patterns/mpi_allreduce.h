/* An allreduce of MPI's own, as part of a call that must not block: posted in the order of calls, in
 * parts that MPI can count, and awaited. Before it all ranks must have agreed that they have come to
 * this call and that none has failed, for MPI can't carry a status. */
#ifndef RILL_COLL_PATTERNS_MPI_ALLREDUCE_H
#define RILL_COLL_PATTERNS_MPI_ALLREDUCE_H

#include "coll/coll.h"

typedef struct rill__mpi_allreduce {
    MPI_Datatype type;
    MPI_Op op;
    size_t size; /* bytes of one element */
    const void *from;
    void *to;
    uint64_t count;
    bool last; /* the call posts no other afterwards: those behind it may go on */
    /* so far */
    uint64_t done, posted;
    MPI_Request mpi;
    bool waiting;
} rill__mpi_allreduce;

/* RILL_OK when the sum is there. The statistics then have what a ring moves: MPI does not tell. */
rill_status rill__mpi_allreduce_step(rill_request *, rill__mpi_allreduce *);

#endif
