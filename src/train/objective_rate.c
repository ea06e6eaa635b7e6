/* A learning rate for plain and momentum SGD, from the data.
 *
 * Idea: the mean loss of a batch of B rows, drawn from all, is smooth in expectation with
 *     L_B = L ((1 - 1/B) lambda + R / B),
 * L the most curvature of the loss, R the largest squared norm of a row, lambda the largest
 * eigenvalue of X'X / rows: rows that have little in common (lambda far below R) allow steps that
 * grow with the batch. The rate is 1 / (2 L_B). On rows of norm 1 and one row a step that is 2 for
 * the logistic loss.
 * Source: Gower et al., SGD: general analysis and improved rates (2019), proposition 3.8; for the
 * mini-batch factor also Takac et al., Mini-batch primal and dual methods for SVMs (2013).
 * R and lambda come from a sample of each rank's first rows, lambda by power iterations; ranks take
 * the largest. The hinge has no curvature: it counts as 1.
 * Memory: n floats for a moment. Cost: some 20 passes over 1,000 rows.
 */
#include "train/objective.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLE = 1000, ITERATIONS = 10 };

/* A row's value of a feature as it counts. */
static double entry(const rill__objective *o, uint64_t row, uint64_t e) {
    const rill_data_view *d = &o->rows.data;
    double by = rill__row_factor(&o->rows, row);
    return by * d->value[e] * rill__factor(o, d->index32[e]);
}

/* into (0 before) += X' z; then z = X into, and into = 0 again. Returns |z|. */
static double multiply(const rill__objective *o, uint64_t rows, float *into, double *z) {
    const rill_data_view *d = &o->rows.data;
    double squares = 0, bias = 0;
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            into[d->index32[e]] += (float)(z[i] * entry(o, row, e));
        if (o->bias >= 0) bias += z[i] * o->bias;
    }
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        z[i] = o->bias >= 0 ? bias * o->bias : 0;
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            z[i] += into[d->index32[e]] * entry(o, row, e);
        squares += z[i] * z[i];
    }
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            into[d->index32[e]] = 0;
    }
    return sqrt(squares);
}

/* Of this rank's sample. */
static rill_status measure(const rill__objective *o, double *lambda, double *norm) {
    const rill_data_view *d = &o->rows.data;
    uint64_t rows = o->rows.n < SAMPLE ? o->rows.n : SAMPLE;
    float *into = rill__vector_zeros(o->features + RILL_SLACK, sizeof *into);
    double *z = malloc(((size_t)rows + 1) * sizeof *z);
    *lambda = *norm = 0;
    if (!into || !z) {
        free(into);
        free(z);
        return rill__data_memory("the learning rate");
    }
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        double squares = o->bias >= 0 ? o->bias * o->bias : 0;
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            squares += entry(o, row, e) * entry(o, row, e);
        if (squares > *norm) *norm = squares;
        z[i] = 1 / sqrt((double)rows);
    }
    for (int k = 0; k<ITERATIONS && * norm> 0; k++) {
        double size = multiply(o, rows, into, z);
        if (!(size > 0) || !isfinite(size)) break;
        *lambda = size / (double)rows;
        for (uint64_t i = 0; i < rows; i++)
            z[i] /= size;
    }
    free(into);
    free(z);
    return RILL_OK;
}

rill_status rill__objective_rate(const rill__objective *o, const rill__team *team, uint64_t batch,
                                 double *lr) {
    double found[2], curvature = o->loss->most_curvature > 0 ? o->loss->most_curvature : 1;
    RILL_TRY_DATA(rill__data_agree(team->talk, measure(o, &found[0], &found[1])));
    RILL_TRY_DATA(rill__most_f64(team->talk, found, 2));
    double heaviest = o->class_weight ? 0 : 1;
    for (int c = 0; o->class_weight && c < o->labels; c++)
        heaviest = fmax(heaviest, o->class_weight[c]);
    double share = 1 / (double)batch;
    double smooth = curvature * heaviest * ((1 - share) * found[0] + share * found[1]);
    *lr = smooth > 0 && isfinite(smooth) ? 1 / (2 * smooth) : 0.5;
    return RILL_OK;
}
