/* What training minimises, and all that a solver may ask of it:
 *     C sum over the rows of all ranks of loss(x w, y) + l2/2 |w|^2 + l1 |w|_1
 *
 * Rows are the data's with each feature times its factor and the row's, and with the bias as their
 * last feature: none needs a copy of the data. Factors of features go into the weights before a
 * pass over the rows, and into a sum after it, so that they cost nothing for an entry.
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

#include "train/train_places.h"
#include "train/train_pool.h"
#include "train/train_team.h"
#include "train/train_weights.h"

/* ---- losses --------------------------------------------------------------------------------- */

/* Of huber the unit is where it turns from squares to straight lines. y is +1 or -1, or the target
 * in regression; z the decision value. Derivatives are by z. */
typedef struct rill__loss {
    const char *name, *description;
    double (*value)(double z, double y);
    double (*slope)(double z, double y);
    double (*curvature)(double z, double y); /* or of a parabola that touches from above */
    double most_curvature;      /* 0: the slope jumps, so solvers of second order cannot serve */
    bool regression;            /* y may be any number */
    const char *type, *type_l1; /* LIBLINEAR's solver_type, for the model file */
    /* Value, slope and curvature at once, with the same bits, of a loss whose unit is 1; or NULL */
    double (*all)(double z, double y, double *slope, double *curvature);
} rill__loss;
const rill__loss *rill__loss_find(const char *name);

/* ---- rows ----------------------------------------------------------------------------------- */

/* Rows of a data set that take part. */
typedef struct rill__part_rows {
    rill_data_view data;
    const uint64_t *list; /* row numbers; NULL: all */
    uint64_t n;
    const float *target; /* by row number: class, or the value in regression */
    const float *weight; /* by row number; NULL: all 1 */
    const float *factor; /* of a row's features, but not of its bias; by row number; NULL: all 1 */
} rill__part_rows;

/* A feature's mean, by the bias, and variance. */
typedef struct rill__centred {
    uint32_t feature;
    float shift, spread;
} rill__centred;

typedef struct rill__objective {
    const rill__loss *loss;
    double unit; /* of the loss: unit^2 loss(z / unit, y / unit) is what counts */
    double C, l2, l1;
    bool regression;
    bool softmax;           /* the columns are one problem: the loss is the cross entropy */
    int columns;            /* problems side by side: 1, or one per class */
    int labels;             /* 0 in regression */
    double *class_weight;   /* of each label; NULL: all 1 */
    uint64_t features, n;   /* n: weights, features * columns; the bias is the last feature */
    uint64_t penalised;     /* the first of the weights, which l2 and l1 apply to */
    double bias;            /* its value in every row; below 0: there is none */
    float *factor;          /* of each feature; NULL: 1 */
    rill__centred *centred; /* features that many rows have, ascending; NULL: not needed */
    uint64_t centred_n;
    uint64_t total_rows;     /* over all ranks */
    rill__part_rows rows;    /* of this rank */
    const rill_dataset *set; /* that they are from */
    rill__pool *pool;
    uint64_t *feature_cut; /* threads + 1: features of each thread, by load */
    rill__places places;   /* of solvers that see a smooth function */
    double doubt;          /* share of another label in losses that are looked at (logistic) */
} rill__objective;

/* The side that a row takes in a column's problem. */
static inline double rill__row_y(const rill__objective *o, float target, int column) {
    if (o->regression) return target;
    if (o->columns == 1) return target == 0 ? 1 : -1;
    return target == (float)column ? 1 : -1;
}
static inline double rill__row_weight(const rill__objective *o, const rill__part_rows *rows,
                                      uint64_t row) {
    float target = rows->target[row];
    double weight = o->class_weight && target >= 0 ? o->class_weight[(int)target] : 1;
    return rows->weight ? weight * rows->weight[row] : weight;
}
static inline double rill__loss_value(const rill__objective *o, double z, double y) {
    double u = o->unit;
    return u == 1 ? o->loss->value(z, y) : u * u * o->loss->value(z / u, y / u);
}
static inline double rill__loss_slope(const rill__objective *o, double z, double y) {
    double u = o->unit;
    return u == 1 ? o->loss->slope(z, y) : u * o->loss->slope(z / u, y / u);
}
static inline double rill__loss_curvature(const rill__objective *o, double z, double y) {
    return o->loss->curvature(z / o->unit, y / o->unit);
}
static inline uint64_t rill__row_at(const rill__part_rows *rows, uint64_t i) {
    return rows->list ? rows->list[i] : i;
}
static inline float rill__row_factor(const rill__part_rows *rows, uint64_t row) {
    return rows->factor ? rows->factor[row] : 1;
}
/* z[column] of a row under plain weights that have the factors in them: rill__objective_fold. */
void rill__row_decide(const rill__objective *, const rill__part_rows *, uint64_t row,
                      const float *w, double *z);
/* Of one column, whose weights are every other float. */
double rill__row_decide_paired(const rill__objective *, const rill__part_rows *, uint64_t row,
                               const float *pair);
/* The row's loss at z, without its weight. slope (which may be z) and curvature get its derivatives
 * by column, under softmax the probabilities instead of curvatures; both may be NULL, or curvature.
 */
double rill__row_loss(const rill__objective *, float target, const double *z, double *slope,
                      float *curvature);
/* Weights times factors: w itself where there are none, else in room, of n. */
const float *rill__objective_fold(const rill__objective *, const float *w, float *room);
/* Whether a thread has the bias: the one with the last features. */
static inline bool rill__has_bias(const rill__objective *o, int thread) {
    return o->bias >= 0 && thread + 1 == rill__pool_threads(o->pool);
}
static inline float rill__factor(const rill__objective *o, uint64_t feature) {
    return o->factor ? o->factor[feature] : 1;
}
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

/* how: of the sums of vectors; it must live as long. Local. Moves, products, looks and tries are of
 * all ranks, and need the team's comm. Weights are by number; gradients, diagonals, vectors and
 * products by place. */
rill_status rill__smooth_open(const rill__objective *, rill__team *, const rill_options *how,
                              rill__smooth **);
void rill__smooth_close(rill__smooth **);
uint64_t rill__smooth_bytes(const rill__smooth *);
/* Goes to w, which stays as it is until the next move. hessian_diagonal may be NULL. */
rill_status rill__smooth_move(rill__smooth *, const float *w, rill__smooth_value *, float *gradient,
                              float *hessian_diagonal);
/* product = Hessian * vector */
rill_status rill__smooth_product(rill__smooth *, const float *vector, float *product);
/* Whether the Hessian as a matrix is cheaper than some products with it: few weights of one
 * problem, on one rank. */
bool rill__smooth_is_small(const rill__smooth *);
/* The Hessian at the point moved to: n * n, of which the part above the diagonal is filled in. */
void rill__smooth_hessian(const rill__smooth *, double *hessian);
/* Looks along a direction: rill__smooth_try then gives the value at w + alpha * direction for the
 * price of a number. */
rill_status rill__smooth_look_along(rill__smooth *, const float *direction);
/* Moves weights by alpha * direction, on all ranks to the same bits. */
rill_status rill__smooth_add(rill__smooth *, double alpha, const float *direction, float *w);
rill_status rill__smooth_try(rill__smooth *, double alpha, rill__smooth_value *);

#endif
