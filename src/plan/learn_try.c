/* What else a call could do. Constants that calls follow say most of the algorithms that calls
 * take; the others may be faster than they say. So a kind of calls tries those that could be: four
 * calls of each, of which the later ones are measured, since the first finds no memory of its own.
 * What is tried changes only at the end of a call that all ranks have agreed on, so all try the
 * same. */
#include "plan/learn.h"

#include <math.h>

#define WORTH_A_TRY 2.0 /* times the best that an algorithm may be expected to take */
#define SHARE 0.1       /* of the time of all calls that trials may take, */
#define AT_FIRST 0.05   /* and these seconds */
/* Calls of a kind before it tries anything, of a trial, and from one to the next: most calls take
 * what is thought to be good, where that is a guide. */
enum { AT_EASE = 6, LOST = 2, TRY = 4, REST = 3, MOST_TRIALS = 16, MOST_WAITS = 16 };

bool rill__learn_measured(const rill__profile *profile, const rill__algorithm *a,
                          const rill__problem *p) {
    if (p->collective != RILL_ALLREDUCE || p->dim == 0) return true; /* there are no points of it */
    rill__point here = rill__profile_point(a, p, 0);
    for (int i = 0; i < profile->points; i++)
        if (rill__points_near(&profile->point[i], &here)) return true;
    return false;
}

static void look_later(rill__plan_key *k) {
    uint32_t wait = k->lesson.waits < MOST_WAITS ? k->lesson.waits++ : MOST_WAITS;
    k->lesson.rest = k->lesson.calls + (4u << wait);
}

/* The fastest that is not known here. */
static bool find(const rill__planner *planner, const rill__planned *c, rill__candidate *found) {
    const rill__profile *profile = c->settings.profile;
    const rill__problem *p = &c->problem;
    rill__candidate next;
    found->algorithm = NULL;
    found->time = c->predicted * WORTH_A_TRY;
    for (int i = 0; rill__plan_next(planner, &c->settings, p, &i, &next);)
        if (next.time < found->time && !rill__learn_measured(profile, next.algorithm, p))
            *found = next;
    return found->algorithm != NULL;
}

void rill__learn_try(rill__planner *planner, const rill__planned *c) {
    rill__learner *l = planner->learner;
    rill__plan_key *k = c->key;
    rill__candidate other;
    if (c->settings.algorithm || k->lesson.brief || l->predicts) return;
    k->lesson.calls++;
    if (k->lesson.calls < (l->lost ? LOST : AT_EASE) || k->lesson.calls < k->lesson.rest ||
        k->lesson.trials >= MOST_TRIALS)
        return;
    if (!rill__learn_measured(c->settings.profile, c->algorithm, &c->problem)) return;
    if (!find(planner, c, &other)) {
        look_later(k);
        return;
    }
    double cost = TRY * other.time;
    if (l->tried + cost > SHARE * l->seconds + AT_FIRST) {
        look_later(k);
        return;
    }
    l->tried += cost;
    k->lesson.trials++;
    k->lesson.trial = other.algorithm;
    k->lesson.trial_ends = k->ended + TRY;
    k->lesson.rest = k->lesson.calls + TRY + REST; /* what it took is known after the next call */
    k->lesson.next = 0;
}
