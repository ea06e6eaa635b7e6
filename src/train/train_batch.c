/* The gradient of a mini-batch as pairs.
 *
 * Idea: first each row's decision value and slope, then the rows are added into a dense vector that
 * is 0 between batches. An entry that is still 0 when something is added goes to a list, so that a
 * batch costs its non-zeros; taking the list down sets the vector back to 0, and an entry that came
 * to be listed twice, since it had cancelled in between, is 0 the second time and drops out.
 * Where weights must be worked out (rill__weights_read) this is done once per entry and batch, and
 * a bit per entry says whether it has been.
 * Threads share the rows in the first half, and the features in the second: every sum is made by
 * one thread in the order of the rows, so that its bits do not depend on their number.
 * Features' factors go into these weights, and into the pairs.
 * Memory: n floats; n floats and n bits more unless weights are scaled and there are no factors;
 * lists of the largest batch.
 * Cost: O(non-zeros * columns).
 */
#include "train/train_batch.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = 3 }; /* rows */

rill_status rill__batch_open(rill__batch *b, const rill__objective *o, const rill__weights *weights,
                             bool keep) {
    uint64_t n = weights->n;
    bool scaled = rill__weights_scaled(weights) && !o->factor;
    *b = (rill__batch){.keep = keep, .lists = rill__pool_threads(o->pool)};
    b->gradient = rill__vector_zeros(n + RILL_SLACK, sizeof *b->gradient);
    b->list = calloc((size_t)b->lists, sizeof *b->list);
    if (!scaled) {
        b->touched = calloc((size_t)(n / 64 + 1), sizeof *b->touched);
        b->now = rill__vector(n + 1, sizeof *b->now);
    }
    if (b->gradient && b->list && (scaled || (b->touched && b->now))) return RILL_OK;
    rill__batch_close(b);
    return rill__data_memory("the gradient");
}

void rill__batch_close(rill__batch *b) {
    for (int i = 0; b->list && i < b->lists; i++) {
        free(b->list[i].idx);
        free(b->list[i].value);
    }
    free(b->list);
    free(b->gradient);
    free(b->touched);
    free(b->now);
    free(b->z);
    free(b->loss_of);
    *b = (rill__batch){0};
}

uint64_t rill__batch_bytes(const rill__batch *b, uint64_t n) {
    if (!b->gradient) return 0;
    uint64_t bytes = n * sizeof(float) + (b->now ? n * sizeof(float) + n / 8 : 0);
    for (int i = 0; i < b->lists; i++)
        bytes += b->list[i].room * 8;
    return bytes + b->rows_room * 16;
}

static bool list_reserve(rill__batch_list *list, uint64_t more) {
    if (list->n + more <= list->room) return true;
    uint64_t room = list->n + more + (list->n + more) / 2;
    uint32_t *idx = realloc(list->idx, ((size_t)room + RILL_SLACK) * sizeof *idx);
    if (idx) list->idx = idx;
    float *value = realloc(list->value, ((size_t)room + RILL_SLACK) * sizeof *value);
    if (value) list->value = value;
    if (!idx || !value) return false;
    list->room = room;
    return true;
}

/* Rows come in a shuffled order, which no cache foresees: asks for the start of one to come
 * soon. */
static inline void foresee(const rill_data_view *data, uint64_t row) {
    const char *index = (const char *)(data->index32 + data->row[row]);
    const char *value = (const char *)(data->value + data->row[row]);
    uint64_t bytes = (data->row[row + 1] - data->row[row]) * 4;
    if (bytes > 512) bytes = 512; /* from there on it is a stream */
    for (uint64_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(index + at);
        __builtin_prefetch(value + at);
    }
}

/* ---- what threads do ------------------------------------------------------------------------ */

typedef struct batch_work {
    rill__batch *batch;
    const rill__objective *objective;
    const rill__weights *weights;
    const uint64_t *rows;
    uint64_t n;
    double weight;
    bool *failed; /* by thread */
} batch_work;

static void list_once(rill__batch *b, rill__batch_list *list, uint32_t j) {
    uint64_t bit = UINT64_C(1) << (j & 63);
    if (b->touched[j >> 6] & bit) return;
    b->touched[j >> 6] |= bit;
    list->idx[list->n++] = j;
}

/* Lists a thread's features of the rows and works out their weights. */
static void refresh(void *context, int thread, int threads) {
    (void)threads;
    const batch_work *work = context;
    const rill__objective *o = work->objective;
    rill__batch *b = work->batch;
    rill__batch_list *list = &b->list[thread];
    uint32_t columns = (uint32_t)o->columns;
    for (uint64_t i = 0; i < work->n; i++) {
        uint64_t first, last;
        rill__row_share(o, work->rows[i], thread, &first, &last);
        if (!list_reserve(list, (last - first + 1) * columns)) {
            work->failed[thread] = true;
            return;
        }
        for (uint64_t e = first; e < last; e++)
            for (uint32_t c = 0; c < columns; c++)
                list_once(b, list, o->rows.data.index32[e] * columns + c);
        for (uint32_t c = 0; rill__has_bias(o, thread) && c < columns; c++)
            list_once(b, list, (uint32_t)(o->features - 1) * columns + c);
    }
    for (uint64_t i = 0; i < list->n; i++) {
        uint32_t j = list->idx[i];
        b->now[j] = rill__weights_read(work->weights, j);
        if (o->factor) b->now[j] *= o->factor[j / columns];
    }
}

/* Slopes and losses of a thread's rows. */
static void look(void *context, int thread, int threads) {
    const batch_work *work = context;
    const rill__objective *o = work->objective;
    rill__batch *b = work->batch;
    const float *w = b->now ? b->now : work->weights->w;
    double scale = b->now ? 1 : work->weights->scale;
    uint64_t last = rill__pool_cut(work->n, thread + 1, threads);
    for (uint64_t i = rill__pool_cut(work->n, thread, threads); i < last; i++) {
        uint64_t row = work->rows[i];
        if (i + AHEAD < last) foresee(&o->rows.data, work->rows[i + AHEAD]);
        float target = o->rows.target[row];
        double factor = rill__row_weight(o, &o->rows, row), *z = b->z + i * (uint64_t)o->columns;
        rill__row_decide(o, &o->rows, row, w, z);
        for (int c = 0; c < o->columns; c++)
            z[c] *= scale;
        b->loss_of[i] = factor * rill__row_loss(o, target, z, z, NULL);
        for (int c = 0; c < o->columns; c++)
            z[c] *= work->weight * factor;
    }
}

/* A row's share of the gradient; listed: all its entries are in the list already. */
static bool add_row(const batch_work *work, uint64_t i, int thread, bool listed) {
    const rill__objective *o = work->objective;
    rill__batch *b = work->batch;
    rill__batch_list *list = &b->list[thread];
    const uint32_t *index = o->rows.data.index32;
    const float *value = o->rows.data.value;
    uint32_t columns = (uint32_t)o->columns;
    const double *slopes = b->z + i * columns;
    uint64_t first, last;
    float factor = rill__row_factor(&o->rows, work->rows[i]);
    rill__row_share(o, work->rows[i], thread, &first, &last);
    if (!listed && !list_reserve(list, (last - first + 1) * columns)) return false;
    bool has_bias = rill__has_bias(o, thread);
    uint32_t bias = (uint32_t)(o->features - 1) * columns;
    for (uint32_t c = 0; c < columns; c++) {
        float slope = (float)slopes[c], *gradient = b->gradient;
        if (slope == 0) continue;
        if (has_bias && !listed) {
            list->idx[list->n] = bias + c;
            list->n += gradient[bias + c] == 0;
        }
        if (has_bias) gradient[bias + c] += slope * (float)o->bias;
        slope *= factor;
        if (listed) {
            for (uint64_t e = first; e < last; e++)
                gradient[index[e] * columns + c] += slope * value[e];
            continue;
        }
        uint32_t *at = list->idx + list->n;
        for (uint64_t e = first; e < last; e++) {
            uint32_t j = index[e] * columns + c;
            float before = gradient[j];
            gradient[j] = before + slope * value[e];
            *at = j; /* without a branch: which entries are new is hard to foresee */
            at += before == 0;
        }
        list->n = (uint64_t)(at - list->idx);
    }
    return true;
}

/* Gives a thread's part of a gradient that is kept its factors. */
static void fold_kept(const batch_work *work, const rill__batch_list *list) {
    const rill__objective *o = work->objective;
    for (uint64_t i = 0; o->factor && i < list->n; i++) /* listed once: there are weights "now" */
        work->batch->gradient[list->idx[i]] *= o->factor[list->idx[i] / (uint32_t)o->columns];
}

/* Sums a thread's features over all rows, and takes its list down into pairs. Entries that were
 * only read, or cancelled, need not travel. */
static void sum(void *context, int thread, int threads) {
    (void)threads;
    const batch_work *work = context;
    rill__batch *b = work->batch;
    rill__batch_list *list = &b->list[thread];
    for (uint64_t i = 0; i < work->n && !work->failed[thread]; i++) {
        if (i + AHEAD < work->n) foresee(&work->objective->rows.data, work->rows[i + AHEAD]);
        work->failed[thread] = !add_row(work, i, thread, b->now != NULL);
    }
    if (b->keep) {
        fold_kept(work, list);
        return;
    }
    const float *factor = work->objective->factor;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < list->n; i++) {
        uint32_t j = list->idx[i];
        float value = b->gradient[j];
        if (factor) value *= factor[j / (uint32_t)work->objective->columns];
        b->gradient[j] = 0;
        if (b->touched) b->touched[j >> 6] = 0;
        list->idx[kept] = j;
        list->value[kept] = value;
        kept += value != 0;
    }
    list->n = kept;
}

/* ---- batches -------------------------------------------------------------------------------- */

/* All pairs into the first list. */
static bool join(rill__batch *b) {
    rill__batch_list *all = &b->list[0];
    uint64_t more = 0;
    for (int i = 1; i < b->lists; i++)
        more += b->list[i].n;
    if (!list_reserve(all, more)) return false;
    for (int i = 1; i < b->lists; i++) {
        rill__batch_list *list = &b->list[i];
        if (!list->n) continue;
        memcpy(all->idx + all->n, list->idx, (size_t)list->n * sizeof *list->idx);
        memcpy(all->value + all->n, list->value, (size_t)list->n * sizeof *list->value);
        all->n += list->n;
        list->n = 0;
    }
    b->n = all->n;
    b->idx = all->idx;
    b->value = all->value;
    return true;
}

static bool reserve_rows(rill__batch *b, uint64_t n, int columns) {
    if (n <= b->rows_room && b->z) return true;
    free(b->z);
    free(b->loss_of);
    b->z = malloc(((size_t)n + 1) * (size_t)columns * sizeof *b->z);
    b->loss_of = malloc(((size_t)n + 1) * sizeof *b->loss_of);
    b->rows_room = b->z && b->loss_of ? n : 0;
    return b->z && b->loss_of;
}

rill_status rill__batch_compute(rill__batch *b, const rill__objective *o,
                                const rill__weights *weights, const uint64_t *rows, uint64_t n,
                                double weight) {
    bool failed[RILL__MOST_THREADS] = {false};
    batch_work work = {b, o, weights, rows, n, weight, failed};
    if (!reserve_rows(b, n, o->columns)) return rill__data_memory("a batch");
    for (int i = 0; i < b->lists; i++)
        b->list[i].n = 0;
    if (b->now) rill__pool_run(o->pool, refresh, &work);
    rill__pool_run(o->pool, look, &work);
    b->loss = 0;
    for (uint64_t i = 0; i < n; i++)
        b->loss += b->loss_of[i];
    rill__pool_run(o->pool, sum, &work);
    bool any = !b->keep && !join(b);
    for (int i = 0; i < b->lists; i++)
        any |= failed[i];
    if (!any) return RILL_OK;
    rill__batch_clear(b); /* the next batch finds zeros */
    return rill__data_memory("a batch");
}

void rill__batch_clear(rill__batch *b) {
    for (int k = 0; b->keep && k < b->lists; k++)
        for (uint64_t i = 0; i < b->list[k].n; i++) {
            uint32_t j = b->list[k].idx[i];
            b->gradient[j] = 0;
            if (b->touched) b->touched[j >> 6] = 0;
        }
    b->n = 0;
}
