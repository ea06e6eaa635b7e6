/* The selection of a step: clip, momentum, residual, and which entries to send. */
#include "reduce/reducer.h"
#include "select/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- selectors ---------------------------------------------------------------------------- */

static const double default_warmup[] = {0.25, 0.0725, 0.015, 0.004};

static uint64_t share_of(uint64_t dim, double density) {
    double k = floor(density * (double)dim + 0.5);
    return rill__max_u64(1, rill__min_u64(dim, (uint64_t)k));
}

uint64_t rill__reducer_stage_k(const rill_reducer *r) {
    const rill_reducer_options *o = &r->options;
    uint64_t k = rill__min_u64(o->k ? o->k : share_of(r->dim, o->density), r->dim);
    if (!o->warmup_steps) return k;
    const double *stages = r->warmup ? r->warmup : default_warmup;
    uint64_t n = r->warmup ? (uint64_t)o->warmup_stages
                           : sizeof default_warmup / sizeof *default_warmup;
    uint64_t stage = (r->steps - r->voided_total) / o->warmup_steps;
    return stage < n ? rill__max_u64(k, share_of(r->dim, stages[stage])) : k;
}

void rill__reducer_selectors_free(rill_reducer *r) {
    for (int i = 0; i < r->n_selectors; i++)
        rill_selector_free(&r->selectors[i]);
    r->n_selectors = 0;
}

static rill_status create_selector(rill_reducer *r, uint64_t dim, uint64_t k, rill_selector **out) {
    rill_select_options s = RILL_SELECT_OPTIONS_INIT;
    s.method = r->method;
    s.k = rill__max_u64(1, k);
    s.bucket = r->options.bucket;
    s.block = r->options.block;
    s.interval = r->options.threshold_interval;
    s.seed = r->options.seed;
    s.threads = r->options.threads;
    return rill__selector_create_in(r->space, r->type, dim, &s, out);
}

rill_status rill__reducer_check_selection(rill_reducer *r) {
    rill_selector *selector = NULL;
    if (r->space->pick && r->dim > UINT32_MAX)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "rill_reducer_create: dim %llu is above 2^32 - 1, and memory '%s' has no "
                          "selection of so many",
                          (unsigned long long)r->dim, r->space->name);
    if (!r->space->pick || r->choice != RILL__SEND_SELECTED) return RILL_OK;
    RILL_TRY(create_selector(r, r->dim, 1, &selector));
    return rill_selector_free(&selector);
}

static rill_status create_selectors(rill_reducer *r) {
    rill__reducer_selectors_free(r);
    r->feedback.k = r->k;
    bool blocks = r->algorithm && r->algorithm->selects_by_range && strcmp(r->method, "topk") == 0;
    int n = blocks ? (int)rill__min_u64((uint64_t)r->comm->engine.size, rill__max_u64(1, r->dim))
                   : 1;
    if (n > r->selectors_capacity) {
        free(r->selectors);
        free(r->bounds);
        r->selectors = rill__calloc((size_t)n, sizeof(rill_selector *));
        r->bounds = rill__calloc((size_t)n + 1, sizeof *r->bounds);
        free(r->states_before);
        r->states_before = rill__calloc((size_t)n, sizeof *r->states_before);
        r->selectors_capacity = r->selectors && r->bounds && r->states_before ? n : 0;
        if (!r->selectors_capacity)
            return rill__fail(RILL_ERR_MEMORY, "out of memory for %d selectors", n);
    }
    for (int i = 0; i <= n; i++)
        r->bounds[i] = n == 1 ? rill__uniform_bound(r->dim, i, n)
                              : rill__share_bound(&r->feedback, r->dim, n, i);
    for (int i = 0; i < n; i++, r->n_selectors++) {
        uint64_t k = n == 1 ? r->k : rill__share_quota(r->k, n, i);
        RILL_TRY(create_selector(r, r->bounds[i + 1] - r->bounds[i], k, &r->selectors[i]));
    }
    return RILL_OK;
}

rill_status rill__reducer_selectors(rill_reducer *r) {
    rill_status status = create_selectors(r);
    if (status != RILL_OK) rill__reducer_selectors_free(r); /* all of them, or none */
    rill__reducer_remember_selectors(r);
    return status;
}

/* ---- one step ----------------------------------------------------------------------------- */

static rill_status select_with(rill_reducer *r, int i, const void *gradient, void *residual,
                               rill_stream *out) {
    rill_selector *selector = r->selectors[i];
    if (!r->options.feedback) return rill_select(selector, gradient, out);
    selector->guards = r->guards;
    if (r->fed_apart) return rill__select_fed(selector, residual, out);
    rill_status status = rill_select_residual(selector, gradient, residual, out);
    r->skipped = r->skipped || selector->skipped;
    return status;
}

/* The last step may have moved the blocks that the algorithm takes entries from. */
static bool shares_moved(const rill_reducer *r) {
    for (int i = 0; r->n_selectors > 1 && i < r->n_selectors; i++)
        if (r->bounds[i] != rill__share_bound(&r->feedback, r->dim, r->n_selectors, i)) return true;
    return false;
}

/* One range after the other; *done: how many have their gradient in the residual, less what was
 * selected. */
static rill_status select_ranges(rill_reducer *r, const void *gradient, int *done) {
    size_t size = rill__type_size(r->type);
    uint64_t room = 0;
    for (int i = 0; i < r->n_selectors; i++)
        room += rill__share_quota(r->k, r->n_selectors, i);
    /* For all: the ranges together select at most that. */
    RILL_TRY(rill__stream_reserve_pairs(r->selected, rill__min_u64(room, r->dim)));
    for (int i = 0; i < r->n_selectors; i++) {
        uint64_t first = r->bounds[i];
        const void *given = gradient ? (const char *)gradient + first * size : NULL;
        rill_stream part;
        part = *r->part; /* its memory, with the dimension of this range */
        part.dim = r->bounds[i + 1] - first;
        part.index_bytes = rill__index_bytes(part.dim);
        /* They take turns, and so does the memory that one needs. */
        rill__selector_take_room(r->selectors[i], r->selectors[i ? i - 1 : r->n_selectors - 1]);
        rill_status status = select_with(r, i, given, (char *)r->residual.data + first * size,
                                         &part);
        *done = i + 1;
        if (status == RILL_OK) status = rill__stream_append(r->selected, &part, first);
        part.dim = r->dim;
        part.index_bytes = rill__index_bytes(r->dim);
        *r->part = part;
        RILL_TRY(status);
    }
    return RILL_OK;
}

rill_status rill__reducer_ready_selectors(rill_reducer *r) {
    uint64_t k = rill__reducer_stage_k(r);
    if (k == r->k && r->n_selectors && !shares_moved(r)) return RILL_OK;
    r->k = k;
    return rill__reducer_selectors(r);
}

static rill_status select_largest(rill_reducer *r, const void *gradient) {
    int done = 0;
    rill_stream_clear(r->selected);
    rill_status status = rill__reducer_ready_selectors(r);
    r->fed = gradient;
    r->residual_is_zero = false;
    if (status == RILL_OK && r->n_selectors == 1)
        return select_with(r, 0, gradient, r->residual.data, r->selected);
    if (status == RILL_OK) status = select_ranges(r, gradient, &done);
    if (status == RILL_OK) return RILL_OK;
    /* What was selected goes back, and the ranges that had no turn get their gradient. */
    rill__reducer_take_all_back(r);
    uint64_t from = done ? r->bounds[done] : 0;
    size_t offset = from * rill__type_size(r->type);
    if (r->options.feedback && gradient) {
        void *rest = (char *)r->residual.data + offset;
        const void *given = (const char *)gradient + offset;
        if (!r->guards) rill__dense_add(r->space, r->type, rest, given, r->dim - from);
        else if (!rill__dense_add_finite(r->space, r->type, rest, given, r->dim - from))
            r->skipped = true;
    }
    rill_stream_clear(r->selected);
    return status;
}

/* residual += gradient. */
static void feed(rill_reducer *r, const void *gradient) {
    if (!r->guards) rill__dense_add(r->space, r->type, r->residual.data, gradient, r->dim);
    else if (!rill__dense_add_finite(r->space, r->type, r->residual.data, gradient, r->dim))
        r->skipped = true;
    r->residual_is_zero = false;
    r->fed = gradient;
}

static rill_status select_nonzero(rill_reducer *r, const void *gradient) {
    const void *from = gradient;
    if (!r->residual_is_zero) {
        feed(r, gradient);
        from = r->residual.data;
    }
    rill_status status = rill_stream_set_dense(r->selected, from);
    if (status == RILL_OK && rill__reducer_is_topk(r)) status = rill_stream_to_sparse(r->selected);
    if (status != RILL_OK) {
        if (from == gradient) feed(r, gradient);
        return status;
    }
    r->fed = gradient;
    rill_stream *selected = r->selected;
    if (r->guards &&
        rill__dense_drop_nonfinite(r->space, r->type, selected->val.data, selected->nnz))
        r->skipped = true;
    if (!r->residual_is_zero)
        rill__do_clear(r->space, r->residual.data, r->dim * rill__type_size(r->type));
    r->residual_is_zero = true;
    return RILL_OK;
}

/* Whether nobody but the reducer may write to it before the step ends. */
static bool is_ours(const rill_reducer *r, const void *gradient) {
    return gradient == r->momentum.data || gradient == r->scaled.data ||
           gradient == r->fused.data || gradient == r->pending.data;
}

/* A copy of the gradient, finite where values that are not count as 0. */
static rill_status copy_gradient(rill_reducer *r, const void **gradient, bool finite) {
    size_t bytes = r->dim * rill__type_size(r->type);
    RILL_TRY(rill__buffer_reserve_exact(&r->scaled, bytes));
    if (bytes && *gradient != r->scaled.data)
        rill__do_copy(r->space, r->scaled.data, *gradient, bytes);
    if (finite) rill__dense_drop_nonfinite(r->space, r->type, r->scaled.data, r->dim);
    *gradient = r->scaled.data;
    return RILL_OK;
}

/* The gradient itself, not copied; or residual and gradient where micro-batches were added. Whether
 * all is finite is seen in the result. */
static rill_status select_all(rill_reducer *r, const void *gradient) {
    if (!r->residual_is_zero) {
        feed(r, gradient);
        gradient = r->residual.data;
    } else if (r->guards && !r->voids) {
        rill_status status = copy_gradient(r, &gradient, true);
        if (status != RILL_OK) {
            rill__reducer_keep_gradient(r, gradient);
            return status;
        }
    }
    union {
        const void *from;
        void *to;
    } view = {.from = gradient}; /* the stream is an input only */
    r->borrowed.form = RILL__DENSE;
    r->borrowed.nnz = r->dim;
    r->borrowed.val.data = view.to;
    return RILL_OK;
}

/* ---- before the selection ------------------------------------------------------------------- */

static rill_status clip(rill_reducer *r, const void **gradient) {
    double limit = r->options.clip / sqrt(r->comm->engine.size);
    double norm = rill__dense_norm(r->space, r->type, *gradient, r->dim);
    if (r->guards && !isfinite(norm)) {
        r->skipped = true;
        if (r->voids) return RILL_OK;
        RILL_TRY(copy_gradient(r, gradient, true));
        norm = rill__dense_norm(r->space, r->type, *gradient, r->dim);
    }
    if (!(norm > limit)) return RILL_OK;
    RILL_TRY(rill__buffer_reserve_exact(&r->scaled, r->dim * rill__type_size(r->type)));
    rill__dense_scale(r->space, r->type, r->scaled.data, limit / norm, *gradient, r->dim);
    *gradient = r->scaled.data;
    return RILL_OK;
}

/* u = momentum u + gradient, and *gradient = u. */
static rill_status add_momentum(rill_reducer *r, const void **gradient) {
    double momentum = r->options.momentum;
    if (r->guards && !r->voids) RILL_TRY(copy_gradient(r, gradient, true));
    if (!r->voids) {
        rill__dense_decay_add(r->space, r->type, r->momentum.data, momentum, *gradient, r->dim);
    } else if (!rill__dense_decay_add_finite(r->space, r->type, r->momentum.data, momentum,
                                             *gradient, r->dim)) {
        r->skipped = true;
        return RILL_OK;
    }
    r->taken = *gradient;
    *gradient = r->momentum.data;
    return RILL_OK;
}

/* What the step starts from. A step in two halves owns its input: the user's memory is free again
 * between them. */
static rill_status prepare_gradient(rill_reducer *r, const void **gradient) {
    if (r->pending_used) {
        bool finite = true;
        if (r->guards)
            finite = rill__dense_add_finite(r->space, r->type, r->pending.data, *gradient, r->dim);
        else rill__dense_add(r->space, r->type, r->pending.data, *gradient, r->dim);
        *gradient = r->pending.data;
        r->uses_pending = true;
        r->skipped = r->pending_skipped || !finite;
    }
    bool later = r->voids || r->choice == RILL__SEND_ALL ||
                 rill__reducer_can_lose(r); /* it is looked at again */
    if (!r->blocking && later && !is_ours(r, *gradient))
        RILL_TRY(copy_gradient(r, gradient, false));
    if (r->options.clip > 0) RILL_TRY(clip(r, gradient));
    bool unseen = r->choice != RILL__SEND_ALL && !r->options.feedback;
    if (r->guards && unseen && !r->skipped &&
        !rill__dense_is_finite(r->space, r->type, *gradient, r->dim)) {
        r->skipped = true;
        if (!r->voids) RILL_TRY(copy_gradient(r, gradient, true));
    }
    if (r->skipped && r->voids) return RILL_OK;
    return r->options.momentum != 0 ? add_momentum(r, gradient) : RILL_OK;
}

rill_status rill__reducer_select(rill_reducer *r, const void *gradient) {
    if (r->target.apart) {
        rill__reducer_feed_apart(r);
        r->fed_apart = true;
        return select_largest(r, NULL);
    }
    rill_status status = prepare_gradient(r, &gradient);
    if (status != RILL_OK) { /* as it is: neither clipped nor added to the momentum */
        rill__reducer_keep_gradient(r, gradient);
        return status;
    }
    if (r->skipped && r->voids) { /* the step will be void: this rank has nothing to say in it */
        rill_stream_clear(r->selected);
        r->borrowed.form = RILL__SPARSE;
        r->borrowed.nnz = 0;
        return RILL_OK;
    }
    switch (r->choice) {
    case RILL__SEND_ALL: return select_all(r, gradient);
    case RILL__SEND_NONZERO: return select_nonzero(r, gradient);
    default: return select_largest(r, gradient);
    }
}
