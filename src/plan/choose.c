/* Which algorithm "auto" takes.
 *
 * By a profile that was tuned, or built in: the one of the least time, where MPI's own sum gives
 * way only to what is clearly faster.
 *
 * By what calls of another job have shown (plan/cache.c) there are two kinds of times: of
 * algorithms that were measured for about such calls, and of others. The two must not be
 * compared: the model leaves things out, so that what was measured looks slow beside it, and
 * every choice would be given up for one that is no better. So the model alone chooses first, on
 * equal terms; then another takes its place where both were measured and it took clearly less. */
#include "coll/cost.h"
#include "coll/patterns/host_sum.h"
#include "plan/learn.h"

#define CLEARLY 0.85 /* share of the time of the choice below which another takes its place */

/* What was learned of single calls is not the model's. */
static double model_of(const rill__profile *profile, const rill__algorithm *a,
                       const rill__problem *p) {
    return profile->learned ? rill__estimate(a, p) : rill__profile_time(profile, a, p);
}

bool rill__plan_next(const rill__planner *planner, const rill__settings *settings,
                     const rill__problem *p, int *i, rill__candidate *c) {
    while ((c->algorithm = rill__algorithm_at(p->collective, (*i)++)))
        if (rill__plan_considers(c->algorithm, p)) {
            c->problem = *p;
            c->time = rill__plan_way(planner, settings, c->algorithm, &c->problem);
            return true;
        }
    return false;
}

/* MPI's own sum is the first row of its table. */
static void choose_by_model(const rill__planner *planner, const rill__settings *settings,
                            const rill__problem *p, rill__candidate *best) {
    const rill__profile *profile = rill__plan_profile(planner, settings);
    bool by_mpi = p->mpi_sums && !rill__host_sum_serves_dense(p);
    rill__candidate next;
    *best = (rill__candidate){.algorithm = NULL};
    for (int i = 0; rill__plan_next(planner, settings, p, &i, &next);) {
        next.time = model_of(profile, next.algorithm, &next.problem);
        bool mpi = best->algorithm && best->algorithm->posts_mpi_collective && by_mpi;
        double doubt = mpi ? profile->constants.doubt : 1;
        if (!best->algorithm || next.time < best->time * doubt) *best = next;
    }
}

/* The choice that is measured may give way to what is. */
static void choose_by_measured(const rill__planner *planner, const rill__settings *settings,
                               const rill__problem *p, rill__candidate *best) {
    const rill__profile *profile = rill__plan_profile(planner, settings);
    const rill__algorithm *chosen = best->algorithm;
    best->time = rill__profile_time(profile, chosen, &best->problem);
    if (!rill__learn_measured(profile, chosen, p)) return;
    double enough = best->time * CLEARLY;
    rill__candidate next;
    for (int i = 0; rill__plan_next(planner, settings, p, &i, &next);)
        if (next.algorithm != chosen && next.time < enough && next.time < best->time &&
            rill__learn_measured(profile, next.algorithm, p))
            *best = next;
}

void rill__plan_best(const rill__planner *planner, const rill__settings *settings,
                     const rill__problem *p, rill__candidate *best) {
    choose_by_model(planner, settings, p, best);
    if (best->algorithm && rill__plan_profile(planner, settings)->learned)
        choose_by_measured(planner, settings, p, best);
}
