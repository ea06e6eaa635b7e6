/* MPI operations for the dense sum: those that MPI has not, or not as we promise them. */
#ifndef RILL_COLL_PATTERNS_MPI_OPS_H
#define RILL_COLL_PATTERNS_MPI_OPS_H

#include "stream/stream.h"

#include <mpi.h>

typedef struct rill__mpi_ops {
    MPI_Op min, max, half[2][4]; /* half: f16 and bf16 by kind */
    bool created;                /* they are set, if only to MPI_OP_NULL */
} rill__mpi_ops;

/* Local. Free takes what a failed create left. */
rill_status rill__mpi_ops_create(rill__mpi_ops *);
void rill__mpi_ops_free(rill__mpi_ops *);
/* MPI's type and operation; false: MPI has none. */
bool rill__mpi_op(const rill__mpi_ops *, rill_type, const rill_op *, MPI_Datatype *, MPI_Op *);

#endif
