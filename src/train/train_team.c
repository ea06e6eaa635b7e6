#include "train/train_team.h"

rill_status rill__team_agree(rill__team *t, rill_status mine) {
    if (t->told) return mine;
    rill_status status = rill__data_agree(t->talk, mine);
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
    return rill__sum_f64(t->talk, values, n);
}

/* Arguments are the same on all ranks here; and with the check a refusal would wait for ranks that
 * may not come. */
rill_status rill__team_comm(rill__team *t) {
    rill_config config = RILL_CONFIG_INIT;
    config.check = 0;
    config.learn = "off"; /* the same command gives the same bits */
    if (t->comm) return rill_comm_forget(t->comm);
    return rill__team_another(t, &config, &t->comm);
}

rill_status rill__team_another(rill__team *t, const rill_config *config, rill_comm **out) {
    return t->mpi ? rill__mpi_comm(t->mpi, config, out) : rill_comm_dup(t->talk, config, out);
}

rill_status rill__team_gather(rill__team *t, float *values, const int *counts, const int *offsets) {
    if (t->mpi) return rill__mpi_gather(t->mpi, values, counts, offsets);
    rill_status status = RILL_OK;
    for (int r = 0; r < t->ranks && status == RILL_OK; r++)
        status = rill_comm_bcast_bytes(t->talk, values + offsets[r],
                                       (size_t)counts[r] * sizeof *values, r);
    return status;
}

rill_status rill__team_meet(rill__team *t) {
    if (!t->profiled || t->ranks == 1) return RILL_OK;
    double began = rill__now();
    rill_status status = rill__team_agree(t, RILL_OK);
    t->wait_seconds += rill__now() - began;
    return status;
}

void rill__team_account(rill__team *t, double began, const rill_stats *stats) {
    t->exchange_seconds += rill__now() - began;
    if (!stats) return;
    t->sent_bytes += stats->sent_bytes;
    t->algorithm = stats->algorithm;
}
