/* rill_plan returns, with numbers or with an error, whatever it is asked. */
#include "support/unit.h"

#include <limits.h>
#include <math.h>

static const int ranks[] = {
    INT_MIN, -1, 0, 1, 2, 3, 1000, 65537, 1 << 24, (1 << 24) + 1, 1 << 30, (1 << 30) + 1, INT_MAX};
static const uint64_t dims[] = {
    0, 1, 7, 1000, 1 << 20, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX};

/* Seconds are numbers that are not negative, and something is chosen. */
static void check_rows(const rill_plan_query *q, const rill_plan_row *rows, int n) {
    int chosen = 0;
    for (int i = 0; i < n; i++) {
        chosen += rows[i].chosen;
        if (rows[i].refuses) continue;
        if (!(rows[i].seconds >= 0 && rows[i].seconds < 1e300))
            fail_msg("%s on %d ranks and %d hosts, dim %llu, nnz %llu: %g s", rows[i].algorithm,
                     q->ranks, q->hosts, (unsigned long long)q->dim, (unsigned long long)q->nnz,
                     rows[i].seconds);
    }
    assert_true(chosen <= 1);
    assert_true(n > 0);
}

static void ask(rill_plan_query *q) {
    rill_plan_row rows[64];
    int n = -1;
    rill_status status = rill_plan(q, rows, 64, &n);
    int good = q->ranks >= 1 && q->ranks <= 1 << 24 && q->hosts >= 1 && q->hosts <= q->ranks &&
               q->nnz <= q->dim;
    if (good != (status == RILL_OK))
        fail_msg("%d ranks, %d hosts, dim %llu, nnz %llu: %d (%s)", q->ranks, q->hosts,
                 (unsigned long long)q->dim, (unsigned long long)q->nnz, (int)status,
                 rill_last_error());
    if (good) check_rows(q, rows, n);
}

static void any_query_returns(void **state) {
    (void)state;
    enum { RANKS = sizeof ranks / sizeof *ranks, DIMS = sizeof dims / sizeof *dims };
    rill_plan_query q = RILL_PLAN_QUERY_INIT;
    q.profile = "none";
    for (int c = 0; c <= (int)RILL_REDUCER; c++)
        for (int i = 0; i < RANKS; i++)
            for (int host = 0; host < 5; host++)
                for (int d = 0; d < DIMS; d++)
                    for (int k = 0; k < 4; k++) {
                        const int hosts[] = {0, 1, 2, ranks[i] / 2, ranks[i]};
                        const uint64_t nnz[] = {0, dims[d] / 1000 + 1, dims[d] / 2, dims[d]};
                        q.collective = (rill_collective)c;
                        q.ranks = ranks[i];
                        q.hosts = hosts[host];
                        q.dim = dims[d];
                        q.nnz = nnz[k];
                        ask(&q);
                    }
}

static void too_many_ranks_are_named(void **state) {
    (void)state;
    rill_plan_query q = RILL_PLAN_QUERY_INIT;
    rill_plan_row row;
    int n;
    q.profile = "none";
    q.dim = 100;
    q.ranks = INT_MAX;
    assert_fails(rill_plan(&q, &row, 1, &n), RILL_ERR_ARGUMENT, "16777216");
}

/* Without MPI the dense sum is our own: it takes another time, and operations of users too. */
static void links_have_sums_of_their_own(void **state) {
    (void)state;
    double seconds[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        rill_plan_query q = RILL_PLAN_QUERY_INIT;
        rill_plan_row rows[64];
        int n;
        q.profile = "none";
        q.dim = 1 << 20;
        q.nnz = 1 << 10;
        q.ranks = q.hosts = 7;
        q.link = i ? "ucx" : "mpi";
        assert_ok(rill_plan(&q, rows, 64, &n));
        for (int k = 0; k < n; k++)
            if (strcmp(rows[k].algorithm, "dense") == 0) seconds[i] = rows[k].seconds;
        q.link = "pigeons";
        assert_fails(rill_plan(&q, rows, 64, &n), RILL_ERR_ARGUMENT, "pigeons");
    }
    assert_true(seconds[0] > 0 && seconds[1] > 0 && seconds[0] != seconds[1]);
}

/* Beyond a thousand ranks the ring's steps are taken together: the sum hardly shows it. */
static void long_rings_are_estimated(void **state) {
    (void)state;
    double seconds[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        rill_plan_query q = RILL_PLAN_QUERY_INIT;
        rill_plan_row rows[64];
        int n;
        q.profile = "none";
        q.dim = 1 << 20;
        q.nnz = 1000;
        q.ranks = i ? 8192 : 1024;
        assert_ok(rill_plan(&q, rows, 64, &n));
        for (int k = 0; k < n; k++)
            if (strcmp(rows[k].algorithm, "ring") == 0) seconds[i] = rows[k].seconds;
    }
    assert_true(seconds[0] > 0);
    assert_true(seconds[1] > 4 * seconds[0] && seconds[1] < 100 * seconds[0]);
}

/* A few rows of the table: what is chosen is what would be among all of them. */
static void few_rows_are_part_of_all(void **state) {
    (void)state;
    for (uint64_t nnz = 100; nnz < 1 << 20; nnz *= 100) {
        rill_plan_query q = RILL_PLAN_QUERY_INIT;
        rill_plan_row all[64], few[64];
        int n, m;
        q.profile = "none";
        q.dim = 1 << 20;
        q.nnz = nnz;
        q.ranks = 4;
        assert_ok(rill_plan(&q, all, 64, &n));
        for (int capacity = 0; capacity <= n; capacity++) {
            assert_ok(rill_plan(&q, capacity ? few : NULL, capacity, &m));
            assert_int_equal(m, capacity);
            for (int i = 0; i < m; i++) {
                assert_string_equal(few[i].algorithm, all[i].algorithm);
                assert_int_equal(few[i].chosen, all[i].chosen);
                assert_true(few[i].seconds == all[i].seconds);
            }
        }
    }
}

/* A network that is no network; and after an error there are no rows to look at. */
static void networks_are_finite(void **state) {
    (void)state;
    static const double bad[] = {-1, -INFINITY, INFINITY, NAN};
    rill_plan_row rows[64];
    for (int i = 0; i < 4; i++)
        for (int which = 0; which < 2; which++) {
            rill_plan_query q = RILL_PLAN_QUERY_INIT;
            int n = 77;
            q.profile = "none";
            q.dim = 1000;
            *(which ? &q.latency_s : &q.bits_per_second) = bad[i];
            assert_fails(rill_plan(&q, rows, 64, &n), RILL_ERR_ARGUMENT,
                         which ? "latency_s" : "bits_per_second");
            assert_int_equal(n, 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_query_returns),
        cmocka_unit_test(too_many_ranks_are_named),
        cmocka_unit_test(links_have_sums_of_their_own),
        cmocka_unit_test(long_rings_are_estimated),
        cmocka_unit_test(few_rows_are_part_of_all),
        cmocka_unit_test(networks_are_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
