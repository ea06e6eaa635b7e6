/* Intercepts, scaled columns, softmax and the hybrid solver on several ranks: units of columns and
 * constant columns change no score, solvers find one optimum, which is calibrated, threads change
 * no bit, checkpoints go on bit by bit. */
#include "check.h"

#include <math.h>
#include <rill/train.h>
#include <stdlib.h>

enum { ROWS = 300, DENSE = 6, SPARSE = 40, ENTRIES = DENSE + 4, CONSTANT = DENSE + SPARSE };

/* What is done to the data: a column times a number, a constant column. */
typedef struct change {
    uint32_t column;
    double by, constant;
} change;
static const change none = {0, 1, 0};

static double draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24);
}

/* Row i of the set; returns the label: +1 in a third of the rows, one of three, or a number. */
static double make_row(uint64_t i, int classes, change how, uint32_t *index, float *value) {
    uint64_t state = i * 2654435761u + 99;
    double sum = 0;
    for (uint32_t k = 0; k < ENTRIES; k++) {
        double x = draw(&state);
        int dense = k < DENSE;
        index[k] = dense ? k : DENSE + (k - DENSE) * 10 + (uint32_t)(draw(&state) * 10);
        value[k] = (float)(dense ? (1 + x) * (k + 1) * 10 : 0.5 + x); /* not centred */
        sum += (index[k] % 2 ? 1 : -1) * x;
        if (index[k] == how.column) value[k] = (float)(value[k] * how.by);
    }
    index[ENTRIES] = CONSTANT;
    value[ENTRIES] = (float)how.constant;
    sum += draw(&state);
    if (classes == 0) return 100 + sum;
    if (classes == 2) return sum > 0.9 ? 1 : -1;
    return sum < 0 ? 3 : sum < 1 ? 4 : 5;
}

static rill_dataset *make_set(int classes, change how) {
    uint64_t first = ROWS * (uint64_t)check.rank / (uint64_t)check.size;
    uint64_t n = ROWS * ((uint64_t)check.rank + 1) / (uint64_t)check.size - first;
    static uint64_t row[ROWS + 1];
    static uint32_t index[ROWS * (ENTRIES + 1) + 1];
    static float value[ROWS * (ENTRIES + 1) + 1];
    static double label[ROWS + 1];
    uint64_t each = ENTRIES + (how.constant != 0);
    for (uint64_t i = 0; i < n; i++) {
        row[i + 1] = (i + 1) * each;
        label[i] = make_row(first + i, classes, how, index + row[i], value + row[i]);
    }
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = CONSTANT + 1;
    view.rows = n;
    view.row = row;
    view.index32 = index;
    view.value = value;
    view.label = label;
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_create(MPI_COMM_WORLD, &view, &set));
    return set;
}

static rill_train_options options(const char *solver, const char *scale) {
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    o.solver = solver;
    o.scale = scale;
    o.intercept = 1;
    o.C = 3;
    o.batch = 5;
    o.tolerance = 1e-6;
    return o;
}

static rill_model *train(const rill_dataset *set, const rill_train_options *o, int epochs,
                         double *objective) {
    rill_trainer *t = NULL;
    rill_model *model = NULL;
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, o, &t));
    for (int e = 0; e < epochs && !report.converged; e++)
        CHECK_OK(rill_trainer_epoch(t, &report));
    CHECK_OK(rill_trainer_objective(t, objective, NULL));
    CHECK_OK(rill_trainer_model(t, &model));
    CHECK_OK(rill_trainer_free(&t));
    return model;
}

/* Decision values of this rank's rows, ROWS * 8 at most; returns their number. */
static uint64_t scores(rill_model *model, const rill_dataset *set, double *z) {
    rill_data_view data = RILL_DATA_VIEW_INIT;
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    CHECK_OK(rill_dataset_view(set, &data));
    CHECK_OK(rill_model_look(model, &view));
    CHECK_OK(rill_model_predict(model, set, z, NULL));
    CHECK_OK(rill_model_free(&model));
    return data.rows * (uint64_t)view.columns;
}

static void test_units(void) {
    static const struct {
        const char *solver, *scale;
        int classes, epochs;
        double within;
    } cases[] = {{"newton", "max", 2, 40, 1e-4}, {"newton", "std", 2, 40, 1e-3},
                 {"newton", "max", 3, 40, 1e-4}, {"newton", "max", 0, 40, 1e-4},
                 {"hybrid", "max", 2, 40, 1e-4}, {"sgd", "max", 2, 6, 1e-4},
                 {"scd", "max", 2, 6, 1e-4}};
    static const change changes[] = {{1, 1000, 0}, {DENSE + 3, 1e-6, 0}, {0, 1, -0.001}};
    static double before[ROWS * 8], after[ROWS * 8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rill_train_options o = options(cases[i].solver, cases[i].scale);
        rill_dataset *set = make_set(cases[i].classes, none);
        double objective[2];
        uint64_t n = scores(train(set, &o, cases[i].epochs, &objective[0]), set, before);
        CHECK_OK(rill_dataset_free(&set));
        for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
            check_case("%s, %s, %d classes, change %d", o.solver, o.scale, cases[i].classes,
                       (int)k);
            set = make_set(cases[i].classes, changes[k]);
            CHECK_INT(scores(train(set, &o, cases[i].epochs, &objective[1]), set, after), ==, n);
            CHECK_OK(rill_dataset_free(&set));
            double apart = 0;
            for (uint64_t j = 0; j < n; j++)
                apart = fmax(apart, fabs(before[j] - after[j]));
            if (!CHECK(apart < cases[i].within)) fprintf(stderr, "scores differ by %g\n", apart);
        }
    }
}

/* Newton and the hybrid agree, and the others, slow where columns are not centred, come near; where
 * there is an intercept, probabilities have the shares of the labels. */
static void test_optimum(void) {
    static const struct {
        const char *solver, *multiclass;
        int classes, epochs;
        double within;
    } cases[] = {{"newton", NULL, 2, 15, 1e-6}, {"hybrid", NULL, 2, 15, 1e-5},
                 {"sgd", NULL, 2, 30, 0.2},     {"scd", NULL, 2, 60, 0.2},
                 {"newton", NULL, 3, 15, 1e-6}, {"hybrid", NULL, 3, 15, 1e-5},
                 {"sgd", NULL, 3, 30, 0.2},     {"newton", "ovr", 3, 15, 1e-6},
                 {"scd", NULL, 3, 60, 0.2}};
    double best = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case("optimum: %s, %d classes", cases[i].solver, cases[i].classes);
        rill_train_options o = options(cases[i].solver, "max");
        rill_dataset *set = make_set(cases[i].classes, none);
        rill_data_view data = RILL_DATA_VIEW_INIT;
        rill_model_view view = RILL_MODEL_VIEW_INIT;
        double objective, p[8], sums[2] = {0, 0};
        static double z[ROWS * 8];
        o.multiclass = cases[i].multiclass;
        rill_model *model = train(set, &o, cases[i].epochs, &objective);
        CHECK_OK(rill_dataset_view(set, &data));
        CHECK_OK(rill_model_look(model, &view));
        CHECK(view.bias == 1);
        CHECK_OK(rill_model_predict(model, set, z, NULL));
        for (uint64_t k = 0; k < data.rows; k++) {
            CHECK_OK(rill_model_probabilities(model, z + k * (uint64_t)view.columns, p));
            sums[0] += p[0];
            sums[1] += data.label[k] == view.label[0];
        }
        MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (!strcmp(o.solver, "newton")) {
            best = objective;
            if (!o.multiclass) CHECK(fabs(sums[0] - sums[1]) < 1e-3 * ROWS);
        }
        if (!CHECK(objective <= best * (1 + cases[i].within) && objective >= best * (1 - 1e-5)))
            fprintf(stderr, "objective %g, best %g\n", objective, best);
        CHECK_OK(rill_model_free(&model));
        CHECK_OK(rill_dataset_free(&set));
    }
}

static uint64_t weights_of(const rill_trainer *t, double *w) {
    rill_model *model = NULL;
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    CHECK_OK(rill_trainer_model(t, &model));
    CHECK_OK(rill_model_look(model, &view));
    uint64_t n = (view.features + (view.bias >= 0)) * (uint64_t)view.columns;
    memcpy(w, view.weight, n * sizeof *w);
    CHECK_OK(rill_model_free(&model));
    return n;
}

/* Any number of threads, and a run that was cut: the same bits. */
static void test_bits(void) {
    static const char *const solvers[] = {"newton", "hybrid", "sgd"};
    static double whole[4 * (CONSTANT + 2)], other[4 * (CONSTANT + 2)];
    char path[300];
    const char *folder = getenv("TMPDIR");
    int process = (int)getpid();
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/rill-scale-%d", folder ? folder : "/tmp", process);
    rill_dataset *set = make_set(3, none);
    for (int i = 0; i < 9; i++) {
        rill_train_options o = options(solvers[i % 3], i / 3 == 2 ? "std" : "max");
        rill_trainer *t = NULL, *u = NULL;
        check_case("bits of %s, %s", o.solver, i / 3 == 0 ? "threads" : "a checkpoint");
        CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
        if (i / 3 == 0) o.threads = 3;
        CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &u));
        int from = i / 3 == 2 ? 1 : 3; /* 1: back from newton to the passes of the hybrid */
        for (int e = 0; e < 4; e++) {
            if (i / 3 > 0 && e == from) CHECK_OK(rill_trainer_save(t, path));
            CHECK_OK(rill_trainer_epoch(t, NULL));
            if (i / 3 != 1) CHECK_OK(rill_trainer_epoch(u, NULL));
        }
        if (i / 3 > 0) CHECK_OK(rill_trainer_load(u, path));
        for (int e = from; i / 3 > 0 && e < 4; e++)
            CHECK_OK(rill_trainer_epoch(u, NULL));
        uint64_t n = weights_of(t, whole);
        weights_of(u, other);
        CHECK(memcmp(whole, other, n * sizeof *whole) == 0);
        memcpy(other, whole, sizeof whole);
        MPI_Bcast(other, (int)n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        CHECK(memcmp(whole, other, n * sizeof *whole) == 0);
        CHECK_OK(rill_trainer_free(&t));
        if (i == 3) { /* other settings are named */
            rill_train_options changed = o;
            changed.scale = "std";
            CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &changed, &t));
            CHECK_STATUS(rill_trainer_load(t, path), RILL_ERR_MISMATCH);
            CHECK_DETAIL("scale=max");
            CHECK_OK(rill_trainer_free(&t));
        }
        CHECK_OK(rill_trainer_free(&u));
        MPI_Barrier(MPI_COMM_WORLD);
        if (check.rank == 0) unlink(path);
    }
    CHECK_OK(rill_dataset_free(&set));
}

/* What is left open: task, solver, scale. */
static void test_open(void) {
    for (int classes = 0; classes <= 3; classes += classes ? 1 : 2) {
        check_case("open: %d classes", classes);
        rill_dataset *set = make_set(classes, none);
        rill_train_options o = options("auto", "auto");
        rill_C_choice choice = RILL_C_CHOICE_INIT;
        rill_train_look look = RILL_TRAIN_LOOK_INIT;
        rill_trainer *t = NULL;
        rill_train_report report = RILL_TRAIN_REPORT_INIT;
        CHECK_STATUS(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t), RILL_ERR_UNKNOWN);
        CHECK_DETAIL("scale \"auto\"");
        CHECK_OK(rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &choice));
        CHECK(choice.tries >= 3 && choice.rows < ROWS);
        for (int i = 0; i < 3; i++)
            CHECK(choice.scale_loss[i] > 0);
        o.scale = choice.scale;
        o.C = choice.C;
        CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
        CHECK_OK(rill_trainer_look(t, &look));
        CHECK(!strcmp(look.task, classes ? "classify" : "regress"));
        CHECK(!strcmp(look.loss, classes ? "logistic" : "squared"));
        CHECK(!strcmp(look.solver, "newton") && look.intercept && look.bias == 1);
        CHECK(!strcmp(look.multiclass, classes == 3 ? "softmax" : ""));
        CHECK(look.rows == ROWS && look.features == CONSTANT + 1);
        for (int e = 0; e < 40 && !report.converged; e++)
            CHECK_OK(rill_trainer_epoch(t, &report));
        CHECK(report.converged && report.epoch < 40);
        CHECK_OK(rill_trainer_free(&t));
        CHECK_OK(rill_dataset_free(&set));
    }
    rill_dataset *set = make_set(3, none);
    rill_train_options o = options("auto", NULL);
    rill_train_look look = RILL_TRAIN_LOOK_INIT;
    rill_trainer *t = NULL;
    check_case("open: l1 needs sgd");
    o.l1 = 1;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
    CHECK_OK(rill_trainer_look(t, &look));
    CHECK(!strcmp(look.solver, "sgd") && !strcmp(look.scale, "none"));
    CHECK_OK(rill_trainer_free(&t));
    o = options("scd", "max"), o.multiclass = "softmax";
    CHECK_STATUS(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t), RILL_ERR_UNSUPPORTED);
    CHECK_DETAIL("softmax");
    CHECK_OK(rill_dataset_free(&set));
}

/* More features than rows, some in many of them; column 1 times by. */
static rill_dataset *make_wide(double by) {
    enum { FEW = 120, WIDE = 400, EACH = 8 };
    static uint64_t row[FEW + 1];
    static uint32_t index[FEW * EACH];
    static float value[FEW * EACH];
    static double label[FEW];
    uint64_t n = 0, at = 0;
    for (uint64_t i = 0; i < FEW; i++) {
        uint64_t state = i * 2654435761u + 7;
        if (i % (uint64_t)check.size != (uint64_t)check.rank) continue;
        for (uint32_t k = 0; k < EACH; k++, at++) { /* the first half of them is often the same */
            uint32_t of = k < EACH / 2 ? 3 : WIDE / EACH;
            index[at] = k * (WIDE / EACH) + (uint32_t)(draw(&state) * of);
            value[at] = (float)((0.5 + draw(&state)) * (index[at] == 1 ? by : 1));
        }
        label[n++] = (index[at - EACH] + i % 7) % 2 ? 1 : -1;
        row[n] = at;
    }
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = WIDE;
    view.rows = n;
    view.row = row;
    view.index32 = index;
    view.value = value;
    view.label = label;
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_create(MPI_COMM_WORLD, &view, &set));
    return set;
}

/* Wide data of one unit are left as they are; of two units all scales are tried. */
static void test_wide(void) {
    for (int units = 1; units <= 2; units++) {
        check_case("wide: %d units", units);
        rill_dataset *set = make_wide(units == 2 ? 1000 : 1);
        rill_train_options o = options("auto", "auto");
        rill_C_choice choice = RILL_C_CHOICE_INIT;
        CHECK_OK(rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &choice));
        CHECK(choice.tries >= 3 && choice.scale_loss[0] > 0);
        for (int i = 1; i < 3; i++)
            CHECK((choice.scale_loss[i] > 0) == (units == 2));
        if (units == 1) CHECK(!strcmp(choice.scale, "none"));
        CHECK_OK(rill_dataset_free(&set));
    }
}

/* Whole numbers of 40 kinds: names have as many rows each, or any number of them; numbers have more
 * in the middle. */
static void test_labels(void) {
    enum { KINDS = 40, EACH = 12 };
    static double label[KINDS * 3 * EACH];
    static uint64_t row[KINDS * 3 * EACH + 1];
    static uint32_t index[KINDS * 3 * EACH];
    static float value[KINDS * 3 * EACH];
    for (int kind = 0; kind < 3; kind++) {
        check_case("labels: %s", kind == 0 ? "even" : kind == 1 ? "uneven" : "numbers");
        uint64_t n = 0, state = 77, all = 0;
        for (int k = 0; k < KINDS; k++) {
            double hill = exp(-pow((k - KINDS / 2) / 8.0, 2));
            int rows = kind == 0   ? EACH
                       : kind == 1 ? 4 + (int)(draw(&state) * 2 * EACH)
                                   : 2 + (int)(draw(&state) * 4 + 2 * EACH * hill);
            for (int i = 0; i < rows; i++, all++) {
                if (all % (uint64_t)check.size != (uint64_t)check.rank) continue;
                index[n] = (uint32_t)(all % 5);
                value[n] = 1;
                label[n++] = k;
                row[n] = n;
            }
        }
        rill_data_view view = RILL_DATA_VIEW_INIT;
        view.dim = 5;
        view.rows = n;
        view.row = row;
        view.index32 = index;
        view.value = value;
        view.label = label;
        rill_dataset *set = NULL;
        rill_trainer *t = NULL;
        rill_train_look look = RILL_TRAIN_LOOK_INIT;
        rill_train_options o = options("auto", NULL);
        CHECK_OK(rill_dataset_create(MPI_COMM_WORLD, &view, &set));
        CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
        CHECK_OK(rill_trainer_look(t, &look));
        CHECK(!strcmp(look.task, kind == 2 ? "regress" : "classify"));
        CHECK_OK(rill_trainer_free(&t));
        CHECK_OK(rill_dataset_free(&set));
    }
}

/* As texts are: common words and many rare ones, whose rates differ a little between the labels. */
static rill_dataset *make_texts(void) {
    enum { TEXTS = 2600, WORDS = 404, KNOWN = 60000 };
    uint64_t first = TEXTS * (uint64_t)check.rank / (uint64_t)check.size;
    uint64_t n = TEXTS * ((uint64_t)check.rank + 1) / (uint64_t)check.size - first;
    uint64_t *row = calloc(n + 1, sizeof *row);
    uint32_t *index = calloc(n * WORDS, sizeof *index);
    float *value = calloc(n * WORDS, sizeof *value);
    double *label = calloc(n, sizeof *label);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t state = (first + i) * 2654435761u + 5;
        label[i] = draw(&state) < 0.5 ? 1 : -1;
        row[i + 1] = (i + 1) * WORDS;
        for (uint32_t k = 0; k < WORDS; k++) { /* each word from its own part, in their order */
            double from = pow((double)k / WORDS, 3), to = pow((k + 1.0) / WORDS, 3);
            uint32_t word = (uint32_t)((from + draw(&state) * (to - from)) * KNOWN) + k;
            uint32_t moves = word % 8 == 0 && draw(&state) < 0.15 + 0.2 * (label[i] > 0);
            index[i * WORDS + k] = word + moves;
            value[i * WORDS + k] = 1 + (float)(i % 3);
            if (k && index[i * WORDS + k] <= index[i * WORDS + k - 1])
                index[i * WORDS + k] = index[i * WORDS + k - 1] + 1;
        }
    }
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = KNOWN + WORDS + 2;
    view.rows = n;
    view.row = row;
    view.index32 = index;
    view.value = value;
    view.label = label;
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_create(MPI_COMM_WORLD, &view, &set));
    free(row);
    free(index);
    free(value);
    free(label);
    return set;
}

/* Where steps before the optimum predict better, their number is chosen, and training ends there;
 * also one that goes on from a checkpoint. */
static void test_steps(void) {
    if (check.size > 2) return; /* the sample is large, and the same for all */
    check_case("steps of texts");
    char path[256];
    rill_dataset *set = make_texts();
    rill_train_options o = options("auto", "auto"), saved = RILL_TRAIN_OPTIONS_INIT;
    rill_C_choice choice = RILL_C_CHOICE_INIT;
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    rill_trainer *t = NULL;
    o.tolerance = 0;
    CHECK_OK(rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &choice));
    if (!CHECK(choice.steps > 0 && choice.steps < 15))
        fprintf(stderr, "C = %g, scale %s, %llu steps\n", choice.C, choice.scale,
                (unsigned long long)choice.steps);
    const char *folder = getenv("TMPDIR");
    int process = (int)getpid();
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/rill-steps-%d", folder ? folder : "/tmp", process);
    o.C = choice.C;
    o.scale = choice.scale;
    o.steps = 3;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
    for (int e = 0; e < 2; e++) {
        CHECK_OK(rill_trainer_epoch(t, &report));
        CHECK(!report.converged);
    }
    CHECK_OK(rill_trainer_save(t, path));
    CHECK_OK(rill_trainer_free(&t));
    CHECK_OK(rill_checkpoint_options(path, &saved));
    CHECK(saved.steps == 3);
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
    CHECK_OK(rill_trainer_load(t, path));
    CHECK_OK(rill_trainer_epoch(t, &report));
    CHECK(report.converged && report.epoch == 3);
    CHECK_OK(rill_trainer_free(&t));
    CHECK_OK(rill_dataset_free(&set));
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) unlink(path);
}

/* "rows" is training on rows of length 1, and its model takes rows as they are. */
static void test_rows(void) {
    static const struct {
        const char *solver;
        int classes, epochs, batch;
    } cases[] = {{"newton", 2, 40, 5}, {"newton", 3, 40, 5}, {"newton", 0, 40, 5},
                 {"hybrid", 2, 40, 5}, {"sgd", 2, 6, 5},     {"sgd", 3, 6, 1},
                 {"ftrl", 2, 6, 5},    {"scd", 2, 6, 5}};
    static double before[ROWS * 8], after[ROWS * 8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case("rows: %s, %d classes", cases[i].solver, cases[i].classes);
        rill_train_options o = options(cases[i].solver, "none");
        double objective[2], apart = 0;
        o.batch = (uint64_t)cases[i].batch;
        rill_dataset *set = make_set(cases[i].classes, none);
        CHECK_OK(rill_dataset_normalize(set));
        uint64_t n = scores(train(set, &o, cases[i].epochs, &objective[0]), set, before);
        CHECK_OK(rill_dataset_free(&set));
        o.scale = "rows";
        set = make_set(cases[i].classes, none);
        CHECK_INT(scores(train(set, &o, cases[i].epochs, &objective[1]), set, after), ==, n);
        CHECK_OK(rill_dataset_free(&set));
        CHECK(fabs(objective[0] / objective[1] - 1) < 1e-5);
        for (uint64_t j = 0; j < n; j++)
            apart = fmax(apart, fabs(before[j] - after[j]));
        if (!CHECK(apart < 1e-3)) fprintf(stderr, "scores differ by %g\n", apart);
    }
}

int main(int argc, char **argv) {
    check_init_thread(&argc, &argv, MPI_THREAD_FUNNELED);
    test_units();
    test_optimum();
    test_bits();
    test_open();
    test_wide();
    test_labels();
    test_rows();
    test_steps();
    return check_finish(40);
}
