/* Idea. The estimates are sums of constants times counts, apart from the choices in them. So the
 * constants that agree best with n measured calls are found by least squares: of the logarithms of
 * model to measured, since a call of 10 us counts as much as one of a second; in the logarithms of
 * the constants, which keeps them positive; with each pulled weakly to where it started, so that
 * what no call depends on stays sane. Calls that are far off (another process was on the machine)
 * count less (Huber). Levenberg-Marquardt; derivatives by differences, as the estimates have none.
 * Cost. A few ten thousand estimates: milliseconds. */
#include "plan/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FITTED = RILL__FITTED };
#define PULL 0.15   /* of the starting point: a factor of e counts as much as an error of 15 % */
#define OUTLIER 0.3 /* logarithm of model to measured from which on a call counts less */
#define STEP 0.01   /* of the differences */
enum { ROUNDS = 60 };

double rill__fit_time(const rill__sample *s, const rill__constants *c) {
    rill__problem p = s->problem;
    p.c = c;
    rill__problem_code(&p, p.codec, p.value_bits);
    return s->algorithm->estimate(&p);
}

static void errors_of(const rill__sample *s, int n, const rill__constants *c, double *errors) {
    for (int i = 0; i < n; i++)
        errors[i] = log(rill__fit_time(&s[i], c) / s[i].seconds);
}

static double weight(double error) { return fabs(error) <= OUTLIER ? 1 : OUTLIER / fabs(error); }

static double loss(const double *errors, int n, const double *moved) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double e = fabs(errors[i]);
        sum += e <= OUTLIER ? e * e : 2 * OUTLIER * e - OUTLIER * OUTLIER;
    }
    for (int j = 0; j < FITTED; j++)
        sum += PULL * PULL * moved[j] * moved[j];
    return sum;
}

void rill__fit_solve(double a[FITTED][FITTED], double b[FITTED]) {
    for (int j = 0; j < FITTED; j++) {
        for (int k = 0; k < j; k++)
            a[j][j] -= a[j][k] * a[j][k];
        a[j][j] = sqrt(fmax(a[j][j], 1e-12));
        for (int i = j + 1; i < FITTED; i++) {
            for (int k = 0; k < j; k++)
                a[i][j] -= a[i][k] * a[j][k];
            a[i][j] /= a[j][j];
        }
    }
    for (int i = 0; i < FITTED; i++) {
        for (int k = 0; k < i; k++)
            b[i] -= a[i][k] * b[k];
        b[i] /= a[i][i];
    }
    for (int i = FITTED - 1; i >= 0; i--) {
        for (int k = i + 1; k < FITTED; k++)
            b[i] -= a[k][i] * b[k];
        b[i] /= a[i][i];
    }
}

static void set(const rill__constants *start, const double *moved, rill__constants *c) {
    *c = *start;
    for (int j = 0; j < FITTED; j++)
        *rill__constant_at(c, j) *= exp(moved[j]);
}

/* The step that a parabola of the loss suggests, held back by damping. */
static void suggest(const rill__sample *s, int n, const rill__constants *start, const double *moved,
                    const double *errors, double damping, double *scratch, double *step) {
    double a[FITTED][FITTED] = {{0}}, slope[FITTED];
    rill__constants c;
    set(start, moved, &c);
    double *jacobian = scratch; /* n rows */
    for (int j = 0; j < FITTED; j++) {
        rill__constants other = c;
        *rill__constant_at(&other, j) *= exp(STEP);
        for (int i = 0; i < n; i++)
            jacobian[i * FITTED + j] =
                (log(rill__fit_time(&s[i], &other) / s[i].seconds) - errors[i]) / STEP;
    }
    memset(slope, 0, sizeof slope);
    for (int i = 0; i < n; i++) {
        double w = weight(errors[i]);
        const double *row = jacobian + i * FITTED;
        for (int j = 0; j < FITTED; j++) {
            slope[j] -= w * row[j] * errors[i];
            for (int k = 0; k <= j; k++)
                a[j][k] += w * row[j] * row[k];
        }
    }
    for (int j = 0; j < FITTED; j++) {
        a[j][j] += PULL * PULL + damping * (a[j][j] + 1e-3);
        slope[j] -= PULL * PULL * moved[j];
    }
    rill__fit_solve(a, slope);
    memcpy(step, slope, sizeof slope);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double rill__fit_error(const rill__sample *s, int n, const rill__constants *c) {
    if (n == 0) return 0;
    double *errors = rill__malloc(sizeof(double) * (size_t)n);
    if (!errors) return NAN;
    errors_of(s, n, c, errors);
    for (int i = 0; i < n; i++)
        errors[i] = fabs(expm1(errors[i]));
    qsort(errors, (size_t)n, sizeof *errors, ascending);
    double median = errors[n / 2];
    free(errors);
    return median;
}

double rill__fit(const rill__sample *s, int n, rill__constants *c) {
    double moved[FITTED] = {0}, damping = 0.1;
    const rill__constants start = *c;
    if (n == 0) return 0;
    double *scratch = rill__malloc(sizeof(double) * (size_t)n * (FITTED + 2));
    if (!scratch) return NAN;
    double *errors = scratch + (size_t)n * FITTED, *others = errors + n;
    errors_of(s, n, c, errors);
    double least = loss(errors, n, moved);
    for (int round = 0; round < ROUNDS && damping < 1e6; round++) {
        double step[FITTED], next[FITTED];
        suggest(s, n, &start, moved, errors, damping, scratch, step);
        for (int j = 0; j < FITTED; j++)
            next[j] = fmin(fmax(moved[j] + step[j], -7), 7);
        rill__constants tried;
        set(&start, next, &tried);
        errors_of(s, n, &tried, others);
        double now = loss(others, n, next);
        if (now < least) {
            least = now;
            memcpy(moved, next, sizeof moved);
            memcpy(errors, others, sizeof(double) * (size_t)n);
            damping = fmax(damping / 4, 1e-6);
        } else {
            damping *= 4;
        }
    }
    set(&start, moved, c);
    free(scratch);
    return rill__fit_error(s, n, c);
}
