/* The count-sketch of "s2": sizes, hashes, bias, variance, outliers, the error that it says it has,
 * and what feedback makes of it. */
#include "../support/unit.h"

#include "coll/topk/sketch.h"

enum { ENTRIES = 600 };

static rill__sketch plan(rill_type type, uint64_t n, int rows, double lambda, uint64_t seed,
                         uint64_t step) {
    rill__sketch s;
    rill__sketch_plan(&s, type, n, rows, lambda, seed, step);
    return s;
}

static void *cells_of(const rill__sketch *s) {
    void *cells = calloc(rill__sketch_cells(s) + 1, rill_type_size(s->cell));
    assert_non_null(cells);
    return cells;
}

/* Estimates of a vector by a sketch of f64; the squared errors that it expects. */
static double round_trip(const rill__sketch *s, const double *x, double *median, double *mean,
                         double *relative) {
    double *cells = cells_of(s);
    for (uint64_t i = 0; i < s->entries; i++)
        rill__sketch_add(s, cells, i, x[i]);
    double squares = rill__sketch_estimate(s, cells, 0, s->entries, median, mean);
    if (relative) *relative = rill__sketch_error(s, cells, squares);
    free(cells);
    return squares;
}

static void sizes(void **state) {
    (void)state;
    assert_int_equal(rill__sketch_width(600, 1, 0.5), 300);
    assert_int_equal(rill__sketch_width(600, 3, 0.5), 100);
    assert_int_equal(rill__sketch_width(601, 3, 0.5), 101); /* rows are rounded up */
    assert_int_equal(rill__sketch_width(1, 3, 0.5), 1);
    assert_int_equal(rill__sketch_width(600, 3, 8), 600); /* no more than one for each entry */
    assert_int_equal(rill__sketch_width(600, 1, 1e300), 600);
    assert_int_equal(rill__sketch_width(UINT64_C(1) << 40, 4, 0.5), UINT64_C(1) << 37);
    rill__sketch s = plan(RILL_BF16, 600, 3, 0.5, 1, 1);
    assert_int_equal(s.cell, RILL_F32);
    assert_int_equal(rill__sketch_cells(&s), 300);
    assert_int_equal(s.slots, 601);                                 /* the next prime */
    assert_true(fabs(rill__sketch_meeting(&s) - 5.0 / 600) < 2e-5); /* not 1 / 100 */
    assert_int_equal(plan(RILL_F64, 600, 3, 0.5, 1, 1).cell, RILL_F64);
}

/* No cell has more entries than an even deal gives it; entries are told apart by walking too. */
static void even_deal(void **state) {
    (void)state;
    for (uint64_t n = 2; n < 400; n += 7)
        for (int rows = 1; rows <= 4; rows++) {
            rill__sketch s = plan(RILL_F64, n, rows, 0.4, n, 3);
            double *cells = cells_of(&s), *ones = cells_of(&s);
            for (uint64_t i = 0; i < n; i++) {
                memset(ones, 0, rill__sketch_cells(&s) * sizeof *ones);
                rill__sketch_add(&s, ones, i, 1);
                double median, mean;
                rill__sketch_estimate(&s, ones, i, 1, &median, &mean);
                assert_true(median == 1 && mean == 1); /* where it was put */
                for (uint64_t c = 0; c < rill__sketch_cells(&s); c++)
                    cells[c] += fabs(ones[c]);
            }
            double most = (double)((s.slots + s.width - 1) / s.width);
            for (uint64_t c = 0; c < rill__sketch_cells(&s); c++)
                assert_true(cells[c] <= most);
            free(cells);
            free(ones);
        }
}

static void exact_when_roomy(void **state) {
    (void)state;
    double x[ENTRIES], median[ENTRIES], mean[ENTRIES], relative = 1;
    rng r = rng_make(3, 3);
    for (int i = 0; i < ENTRIES; i++)
        x[i] = rng_normal(&r);
    rill__sketch s = plan(RILL_F64, ENTRIES, 3, 8, 5, 6);
    round_trip(&s, x, median, mean, &relative);
    for (int i = 0; i < ENTRIES; i++)
        assert_true(median[i] == x[i]);
    assert_true(relative == 0);
}

/* The mean error over many hashes is within 4.5 standard deviations of 0 for each entry; one row
 * has the variance that the hashes promise. */
static void unbiased(void **state) {
    (void)state;
    enum { TRIES = 3000, N = 120 };
    static const struct {
        int rows;
        double lambda;
    } cases[] = {{1, 0.5}, {1, 0.1}, {2, 0.5}, {3, 0.5}, {3, 2}, {4, 1}, {5, 0.5}};
    double x[N], median[N], mean[N];
    rng r = rng_make(7, 1);
    double norm2 = 0;
    for (int i = 0; i < N; i++) {
        x[i] = rng_normal(&r) + (i % 3 == 0);
        norm2 += x[i] * x[i];
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double sum[N] = {0}, square[N] = {0}, expected = 0, got = 0;
        for (uint64_t t = 0; t < TRIES; t++) {
            rill__sketch s = plan(RILL_F64, N, cases[c].rows, cases[c].lambda, 11, t);
            round_trip(&s, x, median, mean, NULL);
            double meeting = rill__sketch_meeting(&s);
            for (int i = 0; i < N; i++) {
                double e = median[i] - x[i];
                sum[i] += e;
                square[i] += e * e;
                expected += (norm2 - x[i] * x[i]) * meeting;
                got += e * e;
            }
        }
        for (int i = 0; i < N; i++) {
            double deviation = sqrt(square[i] / TRIES / TRIES);
            if (fabs(sum[i] / TRIES) > 4.5 * deviation)
                fail_msg("rows %d lambda %g entry %d: bias %g, standard deviation %g",
                         cases[c].rows, cases[c].lambda, i, sum[i] / TRIES, deviation);
        }
        double ratio = got / expected;
        if (cases[c].rows == 1 ? fabs(ratio - 1) > 0.03 : ratio > 1.0)
            fail_msg("rows %d lambda %g: variance %g of what one row has", cases[c].rows,
                     cases[c].lambda, ratio);
    }
}

/* A huge entry spoils whoever shares a cell with it, unless the median goes to the other rows. */
static void outliers(void **state) {
    (void)state;
    double x[ENTRIES], median[ENTRIES], mean[ENTRIES];
    int spoiled_median = 0, spoiled_one = 0;
    for (int i = 0; i < ENTRIES; i++)
        x[i] = i == 17 ? 1e6 : 1;
    for (uint64_t t = 0; t < 50; t++) {
        rill__sketch one = plan(RILL_F64, ENTRIES, 1, 0.2, 1, t);
        rill__sketch five = plan(RILL_F64, ENTRIES, 5, 1.0, 1, t); /* rows as wide as that one */
        assert_int_equal(one.width, five.width);
        round_trip(&one, x, median, mean, NULL);
        for (int i = 0; i < ENTRIES; i++)
            spoiled_one += i != 17 && fabs(median[i]) > 1e5;
        round_trip(&five, x, median, mean, NULL);
        for (int i = 0; i < ENTRIES; i++)
            spoiled_median += i != 17 && fabs(median[i]) > 1e5;
        assert_true(fabs(median[17] - 1e6) < 100);
    }
    assert_true(spoiled_one >= 100);
    assert_true(spoiled_median * 20 < spoiled_one);
}

/* Sketches add up, whoever adds what, and equal plans give equal bits. */
static void linear(void **state) {
    (void)state;
    for (int type = 0; type < 2; type++) {
        rill_type t = type ? RILL_F64 : RILL_F32;
        rill__sketch s = plan(t, ENTRIES, 3, 0.5, 9, 4), again = plan(t, ENTRIES, 3, 0.5, 9, 4);
        rill__sketch later = plan(t, ENTRIES, 3, 0.5, 9, 5);
        assert_memory_equal(s.row, again.row, 3 * sizeof *s.row);
        assert_memory_not_equal(s.row, later.row, 3 * sizeof *s.row);
        char *both = cells_of(&s), *a = cells_of(&s), *b = cells_of(&s);
        for (int i = 0; i < ENTRIES; i++) {
            rill__sketch_add(&s, both, (uint64_t)i, 3 * i - 900);
            rill__sketch_add(i % 2 ? &s : &again, i % 2 ? a : b, (uint64_t)i, 3 * i - 900);
        }
        uint64_t n = rill__sketch_cells(&s);
        for (uint64_t i = 0; i < n; i++)
            assert_true(value_load(t, both, i) == value_load(t, a, i) + value_load(t, b, i));
        double median[ENTRIES], mean[ENTRIES], part[2], rest[2];
        rill__sketch_estimate(&s, both, 0, ENTRIES, median, mean);
        for (uint64_t i = 0; i + 2 <= ENTRIES; i += 2) { /* in pieces, the same */
            rill__sketch_estimate(&s, both, i, 2, part, rest);
            assert_memory_equal(part, median + i, sizeof part);
            rill__sketch_mean(&s, both, i, 2, rest);
            assert_memory_equal(rest, mean + i, sizeof rest);
        }
        free(both);
        free(a);
        free(b);
    }
}

/* What the sketch says of its error is about true, for normal and for heavy-tailed values. */
static void error_estimate(void **state) {
    (void)state;
    enum { N = 4000 };
    static const int rows[] = {1, 2, 3, 4, 5, 9};
    double *x = malloc(3 * N * sizeof *x), *median = x + N, *mean = x + 2 * N;
    assert_non_null(x);
    for (int tail = 0; tail < 2; tail++)
        for (size_t c = 0; c < sizeof rows / sizeof *rows; c++)
            for (int l = 0; l < 2; l++) {
                rng r = rng_make(5, c);
                double norm2 = 0, error2 = 0, said2 = 0, said;
                for (uint64_t t = 0; t < 8; t++) {
                    for (int i = 0; i < N; i++) {
                        x[i] = rng_normal(&r);
                        if (tail) x[i] *= x[i] * x[i];
                        norm2 += x[i] * x[i];
                    }
                    rill__sketch s = plan(RILL_F64, N, rows[c], l ? 2 : 0.5, 2, t);
                    round_trip(&s, x, median, mean, &said);
                    said2 += said * said / 8;
                    for (int i = 0; i < N; i++)
                        error2 += (median[i] - x[i]) * (median[i] - x[i]);
                }
                double ratio = said2 == 0 && error2 == 0 ? 1 : sqrt(said2 / (error2 / norm2));
                if (!(ratio > 0.6 && ratio < 1.7))
                    fail_msg("rows %d, lambda %g, tail %d: says %g, is %g", rows[c], l ? 2 : 0.5,
                             tail, sqrt(said2), sqrt(error2 / norm2));
            }
    free(x);
}

/* A NaN is found again, and spoils only entries that share a cell with it in most rows. */
static void not_a_number(void **state) {
    (void)state;
    double x[ENTRIES], median[ENTRIES], mean[ENTRIES];
    for (int i = 0; i < ENTRIES; i++)
        x[i] = i == 100 ? (double)NAN : 1;
    rill__sketch s = plan(RILL_F64, ENTRIES, 5, 2, 1, 1);
    round_trip(&s, x, median, mean, NULL);
    int bad = 0;
    for (int i = 0; i < ENTRIES; i++)
        bad += isnan(median[i]);
    assert_true(isnan(median[100]));
    assert_true(bad < 10);
}

/* ---- feedback ------------------------------------------------------------------------------- */

typedef enum share { OWN_PART, EQUAL_PARTS } share;

/* The largest L2 norm of a rank's residual after so many steps, in units of a gradient's; *sum: of
 * the sum of the residuals. Gradients of ranks differ by noise, and by what is always the same. */
static double feedback(int rows, double factor, share how, int steps, double *sum) {
    enum { N = 400, RANKS = 4 };
    static double residual[RANKS][N], apart[RANKS][N];
    memset(residual, 0, sizeof residual);
    rng r = rng_make(1, 8);
    for (int p = 0; p < RANKS; p++)
        for (int i = 0; i < N; i++)
            apart[p][i] = rng_normal(&r);
    double median[N], mean[N], own[N];
    for (int t = 0; t < steps; t++) {
        rill__sketch s = plan(RILL_F64, N, rows, 0.5, 3, (uint64_t)t);
        double *cells[RANKS], *total = cells_of(&s);
        for (int p = 0; p < RANKS; p++) {
            cells[p] = cells_of(&s);
            for (int i = 0; i < N; i++) {
                residual[p][i] += rng_normal(&r) + apart[p][i];
                rill__sketch_add(&s, cells[p], (uint64_t)i, residual[p][i]);
            }
            for (uint64_t c = 0; c < rill__sketch_cells(&s); c++)
                total[c] += cells[p][c];
        }
        rill__sketch_estimate(&s, total, 0, N, median, mean);
        for (int p = 0; p < RANKS; p++) {
            rill__sketch_mean(&s, cells[p], 0, N, own);
            for (int i = 0; i < N; i++)
                residual[p][i] -= how == EQUAL_PARTS
                                      ? factor * median[i] / RANKS
                                      : factor * (own[i] + (median[i] - mean[i]) / RANKS);
            free(cells[p]);
        }
        free(total);
    }
    double worst = 0, all = 0;
    for (int p = 0; p < RANKS; p++) {
        double square = 0;
        for (int i = 0; i < N; i++)
            square += residual[p][i] * residual[p][i];
        worst = fmax(worst, sqrt(square / N));
    }
    for (int i = 0; i < N; i++) {
        double x = 0;
        for (int p = 0; p < RANKS; p++)
            x += residual[p][i];
        all += x * x;
    }
    *sum = sqrt(all / N);
    return worst;
}

/* As topk_s2.c does it, residuals stay bounded; the estimate as it is makes them explode, and with
 * equal parts what ranks have different adds up, although the sum stays bounded. */
static void feedback_is_bounded(void **state) {
    (void)state;
    const double factor = 0.5 / 1.5;
    for (int rows = 1; rows <= 5; rows += 2) {
        double sum_early, sum_late, sum;
        double early = feedback(rows, factor, OWN_PART, 50, &sum_early);
        double late = feedback(rows, factor, OWN_PART, 400, &sum_late);
        double equal = feedback(rows, factor, EQUAL_PARTS, 400, &sum);
        print_message("rows %d: residual %.1f after 50 steps, %.1f after 400; equal parts %.1f "
                      "(sum %.1f, %.1f)\n",
                      rows, early, late, equal, sum_late, sum);
        assert_true(late < 1.5 * early && late < 20);
        assert_true(sum_late < 1.5 * sum_early);
        assert_true(equal > 5 * late);
        assert_true(sum < 2 * sum_late);
    }
    double sum;
    assert_true(feedback(3, 1, OWN_PART, 100, &sum) > 1e6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(even_deal),
        cmocka_unit_test(unbiased),
        cmocka_unit_test(exact_when_roomy),
        cmocka_unit_test(outliers),
        cmocka_unit_test(linear),
        cmocka_unit_test(error_estimate),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(feedback_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
