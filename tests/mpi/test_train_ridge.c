/* The search for C of least squares: its losses are those of trainings to the optimum on the same
 * splits, with more rows than columns and fewer, each scale, an intercept, a bias with a penalty or
 * neither, and weights of rows; on any number of ranks, which share the splits. And newton's
 * optimum with fewer rows than columns, against an elimination of the test's own. */
#include "check.h"

#include <math.h>
#include <rill/train.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST_ROWS = 300, MOST_COLUMNS = 150, SPLITS = 10 };

typedef struct problem {
    const char *name;
    uint64_t rows, columns;
    double full;   /* share of entries that are there */
    double offset; /* of the targets, and of every third column */
    bool weighted;
} problem;

static const problem problems[] = {
    {"ridge, a few columns", 300, 7, 1, 0, false},
    {"ridge, one column", 40, 1, 1, 3, false},
    {"ridge, far from 0", 200, 12, 1, 1e4, false},
    {"ridge, gaps, weights", 250, 30, 0.3, 2, true},
    {"ridge, more columns than rows", 90, 150, 1, 0, false},
    {"ridge, more columns than rows, gaps, weights", 100, 140, 0.4, 5, true},
};
enum { PROBLEMS = sizeof problems / sizeof *problems, WIDE = 4 };

static double draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24) - 0.5;
}

typedef struct rows_of {
    uint64_t row[MOST_ROWS + 1];
    uint32_t index[MOST_ROWS * MOST_COLUMNS + 1];
    float value[MOST_ROWS * MOST_COLUMNS + 1], weight[MOST_ROWS + 1];
    double label[MOST_ROWS + 1];
} rows_of;

/* Rows first to last of the problem, for as many ranks as comm has. */
static rill_dataset *make_set(rill_comm *comm, const problem *p, uint64_t first, uint64_t last) {
    static rows_of data;
    uint64_t entries = 0, n = last - first;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t state = (first + i) * 2654435761u + 7;
        double sum = p->offset + draw(&state);
        data.row[i] = entries;
        for (uint32_t j = 0; j < p->columns; j++) {
            double x = draw(&state) * (1 + j % 5) + (j % 3 ? 0 : p->offset / 100);
            if (draw(&state) + 0.5 >= p->full) continue;
            sum += j % 4 ? 0 : x;
            data.index[entries] = j;
            data.value[entries++] = (float)x;
        }
        data.label[i] = sum;
        data.weight[i] = (float)(0.1 + (double)((first + i) % 7));
    }
    data.row[n] = entries;
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = p->columns;
    view.rows = n;
    view.row = data.row;
    view.index32 = data.index;
    view.value = data.value;
    view.label = data.label;
    view.weight = p->weighted ? data.weight : NULL;
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_create_on(comm, &view, &set));
    return set;
}

/* A bias below 0 is none. */
typedef struct setting {
    const char *scale;
    int intercept;
    double bias;
} setting;
static const setting settings[] = {
    {"none", 0, -1}, {"none", 1, 1}, {"max", 1, 1}, {"std", 0, 2}, {"rows", 1, 1}};
enum { SETTINGS = sizeof settings / sizeof *settings };

static rill_train_options options(const setting *s) {
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    o.loss = "squared";
    o.task = "regress";
    o.solver = "newton";
    o.scale = s->scale;
    o.intercept = s->intercept;
    o.bias = s->bias;
    return o;
}

/* The mean loss over the splits that the search makes, each trained to the optimum. */
static double trained(rill_comm *alone, const rill_dataset *whole, const rill_train_options *given,
                      double C) {
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    double sum = 0;
    for (uint64_t split = 0; split < SPLITS; split++) {
        rill_train_options o = *given;
        rill_train_report report = RILL_TRAIN_REPORT_INIT;
        rill_trainer *t = NULL;
        o.C = C;
        o.tolerance = 1e-9;
        o.valid_fraction = 0.2;
        o.seed = 1 ^ (odd * split);
        CHECK_OK(rill_trainer_create_on(alone, whole, NULL, &o, &t));
        for (int e = 0; t && e < 50 && !report.converged; e++)
            CHECK_OK(rill_trainer_epoch(t, &report));
        CHECK_OK(rill_trainer_free(&t));
        sum += report.valid_loss;
    }
    return sum / SPLITS;
}

static void check_problem(rill_comm *comm, rill_comm *alone, const problem *p) {
    uint64_t rank = (uint64_t)check.rank, ranks = (uint64_t)check.size;
    check_case(p->name);
    rill_dataset *whole = make_set(alone, p, 0, p->rows);
    rill_dataset *part = make_set(comm, p, p->rows * rank / ranks, p->rows * (rank + 1) / ranks);
    for (int k = 0; k < SETTINGS && whole && part; k++) {
        rill_train_options o = options(&settings[k]);
        rill_C_choice choice = RILL_C_CHOICE_INIT;
        CHECK_OK(rill_trainer_choose_C_on(comm, part, &o, &choice));
        int compared = 0;
        for (int i = 0; i < choice.tries; i++) {
            if (choice.tried[i] > 30) continue; /* floats, as trainers have, wander there */
            double loss = trained(alone, whole, &o, choice.tried[i]);
            compared++;
            if (!CHECK(fabs(choice.loss[i] - loss) <= 2e-4 * loss + 1e-9))
                fprintf(stderr, "%s %d %g, C = %g: %.9g, trained %.9g\n", o.scale, o.intercept,
                        o.bias, choice.tried[i], choice.loss[i], loss);
        }
        CHECK_INT(compared, >=, 2);
    }
    CHECK_OK(rill_dataset_free(&whole));
    CHECK_OK(rill_dataset_free(&part));
}

/* The weights of a ridge regression of dense rows with an intercept, by elimination among the rows;
 * the last is the intercept. */
static double *by_elimination(const rill_data_view *d, double C) {
    uint64_t n = d->dim, m = d->rows;
    double *x = calloc(m * n, sizeof *x), *a = malloc(m * (m + 1) * sizeof *a);
    double *w = calloc(n + 1, sizeof *w), *mean = calloc(n + 1, sizeof *mean);
    for (uint64_t i = 0; i < m; i++) {
        mean[n] += d->label[i] / (double)m;
        for (uint64_t j = 0; j < n; j++)
            mean[j] += d->value[i * n + j] / (double)m;
    }
    for (uint64_t i = 0; i < m * n; i++)
        x[i] = d->value[i] - mean[i % n];
    for (uint64_t i = 0; i < m; i++) {
        double *row = a + i * (m + 1);
        row[m] = d->label[i] - mean[n];
        for (uint64_t k = 0; k < m; k++) {
            row[k] = i == k ? 1 / (2 * C) : 0;
            for (uint64_t j = 0; j < n; j++)
                row[k] += x[i * n + j] * x[k * n + j];
        }
    }
    for (uint64_t i = 0; i < m; i++) /* the matrix is positive: no row need be chosen */
        for (uint64_t k = 0; k < m; k++) {
            double by = k == i ? 0 : a[k * (m + 1) + i] / a[i * (m + 1) + i];
            for (uint64_t j = i; by != 0 && j <= m; j++)
                a[k * (m + 1) + j] -= by * a[i * (m + 1) + j];
        }
    w[n] = mean[n];
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++)
            w[j] += x[i * n + j] * (a[i * (m + 1) + m] / a[i * (m + 1) + i]);
    for (uint64_t j = 0; j < n; j++)
        w[n] -= mean[j] * w[j];
    free(x);
    free(a);
    free(mean);
    return w;
}

/* Fewer rows than columns: what no row sees of the weights is 0 at the optimum, whatever C. */
static void check_optimum(rill_comm *alone, const problem *p) {
    check_case("%s: the optimum", p->name);
    rill_dataset *set = make_set(alone, p, 0, p->rows);
    rill_data_view view = RILL_DATA_VIEW_INIT;
    CHECK_OK(rill_dataset_view(set, &view));
    for (double C = 0.1; C < 1e6; C *= 100) {
        rill_train_options o = options(&(setting){"none", 1, 1});
        rill_train_report report = RILL_TRAIN_REPORT_INIT;
        rill_model_view look = RILL_MODEL_VIEW_INIT;
        rill_trainer *t = NULL;
        rill_model *model = NULL;
        o.C = C;
        o.tolerance = 1e-6;
        CHECK_OK(rill_trainer_create_on(alone, set, NULL, &o, &t));
        for (int e = 0; e < 10 && !report.converged; e++)
            CHECK_OK(rill_trainer_epoch(t, &report));
        CHECK(report.converged);
        CHECK_OK(rill_trainer_model(t, &model));
        CHECK_OK(rill_model_look(model, &look));
        double *w = by_elimination(&view, C), apart = 0, length = 0;
        for (uint64_t j = 0; j <= p->columns; j++) {
            apart += (look.weight[j] - w[j]) * (look.weight[j] - w[j]);
            length += w[j] * w[j];
        }
        CHECK(apart <= 1e-10 * length);
        free(w);
        rill_model_free(&model);
        CHECK_OK(rill_trainer_free(&t));
    }
    CHECK_OK(rill_dataset_free(&set));
}

int main(int argc, char **argv) {
    check_init_thread(&argc, &argv, MPI_THREAD_SINGLE);
    rill_comm *comm = NULL, *alone = NULL;
    if (CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm)) &&
        CHECK_OK(rill_comm_create_local(1, NULL, &alone)))
        for (int i = 0; i < PROBLEMS; i++) {
            check_problem(comm, alone, &problems[i]);
            if (i == WIDE) check_optimum(alone, &problems[i]);
        }
    CHECK_OK(rill_comm_free(&alone));
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(PROBLEMS + 1);
}
