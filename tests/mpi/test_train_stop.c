/* A training that is ended within an epoch: after the step on all ranks, whichever wanted it; what
 * is saved then goes on where it was, as the trainer itself does. */
#include "check.h"

#include <glob.h>
#include <rill/train.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 120, COLUMNS = 50, EACH = 5 };

static rill_dataset *make_set(void) {
    static uint64_t row[ROWS + 1];
    static uint32_t index[ROWS * EACH + 1];
    static float value[ROWS * EACH + 1];
    static double label[ROWS + 1];
    uint64_t first = ROWS * (uint64_t)check.rank / (uint64_t)check.size;
    uint64_t n = ROWS * ((uint64_t)check.rank + 1) / (uint64_t)check.size - first;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t state = (first + i) * 2654435761u + 7;
        double sum = 0;
        for (uint32_t k = 0; k < EACH; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            index[i * EACH + k] = k * (COLUMNS / EACH) + (uint32_t)(state >> 33) % (COLUMNS / EACH);
            value[i * EACH + k] = (float)(1 + (state >> 50) % 8);
            sum += (index[i * EACH + k] % 2 ? 1 : -1) * (double)value[i * EACH + k];
        }
        row[i + 1] = (i + 1) * EACH;
        label[i] = sum > 0 ? 1 : -1;
    }
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = COLUMNS;
    view.rows = n;
    view.row = row;
    view.index32 = index;
    view.value = value;
    view.label = label;
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_create(MPI_COMM_WORLD, &view, &set));
    return set;
}

/* The last rank asks at its n-th call, once. */
typedef struct asker {
    int calls, at;
    uint64_t done, total;
} asker;

static int ask(void *context, uint64_t done, uint64_t total) {
    asker *a = context;
    a->done = done;
    a->total = total;
    return ++a->calls == a->at && check.rank == check.size - 1;
}

static void run_to(rill_trainer *t, uint64_t epochs, uint64_t *samples) {
    while (rill_trainer_epochs(t) < epochs) {
        rill_train_report report = RILL_TRAIN_REPORT_INIT;
        CHECK_OK(rill_trainer_epoch(t, &report));
        CHECK(!report.stopped);
        if (samples && rill_trainer_epochs(t) == 1) *samples += report.samples;
    }
}

static void compare(rill_trainer *a, rill_trainer *b) {
    rill_model *of_a = NULL, *of_b = NULL;
    rill_model_view va = RILL_MODEL_VIEW_INIT, vb = RILL_MODEL_VIEW_INIT;
    CHECK_OK(rill_trainer_model(a, &of_a));
    CHECK_OK(rill_trainer_model(b, &of_b));
    CHECK_OK(rill_model_look(of_a, &va));
    CHECK_OK(rill_model_look(of_b, &vb));
    size_t n = (size_t)(va.features + (va.bias >= 0)) * (size_t)va.columns;
    CHECK(!memcmp(va.weight, vb.weight, n * sizeof *va.weight));
    rill_model_free(&of_a);
    rill_model_free(&of_b);
}

typedef struct way {
    const char *name, *solver, *optimizer, *reducer;
    uint64_t local_steps;
    int staleness, at; /* at: the call that ends it */
} way;
static const way ways[] = {
    {"sgd", "sgd", "adagrad", NULL, 0, 0, 1},
    {"row by row", "sgd", "plain", NULL, 0, 0, 2},
    {"late sums", "sgd", "adagrad", NULL, 0, 2, 2},
    {"local steps", "sgd", "plain", NULL, 3, 0, 2},
    {"reducer", "sgd", "adagrad", "oktopk", 0, 1, 2},
    {"ftrl", "ftrl", "adagrad", NULL, 0, 0, 2},
    {"scd", "scd", "plain", NULL, 0, 0, 1},
    {"hybrid", "hybrid", "plain", NULL, 0, 0, 2},
    {"newton", "newton", "plain", NULL, 0, 0, 1},
};

static void test_way(const rill_dataset *set, const way *w, const char *path) {
    asker asks = {.at = w->at};
    uint64_t epochs = !strcmp(w->solver, "hybrid") ? 10 : 2; /* to the optimum */
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    o.solver = w->solver;
    o.optimizer = w->optimizer;
    o.reducer = w->reducer;
    o.density = 0.2;
    o.local_steps = w->local_steps;
    o.staleness = w->staleness;
    o.batch = 1;
    o.coordinates = 1;
    o.C = 0.1;
    rill_trainer *stopped = NULL, *resumed = NULL, *whole = NULL;
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &whole));
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &resumed));
    o.progress = ask;
    o.context = &asks;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &stopped));
    CHECK_OK(rill_trainer_epoch(stopped, &report));
    CHECK(report.stopped && report.epoch == 0 && rill_trainer_epochs(stopped) == 0);
    CHECK(asks.calls == w->at);
    if (!strcmp(w->solver, "newton")) CHECK(asks.total == 0 && asks.done > 0); /* no known end */
    else CHECK(asks.total > 0 && asks.done < asks.total);
    uint64_t samples = report.samples;
    CHECK(samples < ROWS || !strcmp(w->solver, "scd"));
    CHECK_OK(rill_trainer_save(stopped, path));
    CHECK_OK(rill_trainer_load(resumed, path));
    run_to(resumed, epochs, &samples);
    CHECK(samples == ROWS || !strcmp(w->solver, "scd"));
    run_to(stopped, epochs, NULL);
    compare(resumed, stopped);
    run_to(whole, epochs, NULL);
    double with, without;
    CHECK_OK(rill_trainer_objective(resumed, &with, NULL));
    CHECK_OK(rill_trainer_objective(whole, &without, NULL));
    CHECK(with < 1.1 * without && without < 1.1 * with);
    if (!strcmp(w->solver, "newton")) compare(resumed, whole);
    rill_trainer_free(&stopped);
    rill_trainer_free(&resumed);
    rill_trainer_free(&whole);
}

/* Bold-driver judges whole epochs. */
static void test_firm(const rill_dataset *set) {
    asker asks = {.at = 1};
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    rill_trainer *t = NULL;
    check_case("bold-driver");
    o.schedule = "bold-driver";
    o.progress = ask;
    o.context = &asks;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
    CHECK_OK(rill_trainer_epoch(t, &report));
    CHECK(!report.stopped && report.epoch == 1 && asks.calls >= 1);
    rill_trainer_free(&t);
}

/* One rank alone has a progress; and C is not chosen any further. */
static void test_search(const rill_dataset *set) {
    asker asks = {.at = 1};
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    rill_C_choice choice = RILL_C_CHOICE_INIT;
    check_case("the search for C");
    if (check.rank == check.size - 1) {
        o.progress = ask;
        o.context = &asks;
    }
    CHECK_STATUS(rill_trainer_choose_C(MPI_COMM_WORLD, set, &o, &choice), RILL_ERR_STATE);
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    rill_trainer *t = NULL;
    check_case("one rank asks");
    asks.calls = 0;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
    CHECK_OK(rill_trainer_epoch(t, &report));
    CHECK(report.stopped);
    rill_trainer_free(&t);
}

/* A checkpoint, and a reducer's file beside it. */
static void clear(const char *path) {
    char pattern[310];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s*", path);
    if (glob(pattern, 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    int process = (int)getpid();
    char path[300];
    const char *folder = getenv("TMPDIR");
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/rill-stop-%d", folder ? folder : "/tmp", process);
    rill_dataset *set = make_set();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        check_case("%s", ways[i].name);
        /* A small problem of one rank has no products to look at. */
        if (!strcmp(ways[i].solver, "newton") && check.size == 1) continue;
        test_way(set, &ways[i], path);
        if (check.rank == 0) clear(path);
    }
    test_firm(set);
    test_search(set);
    rill_dataset_free(&set);
    return check_finish(10);
}
