/* Profiles: what is written is read, what is broken is refused with file and line, the nearest
 * entry is taken; and the fit finds constants that were used to make up measurements. */
#include "../support/unit.h"

#include "api/comm.h"
#include "core/isa.h"
#include "plan/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SEATING(ranks, hosts, together, crowding)                                                  \
    (&(rill__seating){ranks, hosts, together, crowding})

static char path[256];

static int make_path(void **state) {
    (void)state;
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/rill-profile-XXXXXX", folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file >= 0) close(file);
    return file < 0;
}
static int remove_path(void **state) {
    (void)state;
    return remove(path);
}

static void write_text(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static rill__profile sample(int ranks, int hosts, double latency) {
    rill__profile p;
    memset(&p, 0, sizeof p);
    rill__constants_default(&p.constants, hosts, 1, 1);
    p.constants.latency = latency;
    p.ranks = ranks;
    p.hosts = hosts;
    p.crowding = 1;
    p.points = 2;
    p.point[0] = (rill__point){rill__name_hash("ring"), 20, -7, logf(2)};
    p.point[1] = (rill__point){rill__name_hash("ring"), 16, -7, logf(0.5f)};
    return p;
}

static void what_is_written_is_read(void **state) {
    (void)state;
    remove(path);
    rill__profile eight = sample(8, 8, 3e-5), two = sample(2, 2, 4e-5), one = sample(4, 1, 1e-6),
                  got;
    assert_ok(rill__profile_write(path, &eight, NULL));
    assert_ok(rill__profile_write(path, &two, NULL));
    assert_ok(rill__profile_write(path, &one, NULL));
    eight.constants.latency = 5e-5; /* in the place of the first */
    assert_ok(rill__profile_write(path, &eight, NULL));
    assert_ok(rill__profile_read(path, SEATING(8, 8, 1, 1), &got));
    for (int i = 0; i < RILL__CONSTANTS; i++) {
        size_t at = rill__constant_table[i].offset;
        double wrote = *(double *)((char *)&eight.constants + at);
        assert_true(fabs(*(double *)((char *)&got.constants + at) / wrote - 1) < 1e-3);
    }
    assert_int_equal(got.points, 2);
    assert_true(fabsf(got.point[0].log_ratio - logf(2)) < 1e-3f);
    assert_ok(rill__profile_read(path, SEATING(3, 3, 1, 1), &got)); /* nearest */
    assert_int_equal(got.ranks, 2);
    assert_ok(rill__profile_read(path, SEATING(64, 32, 2, 1), &got));
    assert_int_equal(got.ranks, 8);
    assert_ok(rill__profile_read(path, SEATING(2, 1, 2, 1), &got));
    assert_int_equal(got.ranks, 4);
    double merge = got.constants.merge;
    assert_ok(rill__profile_read(path, SEATING(2, 1, 6, 3), &got)); /* three ranks a processor */
    assert_true(fabs(got.constants.merge / merge - 3) < 1e-6);
}

static rill__device_constants found_device(void) {
    rill__profile got;
    rill__device_constants d;
    bool there;
    assert_ok(rill__profile_find(path, SEATING(2, 1, 2, 1), &got, &d, &there));
    assert_true(there);
    return d;
}

/* A file that somebody has written, or another version, may have some of them: the others are not
 * written as zeros, which nobody could read. */
static void some_constants_of_devices_stay(void **state) {
    (void)state;
    rill__profile two = sample(2, 1, 4e-5), four = sample(4, 1, 4e-5);
    rill__device_constants built_in, d;
    rill__device_constants_default(&built_in);
    for (int i = 0; i < RILL__DEVICE_CONSTANTS; i++) {
        size_t offset = rill__device_table[i].offset;
        remove(path);
        assert_ok(rill__profile_write(path, &two, NULL));
        FILE *f = fopen(path, "a");
        assert_non_null(f);
        fprintf(f, "#+ %s 0.125\n", rill__device_table[i].name);
        fclose(f);
        assert_ok(rill__profile_write(path, &four, NULL));
        d = found_device();
        assert_true(fabs(*(double *)((char *)&d + offset) - 0.125) <= 0);
        *(double *)((char *)&d + offset) = *(double *)((char *)&built_in + offset);
        assert_memory_equal(&d, &built_in, sizeof d);
    }
}

/* Lines that other versions take for comments: they stay where nothing is measured. */
static void devices_have_lines_of_their_own(void **state) {
    (void)state;
    rill__profile two = sample(2, 1, 4e-5), four = sample(4, 1, 4e-5);
    rill__device_constants built_in, d;
    rill__device_constants_default(&built_in);
    remove(path);
    assert_ok(rill__profile_write(path, &two, NULL));
    assert_true(fabs(found_device().errand - built_in.errand) <= 0);
    d = built_in;
    d.errand = 0.25;
    d.in = 3e-11;
    assert_ok(rill__profile_write(path, &two, &d));
    assert_ok(rill__profile_write(path, &four, NULL));
    d = found_device();
    assert_true(fabs(d.errand - 0.25) <= 0);
    assert_true(fabs(d.in - 3e-11) <= 0);
    assert_true(fabs(d.sum - built_in.sum) <= 1e-16);
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs("#+ device_of_another_version 7\n#+ device_sum  2e-10 \n# device_code x\n", f);
    fclose(f);
    assert_true(fabs(found_device().sum - 2e-10) <= 0);
    f = fopen(path, "a");
    assert_non_null(f);
    fputs("#+ device_wait soon\n", f);
    fclose(f);
    bool there;
    assert_fails(rill__profile_find(path, SEATING(2, 1, 2, 1), &two, &d, &there), RILL_ERR_IO,
                 "a device's constant");
}

static void one_host_says_nothing_of_a_network(void **state) {
    (void)state;
    remove(path);
    rill__profile one = sample(4, 1, 1e-6), got;
    assert_ok(rill__profile_write(path, &one, NULL));
    assert_fails(rill__profile_read(path, SEATING(4, 4, 1, 1), &got), RILL_ERR_UNSUPPORTED,
                 "several hosts");
}

static void broken_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } files[] = {
        {"", ":0: this is not a profile"},
        {"hello\n", ":1: this is not a profile"},
        {"rill profile 2\n", ":1: this is not a profile"},
        {"rill profile 1\nlatency 1\n", ":2: expected entry"},
        {"rill profile 1\nentry ranks 0 hosts 1 crowding 1\n", ":2: expected entry"},
        {"rill profile 1\nentry ranks 2 hosts 3 crowding 1\n", ":2: expected entry"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding nan\n", ":2: expected entry"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding 1\n", ":2: the file ends"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding 1\nend\n", ":3: the entry ends before"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding 1\nspeed 1\n", ":3: there is no such"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding 1\nlatency -1\n", ":3: a constant is not"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding 1\nlatency nan\n",
         ":3: a constant is not"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding 1\nlatency 1 2\n",
         ":3: expected a constant"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding 1\npoint ring 4 5 1\n",
         ":3: a point lies"},
        {"rill profile 1\nentry ranks 2 hosts 1 crowding 1\npoint ring 4\n", ":3: a point has"},
    };
    rill__profile got;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_text(files[i].text);
        assert_fails(rill__profile_read(path, SEATING(2, 1, 2, 1), &got), RILL_ERR_IO,
                     files[i].says);
    }
    assert_fails(rill__profile_read("/nowhere/profile", SEATING(2, 1, 2, 1), &got), RILL_ERR_IO,
                 "/nowhere/profile");
    write_text("hello\n"); /* what is not ours stays as it is */
    rill__profile p = sample(2, 1, 1e-6);
    assert_fails(rill__profile_write(path, &p, NULL), RILL_ERR_IO, "not a profile");
    FILE *f = fopen(path, "r");
    char text[16];
    assert_string_equal(fgets(text, sizeof text, f), "hello\n");
    fclose(f);
}

static rill__problem problem(const rill__planner *planner, uint64_t dim, uint64_t nnz) {
    rill__settings s = {.partition = RILL__UNIFORM};
    rill__observed seen = {.known = true, .nnz_sum = nnz * 8, .nnz_max = nnz};
    return rill__plan_problem(planner, &s, RILL_ALLREDUCE, 8, dim, RILL_F32, RILL_SUM, &seen);
}

static void points_correct_what_is_near(void **state) {
    (void)state;
    static rill__planner planner;
    planner.profile = sample(8, 8, 3e-5);
    planner.hosts = 8;
    planner.most_per_host = 1;
    planner.mpi_sums = true;
    const rill__algorithm *ring = rill__algorithm_named(RILL_ALLREDUCE, "ring");
    const rill__algorithm *other = rill__algorithm_named(RILL_ALLREDUCE, "allgather");
    rill__problem near = problem(&planner, 1 << 20, 1 << 13),
                  far = problem(&planner, 1 << 16, 1 << 9);
    double ratio = rill__profile_time(&planner.profile, ring, &near) / ring->estimate(&near);
    assert_true(ratio > 1.95 && ratio < 2.0);
    ratio = rill__profile_time(&planner.profile, ring, &far) / ring->estimate(&far);
    assert_true(ratio > 0.5 && ratio < 0.52);
    ratio = rill__profile_time(&planner.profile, other, &near) / other->estimate(&near);
    assert_true(ratio == 1);
}

static void fit_finds_the_constants(void **state) {
    (void)state;
    static rill__planner planner;
    static rill__sample samples[512];
    static const double densities[] = {1e-4, 1e-3, 1e-2, 0.1, 0.5};
    int n = 0;
    planner.hosts = 8;
    planner.most_per_host = 1;
    planner.mpi_sums = true;
    rill__constants truth, c;
    rill__constants_default(&truth, 8, 1, 1);
    truth.latency = 8e-5;
    truth.byte = 3e-8;
    truth.merge = 4e-9;
    truth.sum = 5e-9;
    truth.mpi_byte = 2e-8;
    rill__constants_default(&planner.profile.constants, 8, 1, 1);
    for (int shift = 12; shift <= 24; shift += 4)
        for (size_t d = 0; d < 5; d++)
            for (int i = 0; i < 6; i++) {
                uint64_t dim = UINT64_C(1) << shift;
                rill__sample *s = &samples[n++];
                s->algorithm = rill__algorithm_at(RILL_ALLREDUCE, i);
                s->problem = problem(&planner, dim, 1 + (uint64_t)((double)dim * densities[d]));
                s->seconds = rill__fit_time(s, &truth) * (n % 2 ? 1.02 : 0.98);
            }
    samples[7].seconds *= 30; /* something else was on the machine */
    rill__constants_default(&c, 8, 1, 1);
    double error = rill__fit(samples, n, &c);
    assert_true(error < 0.04);
    assert_true(fabs(log(c.latency / truth.latency)) < 0.1);
    assert_true(fabs(log(c.byte / truth.byte)) < 0.1);
    assert_true(fabs(log(c.mpi_byte / truth.mpi_byte)) < 0.1);
}

static void full_hosts_share_memory(void **state) {
    (void)state;
    rill__constants two, all, crowded, turns;
    rill__constants_default(&two, 1, 2, 1);
    rill__constants_default(&all, 1, 16, 1);
    assert_true(all.copy > 2 * two.copy && all.sum > 3 * two.sum && all.mpi_byte > two.mpi_byte);
    assert_true(all.latency == two.latency && all.message == two.message);
    /* Those that take turns do not move data at once. */
    rill__constants_default(&crowded, 1, 16, 8);
    rill__constants_default(&turns, 1, 2, 8);
    assert_true(crowded.copy == turns.copy);
}

static double ratio_of(const rill__profile *a, const rill__constants *b, int i) {
    size_t at = rill__constant_table[i].offset;
    return *(const double *)((const char *)&a->constants + at) /
           *(const double *)((const char *)b + at);
}

/* What was tuned or learned with few ranks on a host serves many as built-in constants do. */
static void profiles_share_memory(void **state) {
    (void)state;
    remove(path);
    rill__profile two = sample(2, 1, 3e-6), got;
    rill__constants all;
    rill__constants_default(&two.constants, 1, 2, 1);
    rill__constants_default(&all, 1, 16, 1);
    assert_ok(rill__profile_write(path, &two, NULL));
    assert_ok(rill__profile_read(path, SEATING(16, 1, 16, 1), &got));
    for (int i = 0; i < RILL__CONSTANTS; i++)
        assert_true(fabs(ratio_of(&got, &all, i) - 1) < 1e-3);
    remove(path);
    got.ranks = 16; /* and back, from what was learned there */
    assert_ok(rill__profile_write(path, &got, NULL));
    assert_ok(rill__profile_read(path, SEATING(16, 1, 16, 1), &got));
    for (int i = 0; i < RILL__CONSTANTS; i++)
        assert_true(fabs(ratio_of(&got, &all, i) - 1) < 1e-3);
    assert_ok(rill__profile_read(path, SEATING(2, 1, 2, 1), &got));
    for (int i = 0; i < RILL__CONSTANTS; i++)
        assert_true(fabs(ratio_of(&got, &two.constants, i) - 1) < 1e-3);
}

/* And communicators plan with these, by the ranks that share the memory and the processors. */
static void communicators_share_memory(void **state) {
    (void)state;
    enum { RANKS = 16 };
    rill_comm *comms[RANKS];
    setenv("RILL_PROFILE", "none", 1);
    assert_ok(rill_comm_create_local(RANKS, NULL, comms));
    unsetenv("RILL_PROFILE");
    const rill__profile *got = &comms[0]->planner.profile;
    rill__constants expected;
    rill__constants_default(&expected, 1, RANKS, fmax(1, RANKS / (double)rill__processors()));
    for (int i = 0; i < RILL__CONSTANTS; i++)
        assert_true(fabs(ratio_of(got, &expected, i) - 1) < 1e-9);
    assert_int_equal(comms[0]->planner.together, RANKS);
    for (int rank = 0; rank < RANKS; rank++)
        assert_ok(rill_comm_free(&comms[rank]));
}

static void networks_fall_into_classes(void **state) {
    (void)state;
    rill__constants a, b;
    rill__constants_default(&a, 8, 1, 1);
    b = a;
    rill__constants_network(&a, &(rill__network){.latency = 22e-6, .rate = 0.8e9});
    rill__constants_network(&b, &(rill__network){.latency = 33e-6, .rate = 1.1e9});
    assert_true(a.byte == b.byte && a.latency == b.latency && a.mpi_byte == b.mpi_byte);
    rill__constants_network(&b, &(rill__network){.latency = 33e-6, .rate = 1.1e8});
    assert_true(b.byte > 9 * a.byte && b.message == a.message);
    rill__constants_network(&b, &(rill__network){33e-6, 18e-6, 1.1e8});
    assert_true(b.message > 3 * a.message && b.message < b.latency);
    rill__constants_network(&b, &(rill__network){2e-6, 18e-6, 1.1e8});
    assert_true(b.message <= b.latency);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(devices_have_lines_of_their_own),
        cmocka_unit_test(some_constants_of_devices_stay),
        cmocka_unit_test(one_host_says_nothing_of_a_network),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(points_correct_what_is_near),
        cmocka_unit_test(fit_finds_the_constants),
        cmocka_unit_test(full_hosts_share_memory),
        cmocka_unit_test(profiles_share_memory),
        cmocka_unit_test(communicators_share_memory),
        cmocka_unit_test(networks_fall_into_classes),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
