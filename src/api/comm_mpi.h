/* Settings from MPI_Info. */
#ifndef RILL_API_COMM_MPI_H
#define RILL_API_COMM_MPI_H

#include "api/comm.h"
#include "link/link_mpi.h"

/* The configuration's, then the communicator's own. */
typedef struct rill__infos {
    MPI_Info at[2];
} rill__infos;

/* As rill__info wants it; the context is a rill__infos. */
rill_status rill__infos_look_up(const void *context, const char *name, char *value, size_t length,
                                bool *found);

#endif
