/* A trainer comes and goes: options, data, labels, weights, solver. */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

void rill__train_recover(rill_trainer *t) {
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    rill_comm_free(&t->team.comm);
    rill__weights_share(&t->weights, t->team.talk); /* a failure has said so before */
    rill_error_set(RILL_ERR_STATE, detail);
}

/* Views, dimension, the bias. */
static rill_status take_data(rill_trainer *t, const rill_dataset *train,
                             const rill_dataset *valid) {
    rill_data_view view = RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(train, &view));
    t->objective.features = view.dim;
    if (valid) {
        RILL_TRY_DATA(rill_dataset_view(valid, &view));
        if (view.dim > t->objective.features) t->objective.features = view.dim;
    }
    if (t->objective.features >= UINT32_MAX)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "the data have %llu features; weights are kept for fewer than 2^32: "
                               "hash the features (rill_dataset_hash, rill train --hash)",
                               (unsigned long long)t->objective.features);
    t->objective.bias = t->options.bias;
    if (t->options.intercept && !(t->options.bias > 0)) t->objective.bias = 1;
    t->objective.features += t->objective.bias >= 0;
    t->objective.set = train;
    t->objective.rows.data = t->valid.data = (rill_data_view)RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(train, &t->objective.rows.data));
    t->objective.rows.n = t->objective.rows.data.rows;
    if (!valid) return RILL_OK;
    t->has_valid = true;
    RILL_TRY_DATA(rill_dataset_view(valid, &t->valid.data));
    t->valid.n = t->valid.data.rows;
    return RILL_OK;
}

static void split_fold(rill_trainer *t) {
    const rill_train_options *o = &t->options;
    const rill_data_view *d = &t->objective.rows.data;
    uint64_t *n = &t->objective.rows.n, *held = &t->valid.n;
    *n = *held = 0;
    for (uint64_t i = 0; i < d->rows; i++)
        if (rill__row_in_fold(d, i, o->fold, o->folds, o->seed)) t->valid_list[(*held)++] = i;
        else t->train_list[(*n)++] = i;
}

static rill_status split(rill_trainer *t) {
    size_t rows = (size_t)t->objective.rows.data.rows + 1;
    int folds = t->options.folds;
    if (t->has_valid && folds)
        return rill__data_fail(RILL_ERR_ARGUMENT, "folds = %d: rows for validation are given, too",
                               folds);
    if (t->has_valid || (t->options.valid_fraction == 0 && !folds)) return RILL_OK;
    t->train_list = malloc(rows * sizeof *t->train_list);
    t->valid_list = malloc(rows * sizeof *t->valid_list);
    if (!t->train_list || !t->valid_list) return rill__data_memory("the split");
    t->has_valid = true;
    t->valid.data = t->objective.rows.data;
    if (folds) split_fold(t);
    else
        RILL_TRY_DATA(rill_dataset_split(t->objective.set, t->options.valid_fraction,
                                         t->options.seed, t->train_list, &t->objective.rows.n,
                                         t->valid_list, &t->valid.n));
    t->objective.rows.list = t->train_list;
    t->valid.list = t->valid_list;
    return RILL_OK;
}

uint64_t rill__train_batch(uint64_t rows, int ranks) {
    const uint64_t steps = 250, most = 100;
    uint64_t batch = rows / (steps * (uint64_t)ranks);
    return batch < 1 ? 1 : batch > most ? most : batch;
}

static rill_status count_rows(rill_trainer *t) {
    double rows[3] = {(double)t->objective.rows.n, (double)t->valid.n, t->options.progress != NULL};
    RILL_TRY_DATA(rill__team_sum(&t->team, RILL_OK, rows, 3));
    t->objective.total_rows = (uint64_t)rows[0];
    t->job.watch.tell = t->options.progress;
    t->job.watch.context = t->options.context;
    t->job.watch.on = rows[2] > 0;
    if (!t->objective.total_rows)
        return rill__data_fail(RILL_ERR_ARGUMENT, "there are no rows to train on");
    if (t->has_valid && rows[1] == 0)
        return rill__data_fail(RILL_ERR_ARGUMENT, "there are no rows for validation");
    return RILL_OK;
}

static rill_status make_targets(rill_trainer *t) {
    RILL_TRY_DATA(rill__train_targets(t, &t->objective.rows.data, &t->train_target));
    t->objective.rows.target = t->valid.target = t->train_target;
    t->objective.rows.weight = t->objective.rows.data.weight;
    t->valid.weight = t->valid.data.weight;
    if (!t->has_valid || t->valid_list) return RILL_OK;
    RILL_TRY_DATA(rill__train_targets(t, &t->valid.data, &t->valid_target));
    t->valid.target = t->valid_target;
    return RILL_OK;
}

static rill_status make_weights(rill_trainer *t) {
    const rill_train_options *o = &t->options;
    if (__builtin_mul_overflow(t->objective.features, (uint64_t)t->objective.columns,
                               &t->objective.n) ||
        t->objective.n > UINT32_MAX)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "%llu features times %d classes are more than 2^32 weights",
                               (unsigned long long)t->objective.features, t->objective.columns);
    bool adagrad = !strcmp(o->optimizer, "adagrad") || t->solver->adaptive;
    rill__optimizer kind = t->solver->plain_weights            ? RILL__PLAIN
                           : t->solver->follows                ? RILL__FTRL
                           : adagrad                           ? RILL__ADAGRAD
                           : !strcmp(o->optimizer, "momentum") ? RILL__MOMENTUM
                                                               : RILL__PLAIN;
    double each = 1 / (o->C * (double)t->objective.total_rows); /* penalties of the mean loss */
    double mu = t->solver->plain_weights ? 0 : o->l1 * each;
    RILL_TRY_DATA(
        rill__weights_init(&t->weights, t->objective.n, kind, o->l2 * each, mu, o->momentum));
    t->objective.penalised = t->objective.n;
    if (o->intercept) t->objective.penalised -= (uint64_t)t->objective.columns;
    t->weights.penalised = t->objective.penalised;
    if (strcmp(o->schedule, "bold-driver") || !t->solver->stochastic) return RILL_OK;
    t->backup = calloc((size_t)t->objective.n + 1, sizeof *t->backup);
    return t->backup ? RILL_OK : rill__data_memory("the weights");
}

static rill_status start_threads(rill_trainer *t) {
    if (t->options.threads <= 1) return RILL_OK;
    if (t->team.mpi && !rill__mpi_threads())
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "threads = %d: MPI was not started with MPI_THREAD_FUNNELED",
                               t->options.threads);
    RILL_TRY_DATA(rill__pool_open(t->options.threads, &t->objective.pool));
    return rill__objective_cut_features(&t->objective);
}

/* Weights, and a solver's vectors: those of many ranks may be short, by place. */
static rill_status look_for_room(rill_trainer *t) {
    uint64_t weights, columns = (uint64_t)t->objective.columns;
    if (__builtin_mul_overflow(t->objective.features, columns, &weights)) return RILL_OK;
    bool whole = t->solver->smooth && !t->solver->separate && t->team.ranks == 1;
    return rill__room_for(t->team.talk, weights, (whole ? 8 : 4) * sizeof(float));
}

static rill_status build(rill_trainer *t, const rill_dataset *train, const rill_dataset *valid) {
    RILL_TRY_DATA(rill__data_agree(t->team.talk, take_data(t, train, valid)));
    RILL_TRY_DATA(rill__data_agree(t->team.talk, split(t)));
    RILL_TRY_DATA(count_rows(t));
    RILL_TRY_DATA(rill__train_labels(t));
    RILL_TRY_DATA(rill__train_solver(t));
    RILL_TRY_DATA(look_for_room(t));
    RILL_TRY_DATA(rill__train_scale(t));
    RILL_TRY_DATA(rill__data_agree(t->team.talk, make_targets(t)));
    RILL_TRY_DATA(rill__train_unit(t));
    RILL_TRY_DATA(rill__train_weigh(t));
    RILL_TRY_DATA(rill__data_agree(t->team.talk, make_weights(t)));
    RILL_TRY_DATA(rill__data_agree(t->team.talk, start_threads(t)));
    RILL_TRY_DATA(rill__train_start(t));
    RILL_TRY_DATA(rill__train_pace(t));
    /* An algorithm that is named sums whole vectors. */
    bool whole = t->options.algorithm && strcmp(t->options.algorithm, "auto") != 0;
    if (t->solver->smooth && !t->solver->separate)
        RILL_TRY_DATA(rill__places_open(&t->objective, &t->team, whole, &t->objective.places));
    t->job.objective = &t->objective;
    t->job.weights = &t->weights;
    t->job.team = &t->team;
    t->job.options = &t->options;
    t->job.watch.firm = t->backup != NULL; /* bold-driver judges whole epochs */
    return t->solver->open(&t->job);
}

/* Communicators of its own: the caller may use and free the parent meanwhile. */
static rill_status open_team(rill_trainer *t, rill_comm *parent, const void *mpi) {
    rill_config config = RILL_CONFIG_INIT;
    config.check = 0;
    t->team.rank = rill_comm_rank(parent);
    t->team.ranks = rill_comm_size(parent);
    t->team.algorithm = "";
    t->team.profiled = t->options.profile;
    RILL_TRY_DATA(rill_comm_dup(parent, &config, &t->team.talk));
    if (!mpi) return RILL_OK;
    rill_status status = rill__mpi_dup(mpi, &t->team.mpi);
    return rill__data_agree(t->team.talk, status);
}

rill_status rill__trainer_create(rill_comm *parent, const void *mpi, const rill_dataset *train,
                                 const rill_dataset *valid, const rill_train_options *options,
                                 rill_trainer **out) {
    if (out) *out = NULL;
    rill_trainer *t = calloc(1, sizeof *t);
    rill_status status = RILL_OK;
    if (!t) status = rill__data_memory("the trainer");
    else if (!train || !out)
        status = rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_create: %s is NULL",
                                 out ? "train" : "out");
    else status = rill__train_options(t, options);
    status = rill__data_agree(parent, status);
    if (status != RILL_OK && !t) return status;
    if (status == RILL_OK) status = open_team(t, parent, mpi);
    if (status == RILL_OK) status = rill__data_agree(t->team.talk, build(t, train, valid));
    if (status == RILL_OK) *out = t;
    else {
        char detail[512];
        snprintf(detail, sizeof detail, "%s", rill_last_error());
        rill_trainer_free(&t);
        rill_error_set(status, detail);
    }
    return status;
}

rill_status rill_trainer_create_on(rill_comm *parent, const rill_dataset *train,
                                   const rill_dataset *valid, const rill_train_options *options,
                                   rill_trainer **out) {
    return rill__trainer_create(parent, NULL, train, valid, options, out);
}

rill_status rill_trainer_free(rill_trainer **trainer) {
    if (!trainer || !*trainer) return RILL_OK;
    rill_trainer *t = *trainer;
    if (t->solver) t->solver->close(&t->job);
    rill__pool_close(&t->objective.pool);
    free(t->objective.feature_cut);
    rill__places_close(&t->objective.places);
    rill__weights_free(&t->weights);
    free(t->objective.factor);
    free(t->objective.centred);
    free(t->label);
    free(t->objective.class_weight);
    free(t->train_list);
    free(t->valid_list);
    free(t->train_target);
    free(t->valid_target);
    free(t->train_factor);
    free(t->valid_factor);
    free(t->start);
    free(t->backup);
    for (int i = 0; i < t->name_count; i++)
        free(t->names[i]);
    rill_comm_free(&t->team.comm);
    rill_comm_free(&t->team.talk);
    rill__mpi_free(&t->team.mpi);
    free(t);
    *trainer = NULL;
    return RILL_OK;
}

rill_status rill_trainer_look(const rill_trainer *t, rill_train_look *out) {
    if (!t || !out || out->size < sizeof(size_t) || out->size > sizeof *out)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_trainer_look: an argument is NULL, or out.size is wrong");
    const rill_train_options *o = &t->options;
    rill_train_look full = {.size = out->size,
                            .task = t->objective.regression ? "regress" : "classify",
                            .loss = o->loss,
                            .solver = t->solver->name,
                            .scale = o->scale,
                            .labels = t->objective.labels,
                            .rows = t->objective.total_rows,
                            .features = t->objective.features - (t->objective.bias >= 0),
                            .bias = t->objective.bias >= 0 ? t->objective.bias : -1,
                            .intercept = o->intercept,
                            .batch = o->batch,
                            .local_steps = o->local_steps};
    full.multiclass = t->objective.columns == 1 ? "" : t->objective.softmax ? "softmax" : "ovr";
    memcpy(out, &full, full.size);
    return RILL_OK;
}

/* Softmax does not see what all columns have in common: of intercepts, that nothing penalises, it
 * is left to chance. */
static void centre_intercepts(const rill_trainer *t, rill_model *m) {
    double *intercept = m->weight + t->objective.penalised, mean = 0;
    for (int c = 0; c < m->columns; c++)
        mean += intercept[c] / m->columns;
    for (int c = 0; c < m->columns; c++)
        intercept[c] -= mean;
}

rill_status rill_trainer_model(const rill_trainer *t, rill_model **out) {
    if (!t || !out)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_model: %s is NULL",
                               t ? "out" : "trainer");
    double bias = t->objective.bias >= 0 ? t->objective.bias : -1;
    RILL_TRY_DATA(rill__model_create(t->objective.features - (bias >= 0), t->objective.columns,
                                     t->objective.labels, bias, out));
    rill_model *m = *out;
    snprintf(m->solver_type, sizeof m->solver_type, "%s",
             t->objective.regression ? "L2R_L2LOSS_SVR"
             : t->options.l1 > 0     ? t->objective.loss->type_l1
                                     : t->objective.loss->type);
    m->regression = t->objective.regression;
    m->probability = !strcmp(t->options.loss, "logistic");
    for (int i = 0; i < t->objective.labels; i++)
        m->label[i] = t->label[i];
    for (uint64_t j = 0; j < t->objective.n; j++)
        m->weight[j] = (double)t->weights.w[j] *
                       rill__factor(&t->objective, j / (uint64_t)t->objective.columns);
    if (t->objective.softmax && t->options.intercept) centre_intercepts(t, m);
    rill_train_look look = RILL_TRAIN_LOOK_INIT;
    rill_model_about about = RILL_MODEL_ABOUT_INIT;
    rill_trainer_look(t, &look);
    about.loss = look.loss;
    about.scale = look.scale;
    about.multiclass = look.multiclass;
    about.C = t->options.C;
    about.intercept = look.intercept;
    about.rows = look.rows;
    if (!strcmp(look.loss, "huber")) about.huber_delta = t->objective.unit;
    return rill_model_set_about(m, &about);
}
