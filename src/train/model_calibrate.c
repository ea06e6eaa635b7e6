/* Probabilities for models that have none: a sigmoid of each decision value.
 *
 * Idea: P(label | z) = 1 / (1 + exp(A z + B)), with A and B that make the labels of rows most
 * likely whose decision values are known from a model that has not seen them. Targets are a little
 * inside of 0 and 1, as if a row of either kind had been seen before. Newton's method in two
 * dimensions with a line search, on sums over all ranks.
 * Source: Platt, Probabilistic outputs for support vector machines (1999); Lin, Lin, Weng, A note
 * on Platt's probabilistic outputs for support vector machines (2007).
 * More than two labels: a sigmoid each, and the probabilities are divided by their sum.
 */
#include "train/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 100 };

typedef struct sigmoid_fit {
    rill_comm *comm;
    const double *z; /* of the first row; the next is columns further */
    const double *label;
    const float *weight;
    uint64_t rows;
    int columns;
    double positive;  /* label */
    double high, low; /* targets */
} sigmoid_fit;

static double weight_of(const sigmoid_fit *f, uint64_t i) { return f->weight ? f->weight[i] : 1; }

static double minus_log(double target, double at) { /* at = A z + B */
    return at >= 0 ? target * at + log1p(exp(-at)) : (target - 1) * at + log1p(exp(at));
}

/* sums: value; gradient; Hessian: aa, ab, bb. */
static rill_status look(const sigmoid_fit *f, double a, double b, double sums[6]) {
    memset(sums, 0, 6 * sizeof *sums);
    for (uint64_t i = 0; i < f->rows; i++) {
        double z = f->z[i * (uint64_t)f->columns], at = a * z + b, w = weight_of(f, i);
        double target = f->label[i] == f->positive ? f->high : f->low;
        double p = at >= 0 ? exp(-at) / (1 + exp(-at)) : 1 / (1 + exp(at));
        double slope = w * (target - p), bend = w * p * (1 - p);
        sums[0] += w * minus_log(target, at);
        sums[1] += z * slope;
        sums[2] += slope;
        sums[3] += z * z * bend;
        sums[4] += z * bend;
        sums[5] += bend;
    }
    return rill__sum_f64(f->comm, sums, 6);
}

static rill_status fit(const sigmoid_fit *f, double *a, double *b) {
    double at[6], there[6];
    RILL_TRY_DATA(look(f, *a, *b, at));
    for (int step = 0; step < STEPS; step++) {
        if (fabs(at[1]) < 1e-7 && fabs(at[2]) < 1e-7) return RILL_OK;
        double aa = at[3] + 1e-12, bb = at[5] + 1e-12, det = aa * bb - at[4] * at[4];
        double da = -(bb * at[1] - at[4] * at[2]) / det, db = (at[4] * at[1] - aa * at[2]) / det;
        double slope = at[1] * da + at[2] * db, by = 1;
        for (; by > 1e-10; by *= 0.5) {
            RILL_TRY_DATA(look(f, *a + by * da, *b + by * db, there));
            if (there[0] < at[0] + 1e-4 * by * slope) break;
        }
        if (by <= 1e-10) return RILL_OK;
        *a += by * da;
        *b += by * db;
        memcpy(at, there, sizeof at);
    }
    return RILL_OK;
}

static rill_status fit_column(sigmoid_fit *f, double *a, double *b) {
    double seen[2] = {0, 0}; /* weights of the label's rows, of the others */
    for (uint64_t i = 0; i < f->rows; i++)
        seen[f->label[i] != f->positive] += weight_of(f, i);
    RILL_TRY_DATA(rill__sum_f64(f->comm, seen, 2));
    f->high = (seen[0] + 1) / (seen[0] + 2);
    f->low = 1 / (seen[1] + 2);
    *a = 0;
    *b = log((seen[1] + 1) / (seen[0] + 1));
    return fit(f, a, b);
}

rill_status rill_model_calibrate_on(rill_comm *comm, rill_model *m, const rill_dataset *set,
                                    const double *decision) {
    rill_data_view d = RILL_DATA_VIEW_INIT;
    double *sigmoid = m ? calloc(2 * (size_t)m->columns + 2, sizeof *sigmoid) : NULL;
    rill_status status = RILL_OK;
    if (!m || !set || !decision)
        status = rill__data_fail(RILL_ERR_ARGUMENT, "rill_model_calibrate: an argument is NULL");
    else if (!sigmoid) status = rill__data_memory("probabilities");
    else if (m->regression)
        status = rill__data_fail(RILL_ERR_UNSUPPORTED,
                                 "a model of regression has no probabilities");
    else status = rill_dataset_view(set, &d);
    status = rill__data_agree(comm, status);
    for (int c = 0; status == RILL_OK && c < m->columns; c++) {
        sigmoid_fit f = {.comm = comm,
                         .z = decision + c,
                         .label = d.label,
                         .weight = d.weight,
                         .rows = d.rows,
                         .columns = m->columns,
                         .positive = m->label[c]};
        status = fit_column(&f, &sigmoid[2 * c], &sigmoid[2 * c + 1]);
    }
    if (status != RILL_OK) {
        free(sigmoid);
        return status;
    }
    free(m->sigmoid);
    m->sigmoid = sigmoid;
    m->probability = true;
    return RILL_OK;
}
