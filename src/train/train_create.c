/* A trainer comes and goes: options, data, labels, weights, solver. */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

rill_status rill__train_agree(rill_trainer *t, rill_status mine) {
    if (t->told) return mine;
    rill_status status = rill__data_agree(t->mpi, mine);
    t->told = status != RILL_OK;
    return status;
}

/* A call without an input is refused where it is made, and all others of that number are ended. */
void rill__train_refuse(rill_trainer *t, int calls) {
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    for (int i = 0; t->comm && !t->told && i < calls; i++) {
        rill_request *request = NULL;
        rill_error_set(RILL_OK, detail); /* what the others hear */
        rill_iallreduce(t->comm, NULL, NULL, RILL_SUM, NULL, &request);
    }
    rill_error_set(RILL_ERR_STATE, detail);
}

void rill__train_recover(rill_trainer *t) {
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    rill_comm_free(&t->comm);
    rill__weights_share(&t->weights, t->mpi);
    rill_error_set(RILL_ERR_STATE, detail);
}

rill_status rill__train_sum(rill_trainer *t, rill_status mine, double *values, int n) {
    RILL_TRY_DATA(rill__train_agree(t, mine));
    if (MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, MPI_SUM, t->mpi) != MPI_SUCCESS)
        return rill__data_fail(RILL_ERR_MPI, "MPI_Allreduce failed");
    return RILL_OK;
}

/* A copy of the data in which every row ends with one more feature. */
static rill_status add_bias(MPI_Comm comm, const rill_dataset *set, uint64_t feature, double bias,
                            rill_dataset **out) {
    rill_data_view from = RILL_DATA_VIEW_INIT, to = RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(set, &from));
    size_t entries = (size_t)(from.entries + from.rows);
    uint64_t *row = malloc(((size_t)from.rows + 1) * sizeof *row);
    uint32_t *index = malloc((entries + 1) * sizeof *index);
    float *value = malloc((entries + 1) * sizeof *value);
    rill_status status = row && index && value ? RILL_OK : rill__train_memory("the bias feature");
    status = rill__data_agree(comm, status);
    if (status == RILL_OK) {
        uint64_t at = 0;
        row[0] = 0;
        for (uint64_t i = 0; i < from.rows; i++) {
            for (uint64_t e = from.row[i]; e < from.row[i + 1]; e++, at++) {
                index[at] = from.index32[e];
                value[at] = from.value[e];
            }
            index[at] = (uint32_t)feature;
            value[at++] = (float)bias;
            row[i + 1] = at;
        }
        to.dim = feature + 1;
        to.rows = from.rows;
        to.row = row;
        to.index32 = index;
        to.value = value;
        to.label = from.label;
        status = rill_dataset_create(comm, &to, out);
    }
    free(row);
    free(index);
    free(value);
    return status;
}

/* Views, dimension, the bias. */
static rill_status take_data(rill_trainer *t, const rill_dataset *train,
                             const rill_dataset *valid) {
    rill_data_view view = RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(train, &view));
    t->features = view.dim;
    if (valid) {
        RILL_TRY_DATA(rill_dataset_view(valid, &view));
        if (view.dim > t->features) t->features = view.dim;
    }
    if (t->features >= UINT32_MAX)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "the data have %llu features; weights are kept for fewer than 2^32: "
                               "hash the features (rill_dataset_hash)",
                               (unsigned long long)t->features);
    if (t->options.bias >= 0) {
        RILL_TRY_DATA(add_bias(t->mpi, train, t->features, t->options.bias, &t->biased));
        if (valid)
            RILL_TRY_DATA(add_bias(t->mpi, valid, t->features, t->options.bias, &t->biased_valid));
        t->features++;
        train = t->biased;
        valid = valid ? t->biased_valid : NULL;
    }
    t->set = train;
    t->train.data = t->valid.data = (rill_data_view)RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(train, &t->train.data));
    t->train.n = t->train.data.rows;
    if (!valid) return RILL_OK;
    t->has_valid = true;
    RILL_TRY_DATA(rill_dataset_view(valid, &t->valid.data));
    t->valid.n = t->valid.data.rows;
    return RILL_OK;
}

static rill_status split(rill_trainer *t) {
    size_t rows = (size_t)t->train.data.rows + 1;
    t->order = malloc(rows * sizeof *t->order);
    if (!t->order) return rill__train_memory("the order of rows");
    if (t->has_valid || t->options.valid_fraction == 0) return RILL_OK;
    t->train_list = malloc(rows * sizeof *t->train_list);
    t->valid_list = malloc(rows * sizeof *t->valid_list);
    if (!t->train_list || !t->valid_list) return rill__train_memory("the split");
    t->has_valid = true;
    t->valid.data = t->train.data;
    RILL_TRY_DATA(rill_dataset_split(t->set, t->options.valid_fraction, t->options.seed,
                                     t->train_list, &t->train.n, t->valid_list, &t->valid.n));
    t->train.list = t->train_list;
    t->valid.list = t->valid_list;
    return RILL_OK;
}

uint64_t rill__train_batch(uint64_t rows, int ranks) {
    const uint64_t steps = 250, most = 100;
    uint64_t batch = rows / (steps * (uint64_t)ranks);
    return batch < 1 ? 1 : batch > most ? most : batch;
}

static rill_status count_rows(rill_trainer *t) {
    double rows[2] = {(double)t->train.n, (double)t->valid.n};
    RILL_TRY_DATA(rill__train_sum(t, RILL_OK, rows, 2));
    t->total_rows = (uint64_t)rows[0];
    if (!t->total_rows) return rill__data_fail(RILL_ERR_ARGUMENT, "there are no rows to train on");
    if (t->has_valid && rows[1] == 0)
        return rill__data_fail(RILL_ERR_ARGUMENT, "there are no rows for validation");
    if (!t->options.batch) t->options.batch = rill__train_batch(t->total_rows, t->ranks);
    return RILL_OK;
}

static rill_status make_targets(rill_trainer *t) {
    RILL_TRY_DATA(rill__train_targets(t, &t->train.data, &t->train_target));
    t->train.target = t->valid.target = t->train_target;
    if (!t->has_valid || t->valid_list) return RILL_OK;
    RILL_TRY_DATA(rill__train_targets(t, &t->valid.data, &t->valid_target));
    t->valid.target = t->valid_target;
    return RILL_OK;
}

static rill_status make_weights(rill_trainer *t) {
    const rill_train_options *o = &t->options;
    if (__builtin_mul_overflow(t->features, (uint64_t)t->columns, &t->n) || t->n > UINT32_MAX)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "%llu features times %d classes are more than 2^32 weights",
                               (unsigned long long)t->features, t->columns);
    rill__optimizer kind = t->solver->own_weights              ? RILL__PLAIN
                           : !strcmp(o->optimizer, "adagrad")  ? RILL__ADAGRAD
                           : !strcmp(o->optimizer, "momentum") ? RILL__MOMENTUM
                                                               : RILL__PLAIN;
    double each = 1 / (o->C * (double)t->total_rows); /* penalties of the mean loss */
    double mu = t->solver->own_weights ? 0 : o->l1 * each;
    RILL_TRY_DATA(rill__weights_init(&t->weights, t->n, kind, o->l2 * each, mu, o->momentum));
    if (strcmp(o->schedule, "bold-driver") || t->solver->own_weights) return RILL_OK;
    t->backup = calloc((size_t)t->n + 1, sizeof *t->backup);
    return t->backup ? RILL_OK : rill__train_memory("the weights");
}

static rill_status start_threads(rill_trainer *t) {
    if (t->options.threads <= 1) return RILL_OK;
#ifndef SMPI_H /* where there are none: train_pool.c */
    int level = MPI_THREAD_SINGLE;
    if (MPI_Query_thread(&level) != MPI_SUCCESS || level < MPI_THREAD_FUNNELED)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "threads = %d: MPI was not started with MPI_THREAD_FUNNELED",
                               t->options.threads);
#endif
    RILL_TRY_DATA(rill__pool_open(t->options.threads, &t->pool));
    return rill__train_cut_features(t);
}

static rill_status build(rill_trainer *t, const rill_dataset *train, const rill_dataset *valid) {
    RILL_TRY_DATA(rill__data_agree(t->mpi, take_data(t, train, valid)));
    RILL_TRY_DATA(rill__data_agree(t->mpi, split(t)));
    RILL_TRY_DATA(count_rows(t));
    RILL_TRY_DATA(rill__train_labels(t));
    RILL_TRY_DATA(rill__data_agree(t->mpi, make_targets(t)));
    RILL_TRY_DATA(rill__train_weigh(t));
    RILL_TRY_DATA(rill__data_agree(t->mpi, make_weights(t)));
    RILL_TRY_DATA(rill__data_agree(t->mpi, start_threads(t)));
    return t->solver->open(t);
}

rill_status rill_trainer_create(MPI_Comm parent, const rill_dataset *train,
                                const rill_dataset *valid, const rill_train_options *options,
                                rill_trainer **out) {
    MPI_Comm comm;
    if (out) *out = NULL;
    RILL_TRY_DATA(rill__data_dup("rill_trainer_create", parent, &comm));
    rill_trainer *t = calloc(1, sizeof *t);
    rill_status status = RILL_OK;
    if (!t) status = rill__train_memory("the trainer");
    else if (!train || !out)
        status = rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_create: %s is NULL",
                                 out ? "train" : "out");
    else status = rill__train_options(t, options);
    status = rill__data_agree(comm, status);
    if (status != RILL_OK && !t) {
        MPI_Comm_free(&comm);
        return status;
    }
    t->mpi = comm;
    MPI_Comm_rank(comm, &t->rank);
    MPI_Comm_size(comm, &t->ranks);
    t->algorithm = "";
    if (status == RILL_OK) status = rill__data_agree(comm, build(t, train, valid));
    if (status == RILL_OK) *out = t;
    else {
        char detail[512];
        snprintf(detail, sizeof detail, "%s", rill_last_error());
        rill_trainer_free(&t);
        rill_error_set(status, detail);
    }
    return status;
}

rill_status rill_trainer_free(rill_trainer **trainer) {
    if (!trainer || !*trainer) return RILL_OK;
    rill_trainer *t = *trainer;
    if (t->solver) t->solver->close(t);
    rill__pool_close(&t->pool);
    free(t->feature_cut);
    rill__weights_free(&t->weights);
    rill_dataset_free(&t->biased);
    rill_dataset_free(&t->biased_valid);
    free(t->label);
    free(t->class_weight);
    free(t->order);
    free(t->train_list);
    free(t->valid_list);
    free(t->train_target);
    free(t->valid_target);
    free(t->backup);
    for (int i = 0; i < t->name_count; i++)
        free(t->names[i]);
    rill_comm_free(&t->comm);
    MPI_Comm_free(&t->mpi);
    free(t);
    *trainer = NULL;
    return RILL_OK;
}

rill_status rill_trainer_model(const rill_trainer *t, rill_model **out) {
    if (!t || !out)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_model: %s is NULL",
                               t ? "out" : "trainer");
    double bias = t->options.bias >= 0 ? t->options.bias : -1;
    RILL_TRY_DATA(rill__model_create(t->features - (bias >= 0), t->columns, t->labels, bias, out));
    rill_model *m = *out;
    snprintf(m->solver_type, sizeof m->solver_type, "%s",
             t->regression       ? "L2R_L2LOSS_SVR"
             : t->options.l1 > 0 ? t->loss->type_l1
                                 : t->loss->type);
    m->regression = t->regression;
    m->probability = !strcmp(t->options.loss, "logistic");
    for (int i = 0; i < t->labels; i++)
        m->label[i] = t->label[i];
    for (uint64_t j = 0; j < t->n; j++)
        m->weight[j] = t->weights.w[j];
    return RILL_OK;
}
