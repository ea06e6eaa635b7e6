/* Least squares of few columns or few rows, solved exactly for any C: for tries, which need no
 * trainer then, and for newton.
 *
 * Idea: the weights solve (X'X + l2/2C) w = X'y, or w = X'a with (XX' + l2/2C) a = y where rows are
 * fewer than columns (Saunders, Gammerman, Vovk, Ridge regression learning algorithm in dual
 * variables, 1998). X and y are centred at their means, which is what an intercept without a
 * penalty does, and loses no digits to columns or targets that lie far from 0. The products are
 * made once for a split and a scale, or for a trainer; a C is a factorisation of a small matrix.
 * Restriction: squared loss, one column; a matrix of 128 x 128 at most.
 * Memory: rows and columns as doubles, 8 MB for all splits at most, else newton goes on.
 * Cost: once rows * columns * side / 2; side^3 / 6 and rows * columns for a C.
 */
#include "train/train_ridge.h"
#include "train/cholesky.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 128, MOST_NUMBERS = 1 << 20 };

static bool serves(const rill__objective *o, uint64_t held, int splits) {
    if (strcmp(o->loss->name, "squared") != 0 || o->columns != 1 || !(o->l2 > 0)) return false;
    if (!o->rows.n || !o->penalised) return false;
    double numbers = (double)(o->rows.n + held) * (double)o->penalised * splits;
    uint64_t side = o->penalised < o->rows.n ? o->penalised : o->rows.n;
    return side <= MOST_SIDE && numbers <= MOST_NUMBERS;
}

/* A row's features with their factors, and a bias that is penalised as the last of them. */
static void spread_row(const rill__objective *o, const rill__part_rows *rows, uint64_t i,
                       double *out) {
    const rill_data_view *d = &rows->data;
    uint64_t row = rill__row_at(rows, i), features = o->features - (o->bias >= 0);
    double factor = rill__row_factor(rows, row);
    memset(out, 0, (size_t)o->penalised * sizeof *out);
    for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++) {
        uint64_t j = d->index32[e];
        if (j < features) out[j] += factor * d->value[e] * (double)rill__factor(o, j);
    }
    if (o->penalised > features) out[features] = o->bias * (double)rill__factor(o, features);
}

static void spread_rows(rill__ridge *r, const rill__objective *o, const rill__part_rows *rows,
                        uint64_t first) {
    for (uint64_t i = 0; i < rows->n; i++) {
        uint64_t row = rill__row_at(rows, i);
        spread_row(o, rows, i, r->row + (first + i) * r->columns);
        r->target[first + i] = rill__row_y(o, rows->target[row], 0);
        r->weight[first + i] = rill__row_weight(o, rows, row);
    }
}

/* At the means of the train rows. */
static void centre(rill__ridge *r) {
    uint64_t n = r->columns, all = r->train + r->held;
    double *mean = r->mean, target = 0, total = 0;
    for (uint64_t i = 0; i < r->train; i++) {
        total += r->weight[i];
        target += r->weight[i] * r->target[i];
        for (uint64_t j = 0; j < n; j++)
            mean[j] += r->weight[i] * r->row[i * n + j];
    }
    for (uint64_t j = 0; j < n; j++)
        mean[j] /= total;
    r->target_mean = target / total;
    for (uint64_t i = 0; i < all; i++) {
        r->target[i] -= r->target_mean;
        for (uint64_t j = 0; j < n; j++)
            r->row[i * n + j] -= mean[j];
    }
}

/* Four rows at a time: the matrix is read and written once for all of them. */
static void multiply_columns(rill__ridge *r) {
    static const double none[MOST_SIDE];
    uint64_t n = r->columns;
    for (uint64_t i = 0; i < r->train; i += 4) {
        const double *x[4];
        for (uint64_t k = 0; k < 4; k++)
            x[k] = i + k < r->train ? r->row + (i + k) * n : none;
        const double *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
        for (uint64_t j = 0; j < n; j++) {
            double *restrict into = r->products + j * n;
            double b0 = x0[j], b1 = x1[j], b2 = x2[j], b3 = x3[j];
            for (uint64_t k = j; k < n; k++)
                into[k] += (b0 * x0[k] + b1 * x1[k]) + (b2 * x2[k] + b3 * x3[k]);
        }
    }
}

/* A row with four others at a time: their sums do not wait for each other. */
static void multiply_rows(rill__ridge *r) {
    uint64_t n = r->columns, side = r->side;
    for (uint64_t i = 0; i < side; i++)
        for (uint64_t k = i; k < side; k += 4) {
            const double *one = r->row + i * n, *other[4];
            double sum[4] = {0};
            for (uint64_t q = 0; q < 4; q++)
                other[q] = r->row + (k + q < side ? k + q : k) * n;
            const double *x0 = other[0], *x1 = other[1], *x2 = other[2], *x3 = other[3];
            for (uint64_t j = 0; j < n; j++) {
                sum[0] += one[j] * x0[j];
                sum[1] += one[j] * x1[j];
                sum[2] += one[j] * x2[j];
                sum[3] += one[j] * x3[j];
            }
            for (uint64_t q = 0; q < 4 && k + q < side; q++)
                r->products[i * side + k + q] = sum[q];
        }
}

static void multiply(rill__ridge *r) {
    memset(r->products, 0, (size_t)(r->side * r->side) * sizeof *r->products);
    if (r->side == r->columns) multiply_columns(r);
    else multiply_rows(r);
}

static bool reserve(rill__ridge *r) {
    size_t all = (size_t)(r->train + r->held), side = (size_t)r->side, n = (size_t)r->columns;
    r->row = malloc(all * n * sizeof *r->row);
    r->target = malloc(all * sizeof *r->target);
    r->weight = malloc(all * sizeof *r->weight);
    r->products = malloc(side * side * sizeof *r->products);
    r->factor = malloc(side * side * sizeof *r->factor);
    r->solution = malloc((n + side) * sizeof *r->solution);
    r->mean = calloc(n, sizeof *r->mean);
    return r->mean && r->row && r->target && r->weight && r->products && r->factor && r->solution;
}

void rill__ridge_open(const rill__objective *o, const rill__part_rows *held, int splits,
                      rill__ridge **out) {
    *out = NULL;
    rill__ridge *r = serves(o, held ? held->n : 0, splits) ? calloc(1, sizeof *r) : NULL;
    if (!r) return;
    r->train = o->rows.n;
    r->held = held ? held->n : 0;
    r->columns = o->penalised;
    r->side = r->columns <= r->train ? r->columns : r->train;
    r->l2 = o->l2;
    r->bias = o->bias * (o->bias >= 0 ? (double)rill__factor(o, o->features - 1) : 1);
    if (!reserve(r)) {
        rill__ridge_free(&r);
        return;
    }
    spread_rows(r, o, &o->rows, 0);
    if (held) spread_rows(r, o, held, r->train);
    if (o->penalised < o->n) centre(r); /* there is an intercept */
    for (uint64_t i = 0; i < r->train; i++) {
        double root = sqrt(r->weight[i]);
        r->target[i] *= root;
        for (uint64_t j = 0; root != 1 && j < r->columns; j++)
            r->row[i * r->columns + j] *= root;
    }
    multiply(r);
    *out = r;
}

void rill__ridge_free(rill__ridge **ridge) {
    rill__ridge *r = *ridge;
    if (!r) return;
    free(r->row);
    free(r->target);
    free(r->weight);
    free(r->products);
    free(r->factor);
    free(r->solution);
    free(r->mean);
    free(r);
    *ridge = NULL;
}

/* x = (products + shift)^-1 x; false: there is no such x. */
static bool solve(const rill__ridge *r, double shift, double *x) {
    uint64_t n = r->side;
    memcpy(r->factor, r->products, (size_t)(n * n) * sizeof *r->factor);
    for (uint64_t j = 0; j < n; j++)
        r->factor[j * n + j] += shift;
    return rill__cholesky_solve(n, r->factor, x);
}

/* out = X' by, of the train rows */
static void add_rows(const rill__ridge *r, const double *by, double *out) {
    uint64_t n = r->columns;
    memset(out, 0, (size_t)n * sizeof *out);
    for (uint64_t i = 0; i < r->train; i++)
        for (uint64_t j = 0; j < n; j++)
            out[j] += by[i] * r->row[i * n + j];
}

/* The weights of the columns, in the ridge's own room; NULL: there is no exact solution. */
static const double *weights_at(const rill__ridge *r, double C) {
    uint64_t n = r->columns;
    double shift = r->l2 / (2 * C), *w = r->solution, *a = w + n;
    if (r->side == n) {
        add_rows(r, r->target, w);
        return solve(r, shift, w) ? w : NULL;
    }
    memcpy(a, r->target, (size_t)r->train * sizeof *a);
    if (!solve(r, shift, a)) return NULL;
    add_rows(r, a, w);
    return w;
}

bool rill__ridge_loss(const rill__ridge *r, double C, double *loss) {
    uint64_t n = r->columns;
    const double *w = weights_at(r, C);
    double sum = 0;
    if (!w) return false;
    for (uint64_t i = r->train; i < r->train + r->held; i++) {
        double off = -r->target[i];
        for (uint64_t j = 0; j < n; j++)
            off += w[j] * r->row[i * n + j];
        sum += r->weight[i] * off * off;
    }
    sum /= (double)r->held;
    if (isfinite(sum)) *loss = sum;
    return isfinite(sum);
}

bool rill__ridge_weights(const rill__ridge *r, double C, bool intercept, float *out) {
    const double *w = weights_at(r, C);
    double constant = r->target_mean;
    bool finite = w != NULL;
    for (uint64_t j = 0; w && j < r->columns; j++) {
        out[j] = (float)w[j];
        constant -= r->mean[j] * w[j];
        finite = finite && isfinite(out[j]);
    }
    if (w && intercept) out[r->columns] = (float)(constant / r->bias);
    return finite && (!intercept || isfinite(out[r->columns]));
}
