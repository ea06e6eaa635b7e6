/* Weights whose regularisation is put off until an entry is read or written, so that a step costs
 * the entries of its gradient.
 *
 * Idea. Between two gradients an entry only decays. In the limit of small steps it follows
 *     dw = -h (lambda w + mu sign(w)) dH,    H = sum of learning rates, h = the entry's step
 *     factor,
 * stopping at 0, which has the closed form of decay() below for any number of skipped steps.
 *   plain     h = 1 for all entries: w = scale * v with one common scale, and l1 is a threshold on
 *   v
 *             whose parts add up, since soft(soft(v, a), b) = soft(v, a + b); without l1 no entry
 *             needs to know when it was written.
 *   adagrad   h = 1/sqrt(sum of squared gradients), which only changes when the entry is written.
 *   momentum  h = 1/(1 - momentum), the length of a velocity that nothing feeds; that velocity's
 *   way
 *             over k skipped steps is a geometric sum, taken at the current learning rate.
 * Source: Carpenter, Lazy sparse stochastic gradient descent for regularized multinomial logistic
 * regression (2008); Tsuruoka, Tsujii, Ananiadou, Stochastic gradient descent training for
 * l1-regularized log-linear models with cumulative penalty (2009); Duchi, Hazan, Singer, Adaptive
 * subgradient methods (2011).
 * ftrl keeps the sum of gradients instead, and a weight follows from it, the sum of squares and the
 * number of steps in closed form; penalties are those of all steps so far, so that more epochs do
 * not make them weaker. (McMahan, Follow-the-regularized-leader and mirror descent, 2011; McMahan
 * et al., Ad click prediction: a view from the trenches, 2013.)
 * Reading does not write: all ranks write the same entries in the same steps, and so stay the same
 * to the bit.
 * Memory: n floats; 2 n with plain and l1, 3 n with adagrad and ftrl, 4 n with momentum.
 * Cost: O(1) per entry read or written; O(n) to settle.
 */
#include "train/train_weights.h"
#include "train/data_internal.h"

#include <math.h>
#include <stdlib.h>

static const double tiny = 1e-12; /* added to sums of squares */
static const double start = 1e-2; /* ftrl: to their roots, so that there is a first step */

static void *zeros(uint64_t n, size_t size) {
    return rill__vector_zeros(n + RILL_SLACK / size, size);
}

rill_status rill__weights_init(rill__weights *s, uint64_t n, rill__optimizer kind, double lambda,
                               double mu, double momentum) {
    *s = (rill__weights){.n = n,
                         .penalised = n,
                         .kind = kind,
                         .lambda = lambda,
                         .mu = mu,
                         .momentum = momentum,
                         .scale = 1};
    s->w = zeros(n, sizeof *s->w);
    bool dated = kind != RILL__FTRL && (kind != RILL__PLAIN || mu > 0);
    if (dated) s->last = zeros(n, sizeof *s->last);
    if (kind != RILL__PLAIN) s->state = zeros(n, sizeof *s->state);
    if (kind == RILL__FTRL) s->dual = zeros(n, sizeof *s->dual);
    if (kind == RILL__MOMENTUM) s->last_step = zeros(n, sizeof *s->last_step);
    if (!s->w || (dated && !s->last) || (kind != RILL__PLAIN && !s->state) ||
        (kind == RILL__MOMENTUM && !s->last_step) || (kind == RILL__FTRL && !s->dual)) {
        rill__weights_free(s);
        return rill__data_memory("the weights");
    }
    return RILL_OK;
}

void rill__weights_free(rill__weights *s) {
    free(s->w);
    free(s->last);
    free(s->state);
    free(s->dual);
    free(s->last_step);
    *s = (rill__weights){0};
}

uint64_t rill__weights_bytes(const rill__weights *s) {
    return s->n * sizeof(float) * (1u + !!s->last + !!s->state + !!s->dual + !!s->last_step);
}

static double soft(double x, double threshold) {
    return x > threshold ? x - threshold : x < -threshold ? x + threshold : 0;
}

static double decay(const rill__weights *s, double w, double way) {
    if (way <= 0 || w == 0) return w;
    double x = s->lambda * way;
    double e = x < 1e-5 ? 1 - x : exp(-x);
    if (s->mu == 0) return w * e;
    if (x < 1e-5) return soft(w * e, s->mu * way);
    double ratio = s->mu / s->lambda, left = (fabs(w) + ratio) * e - ratio;
    return left <= 0 ? 0 : copysign(left, w);
}

/* Momentum's factor after k steps. */
static double fade(const rill__weights *s, uint64_t j) {
    uint32_t k = s->step - s->last_step[j];
    return k == 0 ? 1 : k == 1 ? s->momentum : pow(s->momentum, k);
}

/* Where the sum of all gradients, a penalty for every step, and the steps' distances are least. */
static double followed(const rill__weights *s, uint64_t j) {
    double z = s->dual[j], way = (start + sqrt(s->state[j])) / s->eta;
    if (j >= s->penalised) return -z / way;
    return -soft(z, s->mu * s->path) / (way + s->lambda * s->path);
}

static double current(const rill__weights *s, uint64_t j) {
    double w = s->w[j];
    bool decays = j < s->penalised;
    switch (s->kind) {
    case RILL__PLAIN: return s->scale * (s->last && decays ? soft(w, s->shrink - s->last[j]) : w);
    case RILL__ADAGRAD:
        if (w == 0 || !decays) return w;
        return decay(s, w, (s->path - s->last[j]) / sqrt(s->state[j] + tiny));
    case RILL__FTRL: return followed(s, j);
    case RILL__MOMENTUM: break;
    }
    double m = s->momentum, rest = m - m * fade(s, j); /* (m + ... + m^k) (1 - m) */
    if (s->state[j] != 0) w -= s->eta * s->state[j] * rest / (1 - m);
    return decays ? decay(s, w, s->path - s->last[j]) : w;
}

float rill__weights_read(const rill__weights *s, uint64_t j) { return (float)current(s, j); }

void rill__weights_begin(rill__weights *s, double eta) {
    s->eta = eta;
    s->step++;
    if (s->kind == RILL__PLAIN) {
        double by = exp(-eta * s->lambda);
        s->scale *= by;
        for (uint64_t j = s->penalised; j < s->n; j++)
            s->w[j] = (float)(s->w[j] / by);
        if (s->scale < 1e-6) rill__weights_settle(s);
        s->shrink += eta * s->mu / s->scale;
    } else if (s->kind == RILL__FTRL) s->path++;
    else s->path += s->kind == RILL__MOMENTUM ? eta / (1 - s->momentum) : eta;
}

static void write_one(rill__weights *s, uint64_t j, double g) {
    double w = current(s, j);
    switch (s->kind) {
    case RILL__PLAIN:
        s->w[j] = (float)((w - s->eta * g) / s->scale);
        if (s->last) s->last[j] = (float)s->shrink;
        return;
    case RILL__ADAGRAD:
        s->state[j] += (float)(g * g);
        if (g != 0) w -= s->eta * g / sqrt(s->state[j] + tiny);
        break;
    case RILL__FTRL: {
        double before = sqrt(s->state[j]);
        s->state[j] += (float)(g * g);
        s->dual[j] += (float)(g - (sqrt(s->state[j]) - before) / s->eta * w);
        return;
    }
    case RILL__MOMENTUM:
        /* current() has moved by the old velocity in this step, too. */
        s->state[j] = (float)(s->state[j] * fade(s, j) + g);
        s->last_step[j] = s->step;
        w -= s->eta * g;
        break;
    }
    s->w[j] = (float)w;
    s->last[j] = (float)s->path;
}

void rill__weights_apply(rill__weights *s, uint64_t n, const uint32_t *idx, const float *gradient) {
    if (rill__weights_scaled(s)) {
        float by = (float)(-s->eta / s->scale);
        if (!idx)
            for (uint64_t i = 0; i < n; i++)
                s->w[i] += by * gradient[i];
        else
            for (uint64_t i = 0; i < n; i++)
                s->w[idx[i]] += by * gradient[i];
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        if (idx || gradient[i] != 0) write_one(s, idx ? idx[i] : i, gradient[i]);
}

/* 4 bytes each. */
static rill_status share(rill_comm *comm, void *array, uint64_t n) {
    return array ? rill_comm_bcast_bytes(comm, array, (size_t)n * 4, 0) : RILL_OK;
}

rill_status rill__weights_share(rill__weights *s, rill_comm *comm) {
    double numbers[5] = {s->scale, s->shrink, s->path, s->eta, s->step};
    RILL_TRY_DATA(rill_comm_bcast_bytes(comm, numbers, sizeof numbers, 0));
    s->scale = numbers[0];
    s->shrink = numbers[1];
    s->path = numbers[2];
    s->eta = numbers[3];
    s->step = (uint32_t)numbers[4];
    RILL_TRY_DATA(share(comm, s->w, s->n));
    RILL_TRY_DATA(share(comm, s->last, s->n));
    RILL_TRY_DATA(share(comm, s->state, s->n));
    RILL_TRY_DATA(share(comm, s->dual, s->n));
    RILL_TRY_DATA(share(comm, s->last_step, s->n));
    rill__weights_settle(s);
    return RILL_OK;
}

void rill__weights_follow(rill__weights *s, double eta) {
    s->eta = eta;
    for (uint64_t j = 0; s->dual && j < s->n; j++) {
        s->state[j] = 0;
        s->dual[j] = (float)(-s->w[j] * (start / eta));
    }
}

void rill__weights_settle(rill__weights *s) {
    if (rill__weights_scaled(s)) {
        for (uint64_t j = 0; j < s->n; j++)
            s->w[j] = (float)(s->scale * s->w[j]);
        s->scale = 1;
        s->step = 0;
        return;
    }
    for (uint64_t j = 0; j < s->n; j++) {
        double w = current(s, j);
        if (s->kind == RILL__MOMENTUM) {
            s->state[j] = (float)(s->state[j] * fade(s, j));
            s->last_step[j] = 0;
        }
        s->w[j] = (float)w;
        if (s->last) s->last[j] = 0;
    }
    s->scale = 1;
    s->shrink = 0;
    if (!s->dual) s->path = 0;
    s->step = 0;
}
