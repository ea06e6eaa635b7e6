/* What each row counts. A file of weights is read as one of data with labels alone: so it may be
 * compressed, and what is wrong with it is told as of data. */
#include "train/data_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static rill_status bad_weight(uint64_t row, double weight) {
    return rill__data_fail(RILL_ERR_ARGUMENT,
                           "the weight of row %llu is %g: it must be a number of at least 0",
                           (unsigned long long)row + 1, weight);
}

static rill_status room(const rill_dataset *set, float **weight) {
    *weight = malloc(((size_t)set->rows.rows + 1) * sizeof **weight);
    return *weight ? RILL_OK : rill__data_memory("weights of rows");
}

rill_status rill__dataset_weigh(rill_dataset *set, const float *given) {
    float *weight;
    for (uint64_t i = 0; i < set->rows.rows; i++)
        if (!(given[i] >= 0) || !isfinite(given[i]))
            return bad_weight(set->first_row + i, given[i]);
    RILL_TRY_DATA(room(set, &weight));
    memcpy(weight, given, (size_t)set->rows.rows * sizeof *weight);
    free(set->weight);
    set->weight = weight;
    return RILL_OK;
}

/* As floats, in room of their own. */
static rill_status copy_weights(const rill_dataset *set, const double *given, float **weight) {
    for (uint64_t i = 0; i < set->rows.rows; i++)
        if (!(given[i] >= 0) || !isfinite((float)given[i]))
            return bad_weight(set->first_row + i, given[i]);
    RILL_TRY_DATA(room(set, weight));
    for (uint64_t i = 0; i < set->rows.rows; i++)
        (*weight)[i] = (float)given[i];
    return RILL_OK;
}

rill_status rill_dataset_set_weights(rill_dataset *set, const double *given) {
    float *weight = NULL;
    if (!set) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_set_weights: set is NULL");
    if (given) RILL_TRY_DATA(copy_weights(set, given, &weight));
    free(set->weight);
    set->weight = weight;
    return RILL_OK;
}

/* Each rank reads the file by itself, and keeps what is its own. */
static rill_status load_alone(const rill_dataset *set, const char *path, float **weight) {
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *alone = NULL;
    rill_dataset *file = NULL;
    if (!set || !path)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_load_weights: %s is NULL",
                               set ? "path" : "set");
    config.check = 0;
    RILL_TRY_DATA(rill_comm_create_local(1, &config, &alone));
    rill_status status = rill_dataset_load_on(alone, path, NULL, &file);
    rill_comm_free(&alone);
    RILL_TRY_DATA(status);
    const rill__rows *lines = &file->rows;
    if (lines->rows != set->total_rows)
        status = rill__data_fail(RILL_ERR_IO, "%s: has %llu weights, the data have %llu rows", path,
                                 (unsigned long long)lines->rows,
                                 (unsigned long long)set->total_rows);
    else if (lines->entries || lines->qid)
        status = rill__data_fail(RILL_ERR_IO,
                                 "%s: is not a file of weights, one number a line: it has features",
                                 path);
    else status = copy_weights(set, lines->label + set->first_row, weight);
    if (status == RILL_ERR_ARGUMENT) {
        char detail[512];
        snprintf(detail, sizeof detail, "%s", rill_last_error());
        status = rill__data_fail(RILL_ERR_IO, "%s: %s", path, detail);
    }
    rill_dataset_free(&file);
    return status;
}

/* All ranks have them, or none. */
rill_status rill_dataset_load_weights_on(rill_comm *comm, rill_dataset *set, const char *path) {
    float *weight = NULL;
    rill_status status = rill__data_agree(comm, load_alone(set, path, &weight));
    if (status != RILL_OK) {
        free(weight);
        return status;
    }
    free(set->weight);
    set->weight = weight;
    return RILL_OK;
}
