/* See world_train.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world_train.h"

#include <stdio.h>

rill_status world_dataset_load(const tool_world *w, const char *path,
                               const rill_data_options *options, rill_dataset **out) {
    return w->comm ? rill_dataset_load_on(w->comm, path, options, out)
                   : mpi_dataset_load(path, options, out);
}

rill_status world_model_evaluate(const tool_world *w, const rill_model *model,
                                 const rill_dataset *set, rill_metrics *metrics) {
    return w->comm ? rill_model_evaluate_on(w->comm, model, set, metrics)
                   : mpi_model_evaluate(model, set, metrics);
}

rill_status world_trainer_create(const tool_world *w, const rill_dataset *train,
                                 const rill_dataset *valid, const rill_train_options *options,
                                 rill_trainer **out) {
    return w->comm ? rill_trainer_create_on(w->comm, train, valid, options, out)
                   : mpi_trainer_create(train, valid, options, out);
}

rill_status world_choose_C(const tool_world *w, const rill_dataset *set,
                           const rill_train_options *options, rill_C_choice *choice) {
    return w->comm ? rill_trainer_choose_C_on(w->comm, set, options, choice)
                   : mpi_choose_C(set, options, choice);
}

/* The world's communicator, or one for the moment. */
static rill_status borrow(const tool_world *w, rill_comm **comm, rill_comm **made) {
    *made = NULL;
    *comm = w->comm;
    if (w->comm) return RILL_OK;
    rill_status status = world_comm(w, NULL, made);
    *comm = *made;
    return status;
}

rill_status world_model_calibrate(const tool_world *w, rill_model *model, const rill_dataset *set,
                                  const double *decision) {
    rill_comm *comm, *made;
    rill_status status = borrow(w, &comm, &made);
    if (status == RILL_OK) status = rill_model_calibrate_on(comm, model, set, decision);
    rill_comm_free(&made);
    return status;
}

rill_status world_load_weights(const tool_world *w, rill_dataset *set, const char *path) {
    rill_comm *comm, *made;
    rill_status status = borrow(w, &comm, &made);
    if (status == RILL_OK) status = rill_dataset_load_weights_on(comm, set, path);
    rill_comm_free(&made);
    return status;
}

rill_status world_load_files(const tool_world *w, const char *const *paths, int n,
                             const rill_data_options *options, rill_dataset **out) {
    rill_comm *comm, *made;
    rill_status status = borrow(w, &comm, &made);
    if (status == RILL_OK) status = rill_dataset_load_files_on(comm, paths, n, options, out);
    rill_comm_free(&made);
    return status;
}

rill_status world_check_base(const rill_dataset *set, const char *path, int base) {
    char text[512];
    rill_data_report report = RILL_DATA_REPORT_INIT;
    rill_dataset_report(set, &report);
    if (base < 0 || report.base == base) return RILL_OK;
    snprintf(text, sizeof text,
             "%s: its indices start at %d, those of the data of the model at %d: rill convert "
             "--base %d makes them alike",
             path, report.base, base, base);
    return rill_error_set(RILL_ERR_ARGUMENT, text);
}
