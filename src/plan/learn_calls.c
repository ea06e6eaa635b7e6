/* What calls bring: which are measured, what the ranks tell each other, and how many are taken
 * together. */
#include "coll/cost.h"
#include "plan/learn.h"

#include <math.h>
#include <string.h>

#define ENOUGH 2e-3 /* seconds of calls for which a sample is no burden */

/* ---- the field ------------------------------------------------------------------------------- */

enum { DROPPED_BITS = 16, LEAST = 0x42800000 >> DROPPED_BITS, MOST = 0xffd }; /* from 64 ns on */
/* Ranks' times that differ by more than eight times speak of delays; but not for ever. */
enum { APART = 3 * 128, MOST_DELAYS = 4 };

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

/* Who is alone knows of all calls before this one, and so decides as others do who are. */
rill__learning rill__learn_begins(rill__planner *planner, const rill__planned *c, const void *call,
                                  bool alone) {
    rill__learner *l = planner->learner;
    if (!alone || l->broken || l->busy) return RILL__LEARN_REFUSES;
    const rill__plan_key *k = c->key;
    bool knows = k && rill__plan_remembers(planner, k->blocked_until, c->seq);
    if (!k || (knows && k->ended < k->lesson.next)) return RILL__LEARN_SKIPS;
    l->busy = call;
    return RILL__LEARN_TAKES_PART;
}

/* Of calls of a kind the first ones are measured, then fewer and fewer, until their time is long
 * against what measuring takes. */
static void take(const rill__planner *planner, rill__learner *l, const rill__planned *c,
                 unsigned field) {
    rill__plan_key *k = l->pending.key;
    unsigned shortest = 0xffe - (field >> 12), longest = (field & 0xfff) - 2;
    if (!k || !k->rivals || !rill__plan_remembers(planner, l->pending.seq + 1, c->seq) ||
        shortest > longest)
        return;
    if (longest - shortest > APART && k->lesson.delays++ < MOST_DELAYS) return;
    k->lesson.delays = 0;
    double seconds = rill__learn_seconds(longest);
    l->seconds += seconds * fmax(1, k->lesson.gap);
    l->pending.sample.seconds = seconds;
    rill__learn(l, &l->pending.sample, rill__learn_rival(k, l->pending.sample.algorithm));
    rill__learn_judge(l, k);
    uint32_t enough = seconds < RILL__BRIEF ? RILL__LEARN_SOLID : RILL__LEARN_KEPT;
    bool rests = !k->lesson.tries && k->rival[k->lesson.taken].times >= enough;
    double most = fmax(1, fmin(1e6, ENOUGH / seconds));
    k->lesson.gap = rests ? (uint32_t)fmin(2.0 * k->lesson.gap, most) : 1;
    k->lesson.next = k->ended + k->lesson.gap - 1;
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

/* The call is to be the next sample. */
static void expect(rill__learner *l, const rill__planned *c, const rill__outcome *o,
                   double seconds) {
    rill__plan_key *k = c->key;
    l->pending.there = true;
    if (!k->lesson.gap || !(k->lesson.ways & c->way)) k->lesson.gap = 1;
    k->lesson.ways |= c->way;
    l->calls++;
    l->pending.key = k;
    l->pending.seq = c->seq;
    l->pending.sample.algorithm = c->algorithm;
    l->pending.sample.problem = seen_problem(c, o);
    l->pending.field = rill__learn_field(seconds);
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
    if (lesson->field != RILL__LEARN_NOTHING && l->pending.there)
        take(planner, l, c, lesson->field);
    l->pending.there = false;
    if (lesson->seasoned && o->known) expect(l, c, o, lesson->seconds);
}
