/* Logistic regression on news20-12gram: 1.17 million weights, rows of Euclidean norm 1, no bias. */
#include "model.h"

#include <math.h>
#include <rill/train.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static rill_dataset *train, *test;
static rill_data_view rows, test_rows;

static double score(const rill_data_view *data, uint64_t row, const float *weight) {
    double sum = 0;
    for (uint64_t i = data->row[row]; i < data->row[row + 1]; i++)
        sum += (double)data->value[i] * weight[data->index32[i]];
    return sum;
}

static void start(float *weight, uint64_t seed) {
    (void)seed; /* convex: any start will do */
    memset(weight, 0, rows.dim * sizeof *weight);
}

static void gradient(const float *weight, uint64_t n, const uint64_t *row, float *sum) {
    memset(sum, 0, rows.dim * sizeof *sum);
    for (uint64_t i = 0; i < n; i++) {
        double label = rows.label[row[i]];
        double slope = -label / (1 + exp(label * score(&rows, row[i], weight))) / (double)n;
        for (uint64_t j = rows.row[row[i]]; j < rows.row[row[i] + 1]; j++)
            sum[rows.index32[j]] += (float)slope * rows.value[j];
    }
}

static void measure(const float *weight, bool all, tally *t) {
    (void)all; /* cheap enough to take all rows */
    for (uint64_t i = 0; i < rows.rows; i++)
        t->loss += log1p(exp(-rows.label[i] * score(&rows, i, weight)));
    t->trained += (double)rows.rows;
    for (uint64_t i = 0; i < test_rows.rows; i++)
        t->right += test_rows.label[i] * score(&test_rows, i, weight) > 0;
    t->tested += (double)test_rows.rows;
}

static void unload(void) {
    rill_dataset_free(&train);
    rill_dataset_free(&test);
}

static rill_status load(MPI_Comm comm, const char *path, uint64_t dim, rill_dataset **data,
                        rill_data_view *view) {
    rill_data_options options = RILL_DATA_OPTIONS_INIT;
    options.base = 1;
    options.dim = dim;
    rill_status status = rill_dataset_load(comm, path, &options, data);
    if (!status && dim) status = rill_dataset_clip(*data, dim, NULL);
    if (!status) status = rill_dataset_normalize(*data);
    *view = (rill_data_view)RILL_DATA_VIEW_INIT;
    return status ? status : rill_dataset_view(*data, view);
}

/* Unpacked where it is there, for builds that read no xz. */
static void name_file(char *file, size_t size, const char *path, const char *part) {
    snprintf(file, size, "%s/news20-12gram.%s.svm", path, part);
    if (access(file, R_OK) != 0) snprintf(file, size, "%s/news20-12gram.%s.svm.xz", path, part);
}

bool model_logistic_load(MPI_Comm comm, const char *path, model *m, char reason[256]) {
    char file[4096];
    name_file(file, sizeof file, path, "train");
    rill_status status = load(comm, file, 0, &train, &rows);
    if (!status) {
        name_file(file, sizeof file, path, "test");
        status = load(comm, file, rows.dim, &test, &test_rows);
    }
    if (status) {
        snprintf(reason, 256, "%s", rill_last_error());
        unload();
        return false;
    }
    *m = (model){rows.dim, rows.rows, start, gradient, measure, unload};
    return true;
}
