/* What one does with a data set once it is there: views, feature hashing, normalisation, clipping,
 * the split for validation and the order of an epoch. All local; what depends on chance depends on
 * seeds and global row numbers, through a counter-based generator, so that the number of ranks does
 * not matter where it need not. */
#include "train/data_internal.h"
#include "train/data_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

rill_status rill_dataset_free(rill_dataset **set) {
    if (!set || !*set) return RILL_OK;
    rill__rows_free(&(*set)->rows);
    free((*set)->weight);
    for (int i = 0; i < RILL__SPOOLS; i++)
        rill__spool_close(&(*set)->spool[i]);
    if ((*set)->map) munmap((*set)->map, (*set)->map_bytes);
    free(*set);
    *set = NULL;
    return RILL_OK;
}

static rill_status null_argument(const char *call, const char *name) {
    return rill__data_fail(RILL_ERR_ARGUMENT, "%s: %s is NULL", call, name);
}

rill_status rill_dataset_report(const rill_dataset *set, rill_data_report *report) {
    if (!set || !report) return null_argument("rill_dataset_report", set ? "report" : "set");
    if (report->size < sizeof(size_t) || report->size > sizeof *report)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_report: report.size = %zu",
                               report->size);
    rill_data_report full = set->report;
    full.size = report->size;
    full.memory_bytes = sizeof *set + rill__rows_bytes(&set->rows);
    if (set->weight) full.memory_bytes += set->rows.rows * sizeof *set->weight;
    if (set->map) full.mapped_bytes = set->rows.entries * sizeof(float);
    for (int i = 0; i < RILL__SPOOLS; i++)
        full.mapped_bytes += set->spool[i].bytes;
    if (full.peak_bytes < full.memory_bytes) full.peak_bytes = full.memory_bytes;
    memcpy(report, &full, report->size);
    return RILL_OK;
}

rill_status rill_dataset_view(const rill_dataset *set, rill_data_view *view) {
    if (!set || !view) return null_argument("rill_dataset_view", set ? "view" : "set");
    if (view->size < sizeof(size_t) || view->size > sizeof *view)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_view: view.size = %zu", view->size);
    const rill__rows *rows = &set->rows;
    rill_data_view full = {.size = view->size,
                           .dim = set->dim,
                           .rows = rows->rows,
                           .entries = rows->entries,
                           .first_row = set->first_row,
                           .total_rows = set->total_rows,
                           .row = rows->start,
                           .index32 = rows->wide ? NULL : rows->index,
                           .index64 = rows->wide ? rows->index : NULL,
                           .value = rows->value,
                           .label = rows->label,
                           .qid = rows->qid,
                           .weight = set->weight};
    memcpy(view, &full, view->size);
    return RILL_OK;
}

/* ---- from arrays ---------------------------------------------------------------------------- */

static rill_status check_view(const rill_data_view *view) {
    static const char call[] = "rill_dataset_create";
    if (!view) return null_argument(call, "view");
    if (view->size < offsetof(rill_data_view, qid) || view->size > sizeof *view)
        return rill__data_fail(RILL_ERR_ARGUMENT, "%s: view.size = %zu", call, view->size);
    if (!view->rows) return RILL_OK;
    if (!view->row || !view->label) return null_argument(call, view->row ? "label" : "row");
    if (view->row[0]) return rill__data_fail(RILL_ERR_ARGUMENT, "%s: row[0] is not 0", call);
    for (uint64_t i = 0; i < view->rows; i++) {
        if (view->row[i + 1] < view->row[i])
            return rill__data_fail(RILL_ERR_ARGUMENT, "%s: row[%llu] descends", call,
                                   (unsigned long long)(i + 1));
        if (!isfinite(view->label[i]))
            return rill__data_fail(RILL_ERR_ARGUMENT, "%s: label[%llu] is not finite", call,
                                   (unsigned long long)i);
    }
    if (!view->row[view->rows]) return RILL_OK;
    if (!view->value) return null_argument(call, "value");
    if (!view->index32 == !view->index64)
        return rill__data_fail(RILL_ERR_ARGUMENT, "%s: one of index32 and index64 must be given",
                               call);
    for (uint64_t i = 0; i < view->rows; i++)
        for (uint64_t j = view->row[i]; j < view->row[i + 1]; j++) {
            uint64_t index = view->index32 ? view->index32[j] : view->index64[j];
            uint64_t before = j == view->row[i] ? 0
                              : view->index32   ? view->index32[j - 1]
                                                : view->index64[j - 1];
            if (index >= RILL__INDEX_LIMIT || (j > view->row[i] && index <= before))
                return rill__data_fail(RILL_ERR_ARGUMENT,
                                       "%s: row %llu: index %llu is too large or not ascending",
                                       call, (unsigned long long)i, (unsigned long long)index);
            if (!isfinite(view->value[j]))
                return rill__data_fail(RILL_ERR_ARGUMENT, "%s: value[%llu] is not finite", call,
                                       (unsigned long long)j);
        }
    return RILL_OK;
}

/* sums: dimension, rows of all ranks, rows of lower ranks, entries of all. */
static rill_status place(rill_comm *comm, rill_dataset *set) {
    uint64_t sums[2] = {set->rows.rows, set->rows.entries};
    RILL_TRY_DATA(rill__most_u64(comm, &set->dim, 1));
    RILL_TRY_DATA(rill__sum_before(comm, set->rows.rows, &set->first_row));
    RILL_TRY_DATA(rill__sum_u64(comm, sums, 2));
    set->total_rows = set->report.rows = sums[0];
    set->report.entries = sums[1];
    if (!set->dim) set->dim = 1;
    return RILL_OK;
}

static rill_status copy_rows(const rill_data_view *view, rill_dataset *set) {
    rill__rows *rows = &set->rows;
    uint64_t entries = view->rows ? view->row[view->rows] : 0;
    rows->wide = set->dim > RILL__NARROW_DIM;
    RILL_TRY_DATA(rill__rows_reserve(rows, view->rows, entries));
    for (uint64_t j = 0; j < entries; j++) {
        rill__rows_set_index(rows, j, view->index32 ? view->index32[j] : view->index64[j]);
        rows->value[j] = view->value[j];
    }
    for (uint64_t i = 0; i < view->rows; i++) {
        rows->start[i + 1] = view->row[i + 1];
        rows->label[i] = view->label[i];
        rows->rows = i;
        if (view->qid) RILL_TRY_DATA(rill__rows_set_qid(rows, view->qid[i]));
    }
    rows->rows = view->rows;
    rows->entries = entries;
    rill__rows_trim(rows);
    return RILL_OK;
}

/* The given one may be of an earlier version, and shorter. */
static const rill_data_view *whole_view(const rill_data_view *given, rill_data_view *whole) {
    if (!given || given->size < sizeof(size_t) || given->size >= sizeof *whole) return given;
    *whole = (rill_data_view)RILL_DATA_VIEW_INIT;
    memcpy(whole, given, given->size);
    return whole;
}

rill_status rill_dataset_create_on(rill_comm *comm, const rill_data_view *given,
                                   rill_dataset **out) {
    if (out) *out = NULL;
    rill_data_view whole;
    const rill_data_view *view = whole_view(given, &whole);
    rill_dataset *set = calloc(1, sizeof *set);
    rill_status status = out ? check_view(view) : null_argument("rill_dataset_create", "out");
    if (!set) status = rill__data_fail(RILL_ERR_MEMORY, "out of memory: a data set");
    status = rill__data_agree(comm, status);
    if (status == RILL_OK) {
        set->report = (rill_data_report)RILL_DATA_REPORT_INIT;
        set->report.format = "arrays";
        set->dim = view->dim;
        for (uint64_t i = 0; i < view->rows; i++) {
            uint64_t end = view->row[i + 1];
            if (end == view->row[i]) continue;
            uint64_t last = view->index32 ? view->index32[end - 1] : view->index64[end - 1];
            if (last >= set->dim) set->dim = last + 1;
        }
        set->rows.rows = view->rows; /* place sums them up */
        set->rows.entries = view->rows ? view->row[view->rows] : 0;
        status = place(comm, set);
        set->rows.rows = set->rows.entries = 0;
    }
    if (status == RILL_OK) {
        status = copy_rows(view, set);
        if (status == RILL_OK && view->weight) status = rill__dataset_weigh(set, view->weight);
        status = rill__data_agree(comm, status);
    }
    if (status == RILL_OK) *out = set;
    else rill_dataset_free(&set);
    return status;
}

/* ---- transformations ------------------------------------------------------------------------ */

/* Mixes all bits (the finaliser of SplitMix64). */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* Rows in files stay as they are. */
static rill_status check_here(const rill_dataset *set, const char *call) {
    if (!set->rows.mapped) return RILL_OK;
    return rill__data_fail(RILL_ERR_UNSUPPORTED,
                           "%s: the rows are in files: hash and normalize when they are loaded",
                           call);
}

rill_status rill_dataset_hash(rill_dataset *set, int bits, uint64_t seed) {
    if (!set) return null_argument("rill_dataset_hash", "set");
    RILL_TRY_DATA(check_here(set, "rill_dataset_hash"));
    if (bits < 1 || bits > 32)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_hash: bits = %d is not 1 to 32",
                               bits);
    rill__rows *rows = &set->rows;
    uint64_t salt = mix(seed + UINT64_C(0x9E3779B97F4A7C15)), longest = 0, out = 0, from = 0;
    for (uint64_t i = 0; i < rows->rows; i++)
        if (rows->start[i + 1] - rows->start[i] > longest)
            longest = rows->start[i + 1] - rows->start[i];
    RILL_TRY_DATA(rill__rows_scratch(rows, longest));
    /* Rows never grow, so that they move down in place. */
    for (uint64_t i = 0; i < rows->rows; i++) {
        uint64_t end = rows->start[i + 1];
        float *value = rill__rows_scratch_value(rows);
        for (uint64_t j = from; j < end; j++) {
            uint64_t h = mix((rill__rows_index(rows, j) + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ salt);
            rows->key[j - from] = h >> (64 - bits);
            value[j - from] = h & 1 ? -rows->value[j] : rows->value[j];
        }
        out += rill__rows_merge(rows, (size_t)(end - from), out);
        from = end;
        rows->start[i + 1] = out;
    }
    rows->entries = out;
    set->dim = UINT64_C(1) << bits;
    rill__rows_narrow(rows);
    return RILL_OK;
}

rill_status rill_dataset_normalize(rill_dataset *set) {
    if (!set) return null_argument("rill_dataset_normalize", "set");
    RILL_TRY_DATA(check_here(set, "rill_dataset_normalize"));
    const rill__rows *rows = &set->rows;
    for (uint64_t i = 0; i < rows->rows; i++) {
        double sum = 0;
        for (uint64_t j = rows->start[i]; j < rows->start[i + 1]; j++)
            sum += (double)rows->value[j] * rows->value[j];
        if (!(sum > 0)) continue;
        double norm = sqrt(sum);
        for (uint64_t j = rows->start[i]; j < rows->start[i + 1]; j++)
            rows->value[j] = (float)(rows->value[j] / norm);
    }
    return RILL_OK;
}

rill_status rill_dataset_clip(rill_dataset *set, uint64_t dim, uint64_t *dropped) {
    if (!set) return null_argument("rill_dataset_clip", "set");
    RILL_TRY_DATA(check_here(set, "rill_dataset_clip"));
    if (!dim) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_clip: dim is 0");
    rill__rows *rows = &set->rows;
    uint64_t out = 0, from = 0;
    for (uint64_t i = 0; i < rows->rows; i++) {
        uint64_t end = rows->start[i + 1];
        for (uint64_t j = from; j < end && rill__rows_index(rows, j) < dim; j++, out++) {
            if (out == j) continue;
            rill__rows_set_index(rows, out, rill__rows_index(rows, j));
            rows->value[out] = rows->value[j];
        }
        from = end;
        rows->start[i + 1] = out;
    }
    if (dropped) *dropped = rows->entries - out;
    rows->entries = out;
    if (dim < set->dim) set->dim = dim;
    if (set->dim <= RILL__NARROW_DIM) rill__rows_narrow(rows);
    return RILL_OK;
}

/* ---- split and order ------------------------------------------------------------------------ */

enum { STREAM_SPLIT = 1, STREAM_SHUFFLE = 2, STREAM_FOLD = 3 };

int rill_row_is_held_out(uint64_t global_row, double fraction, uint64_t seed) {
    uint64_t draw[2];
    rill__random(seed, STREAM_SPLIT, global_row, 0, draw);
    return (double)(draw[0] >> 11) * 0x1p-53 < fraction;
}

bool rill__row_held_out(const rill_data_view *d, uint64_t row, double fraction, uint64_t seed) {
    bool query = d->qid && d->qid[row] != RILL_NO_QID;
    return rill_row_is_held_out(query ? (uint64_t)d->qid[row] : d->first_row + row, fraction, seed);
}

/* A permutation of [0, n): four rounds of Feistel on an even number of bits, repeated until the
 * result is below n, which it soon is. */
static uint64_t permute(uint64_t x, uint64_t n, uint64_t seed) {
    unsigned half = 1;
    while (half < 32 && (UINT64_C(1) << 2 * half) < n)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t left = x >> half, right = x & mask, draw[2];
            rill__random(seed, STREAM_FOLD, right, round, draw);
            x = right << half | ((left ^ draw[0]) & mask);
        }
    while (x >= n);
    return x;
}

bool rill__row_in_fold(const rill_data_view *d, uint64_t row, int fold, int folds, uint64_t seed) {
    uint64_t draw[2];
    if (!d->qid || d->qid[row] == RILL_NO_QID)
        return permute(d->first_row + row, d->total_rows, seed) % (uint64_t)folds == (uint64_t)fold;
    rill__random(seed, STREAM_FOLD, (uint64_t)d->qid[row], 4, draw);
    return draw[0] % (uint64_t)folds == (uint64_t)fold;
}

rill_status rill_dataset_fold(const rill_dataset *set, int fold, int folds, uint64_t seed,
                              uint64_t *list, uint64_t *n) {
    rill_data_view view = RILL_DATA_VIEW_INIT;
    if (!set || !list || !n) return null_argument("rill_dataset_fold", set ? "an array" : "set");
    if (folds < 2 || fold < 0 || fold >= folds)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_fold: fold %d of %d", fold, folds);
    RILL_TRY_DATA(rill_dataset_view(set, &view));
    *n = 0;
    for (uint64_t i = 0; i < view.rows; i++)
        if (rill__row_in_fold(&view, i, fold, folds, seed)) list[(*n)++] = i;
    return RILL_OK;
}

rill_status rill_dataset_split(const rill_dataset *set, double fraction, uint64_t seed,
                               uint64_t *train, uint64_t *train_rows, uint64_t *held_out,
                               uint64_t *held_out_rows) {
    if (!set || !train || !train_rows)
        return null_argument("rill_dataset_split", !set ? "set" : !train ? "train" : "train_rows");
    if (!(fraction >= 0 && fraction <= 1))
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_dataset_split: fraction = %g is not in [0, 1]", fraction);
    if (fraction > 0 && !held_out) return null_argument("rill_dataset_split", "held_out");
    uint64_t n = 0, m = 0;
    rill_data_view view = RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(set, &view));
    for (uint64_t i = 0; i < set->rows.rows; i++)
        if (fraction > 0 && rill__row_held_out(&view, i, fraction, seed)) held_out[m++] = i;
        else train[n++] = i;
    *train_rows = n;
    if (held_out_rows) *held_out_rows = m;
    return RILL_OK;
}

static void shuffle_some(uint64_t stream, uint64_t seed, uint64_t epoch, uint64_t *list,
                         uint64_t n) {
    uint64_t draw[2];
    for (uint64_t i = n; i > 1; i--) { /* Fisher-Yates; one draw serves two steps */
        uint64_t step = n - i;
        if (!(step & 1)) rill__random(seed, stream, epoch, step / 2, draw);
        uint64_t j = (uint64_t)((unsigned __int128)draw[step & 1] * i >> 64), kept = list[i - 1];
        list[i - 1] = list[j];
        list[j] = kept;
    }
}

rill_status rill__dataset_shuffle(const rill_dataset *set, uint64_t seed, uint64_t epoch,
                                  uint64_t window, uint64_t *list, uint64_t n) {
    if (!window || window >= n) window = n;
    for (uint64_t at = 0, number = 0; at < n; at += window, number++) {
        uint64_t left = n - at < window ? n - at : window;
        shuffle_some(mix(set->first_row) ^ STREAM_SHUFFLE ^ (number << 32), seed, epoch, list + at,
                     left);
    }
    return RILL_OK;
}

rill_status rill_dataset_shuffle(const rill_dataset *set, uint64_t seed, uint64_t epoch,
                                 uint64_t *list, uint64_t n) {
    if (!set || (!list && n)) return null_argument("rill_dataset_shuffle", set ? "list" : "set");
    return rill__dataset_shuffle(set, seed, epoch, 0, list, n);
}
