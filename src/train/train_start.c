/* Where the weights start: at 0, but an intercept that is not penalised at what is best without any
 * feature. Steps then have features to learn, and not the balance of the classes or the mean of the
 * targets, and the first gradient, which newton's tolerance is a share of, is theirs. */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

/* Of one column: weights of the rows on either side. */
static double best_constant(const rill__loss *loss, double positive, double negative) {
    double z = positive > negative ? 1 : -1;
    if (loss->most_curvature == 0) return z;
    if (!strcmp(loss->name, "logistic")) return log(positive / negative);
    z = 0;
    for (int i = 0; i < 50; i++) {
        double slope = positive * loss->slope(z, 1) + negative * loss->slope(z, -1);
        double bend = positive * loss->curvature(z, 1) + negative * loss->curvature(z, -1);
        if (!(bend > 0)) break;
        z -= slope / bend;
    }
    return z;
}

/* sums: weights of the classes; or of the targets, and their weighted sum. */
static void start_intercept(rill_trainer *t, const double *sums) {
    const rill__objective *o = &t->objective;
    double total = 0, tiny = 1e-3;
    for (int c = 0; c < o->labels; c++)
        total += sums[c];
    for (int c = 0; c < o->columns; c++) {
        double mine = fmax(sums[c], tiny), rest = fmax(total - sums[c], tiny);
        double z = o->regression ? (strcmp(o->loss->name, "huber") ? sums[1] / fmax(sums[0], tiny)
                                                                   : t->centre)
                   : o->softmax  ? log(mine / fmax(total, tiny) * o->columns)
                                 : best_constant(o->loss, mine, rest);
        t->start[c] = (float)(z / o->bias);
        t->weights.w[o->penalised + (uint64_t)c] = t->start[c];
    }
}

rill_status rill__train_start(rill_trainer *t) {
    const rill__objective *o = &t->objective;
    int n = o->regression ? 2 : o->labels;
    double *sums = calloc((size_t)n, sizeof *sums);
    t->start = calloc((size_t)o->columns, sizeof *t->start);
    rill_status status = sums && t->start ? RILL_OK : rill__data_memory("the weights");
    for (uint64_t i = 0; status == RILL_OK && i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        float target = o->rows.target[row];
        double weight = rill__row_weight(o, &o->rows, row);
        sums[o->regression ? 0 : (int)target] += weight;
        if (o->regression) sums[1] += weight * target;
    }
    status = rill__data_agree(t->team.talk, status);
    if (status == RILL_OK) status = rill__team_sum(&t->team, RILL_OK, sums, n);
    double total = 0;
    for (int c = 0; status == RILL_OK && c < (o->regression ? 1 : n); c++)
        total += sums[c];
    if (status == RILL_OK && !(total > 0))
        status = rill__data_fail(RILL_ERR_ARGUMENT,
                                 "the weights of all rows are 0: there is nothing to learn");
    if (status == RILL_OK && t->options.intercept) start_intercept(t, sums);
    free(sums);
    t->job.start = t->start;
    return status;
}
