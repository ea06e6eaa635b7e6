/* The objective as a smooth function: value, gradient, Hessian-vector products, values along a
 * line.
 *
 * Idea: all of them are sums over rows. Every rank computes its rows' part, and the parts are
 * summed. What a point makes of the rows (decision values, slopes, curvatures) is kept: a product
 * then takes one pass to multiply and one to add up, and a value along a direction one number per
 * row and column.
 * Source: LIBLINEAR's function and l2r_erm_fun (newton.h, linear.cpp); distributed: Zhuang, Chin,
 * Juan, Lin (2015).
 * Restriction: a loss with curvature; l1 is left out.
 * Threads share rows where something is computed of each, and features where rows are summed, so
 * that bits do not depend on their number.
 * Memory: 20 bytes per row and column, 8 per row; a stream of n. Cost: a sum of n per gradient,
 * diagonal and product.
 */
#include "train/objective.h"
#include "train/train_exchange.h"

#include <stdlib.h>
#include <string.h>

struct rill__smooth {
    const rill__objective *objective;
    rill__team *team;
    const rill_options *how;
    const float *w;
    double ww, wd, dd; /* squared norms of w and of the direction, and their product */
    /* By row and column: decision values; what a vector makes of the rows, such as the change along
     * the direction, or slopes. By row: losses. */
    double *z, *along, *loss;
    float *curvature;
    rill_stream *stream;
};

double rill__dot(const float *a, const float *b, uint64_t n) {
    double even = 0, odd = 0;
    uint64_t i = 0;
    for (; i + 1 < n; i += 2) {
        even += (double)a[i] * b[i];
        odd += (double)a[i + 1] * b[i + 1];
    }
    if (i < n) even += (double)a[i] * b[i];
    return even + odd;
}

rill_status rill__smooth_open(const rill__objective *o, rill__team *team, const rill_options *how,
                              rill__smooth **out) {
    rill__smooth *s = *out = calloc(1, sizeof *s);
    if (!s) return rill__data_memory("the solver");
    *s = (rill__smooth){.objective = o, .team = team, .how = how};
    size_t cells = (size_t)o->rows.n * (size_t)o->columns + 1;
    s->z = malloc(cells * sizeof *s->z);
    s->along = malloc(cells * sizeof *s->along);
    s->curvature = malloc(cells * sizeof *s->curvature);
    s->loss = malloc(((size_t)o->rows.n + 1) * sizeof *s->loss);
    if (!s->z || !s->along || !s->curvature || !s->loss) return rill__data_memory("the solver");
    return rill_stream_create(RILL_F32, o->n, &s->stream);
}

void rill__smooth_close(rill__smooth **smooth) {
    rill__smooth *s = *smooth;
    if (!s) return;
    free(s->z);
    free(s->along);
    free(s->curvature);
    free(s->loss);
    rill_stream_free(&s->stream);
    free(s);
    *smooth = NULL;
}

uint64_t rill__smooth_bytes(const rill__smooth *s) {
    const rill__objective *o = s->objective;
    uint64_t stream = s->team->ranks > 1 ? 2 * o->n * sizeof(float) : 0;
    return o->rows.n * ((uint64_t)o->columns * 20 + 8) + stream;
}

/* ---- what threads do ------------------------------------------------------------------------ */

typedef struct smooth_work {
    const rill__smooth *smooth;
    const float *vector; /* to be multiplied */
    double alpha;
    float *into, *diagonal; /* diagonal: may be NULL */
} smooth_work;

static uint64_t my_rows(const smooth_work *work, int thread, int threads, uint64_t *last) {
    uint64_t n = work->smooth->objective->rows.n;
    *last = rill__pool_cut(n, thread + 1, threads);
    return rill__pool_cut(n, thread, threads);
}

/* into += along * x over all rows, of a thread's features; diagonal += curvature * x^2. */
static void add_rows(void *context, int thread, int threads) {
    (void)threads;
    const smooth_work *work = context;
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    const rill_data_view *d = &o->rows.data;
    uint64_t columns = (uint64_t)o->columns;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t first, last;
        rill__row_share(o, rill__row_at(&o->rows, i), thread, &first, &last);
        for (uint64_t c = 0; c < columns; c++) {
            double by = s->along[i * columns + c];
            if (by != 0)
                for (uint64_t e = first; e < last; e++)
                    work->into[d->index32[e] * columns + c] += (float)(by * d->value[e]);
            double bend = s->curvature[i * columns + c];
            if (work->diagonal && bend != 0)
                for (uint64_t e = first; e < last; e++)
                    work->diagonal[d->index32[e] * columns + c] +=
                        (float)(bend * ((double)d->value[e] * d->value[e]));
        }
    }
}

/* along = X vector */
static void decide_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    const rill__objective *o = work->smooth->objective;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++)
        rill__row_decide(&o->rows.data, rill__row_at(&o->rows, i), work->vector, o->columns,
                         work->smooth->along + i * (uint64_t)o->columns);
}

/* along = curvature * X vector */
static void bend_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    const rill__smooth *s = work->smooth;
    uint64_t columns = (uint64_t)s->objective->columns, last;
    uint64_t i = my_rows(work, thread, threads, &last) * columns;
    decide_rows(context, thread, threads);
    for (; i < last * columns; i++)
        s->along[i] *= s->curvature[i];
}

/* z, losses, slopes (along) and curvatures. */
static void linearise_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++) {
        uint64_t row = rill__row_at(&o->rows, i), cell = i * (uint64_t)o->columns;
        float target = o->rows.target[row];
        double factor = o->C * rill__row_weight(o, target);
        rill__row_decide(&o->rows.data, row, s->w, o->columns, s->z + cell);
        s->loss[i] = 0;
        for (int c = 0; c < o->columns; c++, cell++) {
            double z = s->z[cell], y = rill__row_y(o, target, c);
            s->along[cell] = factor * o->loss->slope(z, y);
            s->curvature[cell] = (float)(factor * o->loss->curvature(z, y));
            s->loss[i] += factor * o->loss->value(z, y);
        }
    }
}

/* Losses at z + alpha along. */
static void try_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++) {
        float target = o->rows.target[rill__row_at(&o->rows, i)];
        double factor = o->C * rill__row_weight(o, target);
        uint64_t cell = i * (uint64_t)o->columns;
        s->loss[i] = 0;
        for (int c = 0; c < o->columns; c++, cell++)
            s->loss[i] += factor * o->loss->value(s->z[cell] + work->alpha * s->along[cell],
                                                  rill__row_y(o, target, c));
    }
}

/* ---- on all ranks ---------------------------------------------------------------------------- */

static double add_losses(const rill__smooth *s) {
    double sum = 0;
    for (uint64_t i = 0; i < s->objective->rows.n; i++)
        sum += s->loss[i];
    return sum;
}

/* Sums what the ranks put into the vector, and adds l2 times another (or times 1, if NULL). */
static rill_status complete(rill__smooth *s, float *vector, const float *plus) {
    const rill__objective *o = s->objective;
    RILL_TRY_DATA(rill__exchange_dense(s->team, s->how, s->stream, vector));
    for (uint64_t j = 0; j < o->n; j++)
        vector[j] += (float)(o->l2 * (plus ? plus[j] : 1));
    return RILL_OK;
}

rill_status rill__smooth_move(rill__smooth *s, const float *w, rill__smooth_value *at,
                              float *gradient, float *hessian_diagonal) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s, .into = gradient, .diagonal = hessian_diagonal};
    s->w = w;
    memset(gradient, 0, (size_t)o->n * sizeof *gradient);
    memset(hessian_diagonal, 0, (size_t)o->n * sizeof *hessian_diagonal);
    rill__pool_run(o->pool, linearise_rows, &work);
    rill__pool_run(o->pool, add_rows, &work);
    double loss = add_losses(s);
    RILL_TRY_DATA(complete(s, gradient, w));
    RILL_TRY_DATA(complete(s, hessian_diagonal, NULL));
    RILL_TRY_DATA(rill__team_sum(s->team, RILL_OK, &loss, 1));
    s->ww = rill__dot(w, w, o->n);
    *at = (rill__smooth_value){loss + 0.5 * o->l2 * s->ww, loss};
    return RILL_OK;
}

rill_status rill__smooth_product(rill__smooth *s, const float *vector, float *product) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s, .vector = vector, .into = product};
    memset(product, 0, (size_t)o->n * sizeof *product);
    rill__pool_run(o->pool, bend_rows, &work);
    rill__pool_run(o->pool, add_rows, &work);
    return complete(s, product, vector);
}

void rill__smooth_look_along(rill__smooth *s, const float *direction) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s, .vector = direction};
    s->wd = rill__dot(s->w, direction, o->n);
    s->dd = rill__dot(direction, direction, o->n);
    rill__pool_run(o->pool, decide_rows, &work);
}

rill_status rill__smooth_try(rill__smooth *s, double alpha, rill__smooth_value *at) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s, .alpha = alpha};
    rill__pool_run(o->pool, try_rows, &work);
    double loss = add_losses(s);
    RILL_TRY_DATA(rill__team_sum(s->team, RILL_OK, &loss, 1));
    double squares = s->ww + 2 * alpha * s->wd + alpha * alpha * s->dd; /* of w there */
    *at = (rill__smooth_value){loss + 0.5 * o->l2 * squares, loss};
    return RILL_OK;
}
