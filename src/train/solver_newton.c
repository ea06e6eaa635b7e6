/* Truncated Newton method with a line search, data-parallel.
 *
 * Idea: an epoch is one outer step. Gradient, Hessian-vector products and the diagonal that
 * preconditions conjugate gradients are the objective's, summed over the ranks
 * (objective_smooth.c); the rest is the same on all ranks. Conjugate gradients stop when the
 * quadratic model no longer falls much; the step is halved until the objective falls enough, which
 * needs one number per try, since decision values along the direction are kept.
 * Source: LIBLINEAR's newton.cpp (Hsia, Chiang, Lin, Preconditioned conjugate gradient methods in
 * truncated Newton frameworks, 2018; Galli, Lin, 2021); distributed: Zhuang, Chin, Juan, Lin
 * (2015).
 * Restriction: a loss with curvature, no l1. It is the solver for an exact optimum, and sends whole
 * vectors: a sum of n per product.
 * Memory: 6 n floats, and the objective's. Cost of a step: about 5 to 30 passes over the rows.
 */
#include "train/solver.h"

#include <math.h>
#include <stdlib.h>

typedef struct newton_state {
    float *gradient, *direction, *residual, *product, *diagonal, *preconditioned;
    rill__smooth *function;
    rill_options how; /* vectors are summed */
} newton_state;

static rill_status open_alone(rill__job *job) {
    newton_state *s = job->state = calloc(1, sizeof *s);
    if (!s) return rill__data_memory("the solver");
    size_t n = (size_t)job->objective->n + RILL_SLACK;
    float **vectors[] = {&s->gradient, &s->direction, &s->residual,
                         &s->product,  &s->diagonal,  &s->preconditioned};
    for (int i = 0; i < 6; i++)
        if (!(*vectors[i] = malloc(n * sizeof(float)))) return rill__data_memory("the solver");
    s->how = (rill_options)RILL_OPTIONS_INIT;
    s->how.algorithm = job->options->algorithm;
    s->how.codec = job->options->codec;
    return rill__smooth_open(job->objective, job->team, &s->how, &s->function);
}

static rill_status newton_open(rill__job *job) {
    RILL_TRY_DATA(rill__data_agree(job->team->talk, open_alone(job)));
    return rill__team_comm(job->team);
}

static void newton_close(rill__job *job) {
    newton_state *s = job->state;
    if (!s) return;
    free(s->gradient);
    free(s->direction);
    free(s->residual);
    free(s->product);
    free(s->diagonal);
    free(s->preconditioned);
    rill__smooth_close(&s->function);
    free(s);
    job->state = NULL;
}

static uint64_t newton_bytes(const rill__job *job) {
    const newton_state *s = job->state;
    return 6 * job->objective->n * sizeof(float) + rill__smooth_bytes(s->function);
}

/* Preconditioned conjugate gradients on H d = -gradient. residual holds r; preconditioned the
 * search direction. */
static rill_status solve(newton_state *s, uint64_t n) {
    float *d = s->direction, *r = s->residual, *p = s->preconditioned;
    double rz = 0, model = 0;
    for (uint64_t j = 0; j < n; j++) {
        d[j] = 0;
        r[j] = -s->gradient[j];
        p[j] = r[j] / s->diagonal[j];
        rz += (double)r[j] * p[j];
    }
    for (int k = 1; k <= 1000 && rz > 0; k++) {
        RILL_TRY_DATA(rill__smooth_product(s->function, p, s->product));
        double bend = rill__dot(p, s->product, n);
        if (!(bend > 0)) break;
        double alpha = rz / bend, next = 0, fall;
        for (uint64_t j = 0; j < n; j++) {
            d[j] += (float)(alpha * p[j]);
            r[j] -= (float)(alpha * s->product[j]);
            next += (double)r[j] * r[j] / s->diagonal[j];
        }
        /* Value of the quadratic model: -(d.r + d.(-gradient)) / 2 */
        double value = -0.5 * (rill__dot(d, r, n) - rill__dot(d, s->gradient, n));
        fall = model - value;
        if (!(value < 0) || !(fall > 0)) break;
        model = value;
        if (k * fall <= 0.5 * -value) break;
        double beta = next / rz;
        rz = next;
        for (uint64_t j = 0; j < n; j++)
            p[j] = (float)(r[j] / s->diagonal[j] + beta * p[j]);
    }
    return RILL_OK;
}

/* Halves the step until the objective falls by a hundredth of what the slope promises. *at: before,
 * and after. */
static rill_status search_line(newton_state *s, float *w, uint64_t n, rill__smooth_value *at,
                               bool *moved) {
    double slope = rill__dot(s->gradient, s->direction, n), alpha = 1;
    *moved = false;
    rill__smooth_look_along(s->function, s->direction);
    for (int tries = 0; tries < 20 && slope < 0; tries++, alpha *= 0.5) {
        rill__smooth_value there;
        RILL_TRY_DATA(rill__smooth_try(s->function, alpha, &there));
        if (!(there.value - at->value <= 0.01 * alpha * slope)) continue;
        for (uint64_t j = 0; j < n; j++)
            w[j] += (float)(alpha * s->direction[j]);
        *at = there;
        *moved = true;
        return RILL_OK;
    }
    return RILL_OK;
}

static rill_status one_step(rill__job *job, rill__epoch *epoch) {
    newton_state *s = job->state;
    uint64_t n = job->objective->n;
    float *w = job->weights->w;
    rill__smooth_value at;
    RILL_TRY_DATA(rill__team_comm(job->team));
    RILL_TRY_DATA(rill__smooth_move(s->function, w, &at, s->gradient, s->diagonal));
    for (uint64_t i = 0; i < n; i++) /* far from the true diagonal, as LIBLINEAR found best */
        s->diagonal[i] = 0.99f + 0.01f * s->diagonal[i];
    double norm = sqrt(rill__dot(s->gradient, s->gradient, n));
    if (job->epoch == 0) job->kept = norm;
    epoch->steps = 1;
    epoch->samples = job->objective->rows.n;
    epoch->converged = norm <= job->options->tolerance * job->kept;
    if (!epoch->converged) {
        bool moved;
        RILL_TRY_DATA(solve(s, n));
        RILL_TRY_DATA(search_line(s, w, n, &at, &moved));
        epoch->converged = !moved; /* at the limit of what floats can express */
    }
    epoch->loss = at.loss / job->objective->C / job->team->ranks; /* ranks add theirs up */
    return RILL_OK;
}

static rill_status newton_epoch(rill__job *job, rill__epoch *epoch) {
    rill_status status = one_step(job, epoch);
    if (status != RILL_OK) rill__team_refuse(job->team, 1);
    return status;
}

const rill__solver rill__solver_newton = {
    .name = "newton",
    .description = "truncated Newton with conjugate gradients: to the exact optimum",
    .smooth = true,
    .no_l1 = true,
    .plain_weights = true,
    .open = newton_open,
    .epoch = newton_epoch,
    .close = newton_close,
    .bytes = newton_bytes,
};
