/* What else a call could do. The model chooses first. What it leaves out can make another way
 * faster, so that calls of a kind try those that it thinks not much slower: three calls of each, in
 * turns with calls of the choice, so that what disturbs is the same for both. The first finds no
 * memory of its own and is not measured. The one that was clearly faster takes the place of the
 * choice, which then is tried against it: once is chance. Which is tried, and when, changes only at
 * the end of a call that all ranks have agreed on: all try the same.
 *
 * What was measured is compared with what was measured: the model leaves things out, so that each
 * choice looks slow beside what it promises of others. */
#include "plan/learn.h"

#include <math.h>
#include <string.h>

/* These are chosen by hand: no record shows yet which are the best. */
#define WORTH_A_TRY 1.75 /* times the choice's that another may be expected to take */
#define HOPELESS 1.5     /* the same of what it was measured to: its trial ends */
/* Share of the time of the choice's fast calls below which another takes its place: a little is
 * chance, or the caches' among other calls, which are otherwise elsewhere. */
#define CLEARLY 0.85
#define WORSE 1.5      /* times what it took when all were tried: they are tried again */
#define SHARE 0.1      /* of the time of all calls that trials may take, */
#define AT_FIRST 20e-3 /* and these seconds */
/* Calls of a trial, half of them of the choice, and times that this is measured before one. */
enum { TRY = 6, TRIED = 2, AT_EASE = 2, MOST_TRIALS = 12 };

bool rill__learn_measured(const rill__profile *profile, const rill__algorithm *a,
                          const rill__problem *p) {
    if (p->collective != RILL_ALLREDUCE || p->dim == 0) return true; /* there are no points of it */
    rill__point here = rill__profile_point(a, p, 0);
    for (int i = 0; i < profile->points; i++)
        if (rill__points_near(&profile->point[i], &here)) return true;
    return false;
}

/* ---- choice ---------------------------------------------------------------------------------- */

static double time_of(const rill__rival *r) { return r->way.time * r->usual; }

static bool is_solid(const rill__rival *r) { return r->times >= RILL__LEARN_SOLID; }

/* By what is kept of both, from whenever: it usually takes clearly less, and less than the fast
 * calls of the choice. */
static bool is_better(const rill__rival *r, const rill__rival *choice) {
    double time = time_of(r);
    return is_solid(r) && time < CLEARLY * time_of(choice) && time < choice->way.time * choice->low;
}

/* By a trial, in which both were measured in turns. */
static bool has_won(const rill__rival *r, const rill__rival *choice) {
    return r->times >= r->before + TRIED && choice->times >= choice->before + TRIED &&
           r->way.time * r->last_two <
               CLEARLY * choice->way.time * fmin(choice->low, choice->lately);
}

static bool is_hopeless(const rill__rival *r, const rill__rival *choice) {
    return r->times > r->before && r->way.time * r->least > HOPELESS * time_of(choice);
}

/* Times of such calls speak of caches and of who comes late. */
static bool is_brief(const rill__rival *r) { return r->way.time * r->low < RILL__BRIEF; }

/* One that was measured before may take the place of the choice, where that was, too. */
static void choose(rill__plan_key *k) {
    const rill__rival *choice = &k->rival[k->lesson.taken];
    if (choice->times < AT_EASE) return;
    for (int i = 0; i < k->rivals; i++)
        if (is_better(&k->rival[i], choice) && time_of(&k->rival[i]) < time_of(choice)) {
            choice = &k->rival[i];
            k->lesson.taken = i;
        }
}

/* ---- rivals ---------------------------------------------------------------------------------- */

/* Behind those that are faster. */
static void enter(rill__plan_key *k, const rill__candidate *c) {
    int at = k->rivals < RILL__RIVALS ? k->rivals++ : RILL__RIVALS;
    for (; at > 1 && k->rival[at - 1].way.time > c->time; at--)
        if (at < RILL__RIVALS) k->rival[at] = k->rival[at - 1];
    if (at < RILL__RIVALS) k->rival[at] = (rill__rival){.way = *c};
}

/* Those of calls with about as many entries. */
typedef struct before {
    int n;
    rill__rival rival[RILL__RIVALS];
    const rill__algorithm *taken, *trial;
} before;

static before rivals_before(const rill__plan_key *k, const rill__problem *p) {
    before b = {.n = 0};
    if (!k->rivals || !rill__learn_alike(k->rival[0].way.problem.nnz, p->nnz)) return b;
    b.n = k->rivals;
    memcpy(b.rival, k->rival, sizeof b.rival);
    b.taken = k->rival[k->lesson.taken].way.algorithm;
    if (k->lesson.tries) b.trial = k->rival[k->lesson.trial].way.algorithm;
    return b;
}

/* Calls go on as they went, where they may. */
static void go_on(rill__plan_key *k, const before *b) {
    k->lesson.taken = 0;
    k->lesson.tries = false;
    if (!b->n) k->lesson.settled = 0;
    for (int i = 0; i < k->rivals; i++) {
        rill__rival *r = &k->rival[i];
        for (int j = 0; j < b->n; j++) {
            const rill__rival *old = &b->rival[j];
            if (old->way.algorithm != r->way.algorithm) continue;
            r->tried |= old->tried;
            r->won = old->won;
            r->before = old->before;
        }
        if (r->way.algorithm == b->taken) k->lesson.taken = i;
        if (r->way.algorithm != b->trial) continue;
        k->lesson.trial = i;
        k->lesson.tries = true;
    }
}

bool rill__learn_rivals(const rill__planner *planner, const rill__planned *c,
                        const rill__problem *p, const rill__algorithm *only) {
    rill__learner *l = planner->learner;
    rill__plan_key *k = c->key;
    rill__candidate first = {.algorithm = only, .problem = *p}, next;
    before old = rivals_before(k, p);
    if (only) first.time = rill__plan_way(planner, &c->settings, only, &first.problem);
    else rill__plan_best(planner, &c->settings, p, &first);
    k->rivals = 0;
    if (!first.algorithm) return false;
    k->rival[k->rivals++] = (rill__rival){.way = first};
    if (!only && !l->predicts)
        for (int i = 0; rill__plan_next(planner, &c->settings, p, &i, &next);)
            if (next.algorithm != first.algorithm) enter(k, &next);
    rill__learn_look(l);
    for (int i = 0; i < k->rivals; i++)
        rill__learn_recall(l, &k->rival[i]);
    go_on(k, &old);
    if (!old.n) choose(k);
    return true;
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* Where the choice takes longer than the model says, others may be faster; not so where it is
 * faster than that. */
static bool is_worth_it(const rill__rival *r, const rill__rival *choice) {
    double slower = fmax(0.75, choice->usual);
    return !r->tried && r->way.time < WORTH_A_TRY * choice->way.time * slower;
}

static void try_next(rill__learner *l, rill__plan_key *k) {
    rill__rival *choice = &k->rival[k->lesson.taken];
    for (int i = 0; i < k->rivals; i++) {
        rill__rival *r = &k->rival[i];
        if (i == k->lesson.taken || !is_worth_it(r, choice)) continue;
        double cost = TRY / 2.0 * r->way.time * fmax(1, r->usual);
        if (l->tried + cost > SHARE * l->seconds + AT_FIRST) return;
        l->tried += cost;
        r->tried = true;
        r->before = r->times;
        choice->before = choice->times;
        k->lesson.trials++;
        k->lesson.trial = i;
        k->lesson.tries = true;
        k->lesson.trial_ends = k->ended + TRY;
        return;
    }
    k->lesson.settled = choice->usual;
}

static void end_trial(rill__plan_key *k) {
    rill__rival *r = &k->rival[k->lesson.trial], *choice = &k->rival[k->lesson.taken];
    k->lesson.tries = false;
    if (!has_won(r, choice)) return;
    choice->tried = r->won; /* it is tried against the other, but once */
    r->won = true;
    k->lesson.taken = k->lesson.trial;
}

/* The machine is another now: what was found need not hold. */
static void start_anew(rill__plan_key *k) {
    k->lesson.settled = 0;
    for (int i = 0; i < k->rivals; i++)
        k->rival[i].tried = k->rival[i].won = false;
}

rill__rival *rill__learn_rival(rill__plan_key *k, const rill__algorithm *a) {
    for (int i = 0; i < k->rivals; i++)
        if (k->rival[i].way.algorithm == a) return &k->rival[i];
    return NULL;
}

void rill__learn_judge(rill__learner *l, rill__plan_key *k) {
    k->news = true;
    if (k->rivals < 2) return;
    const rill__rival *choice = &k->rival[k->lesson.taken];
    if (k->lesson.tries) {
        bool over = k->ended > k->lesson.trial_ends ||
                    is_hopeless(&k->rival[k->lesson.trial], choice);
        if (!over) return;
        end_trial(k);
        choice = &k->rival[k->lesson.taken];
    }
    if (choice->times < AT_EASE || is_brief(choice)) return;
    bool worse = k->lesson.settled > 0 && choice->usual > WORSE * k->lesson.settled;
    if (worse) start_anew(k);
    if (!(k->lesson.settled > 0) && k->lesson.trials < MOST_TRIALS) try_next(l, k);
}
