#include "plan/learn.h"

#include <math.h>
#include <string.h>

/* ---- keys ------------------------------------------------------------------------------------ */

static bool matches(const rill__plan_key *k, const rill__planned *c) {
    return k->collective == c->collective && k->type == c->type && k->dim == c->dim &&
           k->op == c->op_hash;
}

static void join(rill__plan_key *k, rill__planned *c) {
    c->key = k;
    c->previous = k->newest;
    c->next = NULL;
    if (k->newest) k->newest->next = c;
    else k->first = c;
    k->newest = c;
}

static void leave(rill__plan_key *k, rill__planned *c) {
    if (c->previous) c->previous->next = c->next;
    else k->first = c->next;
    if (c->next) c->next->previous = c->previous;
    else k->newest = c->previous;
}

static rill__plan_key **list_of(rill__planner *planner, const rill__planned *c) {
    uint64_t kind = (c->dim * 8 + (uint64_t)c->type) * 8 + (uint64_t)c->collective;
    uint64_t hash = (kind ^ c->op_hash) * UINT64_C(0x9e3779b97f4a7c15);
    _Static_assert(RILL__PLAN_LISTS == 1 << 6, "the hash has six bits");
    return &planner->lists[hash >> 58];
}

static void forget(rill__planner *planner, rill__plan_key **link) {
    rill__plan_key *k = *link;
    *link = k->other;
    if (planner->recent == k) planner->recent = NULL;
    if (planner->learner) rill__learner_forget(planner->learner, k);
    free(k);
}

/* No call to come tells a key that is forgotten from one that it would not go by. */
static void forget_old(rill__planner *planner, rill__plan_key **link, uint64_t seq) {
    while (*link) {
        rill__plan_key *k = *link;
        uint64_t until = rill__max_u64(k->ended_until, k->blocked_until);
        if (k->first || rill__plan_remembers(planner, until, seq)) link = &k->other;
        else forget(planner, link);
    }
}

void rill__planner_forget(rill__planner *planner) {
    for (int i = 0; i < RILL__PLAN_LISTS; i++)
        while (planner->lists[i])
            forget(planner, &planner->lists[i]);
}

static rill__plan_key *find_key(rill__planner *planner, const rill__planned *c) {
    rill__plan_key **list = list_of(planner, c);
    for (rill__plan_key *k = *list; k; k = k->other)
        if (matches(k, c)) return k;
    forget_old(planner, list, c->seq);
    rill__plan_key *k = rill__calloc(1, sizeof *k);
    if (!k) return NULL;
    k->other = *list;
    k->collective = c->collective;
    k->type = c->type;
    k->dim = c->dim;
    k->op = c->op_hash;
    return *list = k;
}

rill_status rill__plan_begin(rill__planner *planner, rill__planned *c) {
    if (!planner->recent || !matches(planner->recent, c)) planner->recent = find_key(planner, c);
    c->key = planner->recent;
    c->before = 0;
    if (!c->key) return rill__fail(RILL_ERR_MEMORY, "out of memory for the planning of a call");
    join(c->key, c);
    return RILL_OK;
}

/* ---- what a call goes by --------------------------------------------------------------------- */

static bool may_go_by(const rill__planned *c, uint64_t seq, bool blocking) {
    return blocking ? seq < c->seq : seq + RILL__PLAN_LAG <= c->seq;
}

static bool must_wait(const rill__plan_key *k, const rill__planned *c) {
    for (const rill__planned *o = k->first; o != c; o = o->next)
        if (may_go_by(c, o->seq, o->blocking)) return true;
    return false;
}

static bool is_newer(const rill__observed *a, const rill__observed *b) {
    return a->ended && (!b->ended || a->seq > b->seq);
}

static const rill__observed *newest_for(const rill__planner *planner, const rill__plan_key *k,
                                        const rill__planned *c) {
    const rill__observed *best = &k->last;
    for (int i = 0; k->kept && i < 2 * RILL__PLAN_LAG; i++) {
        const rill__observed *o = &k->recent[i];
        if (is_newer(o, best) && may_go_by(c, o->seq, o->blocking)) best = o;
    }
    static const rill__observed nothing = {0};
    return best->ended && rill__plan_remembers(planner, best->seq + 1, c->seq) ? best : &nothing;
}

/* Whoever is not planned yet is less than RILL__PLAN_LAG behind a call that has ended: what leaves
 * its place here is old enough for all. */
static rill__observed *place_in_recent(rill__plan_key *k, uint64_t seq) {
    rill__observed *place = &k->recent[seq % (2 * RILL__PLAN_LAG)];
    if (is_newer(place, &k->last)) k->last = *place;
    k->kept += !place->ended;
    return place;
}

/* Everybody who comes later goes by the call that ends now, or a later one. */
static rill__observed *place_of_last(rill__plan_key *k) {
    if (k->kept) memset(k->recent, 0, sizeof k->recent);
    k->kept = 0;
    return &k->last;
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

/* To six digits of base 2: the choice stands while its grounds hardly change. */
static uint64_t rounded(uint64_t n) {
    if (n < 64) return n;
    int digits = 63 - __builtin_clzll(n) - 5;
    uint64_t half = UINT64_C(1) << (digits - 1);
    return (n > UINT64_MAX - half ? n : n + half) >> digits << digits;
}

static rill__observed grounds_of(const rill__observed *seen) {
    return (rill__observed){.known = seen->known,
                            .nnz_sum = rounded(seen->nnz_sum),
                            .nnz_max = rounded(seen->nnz_max),
                            .result = rounded(seen->result),
                            .skew = floor(seen->skew * 16 + 0.5) / 16};
}

static bool is_about(uint64_t a, uint64_t b) { return a == b || rounded(a) == rounded(b); }

/* Of the same grounds. */
static bool see_alike(const rill__observed *a, const rill__observed *b) {
    return a->known == b->known && is_about(a->nnz_sum, b->nnz_sum) &&
           is_about(a->nnz_max, b->nnz_max) && is_about(a->result, b->result) &&
           (a->skew == b->skew || grounds_of(a).skew == grounds_of(b).skew);
}

static bool still_good(const rill__plan_choice *was, const rill__observed *seen,
                       const rill__planned *c) {
    return was->algorithm && see_alike(&was->from, seen) && was->k == c->k &&
           was->settings.algorithm == c->settings.algorithm &&
           was->settings.expected_nnz == c->settings.expected_nnz &&
           was->settings.partition == c->settings.partition && was->problem.block == c->block &&
           was->settings.codec == c->settings.codec &&
           was->settings.profile == c->settings.profile &&
           was->settings.value_bits == c->settings.value_bits &&
           was->settings.allow_bits == c->settings.allow_bits &&
           was->settings.all_values == c->settings.all_values &&
           was->settings.on_devices == c->settings.on_devices;
}

/* Whether what is learned decides what becomes of the call. Blocking calls of a kind are planned
 * one after another, on all ranks in the same order, others in any order: so these neither use
 * nor change what goes from one planning to the next. */
static bool learns(const rill__planner *planner, const rill__planned *c) {
    return planner->learner && c->blocking && !c->reducer;
}

static const rill__profile *profile_for(const rill__planner *planner, const rill__planned *c) {
    if (learns(planner, c)) return &planner->learner->model;
    return c->reducer && c->kept ? c->kept : &planner->profile;
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
    way = way * 31 + p->away;
    return UINT64_C(1) << (way * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

void rill__plan_take(rill__planner *planner, rill__planned *c, const rill__candidate *best) {
    c->algorithm = best->algorithm;
    c->algorithm_hash = rill__algorithm_hash(best->algorithm->name);
    c->problem = best->problem;
    c->choice = ++planner->choices;
    c->way = way_of(c);
    c->predicted = best->time;
}

/* The rival that the call takes now. */
static void take_rival(rill__planner *planner, rill__planned *c) {
    rill__plan_key *k = c->key;
    k->picked = rill__learn_pick(k);
    k->news = false;
    const rill__rival *r = &k->rival[k->picked];
    rill__plan_take(planner, c, &r->way);
    c->predicted *= r->usual;
}

rill_status rill__plan_choose(rill__planner *planner, rill__planned *c,
                              const rill__observed *seen) {
    c->settings.profile = profile_for(planner, c);
    rill__problem p = problem_of(planner, c, seen);
    rill__candidate best = {.algorithm = c->settings.algorithm, .problem = p};
    if (best.algorithm) {
        const char *why = best.algorithm->supports(&p);
        if (why) return cannot_serve(best.algorithm, why);
    }
    if (learns(planner, c)) {
        best.algorithm = rill__learn_rivals(planner, c, &p, best.algorithm)
                             ? c->key->rival[0].way.algorithm
                             : NULL;
    } else if (!best.algorithm) {
        rill__plan_best(planner, &c->settings, &p, &best);
    }
    if (!best.algorithm)
        return rill__fail(RILL_ERR_UNSUPPORTED, "no algorithm can serve this call");
    if (learns(planner, c)) {
        take_rival(planner, c);
    } else {
        if (!best.time)
            best.time = rill__plan_way(planner, &c->settings, best.algorithm, &best.problem);
        rill__plan_take(planner, c, &best);
    }
    if (!seen->known) c->predicted = 0; /* the time is of a call without entries */
    return RILL_OK;
}

static void keep_choice(rill__plan_choice *to, const rill__planned *c, const rill__observed *seen) {
    to->from = *seen;
    to->settings = c->settings;
    to->k = c->k;
    to->algorithm = c->algorithm;
    to->hash = c->algorithm_hash;
    to->problem = c->problem;
    to->number = c->choice;
    to->way = c->way;
    to->predicted = c->predicted;
}

/* The last choice for the key where it was made from the same, else a new one. */
static rill_status choose_again(rill__planner *planner, rill__plan_key *k, rill__planned *c,
                                const rill__observed *seen) {
    bool learned = learns(planner, c);
    rill__plan_choice *was = &k->choice[planner->learner && !learned];
    c->settings.profile = profile_for(planner, c);
    bool good = still_good(was, seen, c) && (!learned || k->rivals);
    bool moved = good && learned && (k->news || k->picked != rill__learn_pick(k));
    if (!good || moved) {
        rill__observed grounds = grounds_of(seen);
        if (moved) take_rival(planner, c);
        else RILL_TRY(rill__plan_choose(planner, c, &grounds));
        if (!seen->known) c->predicted = 0;
        keep_choice(was, c, seen);
        return RILL_OK;
    }
    c->algorithm = was->algorithm;
    c->algorithm_hash = was->hash;
    c->predicted = was->predicted;
    if (c->choice != was->number) { /* else it is there from the last call of its request */
        c->problem = was->problem;
        c->choice = was->number;
        c->way = was->way;
    }
    return RILL_OK;
}

/* What blocking calls alone have left and go by. Their memory stays: other calls use it, too. */
static void forget_old_blocking(const rill__planner *planner, rill__plan_key *k,
                                const rill__planned *c) {
    if (!c->blocking || rill__plan_remembers(planner, k->blocked_until, c->seq)) return;
    k->commits.once = k->commits.twice = 0;
    k->commits.sizes = (rill__sizes){0};
    k->spread.entries = 0;
    k->ended = 0;
    k->rivals = 0;
    memset(&k->lesson, 0, sizeof k->lesson);
}

rill__planning rill__plan(rill__planner *planner, rill__planned *c, rill_status *status) {
    rill__plan_key *k = c->key;
    if (must_wait(k, c)) return RILL__PLAN_WAITS;
    forget_old_blocking(planner, k, c);
    const rill__observed *seen = newest_for(planner, k, c);
    c->before = seen->before;
    c->skew = seen->skew;
    /* Other bounds can mean other rounding: what a call finds here must not depend on when calls in
     * flight complete, nor the steps of a reducer on what came before its checkpoint. */
    bool may_spread = k->spread.entries && c->blocking && !c->reducer;
    c->spread = may_spread ? &k->spread : NULL;
    rill__observed selected;
    if (!seen->known && c->reducer) { /* all ranks know how much a reducer selects */
        uint64_t most = rill__min_u64(c->k, c->dim);
        selected =
            (rill__observed){.known = true, .nnz_sum = most * (unsigned)c->ranks, .nnz_max = most};
        seen = &selected;
    }
    if (!seen->known && !c->settings.algorithm) return RILL__PLAN_ASKS;
    *status = choose_again(planner, k, c, seen);
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

void rill__plan_end(rill__planned *c, const rill__outcome *o) {
    rill__plan_key *k = c->key;
    if (!k) return;
    leave(k, c);
    if (!o->well) return;
    bool counts = c->collective == RILL_ALLREDUCE && o->out && o->out->form != RILL__DENSE;
    bool is_last = c->blocking && (!k->first || k->first->seq > c->seq);
    rill__observed *seen = is_last ? place_of_last(k) : place_in_recent(k, c->seq);
    int more = !c->blocking && c->before < RILL__PLAN_FIRST;
    /* field by field: call/begin.c says why */
    seen->known = o->known;
    seen->ended = true;
    seen->blocking = c->blocking;
    seen->before = c->before + more;
    seen->seq = c->seq;
    seen->nnz_sum = o->nnz_sum;
    seen->nnz_max = o->nnz_max;
    seen->result = counts ? o->nnz_out : 0;
    seen->skew = o->skew > 0 ? o->skew : c->skew;
    if (!c->blocking) {
        k->ended_until = rill__max_u64(k->ended_until, c->seq + 1);
        return;
    }
    k->blocked_until = c->seq + 1; /* they end in their order */
    k->ended++;
    if (counts && o->out->form == RILL__SPARSE && o->nnz_out >= RILL__SPREAD &&
        c->problem.partition == RILL__BALANCED && !c->problem.away)
        keep_spread(&k->spread, o->out);
}

/* ---- calls like the last one ----------------------------------------------------------------- */

bool rill__plan_stands(const rill__planner *planner, const rill__plan_key *k) {
    const rill__learner *l = planner->learner;
    if (k != planner->recent || k->first || !see_alike(&k->choice[0].from, &k->last)) return false;
    return !l ||
           (!k->news && !k->lesson.tries && !l->broken && !l->busy && k->ended < k->lesson.next);
}

void rill__plan_again(rill__plan_key *k, uint64_t seq, uint64_t nnz_sum, uint64_t nnz_max,
                      uint64_t result) {
    k->last.seq = seq;
    k->last.nnz_sum = nnz_sum;
    k->last.nnz_max = nnz_max;
    k->last.result = result;
    k->blocked_until = seq + 1;
    k->ended++;
}
