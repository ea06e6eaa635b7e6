/* The link over MPI. Who includes this sees mpi.h. */
#ifndef RILL_LINK_LINK_MPI_H
#define RILL_LINK_LINK_MPI_H

#include "link/link.h"

#include <mpi.h>

/* Collective: dups the communicator, with MPI_ERRORS_RETURN on the dup. A failure is one on all
 * ranks. */
rill_status rill__link_mpi_open(MPI_Comm, rill__link **);
/* The dup. Only where link->has_mpi. */
MPI_Comm rill__link_mpi_comm(const rill__link *);

rill_status rill__mpi_error(int code, const char *call);

/* An MPI request as a wire, to be tested by the link. */
rill__wire rill__link_mpi_wire(MPI_Request);

#endif
