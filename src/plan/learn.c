/* Idea. Least squares of the logarithms of model to measured, as in fit.c, one sample at a time: an
 * extended Kalman filter in its information form. A new sample adds what it says of each direction
 * of the constants' logarithms; what is known falls back to what was known at the start by a share
 * with each sample, so that old samples are forgotten, and directions that no sample speaks of do
 * not run away. Samples that are far off count less (Huber).
 *
 * A machine that is slower is slower in all: constants of one kind (of a network, of a processor)
 * move together far more easily than one against the others, since their relations, which decide
 * what is chosen, are what a few calls of a few algorithms say least of.
 *
 * A model stays a model: beside it each measured call is a place, and the points of the profile are
 * what the places' times are against the model. They are made anew when constants change. The time
 * of a place is the lower quarter of its last ones (the upper where it was tried only). A place
 * that was measured once or twice says nothing yet: the first calls find cold caches and new
 * memory, and others may have been on the processors.
 *
 * Cost. 17 estimates for the derivatives: some ten microseconds. So small calls are taken together
 * (learn_calls.c). Calls are planned with what was known when choices were last looked at, since
 * then each kind of call is planned anew, which takes longer than a small call: when there are half
 * as many samples more, or calls have taken their time. */
#include "plan/learn.h"

#include <math.h>
#include <string.h>

#define NOISE 0.2    /* of a sample: what the model does not know, and the machine's */
#define FORGET 0.02  /* of what is known, with each sample */
#define OUTLIER 0.3  /* logarithm from which on a sample counts less */
#define STEP 0.01    /* of the differences */
#define FARTHEST 4.6 /* logarithm of a constant against its start: a factor of 100 */
#define NEWS 0.02    /* logarithm from which on choices are looked at again, */
#define RARELY 20e-3 /* at the latest after so many seconds of calls */
#define FAR_OFF 6    /* logarithm of measured to model that a file may have, */
#define LOST 1.4     /* and of measured to the start's model from which on the start is no guide */
enum { F = RILL__FITTED };

/* Logarithms that are likely at the start: of what constants of a kind have in common, and of each
 * against the others. Less where the start was learned. */
#define IN_COMMON 1.0
#define OF_NETWORK 0.5
#define OF_PROCESSOR 0.25
#define LEARNED 0.3

/* The inverse of own^2 on the diagonal plus common^2 everywhere, for each kind. */
static void know_start(const rill__learner *l, double known[F][F]) {
    int n[2] = {0};
    for (int i = 0; i < F; i++)
        n[rill__constant_table[i].computes]++;
    for (int i = 0; i < F; i++)
        for (int j = 0; j < F; j++) {
            bool computes = rill__constant_table[i].computes;
            double scale = l->from_cache ? LEARNED : 1;
            double own = scale * (computes ? OF_PROCESSOR : OF_NETWORK), common = scale * IN_COMMON;
            double both = common * common / (own * own + n[computes] * common * common);
            bool same = computes == rill__constant_table[j].computes;
            known[i][j] = ((i == j) - (same ? both : 0)) / (own * own);
        }
}

/* ---- constants ------------------------------------------------------------------------------- */

/* Derivatives of the logarithm of the model. */
static bool slopes(const rill__learner *l, const rill__sample *s, double model, double h[F]) {
    for (int i = 0; i < F; i++) {
        rill__constants other = l->profile.constants;
        *rill__constant_at(&other, i) *= 1 + STEP;
        h[i] = log(rill__fit_time(s, &other) / model) / STEP;
        if (!isfinite(h[i])) return false;
    }
    return true;
}

static void move(rill__learner *l, const double by[F], double *most) {
    for (int i = 0; i < F; i++) {
        rill__constants *c = &l->profile.constants;
        double *value = rill__constant_at(c, i), start = *rill__constant_at(&l->start.constants, i);
        double step = fmax(-1, fmin(1, by[i]));
        double from = log(*value / start);
        double to = fmax(-FARTHEST, fmin(FARTHEST, from + step));
        if (!isfinite(to)) continue;
        *value = start * exp(to);
        *most = fmax(*most, fabs(to - from));
    }
}

/* trust: what the sample counts for. */
static void follow(rill__learner *l, const rill__sample *s, double trust, double *most) {
    double model = rill__fit_time(s, &l->profile.constants);
    double h[F], by[F], a[F][F], start[F][F], error = log(s->seconds / model);
    if (!slopes(l, s, model, h)) return;
    double weight = fabs(error) <= OUTLIER ? 1 : OUTLIER / fabs(error);
    weight *= trust / (NOISE * NOISE);
    know_start(l, start);
    for (int i = 0; i < F; i++) {
        for (int j = 0; j < F; j++) {
            double *known = &l->information[i][j];
            *known += FORGET * (start[i][j] - *known) + weight * h[i] * h[j];
            a[i][j] = *known;
        }
        by[i] = weight * h[i] * error;
    }
    rill__fit_solve(a, by);
    move(l, by, most);
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool is_near(double a, double b) { return a < b * 1.2 + 1 && b < a * 1.2 + 1; }

static bool is_at(const rill__learned *at, const rill__sample *s) {
    const rill__problem *p = &at->sample.problem, *q = &s->problem;
    return at->sample.algorithm == s->algorithm && p->collective == q->collective &&
           p->dim == q->dim && p->type == q->type && p->codec == q->codec &&
           p->value_bits == q->value_bits && p->partition == q->partition &&
           is_near(p->nnz, q->nnz);
}

/* The place of the sample; of those that are full the one that was longest without one. */
static rill__learned *place_of(rill__learner *l, const rill__sample *s) {
    rill__learned *oldest = &l->place[0];
    for (int i = 0; i < l->places; i++) {
        rill__learned *at = &l->place[i];
        if (is_at(at, s)) return at;
        if (at->last < oldest->last) oldest = at;
    }
    if (l->places < RILL__LEARN_PLACES) oldest = &l->place[l->places++];
    oldest->times = 0;
    return oldest;
}

/* The lower quarter: what disturbs a call makes it longer, never shorter. Of those that are tried
 * the upper one: who wants to take another's place must be better in spite of that. Where nothing
 * is chosen by it, the lower third: the next call will be disturbed, too, but not as the first
 * ones. */
static double lately(const rill__learner *l, const rill__learned *at) {
    double sorted[RILL__LEARN_KEPT];
    int n = 0, most = at->times < RILL__LEARN_KEPT ? (int)at->times : RILL__LEARN_KEPT;
    for (; n < most; n++) {
        int i = n;
        for (; i > 0 && sorted[i - 1] > at->kept[n]; i--)
            sorted[i] = sorted[i - 1];
        sorted[i] = at->kept[n];
    }
    if (l->predicts) return sorted[(n - 1) / 3];
    return sorted[at->sample.tried ? n - 1 - (n - 1) / 4 : (n - 1) / 4];
}

static const rill__learned *remember(rill__learner *l, const rill__sample *s, double *most) {
    rill__learned *at = place_of(l, s);
    double before = at->times ? at->sample.seconds : 0;
    at->kept[at->times++ % RILL__LEARN_KEPT] = s->seconds;
    bool tried = at->times > 1 && at->times < RILL__LEARN_KEPT && at->sample.tried;
    at->sample = *s;
    at->sample.tried |= tried;
    at->sample.seconds = lately(l, at);
    at->last = l->samples;
    bool is_new = at->times == RILL__LEARN_SOLID;
    if (is_new) *most = 1;
    else if (at->times > RILL__LEARN_SOLID)
        *most = fmax(*most, fabs(log(at->sample.seconds / before)));
    return at;
}

static rill__point point_of(const rill__profile *profile, const rill__sample *s) {
    double ratio = log(s->seconds / rill__fit_time(s, &profile->constants));
    if (!isfinite(ratio)) ratio = 0;
    return rill__profile_point(s->algorithm, &s->problem, fmax(-FAR_OFF, fmin(FAR_OFF, ratio)));
}

/* Places, then what the start knew and no place does. */
static void renew_points(rill__learner *l) {
    rill__profile *to = &l->profile;
    to->points = 0;
    for (int i = 0; i < l->places; i++) {
        const rill__sample *s = &l->place[i].sample;
        if (l->place[i].times < RILL__LEARN_SOLID) continue;
        if (s->problem.collective != RILL_ALLREDUCE || s->problem.dim == 0) continue;
        to->point[to->points++] = point_of(to, s);
    }
    int own = to->points;
    for (int i = 0; i < l->start.points && to->points < RILL__POINTS; i++) {
        const rill__point *old = &l->start.point[i];
        int j = 0;
        while (j < own && !rill__points_near(&to->point[j], old))
            j++;
        if (j == own) to->point[to->points++] = *old;
    }
}

/* The machine is not at all what it was taken for. */
static bool is_lost(const rill__learner *l) {
    double sum = 0;
    int n = 0;
    for (int i = 0; i < l->places; i++) {
        const rill__sample *s = &l->place[i].sample;
        if (l->place[i].times < RILL__LEARN_SOLID || s->seconds < RILL__BRIEF) continue;
        sum += fabs(log(s->seconds / rill__fit_time(s, &l->start.constants)));
        n++;
    }
    return n && sum / n > LOST;
}

void rill__learn_look(rill__learner *l) {
    l->lost = is_lost(l);
    renew_points(l);
    l->planned = l->profile;
    l->version++;
    l->news = false;
    l->looked = l->samples;
    l->looked_seconds = l->seconds;
}

bool rill__learn(rill__learner *l, const rill__sample *s) {
    double most = 0, model = rill__fit_time(s, &l->profile.constants);
    if (!(s->seconds > 1e-9 && s->seconds < 1e5) || !(model > 0 && isfinite(model))) return true;
    l->samples++;
    const rill__learned *at = remember(l, s, &most);
    follow(l, &at->sample, fmin(1, (double)at->times / RILL__LEARN_SOLID), &most);
    l->news |= most > NEWS;
    bool long_ago = l->seconds - l->looked_seconds > RARELY;
    if (l->news && (2 * l->samples >= 3 * l->looked || long_ago)) rill__learn_look(l);
    return at->times >= RILL__LEARN_SOLID;
}

/* ---- start ----------------------------------------------------------------------------------- */

static void clear(rill__learner *l) {
    l->profile = l->start;
    l->profile.learned = true;
    know_start(l, l->information);
    l->places = 0;
    l->samples = 0;
    l->seconds = l->tried = 0;
    l->looked_seconds = 0;
    l->pending.there = false;
    rill__learn_look(l);
}

void rill__learner_start(rill__learner *l, const rill__profile *start, bool from_cache) {
    memset(l, 0, sizeof *l);
    l->start = *start;
    l->from_cache = from_cache;
    clear(l);
}

void rill__learner_restart(rill__learner *l) { clear(l); }
