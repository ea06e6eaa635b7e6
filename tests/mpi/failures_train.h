/* Scenarios of test_failures.c: data sets and training. After a call that failed all ranks have the
 * same weights; what follows succeeds on all ranks or on none. */
#ifndef RILL_TESTS_FAILURES_TRAIN_H
#define RILL_TESTS_FAILURES_TRAIN_H

#include "failures.h"

#include <rill/train.h>

enum { TRAIN_ROWS = 120, TRAIN_FEATURES = 60 };
enum { TRAIN_CREATE, TRAIN_EPOCH, TRAIN_OBJECTIVE, TRAIN_SAVE, TRAIN_LOAD, TRAIN_MODEL };
static char train_data[3][240]; /* text, binary, weights */

/* Kinds of training: the solver, and what travels. */
static const struct {
    const char *name, *solver, *reducer, *algorithm;
    int local_steps, staleness, classes, profile;
} trainings[] = {
    {"sgd", "sgd", NULL, NULL, 0, 0, 2, 0},
    {"newton", "newton", NULL, NULL, 0, 0, 2, 0},
    {"scd", "scd", NULL, NULL, 0, 0, 2, 0},
    {"sgd-oktopk", "sgd", "oktopk", NULL, 0, 0, 2, 0},
    {"sgd-dense", "sgd", NULL, "dense", 0, 0, 2, 0},
    {"sgd-spardl", "sgd", "spardl", NULL, 0, 0, 2, 0},
    {"sgd-topk", "sgd", "topk", NULL, 0, 0, 2, 0},
    {"sgd-s2", "sgd", "s2", NULL, 0, 0, 2, 0},
    {"sgd-local", "sgd", NULL, NULL, 3, 0, 2, 0},
    {"sgd-local-dense", "sgd", NULL, "dense", 3, 0, 2, 0},
    {"sgd-stale", "sgd", NULL, NULL, 0, 2, 2, 0},
    {"sgd-classes", "sgd", NULL, NULL, 0, 0, 3, 0},
    {"newton-classes", "newton", NULL, NULL, 0, 0, 3, 0},
    {"scd-classes", "scd", NULL, NULL, 0, 0, 3, 0},
    {"scd-dense", "scd", NULL, "dense", 0, 0, 2, 0},
    {"newton-dense", "newton", NULL, "dense", 0, 0, 2, 0},
    {"sgd-gtopk-stale", "sgd", "gtopk", NULL, 0, 1, 2, 0},
    {"sgd-profile", "sgd", NULL, NULL, 0, 0, 2, 1},
    {"sgd-dense-profile", "sgd", NULL, "dense", 0, 0, 2, 1},
    {"sgd-oktopk-profile", "sgd", "oktopk", NULL, 0, 0, 2, 1},
    {"newton-profile", "newton", NULL, NULL, 0, 0, 2, 1},
    {"scd-profile", "scd", NULL, NULL, 0, 0, 2, 1},
    {"hybrid", "hybrid", NULL, NULL, 0, 0, 2, 0},
    {"ftrl", "ftrl", NULL, NULL, 0, 0, 2, 0},
};
enum { TRAININGS = sizeof trainings / sizeof *trainings };

/* Two or three classes; written beside the folder that must stay clean. */
static void write_data(int classes) {
    static const char *const ends[] = {"txt", "bin", "weights"};
    for (int i = 0; i < 3; i++)
        snprintf(train_data[i], sizeof train_data[i], "%s.%s", failing.folder, ends[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) {
        rng g = rng_make(3, 1);
        FILE *f = fopen(train_data[0], "w");
        for (int i = 0; f && i < TRAIN_ROWS; i++) {
            fprintf(f, "%d", i % classes);
            for (uint64_t j = 1; j < TRAIN_FEATURES; j += 1 + rng_below(&g, 9))
                fprintf(f, " %d:%g", (int)j, (double)rng_below(&g, 7) / 4 + (i % classes) * 0.3);
            fprintf(f, "\n");
        }
        CHECK(f && fclose(f) == 0);
        rill_convert_options o = RILL_CONVERT_OPTIONS_INIT;
        CHECK_OK(rill_data_convert(train_data[0], train_data[1], &o, NULL, NULL));
        f = fopen(train_data[2], "w");
        for (int i = 0; f && i < TRAIN_ROWS; i++)
            fprintf(f, "%d\n", 1 + i % 3);
        CHECK(f && fclose(f) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}
static void remove_data(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3 && check.rank == 0; i++)
        remove(train_data[i]);
}

/* ---- data sets ------------------------------------------------------------------------------- */

static void check_set(const rill_dataset *set) {
    rill_data_view view = RILL_DATA_VIEW_INIT;
    CHECK_OK(rill_dataset_view(set, &view));
    if (view.total_rows != TRAIN_ROWS)
        violated("%llu rows were loaded", (unsigned long long)view.total_rows);
    uint64_t mine = view.rows, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (all != TRAIN_ROWS) violated("the ranks have %llu rows", (unsigned long long)all);
}

static void attempt_dataset(const scenario *s) {
    rill_dataset *set = NULL, *copy = NULL;
    rill_data_view view = RILL_DATA_VIEW_INIT;
    write_data(2);
    if (s->form == 2) {
        CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, train_data[0], NULL, &set));
        CHECK_OK(rill_dataset_view(set, &view));
    }
    fail_on();
    rill_status status = s->form == 2
                             ? rill_dataset_create(MPI_COMM_WORLD, &view, &copy)
                             : rill_dataset_load(MPI_COMM_WORLD, train_data[s->form], NULL, &copy);
    int ok = fail_agreed(s->form == 2 ? "rill_dataset_create" : "rill_dataset_load", status);
    if (ok) check_set(copy);
    if (status != RILL_OK && copy) violated("failed with a data set");
    rill_dataset_free(&copy);
    rill_dataset_free(&set);
}

/* ---- trainers -------------------------------------------------------------------------------- */

static rill_train_options train_options(const scenario *s) {
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    o.solver = trainings[s->form].solver;
    o.reducer = trainings[s->form].reducer;
    o.density = 0.1;
    o.algorithm = trainings[s->form].algorithm;
    o.profile = trainings[s->form].profile;
    o.class_weights = s->form % 2 ? "balanced" : NULL;
    o.bias = s->form % 3 ? -1 : 1;
    o.local_steps = (uint64_t)trainings[s->form].local_steps;
    if (o.local_steps) o.optimizer = "plain";
    o.staleness = trainings[s->form].staleness;
    o.valid_fraction = 0.2;
    o.batch = 10;
    o.coordinates = 10;
    return o;
}

/* The weights are the same on all ranks. */
static void check_weights(const char *when, const rill_trainer *t) {
    rill_model *model = NULL;
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    if (!fail_free_call("rill_trainer_model", rill_trainer_model(t, &model))) return;
    CHECK_OK(rill_model_look(model, &view));
    uint64_t n = (view.features + (view.bias >= 0)) * (uint64_t)view.columns;
    char what[80];
    snprintf(what, sizeof what, "the model %s", when);
    same_bits(what, view.weight, n * sizeof *view.weight);
    rill_model_free(&model);
}

/* The call under test. */
static rill_status train_call(const scenario *s, rill_trainer *t) {
    double objective, loss;
    switch (s->step) {
    case TRAIN_EPOCH: return rill_trainer_epoch(t, NULL);
    case TRAIN_OBJECTIVE: return rill_trainer_objective(t, &objective, &loss);
    case TRAIN_SAVE: return rill_trainer_save(t, failing.path);
    default: return rill_trainer_load(t, failing.path);
    }
}

static void train_after(const scenario *s, rill_trainer *t, int ok, uint64_t before, int files) {
    check_weights(ok ? "after the call" : "after the failed call", t);
    if (s->step == TRAIN_SAVE && !ok) files_as_before(before, files);
    if (s->step == TRAIN_SAVE && ok)
        fail_free_call("rill_trainer_load", rill_trainer_load(t, failing.path));
    if (s->step == TRAIN_LOAD && !ok)
        fail_free_call("rill_trainer_load after a failed one", rill_trainer_load(t, failing.path));
    rill_status status = rill_trainer_epoch(t, NULL);
    /* A trainer may refuse to go on after an exchange that broke off, but all ranks' must. */
    int on = s->step == TRAIN_EPOCH ? fail_agreed("the epoch after it", status)
                                    : fail_free_call("the epoch after it", status);
    if (on) check_weights("an epoch later", t);
}

static void attempt_trainer(const scenario *s) {
    rill_dataset *set = NULL;
    rill_trainer *t = NULL;
    rill_train_options o = train_options(s);
    clear_files();
    write_data(trainings[s->form].classes);
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, train_data[0], NULL, &set));
    if (s->step == TRAIN_CREATE) fail_on();
    rill_status status = rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t);
    int ok = s->step == TRAIN_CREATE ? fail_agreed("rill_trainer_create", status)
                                     : fail_free_call("rill_trainer_create", status);
    if (status != RILL_OK && t) violated("rill_trainer_create failed with a trainer");
    int trained = s->step != TRAIN_EPOCH; /* else it is the first that fails, which needs most */
    if (ok && trained) fail_free_call("a first epoch", rill_trainer_epoch(t, NULL));
    if (ok && s->step != TRAIN_CREATE) {
        if (s->step == TRAIN_SAVE || s->step == TRAIN_LOAD)
            fail_free_call("a first rill_trainer_save", rill_trainer_save(t, failing.path));
        if (s->step == TRAIN_SAVE) fail_free_call("a second epoch", rill_trainer_epoch(t, NULL));
        uint64_t before = file_hash(failing.path);
        int files = count_files(0);
        MPI_Barrier(MPI_COMM_WORLD);
        fail_on();
        status = train_call(s, t);
        if (status == RILL_ERR_MEMORY && !strstr(rill_last_error(), "memory"))
            violated("out of memory, and the text is \"%s\"", rill_last_error());
        ok = fail_agreed("the call", status);
        train_after(s, t, ok, before, files);
    }
    status = rill_trainer_free(&t);
    fail_agreed("rill_trainer_free", status);
    rill_dataset_free(&set);
}

/* ---- models, C ------------------------------------------------------------------------------- */

/* Local calls: each rank may fail by itself, and what was there stays. */
static void attempt_model(const scenario *s) {
    rill_dataset *set = NULL;
    rill_trainer *t = NULL;
    rill_model *model = NULL;
    rill_metrics metrics = RILL_METRICS_INIT;
    rill_train_options o = train_options(s);
    clear_files();
    write_data(trainings[s->form].classes);
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, train_data[0], NULL, &set));
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
    CHECK_OK(rill_trainer_model(t, &model));
    if (check.rank == failing.rank) CHECK_OK(rill_model_save(model, failing.path));
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t before = file_hash(failing.path);
    CHECK_OK(rill_trainer_epoch(t, NULL));
    rill_model_free(&model);
    fail_on();
    rill_status status = rill_trainer_model(t, &model), saved = RILL_OK;
    if (status == RILL_OK && check.rank == failing.rank)
        status = saved = rill_model_save(model, failing.path);
    if (status != RILL_OK && !rill_last_error()[0]) violated("failed without a text");
    fail_off();
    int failed = status != RILL_OK;
    MPI_Bcast(&failed, 1, MPI_INT, failing.rank, MPI_COMM_WORLD);
    if (failed) files_as_before(before, 1);
    if (!model) CHECK_OK(rill_trainer_model(t, &model));
    if (s->step == TRAIN_MODEL && !failed) {
        fail_on();
        status = rill_model_evaluate(MPI_COMM_WORLD, model, set, &metrics);
        if (fail_agreed("rill_model_evaluate", status))
            same_bits("the accuracy", &metrics.accuracy, sizeof metrics.accuracy);
    }
    rill_model_free(&model);
    rill_trainer_free(&t);
    rill_dataset_free(&set);
}

/* ---- calls on a communicator of rill's own --------------------------------------------------- */

enum { ON_FILES, ON_STREAM, ON_WEIGHTS, ON_START, ON_CALIBRATE };

static void attempt_files(const scenario *s) {
    const char *const paths[] = {train_data[0], train_data[1]};
    rill_data_options o = RILL_DATA_OPTIONS_INIT;
    rill_dataset *set = NULL;
    rill_data_view view = RILL_DATA_VIEW_INIT;
    o.stream = s->step == ON_STREAM;
    clear_files();
    o.folder = failing.folder;
    write_data(2);
    need_comm();
    fail_on();
    rill_status status = rill_dataset_load_files_on(failing.comm, paths, 2, &o, &set);
    if (fail_agreed("rill_dataset_load_files_on", status)) {
        CHECK_OK(rill_dataset_view(set, &view));
        if (view.total_rows != 2 * TRAIN_ROWS) violated("rows are missing");
    } else if (set) violated("failed with a data set");
    rill_dataset_free(&set);
    if (check.rank == 0 && count_files(0)) violated("temporary files are left");
    drop_comm();
}

static rill_status call_on(const scenario *s, rill_dataset *set, rill_trainer *t, rill_model *model,
                           const double *decision) {
    if (s->step == ON_WEIGHTS)
        return rill_dataset_load_weights_on(failing.comm, set, train_data[2]);
    if (s->step == ON_START) return rill_trainer_start(t, model);
    return rill_model_calibrate_on(failing.comm, model, set, decision);
}

static void attempt_on(const scenario *s) {
    static const char *const names[] = {[ON_WEIGHTS] = "rill_dataset_load_weights_on",
                                        [ON_START] = "rill_trainer_start",
                                        [ON_CALIBRATE] = "rill_model_calibrate_on"};
    static double decision[TRAIN_ROWS];
    rill_dataset *set = NULL;
    rill_trainer *t = NULL;
    rill_model *model = NULL;
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    write_data(2);
    need_comm();
    o.solver = "newton";
    CHECK_OK(rill_dataset_load_on(failing.comm, train_data[0], NULL, &set));
    CHECK_OK(rill_trainer_create_on(failing.comm, set, NULL, &o, &t));
    CHECK_OK(rill_trainer_model(t, &model));
    CHECK_OK(rill_model_predict(model, set, decision, NULL));
    fail_on();
    int ok = fail_agreed(names[s->step], call_on(s, set, t, model, decision));
    rill_data_view view = RILL_DATA_VIEW_INIT;
    CHECK_OK(rill_dataset_view(set, &view));
    if (s->step == ON_WEIGHTS && !ok != !view.weight) violated("weights beside a failure");
    check_weights(ok ? "after the call" : "after the failed call", t);
    fail_free_call("an epoch after it", rill_trainer_epoch(t, NULL));
    rill_model_free(&model);
    rill_trainer_free(&t);
    rill_dataset_free(&set);
    drop_comm();
}

static void attempt_choose(const scenario *s) {
    rill_dataset *set = NULL;
    rill_C_choice choice = RILL_C_CHOICE_INIT;
    rill_train_options o = train_options(s);
    write_data(2);
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, train_data[0], NULL, &set));
    fail_on();
    rill_status status = rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &choice);
    if (fail_agreed("rill_trainer_choose_C", status))
        same_bits("the C", &choice.C, sizeof choice.C);
    rill_dataset_free(&set);
}

#endif
