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
 * Under softmax the curvature of a row is diag(p) - p p', so that its probabilities are kept.
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
    float *curvature; /* under softmax probabilities */
    double *of_bias;  /* by column: sums of the bias, then of its diagonal; as many of a row that is
                       * tried, by thread */
    float *folded;    /* a vector times the factors */
    rill_stream *stream;
};

double rill__dot(const float *a, const float *b, uint64_t n) {
    double sum[4] = {0}; /* so that one addition need not wait for the other */
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += (double)a[i + (uint64_t)k] * b[i + (uint64_t)k];
    for (; i < n; i++)
        sum[0] += (double)a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
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
    s->of_bias = malloc((size_t)(2 + rill__pool_threads(o->pool)) * (size_t)o->columns *
                        sizeof *s->of_bias);
    if (o->factor) s->folded = malloc((size_t)o->n * sizeof *s->folded);
    if (!s->z || !s->along || !s->curvature || !s->loss || !s->of_bias || (o->factor && !s->folded))
        return rill__data_memory("the solver");
    return rill_stream_create(RILL_F32, o->n, &s->stream);
}

void rill__smooth_close(rill__smooth **smooth) {
    rill__smooth *s = *smooth;
    if (!s) return;
    free(s->z);
    free(s->along);
    free(s->curvature);
    free(s->loss);
    free(s->of_bias);
    free(s->folded);
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

static double diagonal_of(const rill__smooth *s, uint64_t i, uint64_t cell) {
    const rill__objective *o = s->objective;
    double bend = s->curvature[cell];
    if (!o->softmax) return bend;
    return o->C * rill__row_weight(o, &o->rows, rill__row_at(&o->rows, i)) * bend * (1 - bend);
}

/* The same as add_rows of the bias, in double: all rows have it. */
static void add_bias(const smooth_work *work) {
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    uint64_t columns = (uint64_t)o->columns, at = (o->features - 1) * columns;
    memset(s->of_bias, 0, (size_t)(2 * columns) * sizeof *s->of_bias);
    for (uint64_t i = 0; i < o->rows.n; i++)
        for (uint64_t c = 0; c < columns; c++) {
            s->of_bias[c] += s->along[i * columns + c];
            if (work->diagonal) s->of_bias[columns + c] += diagonal_of(s, i, i * columns + c);
        }
    for (uint64_t c = 0; c < columns; c++) {
        work->into[at + c] = (float)(s->of_bias[c] * o->bias);
        if (work->diagonal)
            work->diagonal[at + c] = (float)(s->of_bias[columns + c] * o->bias * o->bias);
    }
}

/* An entry after the other, each for all columns, which lie side by side. */
static void add_columns(const smooth_work *work, uint64_t i, int thread) {
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    const rill_data_view *d = &o->rows.data;
    uint64_t columns = (uint64_t)o->columns, first, last;
    const double *by = s->along + i * columns;
    double *bend = s->of_bias + (uint64_t)(2 + thread) * columns;
    uint64_t row = rill__row_at(&o->rows, i);
    double factor = rill__row_factor(&o->rows, row);
    rill__row_share(o, row, thread, &first, &last);
    for (uint64_t e = first; e < last; e++) {
        float *into = work->into + d->index32[e] * columns;
        double x = factor * d->value[e];
        for (uint64_t c = 0; c < columns; c++)
            into[c] += (float)(by[c] * x);
    }
    if (!work->diagonal) return;
    for (uint64_t c = 0; c < columns; c++)
        bend[c] = diagonal_of(s, i, i * columns + c);
    for (uint64_t e = first; e < last; e++) {
        float *into = work->diagonal + d->index32[e] * columns;
        double x = factor * d->value[e], square = x * x;
        for (uint64_t c = 0; c < columns; c++)
            into[c] += (float)(bend[c] * square);
    }
}

static void add_row(const smooth_work *work, uint64_t i, int thread) {
    const rill__smooth *s = work->smooth;
    const rill__part_rows *rows = &s->objective->rows;
    const rill_data_view *d = &rows->data;
    uint64_t row = rill__row_at(rows, i), first, last;
    double factor = rill__row_factor(rows, row), by = factor * s->along[i];
    double bend = work->diagonal ? factor * factor * diagonal_of(s, i, i) : 0;
    rill__row_share(s->objective, row, thread, &first, &last);
    if (by != 0)
        for (uint64_t e = first; e < last; e++)
            work->into[d->index32[e]] += (float)(by * d->value[e]);
    if (bend != 0)
        for (uint64_t e = first; e < last; e++)
            work->diagonal[d->index32[e]] += (float)(bend * ((double)d->value[e] * d->value[e]));
}

/* into += along * x over all rows, of a thread's features; diagonal += curvature * x^2. */
static void add_rows(void *context, int thread, int threads) {
    (void)threads;
    const smooth_work *work = context;
    const rill__objective *o = work->smooth->objective;
    for (uint64_t i = 0; i < o->rows.n; i++)
        if (o->columns == 1) add_row(work, i, thread);
        else add_columns(work, i, thread);
    if (rill__has_bias(o, thread)) add_bias(work);
}

/* along = X vector */
static void decide_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    const rill__objective *o = work->smooth->objective;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++)
        rill__row_decide(o, &o->rows, rill__row_at(&o->rows, i), work->vector,
                         work->smooth->along + i * (uint64_t)o->columns);
}

/* Softmax: v becomes p (v - p.v). */
static void bend_softmax(double factor, const float *p, double *v, uint64_t columns) {
    double mean = 0;
    for (uint64_t c = 0; c < columns; c++)
        mean += p[c] * v[c];
    for (uint64_t c = 0; c < columns; c++)
        v[c] = factor * p[c] * (v[c] - mean);
}

/* along = curvature * X vector */
static void bend_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    uint64_t columns = (uint64_t)o->columns, last, i = my_rows(work, thread, threads, &last);
    decide_rows(context, thread, threads);
    for (; o->softmax && i < last; i++) {
        double factor = o->C * rill__row_weight(o, &o->rows, rill__row_at(&o->rows, i));
        bend_softmax(factor, s->curvature + i * columns, s->along + i * columns, columns);
    }
    for (i *= columns; i < last * columns; i++)
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
        double factor = o->C * rill__row_weight(o, &o->rows, row);
        rill__row_decide(o, &o->rows, row, work->vector, s->z + cell);
        s->loss[i] = factor *
                     rill__row_loss(o, target, s->z + cell, s->along + cell, s->curvature + cell);
        for (int c = 0; c < o->columns; c++, cell++) {
            s->along[cell] *= factor;
            if (!o->softmax) s->curvature[cell] = (float)(factor * s->curvature[cell]);
        }
    }
}

/* Losses at z + alpha along. */
static void try_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    double *z = s->of_bias + (uint64_t)(2 + thread) * (uint64_t)o->columns;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        float target = o->rows.target[row];
        double factor = o->C * rill__row_weight(o, &o->rows, row);
        uint64_t cell = i * (uint64_t)o->columns;
        for (int c = 0; c < o->columns; c++, cell++)
            z[c] = s->z[cell] + work->alpha * s->along[cell];
        s->loss[i] = factor * rill__row_loss(o, target, z, NULL, NULL);
    }
}

/* ---- on all ranks ---------------------------------------------------------------------------- */

static double add_losses(const rill__smooth *s) {
    double sum = 0;
    for (uint64_t i = 0; i < s->objective->rows.n; i++)
        sum += s->loss[i];
    return sum;
}

/* Sums what the ranks put into the vector, gives it its factors (squared, of a diagonal: plus is
 * NULL), and adds l2 times another vector (or times 1). */
static rill_status complete(rill__smooth *s, float *vector, const float *plus) {
    const rill__objective *o = s->objective;
    RILL_TRY_DATA(rill__exchange_dense(s->team, s->how, s->stream, vector));
    if (o->factor) rill__objective_fold(o, vector, vector);
    if (o->factor && !plus) rill__objective_fold(o, vector, vector);
    for (uint64_t j = 0; j < o->penalised; j++)
        vector[j] += (float)(o->l2 * (plus ? plus[j] : 1));
    return RILL_OK;
}

rill_status rill__smooth_move(rill__smooth *s, const float *w, rill__smooth_value *at,
                              float *gradient, float *hessian_diagonal) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s, .into = gradient, .diagonal = hessian_diagonal};
    s->w = w;
    work.vector = rill__objective_fold(o, w, s->folded);
    memset(gradient, 0, (size_t)o->n * sizeof *gradient);
    if (hessian_diagonal) memset(hessian_diagonal, 0, (size_t)o->n * sizeof *hessian_diagonal);
    rill__pool_run(o->pool, linearise_rows, &work);
    rill__pool_run(o->pool, add_rows, &work);
    double loss = add_losses(s);
    RILL_TRY_DATA(complete(s, gradient, w));
    if (hessian_diagonal) RILL_TRY_DATA(complete(s, hessian_diagonal, NULL));
    RILL_TRY_DATA(rill__team_sum(s->team, RILL_OK, &loss, 1));
    s->ww = rill__dot(w, w, o->penalised);
    *at = (rill__smooth_value){loss + 0.5 * o->l2 * s->ww, loss};
    return RILL_OK;
}

rill_status rill__smooth_product(rill__smooth *s, const float *vector, float *product) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s, .into = product};
    work.vector = rill__objective_fold(o, vector, s->folded);
    memset(product, 0, (size_t)o->n * sizeof *product);
    rill__pool_run(o->pool, bend_rows, &work);
    rill__pool_run(o->pool, add_rows, &work);
    return complete(s, product, vector);
}

enum { MOST_SMALL = 256, PRODUCTS = 12 }; /* products: of conjugate gradients, saved by a matrix */

enum { TOGETHER = 4 }; /* rows without gaps */

static bool has_gaps(const rill_data_view *d, uint64_t row) {
    uint64_t first = d->row[row], count = d->row[row + 1] - first;
    return !count || d->index32[first + count - 1] - d->index32[first] != count - 1;
}

bool rill__smooth_is_small(const rill__smooth *s) {
    const rill__objective *o = s->objective;
    const rill_data_view *d = &o->rows.data;
    if (s->team->ranks > 1 || o->columns > 1 || o->n > MOST_SMALL) return false;
    double matrix = 0, product = 0;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        double entries = (double)(d->row[row + 1] - d->row[row]) + (o->bias >= 0);
        matrix += entries * entries / (has_gaps(d, row) ? 2 : 2 * TOGETHER);
        product += 2 * entries;
    }
    return matrix <= PRODUCTS * product;
}

/* Rows with the same features, one after the other, taken together: the matrix is read and written
 * once for all of them. */
typedef struct row_block {
    uint64_t first, count; /* features */
    int rows;
    double bend[TOGETHER], x[TOGETHER][MOST_SMALL];
} row_block;

static void add_block(const rill__objective *o, row_block *b, double *hessian) {
    uint64_t n = o->n, count = b->count;
    const double *x0 = b->x[0], *x1 = b->x[1], *x2 = b->x[2], *x3 = b->x[3];
    double last = 0;
    for (int k = b->rows; b->rows && k < TOGETHER; k++) { /* as if of rows that count nothing */
        b->bend[k] = 0;
        memset(b->x[k], 0, (size_t)count * sizeof **b->x);
    }
    for (uint64_t e = 0; b->rows && e < count; e++) {
        double *into = hessian + (b->first + e) * n + b->first;
        double b0 = b->bend[0] * x0[e], b1 = b->bend[1] * x1[e];
        double b2 = b->bend[2] * x2[e], b3 = b->bend[3] * x3[e];
        for (uint64_t f = e; f < count; f++)
            into[f] += (b0 * x0[f] + b1 * x1[f]) + (b2 * x2[f] + b3 * x3[f]);
        if (o->bias >= 0) hessian[(b->first + e) * n + n - 1] += ((b0 + b1) + (b2 + b3)) * o->bias;
    }
    for (int k = 0; k < b->rows; k++)
        last += b->bend[k];
    if (o->bias >= 0) hessian[n * n - 1] += last * o->bias * o->bias;
    b->rows = 0;
}

/* A row whose features have gaps. */
static void add_gaps(const rill__objective *o, uint64_t row, double bend, double *hessian) {
    const rill_data_view *d = &o->rows.data;
    uint64_t n = o->n, end = d->row[row + 1];
    double factor = rill__row_factor(&o->rows, row);
    for (uint64_t e = d->row[row]; e < end; e++) {
        double by = bend * factor * d->value[e], *into = hessian + d->index32[e] * n;
        for (uint64_t f = e; f < end; f++)
            into[d->index32[f]] += by * (factor * d->value[f]);
        if (o->bias >= 0) into[n - 1] += by * o->bias;
    }
    if (o->bias >= 0) hessian[n * n - 1] += bend * o->bias * o->bias;
}

void rill__smooth_hessian(const rill__smooth *s, double *hessian) {
    const rill__objective *o = s->objective;
    const rill_data_view *d = &o->rows.data;
    uint64_t n = o->n;
    row_block block;
    block.first = block.count = 0;
    block.rows = 0;
    memset(hessian, 0, (size_t)(n * n) * sizeof *hessian);
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i), at = d->row[row], count = d->row[row + 1] - at;
        if (s->curvature[i] == 0) continue;
        if (has_gaps(d, row)) {
            add_gaps(o, row, s->curvature[i], hessian);
            continue;
        }
        bool same = block.first == d->index32[at] && block.count == count;
        if (block.rows == TOGETHER || (block.rows && !same)) add_block(o, &block, hessian);
        block.first = d->index32[at];
        block.count = count;
        block.bend[block.rows] = s->curvature[i];
        for (uint64_t e = 0; e < count; e++)
            block.x[block.rows][e] = (double)rill__row_factor(&o->rows, row) * d->value[at + e];
        block.rows++;
    }
    if (block.rows) add_block(o, &block, hessian);
    for (uint64_t j = 0; j < n; j++) {
        for (uint64_t k = j; k < n; k++)
            hessian[j * n + k] *= (double)rill__factor(o, j) * rill__factor(o, k);
        if (j < o->penalised) hessian[j * n + j] += o->l2;
    }
}

void rill__smooth_look_along(rill__smooth *s, const float *direction) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s};
    work.vector = rill__objective_fold(o, direction, s->folded);
    s->wd = rill__dot(s->w, direction, o->penalised);
    s->dd = rill__dot(direction, direction, o->penalised);
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
