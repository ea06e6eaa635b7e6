/* Communicators over MPI: rill_comm_create. */
#include "api/comm_mpi.h"

#include <stdio.h>

/* MPI would end the program at the first call. */
static rill_status check_mpi(MPI_Comm user) {
    int up = 0, down = 0, inter = 0;
    MPI_Initialized(&up);
    if (!up) return rill__fail(RILL_ERR_STATE, "rill_comm_create: MPI is not initialised");
    MPI_Finalized(&down);
    if (down) return rill__fail(RILL_ERR_STATE, "rill_comm_create: MPI has been finalised");
    if (user == MPI_COMM_NULL)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_create: the communicator is MPI_COMM_NULL");
    MPI_Comm_test_inter(user, &inter);
    if (inter)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_create: this is an intercommunicator: "
                                             "MPI_Intercomm_merge makes one communicator of it");
    return RILL_OK;
}

/* ---- settings from MPI_Info ------------------------------------------------------------------ */

static rill_status from_info(MPI_Info info, const char *name, char *value, size_t length,
                             bool *found) {
    char key[64];
    int there = 0, bytes = 0;
    if (info == MPI_INFO_NULL || info == (MPI_Info)0) return RILL_OK; /* 0: a config of zeros */
    snprintf(key, sizeof key, "rill_%s", name);
    if (MPI_Info_get_valuelen(info, key, &bytes, &there) != MPI_SUCCESS || !there) return RILL_OK;
    if ((size_t)bytes >= length) return rill__setting_too_long(name, length);
    *found = MPI_Info_get(info, key, (int)length - 1, value, &there) == MPI_SUCCESS && there;
    return RILL_OK;
}

rill_status rill__infos_look_up(const void *context, const char *name, char *value, size_t length,
                                bool *found) {
    const rill__infos *all = context;
    for (int i = 0; i < 2 && !*found; i++)
        RILL_TRY(from_info(all->at[i], name, value, length, found));
    return RILL_OK;
}

rill_status rill_comm_create(MPI_Comm user, const rill_config *config, rill_comm **out) {
    if (out) *out = NULL;
    RILL_TRY(check_mpi(user));
    rill__link *link;
    RILL_TRY(rill__link_mpi_open(user, &link));
    rill__infos all = {{MPI_INFO_NULL, MPI_INFO_NULL}};
    if (link->rank == 0) {
        const void *given = config ? config->info : NULL;
        /* Programs of the time when it was the handle itself have that of none. */
        if (given && given != (const void *)(uintptr_t)MPI_INFO_NULL)
            all.at[0] = *(const MPI_Info *)given;
        if (MPI_Comm_get_info(user, &all.at[1]) != MPI_SUCCESS) all.at[1] = MPI_INFO_NULL;
    }
    rill_status status = rill__comm_open(link, config, &(rill__info){rill__infos_look_up, &all},
                                         out);
    if (all.at[1] != MPI_INFO_NULL) MPI_Info_free(&all.at[1]);
    return status;
}
