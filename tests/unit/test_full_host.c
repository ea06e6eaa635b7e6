/* What the built-in constants say of the sums and collectives that were measured on a full host of
 * 16 cores: bench/results/full_host.jsonl, which bench/full_host takes. With RILL_TABLE=1 it prints
 * every record beside its prediction, as docs/results/planner.md has them. */
#include "records.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS "bench/results/full_host.jsonl" /* from the root, where scripts/test runs */
enum { MOST = 200 };

typedef struct record {
    char part[32], collective[32], algorithm[32], codec[32], requested[32];
    int ranks;
    uint64_t dim, nnz, result;
    double seconds;
    double predicted; /* by us */
} record;

/* ---- records --------------------------------------------------------------------------------- */

/* Those of calls: not of memory, and not of MPI's own sum, which nobody predicts. */
static int read_records(record *records) {
    FILE *file = open_records(RECORDS);
    static char line[RECORD_WIDTH];
    int n = 0;
    while (fgets(line, sizeof line, file)) {
        record r = {.ranks = (int)number(line, "ranks"),
                    .dim = (uint64_t)number(line, "dim"),
                    .nnz = (uint64_t)number(line, "nnz_in"),
                    .result = (uint64_t)number(line, "nnz_out"),
                    .seconds = number(line, "median_s")};
        text(line, "part", r.part);
        text(line, "collective", r.collective);
        text(line, "algorithm", r.algorithm);
        text(line, "codec", r.codec);
        text(line, "requested", r.requested);
        if (r.seconds <= 0 || strcmp(r.algorithm, "mpi") == 0) continue;
        assert_true(n < MOST);
        records[n++] = r;
    }
    fclose(file);
    return n;
}

/* ---- predictions ----------------------------------------------------------------------------- */

static rill_collective collective_named(const char *name) {
    static const struct {
        const char *name;
        rill_collective collective;
    } all[] = {{"allreduce", RILL_ALLREDUCE},
               {"reduce", RILL_REDUCE},
               {"reduce_scatter", RILL_REDUCE_SCATTER},
               {"allgather", RILL_ALLGATHER},
               {"bcast", RILL_BCAST}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0) return all[i].collective;
    fail_msg("collective %s", name);
    return RILL_ALLREDUCE;
}

/* What the planner knows after calls like it. */
static rill__problem problem_for(const rill__planner *planner, const rill__settings *settings,
                                 const record *r) {
    rill_collective collective = collective_named(r->collective);
    unsigned holders = collective == RILL_BCAST ? 1 : (unsigned)r->ranks;
    rill__observed seen = {.known = true, .nnz_sum = r->nnz * holders, .nnz_max = r->nnz};
    if (collective == RILL_ALLREDUCE && r->result < r->dim) seen.result = r->result;
    return rill__plan_problem(planner, settings, collective, r->ranks, r->dim, RILL_F32, RILL_SUM,
                              &seen);
}

static double predict(const rill__planner *planner, const record *r) {
    rill__settings settings = {.partition = RILL__UNIFORM,
                               .codec = rill__index_codec_by_name(r->codec)};
    rill__problem p = problem_for(planner, &settings, r);
    return rill__plan_way(planner, &settings, algorithm_named(p.collective, r->algorithm), &p);
}

/* What auto takes. */
static const rill__algorithm *chosen_for(const rill__planner *planner, const record *r) {
    rill__settings settings = {.partition = RILL__UNIFORM};
    rill__problem p = problem_for(planner, &settings, r);
    rill__candidate best;
    rill__plan_best(planner, &settings, &p, &best);
    assert_non_null(best.algorithm);
    return best.algorithm;
}

static double error_of(const record *r) { return fabs(r->predicted / r->seconds - 1); }

static double median_error(const record *records, int n, int ranks) {
    double errors[MOST];
    int m = 0;
    for (int i = 0; i < n; i++)
        if (!ranks || records[i].ranks == ranks) errors[m++] = error_of(&records[i]);
    return rill__sample_median(errors, m);
}

static void print_table(const record *records, int n) {
    if (!getenv("RILL_TABLE")) return;
    for (int i = 0; i < n; i++) {
        const record *r = &records[i];
        print_message(
            "%-11s %-14s %2d ranks %8.4g%% %-16s %-7s %8.4g ms, predicted %8.4g: %+.0f%%\n",
            r->part, r->collective, r->ranks, 100 * (double)r->nnz / (double)r->dim, r->algorithm,
            r->codec, 1e3 * r->seconds, 1e3 * r->predicted, 100 * (r->predicted / r->seconds - 1));
    }
    for (int ranks = 8; ranks <= 16; ranks += 8)
        print_message("%d ranks: median error %.1f%%\n", ranks,
                      100 * median_error(records, n, ranks));
    print_message("all: median error %.1f%%\n", 100 * median_error(records, n, 0));
}

static void predictions_are_near(void **state) {
    (void)state;
    static record records[MOST];
    int n = read_records(records);
    assert_true(n > 50);
    for (int i = 0; i < n; i++) {
        rill__planner planner = planner_for(records[i].ranks);
        records[i].predicted = predict(&planner, &records[i]);
    }
    print_table(records, n);
    assert_true(median_error(records, n, 0) < 0.2);
    assert_true(median_error(records, n, 8) < 0.2);
    assert_true(median_error(records, n, 16) < 0.2);
    for (int i = 0; i < n; i++) /* nothing is off by twice */
        assert_true(records[i].predicted > records[i].seconds / 2 &&
                    records[i].predicted < records[i].seconds * 2);
}

static bool same_call(const record *a, const record *b) {
    return strcmp(a->part, b->part) == 0 && strcmp(a->collective, b->collective) == 0 &&
           a->ranks == b->ranks && a->dim == b->dim && a->nnz == b->nnz;
}

static void choices_are_the_fastest(void **state) {
    (void)state;
    static record records[MOST];
    int n = read_records(records);
    for (int i = 0; i < n; i++) {
        const record *best = &records[i];
        for (int j = 0; j < n; j++)
            if (same_call(best, &records[j]) && records[j].seconds < best->seconds)
                best = &records[j];
        rill__planner planner = planner_for(best->ranks);
        assert_string_equal(chosen_for(&planner, best)->name, best->algorithm);
    }
}

/* In memory that is shared a byte saved is worth less than the time to save it. What is coded once
 * and passes several ranks (a tree, Bruck's gather) may be another matter. */
static void entries_go_raw(void **state) {
    (void)state;
    static record records[MOST];
    int n = read_records(records);
    for (int i = 0; i < n; i++) {
        rill_collective collective = collective_named(records[i].collective);
        if (records[i].ranks < 8 || collective == RILL_BCAST || collective == RILL_ALLGATHER)
            continue;
        rill__planner planner = planner_for(records[i].ranks);
        rill__settings settings = {.partition = RILL__UNIFORM, .allow_bits = 8};
        rill__problem p = problem_for(&planner, &settings, &records[i]);
        rill__plan_way(&planner, &settings, algorithm_named(p.collective, records[i].algorithm),
                       &p);
        assert_string_equal(p.codec->name, "raw");
        assert_int_equal(p.value_bits, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_are_near),
        cmocka_unit_test(choices_are_the_fastest),
        cmocka_unit_test(entries_go_raw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
