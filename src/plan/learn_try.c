/* What else a call could do. Constants that calls follow say most of the algorithms that calls take;
 * the others may be faster than they say. So a kind of calls tries those that could be: two calls
 * of each, of which the second is measured, since the first finds no memory of its own. It is the
 * same on all ranks: what it goes by is the number of the call and what all have learned. */
#include "plan/learn.h"

#include <math.h>

#define WORTH_A_TRY 2.0 /* times the best that an algorithm may be expected to take */
#define SHARE 0.1       /* of the time of all calls that trials may take, */
#define AT_FIRST 0.05   /* and these seconds */
enum { TRY = 2, REST = 2, MOST_TRIALS = 16, MOST_WAITS = 20 };

bool rill__learn_measured(const rill__profile *profile, const rill__algorithm *a,
                          const rill__problem *p) {
    if (p->collective != RILL_ALLREDUCE || p->dim == 0) return true; /* there are no points of it */
    rill__point here = rill__profile_point(a, p, 0);
    for (int i = 0; i < profile->points; i++)
        if (rill__points_near(&profile->point[i], &here)) return true;
    return false;
}

static void look_later(rill__plan_key *k, const rill__planned *c) {
    uint32_t wait = k->waits < MOST_WAITS ? k->waits++ : MOST_WAITS;
    k->look = c->call + (UINT64_C(4) << wait);
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

void rill__learn_try(rill__planner *planner, rill__plan_key *k, rill__planned *c) {
    rill__learner *l = planner->learner;
    rill__candidate other;
    bool tried = k->trying;
    k->trying = false;
    if (c->settings.algorithm || !c->blocking || k->trials >= MOST_TRIALS) {
        k->look = UINT64_MAX;
        return;
    }
    if (tried) { /* what it took is known after the next call */
        k->look = c->call + REST;
        return;
    }
    if (c->call < k->look && k->look != UINT64_MAX) return; /* constants have changed, no more */
    if (!rill__learn_measured(c->settings.profile, c->algorithm, &c->problem)) {
        look_later(k, c);
        return;
    }
    k->look = UINT64_MAX;
    if (!find(planner, c, &other)) return;
    double cost = TRY * other.time;
    if (l->tried + cost > SHARE * l->seconds + AT_FIRST) {
        look_later(k, c);
        return;
    }
    l->tried += cost;
    k->trials++;
    k->trying = true;
    k->look = c->call + TRY;
    rill__plan_take(planner, c, &other);
}
