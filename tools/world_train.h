/* Data sets, models and trainers on the ranks of a world.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_WORLD_TRAIN_H
#define RILL_TOOL_WORLD_TRAIN_H

#include "world.h"

#include <rill/train.h>

/* The calls of rill/train.h with these names: by MPI where it carries the messages. Collective. */
rill_status world_dataset_load(const tool_world *, const char *path, const rill_data_options *,
                               rill_dataset **);
rill_status world_model_evaluate(const tool_world *, const rill_model *, const rill_dataset *,
                                 rill_metrics *);
rill_status world_trainer_create(const tool_world *, const rill_dataset *train,
                                 const rill_dataset *valid, const rill_train_options *,
                                 rill_trainer **);
rill_status world_choose_C(const tool_world *, const rill_dataset *, const rill_train_options *,
                           rill_C_choice *);

/* These need the ranks' communicator, whatever the link. */
rill_status world_model_calibrate(const tool_world *, rill_model *, const rill_dataset *,
                                  const double *decision);
rill_status world_load_files(const tool_world *, const char *const *paths, int n,
                             const rill_data_options *, rill_dataset **);
rill_status world_load_weights(const tool_world *, rill_dataset *, const char *path);

/* Text is read with the base that is known; a binary file has its own: an error if that is not
 * base, unless base is -1. The same on all ranks. */
rill_status world_check_base(const rill_dataset *, const char *path, int base);

/* Their parts for MPI: train_by_mpi.c, or mpi_none.c. */
rill_status mpi_dataset_load(const char *path, const rill_data_options *, rill_dataset **);
rill_status mpi_model_evaluate(const rill_model *, const rill_dataset *, rill_metrics *);
rill_status mpi_trainer_create(const rill_dataset *train, const rill_dataset *valid,
                               const rill_train_options *, rill_trainer **);
rill_status mpi_choose_C(const rill_dataset *, const rill_train_options *, rill_C_choice *);

#endif
