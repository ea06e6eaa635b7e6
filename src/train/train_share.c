/* How the threads of a rank share the features: in ranges of about the same number of entries. */
#include "train/train_internal.h"

#include <stdlib.h>

enum { SAMPLE = 1 << 15 }; /* entries that the ranges are found from */

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

rill_status rill__train_cut_features(rill_trainer *t) {
    int threads = rill__pool_threads(t->pool);
    const rill_data_view *d = &t->train.data;
    t->feature_cut = calloc((size_t)threads + 1, sizeof *t->feature_cut);
    uint32_t *sample = malloc(SAMPLE * sizeof *sample);
    if (!t->feature_cut || !sample) {
        free(sample);
        return rill__train_memory("threads");
    }
    uint64_t step = d->entries / SAMPLE + 1, n = 0;
    for (uint64_t e = 0; e < d->entries && n < SAMPLE; e += step)
        sample[n++] = d->index32[e];
    qsort(sample, (size_t)n, sizeof *sample, ascending);
    for (int i = 1; i < threads && n; i++) /* whole words of the batch's bits */
        t->feature_cut[i] = sample[rill__pool_cut(n, i, threads)] / 64 * 64;
    t->feature_cut[threads] = UINT64_MAX;
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

void rill__row_share(const rill_trainer *t, uint64_t row, int thread, uint64_t *first,
                     uint64_t *last) {
    const rill_data_view *d = &t->train.data;
    *first = d->row[row];
    *last = d->row[row + 1];
    if (!t->pool) return;
    *first = find(d->index32, *first, *last, t->feature_cut[thread]);
    *last = find(d->index32, *first, *last, t->feature_cut[thread + 1]);
}
