/* Least squares of few columns or few rows for any C. train_ridge.c. */
#ifndef RILL_TRAIN_TRAIN_RIDGE_H
#define RILL_TRAIN_TRAIN_RIDGE_H

#include "train/train_internal.h"

typedef struct rill__ridge {
    uint64_t train, held, columns; /* rows, rows, features with a penalty */
    uint64_t side;                 /* of the matrix: the columns, or the train rows if fewer */
    double *row;                   /* (train + held) x columns; train rows times their weight */
    double *target, *weight;       /* of all rows; weight: of those held out */
    double *products;              /* side x side, the upper half: of columns or of train rows */
    double *factor, *solution;     /* room to solve in: side x side, columns + side */
    double *mean, target_mean;     /* where the rows are centred; 0: they are not */
    double l2, bias;               /* bias: what an intercept's weight is worth */
} rill__ridge;

/* Takes the rows of an objective, and rows held out; NULL: none. *out is NULL where this is not for
 * its problem, or memory is short: then there is newton. `splits`: that are kept at a time. */
void rill__ridge_open(const rill__objective *, const rill__part_rows *held, int splits,
                      rill__ridge **out);
/* The loss on the rows held out; false: there is no exact solution. */
bool rill__ridge_loss(const rill__ridge *, double C, double *loss);
/* All weights of the objective, but of a bias that has none. */
bool rill__ridge_weights(const rill__ridge *, double C, bool intercept, float *out);
void rill__ridge_free(rill__ridge **);

#endif
