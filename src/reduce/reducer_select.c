/* The selection of a step: clip, momentum, residual, and which entries to send. */
#include "reduce/reducer.h"

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
    uint64_t stage = r->steps / o->warmup_steps;
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
    return rill_selector_create(r->type, dim, &s, out);
}

rill_status rill__reducer_selectors(rill_reducer *r) {
    rill__reducer_selectors_free(r);
    r->feedback.k = r->k;
    bool blocks = r->algorithm && r->algorithm->selects_by_range && strcmp(r->method, "topk") == 0;
    int n = blocks ? (int)rill__min_u64((uint64_t)r->comm->engine.size, rill__max_u64(1, r->dim))
                   : 1;
    if (n > r->selectors_capacity) {
        free(r->selectors);
        free(r->bounds);
        r->selectors = calloc((size_t)n, sizeof(rill_selector *));
        r->bounds = calloc((size_t)n + 1, sizeof *r->bounds);
        r->selectors_capacity = r->selectors && r->bounds ? n : 0;
        if (!r->selectors_capacity)
            return rill__fail(RILL_ERR_MEMORY, "out of memory for %d selectors", n);
    }
    for (int i = 0; i <= n; i++)
        r->bounds[i] = n == 1 ? rill__uniform_bound(r->dim, i, n)
                              : rill__block_bound(&r->feedback, r->dim, n, i);
    for (int i = 0; i < n; i++, r->n_selectors++) {
        uint64_t k = n == 1 ? r->k : rill__block_quota(r->k, n, i);
        RILL_TRY(create_selector(r, r->bounds[i + 1] - r->bounds[i], k, &r->selectors[i]));
    }
    return RILL_OK;
}

/* ---- one step ----------------------------------------------------------------------------- */

/* Appends the pairs of a part of the index space that starts at first. */
static rill_status append(rill_stream *into, const rill_stream *part, uint64_t first) {
    size_t size = rill__type_size(into->type);
    uint64_t old = into->nnz, n = old + part->nnz;
    /* Room was reserved for all: parts together select at most that. */
    if (into->idx.capacity < n * into->index_bytes || into->val.capacity < n * size)
        return rill__fail(RILL_ERR_STATE, "a selection is larger than its room");
    for (uint64_t i = 0; i < part->nnz; i++)
        rill__index_put(into->index_bytes, into->idx.data, old + i,
                        first + rill__index_at(part->index_bytes, part->idx.data, i));
    memcpy((char *)into->val.data + old * size, part->val.data, part->nnz * size);
    into->nnz = n;
    return RILL_OK;
}

static rill_status select_with(rill_reducer *r, rill_selector *selector, const void *gradient,
                               void *residual, rill_stream *out) {
    if (r->options.feedback) return rill_select_residual(selector, gradient, residual, out);
    return rill_select(selector, gradient, out);
}

/* The last step may have moved the blocks that the algorithm takes entries from. */
static bool blocks_moved(const rill_reducer *r) {
    for (int i = 0; r->n_selectors > 1 && i < r->n_selectors; i++)
        if (r->bounds[i] != rill__block_bound(&r->feedback, r->dim, r->n_selectors, i)) return true;
    return false;
}

static rill_status select_largest(rill_reducer *r, const void *gradient) {
    size_t size = rill__type_size(r->type);
    uint64_t k = rill__reducer_stage_k(r);
    if (k != r->k || !r->n_selectors || blocks_moved(r)) {
        r->k = k;
        RILL_TRY(rill__reducer_selectors(r));
    }
    if (r->n_selectors == 1)
        return select_with(r, r->selectors[0], gradient, r->residual.data, r->selected);
    uint64_t room = 0;
    for (int i = 0; i < r->n_selectors; i++)
        room += rill__block_quota(r->k, r->n_selectors, i);
    RILL_TRY(rill__stream_reserve_pairs(r->selected, rill__min_u64(room, r->dim)));
    for (int i = 0; i < r->n_selectors; i++) {
        uint64_t first = r->bounds[i];
        rill_stream part;
        part = *r->part; /* its memory, with the dimension of this range */
        part.dim = r->bounds[i + 1] - first;
        part.index_bytes = rill__index_bytes(part.dim);
        rill_status status = select_with(r, r->selectors[i], (const char *)gradient + first * size,
                                         (char *)r->residual.data + first * size, &part);
        if (status == RILL_OK) status = append(r->selected, &part, first);
        part.dim = r->dim;
        part.index_bytes = rill__index_bytes(r->dim);
        *r->part = part;
        RILL_TRY(status);
    }
    return RILL_OK;
}

/* residual += gradient. */
static void feed(rill_reducer *r, const void *gradient) {
    rill__dense_add(r->type, r->residual.data, gradient, r->dim);
    r->residual_is_zero = false;
}

static rill_status select_nonzero(rill_reducer *r, const void *gradient) {
    if (!r->residual_is_zero) {
        feed(r, gradient);
        gradient = r->residual.data;
    }
    RILL_TRY(rill_stream_set_dense(r->selected, gradient));
    if (rill__reducer_is_topk(r)) RILL_TRY(rill_stream_to_sparse(r->selected));
    if (!r->residual_is_zero) memset(r->residual.data, 0, r->dim * rill__type_size(r->type));
    r->residual_is_zero = true;
    return RILL_OK;
}

/* The gradient itself, not copied; or residual and gradient where micro-batches were added. A step in
 * two halves owns its input: the user's memory is free again between them. */
static rill_status select_all(rill_reducer *r, const void *gradient) {
    bool ours = gradient == r->momentum.data || gradient == r->scaled.data ||
                gradient == r->fused.data;
    if (!r->residual_is_zero) {
        feed(r, gradient);
        gradient = r->residual.data;
    } else if (!ours && (!r->blocking || gradient == r->pending.data)) {
        size_t bytes = r->dim * rill__type_size(r->type);
        RILL_TRY(rill__buffer_reserve(&r->scaled, bytes));
        if (bytes) memcpy(r->scaled.data, gradient, bytes);
        gradient = r->scaled.data;
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

static rill_status clip(rill_reducer *r, const void **gradient) {
    double limit = r->options.clip / sqrt(r->comm->engine.size);
    double norm = rill__dense_norm(r->type, *gradient, r->dim);
    if (!(norm > limit)) return RILL_OK;
    RILL_TRY(rill__buffer_reserve(&r->scaled, r->dim * rill__type_size(r->type)));
    rill__dense_scale(r->type, r->scaled.data, limit / norm, *gradient, r->dim);
    *gradient = r->scaled.data;
    return RILL_OK;
}

rill_status rill__reducer_select(rill_reducer *r, const void *gradient) {
    if (r->pending_used) {
        rill__dense_add(r->type, r->pending.data, gradient, r->dim);
        gradient = r->pending.data;
    }
    if (r->options.clip > 0) RILL_TRY(clip(r, &gradient));
    if (r->options.momentum != 0) {
        rill__dense_decay_add(r->type, r->momentum.data, r->options.momentum, gradient, r->dim);
        gradient = r->momentum.data;
    }
    rill_status status = RILL_OK;
    switch (r->choice) {
    case RILL__SEND_ALL: status = select_all(r, gradient); break;
    case RILL__SEND_NONZERO: status = select_nonzero(r, gradient); break;
    default:
        status = select_largest(r, gradient);
        if (r->options.feedback) r->residual_is_zero = false;
        break;
    }
    if (r->pending_used) memset(r->pending.data, 0, r->dim * rill__type_size(r->type));
    r->pending_used = false;
    return status;
}
