/* Epochs of a trainer, and what is computed of the weights in between. */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

static double row_loss(const rill_trainer *t, const rill__part_rows *rows, uint64_t row,
                       const double *z) {
    float target = rows->target[row];
    double loss = 0;
    for (int c = 0; c < t->columns; c++)
        loss += t->loss->value(z[c], rill__row_y(t, target, c));
    return loss * rill__row_weight(t, target);
}

static int best_column(const double *z, int columns) {
    if (columns == 1) return z[0] > 0 ? 0 : 1;
    int best = 0;
    for (int c = 1; c < columns; c++)
        if (z[c] > z[best]) best = c;
    return best;
}

/* What the weights make of some rows, row by row; columns values for each thread in z. */
typedef struct row_look {
    const rill_trainer *trainer;
    const rill__part_rows *rows;
    double *z, *loss, *score; /* score and best: may be NULL */
    int *best;
} row_look;

static void look_at_rows(void *context, int thread, int threads) {
    const row_look *look = context;
    const rill_trainer *t = look->trainer;
    double *z = look->z + (uint64_t)thread * (uint64_t)t->columns;
    uint64_t last = rill__pool_cut(look->rows->n, thread + 1, threads);
    for (uint64_t i = rill__pool_cut(look->rows->n, thread, threads); i < last; i++) {
        uint64_t row = rill__row_at(look->rows, i);
        rill__row_decide(&look->rows->data, row, t->weights.w, t->columns, z);
        look->loss[i] = row_loss(t, look->rows, row, z);
        if (look->score) look->score[i] = z[0];
        if (look->best) look->best[i] = best_column(z, t->columns);
    }
}

static rill_status look_open(row_look *look) {
    size_t cells = (size_t)rill__pool_threads(look->trainer->pool) * (size_t)look->trainer->columns;
    look->z = malloc(cells * sizeof *look->z);
    look->loss = malloc(((size_t)look->rows->n + 1) * sizeof *look->loss);
    return look->z && look->loss ? RILL_OK : rill__train_memory("losses");
}

static void look_close(row_look *look) {
    free(look->z);
    free(look->loss);
    free(look->score);
    free(look->best);
}

static double look_run(row_look *look) {
    double sum = 0;
    rill__pool_run(look->trainer->pool, look_at_rows, look);
    for (uint64_t i = 0; i < look->rows->n; i++)
        sum += look->loss[i];
    return sum;
}

rill_status rill__train_loss(const rill_trainer *t, const rill__part_rows *rows, double *loss) {
    row_look look = {.trainer = t, .rows = rows};
    rill_status status = look_open(&look);
    if (status == RILL_OK) *loss = look_run(&look);
    look_close(&look);
    return status;
}

static double penalty(const rill_trainer *t) {
    double squares = 0, sizes = 0;
    for (uint64_t j = 0; j < t->n; j++) {
        double w = t->weights.w[j];
        squares += w * w;
        sizes += fabs(w);
    }
    return 0.5 * t->options.l2 * squares + t->options.l1 * sizes;
}

rill_status rill__train_objective(rill_trainer *t, double *objective, double *mean_loss) {
    double loss = 0;
    rill_status status = rill__train_loss(t, &t->train, &loss);
    RILL_TRY_DATA(rill__train_sum(t, status, &loss, 1));
    *objective = t->options.C * loss + penalty(t);
    if (mean_loss) *mean_loss = loss / (double)t->total_rows;
    return RILL_OK;
}

rill_status rill_trainer_objective(rill_trainer *t, double *objective, double *loss) {
    if (!t) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_objective: trainer is NULL");
    rill_status status = objective ? RILL_OK
                                   : rill__data_fail(RILL_ERR_ARGUMENT,
                                                     "rill_trainer_objective: objective is NULL");
    t->told = false;
    RILL_TRY_DATA(rill__train_agree(t, status));
    return rill__train_objective(t, objective, loss);
}

/* ---- validation ----------------------------------------------------------------------------- */

static rill_status validate(rill_trainer *t, rill_train_report *report) {
    double sums[3] = {0, 0, (double)t->valid.n}; /* loss, right, rows */
    size_t rows = (size_t)t->valid.n + 1;
    row_look look = {.trainer = t,
                     .rows = &t->valid,
                     .score = malloc(rows * sizeof *look.score),
                     .best = malloc(rows * sizeof *look.best)};
    uint8_t *positive = malloc(rows);
    rill_status status = look_open(&look);
    if (!look.score || !look.best || !positive) status = rill__train_memory("validation");
    if (status == RILL_OK) {
        sums[0] = look_run(&look);
        for (uint64_t i = 0; i < t->valid.n; i++) {
            float target = t->valid.target[rill__row_at(&t->valid, i)];
            sums[1] += target == (float)look.best[i];
            positive[i] = target == 0;
        }
    }
    status = rill__train_sum(t, status, sums, 3);
    if (status == RILL_OK) {
        report->valid_loss = sums[0] / sums[2];
        double *best = &t->scalars[RILL__VALID_BEST], *at = &t->scalars[RILL__VALID_BEST_AT];
        if (*at == 0 || report->valid_loss < *best) {
            *best = report->valid_loss;
            *at = (double)t->epoch;
        }
        if (!t->regression) report->valid_accuracy = sums[1] / sums[2];
        if (!t->regression && t->columns == 1)
            status = rill__train_auc(t->mpi, t->valid.n, look.score, positive, &report->valid_auc);
    }
    look_close(&look);
    free(positive);
    return status;
}

/* ---- epochs --------------------------------------------------------------------------------- */

/* Faster while the objective falls; back and half as fast when it does not. */
static rill_status drive_boldly(rill_trainer *t, rill_train_report *report) {
    double *best = &t->scalars[RILL__BOLD_BEST], objective;
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

/* mine: of this rank's epoch. */
static rill_status add_up(rill_trainer *t, rill_status mine, rill_train_report *report, double loss,
                          uint64_t samples) {
    double sums[5] = {loss, (double)samples, t->comm_seconds, (double)t->comm_bytes,
                      t->wait_seconds};
    RILL_TRY_DATA(rill__train_sum(t, mine, sums, 5));
    if (MPI_Allreduce(MPI_IN_PLACE, &report->seconds, 1, MPI_DOUBLE, MPI_MAX, t->mpi) !=
        MPI_SUCCESS)
        return rill__data_fail(RILL_ERR_MPI, "MPI_Allreduce failed");
    report->samples = (uint64_t)sums[1];
    report->loss = sums[0] / sums[1];
    report->comm_seconds = sums[2] / t->ranks;
    report->sent_bytes = (uint64_t)sums[3];
    report->wait_seconds = sums[4] / t->ranks;
    return RILL_OK;
}

static rill_status run_epoch(rill_trainer *t, rill_train_report *report) {
    double began = MPI_Wtime(), loss = 0;
    uint64_t samples = 0, steps = 0;
    t->comm_seconds = t->wait_seconds = 0;
    t->comm_bytes = 0;
    rill_status status = t->solver->epoch(t, &loss, &samples, &steps, &report->converged);
    report->seconds = MPI_Wtime() - began;
    status = add_up(t, status, report, loss, samples);
    if (status != RILL_OK) {
        rill__train_recover(t);
        return status;
    }
    t->epoch++;
    t->step += steps;
    began = MPI_Wtime();
    if (t->backup) RILL_TRY_DATA(drive_boldly(t, report));
    else if (t->solver->own_weights) /* its loss is that of the weights reached */
        report->objective = t->options.C * report->loss * (double)t->total_rows + penalty(t);
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
                               (unsigned long long)t->epoch, t->lr);
    return RILL_OK;
}

rill_status rill_trainer_epoch(rill_trainer *t, rill_train_report *report) {
    if (!t) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_epoch: trainer is NULL");
    rill_train_report full = RILL_TRAIN_REPORT_INIT;
    rill_status status = RILL_OK;
    if (report && (report->size < sizeof(size_t) || report->size > sizeof full))
        status = rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_epoch: report.size = %zu",
                                 report->size);
    t->told = false;
    RILL_TRY_DATA(rill__train_agree(t, status));
    full.objective = full.valid_loss = full.valid_accuracy = full.valid_auc = NAN;
    status = run_epoch(t, &full);
    if (report) {
        full.size = report->size;
        memcpy(report, &full, report->size);
    }
    return status;
}

uint64_t rill_trainer_stale_epochs(const rill_trainer *t) {
    return t && t->has_valid ? t->epoch - (uint64_t)t->scalars[RILL__VALID_BEST_AT] : 0;
}

uint64_t rill_trainer_epochs(const rill_trainer *t) { return t ? t->epoch : 0; }
