/* Idea. The model is a rough guide to what a call takes; what calls of the same kind took lately is
 * the best there is. So for each way that calls went, a place keeps their last times as ratios to
 * the model, and the next is expected to have the one that is most usual: the middle of the
 * shortest span with half of them in it. What disturbs a call makes it longer, sometimes by far,
 * and some calls find their data in caches: a mean would be between all, where none is.
 *
 * Constants stay what they were at the start. (They were fitted to calls while these ran, by least
 * squares that forget. A few calls of a few algorithms say too little of seventeen constants: it
 * predicted worse than the start did, took tens of microseconds for each sample, and led to choices
 * that calls then showed to be wrong.) A way that was not measured is expected to be off the model
 * as its algorithm is near by, if that is known: calls of a few entries say nothing of others. */
#include "plan/learn.h"

#include <math.h>
#include <string.h>

#define FAR_OFF 6 /* logarithm of measured to model that is believed */
/* Binary digits of dimension and of density within which a point of another job is of such calls.
 */
#define SAME_DIM 0.05f
#define SAME_DENSITY 0.3f
#define SLIGHT 0.05 /* share of entries by which calls may differ from what was planned */
enum { KEPT = RILL__LEARN_KEPT };

/* ---- places ---------------------------------------------------------------------------------- */

static bool is_at(const rill__learned *at, const rill__algorithm *a, const rill__problem *q) {
    const rill__problem *p = &at->sample.problem;
    return at->sample.algorithm == a && p->collective == q->collective && p->dim == q->dim &&
           p->type == q->type && p->codec == q->codec && p->value_bits == q->value_bits &&
           p->partition == q->partition && p->away == q->away && rill__learn_alike(p->nnz, q->nnz);
}

/* The place of the sample; of those that are full the one that was longest without one. */
static rill__learned *place_of(rill__learner *l, const rill__sample *s) {
    rill__learned *oldest = &l->place[0];
    for (int i = 0; i < l->places; i++) {
        rill__learned *at = &l->place[i];
        if (is_at(at, s->algorithm, &s->problem)) return at;
        if (at->last < oldest->last) oldest = at;
    }
    if (l->places < RILL__LEARN_PLACES) oldest = &l->place[l->places++];
    oldest->times = 0;
    return oldest;
}

static int sorted_of(const rill__learned *at, double sorted[KEPT]) {
    int n = 0, most = at->times < KEPT ? (int)at->times : KEPT;
    for (; n < most; n++) {
        int i = n;
        for (; i > 0 && sorted[i - 1] > (double)at->ratio[n]; i--)
            sorted[i] = sorted[i - 1];
        sorted[i] = (double)at->ratio[n];
    }
    return n;
}

/* The middle of the shortest span, as a factor, that has half of them: of the shortest times where
 * several are alike. */
static double usual_of(const double *sorted, int n) {
    int half = n / 2 + 1, best = 0;
    for (int i = 1; i + half <= n; i++)
        if (sorted[i + half - 1] * sorted[best] < sorted[best + half - 1] * sorted[i]) best = i;
    double low = sorted[best], high = sorted[best + half - 1];
    return 2 * low * high / (low + high); /* as far from both, in shares of what is measured */
}

/* ---- what is known --------------------------------------------------------------------------- */

static double estimate(const rill__learner *l, const rill__algorithm *a, const rill__problem *p) {
    rill__problem q = *p;
    q.c = &l->model.constants;
    rill__problem_code(&q, q.codec, q.value_bits);
    return rill__profile_time(&l->model, a, &q);
}

/* The last three, as far as there are as many. */
static void recall_last(const rill__learned *at, rill__rival *r) {
    double last[3] = {0};
    uint32_t n = at->times < 3 ? at->times : 3;
    for (uint32_t i = 0; i < n; i++)
        last[i] = (double)at->ratio[(at->times - 1 - i) % KEPT];
    r->least = n == 1 ? last[0] : fmin(last[0], last[1]);
    r->lately = n < 3 ? r->least : fmax(r->least, fmin(fmax(last[0], last[1]), last[2]));
    r->last_two = n == 1 ? last[0] : fmax(last[0], last[1]);
    if (n == 3) r->least = fmin(r->least, last[2]);
}

static void recall_place(const rill__learned *at, rill__rival *r) {
    double sorted[KEPT];
    int n = sorted_of(at, sorted);
    r->times = at->times;
    r->usual = usual_of(sorted, n);
    r->low = sorted[(n - 1) / 4];
    r->high = sorted[n - 1 - (n - 1) / 4];
    recall_last(at, r);
}

/* Where calls have about as many entries as planned, the model's time is that of the plan. */
static double model_of(const rill__learner *l, const rill__sample *s, const rill__rival *r) {
    const rill__problem *p = &s->problem;
    if (r && fabs(p->nnz - r->way.problem.nnz) <= SLIGHT * p->nnz) return r->way.time;
    return estimate(l, s->algorithm, p);
}

void rill__learn(rill__learner *l, const rill__sample *s, rill__rival *r) {
    double ratio = s->seconds / model_of(l, s, r);
    if (!(s->seconds > 1e-9 && s->seconds < 1e5) || !(ratio > 0 && isfinite(ratio))) return;
    bool known = r && r->place >= 0 && is_at(&l->place[r->place], s->algorithm, &s->problem);
    rill__learned *at = known ? &l->place[r->place] : place_of(l, s);
    at->ratio[at->times++ % KEPT] = (float)fmin(fmax(ratio, exp(-FAR_OFF)), exp(FAR_OFF));
    if (!known) at->sample = *s;
    at->last = ++l->samples;
    l->news = true;
    if (!r) return;
    r->place = (int)(at - l->place);
    recall_place(at, r);
}

/* What another job has seen of such calls; false: nothing. */
static bool recall_start(const rill__learner *l, const rill__candidate *way, double *ratio) {
    rill__point here = rill__profile_point(way->algorithm, &way->problem, 0);
    if (!l->start.learned || way->problem.collective != RILL_ALLREDUCE) return false;
    for (int i = 0; i < l->start.points; i++) {
        const rill__point *at = &l->start.point[i];
        if (at->algorithm != here.algorithm || fabsf(at->log_dim - here.log_dim) > SAME_DIM ||
            fabsf(at->log_density - here.log_density) > SAME_DENSITY)
            continue;
        *ratio = exp((double)at->log_ratio);
        return true;
    }
    return false;
}

void rill__learn_recall(const rill__learner *l, rill__rival *r) {
    const rill__candidate *way = &r->way;
    double ratio;
    r->place = -1;
    for (int i = 0; i < l->places; i++) {
        if (!is_at(&l->place[i], way->algorithm, &way->problem)) continue;
        r->place = i;
        recall_place(&l->place[i], r);
        return;
    }
    bool seen = recall_start(l, way, &ratio);
    if (!seen)
        ratio = rill__learn_measured(&l->known, way->algorithm, &way->problem)
                    ? rill__profile_time(&l->known, way->algorithm, &way->problem) /
                          rill__profile_time(&l->model, way->algorithm, &way->problem)
                    : 1;
    r->times = seen ? RILL__LEARN_SOLID : 0;
    r->tried |= seen;
    r->usual = r->low = r->high = ratio > 0 && isfinite(ratio) ? ratio : 1;
    r->lately = r->least = r->last_two = r->usual;
}

/* Places, then what the start knew and no place does. */
const rill__profile *rill__learn_look(rill__learner *l) {
    rill__profile *to = &l->known;
    double sorted[KEPT];
    if (!l->news) return to;
    to->points = 0;
    for (int i = 0; i < l->places; i++) {
        const rill__sample *s = &l->place[i].sample;
        if (l->place[i].times < RILL__LEARN_SOLID) continue;
        if (s->problem.collective != RILL_ALLREDUCE || s->problem.dim == 0 || s->problem.away)
            continue;
        double ratio = usual_of(sorted, sorted_of(&l->place[i], sorted));
        to->point[to->points++] = rill__profile_point(s->algorithm, &s->problem, log(ratio));
    }
    int own = to->points;
    for (int i = 0; i < l->start.points && to->points < RILL__POINTS; i++) {
        const rill__point *old = &l->start.point[i];
        int j = 0;
        while (j < own && !rill__points_near(&to->point[j], old))
            j++;
        if (j == own) to->point[to->points++] = *old;
    }
    l->news = false;
    return to;
}

/* ---- start ----------------------------------------------------------------------------------- */

static void clear(rill__learner *l) {
    l->known = l->start;
    l->known.learned = true;
    l->places = 0;
    l->samples = 0;
    l->seconds = l->tried = 0;
    l->news = false;
    l->pending.there = false;
}

void rill__learner_start(rill__learner *l, const rill__profile *start) {
    memset(l, 0, sizeof *l);
    l->start = l->model = *start;
    if (start->learned) l->model.points = 0;
    clear(l);
}

void rill__learner_restart(rill__learner *l) { clear(l); }
