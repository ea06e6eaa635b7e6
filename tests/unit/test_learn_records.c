/* What the built-in constants say of the mixed calls that bench/learn measured on one host, with a
 * core for each rank: bench/results/learn.jsonl. A record has the time of what `auto` took then and
 * of the best fixed algorithm. Constants were fitted to these records of 8 and 16 ranks: this
 * says how well they fit, and not what they do elsewhere. With RILL_TABLE=1 it prints every kind
 * of calls, as docs/results/planner.md has them. */
#include "records.h"

#define RECORDS "bench/results/learn.jsonl" /* from the root, where scripts/test runs */
enum { MOST = 400 };

/* One way that was measured for a kind of calls. */
typedef struct record {
    int ranks;
    uint64_t dim, nnz;
    char algorithm[32], codec[32];
    double seconds, predicted;
} record;

/* "algorithm, codec" */
static void way_of(const char *line, const char *name, record *r) {
    char both[32];
    text(line, name, both);
    char *comma = strstr(both, ", ");
    assert_non_null(comma);
    *comma = '\0';
    snprintf(r->algorithm, sizeof r->algorithm, "%s", both);
    snprintf(r->codec, sizeof r->codec, "%s", comma + 2);
}

static int read_records(record *records) {
    FILE *file = open_records(RECORDS);
    static char line[RECORD_WIDTH];
    int n = 0;
    while (fgets(line, sizeof line, file)) {
        if (!strstr(line, "\"one host") || number(line, "dim") < 1) continue;
        for (int best = 0; best < 2; best++) {
            record r = {.ranks = (int)number(line, "ranks"),
                        .dim = (uint64_t)number(line, "dim"),
                        .nnz = (uint64_t)number(line, "nnz"),
                        .seconds = number(line, best ? "best_s" : "auto_s")};
            way_of(line, best ? "best" : "auto", &r);
            assert_true(n < MOST && r.seconds > 0);
            records[n++] = r;
        }
    }
    fclose(file);
    return n;
}

/* What the planner knows after calls like it. */
static rill__problem problem_for(const rill__planner *planner, const rill__settings *settings,
                                 const record *r) {
    rill__observed seen = {.known = true,
                           .nnz_sum = r->nnz * (unsigned)r->ranks,
                           .nnz_max = r->nnz};
    return rill__plan_problem(planner, settings, RILL_ALLREDUCE, r->ranks, r->dim, RILL_F32,
                              RILL_SUM, &seen);
}

static double predict(const record *r) {
    rill__planner planner = planner_for(r->ranks);
    rill__settings settings = {.partition = RILL__UNIFORM,
                               .codec = rill__index_codec_by_name(r->codec)};
    rill__problem p = problem_for(&planner, &settings, r);
    return rill__plan_way(&planner, &settings, algorithm_named(RILL_ALLREDUCE, r->algorithm), &p);
}

static rill__candidate choice_for(const record *r) {
    rill__planner planner = planner_for(r->ranks);
    rill__settings settings = {.partition = RILL__UNIFORM};
    rill__problem p = problem_for(&planner, &settings, r);
    rill__candidate best;
    rill__plan_best(&planner, &settings, &p, &best);
    assert_non_null(best.algorithm);
    return best;
}

static bool same_kind(const record *a, const record *b) {
    return a->ranks == b->ranks && a->dim == b->dim && a->nnz == b->nnz;
}

/* How the choices of today would have done, with so many ranks. */
typedef struct account {
    int kinds, known; /* and of how many the choice was measured */
    double logs;      /* of its time over the best's, of these */
    double worst;
    double errors[MOST];
    int ways;
} account;

static double median_of_way(const record *records, int n, const record *kind, const char *name) {
    double times[MOST];
    int m = 0;
    for (int i = 0; i < n; i++)
        if (same_kind(&records[i], kind) && strcmp(records[i].algorithm, name) == 0)
            times[m++] = records[i].seconds;
    return m ? rill__sample_median(times, m) : 0;
}

static void add_kind(account *a, const record *records, int n, const record *kind) {
    rill__candidate choice = choice_for(kind);
    const char *name = choice.algorithm->name;
    double best = INFINITY, taken = median_of_way(records, n, kind, name);
    for (int i = 0; i < n; i++)
        if (same_kind(&records[i], kind))
            best = fmin(best, median_of_way(records, n, kind, records[i].algorithm));
    a->kinds++;
    if (taken > 0) {
        a->known++;
        a->logs += log(taken / best);
        a->worst = fmax(a->worst, taken / best);
    }
    if (!getenv("RILL_TABLE")) return;
    print_message("%2d ranks, %7llu of %8llu: %-16s predicted %9.3g us, ", kind->ranks,
                  (unsigned long long)kind->nnz, (unsigned long long)kind->dim, name,
                  1e6 * choice.time);
    if (taken > 0) print_message("took %9.3g us, %.2f of the best\n", 1e6 * taken, taken / best);
    else print_message("was not measured; the best took %.3g us\n", 1e6 * best);
}

static account account_for(const record *records, int n, int ranks) {
    account a = {0};
    for (int i = 0; i < n; i++) {
        const record *r = &records[i];
        if (r->ranks != ranks) continue;
        a.errors[a.ways++] = fabs(r->predicted / r->seconds - 1);
        int first = 0;
        while (!same_kind(&records[first], r))
            first++;
        if (first == i) add_kind(&a, records, n, r);
    }
    print_message(
        "%d ranks: the choice was measured for %d of %d kinds, and takes %.3f of the best "
        "there (worst %.2f); predictions are off by %.1f %% (median)\n",
        ranks, a.known, a.kinds, exp(a.logs / fmax(1, a.known)), a.worst,
        100 * rill__sample_median(a.errors, a.ways));
    return a;
}

static void mixed_calls_are_as_recorded(void **state) {
    (void)state;
    static record records[MOST];
    int n = read_records(records);
    for (int i = 0; i < n; i++)
        records[i].predicted = predict(&records[i]);
    static const struct {
        int ranks;
        double most, error;
    } limits[] = {{2, 1.06, 0.6}, {8, 1.05, 0.2}, {16, 1.05, 0.2}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        account a = account_for(records, n, limits[i].ranks);
        assert_int_equal(a.kinds, 14);
        assert_true(a.known >= 11);
        assert_true(exp(a.logs / a.known) <= limits[i].most);
        assert_true(rill__sample_median(a.errors, a.ways) <= limits[i].error);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mixed_calls_are_as_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
