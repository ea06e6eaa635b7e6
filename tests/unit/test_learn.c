/* Learning: constants follow samples and forget, samples that make no sense change nothing, places
 * keep what the model does not say; times survive their way through a header; and the cache,
 * whoever writes it and whatever is in its place. */
#include "../support/unit.h"

#include "plan/learn.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static rill__planner planner;
static rill__learner *learner;
static char folder[200];

static int set_up(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/rill-learn-XXXXXX", tmp ? tmp : "/tmp");
    learner = malloc(sizeof *learner);
    return !mkdtemp(folder) || !learner || setenv("XDG_CACHE_HOME", folder, 1);
}

static int tear_down(void **state) {
    (void)state;
    char command[300];
    free(learner);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void start(bool from_cache) {
    memset(&planner, 0, sizeof planner);
    planner.hosts = 1;
    planner.most_per_host = 8;
    planner.mpi_sums = true;
    rill__constants_default(&planner.profile.constants, 1, 1, 1);
    planner.profile.crowding = 1;
    rill__learner_start(learner, &planner.profile, from_cache);
}

static rill__sample sample(const char *algorithm, uint64_t dim, double density) {
    rill__settings s = {.partition = RILL__UNIFORM};
    uint64_t nnz = 1 + (uint64_t)((double)dim * density);
    rill__observed seen = {.known = true, .nnz_sum = nnz * 8, .nnz_max = nnz};
    return (rill__sample){.algorithm = rill__algorithm_named(RILL_ALLREDUCE, algorithm),
                          .problem = rill__plan_problem(&planner, &s, RILL_ALLREDUCE, 8, dim,
                                                        RILL_F32, RILL_SUM, &seen)};
}

/* n samples all over the range, as long as the constants say. */
static void teach(const rill__constants *truth, int n) {
    static const char *const names[] = {"recursive_double", "split_allgather", "dense", "ring",
                                        "allgather"};
    for (int i = 0; i < n; i++) {
        double density = pow(10, -4 + 3.5 * ((i * 7) % 11) / 10.0);
        rill__sample s = sample(names[i % 5], UINT64_C(1) << (12 + (i * 5) % 13), density);
        s.seconds = rill__fit_time(&s, truth) * (i % 2 ? 1.03 : 0.97);
        rill__learn(learner, &s);
    }
}

static double off(const rill__constants *truth, const char *algorithm, uint64_t dim, double density,
                  bool with_points) {
    rill__sample s = sample(algorithm, dim, density);
    double time = rill__fit_time(&s, &learner->profile.constants);
    s.problem.c = &learner->profile.constants;
    rill__problem_code(&s.problem, s.problem.codec, 0);
    if (with_points) time = rill__profile_time(&learner->profile, s.algorithm, &s.problem);
    return fabs(log(time / rill__fit_time(&s, truth)));
}

static rill__constants slower(double network, double processor) {
    rill__constants c;
    rill__constants_default(&c, 1, 1, 1);
    c.latency *= network;
    c.byte *= network;
    c.mpi_byte *= network;
    c.mpi_latency *= network;
    c.merge *= processor;
    c.sum *= processor;
    c.copy *= processor;
    return c;
}

static void constants_follow_samples(void **state) {
    (void)state;
    start(false);
    rill__constants truth = slower(6, 3);
    double before = off(&truth, "split_allgather", 3 << 20, 0.003, false);
    teach(&truth, 200);
    assert_true(before > 1);
    assert_true(off(&truth, "split_allgather", 3 << 20, 0.003, false) < 0.1);
    assert_true(off(&truth, "dense", 3 << 18, 0.02, false) < 0.1);
    assert_int_equal(learner->samples, 200);
    assert_true(learner->profile.constants.doubt == planner.profile.constants.doubt);
}

static void what_is_old_is_forgotten(void **state) {
    (void)state;
    start(false);
    rill__constants first = slower(6, 3), then = slower(1, 1);
    teach(&first, 300);
    teach(&then, 200);
    assert_true(off(&then, "split_allgather", 3 << 20, 0.003, true) < 0.15);
    assert_true(off(&then, "recursive_double", 3 << 14, 0.01, true) < 0.15);
}

static void samples_without_sense_change_nothing(void **state) {
    (void)state;
    start(false);
    static const double seconds[] = {0, -1, NAN, INFINITY, 1e-12, 1e9};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        rill__sample s = sample("ring", 1 << 20, 0.01);
        s.seconds = seconds[i];
        rill__learn(learner, &s);
    }
    assert_int_equal(learner->samples, 0);
    assert_memory_equal(&learner->profile.constants, &planner.profile.constants,
                        sizeof planner.profile.constants);
    /* One call for ever says one thing of all constants: they stay numbers, and not far. */
    for (int i = 0; i < 3000; i++) {
        rill__sample s = sample("ring", 1 << 20, 0.01);
        s.seconds = i % 2 ? 1e4 : 2e-9;
        rill__learn(learner, &s);
    }
    for (int i = 0; i < RILL__FITTED; i++) {
        double ratio = *rill__constant_at(&learner->profile.constants, i) /
                       *rill__constant_at(&planner.profile.constants, i);
        assert_true(ratio > 0.0099 && ratio < 101);
    }
    assert_int_equal(learner->places, 1);
}

static void places_have_what_the_model_lacks(void **state) {
    (void)state;
    start(false);
    rill__constants truth = slower(1, 1);
    teach(&truth, 60);
    rill__sample s = sample("ring", 1 << 19, 0.02);
    double expected = rill__fit_time(&s, &truth);
    for (int i = 0; i < 12; i++) {
        s.seconds = expected * 1.8;
        rill__learn(learner, &s);
    }
    rill__learn_look(learner);
    s.problem.c = &learner->planned.constants;
    rill__problem_code(&s.problem, s.problem.codec, 0);
    double time = rill__profile_time(&learner->planned, s.algorithm, &s.problem);
    assert_true(fabs(log(time / (expected * 1.8))) < 0.05);
    assert_true(rill__learn_measured(&learner->planned, s.algorithm, &s.problem));
    rill__learner_restart(learner);
    assert_memory_equal(&learner->profile.constants, &planner.profile.constants,
                        sizeof planner.profile.constants);
    assert_int_equal(learner->planned.points, 0);
    assert_false(rill__learn_measured(&learner->planned, s.algorithm, &s.problem));
}

/* Each look makes every kind of call plan anew. */
static void choices_are_looked_at_seldom(void **state) {
    (void)state;
    start(false);
    uint64_t first = learner->version;
    for (int i = 0; i < 1000; i++) {
        rill__sample s = sample("ring", 1000, 0.1);
        s.seconds = i % 3 ? 1e-5 : 2e-5;
        learner->seconds += s.seconds;
        rill__learn(learner, &s);
    }
    assert_in_range(learner->version - first, 1, 18);
    rill__sample s = sample("ring", 1000, 0.1);
    s.seconds = 3e-2;
    uint64_t before = learner->version;
    for (int i = 0; i < 7; i++) { /* one alone is no news */
        learner->seconds += s.seconds;
        rill__learn(learner, &s);
        if (i < 3) assert_true(learner->place[0].sample.seconds < 1.1e-5);
    }
    assert_true(learner->version > before); /* after so long at once */
    assert_true(learner->place[0].sample.seconds > 2.9e-2);
    assert_memory_equal(&learner->planned.constants, &learner->profile.constants,
                        sizeof learner->profile.constants);
}

/* ---- choices --------------------------------------------------------------------------------- */

static const char *choice(uint64_t dim, double density) {
    rill__settings s = {.partition = RILL__UNIFORM, .profile = &learner->planned};
    uint64_t nnz = 1 + (uint64_t)((double)dim * density);
    rill__observed seen = {.known = true, .nnz_sum = nnz * 8, .nnz_max = nnz};
    rill__problem p = rill__plan_problem(&planner, &s, RILL_ALLREDUCE, 8, dim, RILL_F32, RILL_SUM,
                                         &seen);
    rill__candidate best;
    rill__plan_best(&planner, &s, learner->lost ? NULL : &learner->start, &p, &best);
    return best.algorithm ? best.algorithm->name : "none";
}

static void takes(const char *algorithm, uint64_t dim, double density, double times, int n) {
    rill__sample s = sample(algorithm, dim, density);
    s.seconds = times * rill__fit_time(&s, &planner.profile.constants);
    for (int i = 0; i < n; i++)
        rill__learn(learner, &s);
    rill__learn_look(learner);
}

/* The model leaves things out: what was measured is never given up for what was not. */
static void what_was_measured_gives_way_to_what_was(void **state) {
    (void)state;
    const uint64_t dim = 1 << 20;
    const double density = 0.01;
    start(false);
    rill__learn_look(learner);
    char first[32], other[32];
    snprintf(first, sizeof first, "%s", choice(dim, density));
    snprintf(other, sizeof other, "%s", strcmp(first, "ring") ? "ring" : "split_allgather");
    takes(first, dim, density, 20, 1); /* once: a disturbance */
    assert_string_equal(choice(dim, density), first);
    takes(first, dim, density, 1.6, 5);
    assert_string_equal(choice(dim, density), first);
    takes(other, dim, density, 0.01, 2); /* twice is not enough */
    assert_string_equal(choice(dim, density), first);
    takes(other, dim, density, 0.01, 5);
    assert_string_equal(choice(dim, density), other);
    takes(other, dim, density, 100, 14); /* others are on the machine now */
    assert_string_equal(choice(dim, density), first);
    assert_false(learner->planned.points == 0);
}

/* A machine that is slower in all chooses alike, and predicts right. */
static void a_slower_machine_chooses_alike(void **state) {
    (void)state;
    start(false);
    rill__constants truth;
    rill__constants_default(&truth, 1, 1, 1);
    for (int i = 0; i < RILL__FITTED; i++)
        *rill__constant_at(&truth, i) *= 2;
    static const double densities[] = {1e-4, 1e-3, 1e-2, 1e-1, 0.4};
    char before[15][32];
    for (int i = 0; i < 15; i++)
        snprintf(before[i], 32, "%s", choice(UINT64_C(3) << (9 + i), densities[i % 5]));
    teach(&truth, 300);
    rill__learn_look(learner);
    for (int i = 0; i < 15; i++)
        assert_string_equal(choice(UINT64_C(3) << (9 + i), densities[i % 5]), before[i]);
    assert_true(off(&truth, "split_allgather", 3 << 20, 0.003, false) < 0.1);
}

static void places_are_kept_by_use(void **state) {
    (void)state;
    start(false);
    for (int i = 0; i < 200; i++) {
        rill__sample s = sample("ring", 1000 + 1000 * (uint64_t)(i % 2 ? 0 : i), 0.1);
        s.seconds = 1e-4;
        rill__learn(learner, &s);
    }
    assert_int_equal(learner->places, RILL__LEARN_PLACES);
    int found = 0;
    for (int i = 0; i < learner->places; i++)
        found += learner->place[i].sample.problem.dim == 1000;
    assert_int_equal(found, 1);
}

static void times_fit_into_a_header(void **state) {
    (void)state;
    for (double seconds = 1e-7; seconds < 200; seconds *= 1.37) {
        double back = rill__learn_seconds(rill__learn_steps(seconds));
        assert_true(fabs(back / seconds - 1) < 0.005);
    }
    assert_int_equal(rill__learn_steps(0), 0);
    assert_int_equal(rill__learn_steps(NAN), 0);
    assert_true(rill__learn_steps(1e9) <= 0xffd);
    assert_true(rill__learn_field(1e9) < RILL__LEARN_VETO);
    assert_true(rill__learn_field(1e-12) < RILL__LEARN_VETO);
    uint64_t entries = 12345,
             both = rill__most_of((uint64_t)rill__learn_field(2e-3) << 40 | 99,
                                  (uint64_t)rill__learn_field(1e-3) << 40 | entries);
    unsigned field = (unsigned)(both >> 40);
    assert_int_equal(both & RILL__ENTRIES, entries);
    assert_int_equal(0xffe - (field >> 12), rill__learn_steps(1e-3));
    assert_int_equal((field & 0xfff) - 2, rill__learn_steps(2e-3));
    both = rill__most_of(both, (uint64_t)RILL__LEARN_VETO << 40);
    assert_true(both >> 40 >= RILL__LEARN_VETO);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static const rill__machine here = {.link = "mpi", .hosts = {1, 2}, .seating = {8, 1, 8, 1}};

static bool read_back(rill__profile *got, char why[300]) {
    memset(got, 0, sizeof *got);
    return rill__cache_read(&here, got, why, 300);
}

static void what_was_learned_is_found_again(void **state) {
    (void)state;
    char why[300], path[1024];
    static rill__profile got, kept;
    start(false);
    rill__constants truth = slower(6, 3);
    teach(&truth, 100);
    assert_false(read_back(&got, why));
    assert_string_equal(why, "");
    kept = learner->profile;
    kept.ranks = 8;
    kept.hosts = 1;
    assert_ok(rill__cache_write(&here, &kept, 100));
    assert_true(read_back(&got, why));
    assert_true(got.learned);
    assert_true(fabs(got.constants.byte / kept.constants.byte - 1) < 1e-3);
    assert_int_equal(got.points, kept.points);
    /* Who has seen less changes less, and leaves what it knows nothing of. */
    static rill__profile late;
    rill__constants_default(&late.constants, 1, 1, 1);
    late.crowding = late.learned = 1;
    late.ranks = 8;
    late.hosts = 1;
    assert_ok(rill__cache_write(&here, &late, 4));
    assert_true(read_back(&got, why));
    assert_int_equal(got.points, kept.points);
    assert_true(fabs(log(got.constants.byte / kept.constants.byte)) <
                0.2 * fabs(log(kept.constants.byte / planner.profile.constants.byte)));
    rill__machine other = here;
    other.hosts[0] = 3;
    assert_false(rill__cache_read(&other, &got, why, sizeof why));
    other = here;
    other.link = "ucx";
    assert_false(rill__cache_read(&other, &got, why, sizeof why));
    /* The same hosts by another network, whose constants are others; not by what is measured a
     * little otherwise of the same. */
    other = here;
    other.network = (rill__network){.latency = 30e-6, .rate = 0.9e9};
    assert_false(rill__cache_read(&other, &got, why, sizeof why));
    assert_ok(rill__cache_write(&other, &kept, 100));
    other.network = (rill__network){.latency = 24e-6, .rate = 0.6e9};
    assert_true(rill__cache_read(&other, &got, why, sizeof why));
    other.network = (rill__network){.latency = 2e-6, .rate = 80e9};
    assert_false(rill__cache_read(&other, &got, why, sizeof why));
    other.network = (rill__network){.latency = 24e-6, .rate = 0.6e9};
    rill__cache_path(&other, path, sizeof path);
    assert_int_equal(remove(path), 0);
    rill__cache_path(&here, path, sizeof path);
    assert_true(strncmp(path, folder, strlen(folder)) == 0);
}

static void put(const char *text, size_t bytes) {
    char path[1024];
    rill__cache_path(&here, path, sizeof path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    fclose(f);
}

static void broken_files_are_passed_over_and_replaced(void **state) {
    (void)state;
    static rill__profile got, kept;
    char why[300], path[1024], target[1100];
    start(false);
    rill__constants truth = slower(6, 3);
    teach(&truth, 20);
    kept = learner->profile;
    kept.ranks = 8;
    kept.hosts = 1;
    assert_ok(rill__cache_write(&here, &kept, 100));
    rill__cache_path(&here, path, sizeof path);
    static const char *const texts[] = {"", "hello\n", "rill profile 1\nentry ranks 8 hosts 1\n",
                                        "rill profile 1\nentry ranks 8 hosts 1 crowding 1\nbyte 0"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put(texts[i], strlen(texts[i]));
        assert_false(read_back(&got, why));
        assert_true(strstr(why, path) != NULL);
        assert_ok(rill__cache_write(&here, &kept, 100));
        assert_true(read_back(&got, why));
    }
    assert_int_equal(remove(path), 0); /* never waits for a FIFO, never reads a device to its end */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(read_back(&got, why));
    assert_true(strstr(why, "no file that rill has written") != NULL);
    assert_int_equal(remove(path), 0);
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_false(read_back(&got, why));
    assert_ok(rill__cache_write(&here, &kept, 100));
    assert_true(read_back(&got, why));
    assert_int_equal(remove(path), 0);
    snprintf(target, sizeof target, "%s/x", path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_false(read_back(&got, why));
    assert_int_not_equal(rill__cache_write(&here, &kept, 100), RILL_OK);
    assert_int_equal(rmdir(target), 0);
    assert_int_equal(rmdir(path), 0);
    char home[300] = "";
    if (getenv("HOME")) snprintf(home, sizeof home, "%s", getenv("HOME"));
    unsetenv("HOME"); /* a daemon's, and a folder that is none */
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_false(read_back(&got, why));
    assert_string_equal(why, "");
    assert_int_equal(rill__cache_write(&here, &kept, 100), RILL_ERR_IO);
    if (*home) setenv("HOME", home, 1);
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* no folder can be there, whoever asks */
    assert_false(read_back(&got, why));
    assert_int_not_equal(rill__cache_write(&here, &kept, 100), RILL_OK);
    setenv("XDG_CACHE_HOME", folder, 1);
}

/* A disk that is full: what was there stays as it was, and nothing is left beside it. */
static void a_full_disk_leaves_what_was_there(void **state) {
    (void)state;
    static rill__profile got, kept;
    char why[300], command[400];
    start(false);
    rill__constants truth = slower(6, 3);
    teach(&truth, 20);
    kept = learner->profile;
    kept.ranks = 8;
    kept.hosts = 1;
    assert_ok(rill__cache_write(&here, &kept, 100));
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit none = {16, 16};
        if (setrlimit(RLIMIT_FSIZE, &none) != 0) _exit(1);
        kept.constants.byte *= 100;
        _exit(rill__cache_write(&here, &kept, 1000000) == RILL_OK);
    }
    int status = 1;
    assert_true(wait(&status) > 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(read_back(&got, why));
    assert_true(fabs(got.constants.byte / kept.constants.byte - 1) < 0.5);
    snprintf(command, sizeof command, "test $(ls -A '%s/rill' | wc -l) = 1", folder);
    assert_int_equal(system(command), 0);
}

static void jobs_may_write_at_once(void **state) {
    (void)state;
    static rill__profile got, kept;
    char why[300];
    enum { JOBS = 4, WRITES = 25 };
    start(false);
    for (int job = 0; job < JOBS; job++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child) continue;
        rill__constants truth = slower(1 + job, 1);
        teach(&truth, 10);
        kept = learner->profile;
        kept.ranks = 8;
        kept.hosts = 1;
        int bad = 0;
        for (int i = 0; i < WRITES; i++) {
            bad += rill__cache_write(&here, &kept, 100) != RILL_OK;
            bad += !read_back(&got, why);
        }
        _exit(bad != 0);
    }
    for (int job = 0; job < JOBS; job++) {
        int status = 1;
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_true(read_back(&got, why));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_follow_samples),
        cmocka_unit_test(what_is_old_is_forgotten),
        cmocka_unit_test(samples_without_sense_change_nothing),
        cmocka_unit_test(places_have_what_the_model_lacks),
        cmocka_unit_test(choices_are_looked_at_seldom),
        cmocka_unit_test(what_was_measured_gives_way_to_what_was),
        cmocka_unit_test(a_slower_machine_chooses_alike),
        cmocka_unit_test(places_are_kept_by_use),
        cmocka_unit_test(times_fit_into_a_header),
        cmocka_unit_test(what_was_learned_is_found_again),
        cmocka_unit_test(broken_files_are_passed_over_and_replaced),
        cmocka_unit_test(a_full_disk_leaves_what_was_there),
        cmocka_unit_test(jobs_may_write_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
