/* The objective as a smooth function: value, gradient, Hessian-vector products, values along a
 * line.
 *
 * Idea: all of them are sums over rows. Every rank computes its rows' part, and the parts are
 * summed. What a point makes of the rows (decision values, slopes, curvatures) is kept: a product
 * then multiplies a row and adds it up while it is in the cache, and a value along a direction
 * takes one number per row and column.
 * Source: LIBLINEAR's function and l2r_erm_fun (newton.h, linear.cpp); distributed: Zhuang, Chin,
 * Juan, Lin (2015).
 * Restriction: a loss with curvature; l1 is left out.
 * Threads share rows where something is computed of each, and features where rows are summed, so
 * that bits do not depend on their number: two passes.
 * Under softmax the curvature of a row is diag(p) - p p', so that its probabilities are kept.
 * A long vector and the sums that its product becomes lie side by side, a value beside the other: an
 * entry of a row then asks memory for one line, not two.
 * Where ranks lack features, vectors are by place (train_places.c): a product sums those that
 * several have, and rows are read and added up by number, in vectors beside them.
 * Memory: 20 bytes per row and column, with threads 8 per row; a stream of all weights, or by place
 * 2 n floats, with factors 3 n; 2 n where they lie side by side. Cost: a sum of the weights that several ranks have per gradient,
 * diagonal and product.
 */
#include "train/objective_smooth.h"
#include "train/train_exchange.h"

#include <stdlib.h>
#include <string.h>

enum { LONG = 1 << 17 }; /* weights that no near cache holds twice */

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
    s->by_row = o->pool != NULL;
    s->loss = calloc(s->by_row ? (size_t)o->rows.n + 1 : 1, sizeof *s->loss);
    s->of_bias = malloc((size_t)(2 + rill__pool_threads(o->pool)) * (size_t)o->columns *
                        sizeof *s->of_bias);
    const rill__places *p = &o->places;
    size_t n = (size_t)o->n + RILL_SLACK;
    bool good = s->z && s->along && s->curvature && s->loss && s->of_bias;
    bool pairs = o->columns == 1 && !o->pool && o->n >= LONG;
    if (pairs) good &= (s->pair = rill__vector_zeros(2 * n, sizeof *s->pair)) != NULL;
    if (o->factor || (p->list && !pairs))
        good &= (s->folded = rill__vector(n, sizeof *s->folded)) != NULL;
    /* Without factors nobody folds weights while a diagonal is summed. */
    for (int i = 0; p->list && !pairs && i < (o->factor ? 2 : 1); i++)
        good &= (s->sums[i] = rill__vector_zeros(n, sizeof *s->sums[i])) != NULL;
    if (!good) return rill__data_memory("the solver");
    return p->list ? RILL_OK : rill_stream_create(RILL_F32, o->n, &s->stream);
}

void rill__smooth_close(rill__smooth **smooth) {
    rill__smooth *s = *smooth;
    if (!s) return;
    free(s->z);
    free(s->along);
    free(s->curvature);
    free(s->loss);
    free(s->of_bias);
    free(s->pair);
    free(s->folded);
    free(s->sums[0]);
    free(s->sums[1]);
    rill_stream_free(&s->stream);
    free(s);
    *smooth = NULL;
}

uint64_t rill__smooth_bytes(const rill__smooth *s) {
    const rill__objective *o = s->objective;
    const rill__places *p = &o->places;
    uint64_t stream = s->team->ranks == 1 || p->list ? 0 : 2 * o->n;
    uint64_t vectors = p->list || s->pair ? 2 * o->n : 0;
    if (o->factor) vectors += o->n;
    return o->rows.n * ((uint64_t)o->columns * 20 + (s->by_row ? 8 : 0)) +
           (stream + vectors) * sizeof(float);
}

/* ---- what threads do ------------------------------------------------------------------------ */

typedef struct smooth_work smooth_work;
struct smooth_work {
    const rill__smooth *smooth;
    void (*compute)(const smooth_work *, uint64_t i); /* what a row has before it is added */
    const float *vector;                              /* to be multiplied */
    double alpha;
    float *into, *diagonal; /* diagonal: may be NULL */
    uint64_t apart;         /* values of into and of diagonal: 2 where they are in pairs */
};

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
        work->into[work->apart * (at + c)] = (float)(s->of_bias[c] * o->bias);
        if (work->diagonal)
            work->diagonal[work->apart * (at + c)] = (float)(s->of_bias[columns + c] * o->bias *
                                                             o->bias);
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

static inline void add_entries(const rill_data_view *d, uint64_t e, uint64_t last, double by,
                               float *into, uint64_t apart) {
    for (; by != 0 && e < last; e++)
        into[apart * d->index32[e]] += (float)(by * d->value[e]);
}
static inline void add_squares(const rill_data_view *d, uint64_t e, uint64_t last, double bend,
                               float *into, uint64_t apart) {
    for (; bend != 0 && e < last; e++)
        into[apart * d->index32[e]] += (float)(bend * ((double)d->value[e] * d->value[e]));
}

static void add_row(const smooth_work *work, uint64_t i, int thread) {
    const rill__smooth *s = work->smooth;
    const rill__part_rows *rows = &s->objective->rows;
    const rill_data_view *d = &rows->data;
    uint64_t row = rill__row_at(rows, i), first, last;
    double factor = rill__row_factor(rows, row), by = factor * s->along[i];
    double bend = work->diagonal ? factor * factor * diagonal_of(s, i, i) : 0;
    rill__row_share(s->objective, row, thread, &first, &last);
    if (s->pair) {
        add_entries(d, first, last, by, work->into, 2);
        add_squares(d, first, last, bend, work->diagonal, 2);
    } else {
        add_entries(d, first, last, by, work->into, 1);
        add_squares(d, first, last, bend, work->diagonal, 1);
    }
}

/* A row's part of the sums, of a thread's features. */
static void add_one(const smooth_work *work, uint64_t i, int thread) {
    if (work->smooth->objective->columns == 1) add_row(work, i, thread);
    else add_columns(work, i, thread);
}

/* into += along * x over all rows, of a thread's features; diagonal += curvature * x^2. */
static void add_rows(void *context, int thread, int threads) {
    (void)threads;
    const smooth_work *work = context;
    const rill__objective *o = work->smooth->objective;
    for (uint64_t i = 0; i < o->rows.n; i++)
        add_one(work, i, thread);
    if (rill__has_bias(o, thread)) add_bias(work);
}

/* z = x . vector, of a row */
static void decide_row(const smooth_work *work, uint64_t i, double *z) {
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    uint64_t row = rill__row_at(&o->rows, i);
    if (s->pair) z[0] = rill__row_decide_paired(o, &o->rows, row, work->vector);
    else rill__row_decide(o, &o->rows, row, work->vector, z);
}

/* along = X vector */
static void decide_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    const rill__objective *o = work->smooth->objective;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++)
        decide_row(work, i, work->smooth->along + i * (uint64_t)o->columns);
}

/* Softmax: v becomes p (v - p.v). */
static void bend_softmax(double factor, const float *p, double *v, uint64_t columns) {
    double mean = 0;
    for (uint64_t c = 0; c < columns; c++)
        mean += p[c] * v[c];
    for (uint64_t c = 0; c < columns; c++)
        v[c] = factor * p[c] * (v[c] - mean);
}

/* along = curvature * X vector, of a row */
static void bend_row(const smooth_work *work, uint64_t i) {
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    uint64_t columns = (uint64_t)o->columns, row = rill__row_at(&o->rows, i);
    double *along = s->along + i * columns;
    const float *bend = s->curvature + i * columns;
    decide_row(work, i, along);
    if (o->softmax) bend_softmax(o->C * rill__row_weight(o, &o->rows, row), bend, along, columns);
    else
        for (uint64_t c = 0; c < columns; c++)
            along[c] *= bend[c];
}

/* Losses are added up in the order of rows: as they come, or by threads later. */
static void keep_loss(const rill__smooth *s, uint64_t i, double loss) {
    if (s->by_row) s->loss[i] = loss;
    else s->loss[0] += loss;
}

/* z, losses, slopes (along) and curvatures of a row. */
static void linearise_row(const smooth_work *work, uint64_t i) {
    const rill__smooth *s = work->smooth;
    const rill__objective *o = s->objective;
    uint64_t row = rill__row_at(&o->rows, i), cell = i * (uint64_t)o->columns;
    float target = o->rows.target[row];
    double factor = o->C * rill__row_weight(o, &o->rows, row);
    rill__row_decide(o, &o->rows, row, work->vector, s->z + cell);
    keep_loss(s, i,
              factor *
                  rill__row_loss(o, target, s->z + cell, s->along + cell, s->curvature + cell));
    for (int c = 0; c < o->columns; c++, cell++) {
        s->along[cell] *= factor;
        if (!o->softmax) s->curvature[cell] = (float)(factor * s->curvature[cell]);
    }
}

static void compute_rows(void *context, int thread, int threads) {
    const smooth_work *work = context;
    uint64_t last, i = my_rows(work, thread, threads, &last);
    for (; i < last; i++)
        work->compute(work, i);
}

/* A row is read from memory once. */
static void compute_and_add(const smooth_work *work) {
    const rill__objective *o = work->smooth->objective;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        work->compute(work, i);
        add_one(work, i, 0);
    }
    if (rill__has_bias(o, 0)) add_bias(work);
}

static void sum_rows(smooth_work *work) {
    rill__pool *pool = work->smooth->objective->pool;
    if (!pool) return compute_and_add(work);
    rill__pool_run(pool, compute_rows, work);
    rill__pool_run(pool, add_rows, work);
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
        keep_loss(s, i, factor * rill__row_loss(o, target, z, NULL, NULL));
    }
}

/* ---- on all ranks ---------------------------------------------------------------------------- */

static double add_losses(const rill__smooth *s) {
    double sum = 0;
    uint64_t n = s->by_row ? s->objective->rows.n : 1;
    for (uint64_t i = 0; i < n; i++)
        sum += s->loss[i];
    if (!s->by_row) s->loss[0] = 0;
    return sum;
}

/* A vector by place to one by number, with the factors: what rows are multiplied by. */
static const float *to_numbers(const rill__smooth *s, const float *vector) {
    const rill__objective *o = s->objective;
    const rill__places *p = &o->places;
    float *to = s->pair ? s->pair : s->folded;
    uint64_t apart = s->pair ? 2 : 1;
    if (!p->list && !s->pair) return rill__objective_fold(o, vector, to);
    if (!p->list && !o->factor)
        for (uint64_t j = 0; j < o->n; j++)
            to[2 * j] = vector[j];
    else if (p->columns == 1 && !o->factor)
        for (uint64_t i = 0; i < p->features; i++)
            to[apart * p->list[i]] = vector[i];
    else
        for (uint64_t i = 0; i < p->features; i++) {
            uint64_t feature = rill__place_feature(p, i);
            for (uint64_t c = 0; c < p->columns; c++)
                to[apart * (feature * p->columns + c)] = vector[i * p->columns + c] *
                                                         rill__factor(o, feature);
        }
    return to;
}

/* Where rows are added up, which is 0 then: the vector itself where places are numbers. Of pairs the
 * second values, and of a diagonal the first. */
static float *begin_sum(const rill__smooth *s, int i, float *vector) {
    uint64_t n = s->objective->n;
    for (uint64_t j = 0; s->pair && i == 1 && j < n; j++)
        s->pair[2 * j] = 0;
    if (s->pair) return i ? s->pair : s->pair + 1;
    if (s->sums[i]) return s->sums[i];
    float *sum = s->objective->places.list ? s->folded : vector;
    memset(sum, 0, (size_t)n * sizeof *sum);
    return sum;
}

static void take_pairs(const rill__smooth *s, float *sum, float *vector) {
    const rill__places *p = &s->objective->places;
    for (uint64_t k = 0; k < p->features; k++) {
        float *at = &sum[2 * rill__place_feature(p, k)];
        vector[k] = *at;
        *at = 0;
    }
}

static void end_sum(const rill__smooth *s, int i, float *vector) {
    const rill__places *p = &s->objective->places;
    float *sums = s->sums[i] ? s->sums[i] : s->folded;
    if (s->pair) return take_pairs(s, i ? s->pair : s->pair + 1, vector);
    if (!p->list) return;
    for (uint64_t k = 0; p->columns == 1 && k < p->features; k++) {
        vector[k] = sums[p->list[k]];
        sums[p->list[k]] = 0;
    }
    for (uint64_t k = 0; p->columns > 1 && k < p->features; k++)
        for (uint64_t c = 0; c < p->columns; c++) {
            float *sum = &sums[p->list[k] * p->columns + c];
            vector[k * p->columns + c] = *sum;
            *sum = 0;
        }
}

/* The places [*first, *last) of weights that are penalised: those before the bias and after it. */
static void penalised(const rill__objective *o, bool after, uint64_t *first, uint64_t *last) {
    const rill__places *p = &o->places;
    bool all = o->penalised == o->n; /* all of them come before */
    *first = !after ? 0 : all ? p->features : p->bias + 1;
    *last = after || all ? p->features : p->bias;
}

/* Sums what the ranks put into the vector, gives it its factors (squared, of a diagonal: plus is
 * NULL), and adds l2 times weights, by number, or times another vector (or times 1). */
static rill_status complete(rill__smooth *s, float *vector, const float *w, const float *plus) {
    const rill__objective *o = s->objective;
    const rill__places *p = &o->places;
    RILL_TRY_DATA(rill__places_sum(p, s->team, s->how, s->stream, vector));
    for (int times = 0; o->factor && times < (w || plus ? 1 : 2); times++)
        for (uint64_t i = 0; i < p->features; i++)
            for (uint64_t c = 0; c < p->columns; c++)
                vector[i * p->columns + c] *= o->factor[rill__place_feature(p, i)];
    for (int after = 0; after < 2; after++) {
        uint64_t first, last;
        penalised(o, after, &first, &last);
        first *= p->columns;
        last *= p->columns;
        if (w && !p->list) plus = w;
        if (plus)
            for (uint64_t j = first; j < last; j++)
                vector[j] += (float)(o->l2 * plus[j]);
        else if (w)
            for (uint64_t j = first; j < last; j++)
                vector[j] += (float)(o->l2 *
                                     w[p->list[j / p->columns] * p->columns + j % p->columns]);
        else
            for (uint64_t j = first; j < last; j++)
                vector[j] += (float)o->l2;
    }
    return RILL_OK;
}

rill_status rill__smooth_move(rill__smooth *s, const float *w, rill__smooth_value *at,
                              float *gradient, float *hessian_diagonal) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s, .compute = linearise_row, .apart = s->pair ? 2 : 1};
    work.into = begin_sum(s, 0, gradient);
    if (hessian_diagonal) work.diagonal = begin_sum(s, 1, hessian_diagonal);
    s->w = w;
    work.vector = rill__objective_fold(o, w, s->folded);
    sum_rows(&work);
    end_sum(s, 0, gradient);
    if (hessian_diagonal) end_sum(s, 1, hessian_diagonal);
    double loss = add_losses(s);
    RILL_TRY_DATA(complete(s, gradient, w, NULL));
    if (hessian_diagonal) RILL_TRY_DATA(complete(s, hessian_diagonal, NULL, NULL));
    RILL_TRY_DATA(rill__team_sum(s->team, RILL_OK, &loss, 1));
    s->ww = rill__dot(w, w, o->penalised);
    *at = (rill__smooth_value){loss + 0.5 * o->l2 * s->ww, loss};
    return RILL_OK;
}

rill_status rill__smooth_product(rill__smooth *s, const float *vector, float *product) {
    smooth_work work = {.smooth = s, .compute = bend_row, .apart = s->pair ? 2 : 1};
    work.vector = to_numbers(s, vector);
    work.into = begin_sum(s, 0, product);
    sum_rows(&work);
    end_sum(s, 0, product);
    return complete(s, product, NULL, vector);
}

/* w.d and d.d of penalised weights: this rank's part of them. */
static void add_products(const rill__smooth *s, const float *d, double sums[2]) {
    const rill__objective *o = s->objective;
    const rill__places *p = &o->places;
    sums[0] = sums[1] = 0;
    for (int n = 0; n < 2; n++) {
        uint64_t i, last;
        for (rill__places_counted(p, n, &i, &last); i < last; i++) {
            if (i == p->bias && o->penalised < o->n) continue;
            const float *w = s->w + rill__place_feature(p, i) * p->columns;
            for (uint64_t c = 0; c < p->columns; c++) {
                double there = d[i * p->columns + c];
                sums[0] += w[c] * there;
                sums[1] += there * there;
            }
        }
    }
}

rill_status rill__smooth_look_along(rill__smooth *s, const float *direction) {
    const rill__objective *o = s->objective;
    smooth_work work = {.smooth = s};
    work.vector = to_numbers(s, direction);
    if (o->places.list) {
        double sums[2];
        add_products(s, direction, sums);
        RILL_TRY_DATA(rill__team_sum(s->team, RILL_OK, sums, 2));
        s->wd = sums[0];
        s->dd = sums[1];
    } else {
        s->wd = rill__dot(s->w, direction, o->penalised);
        s->dd = rill__dot(direction, direction, o->penalised);
    }
    rill__pool_run(o->pool, decide_rows, &work);
    return RILL_OK;
}

rill_status rill__smooth_add(rill__smooth *s, double alpha, const float *direction, float *w) {
    const rill__places *p = &s->objective->places;
    for (uint64_t i = 0; i < p->features; i++)
        for (uint64_t c = 0; c < p->columns; c++)
            w[rill__place_feature(p, i) * p->columns + c] += (float)(alpha *
                                                                     direction[i * p->columns + c]);
    return rill__places_spread(p, s->team, s->how, w);
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
