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
 * Threads share rows where something is computed of each, and features where rows are summed, so
 * that bits do not depend on their number.
 * Memory: 6 n floats, 3 values per row and column. Cost of a step: about 5 to 30 passes over the rows.
 */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct newton_state {
    float *gradient, *direction, *residual, *product, *diagonal, *preconditioned;
    /* By train row and column: decision values; what a vector makes of the rows, such as the
     * change along the direction, or slopes. By row: losses. */
    double *z, *along, *loss;
    float *curvature;
    rill_stream *stream;
} newton_state;

static rill_status open_alone(rill_trainer *t) {
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
    s->loss = malloc(((size_t)t->train.n + 1) * sizeof *s->loss);
    if (!s->z || !s->along || !s->curvature || !s->loss) return rill__train_memory("the solver");
    return rill_stream_create(RILL_F32, t->n, &s->stream);
}

static rill_status newton_open(rill_trainer *t) {
    RILL_TRY_DATA(rill__data_agree(t->mpi, open_alone(t)));
    return rill__train_comm(t);
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
    free(s->loss);
    rill_stream_free(&s->stream);
    free(s);
    t->solver_state = NULL;
}

static uint64_t newton_bytes(const rill_trainer *t) {
    uint64_t stream = t->ranks > 1 ? 2 * t->n * sizeof(float) : 0;
    return 6 * t->n * sizeof(float) + t->train.n * ((uint64_t)t->columns * 20 + 8) + stream;
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

typedef struct newton_work {
    rill_trainer *trainer;
    newton_state *state;
    const float *vector; /* to be multiplied */
    double alpha;
    bool second; /* squares of the entries, by the curvature, too */
    float *into;
} newton_work;

static uint64_t my_rows(const newton_work *work, int thread, int threads, uint64_t *last) {
    *last = rill__pool_cut(work->trainer->train.n, thread + 1, threads);
    return rill__pool_cut(work->trainer->train.n, thread, threads);
}

/* into += along * x over all rows, of a thread's features; diagonal += curvature * x^2. */
static void add_rows(void *context, int thread, int threads) {
    (void)threads;
    const newton_work *work = context;
    const rill_trainer *t = work->trainer;
    const newton_state *s = work->state;
    const rill_data_view *d = &t->train.data;
    uint64_t columns = (uint64_t)t->columns;
    for (uint64_t i = 0; i < t->train.n; i++) {
        uint64_t first, last;
        rill__row_share(t, rill__row_at(&t->train, i), thread, &first, &last);
        for (uint64_t c = 0; c < columns; c++) {
            double by = s->along[i * columns + c];
            if (by != 0)
                for (uint64_t e = first; e < last; e++)
                    work->into[d->index32[e] * columns + c] += (float)(by * d->value[e]);
            double bend = s->curvature[i * columns + c];
            if (work->second && bend != 0)
                for (uint64_t e = first; e < last; e++)
                    s->diagonal[d->index32[e] * columns + c] +=
                        (float)(bend * ((double)d->value[e] * d->value[e]));
        }
    }
}

/* along = X vector */
static void decide_rows(void *context, int thread, int threads) {
    const newton_work *work = context;
    const rill_trainer *t = work->trainer;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++)
        rill__row_decide(&t->train.data, rill__row_at(&t->train, i), work->vector, t->columns,
                         work->state->along + i * (uint64_t)t->columns);
}

/* along = curvature * X vector */
static void bend_rows(void *context, int thread, int threads) {
    const newton_work *work = context;
    const newton_state *s = work->state;
    uint64_t columns = (uint64_t)work->trainer->columns, last;
    uint64_t i = my_rows(work, thread, threads, &last) * columns;
    decide_rows(context, thread, threads);
    for (; i < last * columns; i++)
        s->along[i] *= s->curvature[i];
}

/* z, losses, slopes (along) and curvatures. */
static void linearise_rows(void *context, int thread, int threads) {
    const newton_work *work = context;
    const rill_trainer *t = work->trainer;
    newton_state *s = work->state;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++) {
        uint64_t row = rill__row_at(&t->train, i), cell = i * (uint64_t)t->columns;
        float target = t->train_target[row];
        double factor = t->options.C * rill__row_weight(t, target);
        rill__row_decide(&t->train.data, row, t->weights.w, t->columns, s->z + cell);
        s->loss[i] = 0;
        for (int c = 0; c < t->columns; c++, cell++) {
            double z = s->z[cell], y = rill__row_y(t, target, c);
            s->along[cell] = factor * t->loss->slope(z, y);
            s->curvature[cell] = (float)(factor * t->loss->curvature(z, y));
            s->loss[i] += factor * t->loss->value(z, y);
        }
    }
}

/* Losses at z + alpha along. */
static void try_rows(void *context, int thread, int threads) {
    const newton_work *work = context;
    const rill_trainer *t = work->trainer;
    const newton_state *s = work->state;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++) {
        float target = t->train_target[rill__row_at(&t->train, i)];
        double factor = t->options.C * rill__row_weight(t, target);
        uint64_t cell = i * (uint64_t)t->columns;
        s->loss[i] = 0;
        for (int c = 0; c < t->columns; c++, cell++)
            s->loss[i] += factor * t->loss->value(s->z[cell] + work->alpha * s->along[cell],
                                                  rill__row_y(t, target, c));
    }
}

static double add_losses(const rill_trainer *t, const newton_state *s) {
    double sum = 0;
    for (uint64_t i = 0; i < t->train.n; i++)
        sum += s->loss[i];
    return sum;
}

/* Sums what the ranks put into the vector, and adds l2 times another (or times 1, if NULL). */
static rill_status complete(rill_trainer *t, newton_state *s, float *vector, const float *plus) {
    RILL_TRY_DATA(rill__exchange_dense(t, s->stream, vector));
    for (uint64_t j = 0; j < t->n; j++)
        vector[j] += (float)(t->options.l2 * (plus ? plus[j] : 1));
    return RILL_OK;
}

/* Gradient, curvatures, preconditioner; *loss is this rank's. */
static rill_status linearise(rill_trainer *t, newton_state *s, double *loss) {
    newton_work work = {.trainer = t, .state = s, .second = true, .into = s->gradient};
    memset(s->gradient, 0, (size_t)t->n * sizeof(float));
    memset(s->diagonal, 0, (size_t)t->n * sizeof(float));
    rill__pool_run(t->pool, linearise_rows, &work);
    rill__pool_run(t->pool, add_rows, &work);
    *loss = add_losses(t, s);
    RILL_TRY_DATA(complete(t, s, s->gradient, t->weights.w));
    RILL_TRY_DATA(complete(t, s, s->diagonal, NULL));
    for (uint64_t j = 0; j < t->n; j++) /* far from the true diagonal, as LIBLINEAR found best */
        s->diagonal[j] = 0.99f + 0.01f * s->diagonal[j];
    return RILL_OK;
}

/* product = Hessian * vector */
static rill_status multiply(rill_trainer *t, newton_state *s, const float *vector) {
    newton_work work = {.trainer = t, .state = s, .vector = vector, .into = s->product};
    memset(s->product, 0, (size_t)t->n * sizeof(float));
    rill__pool_run(t->pool, bend_rows, &work);
    rill__pool_run(t->pool, add_rows, &work);
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

/* Halves the step until the objective falls by a hundredth of what the slope promises. *loss: the
 * sum over all ranks before, and after. */
static rill_status search_line(rill_trainer *t, newton_state *s, double *loss, bool *moved) {
    const float *w = t->weights.w, *d = s->direction;
    double l2 = t->options.l2, ww = dot(w, w, t->n), wd = dot(w, d, t->n), dd = dot(d, d, t->n);
    double slope = dot(s->gradient, d, t->n), before = *loss + 0.5 * l2 * ww;
    newton_work work = {.trainer = t, .state = s, .vector = d, .alpha = 1};
    rill__pool_run(t->pool, decide_rows, &work);
    *moved = false;
    for (int tries = 0; tries < 20 && slope < 0; tries++, work.alpha *= 0.5) {
        rill__pool_run(t->pool, try_rows, &work);
        double sum = add_losses(t, s), alpha = work.alpha;
        RILL_TRY_DATA(rill__train_sum(t, RILL_OK, &sum, 1));
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

static rill_status one_step(rill_trainer *t, double *loss, uint64_t *samples, uint64_t *steps,
                            int *converged) {
    newton_state *s = t->solver_state;
    double sum;
    bool moved;
    RILL_TRY_DATA(rill__train_comm(t));
    RILL_TRY_DATA(linearise(t, s, &sum));
    RILL_TRY_DATA(rill__train_sum(t, RILL_OK, &sum, 1));
    double norm = sqrt(dot(s->gradient, s->gradient, t->n));
    if (t->epoch == 0) t->scalars[RILL__FIRST_NORM] = norm;
    *steps = 1;
    *samples = t->train.n;
    *converged = norm <= t->options.tolerance * t->scalars[RILL__FIRST_NORM];
    if (!*converged) {
        RILL_TRY_DATA(solve(t, s));
        RILL_TRY_DATA(search_line(t, s, &sum, &moved));
        *converged = !moved; /* at the limit of what floats can express */
    }
    *loss = sum / t->options.C / t->ranks; /* ranks add theirs up */
    return RILL_OK;
}

static rill_status newton_epoch(rill_trainer *t, double *loss, uint64_t *samples, uint64_t *steps,
                                int *converged) {
    rill_status status = one_step(t, loss, samples, steps, converged);
    if (status != RILL_OK) rill__train_refuse(t, 1);
    return status;
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
