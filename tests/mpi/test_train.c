/* Training on several ranks: losses do not depend on what travels and hardly on the number of
 * ranks, weights are the same on all ranks and for any number of threads, checkpoints go on bit by
 * bit, wrong arguments are everybody's error. --rows N. */
#include "../support/plain_train.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

enum { FEATURES = 400, PER_ROW = 12 };
static uint64_t rows = 600;

/* Row i of the whole set, whatever rank has it. classes 0: a number to be predicted. */
static double make_row(uint64_t i, int classes, uint32_t *index, float *value) {
    uint64_t state = i * 2654435761u + 12345;
    double sum = 0, best = -1e9;
    int label = 0;
    double score[3] = {0, 0, 0};
    for (int k = 0; k < PER_ROW; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t width = FEATURES / PER_ROW;
        index[k] = (uint32_t)k * width + (uint32_t)(state >> 40) % width;
        value[k] = 0.25f + (float)((state >> 33) % 64) / 64;
        double side = (index[k] * 7919u >> 3) % 2 ? 1 : -1;
        sum += side * value[k];
        score[index[k] % 3] += value[k];
    }
    if (classes == 0) return sum;
    if (classes == 2) return sum > 0 ? 1 : -1;
    for (int c = 0; c < 3; c++)
        if (score[c] > best) best = score[c], label = c + 3;
    return label;
}

static rill_dataset *make_set(int classes) {
    uint64_t first = rows * (uint64_t)check.rank / (uint64_t)check.size;
    uint64_t last = rows * ((uint64_t)check.rank + 1) / (uint64_t)check.size, n = last - first;
    uint64_t *row = malloc((n + 1) * sizeof *row);
    uint32_t *index = malloc((n * PER_ROW + 1) * sizeof *index);
    float *value = malloc((n * PER_ROW + 1) * sizeof *value);
    double *label = malloc((n + 1) * sizeof *label);
    for (uint64_t i = 0; i <= n; i++) {
        row[i] = i * PER_ROW;
        if (i < n) label[i] = make_row(first + i, classes, index + row[i], value + row[i]);
    }
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = FEATURES;
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

static rill_trainer *start(const rill_dataset *set, const rill_train_options *options) {
    rill_trainer *t = NULL;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, options, &t));
    return t;
}

/* The weights, which must be the same on all ranks; *n of them. */
static double *weights_of(const rill_trainer *t, uint64_t *n) {
    rill_model *model = NULL;
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    CHECK_OK(rill_trainer_model(t, &model));
    CHECK_OK(rill_model_look(model, &view));
    *n = (view.features + (view.bias >= 0)) * (uint64_t)view.columns;
    double *w = malloc(*n * sizeof *w), *other = malloc(*n * sizeof *other);
    memcpy(w, view.weight, *n * sizeof *w);
    memcpy(other, w, *n * sizeof *w);
    MPI_Bcast(other, (int)*n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    CHECK(memcmp(w, other, *n * sizeof *w) == 0);
    free(other);
    rill_model_free(&model);
    return w;
}

static double train(const rill_dataset *set, const rill_train_options *options, int epochs,
                    double *objective, double **weights) {
    rill_trainer *t = start(set, options);
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    double loss = NAN;
    uint64_t n;
    for (int e = 0; t && e < epochs; e++)
        CHECK_OK(rill_trainer_epoch(t, &report));
    CHECK_INT(report.epoch, ==, epochs);
    CHECK_INT(report.samples, ==, rows);
    CHECK_OK(rill_trainer_objective(t, objective, &loss));
    double *w = weights_of(t, &n);
    if (weights) *weights = w;
    else free(w);
    CHECK_OK(rill_trainer_free(&t));
    return loss;
}

/* Newton finds the optimum; the others come near it. */
static void test_optimum(void) {
    static const struct {
        const char *solver, *optimizer, *loss;
        int epochs;
        double l1, within;
    } cases[] = {{"newton", "plain", "logistic", 25, 0, 1e-6},
                 {"scd", "plain", "logistic", 80, 0, 0.01},
                 {"sgd", "plain", "logistic", 60, 0, 0.02},
                 {"sgd", "momentum", "logistic", 60, 0, 0.02},
                 {"sgd", "adagrad", "logistic", 40, 0, 0.01},
                 {"newton", "plain", "squared_hinge", 25, 0, 1e-6},
                 {"scd", "plain", "squared_hinge", 80, 0, 0.02},
                 {"sgd", "adagrad", "squared_hinge", 40, 0, 0.06},
                 {"newton", "plain", "squared", 25, 0, 1e-6},
                 {"sgd", "adagrad", "squared", 40, 0, 0.06},
                 {"sgd", "adagrad", "hinge", 40, 0, 0},
                 {"sgd", "plain", "logistic", 60, 2, 0.02},
                 {"sgd", "adagrad", "logistic", 60, 2, 0.02},
                 {"scd", "plain", "logistic", 150, 2, 0.02}};
    rill_dataset *set = make_set(2);
    double best[3] = {0, 0, 0}; /* by loss; with l1 the lowest of those that do it */
    double lowest_l1 = INFINITY, l1_found[3];
    int l1_count = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case("%s %s %s l1 %g", cases[i].solver, cases[i].optimizer, cases[i].loss,
                   cases[i].l1);
        rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
        double objective;
        o.solver = cases[i].solver;
        o.optimizer = cases[i].optimizer;
        o.loss = cases[i].loss;
        o.l1 = cases[i].l1;
        o.task = "classify";
        o.batch = 1 + 8 / (uint64_t)check.size;
        o.coordinates = 20;
        o.decay = 0.2;
        if (!strcmp(o.optimizer, "adagrad")) o.schedule = "constant";
        o.lr = !strcmp(o.optimizer, "momentum") ? 0.1 : !strcmp(o.optimizer, "plain") ? 1 : 0.5;
        train(set, &o, cases[i].epochs, &objective, NULL);
        int which = !strcmp(o.loss, "logistic") ? 0 : !strcmp(o.loss, "squared_hinge") ? 1 : 2;
        if (!strcmp(o.loss, "hinge")) CHECK(objective < 0.8 * (double)rows);
        else if (o.l1 > 0) {
            l1_found[l1_count++] = objective;
            if (objective < lowest_l1) lowest_l1 = objective;
        } else if (!strcmp(o.solver, "newton")) best[which] = objective;
        else {
            CHECK(objective >= best[which] * (1 - 1e-6));
            if (!CHECK(objective <= best[which] * (1 + cases[i].within)) && check.rank == 0)
                fprintf(stderr, "objective %g, best %g\n", objective, best[which]);
        }
    }
    for (int i = 0; i < l1_count; i++)
        if (!CHECK(l1_found[i] <= lowest_l1 * 1.02) && check.rank == 0)
            fprintf(stderr, "l1 objective %d: %g, lowest %g\n", i, l1_found[i], lowest_l1);
    CHECK_OK(rill_dataset_free(&set));
}

/* Dense and sparse sums differ by rounding only; so do dense and sparse allgathers. */
static void test_travel(void) {
    static const char *const algorithms[] = {"dense", "split_allgather", "allgather", "ring", NULL};
    rill_dataset *set = make_set(3);
    for (int i = 0; i < 5; i++) {
        check_case("sums by %s", algorithms[i] ? algorithms[i] : "auto");
        rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
        double objective[2], loss[2];
        o.batch = 20;
        o.class_weights = "3:2,5:0.5";
        loss[0] = train(set, &o, 3, &objective[0], NULL);
        o.algorithm = algorithms[i];
        loss[1] = train(set, &o, 3, &objective[1], NULL);
        CHECK(fabs(loss[0] - loss[1]) <= 1e-5 * loss[0]);
        CHECK(fabs(objective[0] - objective[1]) <= 1e-5 * objective[0]);
    }
    check_case("scd, dense allgather");
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    double objective[2];
    o.solver = "scd";
    train(set, &o, 3, &objective[0], NULL);
    o.algorithm = "dense";
    train(set, &o, 3, &objective[1], NULL);
    CHECK(fabs(objective[0] - objective[1]) <= 1e-6 * objective[0]);
    CHECK_OK(rill_dataset_free(&set));
}

/* The number of threads changes no bit. */
static void test_thread_counts(void) {
    static const struct {
        const char *solver, *optimizer, *reducer;
        double l1;
        int classes;
    } cases[] = {{"sgd", "adagrad", NULL, 0, 2},   {"sgd", "adagrad", NULL, 1, 3},
                 {"sgd", "plain", NULL, 0, 2},     {"sgd", "plain", NULL, 0, 3},
                 {"sgd", "momentum", NULL, 0, 3},  {"sgd", "plain", "topk", 0, 2},
                 {"sgd", "adagrad", "topk", 0, 3}, {"newton", NULL, NULL, 0, 2},
                 {"newton", NULL, NULL, 0, 3},     {"scd", NULL, NULL, 0, 2},
                 {"scd", NULL, NULL, 0.5, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rill_dataset *set = make_set(cases[i].classes);
        rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
        double objective[2], *one = NULL, *more = NULL;
        o.solver = cases[i].solver;
        o.optimizer = cases[i].optimizer;
        o.reducer = cases[i].reducer;
        o.l1 = cases[i].l1;
        o.density = 0.2;
        o.batch = 37;
        o.valid_fraction = 0;
        train(set, &o, 3, &objective[0], &one);
        for (o.threads = 2; o.threads <= 4; o.threads++) {
            check_case("%d threads, case %d", o.threads, (int)i);
            train(set, &o, 3, &objective[1], &more);
            CHECK(memcmp(&objective[0], &objective[1], sizeof objective[0]) == 0);
            CHECK(memcmp(one, more, FEATURES * sizeof *one) == 0);
            free(more);
        }
        free(one);
        CHECK_OK(rill_dataset_free(&set));
    }
}

/* What loses or delays still learns. */
static void test_variants(void) {
    static const char *const reducers[] = {"oktopk", "gtopk", "spardl", "s2", "topk"};
    rill_dataset *set = make_set(2);
    double objective, untrained = log(2) * (double)rows;
    for (int i = 0; i < 10; i++) {
        rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
        o.reducer = reducers[i % 5];
        o.density = 0.2;
        o.batch = 20;
        o.staleness = i / 5;
        check_case("reducer %s, staleness %d", o.reducer, o.staleness);
        train(set, &o, 8, &objective, NULL);
        CHECK(objective < 0.75 * untrained);
    }
    for (int i = 0; i < 6; i++) {
        rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
        o.batch = 10;
        o.staleness = i < 2 ? 1 + 3 * i : 0;
        o.local_steps = i < 2 ? 0 : i % 2 ? 7 : 1;
        o.optimizer = i < 4 ? "plain" : "adagrad";
        o.lr = i < 4;
        check_case("staleness %d, local steps %d", o.staleness, (int)o.local_steps);
        train(set, &o, 8, &objective, NULL);
        CHECK(objective < 0.85 * untrained);
    }
    CHECK_OK(rill_dataset_free(&set));
}

static const char *path_of(const char *name) {
    static char path[300];
    const char *folder = getenv("TMPDIR");
    int process = (int)getpid();
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/rill-train-%d-%s", folder ? folder : "/tmp", process, name);
    return path;
}

/* Four epochs are two, a checkpoint, and two by another trainer: to the bit. */
static void test_resume(void) {
    rill_dataset *set = make_set(2);
    for (int i = 0; i < 10; i++) {
        rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
        o.batch = 15;
        o.solver = i == 0 ? "newton" : i == 1 ? "scd" : "sgd";
        o.optimizer = i == 2 || i == 5 ? "plain" : i == 3 ? "momentum" : "adagrad";
        if (i == 4) o.schedule = "bold-driver";
        if (i == 5 || i == 9) o.local_steps = 3;
        if (i == 6) o.staleness = 2;
        if (i == 7) o.reducer = "oktopk";
        if (i == 8) o.reducer = "topk", o.value_bits = 8;
        o.density = 0.1;
        check_case("resume %s %s, case %d", o.solver, o.optimizer, i);
        double objective, *whole;
        uint64_t n;
        const char *path = path_of("checkpoint");
        train(set, &o, 4, &objective, &whole);
        rill_trainer *t = start(set, &o), *u = start(set, &o);
        for (int e = 0; e < 2; e++)
            CHECK_OK(rill_trainer_epoch(t, NULL));
        CHECK_OK(rill_trainer_save(t, path));
        CHECK_OK(rill_trainer_free(&t));
        CHECK_OK(rill_trainer_load(u, path));
        CHECK_INT(rill_trainer_epochs(u), ==, 2);
        for (int e = 0; e < 2; e++)
            CHECK_OK(rill_trainer_epoch(u, NULL));
        double *resumed = weights_of(u, &n);
        CHECK(memcmp(whole, resumed, n * sizeof *whole) == 0);
        CHECK_OK(rill_trainer_free(&u));
        /* Other settings, and damage, are refused. */
        if (i == 2) {
            o.decay = 0.5;
            t = start(set, &o);
            CHECK_STATUS(rill_trainer_load(t, path), RILL_ERR_MISMATCH);
            CHECK_DETAIL("decay=0.25, this run has decay=0.5");
            if (check.rank == 0) {
                FILE *file = fopen(path, "r+b");
                fseek(file, -20, SEEK_END);
                fputc(77, file);
                fclose(file);
            }
            MPI_Barrier(MPI_COMM_WORLD);
            CHECK_STATUS(rill_trainer_load(t, path), RILL_ERR_IO);
            CHECK_DETAIL("hash");
            CHECK_OK(rill_trainer_free(&t));
        }
        free(whole);
        free(resumed);
        MPI_Barrier(MPI_COMM_WORLD);
        if (check.rank == 0) {
            char reducer[320];
            snprintf(reducer, sizeof reducer, "%s.reducer-2", path);
            unlink(path);
            unlink(reducer);
        }
    }
    CHECK_OK(rill_dataset_free(&set));
}

static void refuse(const rill_dataset *set, const rill_train_options *o, rill_status status,
                   const char *text) {
    rill_trainer *t = NULL;
    check_case("refused: %s", text);
    CHECK_STATUS(rill_trainer_create(MPI_COMM_WORLD, set, NULL, o, &t), status);
    CHECK_DETAIL(text);
    CHECK(t == NULL);
}

static void test_refused(void) {
    rill_dataset *set = make_set(2);
    const rill_train_options init = RILL_TRAIN_OPTIONS_INIT;
    rill_train_options o = init;
    o.loss = "cauchy";
    refuse(set, &o, RILL_ERR_UNKNOWN, "loss \"cauchy\"");
    o = init, o.solver = "adam";
    refuse(set, &o, RILL_ERR_UNKNOWN, "solver \"adam\"");
    o = init, o.reducer = "topp";
    refuse(set, &o, RILL_ERR_UNKNOWN, "reducer \"topp\"");
    o = init, o.C = -1;
    refuse(set, &o, RILL_ERR_ARGUMENT, "C = -1");
    o = init, o.decay = -INFINITY;
    refuse(set, &o, RILL_ERR_ARGUMENT, "decay = -inf");
    o = init, o.momentum = 1;
    refuse(set, &o, RILL_ERR_ARGUMENT, "momentum = 1");
    o = init, o.value_bits = 3;
    refuse(set, &o, RILL_ERR_ARGUMENT, "value_bits = 3 is none of");
    o = init, o.solver = "scd", o.loss = "hinge";
    refuse(set, &o, RILL_ERR_UNSUPPORTED, "hinge jumps");
    o = init, o.solver = "newton", o.l1 = 1;
    refuse(set, &o, RILL_ERR_UNSUPPORTED, "l1 = 1");
    o = init, o.local_steps = 2, o.optimizer = "momentum";
    refuse(set, &o, RILL_ERR_UNSUPPORTED, "local_steps");
    o = init, o.class_weights = "1:x";
    refuse(set, &o, RILL_ERR_ARGUMENT, "class_weights \"1:x\"");
    o = init, o.class_weights = "7:1";
    refuse(set, &o, RILL_ERR_ARGUMENT, "no row has the label 7");
    o = init, o.algorithm = "nonsense";
    check_case("an unknown algorithm");
    rill_trainer *t = start(set, &o);
    if (check.size > 1) CHECK_STATUS(rill_trainer_epoch(t, NULL), RILL_ERR_UNKNOWN);
    CHECK_OK(rill_trainer_free(&t));
    CHECK_OK(rill_dataset_free(&set));
}

/* Regression, three classes, the bias, validation. */
static void test_tasks(void) {
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    rill_metrics m = RILL_METRICS_INIT;
    rill_model *model = NULL;
    check_case("regression");
    rill_dataset *set = make_set(0);
    o.loss = "squared";
    o.solver = "newton";
    o.bias = 1;
    rill_trainer *t = start(set, &o);
    for (int e = 0; e < 8; e++)
        CHECK_OK(rill_trainer_epoch(t, NULL));
    CHECK_OK(rill_trainer_model(t, &model));
    CHECK_OK(rill_model_evaluate(MPI_COMM_WORLD, model, set, &m));
    CHECK(isnan(m.accuracy) && m.mse < 0.2);
    rill_model_free(&model);
    CHECK_OK(rill_trainer_free(&t));
    CHECK_OK(rill_dataset_free(&set));

    check_case("three classes");
    set = make_set(3);
    o = (rill_train_options)RILL_TRAIN_OPTIONS_INIT;
    o.valid_fraction = 0.25;
    o.C = 10;
    o.batch = 10;
    t = start(set, &o);
    rill_train_report r = RILL_TRAIN_REPORT_INIT;
    for (int e = 0; e < 15; e++)
        CHECK_OK(rill_trainer_epoch(t, &r));
    CHECK(r.valid_accuracy > 0.45);
    CHECK(isnan(r.valid_auc));
    CHECK_OK(rill_trainer_model(t, &model));
    CHECK_OK(rill_model_evaluate(MPI_COMM_WORLD, model, set, &m));
    CHECK(m.accuracy > 0.8);
    rill_model_free(&model);
    CHECK_OK(rill_trainer_free(&t));
    CHECK_OK(rill_dataset_free(&set));
}

static int count_decay(const rill_C_choice *choice, double decay) {
    int n = 0;
    for (int i = 0; i < choice->tries; i++)
        n += choice->tried_decay[i] == decay;
    return n;
}

/* C and decay by held-out rows: what is tried, what is taken, and by more than one split of few
 * rows. */
static void test_choice(void) {
    rill_dataset *set = make_set(2);
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    rill_C_choice choice = RILL_C_CHOICE_INIT;
    check_case("choice: decay is given");
    o.batch = 4;
    CHECK_OK(rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &choice));
    CHECK(choice.tries >= 2 && count_decay(&choice, 0.25) == choice.tries && choice.decay == 0.25);
    rill_C_choice given = choice;

    check_case("choice: decay is open");
    o.decay = -1;
    CHECK_OK(rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &choice));
    int last = choice.tries - 1;
    CHECK(choice.C == given.C && choice.tries == given.tries + 1 && count_decay(&choice, 0) == 1);
    CHECK(choice.tried[last] == choice.C && choice.tried_decay[last] == 0);
    double best = INFINITY; /* of the falling rate, at the C that was taken */
    for (int i = 0; i < last; i++)
        if (choice.tried[i] == choice.C) best = choice.loss[i];
    CHECK(choice.decay == (choice.loss[last] < 0.995 * best ? 0 : 0.25));

    check_case("choice: no decay but adagrad's under 1/t");
    rill_C_choice other = RILL_C_CHOICE_INIT;
    o.optimizer = "plain";
    CHECK_OK(rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &other));
    CHECK(other.tries && count_decay(&other, 0) == 0 && other.decay == 0.25);
    o.optimizer = NULL, o.schedule = "constant";
    CHECK_OK(rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &other));
    CHECK(other.tries && count_decay(&other, 0) == 0);

    check_case("choice: several splits");
    rill_train_report r = RILL_TRAIN_REPORT_INIT;
    o.schedule = NULL;
    o.valid_fraction = 0.2;
    rill_trainer *t = start(set, &o);
    for (int e = 0; e < 3; e++)
        CHECK_OK(rill_trainer_epoch(t, &r));
    CHECK(fabs(r.lr - 0.5 / 1.75) < 1e-12); /* below 0 is 0.25 */
    CHECK(choice.tried[0] == 1 && fabs(choice.loss[0] / r.valid_loss - 1) > 1e-4);
    CHECK_OK(rill_trainer_free(&t));
    CHECK_OK(rill_dataset_free(&set));
}

int main(int argc, char **argv) {
    check_init_thread(&argc, &argv, MPI_THREAD_FUNNELED);
    rows = check_number(argc, argv, "--rows", rows);
    test_optimum();
    test_travel();
    test_variants();
    test_thread_counts();
    test_resume();
    test_tasks();
    test_choice();
    test_refused();
    return check_finish(50);
}
