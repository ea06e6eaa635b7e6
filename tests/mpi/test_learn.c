/* The planner learns from real calls: whatever it learns, all ranks predict and choose alike and
 * get the same bits, also between non-blocking calls and with a rank that comes late; forget,
 * frozen, predict and off do what they say; what was learned is there for the next communicator and
 * in checkpoints, and a cache that cannot be read or written harms nobody. --calls N */
#include "runs.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { KINDS = 5 };
static const uint64_t dims[KINDS] = {100, 5000, 1 << 15, 70000, 1 << 17};
static const double densities[KINDS] = {0.1, 0.01, 0.2, 0.001, 0.02};
static rill_stream *in[KINDS], *out[KINDS];
static char folder[200];

static void make_streams(void) {
    for (int k = 0; k < KINDS; k++) {
        uint64_t state = check.seed + 77 * (uint64_t)check.rank + (uint64_t)k, n = 0;
        uint64_t most = (uint64_t)((double)dims[k] * densities[k]);
        uint32_t *idx = malloc(most * sizeof *idx);
        float *val = malloc(most * sizeof *val);
        if (!idx || !val) abort();
        for (uint64_t i = 0; i < most; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            idx[n] = (uint32_t)(i * dims[k] / most + (state >> 40) % (dims[k] / most));
            val[n++] = (float)(state >> 33) * 1e-6f;
        }
        CHECK_OK(rill_stream_create(RILL_F32, dims[k], &in[k]));
        CHECK_OK(rill_stream_create(RILL_F32, dims[k], &out[k]));
        CHECK_OK(rill_stream_set_pairs(in[k], n, idx, val));
        free(idx);
        free(val);
    }
}

/* All ranks have the same three numbers. */
static void check_alike(double first, double second, double third) {
    double ends[] = {first, -first, second, -second, third, -third}, all[6];
    MPI_Allreduce(ends, all, 6, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < 6; i += 2)
        CHECK_NUMBER(all[i], -all[i + 1]);
}

/* Bits of a result, as a number that doubles hold. */
static double bits_of(const rill_stream *s, uint64_t dim) {
    static float dense[1 << 17];
    uint64_t hash = 0;
    CHECK_OK(rill_stream_get_dense(s, dense));
    for (uint64_t i = 0; i < dim; i++) {
        uint32_t word;
        memcpy(&word, &dense[i], sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return (double)(hash >> 12);
}

/* One call; what was predicted for it. */
static double call(rill_comm *comm, int k) {
    rill_stats stats = RILL_STATS_INIT;
    CHECK_OK(rill_allreduce(comm, in[k], out[k], RILL_SUM, NULL));
    CHECK_OK(rill_comm_stats(comm, &stats));
    double name = 0;
    for (const char *c = stats.algorithm; *c; c++)
        name = name * 7 + *c;
    check_alike(stats.predicted_s, name, bits_of(out[k], dims[k]));
    return stats.predicted_s;
}

static rill_comm *create(const char *profile, const char *learn) {
    rill_comm *comm = NULL;
    setenv("RILL_PROFILE", profile, 1);
    setenv("RILL_LEARN", learn, 1);
    CHECK_OK(test_link_create(MPI_COMM_WORLD, NULL, &comm));
    return comm;
}

static void rest(long ns) {
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

static void mix(rill_comm *comm, int calls) {
    uint64_t state = check.seed;
    for (int i = 0; i < calls; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        int k = (int)((state >> 40) % KINDS);
        check_case("mixed call %d, kind %d", i, k);
        if (i % 16 == 7 && check.rank == i % check.size) rest(200000);
        if (i % 16 == 11) {
            rill_request *r = NULL;
            rill_stream *copy = NULL;
            int other = (k + 1) % KINDS;
            CHECK_OK(rill_stream_create(RILL_F32, dims[other], &copy));
            CHECK_OK(rill_iallreduce(comm, in[other], copy, RILL_SUM, NULL, &r));
            call(comm, k);
            CHECK_OK(rill_wait(r));
            check_alike(bits_of(copy, dims[other]), 0, 0);
            CHECK_OK(rill_request_free(&r));
            rill_stream_free(&copy);
        } else {
            call(comm, k);
        }
    }
}

static void learns_and_forgets(int calls) {
    check_case("learning is on");
    rill_comm *comm = create("none", "on");
    double first = call(comm, 4);
    mix(comm, calls);
    check_case("what was learned changes predictions");
    if (check.size > 1) CHECK(call(comm, 4) != first);
    check_case("what is forgotten is as it was");
    CHECK_OK(rill_comm_forget(comm));
    CHECK_NUMBER(call(comm, 4), first);
    mix(comm, calls / 4);
    CHECK_OK(rill_comm_free(&comm));
}

static void stands_still(const char *profile, const char *learn) {
    check_case("profile '%s', learn %s: predictions stand still", profile, learn);
    rill_comm *comm = create(profile, learn);
    double second[KINDS];
    for (int k = 0; k < KINDS; k++) {
        call(comm, k);
        second[k] = call(comm, k);
    }
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < KINDS; k++)
            CHECK_NUMBER(call(comm, k), second[k]);
    CHECK_OK(rill_comm_free(&comm));
}

/* ---- the cache: rank 0's --------------------------------------------------------------------- */

static void use_folder(const char *name) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    setenv("XDG_CACHE_HOME", *name == '/' ? name : path, 1);
    setenv("XDG_CONFIG_HOME", path, 1);
}

/* The names of the files that there are. */
static int list(const char *name, char *first, size_t size) {
    char command[600], line[300] = "";
    int n = 0;
    snprintf(command, sizeof command, "ls -d '%s/%s/rill/'* 2>/dev/null", folder, name);
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!n++) snprintf(first, size, "%s", line);
    }
    if (f) pclose(f);
    return n;
}

static double predicted_at_first(const char *learn) {
    rill_comm *comm = create("", learn);
    double first = call(comm, 4);
    CHECK_OK(rill_comm_free(&comm));
    return first;
}

static void is_kept(int calls) {
    char file[300] = "";
    check_case("nothing is kept yet");
    use_folder("kept");
    double before = predicted_at_first("off");
    check_case("it is kept");
    rill_comm *comm = create("", "auto");
    mix(comm, 2 * calls);
    CHECK_OK(rill_comm_free(&comm));
    if (check.rank == 0 && check.size > 1) CHECK_INT(list("kept", file, sizeof file), ==, 1);
    double after = predicted_at_first("frozen");
    if (check.size > 1) CHECK(before != after);
    check_case("off does not look");
    CHECK_NUMBER(predicted_at_first("off"), before);
    stands_still("", "frozen");
    check_case("a broken file is passed over, and replaced");
    if (check.rank == 0 && *file) {
        FILE *f = fopen(file, "w");
        if (f) fputs("rill profile 1\nentry ranks 1 hosts 1 crowding 1\nlatency nan\n", f);
        if (f) fclose(f);
    }
    CHECK_NUMBER(predicted_at_first("frozen"), before);
    comm = create("", "on");
    mix(comm, 2 * calls);
    CHECK_OK(rill_comm_free(&comm));
    if (check.size > 1) CHECK(predicted_at_first("frozen") != before);
}

/* Steps of a reducer whose algorithm the planner chooses; their updates as a number. */
static double steps(rill_reducer *r, int from, int to) {
    static float gradient[1 << 15], update[1 << 15];
    uint64_t hash = 0;
    for (int step = from; step < to; step++) {
        uint64_t state = (uint64_t)(step * 64 + check.rank);
        for (int i = 0; i < 1 << 15; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            gradient[i] = (float)(int32_t)(state >> 32) * 1e-9f;
        }
        CHECK_OK(rill_reducer_step(r, gradient, update));
        for (int i = 0; i < 1 << 15; i++) {
            uint32_t word;
            memcpy(&word, &update[i], sizeof word);
            hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        }
    }
    return (double)(hash >> 12);
}

static rill_reducer *make_reducer(rill_comm *comm) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *r = NULL;
    o.select = "topk";
    o.density = 0.02;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, 1 << 15, &o, &r));
    return r;
}

/* A reducer goes on to the same bits in a job that starts from other constants. */
static void checkpoints_have_it(void) {
    char path[300];
    snprintf(path, sizeof path, "%s/checkpoint", folder);
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    check_case("a checkpoint with what was learned");
    rill_comm *comm = create("", "frozen");
    rill_reducer *r = make_reducer(comm);
    steps(r, 0, 3);
    CHECK_OK(rill_reducer_save(r, path));
    double wanted = steps(r, 3, 6);
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_comm_free(&comm));
    check_case("it is loaded where nothing was");
    comm = create("none", "auto");
    r = make_reducer(comm);
    CHECK_OK(rill_reducer_load(r, path));
    CHECK_NUMBER(steps(r, 3, 6), wanted);
    CHECK_OK(rill_reducer_save(r, path));
    CHECK_OK(rill_reducer_load(r, path));
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_comm_free(&comm));
}

static void is_not_missed(int calls) {
    check_case("there can be no folder");
    use_folder("/dev/null");
    rill_comm *comm = create("", "on");
    mix(comm, calls);
    CHECK_OK(rill_comm_free(&comm));
    check_case("the file cannot be written: a folder is in its place");
    use_folder("blocked");
    comm = create("", "on");
    mix(comm, calls);
    CHECK_OK(rill_comm_free(&comm));
    char file[300] = "", inside[320];
    if (check.rank == 0 && list("blocked", file, sizeof file) == 1) {
        snprintf(inside, sizeof inside, "%s/x", file);
        CHECK_INT(remove(file) | mkdir(file, 0700) | mkdir(inside, 0700), ==, 0);
    }
    comm = create("", "on");
    mix(comm, calls);
    CHECK_OK(rill_comm_free(&comm));
}

static void wrong_settings(void) {
    check_case("a mode that is none");
    rill_comm *comm = NULL;
    setenv("RILL_LEARN", "maybe", 1);
    CHECK_STATUS(test_link_create(MPI_COMM_WORLD, NULL, &comm), RILL_ERR_UNKNOWN);
    CHECK_DETAIL("maybe");
}

/* What calls take is learned, and nothing goes by it: ways to send and bits are those of "off". */
static void predicts(int calls) {
    check_case("only times are learned");
    use_folder("predict");
    rill_comm *comm[2] = {create("", "off"), create("", "predict")};
    int changed = 0;
    for (int i = 0; i < calls * KINDS; i++) {
        int k = i % KINDS;
        double predicted[2], bits[2];
        rill_stats stats[2] = {RILL_STATS_INIT, RILL_STATS_INIT};
        for (int which = 0; which < 2; which++) {
            predicted[which] = call(comm[which], k);
            bits[which] = bits_of(out[k], dims[k]);
            CHECK_OK(rill_comm_stats(comm[which], &stats[which]));
        }
        CHECK_STRING(stats[1].algorithm, stats[0].algorithm);
        CHECK_STRING(stats[1].codec, stats[0].codec);
        CHECK_INT(stats[1].sent_bytes, ==, stats[0].sent_bytes);
        CHECK_NUMBER(bits[1], bits[0]);
        changed += predicted[1] != predicted[0];
    }
    if (check.size > 1) CHECK_INT(changed, >, 0);
    else CHECK_INT(changed, ==, 0);
    for (int which = 0; which < 2; which++)
        CHECK_OK(rill_comm_free(&comm[which]));
    char file[300] = "";
    if (check.rank == 0) CHECK_INT(list("predict", file, sizeof file), ==, 0); /* none is kept */
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    int calls = (int)check_number(argc, argv, "--calls", 32);
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/rill-learn-XXXXXX", tmp ? tmp : "/tmp");
    if (check.rank == 0 && !mkdtemp(folder)) abort();
    make_streams();
    learns_and_forgets(calls);
    stands_still("none", "auto");
    stands_still("none", "frozen");
    predicts(calls);
    is_kept(calls);
    checkpoints_have_it();
    is_not_missed(calls);
    wrong_settings();
    for (int k = 0; k < KINDS; k++) {
        rill_stream_free(&in[k]);
        rill_stream_free(&out[k]);
    }
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (check.rank == 0) CHECK_INT(system(command), ==, 0);
    return check_finish(100);
}
