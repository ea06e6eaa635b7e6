/* Tensors as one vector.
 *
 * Those that lie one after the other are one. Others are copied together; but a device's memory has
 * no room for that. There the gradients are added to the residual where they lie, which is then
 * selected from, and the update is written where it belongs. So it is with a vector that begins
 * where the device's kernels cannot take it. Steps that look at the gradient itself (momentum,
 * clipping, micro-batches, no feedback), or that do not block, still take a copy. */
#include "reduce/reducer.h"

#include <stdio.h>
#include <string.h>

/* ---- in ------------------------------------------------------------------------------------- */

/* The gradients, or the updates, are one vector: where it begins; NULL: it is empty. */
static bool is_row(const rill_reducer *r, int n, const rill_tensor *tensors, bool updates,
                   const void **out) {
    size_t size = rill__type_size(r->type);
    const char *first = NULL, *end = NULL;
    for (int i = 0; i < n; i++) {
        const char *at = updates ? tensors[i].update : tensors[i].gradient;
        if (!tensors[i].count) continue;
        if (first && at != end) return false;
        if (!first) first = at;
        end = at + tensors[i].count * size;
    }
    *out = first;
    const rill__space_tensors *space = r->space->tensors;
    return !first || !space || space->is_one(r->space, first, n > 1 ? r->dim * size : 0);
}

/* Gradients can stay where they are: the residual is all that the step looks at. */
static bool can_stay_apart(const rill_reducer *r, bool blocking) {
    const rill_reducer_options *o = &r->options;
    return r->space->tensors && r->choice == RILL__SEND_SELECTED && o->feedback && o->clip == 0 &&
           o->momentum == 0 && !r->pending_used && blocking;
}

static rill_status check(const rill_reducer *r, const char *call, int n,
                         const rill_tensor *tensors) {
    if (n < 0) return rill__fail(RILL_ERR_ARGUMENT, "%s: n = %d is negative", call, n);
    if (n && !tensors) return rill__fail(RILL_ERR_ARGUMENT, "%s: tensors is NULL", call);
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (tensors[i].count && (!tensors[i].gradient || !tensors[i].update))
            return rill__fail(RILL_ERR_ARGUMENT, "%s: gradient or update of tensor %d is NULL",
                              call, i);
        if (__builtin_add_overflow(sum, tensors[i].count, &sum)) sum = UINT64_MAX;
    }
    if (sum == r->dim) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT, "%s: the tensors have %llu values, the reducer %llu", call,
                      (unsigned long long)sum, (unsigned long long)r->dim);
}

static rill_status copy_together(rill_reducer *r, int n, const rill_tensor *tensors) {
    size_t size = rill__type_size(r->type);
    RILL_TRY(rill__buffer_reserve_exact(&r->fused, r->dim * size));
    char *at = r->fused.data;
    for (int i = 0; i < n; i++) {
        if (tensors[i].count)
            rill__do_copy(r->space, at, tensors[i].gradient, tensors[i].count * size);
        at += tensors[i].count * size;
    }
    return RILL_OK;
}

void rill__reducer_keep_tensors(rill_reducer *r, int n, const rill_tensor *tensors) {
    size_t size = rill__type_size(r->type);
    char *at = r->residual.data;
    char detail[200];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    for (int i = 0; i < n && r->options.feedback; i++) {
        if (r->guards)
            rill__dense_add_finite(r->space, r->type, at, tensors[i].gradient, tensors[i].count);
        else rill__dense_add(r->space, r->type, at, tensors[i].gradient, tensors[i].count);
        at += tensors[i].count * size;
        r->residual_is_zero = false;
    }
    rill__set_error(detail);
}

/* The list is the reducer's from here on: it must outlive the call. */
static rill_status take_list(rill_reducer *r, int n, const rill_tensor *tensors) {
    rill_tensor *list = rill__realloc(r->tensors, (size_t)(n + 1) * sizeof *list);
    if (!list) return rill__fail(RILL_ERR_MEMORY, "out of memory for %d tensors", n);
    r->tensors = list;
    if (n) memcpy(list, tensors, (size_t)n * sizeof *list);
    return RILL_OK;
}

rill_status rill__reducer_fuse(rill_reducer *r, const char *call, int n, const rill_tensor *tensors,
                               bool blocking, rill__target *target, const void **gradient) {
    RILL_TRY(check(r, call, n, tensors));
    union {
        const void *from;
        void *to;
    } update = {.from = NULL};
    bool in = is_row(r, n, tensors, false, gradient),
         out = is_row(r, n, tensors, true, &update.from);
    bool apart = !in && can_stay_apart(r, blocking);
    if (n == 1 && !apart) in = true; /* who needs it elsewhere copies it there */
    *target = (rill__target){.dense = update.to};
    if ((in || apart) && !r->space->is_host) rill__buffer_free(&r->fused);
    /* An update in one may lie over gradients that do not, which a void step still asks for. */
    if (!out || apart) {
        RILL_TRY(take_list(r, n, tensors));
        *target = (rill__target){.tensors = r->tensors, .n = n, .apart = apart};
    }
    if (apart) *gradient = NULL;
    if (in || apart) return RILL_OK;
    RILL_TRY(copy_together(r, n, tensors));
    *gradient = r->fused.data;
    return RILL_OK;
}

/* residual += gradient, where they lie. */
void rill__reducer_feed_apart(rill_reducer *r) {
    const rill__target *t = &r->target;
    if (!r->space->tensors->add(r->space, r->type, r->residual.data, t->tensors, t->n, r->guards))
        r->skipped = true;
    r->residual_is_zero = false;
}

void rill__reducer_undo_apart(rill_reducer *r) {
    const rill__target *t = &r->target;
    r->space->tensors->subtract(r->space, r->type, r->residual.data, t->tensors, t->n);
}

/* ---- out ------------------------------------------------------------------------------------ */

void rill__reducer_write_tensors(rill_reducer *r, const rill_stream *result) {
    const rill__target *target = &r->target;
    const rill__space_tensors *space = r->space->tensors;
    uint64_t at = 0, first = 0;
    if (!target->n) return;
    if (space && result->form == RILL__SPARSE && result->index_bytes == 4) {
        space->write(r->space, r->type, target->tensors, target->n, rill__stream_pairs(result));
        return;
    }
    for (int i = 0; i < target->n; i++) {
        const rill_tensor *t = &target->tensors[i];
        rill__stream_write(result, first, t->count, &at, t->update);
        first += t->count;
    }
}
