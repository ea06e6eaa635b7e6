/* What the files of the trainer share.
 *
 *   threads    of a rank                                       train_pool.h
 *   team       the ranks: agreements, sums, what they cost     train_team.h
 *   objective  what is minimised                               objective.h
 *   weights    lazily regularised, with optimizer state        train_weights.h
 *   batch      gradient of some rows as pairs                  train_batch.h
 *   exchange   the ranks' gradients summed, at once or later   train_exchange.h
 *   solvers    one epoch each; they do not see this header     solver.h, solver_<name>.c
 *   trainer    options, labels, epochs, checkpoints            train_*.c
 *   model      weights with labels; LIBLINEAR's file           model.h
 */
#ifndef RILL_TRAIN_TRAIN_INTERNAL_H
#define RILL_TRAIN_TRAIN_INTERNAL_H

#include "train/model.h"
#include "train/solver.h"

#include <string.h>

enum { RILL__SCALARS = 8, RILL__SETTINGS = 1024 };

struct rill_trainer {
    rill_train_options options; /* names point to tables or copies */
    const rill__solver *solver;
    rill__job job; /* what it is handed: pointers to what follows */
    rill__objective objective;
    rill__weights weights;
    rill__team team;
    double *label; /* [0] is the positive one of two; else ascending */
    rill__part_rows valid;
    bool has_valid;
    uint64_t *train_list, *valid_list;
    float *train_target, *valid_target;
    float *train_factor, *valid_factor; /* of the rows */
    uint64_t step;                      /* done */
    double scalars[RILL__SCALARS];      /* what is kept from epoch to epoch, see below */
    double centre;                      /* huber: median of the targets */
    float *start;                       /* of the bias: see train_start.c */
    float *backup;                      /* bold-driver: weights of the last good epoch */
    bool loss_open;                     /* the options leave the loss to the labels */
    char *names[11];                    /* copies of the options' texts */
    int name_count;
};

enum {                      /* scalars */
       RILL__SOLVER_KEPT,   /* in checkpoints: job.kept */
       RILL__BOLD_BEST,     /* bold-driver: lowest objective */
       RILL__VALID_BEST,    /* lowest validation loss, */
       RILL__VALID_BEST_AT, /* and after how many epochs */
       RILL__SOLVER_LAST,   /* in checkpoints: job.last */
       RILL__SOLVER_WARM,   /* in checkpoints: job.warm */
       RILL__EPOCH_SHARE,   /* in checkpoints: job.share */
};

/* As the public calls, over mpi (a pointer to an MPI_Comm) where it is not NULL. */
rill_status rill__trainer_create(rill_comm *, const void *mpi, const rill_dataset *train,
                                 const rill_dataset *valid, const rill_train_options *,
                                 rill_trainer **);

rill_status rill__train_options(rill_trainer *, const rill_train_options *);
rill_status rill__train_labels(rill_trainer *);
/* "regress" or "classify", by the labels of all rows. All ranks. */
rill_status rill__labels_task(rill_comm *, const rill_data_view *, const char **task);
/* Newton's passes are worth it up to so many entries and columns of all ranks, so that the model
 * does not depend on their number; above, it starts from where a few adaptive passes come. */
static const double rill__newton_entries = 3e7;
/* The solver, where the options leave it open: by the labels and the size of the data. */
rill_status rill__train_solver(rill_trainer *);
/* Loss and accuracy on the validation rows. All ranks. */
rill_status rill__train_validate(rill_trainer *, bool with_auc, rill_train_report *);
/* The unit of the loss. All ranks. */
rill_status rill__train_unit(rill_trainer *);
/* The weights that training starts from. All ranks. */
rill_status rill__train_start(rill_trainer *);
/* The features' factors, or the rows'. All ranks. */
rill_status rill__train_scale(rill_trainer *);
/* The rows to choose C by, whole on each rank, as a data set of alone, which has one. All ranks. */
rill_status rill__train_sample(rill_comm *, rill_comm *alone, const rill_dataset *train,
                               const rill_train_options *, rill_dataset **);
/* alike: wide data whose columns are of one unit; same: all values are 1, so that dividing by the
 * largest changes nothing. */
rill_status rill__columns_alike(const rill_data_view *, bool *alike, bool *same);
/* The mean squared length of rows; 0 if all have about the same. */
double rill__rows_length(const rill_data_view *);
/* Of two labels twice the rows of the rarer one: so much do all of them say. Else all rows. */
double rill__rows_that_tell(const rill_data_view *);
rill_status rill__train_weigh(rill_trainer *);
rill_status rill__train_weigh_alone(rill_trainer *,
                                    const char *text); /* its part that asks no other rank */
rill_status rill__train_targets(const rill_trainer *, const rill_data_view *, float **target);
/* After a failure that all ranks know: the team's comm goes, and all have rank 0's weights. Keeps
 * the message. */
void rill__train_recover(rill_trainer *);
/* The batch, where the options leave it open, and steps between two averages. All ranks. */
rill_status rill__train_pace(rill_trainer *);
/* Rows of a rank in a step, where the options leave it open: so few that there are 250 steps in an
 * epoch, up to the hundred that make a step worth its exchange. */
uint64_t rill__train_batch(uint64_t rows, int ranks);
/* The decay of the schedule "1/t", where below 0 stands for a default. */
double rill__train_decay(double decay);
/* What must agree for a run to go on as it was: RILL__SETTINGS bytes. */
void rill__trainer_describe(const rill_trainer *, char *text);
/* A checkpoint's bytes into a trainer; path is for messages. Local. */
rill_status rill__trainer_restore(rill_trainer *, const char *path, const uint8_t *data,
                                  uint64_t bytes);

#endif
