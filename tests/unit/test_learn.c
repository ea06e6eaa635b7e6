/* Learning: calls are expected to take what such calls usually took, samples that make no sense
 * change nothing, and other ways are tried and taken only where they were clearly faster; times
 * survive their way through a header; and the cache, whoever writes it and whatever is in its
 * place. */
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

static void start(void) {
    memset(&planner, 0, sizeof planner);
    planner.hosts = 1;
    planner.most_per_host = 8;
    planner.mpi_sums = true;
    rill__constants_default(&planner.profile.constants, 1, 1, 1);
    planner.profile.crowding = 1;
    rill__learner_start(learner, &planner.profile);
    planner.learner = learner;
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
        rill__learn(learner, &s, NULL);
    }
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

/* One sample, that took so many times what the model says. */
static void take(const char *algorithm, uint64_t dim, double density, double times) {
    rill__sample s = sample(algorithm, dim, density);
    s.seconds = times * rill__fit_time(&s, &planner.profile.constants);
    rill__learn(learner, &s, NULL);
}

static rill__rival recall(const char *algorithm, uint64_t dim, double density) {
    rill__sample s = sample(algorithm, dim, density);
    rill__rival r = {.way = {.algorithm = s.algorithm, .problem = s.problem}};
    rill__learn_look(learner);
    rill__learn_recall(learner, &r);
    return r;
}

static void assert_near(double value, double expected) {
    if (fabs(value / expected - 1) > 0.02) fail_msg("%g is not %g", value, expected);
}

static void what_is_usual_is_expected(void **state) {
    (void)state;
    start();
    assert_near(recall("ring", 1 << 19, 0.02).usual, 1);
    static const double times[] = {9, 2, 2.02, 40, 1.98, 5, 2, 3.5, 2.5};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        take("ring", 1 << 19, 0.02, times[i]);
    rill__rival r = recall("ring", 1 << 19, 0.02);
    assert_int_equal(r.times, 9);
    assert_true(r.usual > 1.95 && r.usual < 2.3);
    assert_near(r.low, 2);
    assert_near(r.high, 5);
    for (int i = 0; i < RILL__LEARN_KEPT; i++) /* what is old is forgotten */
        take("ring", 1 << 19, 0.02, 0.5);
    assert_near(recall("ring", 1 << 19, 0.02).usual, 0.5);
    /* The same algorithm near by is likely to be off alike; other ways and others say nothing. */
    r = recall("ring", 5 << 17, 0.02);
    assert_int_equal(r.times, 0);
    assert_near(r.usual, 0.5);
    assert_near(recall("dsar", 1 << 19, 0.02).usual, 1);
    assert_near(recall("ring", 1 << 12, 0.02).usual, 1);
    rill__learner_restart(learner);
    assert_int_equal(learner->places, 0);
    assert_near(recall("ring", 1 << 19, 0.02).usual, 1);
}

/* Between what half of them take, if calls are of two kinds: never between the two. */
static void of_two_kinds_of_times_one_is_expected(void **state) {
    (void)state;
    start();
    for (int i = 0; i < RILL__LEARN_KEPT; i++)
        take("ring", 1 << 16, 0.01, i % 3 ? 1.0 + 0.01 * i : 10.0 + i);
    double usual = recall("ring", 1 << 16, 0.01).usual;
    assert_true(usual > 1 && usual < 1.1);
}

static void samples_without_sense_change_nothing(void **state) {
    (void)state;
    start();
    static const double seconds[] = {0, -1, NAN, INFINITY, 1e-12, 1e9};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        rill__sample s = sample("ring", 1 << 20, 0.01);
        s.seconds = seconds[i];
        rill__learn(learner, &s, NULL);
    }
    assert_int_equal(learner->samples, 0);
    assert_int_equal(learner->places, 0);
    for (int i = 0; i < 3000; i++) {
        rill__sample s = sample("ring", 1 << 20, 0.01);
        s.seconds = i % 2 ? 1e4 : 2e-9;
        rill__learn(learner, &s, NULL);
    }
    double usual = recall("ring", 1 << 20, 0.01).usual;
    assert_true(usual > 0 && isfinite(usual));
    assert_int_equal(learner->places, 1);
}

static void places_are_kept_by_use(void **state) {
    (void)state;
    start();
    for (int i = 0; i < 4 * RILL__LEARN_PLACES; i++)
        take("ring", 1000 + 1000 * (uint64_t)(i % 2 ? 0 : i), 0.1, 3);
    assert_int_equal(learner->places, RILL__LEARN_PLACES);
    assert_int_equal(recall("ring", 1000, 0.1).times, 2 * RILL__LEARN_PLACES + 1);
    assert_true(rill__learn_look(learner)->points <= RILL__POINTS);
}

/* ---- choices --------------------------------------------------------------------------------- */

static rill__plan_key key;

/* Calls of a kind are planned for the first time. */
static void plan(uint64_t dim, double density) {
    rill__settings settings = {.partition = RILL__UNIFORM, .profile = &learner->model};
    uint64_t nnz = 1 + (uint64_t)((double)dim * density);
    rill__observed seen = {.known = true, .nnz_sum = nnz * 8, .nnz_max = nnz};
    rill__problem p = rill__plan_problem(&planner, &settings, RILL_ALLREDUCE, 8, dim, RILL_F32,
                                         RILL_SUM, &seen);
    rill__planned c = {.settings = settings, .key = &key};
    assert_true(rill__learn_rivals(&planner, &c, &p, NULL));
}

/* A call of the kind that takes so many times what the model says of its algorithm. Returns
 * that. */
static const char *make_call(double times_of_choice, double times_of_others) {
    int i = rill__learn_pick(&key);
    const rill__rival *r = &key.rival[i];
    rill__sample s = {.algorithm = r->way.algorithm, .problem = r->way.problem};
    s.seconds = r->way.time * (i ? times_of_others : times_of_choice);
    key.ended++;
    learner->seconds += s.seconds;
    rill__learn(learner, &s, &key.rival[i]);
    rill__learn_judge(learner, &key);
    return r->way.algorithm->name;
}

static void begin(uint64_t dim, double density) {
    start();
    memset(&key, 0, sizeof key);
    plan(dim, density);
    assert_int_equal(key.rivals, RILL__RIVALS);
}

static void others_are_tried_and_left(void **state) {
    (void)state;
    begin(1 << 20, 0.01);
    const char *first = key.rival[0].way.algorithm->name;
    int tried = 0;
    for (int i = 0; i < 200; i++)
        tried += strcmp(make_call(1.1, 1.3), first) != 0;
    assert_in_range(tried, 1, 5 * (RILL__RIVALS - 1));
    assert_int_equal(key.lesson.taken, 0);
    assert_true(key.lesson.settled > 0);
    for (int i = 0; i < 60; i++) /* the machine is slower: they are tried again, and taken */
        make_call(9, 1);
    assert_int_not_equal(key.lesson.taken, 0);
}

static void the_fastest_is_taken(void **state) {
    (void)state;
    begin(1 << 20, 0.01);
    for (int i = 0; i < 30; i++)
        make_call(3, 1);
    assert_int_not_equal(key.lesson.taken, 0);
    const char *taken = key.rival[key.lesson.taken].way.algorithm->name;
    plan(1 << 20, 0.0102); /* about as many entries */
    assert_string_equal(key.rival[key.lesson.taken].way.algorithm->name, taken);
    plan(1 << 20, 0.1); /* far more: nothing is known of such calls */
    assert_int_equal(key.lesson.taken, 0);
    plan(1 << 20, 0.01); /* and as before */
    assert_string_equal(key.rival[key.lesson.taken].way.algorithm->name, taken);
}

/* Once or by a little is not enough. */
static void what_is_a_little_faster_is_not_taken(void **state) {
    (void)state;
    begin(1 << 20, 0.01);
    double ratio = key.rival[0].way.time / key.rival[1].way.time;
    for (int i = 0; i < 60; i++)
        make_call(1, 0.9 * ratio * (key.lesson.trial > 1 ? 9 : 1));
    assert_int_equal(key.lesson.taken, 0);
}

static void short_calls_try_nothing(void **state) {
    (void)state;
    begin(1 << 10, 0.01);
    const char *first = key.rival[0].way.algorithm->name;
    for (int i = 0; i < 60; i++)
        assert_string_equal(make_call(1, 0.01), first);
    assert_int_equal(key.lesson.trials, 0);
}

static void who_only_predicts_tries_nothing(void **state) {
    (void)state;
    start();
    memset(&key, 0, sizeof key);
    learner->predicts = true;
    plan(1 << 20, 0.01);
    assert_int_equal(key.rivals, 1);
    for (int i = 0; i < 60; i++)
        make_call(3, 1);
    assert_int_equal(key.lesson.taken, 0);
    assert_near(key.rival[0].usual, 3);
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
    start();
    rill__constants truth = slower(6, 3);
    teach(&truth, 100);
    assert_false(read_back(&got, why));
    assert_string_equal(why, "");
    kept = *rill__learn_look(learner);
    kept.constants = truth;
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
    start();
    rill__constants truth = slower(6, 3);
    teach(&truth, 20);
    kept = *rill__learn_look(learner);
    kept.constants = truth;
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
    start();
    rill__constants truth = slower(6, 3);
    teach(&truth, 20);
    kept = *rill__learn_look(learner);
    kept.constants = truth;
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
    start();
    for (int job = 0; job < JOBS; job++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child) continue;
        rill__constants truth = slower(1 + job, 1);
        teach(&truth, 10);
        kept = *rill__learn_look(learner);
        kept.constants = truth;
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
        cmocka_unit_test(what_is_usual_is_expected),
        cmocka_unit_test(of_two_kinds_of_times_one_is_expected),
        cmocka_unit_test(samples_without_sense_change_nothing),
        cmocka_unit_test(places_are_kept_by_use),
        cmocka_unit_test(others_are_tried_and_left),
        cmocka_unit_test(the_fastest_is_taken),
        cmocka_unit_test(what_is_a_little_faster_is_not_taken),
        cmocka_unit_test(short_calls_try_nothing),
        cmocka_unit_test(who_only_predicts_tries_nothing),
        cmocka_unit_test(times_fit_into_a_header),
        cmocka_unit_test(what_was_learned_is_found_again),
        cmocka_unit_test(broken_files_are_passed_over_and_replaced),
        cmocka_unit_test(a_full_disk_leaves_what_was_there),
        cmocka_unit_test(jobs_may_write_at_once),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
