#include "train/train_team.h"

rill_status rill__team_agree(rill__team *t, rill_status mine) {
    if (t->told) return mine;
    rill_status status = rill__data_agree(t->mpi, mine);
    t->told = status != RILL_OK;
    return status;
}

/* A call without an input is refused where it is made, and all others of that number are ended. */
void rill__team_refuse(rill__team *t, int calls) {
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    for (int i = 0; t->comm && !t->told && i < calls; i++) {
        rill_request *request = NULL;
        rill_error_set(RILL_OK, detail); /* what the others hear */
        rill_iallreduce(t->comm, NULL, NULL, RILL_SUM, NULL, &request);
    }
    rill_error_set(RILL_ERR_STATE, detail);
}

rill_status rill__team_sum(rill__team *t, rill_status mine, double *values, int n) {
    RILL_TRY_DATA(rill__team_agree(t, mine));
    if (MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, MPI_SUM, t->mpi) != MPI_SUCCESS)
        return rill__data_fail(RILL_ERR_MPI, "MPI_Allreduce failed");
    return RILL_OK;
}

/* Arguments are the same on all ranks here; and with the check a refusal would wait for ranks that
 * may not come. */
rill_status rill__team_comm(rill__team *t) {
    rill_config config = RILL_CONFIG_INIT;
    config.check = 0;
    return t->comm ? rill_comm_forget(t->comm) : rill_comm_create(t->mpi, &config, &t->comm);
}

rill_status rill__team_meet(rill__team *t) {
    if (!t->profiled || t->ranks == 1) return RILL_OK;
    double began = MPI_Wtime();
    rill_status status = rill__team_agree(t, RILL_OK);
    t->wait_seconds += MPI_Wtime() - began;
    return status;
}

void rill__team_account(rill__team *t, double began, const rill_stats *stats) {
    t->exchange_seconds += MPI_Wtime() - began;
    if (!stats) return;
    t->sent_bytes += stats->sent_bytes;
    t->algorithm = stats->algorithm;
}
