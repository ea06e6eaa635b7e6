/* A run of rill train, on one rank: what its files share.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_TRAIN_RUN_H
#define RILL_TOOL_TRAIN_RUN_H

#include "tool_output.h"
#include "train_config.h"
#include "train_progress.h"
#include "world_train.h"

typedef struct train_run {
    const tool_world *world;
    const train_config *config;
    rill_train_options options; /* with what was chosen */
    rill_model *init;           /* to start from, or NULL */
    int hash_bits;              /* as given, or as that model has it; so the next */
    bool normalize;
    bool rows; /* that model divides rows by their length */
    int base;  /* of indices; -1: it is found */
    int files; /* of the data */
    rill_dataset *data, *valid;
    rill_trainer *trainer;
    rill_train_look look;
    uint64_t checksum; /* of the data, for the model */
    uint64_t most_epochs;
    tool_records log;
    rill_data_report data_report;
    double began; /* by world_clock */
    double total_seconds, total_comm;
    uint64_t total_bytes, epochs;
    uint64_t model_bytes;              /* most that weights, state and buffers took */
    bool stopped, interrupted, within; /* within: in the middle of an epoch */
    train_progress *progress;
    int argc;
    char **argv;
} train_run;

/* Whether lines are printed here. */
bool train_speaks(const train_run *);
/* A trainer of these options, which starts from the model, if there is one; look and most_epochs
 * are filled in. All ranks. */
rill_status train_open(const train_run *, const rill_train_options *, rill_trainer **,
                       rill_train_look *, uint64_t *most_epochs);

/* train_choice.c; all ranks. */

/* C and what belongs to it, into the options. */
rill_status train_choose(const train_run *, rill_train_options *, rill_C_choice *);
/* The same for the run, and what was found is printed. */
rill_status train_choose_C(train_run *);
/* What the first run has chosen, so that it need not be chosen again. */
rill_status train_take_choices(train_run *);
/* What is trained, in a line. */
void train_print_choice(const train_run *);

/* train_memory.c: the data, and in the end what was taken for all of it. */
void train_print_data(const train_run *);
void train_print_memory(const train_run *);
void train_give_memory_back(const train_run *); /* of large data, to the system */

/* train_folds.c; all ranks. */

/* Trains on all but one part, for each part, and prints how good that is. */
rill_status train_cross_validate(const train_run *);
/* Probabilities for a model of this run, from decision values of rows that were not trained on. */
rill_status train_calibrate(const train_run *, rill_model *);

#endif
