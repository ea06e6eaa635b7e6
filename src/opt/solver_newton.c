/* Truncated Newton method with a line search, data-parallel.
 *
 * Idea: an epoch is one outer step. Gradient, Hessian-vector products and the diagonal that
 * preconditions conjugate gradients are sums over rows: every rank computes its rows' part, and the parts
 * are summed; the rest is the same on all ranks. Conjugate gradients stop when the quadratic model
 * no longer falls much; the step is halved until the objective falls enough, which needs one number
 * per try, since margins along the direction are kept.
 * Source: LIBLINEAR's newton.cpp (Hsia, Chiang, Lin, Preconditioned conjugate gradient methods in truncated
 * Newton frameworks, 2018; Galli, Lin, 2021); distributed: Zhuang, Chin, Juan, Lin (2015).
 * Restriction: a loss with curvature, no l1. It is the solver for an exact optimum, and sends whole
 * vectors: a sum of n per product.
 * Memory: 6 n floats, 3 values per row and column. Cost of a step: about 5 to 30 passes over the rows.
 */
#include "opt/train_internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct newton_state {
    float *gradient, *direction, *residual, *product, *diagonal, *preconditioned;
    double *z, *along; /* decision values; and along the direction, by train row and column */
    float *curvature;
    rill_comm *comm;
    rill_stream *stream;
} newton_state;

static rill_status newton_open(rill_trainer *t) {
    newton_state *s = t->solver_state = calloc(1, sizeof *s);
    if (!s) return rill__train_memory("the solver");
    size_t n = (size_t)t->n + RILL_SLACK, cells = (size_t)t->train.n * (size_t)t->columns + 1;
    float **vectors[] = {&s->gradient, &s->direction, &s->residual,
                         &s->product,  &s->diagonal,  &s->preconditioned};
    for (int i = 0; i < 6; i++)
        if (!(*vectors[i] = malloc(n * sizeof(float)))) return rill__train_memory("the solver");
    s->z = malloc(cells * sizeof *s->z);
    s->along = malloc(cells * sizeof *s->along);
    s->curvature = malloc(cells * sizeof *s->curvature);
    if (!s->z || !s->along || !s->curvature) return rill__train_memory("the solver");
    return rill_stream_create(RILL_F32, t->n, &s->stream);
}

static void newton_close(rill_trainer *t) {
    newton_state *s = t->solver_state;
    if (!s) return;
    free(s->gradient);
    free(s->direction);
    free(s->residual);
    free(s->product);
    free(s->diagonal);
    free(s->preconditioned);
    free(s->z);
    free(s->along);
    free(s->curvature);
    rill_stream_free(&s->stream);
    rill_comm_free(&s->comm);
    free(s);
    t->solver_state = NULL;
}

static uint64_t newton_bytes(const rill_trainer *t) {
    uint64_t stream = t->ranks > 1 ? 2 * t->n * sizeof(float) : 0;
    return 6 * t->n * sizeof(float) + t->train.n * (uint64_t)t->columns * 20 + stream;
}

static double dot(const float *a, const float *b, uint64_t n) {
    double even = 0, odd = 0;
    uint64_t i = 0;
    for (; i + 1 < n; i += 2) {
        even += (double)a[i] * b[i];
        odd += (double)a[i + 1] * b[i + 1];
    }
    if (i < n) even += (double)a[i] * b[i];
    return even + odd;
}

/* into += by * x of a row in a column, or by * x^2. */
static void add_row(const rill_trainer *t, uint64_t row, int column, double by, bool squared,
                    float *into) {
    const rill_data_view *d = &t->train.data;
    for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++) {
        uint64_t j = (uint64_t)d->index32[e] * (uint64_t)t->columns + (uint64_t)column;
        double x = d->value[e];
        into[j] += (float)(by * (squared ? x * x : x));
    }
}

/* Sums what the ranks put into the vector, and adds l2 times another (or times 1, if NULL). */
static rill_status complete(rill_trainer *t, newton_state *s, float *vector, const float *plus) {
    RILL_TRY_DATA(rill__exchange_dense(t, s->comm, s->stream, vector));
    for (uint64_t j = 0; j < t->n; j++)
        vector[j] += (float)(t->options.l2 * (plus ? plus[j] : 1));
    return RILL_OK;
}

/* Gradient, curvatures, preconditioner; *loss is this rank's. */
static rill_status linearise(rill_trainer *t, newton_state *s, double *loss) {
    *loss = 0;
    memset(s->gradient, 0, (size_t)t->n * sizeof(float));
    memset(s->diagonal, 0, (size_t)t->n * sizeof(float));
    for (uint64_t i = 0; i < t->train.n; i++) {
        uint64_t row = rill__row_at(&t->train, i), cell = i * (uint64_t)t->columns;
        float target = t->train_target[row];
        double factor = t->options.C * rill__row_weight(t, target);
        rill__row_decide(&t->train.data, row, t->weights.w, t->columns, s->z + cell);
        for (int c = 0; c < t->columns; c++) {
            double z = s->z[cell + (uint64_t)c], y = rill__row_y(t, target, c);
            double slope = t->loss->slope(z, y), bend = factor * t->loss->curvature(z, y);
            *loss += factor * t->loss->value(z, y);
            s->curvature[cell + (uint64_t)c] = (float)bend;
            if (slope != 0) add_row(t, row, c, factor * slope, false, s->gradient);
            if (bend != 0) add_row(t, row, c, bend, true, s->diagonal);
        }
    }
    RILL_TRY_DATA(complete(t, s, s->gradient, t->weights.w));
    RILL_TRY_DATA(complete(t, s, s->diagonal, NULL));
    for (uint64_t j = 0; j < t->n; j++) /* far from the true diagonal, as LIBLINEAR found best */
        s->diagonal[j] = 0.99f + 0.01f * s->diagonal[j];
    return RILL_OK;
}

/* product = Hessian * vector */
static rill_status multiply(rill_trainer *t, newton_state *s, const float *vector) {
    memset(s->product, 0, (size_t)t->n * sizeof(float));
    double one[1], *v = one;
    if (t->columns > 1 && !(v = malloc((size_t)t->columns * sizeof *v)))
        return rill__train_memory("a product");
    for (uint64_t i = 0; i < t->train.n; i++) {
        uint64_t row = rill__row_at(&t->train, i), cell = i * (uint64_t)t->columns;
        rill__row_decide(&t->train.data, row, vector, t->columns, v);
        for (int c = 0; c < t->columns; c++) {
            double by = s->curvature[cell + (uint64_t)c] * v[c];
            if (by != 0) add_row(t, row, c, by, false, s->product);
        }
    }
    if (v != one) free(v);
    return complete(t, s, s->product, vector);
}

/* Preconditioned conjugate gradients on H d = -gradient. residual holds r; preconditioned the search
 * direction. */
static rill_status solve(rill_trainer *t, newton_state *s) {
    uint64_t n = t->n;
    float *d = s->direction, *r = s->residual, *p = s->preconditioned;
    double rz = 0, model = 0;
    for (uint64_t j = 0; j < n; j++) {
        d[j] = 0;
        r[j] = -s->gradient[j];
        p[j] = r[j] / s->diagonal[j];
        rz += (double)r[j] * p[j];
    }
    for (int k = 1; k <= 1000 && rz > 0; k++) {
        RILL_TRY_DATA(multiply(t, s, p));
        double bend = dot(p, s->product, n);
        if (!(bend > 0)) break;
        double alpha = rz / bend, next = 0, fall;
        for (uint64_t j = 0; j < n; j++) {
            d[j] += (float)(alpha * p[j]);
            r[j] -= (float)(alpha * s->product[j]);
            next += (double)r[j] * r[j] / s->diagonal[j];
        }
        /* Value of the quadratic model: -(d.r + d.(-gradient)) / 2 */
        double value = -0.5 * (dot(d, r, n) - dot(d, s->gradient, n));
        fall = model - value;
        if (!(value < 0) || !(fall > 0)) break;
        model = value;
        if (k * fall <= 0.5 * -value) break;
        double beta = next / rz;
        rz = next;
        for (uint64_t j = 0; j < n; j++)
            p[j] = (float)(r[j] / s->diagonal[j] + beta * p[j]);
    }
    return RILL_OK;
}

static double loss_at(const rill_trainer *t, const newton_state *s, double alpha) {
    double loss = 0;
    for (uint64_t i = 0; i < t->train.n; i++) {
        float target = t->train_target[rill__row_at(&t->train, i)];
        double factor = t->options.C * rill__row_weight(t, target);
        for (int c = 0; c < t->columns; c++) {
            uint64_t cell = i * (uint64_t)t->columns + (uint64_t)c;
            loss += factor *
                    t->loss->value(s->z[cell] + alpha * s->along[cell], rill__row_y(t, target, c));
        }
    }
    return loss;
}

/* Halves the step until the objective falls by a hundredth of what the slope promises. *loss: the
 * sum over all ranks before, and after. */
static rill_status search_line(rill_trainer *t, newton_state *s, double *loss, bool *moved) {
    const float *w = t->weights.w, *d = s->direction;
    double l2 = t->options.l2, ww = dot(w, w, t->n), wd = dot(w, d, t->n), dd = dot(d, d, t->n);
    double slope = dot(s->gradient, d, t->n), before = *loss + 0.5 * l2 * ww;
    for (uint64_t i = 0; i < t->train.n; i++)
        rill__row_decide(&t->train.data, rill__row_at(&t->train, i), d, t->columns,
                         s->along + i * (uint64_t)t->columns);
    *moved = false;
    double alpha = 1;
    for (int tries = 0; tries < 20 && slope < 0; tries++, alpha *= 0.5) {
        double sum = loss_at(t, s, alpha);
        RILL_TRY_DATA(rill__train_sum(t, &sum, 1));
        double after = sum + 0.5 * l2 * (ww + 2 * alpha * wd + alpha * alpha * dd);
        if (!(after - before <= 0.01 * alpha * slope)) continue;
        for (uint64_t j = 0; j < t->n; j++)
            t->weights.w[j] += (float)(alpha * d[j]);
        *loss = sum;
        *moved = true;
        return RILL_OK;
    }
    return RILL_OK;
}

static rill_status newton_epoch(rill_trainer *t, double *loss, uint64_t *samples, uint64_t *steps,
                                int *converged) {
    newton_state *s = t->solver_state;
    double sum;
    bool moved;
    /* A new one for each epoch: see train_exchange.c. */
    RILL_TRY_DATA(rill_comm_free(&s->comm));
    RILL_TRY_DATA(rill_comm_create(t->mpi, NULL, &s->comm));
    RILL_TRY_DATA(linearise(t, s, &sum));
    RILL_TRY_DATA(rill__train_sum(t, &sum, 1));
    double norm = sqrt(dot(s->gradient, s->gradient, t->n));
    if (t->epoch == 0) t->scalars[0] = norm;
    *steps = 1;
    *samples = t->train.n;
    *converged = norm <= t->options.tolerance * t->scalars[0];
    if (!*converged) {
        RILL_TRY_DATA(solve(t, s));
        RILL_TRY_DATA(search_line(t, s, &sum, &moved));
        *converged = !moved; /* at the limit of what floats can express */
    }
    *loss = sum / t->options.C / t->ranks; /* ranks add theirs up */
    return RILL_OK;
}

const rill__solver rill__solver_newton = {
    .name = "newton",
    .description = "truncated Newton with conjugate gradients: to the exact optimum",
    .smooth = true,
    .no_l1 = true,
    .own_weights = true,
    .open = newton_open,
    .epoch = newton_epoch,
    .close = newton_close,
    .bytes = newton_bytes,
};
