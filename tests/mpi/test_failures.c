/* What one rank's failed allocation or file call does to all of them (failures.h), over every call
 * that communicates or writes. Needs tests/failing/fail_preload.c, which scripts/mpirun-test
 * preloads.
 *   --list              names of the scenarios
 *   --only TEXT         those whose name has TEXT in it; --exact: is TEXT
 *   --long              all scenarios, failing ranks and modes; else a choice
 *   --part I/N          of them every N-th, from the I-th on
 *   --rank R  --kind 0|1 (memory, files)  --mode 0|1|2 (once, from then on, short)  --from N  --to
 * N */
#include "failures_calls.h"
#include "failures_reducer.h"
#include "failures_train.h"

enum { MOST_SCENARIOS = 1200 };
static scenario scenarios[MOST_SCENARIOS];
static int scenario_count;

static scenario *add(void (*attempt)(const scenario *), int quick, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static scenario *add(void (*attempt)(const scenario *), int quick, const char *format, ...) {
    if (scenario_count >= MOST_SCENARIOS) {
        fprintf(stderr, "more than %d scenarios\n", MOST_SCENARIOS);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    scenario *s = &scenarios[scenario_count++];
    va_list args;
    va_start(args, format);
    vsnprintf(s->name, sizeof s->name, format, args);
    va_end(args);
    s->attempt = attempt;
    s->quick = quick;
    return s;
}

static void list_collectives(void) {
    static const char *const forms[] = {"", " nonblocking", " persistent"};
    add(attempt_create, 1, "comm_create");
    add(attempt_create, 1, "comm_create thread")->form = 1;
    add(attempt_dup, 1, "comm_dup");
    for (int c = 0; c < RILL_COLLECTIVES; c++)
        for (int a = -1; a < 0 || rill_algorithm_at((rill_collective)c, a, NULL); a++)
            for (int bits = 0; bits <= 4; bits += 4)
                for (int how = 0; how < 3; how++) {
                    const char *name = a < 0 ? "auto"
                                             : rill_algorithm_at((rill_collective)c, a, NULL);
                    int quick = how == (c + a + 3) % 3 && (bits == 0 || a == 1);
                    scenario *s = add(attempt_collective, quick, "%s %s bits %d%s",
                                      rill_collective_name((rill_collective)c), name, bits,
                                      forms[how]);
                    s->collective = (rill_collective)c;
                    s->algorithm = name;
                    s->bits = bits;
                    s->form = how;
                }
    for (int how = 0; how < SMALL_FORMS; how++) {
        scenario *small = add(attempt_small, 1, "allreduce small, %s", small_names[how]);
        small->collective = RILL_ALLREDUCE;
        small->algorithm = how == SMALL_SAME ? "recursive_double" : "auto";
        small->form = how;
    }
    for (int how = 0; how < 3; how++) {
        scenario *reads = add(attempt_collective, how < 2, "allreduce dense reading%s", forms[how]);
        reads->collective = RILL_ALLREDUCE;
        reads->algorithm = "dense";
        reads->form = how;
        reads->reads = 1;
    }
    scenario *s = add(attempt_tune, 0, "tune");
    s->files = 1;
}

static scenario *add_reducer(const char *algorithm, const char *select, int bits, int momentum,
                             int how, int step, int quick) {
    char when[32] = "create";
    if (step != RED_CREATE) snprintf(when, sizeof when, "%s %d", red_form_names[how], step);
    scenario *s = add(attempt_reducer, quick, "reducer %s%s%s bits %d%s %s", algorithm,
                      select ? " select " : "", select ? select : "", bits,
                      momentum ? " momentum" : "", when);
    s->algorithm = algorithm;
    s->select = select;
    s->bits = bits;
    s->momentum = momentum;
    s->form = how;
    s->step = step;
    return s;
}

/* First step, one in the middle, one that evaluates thresholds and partitions anew. */
static void list_reducer(const char *algorithm, int own) {
    static const int steps[] = {RED_CREATE, 0, 2, RED_INTERVAL};
    for (int bits = 0; bits <= 4; bits += 4)
        for (int i = 0; i < 4; i++)
            for (int how = 0; how < (i ? RED_FORMS : 1); how++) {
                int quick = own && bits == 0 && how == RED_STEP && i != 2;
                add_reducer(algorithm, NULL, bits, 0, how, steps[i], quick);
            }
    for (int i = 0; i < 4; i++) {
        add_reducer(algorithm, "auto", 0, 0, RED_STEP, steps[i], own && i == 1);
        add_reducer(algorithm, NULL, 4, 1, RED_STEP, steps[i], 0);
        add_reducer(algorithm, NULL, 0, 1, RED_ACCUMULATE, steps[i], 0);
    }
    for (int load = 0; load < 2; load++) {
        int quick = own && strcmp(algorithm, "spardl") == 0;
        scenario *s = add(load ? attempt_load : attempt_save, quick, "reducer %s %s", algorithm,
                          load ? "load" : "save");
        s->algorithm = algorithm;
        s->files = 1;
    }
}

static void list_reducers(void) {
    list_reducer("auto", 0);
    for (int i = 0; rill_algorithm_at(RILL_REDUCER, i, NULL); i++)
        list_reducer(rill_algorithm_at(RILL_REDUCER, i, NULL), 1);
    for (int i = 0; rill_algorithm_at(RILL_ALLREDUCE, i, NULL); i++) {
        const char *name = rill_algorithm_at(RILL_ALLREDUCE, i, NULL);
        list_reducer(name, strcmp(name, "dense") == 0);
    }
}

static void list_training(void) {
    static const char *const sets[] = {"dataset_load text", "dataset_load binary",
                                       "dataset_create"};
    static const char *const calls[] = {"create", "epoch", "objective", "save", "load"};
    for (int i = 0; i < 3; i++) {
        scenario *s = add(attempt_dataset, 1, "%s", sets[i]);
        s->form = i;
        s->files = i < 2;
    }
    for (int i = 0; i < TRAININGS; i++) {
        for (int call = TRAIN_CREATE; call <= TRAIN_LOAD; call++) {
            int quick = i < 4 && call <= TRAIN_EPOCH;
            scenario *s = add(attempt_trainer, quick, "trainer %s %s", trainings[i].name,
                              calls[call]);
            s->form = i;
            s->step = call;
            s->files = call >= TRAIN_SAVE;
            s->stride = 3;
        }
    }
    scenario *s = add(attempt_model, 0, "model save");
    s->files = 1;
    s = add(attempt_model, 0, "model evaluate");
    s->step = TRAIN_MODEL;
    add(attempt_choose, 0, "choose_C");
    static const char *const on[] = {"load_files", "load_files stream", "load_weights",
                                     "trainer start", "calibrate"};
    for (int i = ON_FILES; i <= ON_CALIBRATE; i++) {
        s = add(i <= ON_STREAM ? attempt_files : attempt_on, 0, "%s", on[i]);
        s->step = i;
        s->files = i <= ON_WEIGHTS;
    }
}

static void run_scenarios(int argc, char **argv, int every) {
    const char *only = check_argument(argc, argv, "--only");
    int exact = check_argument(argc, argv, "--exact") != NULL, part = 0, parts = 1;
    const char *share = check_argument(argc, argv, "--part");
    if (share && sscanf(share, "%d/%d", &part, &parts) != 2) parts = 1;
    fail_range range = {(long)check_number(argc, argv, "--from", 1),
                        (long)check_number(argc, argv, "--to", INT32_MAX),
                        (int)check_number(argc, argv, "--rank", (uint64_t)-1),
                        (int)check_number(argc, argv, "--kind", (uint64_t)-1),
                        (int)check_number(argc, argv, "--mode", (uint64_t)-1)};
    for (int i = 0; i < scenario_count; i++) {
        const scenario *s = &scenarios[i];
        if (parts > 1 && i % parts != part) continue;
        int named = only && (exact ? strcmp(s->name, only) == 0 : strstr(s->name, only) != NULL);
        if (only ? !named : !every && !s->quick) continue;
        long points = failing.points, failures = check.failures;
        double start = MPI_Wtime();
        fail_scenario(s, every, &range);
        MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
        if (check.rank == 0)
            printf("%-60s %5ld points %6.2f s\n", s->name, failing.points - points,
                   MPI_Wtime() - start);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    check_init_thread(&argc, &argv, MPI_THREAD_MULTIPLE);
    if (!check_argument(argc, argv, "--patience")) check.patience = 20;
    list_collectives();
    list_reducers();
    list_training();
    if (check_argument(argc, argv, "--list")) {
        for (int i = 0; i < scenario_count && check.rank == 0; i++)
            printf("%s%s\n", scenarios[i].quick ? "* " : "  ", scenarios[i].name);
        MPI_Finalize();
        return 0;
    }
    *(void **)&failing.arm = dlsym(RTLD_DEFAULT, "rill_fail_arm");
    *(void **)&failing.hits = dlsym(RTLD_DEFAULT, "rill_fail_hits");
    if (!failing.arm || !failing.hits || !failing.arm(0, 0, 0))
        return check_skip("failures are not preloaded into librill.so and librill_train.so");
    if (check.size < 2) return check_skip("one rank has nobody to tell");
    make_folder();
    run_scenarios(argc, argv, check_argument(argc, argv, "--long") != NULL);
    clear_files();
    remove_data();
    if (check.rank == 0) {
        rmdir(failing.folder);
        printf("%ld points tried; %ld calls refused\n", failing.points, failing.refused);
    }
    CHECK(failing.points > 0);
    return check_finish(1);
}
