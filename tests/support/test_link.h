/* RILL_TEST_LINK=ucx: communicators of programs under mpirun are over UCX, with MPI for the
 * bootstrap and as the oracle, so that what holds over MPI is shown over UCX too. Where the library
 * was built without MPI they always are, and ranks are plain processes (plain_mpi.h). */
#ifndef RILL_TESTS_TEST_LINK_H
#define RILL_TESTS_TEST_LINK_H

#include "rill/rill.h"
#ifdef RILL_NO_MPI
#include "plain_mpi.h"
#endif

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static inline int test_link_is_ucx(void) {
#ifdef RILL_NO_MPI
    return 1;
#endif
    const char *name = getenv("RILL_TEST_LINK");
    return name && strcmp(name, "ucx") == 0;
}

static inline int test_link_allgather(const void *mine, size_t bytes, void *all, void *comm) {
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                         *(MPI_Comm *)comm) != MPI_SUCCESS;
}

/* There is no MPI_Info over UCX: its settings become rank 0's environment for as long. */
static inline void test_link_settings(const rill_config *config, int on) {
    if (!config || !config->info) return;
    MPI_Info info = *(const MPI_Info *)config->info;
    int keys = 0;
    if (info == MPI_INFO_NULL) return;
    MPI_Info_get_nkeys(info, &keys);
    for (int i = 0; i < keys; i++) {
        char key[MPI_MAX_INFO_KEY + 1], value[1024];
        int there = 0;
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get(info, key, (int)sizeof value - 1, value, &there);
        for (char *c = key; *c; c++)
            *c = (char)toupper((unsigned char)*c);
        if (on) setenv(key, value, 1);
        else unsetenv(key);
    }
}

static inline rill_status test_link_create(MPI_Comm comm, const rill_config *config,
                                           rill_comm **out) {
#ifndef RILL_NO_MPI
    if (!test_link_is_ucx() || comm == MPI_COMM_NULL) return rill_comm_create(comm, config, out);
#endif
    rill_bootstrap bootstrap = RILL_BOOTSTRAP_INIT;
    MPI_Comm_rank(comm, &bootstrap.rank);
    MPI_Comm_size(comm, &bootstrap.ranks);
    bootstrap.allgather = test_link_allgather;
    bootstrap.context = &comm;
    test_link_settings(config, 1);
    rill_status status = rill_comm_create_ucx(&bootstrap, config, out);
    test_link_settings(config, 0);
    return status;
}
#define rill_comm_create test_link_create

#endif
