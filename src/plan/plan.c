#include "plan/learn.h"

#include <math.h>
#include <string.h>

/* ---- keys ------------------------------------------------------------------------------------ */

static bool matches(const rill__plan_key *k, const rill__planned *c) {
    return k && k->collective == c->collective && k->type == c->type && k->dim == c->dim &&
           k->op == c->op_hash;
}

static void join(rill__plan_key *k, rill__planned *c) {
    c->key_born = k->born;
    c->call = k->calls++;
    c->blocking_before = k->blocking;
    k->blocking += c->blocking;
}

/* All ranks call in the same order, so that all evict the same key. */
static int find_key(const rill__planner *planner, const rill__planned *c) {
    int oldest = 0;
    uint64_t born = UINT64_MAX;
    for (int i = 0; i < RILL__PLAN_KEYS; i++) {
        const rill__plan_key *k = planner->keys[i];
        if (!k) return i;
        if (matches(k, c)) return i;
        if (k->born < born) oldest = i, born = k->born;
    }
    return oldest;
}

void rill__planner_forget(rill__planner *planner) {
    for (int i = 0; i < RILL__PLAN_KEYS; i++) {
        free(planner->keys[i]);
        planner->keys[i] = NULL;
    }
}

rill_status rill__plan_begin(rill__planner *planner, rill__planned *c) {
    if (!matches(planner->keys[planner->recent], c)) planner->recent = find_key(planner, c);
    c->key = planner->recent;
    rill__plan_key *k = planner->keys[c->key];
    if (matches(k, c)) {
        join(k, c);
        return RILL_OK;
    }
    c->key_born = 0; /* nobody's */
    if (!k) k = planner->keys[c->key] = rill__malloc(sizeof *k);
    if (!k) return rill__fail(RILL_ERR_MEMORY, "out of memory for the planning of a call");
    memset(k, 0, sizeof *k);
    k->born = ++planner->births;
    k->collective = c->collective;
    k->type = c->type;
    k->dim = c->dim;
    k->op = c->op_hash;
    join(k, c);
    return RILL_OK;
}

/* ---- choice ---------------------------------------------------------------------------------- */

static rill__problem problem_of(const rill__planner *planner, const rill__planned *c,
                                const rill__observed *seen) {
    rill__problem p = rill__plan_problem(planner, &c->settings, c->collective, c->ranks, c->dim,
                                         c->type, c->op, seen);
    p.block = c->block;
    p.k = (double)c->k;
    return p;
}

static bool close_to(uint64_t a, uint64_t b) {
    uint64_t more = rill__max_u64(a, b);
    return more - rill__min_u64(a, b) <= more / 32;
}

/* Estimates cost more than a small call: the choice stands while its grounds do. */
static bool still_good(const rill__plan_key *k, const rill__observed *seen,
                       const rill__planned *c) {
    return k->chosen && k->chosen_from.known == seen->known &&
           close_to(k->chosen_from.nnz_sum, seen->nnz_sum) &&
           close_to(k->chosen_from.nnz_max, seen->nnz_max) &&
           close_to(k->chosen_from.result, seen->result) &&
           fabs(k->chosen_from.skew - seen->skew) <= 0.1 * seen->skew &&
           k->chosen_for.algorithm == c->settings.algorithm &&
           k->chosen_for.expected_nnz == c->settings.expected_nnz &&
           k->chosen_for.partition == c->settings.partition && k->problem.block == c->block &&
           k->chosen_for.codec == c->settings.codec &&
           k->chosen_for.profile == c->settings.profile &&
           k->chosen_for.value_bits == c->settings.value_bits &&
           k->chosen_for.allow_bits == c->settings.allow_bits &&
           k->chosen_for.all_values == c->settings.all_values;
}

/* Whether what is learned decides what becomes of the call. */
static bool learns(const rill__planner *planner, const rill__planned *c) {
    return planner->learner && !c->reducer;
}

static const rill__profile *profile_for(const rill__planner *planner, const rill__planned *c) {
    if (learns(planner, c)) return &planner->learner->profile;
    return c->reducer && c->kept ? c->kept : &planner->profile;
}

/* Something was learned since, or there is something to try; a trial goes on. */
static bool is_old(const rill__planner *planner, const rill__plan_key *k, const rill__planned *c) {
    if (!learns(planner, c)) return false;
    return (k->version != planner->learner->version && !k->trying) || c->call >= k->look;
}

static rill_status cannot_serve(const rill__algorithm *a, const char *why) {
    return rill__fail(RILL_ERR_UNSUPPORTED, "algorithm '%s' %s", a->name, why);
}

static uint64_t way_of(const rill__planned *c) {
    const rill__problem *p = &c->problem;
    uint64_t way = c->algorithm_hash;
    way = way * 31 + (p->codec ? p->codec->id + 1u : 0);
    way = way * 31 + (uint64_t)p->value_bits;
    way = way * 31 + (uint64_t)p->partition;
    return UINT64_C(1) << (way * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

bool rill__plan_prefers(const rill__profile *profile, const rill__candidate *c,
                        const rill__candidate *best) {
    if (!best->algorithm) return true;
    const rill__problem *p = &c->problem;
    double doubt = 1;
    if (best->algorithm->posts_mpi_collective && p->mpi_sums &&
        !(profile->learned && rill__learn_measured(profile, c->algorithm, p) &&
          rill__learn_measured(profile, best->algorithm, p)))
        doubt = profile->constants.doubt;
    return c->time < best->time * doubt;
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

void rill__plan_take(rill__planner *planner, rill__planned *c, const rill__candidate *best) {
    c->algorithm = best->algorithm;
    c->algorithm_hash = rill__algorithm_hash(best->algorithm->name);
    c->problem = best->problem;
    c->choice = ++planner->choices;
    c->way = way_of(c);
    c->predicted = best->time;
}

rill_status rill__plan_choose(rill__planner *planner, rill__planned *c,
                              const rill__observed *seen) {
    c->settings.profile = profile_for(planner, c);
    rill__problem p = problem_of(planner, c, seen);
    rill__candidate best = {.algorithm = c->settings.algorithm, .problem = p}, next;
    if (best.algorithm) {
        const char *why = best.algorithm->supports(&p);
        if (why) return cannot_serve(best.algorithm, why);
        best.time = rill__plan_way(planner, &c->settings, best.algorithm, &best.problem);
    } else {
        for (int i = 0; rill__plan_next(planner, &c->settings, &p, &i, &next);)
            if (rill__plan_prefers(c->settings.profile, &next, &best)) best = next;
    }
    if (!best.algorithm)
        return rill__fail(RILL_ERR_UNSUPPORTED, "no algorithm can serve this call");
    rill__plan_take(planner, c, &best);
    return RILL_OK;
}

/* The last choice for the key, or a new one that becomes it. Only calls that are planned in order
 * may come here: what an earlier call left behind must be the same on all ranks, and agreements end
 * in another order on each. */
static rill_status choose_in_order(rill__planner *planner, rill__planned *c,
                                   const rill__observed *seen) {
    rill__plan_key *k = rill__plan_key_of(planner, c);
    if (!k) return rill__plan_choose(planner, c, seen);
    c->settings.profile = profile_for(planner, c);
    if (!still_good(k, seen, c) || is_old(planner, k, c)) {
        RILL_TRY(rill__plan_choose(planner, c, seen));
        if (learns(planner, c)) {
            k->version = planner->learner->version;
            rill__learn_try(planner, k, c);
        }
        k->chosen = c->algorithm;
        k->chosen_hash = c->algorithm_hash;
        k->chosen_from = *seen;
        k->chosen_for = c->settings;
        k->problem = c->problem;
        k->choice = c->choice;
        k->way = c->way;
        k->predicted = c->predicted;
        return RILL_OK;
    }
    c->algorithm = k->chosen;
    c->algorithm_hash = k->chosen_hash;
    c->predicted = k->predicted;
    if (c->choice != k->choice) { /* else it is there from the last call of its request */
        c->problem = k->problem;
        c->choice = k->choice;
        c->way = k->way;
    }
    return RILL_OK;
}

rill__planning rill__plan(rill__planner *planner, rill__planned *c, rill_status *status) {
    rill__plan_key *k = rill__plan_key_of(planner, c);
    static const rill__observed nothing = {0};
    const rill__observed *seen = &nothing;
    c->spread = NULL;
    if (k && !k->broken) {
        if (k->planned != c->call || k->over < c->blocking_before) return RILL__PLAN_WAITS;
        int slot = (int)(c->call % RILL__PLAN_LAG);
        if (k->slot[slot].pending) {
            if (!k->slot[slot].done) return RILL__PLAN_WAITS;
            rill__observed *old = &k->slot[slot].observed;
            if (old->known && (!k->last.known || old->call > k->last.call)) {
                if (old->skew == 0) old->skew = k->last.skew;
                k->last = *old;
            }
        }
        k->slot[slot].pending = !c->blocking;
        k->slot[slot].done = false;
        k->planned++;
        seen = &k->last;
        /* Other bounds can mean other rounding: what a call finds here must not depend on when
         * calls in flight complete, nor the steps of a reducer on what came before its checkpoint.
         */
        if (k->spread.entries && c->blocking && !c->reducer) c->spread = &k->spread;
    } else if (k && c->blocking) {
        /* Other ranks may have planned that call before they heard of its failure, and go on from
         * what the last blocking call has left, which all have alike: so does this one. */
        seen = &k->last;
        if (k->spread.entries && !c->reducer) c->spread = &k->spread;
    }
    rill__observed selected;
    if (!seen->known && c->reducer) { /* all ranks know how much a reducer selects */
        uint64_t most = rill__min_u64(c->k, c->dim);
        selected =
            (rill__observed){.known = true, .nnz_sum = most * (unsigned)c->ranks, .nnz_max = most};
        seen = &selected;
    }
    if (!seen->known && !c->settings.algorithm) return RILL__PLAN_ASKS;
    *status = choose_in_order(planner, c, seen);
    return *status == RILL_OK ? RILL__PLAN_READY : RILL__PLAN_FAILS;
}

static void keep_spread(rill__spread *spread, const rill_stream *out) {
    rill__part part = rill__stream_part(out);
    spread->entries = out->nnz;
    for (int i = 1; i < RILL__SPREAD; i++)
        spread->at[i] = rill__part_index(rill__stream_shape(out), &part,
                                         rill__uniform_bound(out->nnz, i, RILL__SPREAD));
    spread->at[0] = 0;
    spread->at[RILL__SPREAD] = out->dim;
}

void rill__plan_end(rill__planner *planner, const rill__planned *c, const rill__outcome *o) {
    rill__plan_key *k = rill__plan_key_of(planner, c);
    if (!k) return;
    k->over += c->blocking;
    if (k->planned <= c->call) k->broken = true; /* it failed before it was planned */
    int slot = (int)(c->call % RILL__PLAN_LAG);
    rill__observed *seen = &k->last;
    if (c->blocking) {
        if (!o->known) return;
    } else {
        if (!k->slot[slot].pending) return;
        seen = &k->slot[slot].observed;
        k->slot[slot].done = true;
    }
    bool counts = c->collective == RILL_ALLREDUCE && o->out && o->out->form != RILL__DENSE;
    seen->known = o->known;
    seen->call = c->call;
    seen->nnz_sum = o->nnz_sum;
    seen->nnz_max = o->nnz_max;
    seen->result = counts ? o->nnz_out : 0;
    if (!c->blocking || o->skew > 0) seen->skew = o->skew;
    if (c->blocking && counts && o->out->form == RILL__SPARSE && o->nnz_out >= RILL__SPREAD &&
        c->problem.partition == RILL__BALANCED)
        keep_spread(&k->spread, o->out);
}
