/* Factors of the features, so that columns of any unit count alike.
 *
 * Idea: "max" divides a column by its largest magnitude, "std" by its standard deviation, over the
 * train rows of all ranks; zeros that are not stored count. Nothing is shifted: that would fill the
 * zeros, and an intercept that is not regularised does it as well. With such an intercept a column
 * that is the same in every row says nothing: its factor is 0, and the weights are those of data
 * without it. A column is constant if its sum is that of its largest value in every row, which
 * sums of floats in double tell exactly.
 * "rows" divides each row by its length instead, so that long texts do not count more than short
 * ones.
 * Newton's conjugate gradients get means and variances of columns that many rows have, so that they
 * may go as if these were centred.
 * Memory: 24 bytes per feature for a moment, up to 4 for good, 12 per dense column; of "rows" 4
 * bytes a row. Cost: one pass, a sparse max and a sparse sum.
 */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

enum { DENSE = 10 }; /* a column that one of so many rows has is dense */

typedef struct columns {
    float *most;     /* largest magnitude */
    double *sum;     /* of the values, then of their squares */
    uint32_t *count; /* rows that have it */
    rill_stream *magnitudes, *sums;
} columns;

static void look(const rill__objective *o, columns *c) {
    const rill_data_view *d = &o->rows.data;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        double by = rill__row_factor(&o->rows, row);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++) {
            uint32_t j = d->index32[e];
            double value = by * d->value[e];
            if (fabs(value) > c->most[j]) c->most[j] = (float)fabs(value);
            c->sum[j] += value;
            c->sum[o->features + j] += value * value;
            c->count[j]++;
        }
    }
}

static rill_status open_columns(const rill_trainer *t, columns *c, bool std, bool scaled) {
    const rill__objective *o = &t->objective;
    size_t n = (size_t)o->features;
    c->most = rill__vector_zeros(n + RILL_SLACK, sizeof *c->most);
    c->sum = rill__vector_zeros(2 * n + RILL_SLACK, sizeof *c->sum);
    c->count = rill__vector_zeros(n + RILL_SLACK, sizeof *c->count);
    if (!c->most || !c->sum || !c->count) return rill__data_memory("the columns' scale");
    look(o, c);
    for (size_t j = 0; !std && j < n; j++) /* others are not asked for their sums */
        if (DENSE * (uint64_t)c->count[j] < o->rows.n) c->sum[j] = c->sum[n + j] = 0;
    if (t->team.ranks == 1) return RILL_OK;
    RILL_TRY_DATA(rill_stream_create(RILL_F64, 2 * n, &c->sums));
    RILL_TRY_DATA(rill_stream_set_dense(c->sums, c->sum));
    if (!scaled) return RILL_OK; /* means and variances are enough */
    RILL_TRY_DATA(rill_stream_create(RILL_F32, n, &c->magnitudes));
    return rill_stream_set_dense(c->magnitudes, c->most);
}

static rill_status add_ranks(rill_trainer *t, columns *c) {
    if (t->team.ranks == 1) return RILL_OK;
    RILL_TRY_DATA(rill__team_comm(&t->team));
    rill_stream *most = c->magnitudes;
    rill_status status = rill_allreduce(t->team.comm, c->sums, c->sums, RILL_SUM, NULL);
    if (status == RILL_OK && most)
        status = rill_allreduce(t->team.comm, most, most, RILL_MAX, NULL);
    if (status == RILL_OK && most) status = rill_stream_get_dense(most, c->most);
    if (status == RILL_OK) status = rill_stream_get_dense(c->sums, c->sum);
    if (status != RILL_OK) rill__team_refuse(&t->team, 2);
    return rill__team_agree(&t->team, status);
}

static float factor_of(const rill_trainer *t, const columns *c, uint64_t j, bool std) {
    const rill__objective *o = &t->objective;
    double rows = (double)o->total_rows, sum = c->sum[j];
    if (!(c->most[j] > 0)) return 1;
    if (t->options.intercept && fabs(sum) == rows * c->most[j]) return 0;
    if (!std) return 1 / c->most[j];
    double mean = sum / rows, variance = c->sum[o->features + j] / rows - mean * mean;
    if (variance <= 1e-13 * mean * mean) return t->options.intercept ? 0 : 1 / c->most[j];
    return (float)(1 / sqrt(variance));
}

/* Means and variances of the scaled dense columns: they are few of wide data. */
static rill_status centre(rill__objective *o, const columns *c) {
    double rows = (double)o->total_rows;
    for (int fill = 0; fill < 2; fill++) {
        o->centred_n = 0;
        for (uint64_t j = 0; j < o->features; j++) {
            double mean = c->sum[j] / rows;
            double variance = c->sum[o->features + j] / rows - mean * mean;
            if (!(DENSE * mean * mean >= variance && variance > 0)) continue;
            double factor = rill__factor(o, j);
            float shift = (float)(factor * mean / o->bias);
            float spread = (float)(factor * factor * variance);
            if (shift == 0 && spread == 0) continue;
            if (fill) o->centred[o->centred_n] = (rill__centred){(uint32_t)j, shift, spread};
            o->centred_n++;
        }
        if (fill) break;
        o->centred = malloc(((size_t)o->centred_n + 1) * sizeof *o->centred);
        if (!o->centred) return rill__data_memory("the columns' scale");
    }
    return RILL_OK;
}

static rill_status find_factors(rill_trainer *t, bool scaled, bool centred) {
    rill__objective *o = &t->objective;
    bool std = !strcmp(t->options.scale, "std");
    size_t n = (size_t)o->features + 1;
    columns c = {0};
    rill_status status = open_columns(t, &c, std, scaled);
    if (scaled) o->factor = rill__vector(n, sizeof *o->factor);
    if (status == RILL_OK && scaled && !o->factor) status = rill__data_memory("the columns' scale");
    status = rill__data_agree(t->team.talk, status);
    if (status == RILL_OK) status = add_ranks(t, &c);
    for (uint64_t j = 0; scaled && status == RILL_OK && j < o->features; j++)
        o->factor[j] = o->bias >= 0 && j + 1 == o->features ? 1 : factor_of(t, &c, j, std);
    if (centred && status == RILL_OK) status = rill__data_agree(t->team.talk, centre(o, &c));
    rill_stream_free(&c.magnitudes);
    rill_stream_free(&c.sums);
    free(c.most);
    free(c.sum);
    free(c.count);
    return status;
}

/* What makes rows of length 1, by row number. Rows without a length stay as they are. */
static rill_status find_lengths(const rill_data_view *d, float **out) {
    float *by = *out = malloc(((size_t)d->rows + 1) * sizeof *by);
    if (!by) return rill__data_memory("the rows' lengths");
    for (uint64_t i = 0; i < d->rows; i++) {
        double square = rill__row_square(d, i);
        by[i] = square > 0 ? (float)(1 / sqrt(square)) : 1;
    }
    return RILL_OK;
}

static rill_status scale_rows(rill_trainer *t) {
    RILL_TRY_DATA(find_lengths(&t->objective.rows.data, &t->train_factor));
    t->objective.rows.factor = t->valid.factor = t->train_factor;
    if (!t->has_valid || t->valid_list) return RILL_OK;
    RILL_TRY_DATA(find_lengths(&t->valid.data, &t->valid_factor));
    t->valid.factor = t->valid_factor;
    return RILL_OK;
}

rill_status rill__train_scale(rill_trainer *t) {
    bool rows = !strcmp(t->options.scale, "rows");
    bool scaled = !rows && strcmp(t->options.scale, "none") != 0;
    RILL_TRY_DATA(rill__data_agree(t->team.talk, rows ? scale_rows(t) : RILL_OK));
    bool centred = t->options.intercept && t->solver->smooth && !t->solver->separate;
    return scaled || centred ? find_factors(t, scaled, centred) : RILL_OK;
}
