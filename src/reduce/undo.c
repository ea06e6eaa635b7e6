/* Steps that do not count: one that failed on some rank, and so on all, or one that is void because
 * a value was not finite.
 *
 * Either way nothing was delivered. What this rank selected goes back to its residual, and what the
 * algorithm and the selectors carry from step to step is restored: all ranks go on alike. After a
 * failure the gradient waits in the residual for the next step; that of a void step is taken out
 * again, by subtraction, so that a step need not keep a copy of the residual. */
#include "reduce/reducer.h"

#include <math.h>
#include <string.h>

void rill__reducer_remember_selectors(rill_reducer *r) {
    for (int i = 0; i < r->n_selectors; i++)
        r->states_before[i] = rill__selector_save(r->selectors[i]);
}

void rill__reducer_remember_memory(rill_reducer *r) {
    if (r->feedback.memory_size)
        memcpy(r->memory_before.data, r->feedback.memory.data, r->feedback.memory_size);
}

void rill__reducer_remember(rill_reducer *r) {
    rill__reducer_remember_selectors(r);
    rill__reducer_remember_memory(r);
}

/* After a failure there is one gradient more in the residuals: thresholds and bounds must be found
 * anew. */
void rill__reducer_restore(rill_reducer *r, bool failed) {
    size_t bytes = r->feedback.memory_size;
    if (bytes && failed) memset(r->feedback.memory.data, 0, bytes);
    else if (bytes) memcpy(r->feedback.memory.data, r->memory_before.data, bytes);
    if (r->choice != RILL__SEND_SELECTED) return;
    for (int i = 0; i < r->n_selectors; i++) {
        if (failed) r->states_before[i].level = 0;
        rill__selector_restore(r->selectors[i], &r->states_before[i]);
    }
}

void rill__reducer_keep_gradient(rill_reducer *r, const void *gradient) {
    if (!r->options.feedback || !gradient || !r->dim) return;
    if (r->guards) rill__dense_add_finite(r->space, r->type, r->residual.data, gradient, r->dim);
    else rill__dense_add(r->space, r->type, r->residual.data, gradient, r->dim);
    r->residual_is_zero = false;
}

/* What was sent whole is in no residual, unless the residual was sent with it. */
static void keep_all(rill_reducer *r) {
    const void *sent = r->borrowed.val.data;
    if (r->borrowed.form == RILL__DENSE && sent != r->residual.data)
        rill__reducer_keep_gradient(r, sent);
}

/* This rank had no part in the step; its micro-batches wait with the rest. */
static void keep_pending(rill_reducer *r) {
    bool plain = r->options.clip == 0 && r->options.momentum == 0 && r->options.feedback;
    if (!r->pending_used || r->uses_pending || !plain) return;
    rill__reducer_keep_gradient(r, r->pending.data);
    r->uses_pending = true;
}

void rill__reducer_undo_failed(rill_reducer *r) {
    if (r->failed != RILL_OK) keep_pending(r);
    if (r->failed == RILL_OK && r->choice == RILL__SEND_ALL) keep_all(r);
    else if (r->failed == RILL_OK) rill__reducer_take_all_back(r);
    rill__reducer_restore(r, true);
}

void rill__reducer_undo_void(rill_reducer *r) {
    if (r->choice != RILL__SEND_ALL) rill__reducer_take_all_back(r);
    if (r->fed_apart) rill__reducer_undo_apart(r);
    if (r->fed && r->options.feedback)
        rill__dense_subtract_finite(r->space, r->type, r->residual.data, r->fed, r->dim);
    if (r->taken)
        rill__dense_undecay(r->space, r->type, r->momentum.data, r->options.momentum, r->taken,
                            r->dim);
    rill__reducer_restore(r, false);
}

void rill__reducer_write_nan(const rill_reducer *r, const rill__target *target) {
    if (target->stream) {
        rill_stream_clear(target->stream);
        rill__value_store(r->type, target->stream->fill, NAN);
    }
    uint64_t nan = 0;
    rill__value_store(r->type, &nan, NAN);
    if (target->dense) rill__dense_fill(r->space, r->type, target->dense, &nan, r->dim);
    for (int i = 0; i < target->n; i++) {
        const rill_tensor *t = &target->tensors[i];
        rill__dense_fill(r->space, r->type, t->update, &nan, t->count);
    }
}
