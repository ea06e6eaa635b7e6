/* One pass over the vector with a known key, and the exact cut among what it found.
 *
 * Scan: chunk by chunk the kernel adds the gradient and lists the entries that reach the key; their
 * values are then taken, and cleared, while the chunk is in L1. Entries are found in the order of
 * their index, so the result is sorted. With a limit, a part that holds 1.5 times as many pairs
 * keeps the limit largest of them and goes on with the key above the smallest of these: an entry
 * that comes later must beat it, since ties go to the lower index (which is also why the key rises
 * by one as soon as limit pairs are there: constant data ends here). So a key that is far too low
 * costs time, never memory or exactness. What is thrown out is put back into the residual.
 *
 * Cut: the k-th largest key is sought among the keys below `high` only, if at most k entries are
 * above that: a scan with a good guess leaves a few percent of the pairs there.
 *
 * Memory: min(1.5 limit, entries found) pairs, and their keys below high. Cost: one read of dense,
 * or two reads and a write of gradient and residual, plus about 2 ns per pair. */
#include "select/select.h"

#include <string.h>

static const uint64_t all_keys = UINT64_MAX;
enum { MANY = 24 }; /* one in that many taken: measured */

/* ---- cut ---------------------------------------------------------------------------------- */

static void put_back(rill__slice *p, const rill__source *source, rill__pairs pairs) {
    rill__assign_pairs(p->selector->shape, source->residual, 0, pairs);
}

/* Keeps the pairs [from, to) that have at least this key; they move to p->count. There is room for
 * the others. */
static void cut_range(rill__slice *p, const rill__source *source, uint64_t from, uint64_t to,
                      uint64_t key) {
    const rill_selector *s = p->selector;
    unsigned width = s->shape.index_bytes;
    uint64_t n = to - from;
    char *idx = p->idx->data, *val = p->val->data;
    if (source->residual && n) {
        uint64_t rejected = s->kernels->keep(s->shape, idx + from * width, val + from * s->size, n,
                                             0, key, p->reject_idx.data, p->reject_val.data);
        put_back(p, source, (rill__pairs){rejected, p->reject_idx.data, p->reject_val.data});
    }
    p->count += s->kernels->keep(s->shape, idx + from * width, val + from * s->size, n, key,
                                 all_keys, idx + p->count * width, val + p->count * s->size);
}

/* Where the pairs that may be equal to key end: behind the `ties`-th that is. */
static rill_status end_of_ties(rill__slice *p, uint64_t key, uint64_t ties, uint64_t *end) {
    enum { STEP = 4096 };
    const rill_selector *s = p->selector;
    RILL_TRY(rill__buffer_reserve(&p->scratch, STEP * rill__key_bytes(s->shape.type)));
    uint64_t at = 0;
    for (; at < p->count; at += STEP) { /* the step that has it, by the kernel */
        uint64_t n = rill__min_u64(STEP, p->count - at);
        const char *val = (const char *)p->val->data + at * s->size;
        uint64_t equal = s->kernels->keys(s->shape.type, val, n, key, key + 1, p->scratch.data);
        if (equal >= ties) break;
        ties -= equal;
    }
    for (; ties && at < p->count; at++)
        ties -= rill__key_at(s, p->val->data, at) == key;
    *end = at;
    return RILL_OK;
}

/* Keeps the pairs above key and the first `ties` of the `equal` ones. */
static rill_status cut_part(rill__slice *p, const rill__source *source, uint64_t key, uint64_t ties,
                            uint64_t equal) {
    uint64_t count = p->count, end = ties < equal ? 0 : count;
    if (ties && ties < equal) RILL_TRY(end_of_ties(p, key, ties, &end));
    if (source->residual) { /* before anything moves */
        RILL_TRY(rill__buffer_reserve(&p->reject_idx, count * p->selector->shape.index_bytes));
        RILL_TRY(rill__buffer_reserve(&p->reject_val, count * p->selector->size));
    }
    p->count = 0;
    cut_range(p, source, 0, end, key);
    cut_range(p, source, end, count, key + 1);
    return RILL_OK;
}

static rill_status all_part_keys(rill__slice *p) {
    const rill_selector *s = p->selector;
    RILL_TRY(rill__buffer_reserve(&p->keys, p->count * rill__key_bytes(s->shape.type)));
    p->n_keys = s->kernels->keys(s->shape.type, p->val->data, p->count, 0, all_keys, p->keys.data);
    return RILL_OK;
}

/* Keeps the limit largest. The key from which on a later entry counts is returned in *key. */
static rill_status prune(rill__slice *p, const rill__scan *scan, uint64_t *key) {
    const rill_selector *s = p->selector;
    rill_type type = s->shape.type;
    RILL_TRY(all_part_keys(p));
    rill__kth kth = s->kernels->kth(type, p->keys.data, p->n_keys, scan->limit, p->keys.data);
    RILL_TRY(cut_part(p, &scan->source, kth.key, scan->limit - kth.above, kth.equal));
    p->pruned = true;
    *key = rill__key_above(type, kth.key);
    return RILL_OK;
}

typedef struct cut {
    const rill__source *source;
    uint64_t key;
    struct {
        uint64_t ties, equal;
    } part[];
} cut;

static rill_status cut_work(rill__slice *p, const void *context) {
    const cut *c = context;
    int i = (int)(p - p->selector->slices);
    return cut_part(p, c->source, c->key, c->part[i].ties, c->part[i].equal);
}

rill_status rill__scan_cut(rill_selector *s, const rill__scan *scan, uint64_t k, uint64_t *least) {
    rill__slice *slices = s->slices;
    size_t key_bytes = rill__key_bytes(s->shape.type);
    bool known = scan->high != 0;
    uint64_t above = 0, total = 0;
    cut *c;
    for (int i = 0; i < s->n_slices; i++) {
        known = known && !slices[i].pruned;
        above += slices[i].count - slices[i].n_keys;
    }
    if (!known || above >= k) { /* the guess of high was no good */
        above = 0;
        for (int i = 0; i < s->n_slices; i++)
            RILL_TRY(all_part_keys(&slices[i]));
    }
    for (int i = 0; i < s->n_slices; i++) {
        uint64_t end = total + slices[i].n_keys;
        if (i) {
            RILL_TRY(rill__buffer_grow(&slices[0].keys, total * key_bytes, end * key_bytes));
            if (slices[i].n_keys)
                memcpy((char *)slices[0].keys.data + total * key_bytes, slices[i].keys.data,
                       slices[i].n_keys * key_bytes);
        }
        total = end;
    }
    void *keys = slices[0].keys.data;
    rill__kth kth = s->kernels->kth(s->shape.type, keys, total, k - above, keys);
    if (least) *least = kth.key;
    uint64_t ties = k - above - kth.above;

    /* Equal keys are kept from the first slice on. Mostly all of them are, and none need counting.
     */
    bool count_ties = s->n_slices > 1 && ties < kth.equal;
    RILL_TRY(rill__buffer_reserve(&s->work, sizeof(cut) + (size_t)s->n_slices * sizeof *c->part));
    c = s->work.data;
    c->source = &scan->source;
    c->key = kth.key;
    for (int i = 0; i < s->n_slices; i++) {
        rill__slice *p = &slices[i];
        uint64_t equal = kth.equal;
        if (count_ties) {
            RILL_TRY(rill__buffer_reserve(&p->scratch, p->count * key_bytes));
            equal = s->kernels->keys(s->shape.type, p->val->data, p->count, kth.key, kth.key + 1,
                                     p->scratch.data);
        }
        c->part[i].equal = equal;
        c->part[i].ties = rill__min_u64(ties, equal);
        if (count_ties) ties -= c->part[i].ties;
    }
    return rill__slices_count(s) < s->least_slice ? rill__slices_each(s, cut_work, c)
                                                  : rill__slices_run(s, cut_work, c);
}

void rill__scan_undo(rill_selector *s, const rill__scan *scan) {
    for (int i = 0; i < s->n_slices && scan->source.residual; i++) {
        rill__slice *p = &s->slices[i];
        if (p->count)
            put_back(p, &scan->source, (rill__pairs){p->count, p->idx->data, p->val->data});
        p->count = 0;
    }
}

/* ---- scan --------------------------------------------------------------------------------- */

static rill_status scan_work(rill__slice *p, const void *context) {
    const rill__scan *scan = context;
    const rill_selector *s = p->selector;
    const rill__select_kernels *kernels = s->kernels;
    const rill__source source = scan->source;
    rill_type type = s->shape.type;
    uint32_t offsets[RILL__SELECT_CHUNK + RILL__SLACK / sizeof(uint32_t)];
    size_t key_bytes = rill__key_bytes(type);
    bool many = false; /* the chunk before tells */
    bool wide = s->shape.index_bytes == 8, *guard = rill__slice_guard(p);
    uint64_t key = scan->key, full = scan->limit + scan->limit / 2 + RILL__SELECT_CHUNK;
    RILL_TRY(rill__slice_room(p, rill__min_u64(p->n, scan->expect)));
    for (uint64_t at = p->first, end = p->first + p->n, n; at < end; at += n) {
        uint64_t step = RILL__SELECT_CHUNK, found;
        if (many && !source.gradient) step /= 2; /* taking is most of the work: overlap it more */
        n = rill__min_u64(end - at, step);
        char *residual = source.gradient ? (char *)source.residual + at * s->size : NULL;
        const char *gradient = source.gradient ? (const char *)source.gradient + at * s->size
                                               : NULL;
        RILL_TRY(rill__slice_room(p, n));
        /* Indices of 32 bits go where they belong at once, those of 64 by way of offsets. */
        uint32_t base = wide ? 0 : (uint32_t)at;
        uint32_t *idx = wide ? offsets : (uint32_t *)p->idx->data + p->count;
        if (many && source.gradient) {
            found = kernels->add_take(type, residual, gradient, n, key, base, idx,
                                      (char *)p->val->data + p->count * s->size, guard);
        } else {
            found = source.gradient
                        ? kernels->add_filter(type, residual, gradient, n, key, base, idx, guard)
                        : kernels->filter(type, (const char *)source.dense + at * s->size, n, key,
                                          base, idx);
            rill__slice_values(p, source, wide ? at : 0, found, idx);
        }
        if (wide) rill__slice_indices(p, at, found, offsets);
        p->count += found;
        p->added += n;
        many = found > n / MANY;
        if (!found) continue;
        if (scan->high && !p->pruned) {
            RILL_TRY(rill__buffer_grow(&p->keys, p->n_keys * key_bytes,
                                       (p->n_keys + found) * key_bytes));
            p->n_keys += kernels->keys(type, (char *)p->val->data + (p->count - found) * s->size,
                                       found, 0, scan->high,
                                       (char *)p->keys.data + p->n_keys * key_bytes);
        }
        /* limit pairs with at least this key beat any later one with just that. */
        if (scan->limit && p->count >= scan->limit && key == scan->key)
            key = rill__key_above(type, key);
        if (scan->limit && p->count >= full) RILL_TRY(prune(p, scan, &key));
    }
    return RILL_OK;
}

rill_status rill__scan_run(rill_selector *s, const rill__scan *scan, rill_stream *out) {
    rill__slices_split(s, RILL__SELECT_CHUNK, out);
    rill__scan each = *scan;
    if (s->n_slices > 1) each.expect = scan->expect / (uint64_t)s->n_slices / 4 * 5;
    return rill__slices_run(s, scan_work, &each);
}

static rill_status add_work(rill__slice *p, const void *context) {
    const rill__source *source = context;
    rill__slice_add(p, *source, p->first, p->n);
    return RILL_OK;
}

rill_status rill__add_gradient(rill_selector *s, rill__source *source, rill_stream *out) {
    if (!source->gradient) return RILL_OK;
    rill__slices_split(s, RILL__SELECT_CHUNK, out);
    RILL_TRY(rill__slices_run(s, add_work, source));
    source->gradient = NULL;
    return RILL_OK;
}
