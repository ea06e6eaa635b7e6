#include "plan/plan.h"
#include "coll/allreduce/allreduce.h"
#include "coll/topk/topk.h"

#include <math.h>
#include <string.h>

/* ---- keys ------------------------------------------------------------------------------------------- */

static bool matches(const rill__plan_key *k, const rill_request *r) {
    return k->used && k->collective == r->collective && k->type == r->task.shape.type &&
           k->dim == r->task.expect.dim && k->op == r->task.expect.op;
}

static void join(rill__plan_key *k, rill_request *r) {
    r->key_born = k->born;
    r->call = k->calls++;
    r->blocking_before = k->blocking;
    k->blocking += r->blocking;
}

/* All ranks call in the same order, so that all evict the same key. */
void rill__plan_begin(rill__planner *planner, rill_request *r) {
    rill__plan_key *keys = planner->keys;
    if (matches(&keys[planner->recent], r)) { /* the same kind again */
        r->key = planner->recent;
        join(&keys[r->key], r);
        return;
    }
    int oldest = 0;
    for (int i = 0; i < RILL__PLAN_KEYS; i++) {
        if (matches(&keys[i], r)) {
            r->key = planner->recent = i;
            join(&keys[i], r);
            return;
        }
        if (keys[i].born < keys[oldest].born) oldest = i; /* unused: 0 */
    }
    rill__plan_key *k = &keys[oldest];
    memset(k, 0, sizeof *k);
    k->used = true;
    k->born = ++planner->births;
    k->collective = r->collective;
    k->type = r->task.shape.type;
    k->dim = r->task.expect.dim;
    k->op = r->task.expect.op;
    r->key = planner->recent = oldest;
    join(k, r);
}

/* ---- choice ----------------------------------------------------------------------------------------- */

static rill__problem problem_of(const rill__planner *planner, const rill_request *r,
                                const rill__observed *seen) {
    rill__problem p = rill__plan_problem(planner, &r->settings, r->collective, r->task.engine->size,
                                         r->task.expect.dim, r->task.shape.type, r->op, seen);
    p.block = rill__agreed_block(r);
    if (r->feedback) p.k = (double)r->feedback->k;
    return p;
}

static bool close_to(uint64_t a, uint64_t b) {
    uint64_t more = rill__max_u64(a, b);
    return more - rill__min_u64(a, b) <= more / 32;
}

/* Estimates cost more than a small call: the choice stands while its grounds do. */
static bool still_good(const rill__plan_key *k, const rill__observed *seen, const rill_request *r) {
    return k->chosen && k->chosen_from.known == seen->known &&
           close_to(k->chosen_from.nnz_sum, seen->nnz_sum) &&
           close_to(k->chosen_from.nnz_max, seen->nnz_max) &&
           close_to(k->chosen_from.result, seen->result) &&
           fabs(k->chosen_from.skew - seen->skew) <= 0.1 * seen->skew &&
           k->chosen_for.algorithm == r->settings.algorithm &&
           k->chosen_for.expected_nnz == r->settings.expected_nnz &&
           k->chosen_for.partition == r->settings.partition &&
           k->problem.block == rill__agreed_block(r) && k->chosen_for.codec == r->settings.codec &&
           k->chosen_for.value_bits == r->settings.value_bits &&
           k->chosen_for.allow_bits == r->settings.allow_bits;
}

static rill_status cannot_serve(const rill__algorithm *a, const char *why) {
    return rill__fail(RILL_ERR_UNSUPPORTED, "algorithm '%s' %s", a->name, why);
}

rill_status rill__plan_choose(rill__planner *planner, rill_request *r, const rill__observed *seen) {
    rill__problem p = problem_of(planner, r, seen), best_way = p;
    const rill__algorithm *best = r->settings.algorithm;
    double least = 0;
    if (best) {
        const char *why = best->supports(&p);
        if (why) return cannot_serve(best, why);
        least = rill__plan_way(planner, &r->settings, best, &best_way);
    } else {
        for (int i = 0; rill__algorithm_at(r->collective, i); i++) {
            const rill__algorithm *a = rill__algorithm_at(r->collective, i);
            if (!rill__plan_considers(a, &p)) continue;
            rill__problem way = p;
            double time = rill__plan_way(planner, &r->settings, a, &way);
            if (!rill__plan_prefers(planner, time, best, least)) continue;
            best = a;
            least = time;
            best_way = way;
        }
    }
    if (!best) return rill__fail(RILL_ERR_UNSUPPORTED, "no algorithm can serve this call");
    r->algorithm = best;
    r->algorithm_hash = rill__name_hash(best->name);
    r->problem = best_way;
    r->choice = ++planner->choices;
    r->predicted = least;
    return RILL_OK;
}

/* The last choice for the key, or a new one that becomes it. Only calls that are planned in order may
 * come here: what an earlier call left behind must be the same on all ranks, and agreements end in
 * another order on each. */
static rill_status choose_in_order(rill__planner *planner, rill_request *r,
                                   const rill__observed *seen) {
    rill__plan_key *k = &planner->keys[r->key];
    if (k->born != r->key_born) return rill__plan_choose(planner, r, seen);
    if (!still_good(k, seen, r)) {
        RILL_TRY(rill__plan_choose(planner, r, seen));
        k->chosen = r->algorithm;
        k->chosen_hash = r->algorithm_hash;
        k->chosen_from = *seen;
        k->chosen_for = r->settings;
        k->problem = r->problem;
        k->choice = r->choice;
        k->predicted = r->predicted;
        return RILL_OK;
    }
    r->algorithm = k->chosen;
    r->algorithm_hash = k->chosen_hash;
    r->predicted = k->predicted;
    if (r->choice != k->choice) { /* else it is there from the request's last call */
        r->problem = k->problem;
        r->choice = k->choice;
    }
    r->problem.codec = k->problem.codec; /* which an algorithm may have changed */
    return RILL_OK;
}

rill_status rill__plan(rill__planner *planner, rill_request *r) {
    rill__plan_key *k = &planner->keys[r->key];
    static const rill__observed nothing = {0};
    const rill__observed *seen = &nothing;
    r->spread = NULL;
    if (k->born == r->key_born && !k->broken) {
        if (k->planned != r->call || k->over < r->blocking_before) return RILL_IN_PROGRESS;
        int slot = (int)(r->call % RILL__PLAN_LAG);
        if (k->slot[slot].pending) {
            if (!k->slot[slot].done) return RILL_IN_PROGRESS;
            rill__observed *old = &k->slot[slot].observed;
            if (old->known && (!k->last.known || old->call > k->last.call)) {
                if (old->skew == 0) old->skew = k->last.skew;
                k->last = *old;
            }
        }
        k->slot[slot].pending = !r->blocking;
        k->slot[slot].done = false;
        k->planned++;
        seen = &k->last;
        /* Other bounds can mean other rounding: what a call finds here must not depend on when calls in flight
         * complete, nor the steps of a reducer on what came before its checkpoint. */
        if (k->spread.entries && r->blocking && !r->feedback) r->spread = &k->spread;
    }
    rill__observed selected;
    if (!seen->known && r->feedback) { /* all ranks know how much a reducer selects */
        uint64_t most = rill__min_u64(r->feedback->k, r->task.expect.dim);
        selected = (rill__observed){.known = true,
                                    .nnz_sum = most * (unsigned)r->task.engine->size,
                                    .nnz_max = most};
        seen = &selected;
    }
    if (!seen->known && !r->settings.algorithm) return RILL_ERR_STATE;
    return choose_in_order(planner, r, seen);
}

static void keep_spread(rill__spread *spread, const rill_stream *out) {
    spread->entries = out->nnz;
    for (int i = 1; i < RILL__SPREAD; i++)
        spread->at[i] = rill__index_at(out->index_bytes, out->idx.data,
                                       rill__uniform_bound(out->nnz, i, RILL__SPREAD));
    spread->at[0] = 0;
    spread->at[RILL__SPREAD] = out->dim;
}

void rill__plan_end(rill__planner *planner, rill_request *r) {
    rill__plan_key *k = &planner->keys[r->key];
    if (k->born != r->key_born) return;
    k->over += r->blocking;
    if (k->planned <= r->call) k->broken = true; /* it failed before it was planned */
    bool known = r->task.status == RILL_OK && r->stats_known;
    int slot = (int)(r->call % RILL__PLAN_LAG);
    rill__observed *seen = &k->last;
    if (r->blocking) {
        if (!known) return;
    } else {
        if (!k->slot[slot].pending) return;
        seen = &k->slot[slot].observed;
        k->slot[slot].done = true;
    }
    bool counts = r->collective == RILL_ALLREDUCE && r->out && r->out->form != RILL__DENSE;
    seen->known = known;
    seen->call = r->call;
    seen->nnz_sum = r->task.nnz_sum;
    seen->nnz_max = r->task.nnz_max;
    seen->result = counts ? r->nnz_out : 0;
    if (!r->blocking || r->skew > 0) seen->skew = r->skew;
    if (r->blocking && counts && r->out->form == RILL__SPARSE && r->nnz_out >= RILL__SPREAD &&
        r->problem.partition == RILL__BALANCED)
        keep_spread(&k->spread, r->out);
}
