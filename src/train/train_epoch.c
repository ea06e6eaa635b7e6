/* Epochs of a trainer, and what is computed of the weights in between. */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

rill_status rill_trainer_objective(rill_trainer *t, double *objective, double *loss) {
    if (!t) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_objective: trainer is NULL");
    rill_status status = objective ? RILL_OK
                                   : rill__data_fail(RILL_ERR_ARGUMENT,
                                                     "rill_trainer_objective: objective is NULL");
    t->team.told = false;
    RILL_TRY_DATA(rill__team_agree(&t->team, status));
    return rill__objective_value(&t->objective, &t->team, t->weights.w, objective, loss);
}

/* ---- validation ----------------------------------------------------------------------------- */

rill_status rill__train_validate(rill_trainer *t, bool with_auc, rill_train_report *report) {
    double sums[3] = {0, 0, (double)t->valid.n}; /* loss, right, rows */
    size_t rows = (size_t)t->valid.n + 1;
    double *score = malloc(rows * sizeof *score);
    int *best_column = malloc(rows * sizeof *best_column);
    uint8_t *positive = malloc(rows);
    rill_status status = score && best_column && positive ? RILL_OK
                                                          : rill__data_memory("validation");
    if (status == RILL_OK)
        status = rill__objective_look(&t->objective, &t->valid, t->weights.w, &sums[0], score,
                                      best_column);
    for (uint64_t i = 0; status == RILL_OK && i < t->valid.n; i++) {
        float target = t->valid.target[rill__row_at(&t->valid, i)];
        sums[1] += target == (float)best_column[i];
        positive[i] = target == 0;
    }
    status = rill__team_sum(&t->team, status, sums, 3);
    if (status == RILL_OK) {
        report->valid_loss = sums[0] / sums[2];
        double *best = &t->scalars[RILL__VALID_BEST], *at = &t->scalars[RILL__VALID_BEST_AT];
        if (*at == 0 || report->valid_loss < *best) {
            *best = report->valid_loss;
            *at = (double)t->job.epoch;
        }
        if (!t->objective.regression) report->valid_accuracy = sums[1] / sums[2];
        if (with_auc && !t->objective.regression && t->objective.columns == 1)
            status = rill__train_auc(t->team.talk, t->valid.n, score, positive, &report->valid_auc);
    }
    free(score);
    free(best_column);
    free(positive);
    return status;
}

/* ---- epochs --------------------------------------------------------------------------------- */

/* Faster while the objective falls; back and half as fast when it does not. */
static rill_status drive_boldly(rill_trainer *t, rill_train_report *report) {
    double *best = &t->scalars[RILL__BOLD_BEST], objective;
    RILL_TRY_DATA(rill__objective_value(&t->objective, &t->team, t->weights.w, &objective, NULL));
    size_t bytes = (size_t)t->objective.n * sizeof *t->backup;
    if (t->job.epoch == 1 || objective <= *best) {
        if (t->job.epoch > 1) t->job.lr *= 1.05;
        *best = objective;
        memcpy(t->backup, t->weights.w, bytes);
    } else {
        t->job.lr *= 0.5;
        memcpy(t->weights.w, t->backup, bytes);
        objective = *best;
    }
    report->objective = objective;
    return RILL_OK;
}

/* mine: of this rank's epoch. */
static rill_status add_up(rill_trainer *t, rill_status mine, const rill__epoch *epoch,
                          rill_train_report *report) {
    double sums[5] = {epoch->loss, (double)epoch->samples, t->team.exchange_seconds,
                      (double)t->team.sent_bytes, t->team.wait_seconds};
    RILL_TRY_DATA(rill__team_sum(&t->team, mine, sums, 5));
    RILL_TRY_DATA(rill__most_f64(t->team.talk, &report->seconds, 1));
    report->samples = (uint64_t)sums[1];
    report->loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    report->comm_seconds = sums[2] / t->team.ranks;
    report->sent_bytes = (uint64_t)sums[3];
    report->wait_seconds = sums[4] / t->team.ranks;
    return RILL_OK;
}

/* After an epoch: objective, validation, what it took. */
static rill_status look_back(rill_trainer *t, const rill__epoch *epoch, rill_train_report *report) {
    double began = rill__now();
    if (t->backup) RILL_TRY_DATA(drive_boldly(t, report));
    else if (t->solver->plain_weights) /* its loss is that of the weights reached */
        report->objective = t->options.C * report->loss * (double)t->objective.total_rows +
                            rill__objective_penalty(&t->objective, t->weights.w);
    if (t->has_valid) RILL_TRY_DATA(rill__train_validate(t, true, report));
    report->eval_seconds = rill__now() - began;
    report->converged = epoch->converged;
    if (!strcmp(t->options.schedule, "1/t"))
        report->lr = t->job.lr / (1 + t->options.decay * (double)t->job.epoch);
    else if (!strcmp(t->options.schedule, "step"))
        report->lr = t->job.lr * pow(t->options.step_factor,
                                     (double)((t->job.epoch - 1) / t->options.step_epochs));
    report->memory_bytes = rill__weights_bytes(&t->weights) + t->solver->bytes(&t->job) +
                           t->objective.rows.data.rows * 4 + (t->backup ? t->objective.n * 4 : 0);
    if (!isfinite(report->loss))
        return rill__data_fail(RILL_ERR_STATE,
                               "the loss is not finite after epoch %llu: a lower learning rate "
                               "than %g may help",
                               (unsigned long long)t->job.epoch, t->job.lr);
    return RILL_OK;
}

static rill_status run_epoch(rill_trainer *t, rill_train_report *report) {
    double began = rill__now();
    rill__epoch epoch = {.share = 1};
    rill__watch_begin(&t->job.watch, t->job.share);
    t->team.exchange_seconds = t->team.wait_seconds = 0;
    t->team.sent_bytes = 0;
    rill_status status = t->solver->epoch(&t->job, &epoch);
    report->seconds = rill__now() - began;
    status = add_up(t, status, &epoch, report);
    if (status != RILL_OK) {
        rill__train_recover(t);
        return status;
    }
    t->step += epoch.steps;
    report->steps = epoch.steps;
    report->stopped = epoch.share < 1;
    t->job.share = report->stopped ? epoch.share : 0;
    report->epoch = t->job.epoch += !report->stopped;
    report->lr = t->job.lr;
    report->algorithm = t->team.algorithm;
    return report->stopped ? RILL_OK : look_back(t, &epoch, report);
}

rill_status rill_trainer_epoch(rill_trainer *t, rill_train_report *report) {
    if (!t) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_epoch: trainer is NULL");
    rill_train_report full = RILL_TRAIN_REPORT_INIT;
    rill_status status = RILL_OK;
    if (report && (report->size < sizeof(size_t) || report->size > sizeof full))
        status = rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_epoch: report.size = %zu",
                                 report->size);
    t->team.told = false;
    RILL_TRY_DATA(rill__team_agree(&t->team, status));
    full.objective = full.valid_loss = full.valid_accuracy = full.valid_auc = NAN;
    status = run_epoch(t, &full);
    if (report) {
        full.size = report->size;
        memcpy(report, &full, report->size);
    }
    return status;
}

uint64_t rill_trainer_stale_epochs(const rill_trainer *t) {
    return t && t->has_valid ? t->job.epoch - (uint64_t)t->scalars[RILL__VALID_BEST_AT] : 0;
}

uint64_t rill_trainer_epochs(const rill_trainer *t) { return t ? t->job.epoch : 0; }
