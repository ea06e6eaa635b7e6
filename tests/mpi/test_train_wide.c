/* Wide data, of which a rank has few features: sums go to the ranks that have a part in them, and
 * the model is the one that whole vectors give, the same on all ranks, whatever was cut. */
#include "check.h"

#include <math.h>
#include <rill/train.h>
#include <stdlib.h>

/* Features: those of all rows, those of one row in two ranks, those of a rank alone, and those that
 * no row has. */
enum { ROWS = 40, COMMON = 8, PAIRED = 300, ALONE = 200, ENTRIES = 12, MOST = 64 };
static uint64_t least_dim = 0;

static uint64_t dim(void) {
    uint64_t n = COMMON + (uint64_t)check.size * (PAIRED + 2 * ALONE);
    return n > least_dim ? n : least_dim; /* half of the last are absent */
}

static double draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24);
}

static int by_number(const void *a, const void *b) {
    return (int)(*(const uint32_t *)a > *(const uint32_t *)b) -
           (int)(*(const uint32_t *)a < *(const uint32_t *)b);
}

/* Some values are 0, and so are the sums of some features. */
static double make_row(uint64_t i, int classes, uint32_t *index, float *value) {
    uint64_t state = i * 2654435761u + 77 + 1000 * (uint64_t)check.rank;
    uint64_t ranks = (uint64_t)check.size, me = (uint64_t)check.rank, next = (me + 1) % ranks;
    double sum = 0;
    for (uint32_t k = 0; k < ENTRIES; k++) {
        uint32_t step = k / 3 * 50 + (uint32_t)(draw(&state) * 50);
        uint64_t pair = COMMON + (k % 3 == 1 ? me : next) * PAIRED + step;
        uint64_t alone = COMMON + ranks * PAIRED + 2 * (me * ALONE + step);
        index[k] = k % 3 == 0 ? k / 3 * 2 + (uint32_t)(draw(&state) * 2)
                              : (uint32_t)(k % 6 < 3    ? pair
                                           : k % 3 == 1 ? alone
                                                        : pair);
    }
    qsort(index, ENTRIES, sizeof *index, by_number);
    for (uint32_t k = 0; k < ENTRIES; k++) {
        value[k] = index[k] % 5 == 4 ? 0 : (float)(0.5 + draw(&state));
        sum += (index[k] % 2 ? 1 : -1) * value[k];
    }
    sum += draw(&state) - 0.5;
    return classes == 2 ? (sum > 0 ? 1 : -1) : sum < -0.5 ? 3 : sum < 0.5 ? 4 : 5;
}

static rill_dataset *make_set(int classes) {
    static uint64_t row[ROWS + 1];
    static uint32_t index[ROWS * ENTRIES];
    static float value[ROWS * ENTRIES];
    static double label[ROWS];
    uint64_t at = 0;
    for (uint64_t i = 0; i < ROWS; i++) {
        uint32_t one[ENTRIES];
        float of[ENTRIES];
        label[i] = make_row(i, classes, one, of);
        for (int k = 0; k < ENTRIES; k++) {
            if (k && one[k] == one[k - 1]) continue;
            index[at] = one[k];
            value[at++] = of[k];
        }
        row[i + 1] = at;
    }
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = dim();
    view.rows = ROWS;
    view.row = row;
    view.index32 = index;
    view.value = value;
    view.label = label;
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_create(MPI_COMM_WORLD, &view, &set));
    return set;
}

static rill_train_options options(const char *solver) {
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    o.solver = solver;
    o.scale = "none";
    o.intercept = 1;
    o.C = 1;
    o.tolerance = 1e-6;
    return o;
}

/* Weights as they are; the caller frees them. */
static double *weights_of(const rill_trainer *t, uint64_t *n) {
    rill_model *model = NULL;
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    CHECK_OK(rill_trainer_model(t, &model));
    CHECK_OK(rill_model_look(model, &view));
    *n = (view.features + (view.bias >= 0)) * (uint64_t)view.columns;
    double *w = malloc((size_t)(*n + 1) * sizeof *w);
    memcpy(w, view.weight, (size_t)*n * sizeof *w);
    CHECK_OK(rill_model_free(&model));
    return w;
}

static double *train(const rill_dataset *set, const rill_train_options *o, uint64_t *n,
                     double *objective, uint64_t *sent) {
    rill_trainer *t = NULL;
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, o, &t));
    *sent = 0;
    for (int e = 0; e < 30 && !report.converged; e++) {
        CHECK_OK(rill_trainer_epoch(t, &report));
        if (!e) *sent = report.sent_bytes;
    }
    CHECK_OK(rill_trainer_objective(t, objective, NULL));
    double *w = weights_of(t, n);
    CHECK_OK(rill_trainer_free(&t));
    return w;
}

static void check_same_everywhere(const double *w, uint64_t n) {
    double *first = malloc((size_t)(n + 1) * sizeof *first);
    memcpy(first, w, (size_t)n * sizeof *w);
    MPI_Bcast(first, (int)n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    CHECK(memcmp(first, w, (size_t)n * sizeof *w) == 0);
    free(first);
}

/* By whole vectors, which an algorithm that is named sums, and by lists. */
static void test_optimum(void) {
    for (int i = 0; i < 4; i++) {
        rill_train_options o = options(i % 2 ? "hybrid" : "newton"), whole = o;
        rill_dataset *set = make_set(i < 2 ? 2 : 3);
        check_case("wide data, %s, %d classes", o.solver, i < 2 ? 2 : 3);
        whole.algorithm = "split_allgather";
        uint64_t n, same, sent, sent_whole;
        double objective, expected, furthest = 0;
        double *w = train(set, &o, &n, &objective, &sent);
        double *by_whole = train(set, &whole, &same, &expected, &sent_whole);
        CHECK(n == same);
        for (uint64_t j = 0; j < n && j < same; j++)
            furthest = fmax(furthest, fabs(w[j] - by_whole[j]));
        CHECK(furthest < 2e-3);
        CHECK(fabs(objective - expected) <= 1e-5 * expected);
        check_same_everywhere(w, n);
        if (check.size > 2) CHECK(sent > 0 && sent < sent_whole);
        free(w);
        free(by_whole);
        CHECK_OK(rill_dataset_free(&set));
    }
}

/* A second run, and one that goes on from a checkpoint: the same bits. */
static void test_bits(void) {
    char path[300];
    const char *folder = getenv("TMPDIR");
    int process = (int)getpid();
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/rill-wide-%d", folder ? folder : "/tmp", process);
    for (int i = 0; i < 4; i++) {
        rill_train_options o = options(i % 2 ? "hybrid" : "newton");
        rill_dataset *set = make_set(i < 2 ? 2 : 3);
        rill_trainer *t = NULL, *u = NULL;
        check_case("wide data, a checkpoint of %s", o.solver);
        CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
        CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &u));
        for (int e = 0; e < 4; e++) {
            if (e == 1) CHECK_OK(rill_trainer_save(t, path)); /* between the hybrid's passes */
            CHECK_OK(rill_trainer_epoch(t, NULL));
        }
        CHECK_OK(rill_trainer_load(u, path));
        for (int e = 1; e < 4; e++)
            CHECK_OK(rill_trainer_epoch(u, NULL));
        uint64_t n, same;
        double *w = weights_of(t, &n), *again = weights_of(u, &same);
        CHECK(n == same && memcmp(w, again, (size_t)n * sizeof *w) == 0);
        check_same_everywhere(again, n);
        free(w);
        free(again);
        CHECK_OK(rill_trainer_free(&t));
        CHECK_OK(rill_trainer_free(&u));
        CHECK_OK(rill_dataset_free(&set));
        MPI_Barrier(MPI_COMM_WORLD);
        if (check.rank == 0) unlink(path);
    }
}

/* Vectors and their sums lie side by side where a model is long and has one thread, and apart where
 * threads share it: the same bits. */
static void test_long(void) {
    least_dim = (1 << 17) + 10;
    rill_dataset *set = make_set(2);
    for (int i = 0; i < 4; i++) {
        rill_train_options o = options(i % 2 ? "hybrid" : "newton");
        uint64_t n, same, sent;
        double objective, expected;
        o.scale = i < 2 ? "none" : "max";
        check_case("a long model, %s, scale %s", o.solver, o.scale);
        o.threads = 1;
        double *w = train(set, &o, &n, &objective, &sent);
        o.threads = 2;
        double *apart = train(set, &o, &same, &expected, &sent);
        CHECK(n == same && memcmp(w, apart, (size_t)n * sizeof *w) == 0);
        CHECK(objective == expected && w[0] != 0);
        check_same_everywhere(w, n);
        free(w);
        free(apart);
    }
    CHECK_OK(rill_dataset_free(&set));
    least_dim = 0;
}

int main(int argc, char **argv) {
    check_init_thread(&argc, &argv, MPI_THREAD_FUNNELED);
    test_optimum();
    test_bits();
    test_long();
    return check_finish(8);
}
