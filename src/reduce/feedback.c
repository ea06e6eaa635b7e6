/* What was not delivered goes back to the residual; see coll/topk/topk.h for the rule.
 *
 * Everything here is sorted by index: selected, result and returned pairs are walked side by side. */
#include "reduce/reducer.h"

#include <string.h>

static inline void add_at(rill_type type, void *residual, uint64_t at, const void *val,
                          uint64_t i) {
    if (type == RILL_F32) {
        ((float *)residual)[at] += ((const float *)val)[i];
        return;
    }
    size_t size = rill__type_size(type);
    char *to = (char *)residual + at * size;
    rill__value_store(type, to,
                      rill__value_load(type, to) +
                          rill__value_load(type, (const char *)val + i * size));
}

/* Which indices of pairs to add: all of them, those in the mask, or those outside. */
typedef enum where { EVERYWHERE, INSIDE, OUTSIDE } where;

static void add_pairs(rill_reducer *r, const rill__part *pairs, const rill__part *mask,
                      where which) {
    unsigned width = rill__index_bytes(r->dim);
    uint64_t m = 0;
    for (uint64_t i = 0; i < pairs->n; i++) {
        uint64_t at = rill__index_at(width, pairs->idx, i);
        if (which != EVERYWHERE) {
            while (m < mask->n && rill__index_at(width, mask->idx, m) < at)
                m++;
            bool inside = m < mask->n && rill__index_at(width, mask->idx, m) == at;
            if (inside != (which == INSIDE)) continue;
        }
        add_at(r->type, r->residual.data, at, pairs->val, i);
    }
}

static void add_blocks(rill_reducer *r, const rill__part *blocks) {
    size_t size = rill__type_size(r->type);
    const uint64_t *numbers = blocks->idx;
    for (uint64_t done = 0, i = 0; done < blocks->n; i++) {
        uint64_t n = rill__min_u64(blocks->block, blocks->n - done);
        rill__dense_add(r->type, (char *)r->residual.data + numbers[i] * blocks->block * size,
                        (const char *)blocks->val + done * size, n);
        done += n;
    }
}

/* Losses in the dense second phase of an exact sum. */
static void add_range(rill_reducer *r, const rill__part *dense) {
    size_t size = rill__type_size(r->type);
    rill__dense_add(r->type, (char *)r->residual.data + dense->first * size, dense->val, dense->n);
}

static void add_returned(rill_reducer *r, const rill__part *mask, where which) {
    for (int i = 0; i < r->feedback.returns; i++) {
        const rill__part *part = &r->feedback.returned[i].part;
        if (part->form == RILL__DENSE) add_range(r, part);
        else if (part->form == RILL__BLOCKS) add_blocks(r, part);
        else add_pairs(r, part, mask, which);
        r->residual_is_zero = false;
    }
}

static void forget_momentum(rill_reducer *r, const rill__part *mask) {
    if (r->options.momentum == 0 || !r->options.masking) return;
    size_t size = rill__type_size(r->type);
    unsigned width = rill__index_bytes(r->dim);
    const rill_stream *selected = r->selected;
    if (selected->form != RILL__SPARSE) {
        memset(r->momentum.data, 0, r->dim * size);
        return;
    }
    uint64_t m = 0;
    for (uint64_t i = 0; i < selected->nnz; i++) {
        uint64_t at = rill__index_at(width, selected->idx.data, i);
        if (mask) {
            while (m < mask->n && rill__index_at(width, mask->idx, m) < at)
                m++;
            if (m == mask->n || rill__index_at(width, mask->idx, m) != at) continue;
        }
        memset((char *)r->momentum.data + at * size, 0, size);
    }
}

void rill__reducer_take_back(rill_reducer *r) {
    if (r->choice == RILL__SEND_ALL) return;
    if (!rill__reducer_is_topk(r)) {
        forget_momentum(r, NULL);
        if (r->options.feedback) add_returned(r, NULL, EVERYWHERE);
        return;
    }
    rill_stream *result = r->request->out; /* of pairs: entries that are 0 count as not delivered */
    rill__part mask = rill__stream_part(result), own = rill__stream_part(r->selected);
    forget_momentum(r, &mask);
    if (!r->options.feedback) return;
    add_pairs(r, &own, &mask, OUTSIDE);
    add_returned(r, &mask, INSIDE);
    if (own.n) r->residual_is_zero = false;
}

void rill__reducer_take_all_back(rill_reducer *r) {
    if (r->choice == RILL__SEND_ALL || !r->options.feedback) return;
    rill__part own = rill__stream_part(r->selected);
    if (!own.n) return;
    if (own.form == RILL__DENSE) add_range(r, &own);
    else add_pairs(r, &own, NULL, EVERYWHERE);
    r->residual_is_zero = false;
}
