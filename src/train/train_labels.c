/* Labels: which there are over all ranks, the weights of their classes, and what a row's label
 * means to the solvers.
 *
 * Two labels: the larger one is positive, and comes first, as LIBLINEAR's +1. More: ascending.
 * Regression: the label is the target.
 */
#include "core/text.h"
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_LABELS = 4096 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int unique(double *label, int n) {
    int kept = 0;
    qsort(label, (size_t)n, sizeof *label, ascending);
    for (int i = 0; i < n; i++)
        if (!kept || label[i] != label[kept - 1]) label[kept++] = label[i];
    return kept;
}

/* The different labels of this rank's rows; MOST_LABELS + 1 of them at most. */
static int local_labels(const rill__part_rows *rows, double *label) {
    int n = 0, room = 2 * MOST_LABELS;
    for (uint64_t i = 0; i < rows->n; i++) {
        double value = rows->data.label[rill__row_at(rows, i)];
        if (n && label[n - 1] == value) continue;
        if (n > 1 && label[n - 2] == value) continue; /* two labels in turn */
        label[n++] = value == 0 ? 0 : value;          /* -0 is 0 */
        if (n < room) continue;
        n = unique(label, n);
        if (n > MOST_LABELS) return MOST_LABELS + 1;
    }
    n = unique(label, n);
    return n > MOST_LABELS ? MOST_LABELS + 1 : n;
}

/* All ranks: the union of the lists. */
static rill_status gather_labels(rill_comm *comm, double *mine, int n, double **all, int *total) {
    int ranks = rill_comm_size(comm);
    uint64_t *counts = malloc((size_t)ranks * sizeof *counts);
    uint64_t bytes = (uint64_t)n * sizeof *mine, sum = 0;
    rill_status status = counts ? RILL_OK : rill__data_memory("labels");
    status = rill__data_agree(comm, status);
    if (status != RILL_OK || !counts) {
        free(counts);
        return status;
    }
    status = rill_comm_gather_bytes(comm, &bytes, sizeof bytes, counts);
    for (int r = 0; status == RILL_OK && r < ranks; r++)
        sum += counts[r];
    *total = (int)(sum / sizeof *mine);
    *all = malloc(((size_t)*total + 1) * sizeof **all);
    if (status == RILL_OK && !*all) status = rill__data_memory("labels");
    status = rill__data_agree(comm, status);
    if (status == RILL_OK) status = rill__gather_all(comm, mine, counts, *all);
    if (status == RILL_OK) *total = unique(*all, *total);
    free(counts);
    return status;
}

/* Whether rows of neighbouring labels are about as many, where not all are: numbers have a
 * distribution, which is smooth, and names have no order. (The ratio of the mean squared successive
 * difference to the variance is 2 without order, +- 0.36 of 31 labels: von Neumann, 1941.) */
static bool has_order(const double *rows, int n) {
    const double most = 0.8;
    double mean = 0, differences = 0, variance = 0;
    for (int i = 0; i < n; i++)
        mean += rows[i] / n;
    for (int i = 0; i < n; i++) {
        if (i) differences += (rows[i] - rows[i - 1]) * (rows[i] - rows[i - 1]);
        variance += (rows[i] - mean) * (rows[i] - mean);
    }
    return variance > n * mean && differences < most * variance; /* more than chance has */
}

/* Whether labels are numbers to be predicted, and not names of classes: some have a fraction, or
 * there are many and few rows have the same or their numbers of rows have an order, or there are
 * more than there can be classes. All ranks. */
static rill_status look_like_numbers(rill_comm *comm, const rill__part_rows *rows,
                                     const double *label, int n, bool *numbers) {
    const int most = 30;
    const double least_rows = 5;
    *numbers = n > 2;
    for (int i = 0; i < n; i++)
        if (label[i] != floor(label[i])) return RILL_OK;
    *numbers = n > MOST_LABELS;
    if (n <= most || *numbers) return RILL_OK;
    double *count = calloc((size_t)n, sizeof *count), total = 0;
    rill_status status = count ? RILL_OK : rill__data_memory("labels");
    status = rill__data_agree(comm, status);
    for (uint64_t i = 0; status == RILL_OK && i < rows->n; i++) {
        double value = rows->data.label[rill__row_at(rows, i)];
        const double *at = bsearch(&value, label, (size_t)n, sizeof value, ascending);
        count[at - label]++;
    }
    if (status == RILL_OK) status = rill__sum_f64(comm, count, n);
    for (int i = 0; status == RILL_OK && i < n; i++)
        total += count[i];
    *numbers = status == RILL_OK && (total < least_rows * n || has_order(count, n));
    free(count);
    return status;
}

/* *all: the caller's, also on failure. */
static rill_status find_labels(rill_comm *comm, const rill__part_rows *rows, double **all,
                               int *total) {
    double *mine = malloc((2 * MOST_LABELS + 2) * sizeof *mine);
    rill_status status = rill__data_agree(comm, mine ? RILL_OK : rill__data_memory("labels"));
    if (status == RILL_OK && mine)
        status = gather_labels(comm, mine, local_labels(rows, mine), all, total);
    free(mine);
    return status;
}

rill_status rill__labels_task(rill_comm *comm, const rill_data_view *data, const char **task) {
    rill__part_rows rows = {.data = *data, .n = data->rows};
    double *all = NULL;
    int total = 0;
    bool numbers = false;
    rill_status status = find_labels(comm, &rows, &all, &total);
    if (status == RILL_OK) status = look_like_numbers(comm, &rows, all, total, &numbers);
    free(all);
    *task = numbers ? "regress" : "classify";
    return status;
}

rill_status rill__train_labels(rill_trainer *t) {
    double *all = NULL;
    int total = 0;
    bool numbers = false;
    t->objective.columns = 1;
    t->objective.regression = t->options.task && !strcmp(t->options.task, "regress");
    if (t->objective.regression) return RILL_OK;
    rill_status status = find_labels(t->team.talk, &t->objective.rows, &all, &total);
    t->label = all;
    RILL_TRY_DATA(status);
    if (t->loss_open && !t->options.task)
        RILL_TRY_DATA(look_like_numbers(t->team.talk, &t->objective.rows, all, total, &numbers));
    if (numbers) t->objective.loss = rill__loss_find(t->options.loss = "squared");
    t->objective.regression = !t->options.task && t->objective.loss->regression && total > 2;
    if (t->objective.regression) return RILL_OK;
    if (total > MOST_LABELS)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "there are more than %d different labels: is this regression (loss "
                               "squared)?",
                               MOST_LABELS);
    if (total < 2)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "all rows have the label %g: there is nothing to learn", all[0]);
    t->objective.labels = total;
    if (total > 2) t->objective.columns = total;
    else {
        double swap = all[0];
        all[0] = all[1];
        all[1] = swap;
    }
    return RILL_OK;
}

static int find_label(const rill_trainer *t, double value) {
    if (t->objective.columns == 1) return value == t->label[0] ? 0 : value == t->label[1] ? 1 : -1;
    const double *at = bsearch(&value, t->label, (size_t)t->objective.labels, sizeof value,
                               ascending);
    return at ? (int)(at - t->label) : -1;
}

rill_status rill__train_targets(const rill_trainer *t, const rill_data_view *data, float **target) {
    *target = malloc(((size_t)data->rows + 1) * sizeof **target);
    if (!*target) return rill__data_memory("targets");
    for (uint64_t i = 0; i < data->rows; i++)
        /* A label that is in no train row (-1) is never predicted. */
        (*target)[i] = t->objective.regression ? (float)data->label[i]
                                               : (float)find_label(t, data->label[i]);
    return RILL_OK;
}

/* "label:weight,..." */
static rill_status parse_weights(rill_trainer *t, const char *text) {
    for (const char *p = text;;) {
        char *end;
        double label = rill__read_double(p, &end), weight;
        bool good = end != p && *end == ':';
        if (good) {
            p = end + 1;
            weight = rill__read_double(p, &end);
            good = end != p && (*end == ',' || !*end) && isfinite(weight) && weight >= 0;
        }
        if (!good)
            return rill__data_fail(RILL_ERR_ARGUMENT,
                                   "class_weights \"%s\" is neither \"balanced\" nor "
                                   "label:weight,... (at \"%s\")",
                                   text, p);
        int at = find_label(t, label);
        if (at < 0)
            return rill__data_fail(RILL_ERR_ARGUMENT,
                                   "class_weights \"%s\": no row has the label %g", text, label);
        t->objective.class_weight[at] = weight;
        if (!*end) return RILL_OK;
        p = end + 1;
    }
}

/* All 1, or as the text has it; with "balanced" the rows of each class on this rank. */
rill_status rill__train_weigh_alone(rill_trainer *t, const char *text) {
    if (t->objective.regression)
        return rill__data_fail(RILL_ERR_UNSUPPORTED, "class_weights \"%s\" in regression", text);
    t->objective.class_weight = malloc((size_t)t->objective.labels *
                                       sizeof *t->objective.class_weight);
    if (!t->objective.class_weight) return rill__data_memory("class weights");
    for (int c = 0; c < t->objective.labels; c++)
        t->objective.class_weight[c] = strcmp(text, "balanced") ? 1 : 0;
    if (strcmp(text, "balanced")) return parse_weights(t, text);
    for (uint64_t i = 0; i < t->objective.rows.n; i++)
        t->objective.class_weight[(int)t->train_target[rill__row_at(&t->objective.rows, i)]]++;
    return RILL_OK;
}

rill_status rill__train_weigh(rill_trainer *t) {
    const char *text = t->options.class_weights;
    RILL_TRY_DATA(
        rill__data_agree(t->team.talk, text ? rill__train_weigh_alone(t, text) : RILL_OK));
    if (!text || strcmp(text, "balanced")) return RILL_OK;
    RILL_TRY_DATA(
        rill__team_sum(&t->team, RILL_OK, t->objective.class_weight, t->objective.labels));
    for (int c = 0; c < t->objective.labels; c++)
        t->objective.class_weight[c] = (double)t->objective.total_rows /
                                       (t->objective.labels * t->objective.class_weight[c]);
    return RILL_OK;
}
