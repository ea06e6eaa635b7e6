/* What was not delivered goes back to the residual; see coll/topk/topk.h for the rule.
 *
 * Everything here is sorted by index: selected, result and returned pairs are walked side by side.
 */
#include "reduce/reducer.h"

static rill__shape shape_of(const rill_reducer *r) { return rill__stream_shape(r->selected); }

/* Parts that the call returned lie in the host's memory. */
static rill_status add_returned(rill_reducer *r, const rill__part *mask, rill__where where) {
    for (int i = 0; i < r->feedback.returns; i++) {
        const rill__part *part = &r->feedback.returned[i].part;
        if (!r->space->is_host) {
            RILL_TRY(rill__piece_copy(&r->given_back, r->space, shape_of(r), part));
            part = &r->given_back.part;
        }
        rill__part_add_to(shape_of(r), part, r->residual.data, mask, where);
        r->residual_is_zero = false;
    }
    return RILL_OK;
}

static void forget_momentum(rill_reducer *r, const rill__part *mask) {
    if (r->options.momentum == 0 || !r->options.masking) return;
    rill__part selected = rill__stream_part(r->selected);
    if (selected.form != RILL__SPARSE)
        rill__do_clear(r->space, r->momentum.data, r->dim * rill__type_size(r->type));
    else rill__part_clear_in(shape_of(r), &selected, r->momentum.data, mask);
}

rill_status rill__reducer_take_back(rill_reducer *r) {
    if (r->choice == RILL__SEND_ALL) return RILL_OK;
    if (!rill__reducer_is_topk(r)) {
        forget_momentum(r, NULL);
        if (!r->options.feedback) return RILL_OK;
        rill__reducer_add_lost(r);
        return add_returned(r, NULL, RILL__EVERYWHERE);
    }
    /* The result has pairs: entries that are 0 count as not delivered. */
    rill__part mask = rill__stream_part(r->delivered), own = rill__stream_part(r->selected);
    forget_momentum(r, &mask);
    if (!r->options.feedback) return RILL_OK;
    rill__part_add_to(shape_of(r), &own, r->residual.data, &mask, RILL__OUTSIDE);
    if (own.n) r->residual_is_zero = false;
    return add_returned(r, &mask, RILL__INSIDE);
}

void rill__reducer_take_all_back(rill_reducer *r) {
    if (r->choice == RILL__SEND_ALL || !r->options.feedback) return;
    rill__part own = rill__stream_part(r->selected);
    if (!own.n) return;
    rill__part_add_to(shape_of(r), &own, r->residual.data, NULL, RILL__EVERYWHERE);
    r->residual_is_zero = false;
}

rill_status rill_reducer_keep(rill_reducer *r, const void *residual, const void *momentum) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_keep: reducer is NULL");
    if (rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "rill_reducer_keep: a step is under way");
    if (momentum && r->options.momentum == 0)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_keep: the reducer has no momentum");
    RILL_TRY(rill__reducer_follow(r, NULL));
    if (momentum) rill__dense_add(r->space, r->type, r->momentum.data, momentum, r->dim);
    if (residual && r->options.feedback && r->dim) {
        rill__dense_add(r->space, r->type, r->residual.data, residual, r->dim);
        r->residual_is_zero = false;
    }
    return rill__space_wait(r->space);
}
