/* The gradient of a mini-batch as pairs.
 *
 * Idea: rows are added into a dense vector that is 0 between batches; a bit per entry says whether
 * the batch has met it, and those it has met are listed, so that a batch costs its non-zeros.
 * Where weights must be worked out (rill__weights_read) this is done once per entry and batch.
 * Memory: n floats and n bits, n floats more unless weights are scaled; the list grows to the
 * largest batch. Cost: O(non-zeros * columns).
 */
#include "opt/train_internal.h"

#include <stdlib.h>

rill_status rill__batch_open(rill__batch *b, const rill__weights *weights) {
    *b = (rill__batch){0};
    uint64_t n = weights->n;
    b->gradient = calloc((size_t)n + RILL_SLACK, sizeof *b->gradient);
    b->touched = calloc((size_t)(n / 64 + 1), sizeof *b->touched);
    if (!rill__weights_scaled(weights)) b->now = malloc(((size_t)n + 1) * sizeof *b->now);
    if (!b->gradient || !b->touched || (!b->now && !rill__weights_scaled(weights))) {
        rill__batch_close(b);
        return rill__train_memory("the gradient");
    }
    return RILL_OK;
}

void rill__batch_close(rill__batch *b) {
    free(b->idx);
    free(b->value);
    free(b->gradient);
    free(b->touched);
    free(b->now);
    *b = (rill__batch){0};
}

uint64_t rill__batch_bytes(const rill__batch *b, uint64_t n) {
    if (!b->gradient) return 0;
    return n * sizeof(float) * (1u + !!b->now) + n / 8 + b->room * 8;
}

/* Room for the entries that the rows can have at most. */
static rill_status reserve(rill__batch *b, const rill_trainer *t, const uint64_t *rows,
                           uint64_t n) {
    uint64_t most = 0;
    for (uint64_t i = 0; i < n; i++)
        most += t->train.data.row[rows[i] + 1] - t->train.data.row[rows[i]];
    most *= (uint64_t)t->columns;
    if (most > t->n) most = t->n;
    if (most <= b->room) return RILL_OK;
    uint64_t room = most + most / 4;
    uint32_t *idx = realloc(b->idx, ((size_t)room + RILL_SLACK) * sizeof *idx);
    if (idx) b->idx = idx;
    float *value = realloc(b->value, ((size_t)room + RILL_SLACK) * sizeof *value);
    if (value) b->value = value;
    if (!idx || !value) return rill__train_memory("a batch");
    b->room = room;
    return RILL_OK;
}

static inline void touch(rill__batch *b, uint32_t j) {
    uint64_t bit = UINT64_C(1) << (j & 63);
    if (b->touched[j >> 6] & bit) return;
    b->touched[j >> 6] |= bit;
    b->idx[b->n++] = j;
}

/* Works out the weights of the rows' entries; all count as met then. */
static void refresh(rill__batch *b, const rill_trainer *t, const uint64_t *rows, uint64_t n) {
    const rill_data_view *data = &t->train.data;
    uint32_t columns = (uint32_t)t->columns;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t e = data->row[rows[i]]; e < data->row[rows[i] + 1]; e++)
            for (uint32_t c = 0; c < columns; c++)
                touch(b, data->index32[e] * columns + c);
    for (uint64_t i = 0; i < b->n; i++)
        b->now[b->idx[i]] = rill__weights_read(&t->weights, b->idx[i]);
}

static void add_row(rill__batch *b, const rill_data_view *data, uint64_t row, int columns,
                    int column, float slope) {
    const uint32_t *index = data->index32;
    for (uint64_t e = data->row[row]; e < data->row[row + 1]; e++) {
        uint32_t j = index[e] * (uint32_t)columns + (uint32_t)column;
        b->gradient[j] += slope * data->value[e];
        touch(b, j);
    }
}

void rill__row_decide(const rill_data_view *data, uint64_t row, const float *w, int columns,
                      double *z) {
    const uint32_t *index = data->index32;
    const float *value = data->value;
    uint64_t first = data->row[row], last = data->row[row + 1];
    if (columns == 1) { /* two sums, so that one addition need not wait for the other */
        double even = 0, odd = 0;
        uint64_t e = first;
        for (; e + 1 < last; e += 2) {
            even += (double)w[index[e]] * value[e];
            odd += (double)w[index[e + 1]] * value[e + 1];
        }
        if (e < last) even += (double)w[index[e]] * value[e];
        z[0] = even + odd;
        return;
    }
    memset(z, 0, (size_t)columns * sizeof *z);
    for (uint64_t e = first; e < last; e++)
        for (int c = 0; c < columns; c++)
            z[c] += (double)w[(uint64_t)index[e] * (uint64_t)columns + (uint64_t)c] * value[e];
}

/* Entries that were only read, or cancelled, need not travel. */
static void drop_zeros(rill__batch *b) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < b->n; i++) {
        uint32_t j = b->idx[i];
        if (b->gradient[j] != 0) {
            b->idx[kept] = j;
            b->value[kept++] = b->gradient[j];
        } else b->touched[j >> 6] &= ~(UINT64_C(1) << (j & 63));
    }
    b->n = kept;
}

rill_status rill__batch_compute(rill__batch *b, const rill_trainer *t, const uint64_t *rows,
                                uint64_t n, double weight) {
    RILL_TRY_DATA(reserve(b, t, rows, n));
    double one[1], *z = one;
    if (t->columns > 1 && !(z = malloc((size_t)t->columns * sizeof *z)))
        return rill__train_memory("decision values");
    const float *w = t->weights.w;
    double scale = t->weights.scale;
    b->loss = 0;
    if (b->now) {
        refresh(b, t, rows, n);
        w = b->now;
        scale = 1;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row = rows[i];
        float target = t->train_target[row];
        double factor = rill__row_weight(t, target);
        rill__row_decide(&t->train.data, row, w, t->columns, z);
        for (int c = 0; c < t->columns; c++) {
            double y = rill__row_y(t, target, c), at = scale * z[c];
            b->loss += factor * t->loss->value(at, y);
            double slope = t->loss->slope(at, y);
            if (slope != 0)
                add_row(b, &t->train.data, row, t->columns, c, (float)(weight * factor * slope));
        }
    }
    drop_zeros(b);
    if (z != one) free(z);
    return RILL_OK;
}

void rill__batch_clear(rill__batch *b) {
    for (uint64_t i = 0; i < b->n; i++) {
        b->gradient[b->idx[i]] = 0;
        b->touched[b->idx[i] >> 6] = 0;
    }
    b->n = 0;
}
