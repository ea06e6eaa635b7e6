/* What rill train is asked to do.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_TRAIN_CONFIG_H
#define RILL_TOOL_TRAIN_CONFIG_H

#include "world.h"

#include <rill/train.h>
#include <stdbool.h>

typedef struct train_config {
    rill_train_options options;
    rill_data_options data;
    const char *file;         /* the first, for messages */
    const char *const *files; /* or patterns; they live as long as the process */
    int file_count;
    const char *valid_file, *weights, *init, *model, *checkpoint, *log;
    world_options where;
    int early_stop, hash_bits;
    double progress; /* seconds between two lines of it, where there is no terminal; 0: none */
    int folds;       /* of a cross-validation; 0: none */
    uint64_t epochs; /* 0: by the solver */
    uint64_t checkpoint_every;
    bool normalize, resume, quiet, help, calibrate;
    bool objective_given; /* C, l2 or l1 */
    bool choose_C;        /* from the data */
    bool decay_given, density_given, every_given, sgd_meant, no_bias;
    bool bias_open;  /* neither given nor left out */
    bool scale_open; /* not given, or to be chosen */
    bool batch_by_network;
} train_config;
#define TRAIN_CONFIG_INIT                                                                          \
    {                                                                                              \
        .options = RILL_TRAIN_OPTIONS_INIT, .data = RILL_DATA_OPTIONS_INIT, .checkpoint_every = 1, \
        .progress = 10                                                                             \
    }

/* Returns an exit status. */
int train_config_read(int argc, char **argv, train_config *);

#endif
