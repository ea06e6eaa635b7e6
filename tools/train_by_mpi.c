/* Training where MPI carries the messages: see world_train.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world_train.h"

#include <mpi.h>

rill_status mpi_dataset_load(const char *path, const rill_data_options *options,
                             rill_dataset **out) {
    return rill_dataset_load(MPI_COMM_WORLD, path, options, out);
}

rill_status mpi_model_evaluate(const rill_model *model, const rill_dataset *set,
                               rill_metrics *metrics) {
    return rill_model_evaluate(MPI_COMM_WORLD, model, set, metrics);
}

rill_status mpi_trainer_create(const rill_dataset *train, const rill_dataset *valid,
                               const rill_train_options *options, rill_trainer **out) {
    return rill_trainer_create(MPI_COMM_WORLD, train, valid, options, out);
}

rill_status mpi_choose_C(const rill_dataset *set, const rill_train_options *options,
                         rill_C_choice *choice) {
    return rill_trainer_choose_C(MPI_COMM_WORLD, set, options, choice);
}
