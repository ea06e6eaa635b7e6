/* Pairs between two hops: sent, received, added, and the k largest of them.
 * Which they are is found by select/part_select.h. */
#include "coll/topk/topk.h"

/* ---- the k largest ------------------------------------------------------------------------ */

static bool take_pairs(rill__run *run, uint64_t n, void **idx, void **val) {
    *idx = rill__run_memory(run, n * run->shape.index_bytes);
    *val = rill__run_memory(run, n * rill__type_size(run->shape.type));
    return *idx && *val;
}

/* Room for all pairs on both sides: the kernel may write as many as it reads. */
static bool split_start(rill__run *run, const rill__part *part, bool drops, rill__part_split *s) {
    size_t bytes = rill__part_split_keys(run->shape, part);
    *s = (rill__part_split){.shape = run->shape, .part = part};
    s->keys = rill__run_memory(run, bytes);
    s->scratch = rill__run_memory(run, bytes);
    if (!s->keys || !s->scratch) return false;
    if (!take_pairs(run, part->n, &s->kept_idx, &s->kept_val)) return false;
    if (drops && !take_pairs(run, part->n, &s->dropped_idx, &s->dropped_val)) return false;
    rill__part_split_start(s);
    return true;
}

static void split_end(const rill__part_split *s, rill__part *kept, rill__part *dropped) {
    rill__part like = *s->part;
    *kept = (rill__part){RILL__SPARSE, like.first,  like.range, s->kept,
                         s->kept_idx,  s->kept_val, 0,          like.space};
    if (dropped)
        *dropped = (rill__part){RILL__SPARSE,   like.first,     like.range, s->dropped,
                                s->dropped_idx, s->dropped_val, 0,          like.space};
}

void rill__part_topk(rill__run *run, const rill__part *part, uint64_t k, rill__part *kept,
                     rill__part *dropped) {
    rill__part whole = *part; /* kept may be part */
    if (dropped) *dropped = rill__part_empty(part->first, part->range);
    *kept = whole;
    if (whole.n <= k) return;
    rill__part_split s;
    if (!split_start(run, &whole, dropped != NULL, &s)) {
        *kept = rill__part_empty(whole.first, whole.range);
        return;
    }
    rill__part_split_range(&s, 0, whole.n, k);
    split_end(&s, kept, dropped);
}

/* ---- the same in shares of the index space ------------------------------------------------ */

/* Where the pairs of share i end. */
static uint64_t share_end(const rill__run *run, const rill__part *part, int i) {
    uint64_t bound = rill__share_bound(run->feedback, run->dim, run->size, i + 1);
    return rill__part_below(run->shape, part, bound);
}

void rill__part_topk_shares(rill__run *run, const rill__part *part, int first, int end, uint64_t k,
                            rill__part *kept, rill__part *dropped) {
    rill__part whole = *part;
    int ranks = run->size;
    if (dropped) *dropped = rill__part_empty(part->first, part->range);
    *kept = whole;
    bool over = false;
    uint64_t at = 0;
    for (int i = first; i < end && !over; i++) {
        uint64_t next = share_end(run, &whole, i);
        over = next - at > rill__share_quota(k, ranks, i);
        at = next;
    }
    if (!over) return;
    rill__part_split s;
    if (!split_start(run, &whole, dropped != NULL, &s)) {
        *kept = rill__part_empty(whole.first, whole.range);
        return;
    }
    at = 0;
    for (int i = first; i < end; i++) {
        uint64_t next = share_end(run, &whole, i);
        rill__part_split_range(&s, at, next, rill__share_quota(k, ranks, i));
        at = next;
    }
    split_end(&s, kept, dropped);
}

/* ---- sent, received and added ------------------------------------------------------------- */

rill__part rill__received_pairs(rill__run *run, const rill__message *message, uint64_t first,
                                uint64_t range) {
    const rill__header *h = &message->header;
    if (h->form == RILL__M_SPARSE && h->first == first && h->range == range)
        return rill__run_part(run, message);
    rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE,
                                   "malformed message: not the %llu indices from %llu on",
                                   (unsigned long long)range, (unsigned long long)first));
    return rill__part_empty(first, range);
}

void rill__part_add_pairs(rill__run *run, rill__part *into, const rill__part *from) {
    if (!from->n || rill__run_failed(run)) return;
    rill__part sum = *into;
    if (!into->n) {
        sum = *from;
    } else {
        void *idx, *val;
        if (!take_pairs(run, into->n + from->n, &idx, &val)) return;
        sum.n = rill__part_merge_to(run->shape, run->op, into, from, idx, val);
        sum.idx = idx;
        sum.val = val;
    }
    sum.first = into->first;
    sum.range = into->range;
    *into = sum;
}
