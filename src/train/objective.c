/* What weights make of rows: decision values, losses, the objective's value; and how the threads of
 * a rank share the features: in ranges of about the same number of entries. */
#include "train/objective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- features of a thread ------------------------------------------------------------------- */

enum { SAMPLE = 1 << 15 }; /* entries that the ranges are found from */

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

rill_status rill__objective_cut_features(rill__objective *o) {
    int threads = rill__pool_threads(o->pool);
    const rill_data_view *d = &o->rows.data;
    o->feature_cut = calloc((size_t)threads + 1, sizeof *o->feature_cut);
    uint32_t *sample = malloc(SAMPLE * sizeof *sample);
    if (!o->feature_cut || !sample) {
        free(sample);
        return rill__data_memory("threads");
    }
    uint64_t step = d->entries / SAMPLE + 1, n = 0;
    for (uint64_t e = 0; e < d->entries && n < SAMPLE; e += step)
        sample[n++] = d->index32[e];
    qsort(sample, (size_t)n, sizeof *sample, ascending);
    for (int i = 1; i < threads && n; i++) /* whole words of the batch's bits */
        o->feature_cut[i] = sample[rill__pool_cut(n, i, threads)] / 64 * 64;
    o->feature_cut[threads] = UINT64_MAX;
    free(sample);
    return RILL_OK;
}

/* The first of the row's entries at or above a feature. */
static uint64_t find(const uint32_t *index, uint64_t first, uint64_t last, uint64_t feature) {
    while (first < last) {
        uint64_t middle = first + (last - first) / 2;
        if (index[middle] < feature) first = middle + 1;
        else last = middle;
    }
    return first;
}

void rill__row_share(const rill__objective *o, uint64_t row, int thread, uint64_t *first,
                     uint64_t *last) {
    const rill_data_view *d = &o->rows.data;
    *first = d->row[row];
    *last = d->row[row + 1];
    if (!o->pool) return;
    *first = find(d->index32, *first, *last, o->feature_cut[thread]);
    *last = find(d->index32, *first, *last, o->feature_cut[thread + 1]);
}

/* ---- values --------------------------------------------------------------------------------- */

const float *rill__objective_fold(const rill__objective *o, const float *w, float *room) {
    if (!o->factor) return w;
    uint64_t columns = (uint64_t)o->columns;
    for (uint64_t j = 0; j < o->features; j++)
        for (uint64_t c = 0; c < columns; c++)
            room[j * columns + c] = w[j * columns + c] * o->factor[j];
    return room;
}

/* z of a block of columns, whose sums stay in registers. */
#define BLOCK(width)                                                                               \
    static void decide_##width(const rill_data_view *d, uint64_t first, uint64_t last,             \
                               const float *w, uint64_t columns, double *z) {                      \
        double sum[width] = {0};                                                                   \
        for (uint64_t e = first; e < last; e++) {                                                  \
            const float *at = w + d->index32[e] * columns;                                         \
            double x = d->value[e];                                                                \
            for (int c = 0; c < (width); c++)                                                      \
                sum[c] += at[c] * x;                                                               \
        }                                                                                          \
        memcpy(z, sum, sizeof sum);                                                                \
    }
BLOCK(8)
BLOCK(4)
BLOCK(2)
BLOCK(1)

static void decide_columns(const rill_data_view *d, uint64_t first, uint64_t last, const float *w,
                           int columns, double *z) {
    int c = 0;
    for (; c + 8 <= columns; c += 8)
        decide_8(d, first, last, w + c, (uint64_t)columns, z + c);
    for (; c + 4 <= columns; c += 4)
        decide_4(d, first, last, w + c, (uint64_t)columns, z + c);
    for (; c + 2 <= columns; c += 2)
        decide_2(d, first, last, w + c, (uint64_t)columns, z + c);
    for (; c < columns; c++)
        decide_1(d, first, last, w + c, (uint64_t)columns, z + c);
}

/* One column, whose weights are so many floats apart: four sums, so that one addition need not wait
 * for the other. */
static inline double decide_one(const rill_data_view *data, uint64_t row, const float *w,
                                uint64_t apart) {
    const uint32_t *index = data->index32;
    const float *value = data->value;
    uint64_t e = data->row[row], last = data->row[row + 1];
    double a = 0, b = 0, c = 0, d = 0;
    for (; e + 3 < last; e += 4) {
        a += (double)w[apart * index[e]] * value[e];
        b += (double)w[apart * index[e + 1]] * value[e + 1];
        c += (double)w[apart * index[e + 2]] * value[e + 2];
        d += (double)w[apart * index[e + 3]] * value[e + 3];
    }
    for (; e < last; e++)
        a += (double)w[apart * index[e]] * value[e];
    return (a + b) + (c + d);
}

double rill__row_decide_paired(const rill__objective *o, const rill__part_rows *rows, uint64_t row,
                               const float *pair) {
    double z = decide_one(&rows->data, row, pair, 2) * rill__row_factor(rows, row);
    return o->bias >= 0 ? z + pair[2 * (o->features - 1)] * o->bias : z;
}

void rill__row_decide(const rill__objective *o, const rill__part_rows *rows, uint64_t row,
                      const float *w, double *z) {
    const rill_data_view *data = &rows->data;
    const float *bias = w + (o->features - 1) * (uint64_t)o->columns;
    uint64_t first = data->row[row], last = data->row[row + 1];
    int columns = o->columns;
    if (columns == 1) {
        z[0] = decide_one(data, row, w, 1) * rill__row_factor(rows, row);
        if (o->bias >= 0) z[0] += bias[0] * o->bias;
        return;
    }
    decide_columns(data, first, last, w, columns, z);
    for (int c = 0; rows->factor && c < columns; c++)
        z[c] *= rows->factor[row];
    for (int c = 0; o->bias >= 0 && c < columns; c++)
        z[c] += bias[c] * o->bias;
}

/* -log of the target's share of exp(z). Of a label that no train row has: the largest of any. */
static double cross_entropy(const rill__objective *o, float target, const double *z, double *slope,
                            float *probability) {
    double most = z[0], least = z[0], sum = 0;
    for (int c = 1; c < o->columns; c++) {
        most = fmax(most, z[c]);
        least = fmin(least, z[c]);
    }
    double right = target >= 0 ? z[(int)target] : least;
    for (int c = 0; c < o->columns; c++) {
        double e = exp(z[c] - most);
        if (slope) slope[c] = e;
        sum += e;
    }
    for (int c = 0; slope && c < o->columns; c++) {
        double p = slope[c] / sum;
        if (probability) probability[c] = (float)p;
        slope[c] = p - (target == (float)c);
    }
    return log(sum) + most - right;
}

double rill__row_loss(const rill__objective *o, float target, const double *z, double *slope,
                      float *curvature) {
    if (o->softmax) return cross_entropy(o, target, z, slope, curvature);
    double loss = 0;
    for (int c = 0; c < o->columns; c++) {
        double at = z[c], y = rill__row_y(o, target, c);
        if (slope && curvature && o->loss->all) { /* unit is 1: see loss_table.c */
            double bend;
            loss += o->loss->all(at, y, &slope[c], &bend);
            curvature[c] = (float)bend;
            continue;
        }
        loss += rill__loss_value(o, at, y);
        if (slope) slope[c] = rill__loss_slope(o, at, y);
        if (curvature) curvature[c] = (float)rill__loss_curvature(o, at, y);
    }
    return loss;
}

static int best_column(const double *z, int columns) {
    if (columns == 1) return z[0] > 0 ? 0 : 1;
    int best = 0;
    for (int c = 1; c < columns; c++)
        if (z[c] > z[best]) best = c;
    return best;
}

/* The mean loss if the row had another label. */
static double loss_of_others(const rill__objective *o, float target, const double *z, double loss) {
    if (!o->softmax) return o->loss->value(z[0], -rill__row_y(o, target, 0));
    double sum = 0, right = target >= 0 ? z[(int)target] : 0;
    for (int c = 0; c < o->columns; c++)
        sum += z[c];
    if (target < 0) return loss;
    return loss + right - (sum - right) / (o->columns - 1);
}

/* What weights make of some rows, row by row; columns values for each thread in z. */
typedef struct row_look {
    const rill__objective *objective;
    const rill__part_rows *rows;
    const float *w;
    double *z, *loss, *score;
    int *best;
} row_look;

static void look_at_rows(void *context, int thread, int threads) {
    const row_look *look = context;
    const rill__objective *o = look->objective;
    double *z = look->z + (uint64_t)thread * (uint64_t)o->columns;
    uint64_t last = rill__pool_cut(look->rows->n, thread + 1, threads);
    for (uint64_t i = rill__pool_cut(look->rows->n, thread, threads); i < last; i++) {
        uint64_t row = rill__row_at(look->rows, i);
        float target = look->rows->target[row];
        rill__row_decide(o, look->rows, row, look->w, z);
        double loss = rill__row_loss(o, target, z, NULL, NULL);
        if (o->doubt > 0) loss += o->doubt * (loss_of_others(o, target, z, loss) - loss);
        look->loss[i] = loss * rill__row_weight(o, look->rows, row);
        if (look->score) look->score[i] = z[0];
        if (look->best) look->best[i] = best_column(z, o->columns);
    }
}

rill_status rill__objective_look(const rill__objective *o, const rill__part_rows *rows,
                                 const float *w, double *loss, double *score, int *best) {
    size_t cells = (size_t)rill__pool_threads(o->pool) * (size_t)o->columns;
    row_look look = {.objective = o, .rows = rows, .score = score, .best = best};
    float *room = o->factor ? rill__vector(o->n, sizeof *room) : NULL;
    look.z = malloc(cells * sizeof(double));
    look.loss = malloc(((size_t)rows->n + 1) * sizeof(double));
    rill_status status = look.z && look.loss && (room || !o->factor) ? RILL_OK
                                                                     : rill__data_memory("losses");
    if (status == RILL_OK) {
        look.w = rill__objective_fold(o, w, room);
        rill__pool_run(o->pool, look_at_rows, &look);
        *loss = 0;
        for (uint64_t i = 0; i < rows->n; i++)
            *loss += look.loss[i];
    }
    free(look.z);
    free(look.loss);
    free(room);
    return status;
}

double rill__objective_penalty(const rill__objective *o, const float *weights) {
    double squares = 0, sizes = 0;
    for (uint64_t j = 0; j < o->penalised; j++) {
        double w = weights[j];
        squares += w * w;
        sizes += fabs(w);
    }
    return 0.5 * o->l2 * squares + o->l1 * sizes;
}

rill_status rill__objective_value(const rill__objective *o, rill__team *team, const float *w,
                                  double *value, double *mean_loss) {
    double loss = 0;
    rill_status status = rill__objective_look(o, &o->rows, w, &loss, NULL, NULL);
    RILL_TRY_DATA(rill__team_sum(team, status, &loss, 1));
    *value = o->C * loss + rill__objective_penalty(o, w);
    if (mean_loss) *mean_loss = loss / (double)o->total_rows;
    return RILL_OK;
}
