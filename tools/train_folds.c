/* Trainings on all but one part of the rows: cross-validation, and probabilities for losses that
 * have none.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "tool.h"
#include "train_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLATT_FOLDS = 5 };

/* To the end; *report is that of the last epoch. */
static rill_status train_fold(const train_run *run, const rill_train_options *options,
                              rill_trainer **trainer, rill_train_report *report) {
    train_run part = *run;
    part.valid = NULL; /* the fold is for validation */
    unsigned long long epoch = 0;
    rill_train_look look = RILL_TRAIN_LOOK_INIT;
    uint64_t most;
    rill_status status = train_open(&part, options, trainer, &look, &most);
    *report = (rill_train_report)RILL_TRAIN_REPORT_INIT;
    while (status == RILL_OK && !report->converged && rill_trainer_epochs(*trainer) < most) {
        train_progress_begin(run->progress, "fold %d of %d, epoch %llu", options->fold + 1,
                             options->folds, ++epoch);
        status = rill_trainer_epoch(*trainer, report);
        if (status == RILL_OK && report->stopped)
            status = rill_error_set(RILL_ERR_STATE, "interrupted: folds do not go on later");
    }
    train_progress_hide(run->progress);
    return status;
}

/* ---- cross-validation ----------------------------------------------------------------------- */

enum { LOSS, ACCURACY, AUC, MEASURES };

static void print_measure(const char *name, const double *of_fold, int folds, double by,
                          const char *unit) {
    double mean = 0, squares = 0;
    for (int k = 0; k < folds; k++)
        mean += of_fold[k * MEASURES] / folds;
    for (int k = 0; k < folds; k++)
        squares += pow(of_fold[k * MEASURES] - mean, 2) / (folds - 1);
    if (isfinite(mean))
        printf("  %s %.*f +- %.*f%s", name, by > 1 ? 2 : 5, by * mean, by > 1 ? 2 : 5,
               by * sqrt(squares), unit);
}

static void print_fold(int fold, int folds, double C, const double *m) {
    printf("fold %d of %d  C = %g  loss %.6f", fold + 1, folds, C, m[LOSS]);
    if (isfinite(m[ACCURACY])) printf("  acc %.2f %%", 100 * m[ACCURACY]);
    if (isfinite(m[AUC])) printf("  auc %.4f", m[AUC]);
    printf("\n");
    fflush(stdout);
}

static rill_status one_fold(const train_run *run, int fold, double *m) {
    rill_train_options options = run->options;
    rill_train_report report;
    rill_trainer *trainer = NULL;
    rill_status status = RILL_OK;
    options.folds = run->config->folds;
    options.fold = fold;
    if (run->config->choose_C) { /* again in each: what was held out has no say */
        rill_C_choice choice = RILL_C_CHOICE_INIT;
        status = train_choose(run, &options, &choice);
    }
    if (status == RILL_OK) status = train_fold(run, &options, &trainer, &report);
    rill_trainer_free(&trainer);
    if (status != RILL_OK) return status;
    m[LOSS] = report.valid_loss;
    m[ACCURACY] = report.valid_accuracy;
    m[AUC] = report.valid_auc;
    if (train_speaks(run)) print_fold(fold, options.folds, options.C, m);
    return RILL_OK;
}

rill_status train_cross_validate(const train_run *run) {
    int folds = run->config->folds;
    double *measured = calloc((size_t)folds * MEASURES, sizeof *measured);
    rill_status status = world_agree(run->world, measured ? RILL_OK
                                                          : rill_error_set(RILL_ERR_MEMORY,
                                                                           "out of memory: folds"));
    for (int fold = 0; status == RILL_OK && fold < folds; fold++)
        status = one_fold(run, fold, measured + fold * MEASURES);
    if (status == RILL_OK && train_speaks(run)) {
        printf("cross-validation, %d folds, mean and standard deviation:", folds);
        print_measure("loss", measured + LOSS, folds, 1, "");
        print_measure("acc", measured + ACCURACY, folds, 100, " %");
        print_measure("auc", measured + AUC, folds, 1, "");
        printf("\n");
        fflush(stdout);
    }
    free(measured);
    return status;
}

/* ---- probabilities -------------------------------------------------------------------------- */

/* Decision values of a fold's rows into all, by a model of the others; some: as many, for
 * scratch. */
static rill_status decide_fold(const train_run *run, int fold, const rill_model_view *whole,
                               double *some, double *all, uint64_t *list) {
    rill_train_options options = run->options;
    rill_train_report report;
    rill_trainer *trainer = NULL;
    rill_model *model = NULL;
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    uint64_t n = 0, columns = (uint64_t)whole->columns;
    options.folds = PLATT_FOLDS;
    options.fold = fold;
    options.valid_fraction = 0;
    rill_status status = train_fold(run, &options, &trainer, &report);
    if (status == RILL_OK) status = rill_trainer_model(trainer, &model);
    if (status == RILL_OK) status = rill_model_look(model, &view);
    if (status == RILL_OK && view.labels != whole->labels)
        status = rill_error_set(RILL_ERR_ARGUMENT,
                                "--calibrate: a label has too few rows to train without some");
    if (status == RILL_OK) status = rill_model_predict(model, run->data, some, NULL);
    if (status == RILL_OK)
        status = rill_dataset_fold(run->data, fold, PLATT_FOLDS, options.seed, list, &n);
    for (uint64_t i = 0; status == RILL_OK && i < n; i++)
        memcpy(all + list[i] * columns, some + list[i] * columns, (size_t)columns * sizeof *all);
    rill_model_free(&model);
    rill_trainer_free(&trainer);
    return world_agree(run->world, status);
}

rill_status train_calibrate(const train_run *run, rill_model *model) {
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    rill_data_view data = RILL_DATA_VIEW_INIT;
    rill_status status = rill_model_look(model, &view);
    if (status == RILL_OK) status = rill_dataset_view(run->data, &data);
    size_t cells = (size_t)data.rows * (size_t)view.columns + 1;
    double *all = malloc(cells * sizeof *all), *some = malloc(cells * sizeof *some);
    uint64_t *list = malloc(((size_t)data.rows + 1) * sizeof *list);
    if (status == RILL_OK && (!all || !some || !list))
        status = rill_error_set(RILL_ERR_MEMORY, "out of memory: --calibrate");
    status = world_agree(run->world, status);
    for (int fold = 0; status == RILL_OK && fold < PLATT_FOLDS; fold++)
        status = decide_fold(run, fold, &view, some, all, list);
    if (status == RILL_OK) status = world_model_calibrate(run->world, model, run->data, all);
    free(all);
    free(some);
    free(list);
    return status;
}
