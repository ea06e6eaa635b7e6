/* A host program with a comma as decimal point: what the library reads and writes has points all
 * the same, the host's locale stays, and files go from one locale to the other. */
#include "../support/comma.h"
#include "check.h"

#include "../support/plain_train.h"

static char folder[200];

static const char *in(const char *name) {
    static char names[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(names[next], sizeof *names, "%s/%s", folder, name);
    return names[next];
}

static int same_files(const char *a, const char *b) {
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int c = EOF, d = f && g ? EOF : 0;
    if (f && g) do {
            c = getc(f);
            d = getc(g);
        } while (c == d && c != EOF);
    if (f) fclose(f);
    if (g) fclose(g);
    return c == d;
}

static void locale(const char *which) {
    if (*which == ',') CHECK(comma_on(folder));
    else setlocale(LC_ALL, "C");
}

static rill_dataset *load(void) {
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, in("data"), NULL, &set));
    return set;
}

static rill_trainer *make_trainer(const rill_dataset *set) {
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    rill_trainer *t = NULL;
    o.class_weights = "1:2.5,-1:0.5";
    o.C = 1.25;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
    return t;
}

static void save_model(const rill_trainer *t, const char *name) {
    rill_model *m = NULL;
    CHECK_OK(rill_trainer_model(t, &m));
    if (check.rank == 0) CHECK_OK(rill_model_save(m, name));
    rill_model_free(&m);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void model_loads(const rill_trainer *t, const char *name) {
    rill_model *m = NULL, *read = NULL;
    rill_model_view a = RILL_MODEL_VIEW_INIT, b = RILL_MODEL_VIEW_INIT;
    CHECK_OK(rill_trainer_model(t, &m));
    if (CHECK_OK(rill_model_load(name, &read))) {
        rill_model_look(m, &a);
        rill_model_look(read, &b);
        CHECK(a.features == b.features && !memcmp(a.weight, b.weight, a.features * sizeof(double)));
    }
    rill_model_free(&m);
    rill_model_free(&read);
}

static void training(void) {
    check_case("training: text, class weights, models, checkpoints, messages");
    rill_dataset *plain = load();
    rill_trainer *a = make_trainer(plain);
    CHECK_OK(rill_trainer_epoch(a, NULL));
    save_model(a, in("plain"));
    CHECK_OK(rill_trainer_save(a, in("check-plain")));

    locale(",");
    rill_dataset *set = load();
    rill_trainer *b = make_trainer(set);
    CHECK_OK(rill_trainer_epoch(b, NULL));
    save_model(b, in("comma"));
    CHECK(same_files(in("plain"), in("comma")));
    model_loads(b, in("plain"));
    model_loads(b, in("comma"));
    CHECK_OK(rill_trainer_save(b, in("check-comma")));
    CHECK_OK(rill_trainer_load(b, in("check-plain")));
    rill_train_options wrong = RILL_TRAIN_OPTIONS_INIT;
    rill_trainer *none = NULL;
    wrong.momentum = 1.5;
    CHECK_STATUS(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &wrong, &none), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("1.5");
    CHECK(prints_comma()); /* the host's own numbers */

    locale("C");
    CHECK_OK(rill_trainer_load(a, in("check-comma")));
    model_loads(a, in("comma"));
    CHECK_OK(rill_trainer_free(&a));
    CHECK_OK(rill_trainer_free(&b));
    CHECK_OK(rill_dataset_free(&plain));
    CHECK_OK(rill_dataset_free(&set));
}

static void converting(void) {
    check_case("converting");
    if (check.rank != 0) return;
    CHECK_OK(rill_data_convert(in("data"), in("binary"), NULL, NULL, NULL));
    CHECK_OK(rill_data_convert(in("binary"), in("text"), NULL, NULL, NULL));
    locale(",");
    CHECK_OK(rill_data_convert(in("data"), in("binary,"), NULL, NULL, NULL));
    CHECK_OK(rill_data_convert(in("binary,"), in("text,"), NULL, NULL, NULL));
    locale("C");
    CHECK(same_files(in("binary"), in("binary,")) && same_files(in("text"), in("text,")));
}

static void tuning(void) {
    check_case("tuning");
    if (check.size < 2) return; /* there is nothing to measure */
    rill_comm *comm = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    rill_plan_query q = RILL_PLAN_QUERY_INIT;
    rill_plan_row comma[40], point[40];
    int n = 0, m = 0;
    q.ranks = check.size;
    q.dim = 100000;
    q.nnz = 100;
    locale(",");
    rill_tune_options o = RILL_TUNE_OPTIONS_INIT;
    rill_tune_report report = RILL_TUNE_REPORT_INIT;
    const char *profile = in("profile");
    o.profile = profile;
    o.seconds = 0.3;
    CHECK_OK(rill_tune(comm, &o, &report));
    q.profile = profile;
    CHECK_OK(rill_plan(&q, comma, 40, &n));
    locale("C");
    CHECK_OK(rill_plan(&q, point, 40, &m));
    CHECK_INT(n, ==, m);
    for (int i = 0; i < n && n == m; i++)
        CHECK_NUMBER(comma[i].seconds, point[i].seconds);
    CHECK_OK(rill_comm_free(&comm));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
#ifdef SMPI_H
    return check_skip("SimGrid's ranks share one locale");
#endif
    if (check.rank == 0) {
        const char *where = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/rill-locale-XXXXXX", where && *where ? where : "/tmp");
        CHECK(mkdtemp(folder) != NULL);
        comma_make(folder);
        FILE *f = fopen(in("data"), "w");
        for (int i = 0; f && i < 60; i++)
            fprintf(f, "%d %d:0.25 %d:1.5 9:0.%d123456789012345678901\n", i % 2 ? 1 : -1, 1 + i % 3,
                    5 + i % 2, 10 + i);
        CHECK(f && fclose(f) == 0);
    }
    MPI_Bcast(folder, sizeof folder, MPI_BYTE, 0, MPI_COMM_WORLD);
    int there = comma_on(folder);
    locale("C");
    if (there) {
        training();
        converting();
        tuning();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    if (check.rank == 0) CHECK(system(command) == 0);
    if (!there) return check_skip("there is no locale with a comma, and none can be made");
    return check_finish(3);
}
