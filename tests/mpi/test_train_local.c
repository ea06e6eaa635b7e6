/* Local steps: what averages make of the ranks' weights, against what theory says they are. */
#include "check.h"

#include <math.h>
#include <rill/train.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 24, COMMON = 9, EPOCHS = 4 };
static const double rate = 0.5; /* of adagrad */

static double draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24) - 0.5;
}

static rill_dataset *create(rill_comm *comm, const rill_data_view *view) {
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_create_on(comm, view, &set));
    return set;
}

/* A part of ROWS rows. alone: each row has one feature, which no other row has, of any rank; else
 * all ranks have the same rows of common features. */
static rill_dataset *make_set(rill_comm *comm, bool alone) {
    static uint64_t row[ROWS + 1];
    static uint32_t index[ROWS * COMMON];
    static float value[ROWS * COMMON];
    static double label[ROWS];
    uint64_t state = 5, each = alone ? 1 : COMMON;
    for (uint64_t i = 0; i < ROWS; i++) {
        row[i + 1] = (i + 1) * each;
        label[i] = draw(&state) < 0 ? -1 : 1;
        for (uint64_t e = 0; e < each; e++) {
            uint64_t first = alone ? (uint64_t)check.rank * ROWS + i : 0;
            index[i * each + e] = (uint32_t)(first + e);
            value[i * each + e] = (float)(1 + draw(&state));
        }
    }
    label[0] = 1, label[1] = -1;
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = alone ? (uint64_t)check.size * ROWS : COMMON;
    view.rows = ROWS;
    view.row = row;
    view.index32 = index;
    view.value = value;
    view.label = label;
    return create(comm, &view);
}

static rill_train_options options(uint64_t batch, uint64_t local_steps) {
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    o.solver = "sgd";
    o.loss = "logistic";
    o.schedule = "constant";
    o.batch = batch;
    o.local_steps = local_steps;
    return o;
}

/* The weights after EPOCHS epochs, on as many ranks as comm has; the caller's. */
static double *train(rill_comm *comm, const rill_dataset *set, const rill_train_options *o,
                     uint64_t *n) {
    rill_trainer *t = NULL;
    rill_model *model = NULL;
    rill_model_view look = RILL_MODEL_VIEW_INIT;
    CHECK_OK(rill_trainer_create_on(comm, set, NULL, o, &t));
    for (int e = 0; t && e < EPOCHS; e++)
        CHECK_OK(rill_trainer_epoch(t, NULL));
    CHECK_OK(rill_trainer_model(t, &model));
    CHECK_OK(rill_model_look(model, &look));
    *n = look.features;
    double *weights = malloc((size_t)(*n + 1) * sizeof *weights);
    memcpy(weights, look.weight, (size_t)*n * sizeof *weights);
    rill_model_free(&model);
    CHECK_OK(rill_trainer_free(&t));
    return weights;
}

static void check_same_everywhere(rill_comm *comm, const double *w, uint64_t n) {
    double *all = malloc((size_t)check.size * (size_t)n * sizeof *all);
    CHECK_OK(rill_comm_gather_bytes(comm, w, (size_t)n * sizeof *w, all));
    for (int r = 0; r < check.size; r++)
        CHECK(memcmp(w, all + (uint64_t)r * n, (size_t)n * sizeof *w) == 0);
    free(all);
}

/* Ranks that do the same agree: an average changes nothing. All rows are a step, so that their
 * order does not matter. */
static void test_same(rill_comm *comm, rill_comm *alone, const char *optimizer) {
    rill_dataset *set = make_set(comm, false), *mine = make_set(alone, false);
    rill_train_options o = options(ROWS, 1);
    uint64_t n;
    check_case("the same rows on all ranks, %s", optimizer);
    o.optimizer = optimizer;
    o.lr = 0.3;
    double *w = train(comm, set, &o, &n);
    o.local_steps = 0;
    o.C *= check.size; /* penalties of the mean loss as before */
    double *expected = train(alone, mine, &o, &n);
    for (uint64_t j = 0; j < n; j++)
        CHECK(fabs(w[j] - expected[j]) <= 1e-5 * (1 + fabs(expected[j])));
    check_same_everywhere(comm, w, n);
    free(w);
    free(expected);
    CHECK_OK(rill_dataset_free(&set));
    CHECK_OK(rill_dataset_free(&mine));
}

/* A feature that one rank has moves as that rank says, and not by a P-th of it; the squares are a
 * P-th. */
static void test_alone(rill_comm *comm, uint64_t batch, uint64_t local_steps) {
    rill_dataset *set = make_set(comm, true);
    rill_train_options o = options(batch, local_steps);
    rill_data_view view = RILL_DATA_VIEW_INIT;
    uint64_t n;
    check_case("rows of their own, batch %d, %d local steps", (int)batch, (int)local_steps);
    o.C = 1e12;
    double *w = train(comm, set, &o, &n);
    CHECK_OK(rill_dataset_view(set, &view));
    for (uint64_t i = 0; i < ROWS; i++) {
        double x = view.value[i], y = view.label[i], expected = 0, squares = 0;
        for (int e = 0; e < EPOCHS; e++) {
            double g = -y * x / (1 + exp(y * x * expected)) / (double)batch;
            expected -= rate * g / sqrt(squares + g * g);
            squares += g * g / check.size;
        }
        double got = w[view.index32[i]]; /* which label is +1 the data decide */
        CHECK(fabs(fabs(got) - fabs(expected)) <= 1e-4 * (1 + fabs(expected)));
    }
    check_same_everywhere(comm, w, n);
    free(w);
    CHECK_OK(rill_dataset_free(&set));
}

/* How the labels lie: as they come; one of them more often on the first half of the ranks; a rare
 * one on the first rank alone. And rows that have all features. */
typedef enum rows_kind { MIXED, SORTED, RARE, DENSE } rows_kind;

/* Rows of ten features, of a hundred. */
static rill_dataset *make_pace_set(rill_comm *comm, rows_kind kind) {
    enum { MANY = 2000, EACH = 10 };
    static uint64_t row[MANY + 1];
    static uint32_t index[MANY * EACH];
    static float value[MANY * EACH];
    static double label[MANY];
    uint64_t state = 17 + (uint64_t)check.rank;
    double negative = kind == RARE ? (check.rank ? 0 : 0.2) : 0.5;
    if (kind == SORTED && 2 * check.rank < check.size) negative = 0.95;
    uint64_t apart = kind == DENSE ? 1 : 10;
    for (uint64_t i = 0; i < MANY; i++) {
        row[i + 1] = (i + 1) * EACH;
        label[i] = draw(&state) + 0.5 < negative ? -1 : 1;
        for (uint64_t e = 0; e < EACH; e++) {
            index[i * EACH + e] = (uint32_t)(e * apart + (draw(&state) + 0.5) * (double)apart);
            value[i * EACH + e] = (float)draw(&state);
        }
    }
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = EACH * apart;
    view.rows = MANY;
    view.row = row;
    view.index32 = index;
    view.value = value;
    view.label = label;
    return create(comm, &view);
}

/* The batch that is taken for such a set under a profile, and the steps between averages. */
static void look_at_pace(rill_comm *comm, rows_kind kind, rill_train_options o,
                         rill_train_look *look) {
    rill_dataset *set = make_pace_set(comm, kind);
    rill_trainer *t = NULL;
    CHECK_OK(rill_trainer_create_on(comm, set, NULL, &o, &t));
    CHECK_OK(rill_trainer_look(t, look));
    if (t) CHECK_OK(rill_trainer_epoch(t, NULL));
    CHECK_OK(rill_trainer_free(&t));
    CHECK_OK(rill_dataset_free(&set));
}

/* Ranks go alone where messages are slow, their rows alike, and the options leave it open. */
static void test_pace(void) {
    rill_comm *comm = NULL;
    if (!CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm))) return;
    rill_train_look look = RILL_TRAIN_LOOK_INIT;
    rill_train_options o = options(0, RILL_STEPS_AUTO), named = o;
    check_case("the batch from the network");
    look_at_pace(comm, MIXED, o, &look);
    CHECK_INT(look.batch, >=, 1);
    CHECK((look.local_steps > 0) == (check.size > 1));
    if (check.size > 1) CHECK_INT(look.batch * look.local_steps, >=, 2000 / 8);
    for (int kind = SORTED; kind <= DENSE; kind++) {
        look_at_pace(comm, (rows_kind)kind, o, &look);
        CHECK_INT(look.local_steps, ==, 0);
        CHECK_INT(look.batch, >=, 1);
    }
    named.batch = 7;
    look_at_pace(comm, MIXED, named, &look);
    CHECK_INT(look.local_steps, ==, 0);
    CHECK_INT(look.batch, ==, 7);
    named = o;
    named.local_steps = 0;
    look_at_pace(comm, MIXED, named, &look);
    CHECK_INT(look.local_steps, ==, 0);
    CHECK_OK(rill_comm_free(&comm));
    check_case("the batch from the network, by a given algorithm");
    setenv("RILL_ALGORITHM", "recursive_double", 1); /* of its first sum nothing is predicted */
    if (!CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm))) return;
    look_at_pace(comm, MIXED, o, &look);
    CHECK((look.local_steps > 0) == (check.size > 1));
    unsetenv("RILL_ALGORITHM");
    CHECK_OK(rill_comm_free(&comm));
}

/* A profile of this host in which messages take a fiftieth of a second. */
static void make_profile(rill_comm *comm, const char *path, const char *slow) {
    rill_tune_options options = RILL_TUNE_OPTIONS_INIT;
    options.profile = path;
    options.seconds = 0.2;
    rill_tune_report report = RILL_TUNE_REPORT_INIT;
    CHECK_OK(rill_tune(comm, &options, &report));
    FILE *in = check.rank == 0 ? fopen(path, "r") : NULL, *out = in ? fopen(slow, "w") : NULL;
    char line[256];
    while (in && out && fgets(line, sizeof line, in)) {
        char *name = strstr(line, "latency ");
        fprintf(out, "%s", line);
        if (name) fseek(out, -(long)strlen(name), SEEK_CUR);
        if (name) fprintf(out, "latency 0.02\n");
    }
    if (check.rank == 0) CHECK(in && out && fclose(in) == 0 && fclose(out) == 0);
    CHECK_OK(rill_comm_gather_bytes(comm, "", 0, line)); /* it is there for all */
}

int main(int argc, char **argv) {
    check_init_thread(&argc, &argv, MPI_THREAD_SINGLE);
    rill_comm *comm = NULL, *alone = NULL;
    char profile[300], slow[310];
    const char *folder = getenv("TMPDIR");
    int process = (int)getppid(); /* of all ranks */
    snprintf(profile, sizeof profile, "%s/rill-pace-%d", folder ? folder : "/tmp", process);
    snprintf(slow, sizeof slow, "%s-slow", profile);
    if (CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm)) &&
        CHECK_OK(rill_comm_create_local(1, NULL, &alone))) {
        test_same(comm, alone, "adagrad");
        test_same(comm, alone, "plain");
        test_alone(comm, 1, ROWS);
        test_alone(comm, 2, 3);
        test_alone(comm, 4, 1);
        if (check.size > 1) make_profile(comm, profile, slow);
        if (check.size > 1) setenv("RILL_PROFILE", slow, 1);
        test_pace();
    }
    remove(profile);
    remove(slow);
    CHECK_OK(rill_comm_free(&alone));
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(6);
}
