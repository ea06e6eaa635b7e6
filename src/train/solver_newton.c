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
 * An intercept and columns that are not centred lie almost in line, which conjugate gradients hate.
 * So they are preconditioned as if dense columns were centred, which the intercept can make up for:
 * a shift before the diagonal is divided by, and its transpose after it.
 * After the passes of the hybrid (near) the diagonal is taken as it is, and a step is worth more
 * products: what is left to learn are features of very different frequency.
 * With few weights, on one rank, the Hessian itself is cheaper: then steps are exact. Least squares
 * of few rows have an exact step, too (train_ridge.c): with more columns than rows conjugate
 * gradients hardly see what is left of the weights where no row looks.
 * Restriction: a loss with curvature, no l1. It is the solver for an exact optimum, and sends whole
 * vectors: a sum of the weights that several ranks have per product (train_places.c).
 * Memory: 6 floats a place, and the objective's. Cost of a step: about 5 to 30 passes over the
 * rows.
 */
#include "train/cholesky.h"
#include "train/solver.h"
#include "train/train_ridge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PRODUCTS = 1000 };

typedef struct newton_state {
    uint64_t n; /* weights that have a place, as vectors do */
    float *gradient, *direction, *residual, *product, *diagonal, *preconditioned;
    uint64_t *centred; /* places of the objective's columns that are */
    rill__smooth *function;
    double *hessian;  /* n * n, and n more; NULL: it is large */
    rill__ridge *few; /* least squares of few rows; NULL: they are not */
    rill_options how; /* vectors are summed */
    double enough;    /* conjugate gradients stop at a fall below this share of the mean */
    float diagonally; /* share of the diagonal in what residuals are divided by, the rest being 1 */
} newton_state;

/* Where the columns that are centred have their places: all ranks have them, and add them up in the
 * order of features. */
static rill_status find_centred(const rill__objective *o, newton_state *s) {
    const rill__places *p = &o->places;
    s->centred = malloc(((size_t)o->centred_n + 1) * sizeof *s->centred);
    if (!s->centred) return rill__data_memory("the solver");
    for (uint64_t k = 0; !p->list && k < o->centred_n; k++)
        s->centred[k] = o->centred[k].feature;
    for (uint64_t i = p->alone; p->list && o->centred_n && i < p->features; i++) {
        uint64_t first = 0, n = o->centred_n; /* a search by halves */
        for (uint64_t half; n > 1; n -= half) {
            half = n / 2;
            if (o->centred[first + half].feature <= p->list[i]) first += half;
        }
        if (o->centred[first].feature == p->list[i]) s->centred[first] = i;
    }
    return RILL_OK;
}

static rill_status open_alone(rill__job *job) {
    newton_state *s = job->state = calloc(1, sizeof *s);
    if (!s) return rill__data_memory("the solver");
    const rill__places *p = &job->objective->places;
    s->n = p->features * p->columns;
    size_t n = (size_t)s->n + RILL_SLACK;
    float **vectors[] = {&s->gradient, &s->direction, &s->residual,
                         &s->product,  &s->diagonal,  &s->preconditioned};
    for (int i = 0; i < 6; i++)
        if (!(*vectors[i] = rill__vector(n, sizeof(float)))) return rill__data_memory("the solver");
    RILL_TRY_DATA(find_centred(job->objective, s));
    s->enough = job->options->tolerance > 0 && job->options->tolerance < 1e-5 ? 0.1 : 0.5;
    s->diagonally = 0.01f; /* far from the true one, as LIBLINEAR found best */
    if (job->near) {
        s->diagonally = 1;
        s->enough = 0.1;
    }
    s->how = (rill_options)RILL_OPTIONS_INIT;
    s->how.algorithm = job->options->algorithm;
    s->how.codec = job->options->codec;
    RILL_TRY_DATA(rill__smooth_open(job->objective, job->team, &s->how, &s->function));
    if (!rill__smooth_is_small(s->function)) {
        if (job->team->ranks == 1) rill__ridge_open(job->objective, NULL, 1, &s->few);
        return RILL_OK;
    }
    uint64_t weights = job->objective->n;
    s->hessian = malloc((size_t)(weights * (weights + 1)) * sizeof *s->hessian);
    return s->hessian ? RILL_OK : rill__data_memory("the solver");
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
    free(s->centred);
    rill__smooth_close(&s->function);
    free(s->hessian);
    rill__ridge_free(&s->few);
    free(s);
    job->state = NULL;
}

static uint64_t newton_bytes(const rill__job *job) {
    const newton_state *s = job->state;
    uint64_t n = job->objective->n, small = s->hessian ? n * (n + 1) * sizeof(double) : 0;
    if (s->few) small += s->few->train * s->few->columns * sizeof(double);
    return 6 * s->n * sizeof(float) + small + rill__smooth_bytes(s->function) +
           rill__places_bytes(&job->objective->places);
}

/* What the residual is divided by. Where columns are centred their curvature is the bias's times
 * their variance. */
static void make_diagonal(const rill__objective *o, const newton_state *s) {
    const rill__places *p = &o->places;
    float share = s->diagonally, *diagonal = s->diagonal;
    uint64_t columns = p->columns, last = p->bias * columns;
    uint64_t skipped = o->centred ? last : s->n; /* the bias */
    for (uint64_t j = 0; j < skipped; j++)
        diagonal[j] = 1 - share + share * diagonal[j];
    for (uint64_t j = skipped + columns; j < s->n; j++)
        diagonal[j] = 1 - share + share * diagonal[j];
    for (uint64_t k = 0; k < o->centred_n; k++)
        for (uint64_t c = 0; c < columns; c++) {
            double bend = diagonal[last + c] / (o->bias * o->bias);
            diagonal[s->centred[k] * columns + c] = (float)(o->l2 + bend * o->centred[k].spread);
        }
    for (uint64_t c = 0; o->centred && c < columns; c++)
        if (!(diagonal[last + c] > 0)) diagonal[last + c] = 1;
}

/* z = preconditioner * r; *rz = r.z */
static rill_status precondition(const rill__job *job, const float *r, float *z, double *rz) {
    const newton_state *s = job->state;
    const rill__objective *o = job->objective;
    const rill__places *p = &o->places;
    const float *diagonal = s->diagonal;
    uint64_t columns = p->columns, last = p->bias * columns;
    for (uint64_t j = 0; j < s->n; j++)
        z[j] = r[j] / diagonal[j];
    for (uint64_t c = 0; o->centred && c < columns; c++) {
        double moved = 0;
        for (uint64_t k = 0; k < o->centred_n; k++) {
            uint64_t j = s->centred[k] * columns + c;
            float shift = o->centred[k].shift;
            z[j] = (r[j] - shift * r[last + c]) / diagonal[j];
            moved += (double)shift * z[j];
        }
        z[last + c] -= (float)moved;
    }
    return rill__places_dot(p, job->team, r, z, rz);
}

/* H d = -gradient. false: H is not positive. */
static bool solve_small(newton_state *s, const rill__objective *o) {
    uint64_t n = o->n;
    double *d = s->hessian + n * n;
    rill__smooth_hessian(s->function, s->hessian);
    for (uint64_t j = 0; j < n; j++)
        d[j] = -s->gradient[j];
    bool positive = rill__cholesky_solve(n, s->hessian, d);
    for (uint64_t j = 0; positive && j < n; j++)
        s->direction[j] = (float)d[j];
    return positive;
}

/* To the optimum of least squares. */
static bool solve_few(const rill__job *job, const float *w) {
    newton_state *s = job->state;
    const rill__objective *o = job->objective;
    bool intercept = o->penalised < o->n;
    if (!rill__ridge_weights(s->few, o->C, intercept, s->direction)) return false;
    for (uint64_t j = 0; j < o->n; j++)
        s->direction[j] -= w[j];
    return true;
}

/* Preconditioned conjugate gradients on H d = -gradient. residual holds r; preconditioned the
 * search direction. */
static rill_status solve(rill__job *job) {
    newton_state *s = job->state;
    const rill__places *places = &job->objective->places;
    float *d = s->direction, *r = s->residual, *p = s->preconditioned;
    uint64_t n = s->n;
    double rz, model = 0;
    for (uint64_t j = 0; j < n; j++) {
        d[j] = 0;
        r[j] = -s->gradient[j];
    }
    make_diagonal(job->objective, s);
    RILL_TRY_DATA(precondition(job, r, p, &rz));
    for (int k = 1; k <= MOST_PRODUCTS && rz > 0; k++) {
        RILL_TRY_DATA(rill__watch_at(&job->watch, job->team, (uint64_t)k, MOST_PRODUCTS));
        if (job->watch.stop) break;
        double bend, next;
        RILL_TRY_DATA(rill__smooth_product(s->function, p, s->product));
        RILL_TRY_DATA(rill__places_dot(places, job->team, p, s->product, &bend));
        if (!(bend > 0)) break;
        double alpha = rz / bend;
        for (uint64_t j = 0; j < n; j++) {
            d[j] += (float)(alpha * p[j]);
            r[j] -= (float)(alpha * s->product[j]);
        }
        double fall = 0.5 * alpha * rz; /* of the quadratic model's value */
        model += fall;
        if (!(fall > 0) || k * fall <= s->enough * model) break;
        RILL_TRY_DATA(precondition(job, r, s->product, &next));
        double beta = next / rz;
        rz = next;
        for (uint64_t j = 0; j < n; j++)
            p[j] = (float)(s->product[j] + beta * p[j]);
    }
    return RILL_OK;
}

/* Halves the step until the objective falls by a hundredth of what the slope promises. *at: before,
 * and after. */
static rill_status search_line(rill__job *job, rill__smooth_value *at, bool *moved) {
    newton_state *s = job->state;
    double slope, alpha = 1;
    *moved = false;
    RILL_TRY_DATA(
        rill__places_dot(&job->objective->places, job->team, s->gradient, s->direction, &slope));
    RILL_TRY_DATA(rill__smooth_look_along(s->function, s->direction));
    for (int tries = 0; tries < 20 && slope < 0; tries++, alpha *= 0.5) {
        rill__smooth_value there;
        RILL_TRY_DATA(rill__smooth_try(s->function, alpha, &there));
        if (!(there.value - at->value <= 0.01 * alpha * slope)) continue;
        *at = there;
        *moved = true;
        return rill__smooth_add(s->function, alpha, s->direction, job->weights->w);
    }
    return RILL_OK;
}

/* The length of the gradient. */
static rill_status measure(const rill__job *job, const float *gradient, double *norm) {
    double square;
    RILL_TRY_DATA(
        rill__places_dot(&job->objective->places, job->team, gradient, gradient, &square));
    *norm = sqrt(square);
    return RILL_OK;
}

/* To the weights. The diagonal is for who has no Hessian. */
static rill_status move(rill__job *job, rill__smooth_value *at) {
    newton_state *s = job->state;
    return rill__smooth_move(s->function, job->weights->w, at, s->gradient,
                             s->hessian ? NULL : s->diagonal);
}

/* What a gradient is compared with: that of the weights that training starts from, wherever the
 * first step does. */
static rill_status measure_start(rill__job *job, double norm) {
    newton_state *s = job->state;
    const rill__objective *o = job->objective;
    rill__smooth_value at;
    job->kept = norm;
    if (rill__dot(job->weights->w, job->weights->w, o->penalised) == 0) return RILL_OK;
    float *start = malloc((size_t)o->n * sizeof *start);
    rill_status status = rill__team_agree(job->team,
                                          start ? RILL_OK : rill__data_memory("the solver"));
    if (status == RILL_OK) {
        rill__job_start(job, start);
        status = rill__smooth_move(s->function, start, &at, s->residual, NULL);
    }
    if (status == RILL_OK) status = measure(job, s->residual, &job->kept);
    free(start);
    RILL_TRY_DATA(status);
    return move(job, &at);
}

/* A fall of the objective that is none. Under a large C it is flat around the optimum, and scores
 * move by its root: to the last digits where these are asked for. */
static double nothing(const rill__job *job) {
    return job->options->tolerance > 1e-5 ? 1e-9 : 1e-13;
}

/* Whether the last step brought nothing: what it promised was lost in the weights' rounding. */
static bool is_stuck(const rill__job *job, double value) {
    return job->last != 0 && value >= job->last - nothing(job) * fabs(job->last);
}

/* Whether the last step was a small one. A thousandth of the first gradient says little under a
 * large C, where that is huge: there steps may still halve the objective. */
static bool is_settled(const rill__job *job, double value) {
    return job->last - value <= 0.01 * fabs(value);
}

/* Least squares: an exact step ends at the optimum, but for rounding. */
static bool is_parabola(const rill__job *job) { return !strcmp(job->options->loss, "squared"); }

static rill_status one_step(rill__job *job, rill__epoch *epoch) {
    newton_state *s = job->state;
    float *w = job->weights->w;
    rill__smooth_value at;
    double norm;
    RILL_TRY_DATA(rill__team_comm(job->team));
    if (job->objective->l2 > 0) rill__places_clear(&job->objective->places, w); /* of a model */
    RILL_TRY_DATA(move(job, &at));
    RILL_TRY_DATA(measure(job, s->gradient, &norm));
    if (job->kept == 0) RILL_TRY_DATA(measure_start(job, norm));
    epoch->steps = 1;
    epoch->samples = job->objective->rows.n;
    /* A step at least: weights that come from elsewhere may be good, but not of this objective. */
    bool low = norm <= job->options->tolerance * job->kept && is_settled(job, at.value);
    bool stuck = job->options->tolerance > 0 && is_stuck(job, at.value);
    epoch->converged = job->epoch > 0 && (low || stuck);
    double last = job->last;
    job->last = at.value;
    if (!epoch->converged) {
        bool moved,
            exact = s->hessian ? solve_small(s, job->objective) : s->few && solve_few(job, w);
        if (s->hessian && !exact)
            RILL_TRY_DATA(rill__smooth_move(s->function, w, &at, s->gradient, s->diagonal));
        if (!exact) RILL_TRY_DATA(solve(job));
        if (job->watch.stop) { /* the step is not made */
            job->last = last;
            epoch->share = epoch->loss = 0;
            epoch->samples = epoch->steps = 0;
            return RILL_OK;
        }
        double before = at.value;
        RILL_TRY_DATA(search_line(job, &at, &moved));
        /* At the limit of what floats can express, or as good as there. */
        bool flat = job->options->tolerance > 0 && before - at.value <= nothing(job) * fabs(before);
        bool there = exact && job->options->tolerance >= 1e-4 && is_parabola(job);
        epoch->converged = !moved || flat || there || job->epoch + 1 == job->options->steps;
    }
    epoch->loss = at.loss / job->objective->C / job->team->ranks; /* ranks add theirs up */
    return RILL_OK;
}

static rill_status newton_epoch(rill__job *job, rill__epoch *epoch) {
    job->watch.pace = 0; /* how many products there will be nobody knows */
    rill__watch_begin(&job->watch, 0);
    job->watch.endless = true;
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
