/* RILL_TEST_LINK=ucx: communicators of programs under mpirun are over UCX, with MPI for the
 * bootstrap and as the oracle, so that what holds over MPI is shown over UCX too. */
#ifndef RILL_TESTS_TEST_LINK_H
#define RILL_TESTS_TEST_LINK_H

#include "rill/rill.h"

#include <stdlib.h>
#include <string.h>

static inline int test_link_is_ucx(void) {
    const char *name = getenv("RILL_TEST_LINK");
    return name && strcmp(name, "ucx") == 0;
}

static inline int test_link_allgather(const void *mine, size_t bytes, void *all, void *comm) {
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                         *(MPI_Comm *)comm) != MPI_SUCCESS;
}

static inline rill_status test_link_create(MPI_Comm comm, const rill_config *config,
                                           rill_comm **out) {
    if (!test_link_is_ucx() || comm == MPI_COMM_NULL) return rill_comm_create(comm, config, out);
    rill_bootstrap bootstrap = RILL_BOOTSTRAP_INIT;
    MPI_Comm_rank(comm, &bootstrap.rank);
    MPI_Comm_size(comm, &bootstrap.ranks);
    bootstrap.allgather = test_link_allgather;
    bootstrap.context = &comm;
    return rill_comm_create_ucx(&bootstrap, config, out);
}
#define rill_comm_create test_link_create

#endif
