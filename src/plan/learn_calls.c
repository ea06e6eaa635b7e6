/* What calls bring: which are measured, what the ranks tell each other, and how many are taken
 * together. */
#include "coll/cost.h"
#include "plan/learn.h"

#include <math.h>
#include <string.h>

#define ENOUGH 5e-3 /* seconds of calls for which an update of the constants is no burden */

/* ---- the field ------------------------------------------------------------------------------- */

enum { DROPPED_BITS = 16, LEAST = 0x42800000 >> DROPPED_BITS, MOST = 0xffd }; /* from 64 ns on */
enum { APART = 2 * 128 }; /* ranks' times differ by more than four times: they speak of delays */

/* The bits of a float grow with it, and nearly as its logarithm does. */
unsigned rill__learn_steps(double seconds) {
    float ns = (float)(seconds * 1e9);
    uint32_t bits;
    if (!(ns >= 64)) return 0;
    memcpy(&bits, &ns, sizeof bits);
    bits = (bits >> DROPPED_BITS) - LEAST;
    return bits < MOST ? bits : MOST;
}

double rill__learn_seconds(unsigned steps) {
    uint32_t bits = ((steps + LEAST) << DROPPED_BITS) | 1u << (DROPPED_BITS - 1); /* the middle */
    float ns;
    memcpy(&ns, &bits, sizeof ns);
    return (double)ns * 1e-9;
}

/* ---- calls ----------------------------------------------------------------------------------- */

bool rill__learn_begins(rill__learner *l, const void *call, bool alone) {
    if (!alone || l->broken || l->busy) return false;
    l->busy = call;
    return true;
}

/* Calls of a kind are taken together: one, two, four, and then as many as take long enough. */
static void take(rill__planner *planner, rill__learner *l, unsigned field) {
    rill__plan_key *k = planner->keys[l->pending.key];
    unsigned shortest = 0xffe - (field >> 12), longest = (field & 0xfff) - 2;
    if (shortest > longest || longest - shortest > APART) return;
    unsigned steps = (shortest + longest) / 2;
    l->seconds += rill__learn_seconds(steps);
    if (!k || k->born != l->pending.born) return;
    k->lesson.steps += steps;
    if (++k->lesson.calls < k->lesson.due) return;
    rill__sample *s = &l->pending.sample;
    s->seconds = rill__learn_seconds((unsigned)(k->lesson.steps / k->lesson.calls));
    double most = fmax(1, fmin(1e6, ENOUGH / s->seconds));
    k->lesson.due = (uint32_t)fmin(2.0 * k->lesson.due, most);
    k->lesson.calls = 0;
    k->lesson.steps = 0;
    rill__learn(l, s);
}

/* What was planned with, as it turned out. */
static rill__problem seen_problem(const rill__planned *c, const rill__outcome *o) {
    rill__problem p = c->problem;
    double dim = (double)p.dim;
    p.nnz = fmin((double)o->nnz_sum / p.ranks, dim);
    p.nnz_max = fmin((double)o->nnz_max, dim);
    if (p.collective == RILL_ALLREDUCE && o->out && o->out->form != RILL__DENSE && o->nnz_out) {
        p.result = (double)o->nnz_out;
        p.space = rill__effective_space(&p);
    }
    p.c = NULL;
    return p;
}

/* What is sampled of a call that is to be the next pending one; of calls that are taken together
 * the last is described. */
static void expect(rill__planner *planner, rill__learner *l, const rill__planned *c,
                   const rill__outcome *o) {
    rill__plan_key *k = rill__plan_key_of(planner, c);
    l->pending.there = k != NULL;
    if (!k) return;
    l->pending.key = c->key;
    l->pending.born = c->key_born;
    if (k->lesson.choice != c->choice) { /* another way, or other constants */
        bool same = k->lesson.algorithm == c->algorithm && k->lesson.way == c->way;
        k->lesson.choice = c->choice;
        k->lesson.algorithm = c->algorithm;
        k->lesson.way = c->way;
        if (!same) k->lesson.due = 1;
        k->lesson.calls = 0;
        k->lesson.steps = 0;
    }
    if (k->lesson.calls + 1 < k->lesson.due) return;
    l->pending.sample.algorithm = c->algorithm;
    l->pending.sample.problem = seen_problem(c, o);
}

void rill__learn_ends(rill__planner *planner, const rill__planned *c, const rill__outcome *o,
                      const rill__lesson *lesson) {
    rill__learner *l = planner->learner;
    l->busy = NULL;
    if (!lesson->good) {
        l->broken = true;
        return;
    }
    if (lesson->field >= RILL__LEARN_VETO || lesson->field == 0) return;
    if (lesson->field != RILL__LEARN_NOTHING && l->pending.there) take(planner, l, lesson->field);
    l->pending.there = false;
    if (!lesson->seasoned || !o->known) return;
    expect(planner, l, c, o);
    l->calls++;
    l->pending.field = rill__learn_field(lesson->seconds);
}
