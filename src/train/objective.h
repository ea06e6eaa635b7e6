/* What training minimises, and all that a solver may ask of it:
 *     C sum over the rows of all ranks of loss(x w, y) + l2/2 |w|^2 + l1 |w|_1
 *
 *   losses     value and derivatives of one row's loss            loss_table.c
 *   rows       decision values, sides, weights; who computes what  here, objective.c
 *   value      on all ranks                                        objective.c
 *   smooth     value, gradient, Hessian times vector               objective_smooth.c
 *   rate       a learning rate for stochastic steps                objective_rate.c
 *   batch      the gradient of some rows as pairs                  train_batch.c
 *
 * Weights are arguments: an objective keeps none.
 */
#ifndef RILL_TRAIN_OBJECTIVE_H
#define RILL_TRAIN_OBJECTIVE_H

#include "train/train_pool.h"
#include "train/train_team.h"
#include "train/train_weights.h"

/* ---- losses --------------------------------------------------------------------------------- */

/* y is +1 or -1, or the target in regression; z the decision value. Derivatives are by z. */
typedef struct rill__loss {
    const char *name, *description;
    double (*value)(double z, double y);
    double (*slope)(double z, double y);
    double (*curvature)(double z, double y);
    double most_curvature;      /* 0: the slope jumps, so solvers of second order cannot serve */
    bool regression;            /* y may be any number */
    const char *type, *type_l1; /* LIBLINEAR's solver_type, for the model file */
} rill__loss;
const rill__loss *rill__loss_find(const char *name);

/* ---- rows ----------------------------------------------------------------------------------- */

/* Rows of a data set that take part. */
typedef struct rill__part_rows {
    rill_data_view data;
    const uint64_t *list; /* row numbers; NULL: all */
    uint64_t n;
    const float *target; /* by row number: class, or the value in regression */
} rill__part_rows;

typedef struct rill__objective {
    const rill__loss *loss;
    double C, l2, l1;
    bool regression;
    int columns;             /* problems side by side: 1, or one per class */
    int labels;              /* 0 in regression */
    double *class_weight;    /* of each label; NULL: all 1 */
    uint64_t features, n;    /* n: weights, features * columns */
    uint64_t total_rows;     /* over all ranks */
    rill__part_rows rows;    /* of this rank */
    const rill_dataset *set; /* that they are from */
    rill__pool *pool;
    uint64_t *feature_cut; /* threads + 1: features of each thread, by load */
} rill__objective;

/* The side that a row takes in a column's problem. */
static inline double rill__row_y(const rill__objective *o, float target, int column) {
    if (o->regression) return target;
    if (o->columns == 1) return target == 0 ? 1 : -1;
    return target == (float)column ? 1 : -1;
}
static inline double rill__row_weight(const rill__objective *o, float target) {
    return o->class_weight && target >= 0 ? o->class_weight[(int)target] : 1;
}
static inline uint64_t rill__row_at(const rill__part_rows *rows, uint64_t i) {
    return rows->list ? rows->list[i] : i;
}
/* z[column] of a row under plain weights. */
void rill__row_decide(const rill_data_view *, uint64_t row, const float *w, int columns, double *z);
/* The entries [*first, *last) of a row that belong to a thread. */
void rill__row_share(const rill__objective *, uint64_t row, int thread, uint64_t *first,
                     uint64_t *last);
/* Cuts the features between the threads. */
rill_status rill__objective_cut_features(rill__objective *);

/* ---- value ---------------------------------------------------------------------------------- */

/* *loss: weighted sum over some rows of this rank. score gets the first decision value of each,
 * best the column of the largest; either may be NULL. */
rill_status rill__objective_look(const rill__objective *, const rill__part_rows *, const float *w,
                                 double *loss, double *score, int *best);
/* l2/2 |w|^2 + l1 |w|_1 */
double rill__objective_penalty(const rill__objective *, const float *w);
/* All ranks. mean_loss may be NULL. */
rill_status rill__objective_value(const rill__objective *, rill__team *, const float *w,
                                  double *value, double *mean_loss);
/* All ranks: a learning rate for batches of so many rows, over all ranks. */
rill_status rill__objective_rate(const rill__objective *, const rill__team *, uint64_t batch,
                                 double *lr);

/* ---- as a smooth function, without l1 -------------------------------------------------------- */

double rill__dot(const float *, const float *, uint64_t n);

/* Around one point: what the rows make of it and of a vector. */
typedef struct rill__smooth rill__smooth;
/* value: of the function; loss: C times the sum of losses, a part of it. */
typedef struct rill__smooth_value {
    double value, loss;
} rill__smooth_value;

/* how: of the sums of vectors; it must live as long. Local. Moves, products and tries are of all
 * ranks, with the same arguments, and need the team's comm. */
rill_status rill__smooth_open(const rill__objective *, rill__team *, const rill_options *how,
                              rill__smooth **);
void rill__smooth_close(rill__smooth **);
uint64_t rill__smooth_bytes(const rill__smooth *);
/* Goes to w, which stays as it is until the next move. */
rill_status rill__smooth_move(rill__smooth *, const float *w, rill__smooth_value *, float *gradient,
                              float *hessian_diagonal);
/* product = Hessian * vector */
rill_status rill__smooth_product(rill__smooth *, const float *vector, float *product);
/* Looks along a direction: rill__smooth_try then gives the value at w + alpha * direction for the
 * price of a number. */
void rill__smooth_look_along(rill__smooth *, const float *direction);
rill_status rill__smooth_try(rill__smooth *, double alpha, rill__smooth_value *);

#endif
