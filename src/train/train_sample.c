/* Rows to choose C by: of large data a sample, by the number of the row in the file, so that all
 * numbers of ranks try the same rows.
 *
 * Idea: each rank copies its part, and all get the whole, in the order of the file. Rows that the
 * options hold out are not in it.
 * Memory: twice the sample for a moment. Cost: a pass over the rows, an allgather of the sample.
 */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ROWS = 25000, MOST_ENTRIES = 1 << 21 };
enum { ARRAYS = 6 }; /* of a sample: places, indices, values, labels, weights, queries */

/* Whether a row is in the sample: neither held out by the options nor left out. */
static bool is_chosen(const rill_train_options *o, const rill_data_view *d, uint64_t i,
                      double share) {
    const uint64_t other = UINT64_C(0x5bd1e995); /* another draw than the options' split */
    if (o->folds && rill__row_in_fold(d, i, o->fold, o->folds, o->seed)) return false;
    if (o->valid_fraction > 0 && rill__row_held_out(d, i, o->valid_fraction, o->seed)) return false;
    return share >= 1 || rill__row_held_out(d, i, share, other);
}

static double sample_share(const rill_data_view *view, const rill_dataset *train) {
    rill_data_report report = RILL_DATA_REPORT_INIT;
    rill_dataset_report(train, &report);
    double share = MOST_ROWS / (double)(view->total_rows + 1);
    return fmin(share, MOST_ENTRIES / (double)(report.entries + 1));
}

/* This rank's part of the sample; its arrays are the caller's to free. */
static rill_status copy_sample(const rill_data_view *from, const rill_train_options *o,
                               double share, rill_data_view *to, void *arrays[ARRAYS]) {
    uint64_t rows = 0, entries = 0;
    for (uint64_t i = 0; i < from->rows; i++) {
        if (!is_chosen(o, from, i, share)) continue;
        rows++;
        entries += from->row[i + 1] - from->row[i];
    }
    uint64_t *row = arrays[0] = malloc(((size_t)rows + 1) * sizeof *row);
    uint32_t *index = arrays[1] = malloc(((size_t)entries + 1) * sizeof *index);
    float *value = arrays[2] = malloc(((size_t)entries + 1) * sizeof *value);
    double *label = arrays[3] = malloc(((size_t)rows + 1) * sizeof *label);
    float *weight = arrays[4] = malloc(((size_t)rows + 1) * sizeof *weight);
    int64_t *qid = arrays[5] = malloc(((size_t)rows + 1) * sizeof *qid);
    if (!row || !index || !value || !label || !weight || !qid)
        return rill__data_memory("rows to choose C by");
    row[0] = rows = entries = 0;
    for (uint64_t i = 0; i < from->rows; i++) {
        if (!is_chosen(o, from, i, share)) continue;
        uint64_t first = from->row[i], n = from->row[i + 1] - first;
        memcpy(index + entries, from->index32 + first, (size_t)n * sizeof *index);
        memcpy(value + entries, from->value + first, (size_t)n * sizeof *value);
        weight[rows] = from->weight ? from->weight[i] : 1;
        qid[rows] = from->qid ? from->qid[i] : RILL_NO_QID;
        label[rows++] = from->label[i];
        row[rows] = entries += n;
    }
    *to = (rill_data_view)RILL_DATA_VIEW_INIT;
    to->dim = from->dim;
    to->rows = rows;
    to->row = row;
    to->index32 = index;
    to->value = value;
    to->label = label;
    return RILL_OK;
}

/* All ranks: array becomes that of all, one after the other. counts: room for one of each rank. */
static rill_status gather(rill_comm *comm, void **array, uint64_t bytes, uint64_t *counts) {
    uint64_t total = 0;
    int ranks = rill_comm_size(comm);
    RILL_TRY_DATA(rill_comm_gather_bytes(comm, &bytes, sizeof bytes, counts));
    for (int r = 0; r < ranks; r++)
        total += counts[r];
    void *all = malloc((size_t)total + sizeof(uint64_t));
    rill_status status = rill__data_agree(comm,
                                          all ? RILL_OK : rill__data_memory("rows to choose C by"));
    if (status == RILL_OK) status = rill__gather_all(comm, *array, counts, all);
    if (status != RILL_OK) {
        free(all);
        return status;
    }
    free(*array);
    *array = all;
    return RILL_OK;
}

/* Every rank gets the whole sample, in the order of the file. */
static rill_status gather_sample(rill_comm *comm, rill_data_view *view, void *arrays[ARRAYS]) {
    uint64_t *counts = malloc((size_t)rill_comm_size(comm) * sizeof *counts);
    uint64_t *row = arrays[0], entries = row[view->rows], total = view->rows;
    for (uint64_t i = 0; i < view->rows; i++) /* lengths, and back to places */
        row[i] = row[i + 1] - row[i];
    rill_status status = rill__data_agree(comm, counts ? RILL_OK : rill__data_memory("counts"));
    if (status == RILL_OK) status = gather(comm, &arrays[0], view->rows * sizeof *row, counts);
    if (status == RILL_OK) status = gather(comm, &arrays[1], entries * sizeof(uint32_t), counts);
    if (status == RILL_OK) status = gather(comm, &arrays[2], entries * sizeof(float), counts);
    if (status == RILL_OK) status = gather(comm, &arrays[3], view->rows * sizeof(double), counts);
    if (status == RILL_OK) status = gather(comm, &arrays[4], view->rows * sizeof(float), counts);
    if (status == RILL_OK) status = gather(comm, &arrays[5], view->rows * sizeof(int64_t), counts);
    free(counts);
    if (status == RILL_OK) status = rill__sum_u64(comm, &total, 1);
    RILL_TRY_DATA(status);
    row = arrays[0];
    for (uint64_t i = 0, at = 0; i <= total; i++) {
        uint64_t length = i < total ? row[i] : 0;
        row[i] = at;
        at += length;
    }
    view->rows = total;
    view->row = row;
    view->index32 = arrays[1];
    view->value = arrays[2];
    view->label = arrays[3];
    view->weight = arrays[4];
    view->qid = arrays[5];
    return RILL_OK;
}

/* Features that no row of the sample has go: most of wide data, and weights of them cost passes. */
static rill_status compact(rill_data_view *view, uint32_t *index) {
    uint64_t entries = view->row[view->rows], used = 0;
    uint32_t *place = calloc((size_t)view->dim + 1, sizeof *place);
    if (!place) return rill__data_memory("rows to choose C by");
    for (uint64_t e = 0; e < entries; e++)
        place[index[e]] = 1;
    for (uint64_t j = 0; j < view->dim; j++)
        if (place[j]) place[j] = (uint32_t)used++;
    for (uint64_t e = 0; e < entries; e++)
        index[e] = place[index[e]];
    free(place);
    view->dim = used ? used : 1;
    return RILL_OK;
}

rill_status rill__train_sample(rill_comm *comm, rill_comm *alone, const rill_dataset *train,
                               const rill_train_options *o, rill_dataset **out) {
    rill_data_view from = RILL_DATA_VIEW_INIT, to = RILL_DATA_VIEW_INIT;
    void *arrays[ARRAYS] = {NULL};
    RILL_TRY_DATA(rill_dataset_view(train, &from));
    rill_status status = copy_sample(&from, o, sample_share(&from, train), &to, arrays);
    status = rill__data_agree(comm, status);
    if (status == RILL_OK) status = gather_sample(comm, &to, arrays);
    if (status == RILL_OK) status = rill__data_agree(comm, compact(&to, arrays[1]));
    if (status == RILL_OK) status = rill__data_agree(comm, rill_dataset_create_on(alone, &to, out));
    for (int i = 0; i < ARRAYS; i++)
        free(arrays[i]);
    return status;
}
