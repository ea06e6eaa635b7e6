/* Epochs of a trainer, and what is computed of the weights in between. */
#include "opt/train_internal.h"

#include <math.h>
#include <stdlib.h>

static rill_status room_for_z(const rill_trainer *t, double **z) {
    *z = malloc((size_t)t->columns * sizeof **z);
    return *z ? RILL_OK : rill__train_memory("decision values");
}

static double row_loss(const rill_trainer *t, const rill__part_rows *rows, uint64_t row,
                       const double *z) {
    float target = rows->target[row];
    double loss = 0;
    for (int c = 0; c < t->columns; c++)
        loss += t->loss->value(z[c], rill__row_y(t, target, c));
    return loss * rill__row_weight(t, target);
}

double rill__train_loss(const rill_trainer *t, const rill__part_rows *rows) {
    double *z, loss = 0;
    if (room_for_z(t, &z) != RILL_OK) return NAN;
    for (uint64_t i = 0; i < rows->n; i++) {
        uint64_t row = rill__row_at(rows, i);
        rill__row_decide(&rows->data, row, t->weights.w, t->columns, z);
        loss += row_loss(t, rows, row, z);
    }
    free(z);
    return loss;
}

rill_status rill__train_objective(rill_trainer *t, double *objective, double *mean_loss) {
    double loss = rill__train_loss(t, &t->train), squares = 0, sizes = 0;
    RILL_TRY_DATA(rill__train_sum(t, &loss, 1));
    for (uint64_t j = 0; j < t->n; j++) {
        double w = t->weights.w[j];
        squares += w * w;
        sizes += fabs(w);
    }
    *objective = t->options.C * loss + 0.5 * t->options.l2 * squares + t->options.l1 * sizes;
    if (mean_loss) *mean_loss = loss / (double)t->total_rows;
    return RILL_OK;
}

rill_status rill_trainer_objective(rill_trainer *t, double *objective, double *loss) {
    if (!t || !objective)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_objective: %s is NULL",
                               t ? "objective" : "trainer");
    return rill__train_objective(t, objective, loss);
}

/* ---- validation ----------------------------------------------------------------------------- */

static int best_column(const double *z, int columns) {
    if (columns == 1) return z[0] > 0 ? 0 : 1;
    int best = 0;
    for (int c = 1; c < columns; c++)
        if (z[c] > z[best]) best = c;
    return best;
}

static rill_status validate(rill_trainer *t, rill_train_report *report) {
    double sums[3] = {0, 0, (double)t->valid.n}, *z; /* loss, right, rows */
    size_t rows = (size_t)t->valid.n + 1;
    double *score = malloc(rows * sizeof *score);
    uint8_t *positive = malloc(rows);
    rill_status status = room_for_z(t, &z);
    if (!score || !positive) status = rill__train_memory("validation");
    for (uint64_t i = 0; status == RILL_OK && i < t->valid.n; i++) {
        uint64_t row = rill__row_at(&t->valid, i);
        rill__row_decide(&t->valid.data, row, t->weights.w, t->columns, z);
        sums[0] += row_loss(t, &t->valid, row, z);
        sums[1] += t->valid.target[row] == (float)best_column(z, t->columns);
        score[i] = z[0];
        positive[i] = t->valid.target[row] == 0;
    }
    status = rill__data_agree(t->mpi, status);
    if (status == RILL_OK) status = rill__train_sum(t, sums, 3);
    if (status == RILL_OK) {
        report->valid_loss = sums[0] / sums[2];
        if (!t->regression) report->valid_accuracy = sums[1] / sums[2];
        if (!t->regression && t->columns == 1)
            status = rill__train_auc(t->mpi, t->valid.n, score, positive, &report->valid_auc);
    }
    free(z);
    free(score);
    free(positive);
    return status;
}

/* ---- epochs --------------------------------------------------------------------------------- */

/* Faster while the objective falls; back and half as fast when it does not. */
static rill_status drive_boldly(rill_trainer *t, rill_train_report *report) {
    double *best = &t->scalars[1], objective;
    RILL_TRY_DATA(rill__train_objective(t, &objective, NULL));
    size_t bytes = (size_t)t->n * sizeof *t->backup;
    if (t->epoch == 1 || objective <= *best) {
        if (t->epoch > 1) t->lr *= 1.05;
        *best = objective;
        memcpy(t->backup, t->weights.w, bytes);
    } else {
        t->lr *= 0.5;
        memcpy(t->weights.w, t->backup, bytes);
        objective = *best;
    }
    report->objective = objective;
    return RILL_OK;
}

static rill_status add_up(rill_trainer *t, rill_train_report *report, double loss,
                          uint64_t samples) {
    double sums[4] = {loss, (double)samples, t->comm_seconds, (double)t->comm_bytes};
    RILL_TRY_DATA(rill__train_sum(t, sums, 4));
    if (MPI_Allreduce(MPI_IN_PLACE, &report->seconds, 1, MPI_DOUBLE, MPI_MAX, t->mpi) !=
        MPI_SUCCESS)
        return rill__data_fail(RILL_ERR_MPI, "MPI_Allreduce failed");
    report->samples = (uint64_t)sums[1];
    report->loss = sums[0] / sums[1];
    report->comm_seconds = sums[2] / t->ranks;
    report->sent_bytes = (uint64_t)sums[3];
    return RILL_OK;
}

static rill_status run_epoch(rill_trainer *t, rill_train_report *report) {
    double began = MPI_Wtime(), loss = 0;
    uint64_t samples = 0, steps = 0;
    t->comm_seconds = 0;
    t->comm_bytes = 0;
    RILL_TRY_DATA(t->solver->epoch(t, &loss, &samples, &steps, &report->converged));
    report->seconds = MPI_Wtime() - began;
    t->epoch++;
    t->step += steps;
    RILL_TRY_DATA(add_up(t, report, loss, samples));
    began = MPI_Wtime();
    if (t->backup) RILL_TRY_DATA(drive_boldly(t, report));
    if (t->has_valid) RILL_TRY_DATA(validate(t, report));
    report->eval_seconds = MPI_Wtime() - began;
    report->epoch = t->epoch;
    report->steps = steps;
    report->lr = t->lr;
    if (!strcmp(t->options.schedule, "1/t"))
        report->lr = t->lr / (1 + t->options.decay * (double)t->epoch);
    else if (!strcmp(t->options.schedule, "step"))
        report->lr = t->lr *
                     pow(t->options.step_factor, (double)((t->epoch - 1) / t->options.step_epochs));
    report->algorithm = t->algorithm;
    report->memory_bytes = rill__weights_bytes(&t->weights) + t->solver->bytes(t) +
                           t->train.data.rows * 12 + (t->backup ? t->n * 4 : 0);
    if (!isfinite(report->loss))
        return rill__data_fail(RILL_ERR_STATE,
                               "the loss is not finite after epoch %llu: a lower learning rate "
                               "than %g may help",
                               (unsigned long long)t->epoch, t->options.lr);
    return RILL_OK;
}

rill_status rill_trainer_epoch(rill_trainer *t, rill_train_report *report) {
    if (!t) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_epoch: trainer is NULL");
    rill_train_report full = RILL_TRAIN_REPORT_INIT;
    if (report && (report->size < sizeof(size_t) || report->size > sizeof full))
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_epoch: report.size = %zu",
                               report->size);
    full.objective = full.valid_loss = full.valid_accuracy = full.valid_auc = NAN;
    rill_status status = run_epoch(t, &full);
    if (report) {
        full.size = report->size;
        memcpy(report, &full, report->size);
    }
    return status;
}

uint64_t rill_trainer_epochs(const rill_trainer *t) { return t ? t->epoch : 0; }
