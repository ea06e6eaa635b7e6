/* Pairs between two hops: sent, received, added, and the k largest of them.
 *
 * The k-th largest magnitude comes from the kernels of select/ (counts over an array of keys), then the
 * pairs are taken apart in order. Ties go to the lower index, a NaN counts as the largest. */
#include "coll/topk/topk.h"
#include "space/select_kernels.h"

#include <string.h>

/* Where pairs of one kind are appended. */
typedef struct target {
    char *idx, *val;
    uint64_t n;
} target;

static bool target_take(rill__run *run, uint64_t n, target *t) {
    rill__shape shape = run->shape;
    char *idx = rill__run_memory(run, n * shape.index_bytes);
    char *val = rill__run_memory(run, n * rill__type_size(shape.type));
    if (!idx || !val) return false;
    *t = (target){idx, val, 0};
    return true;
}

static rill__part target_part(const target *t, const rill__part *like) {
    return (rill__part){RILL__SPARSE, like->first, like->range, t->n,
                        t->idx,       t->val,      0,           like->space};
}

/* ---- the k largest ------------------------------------------------------------------------ */

typedef struct selection {
    const rill__select_kernels *kernels;
    rill__shape shape;
    const rill__part *part;
    void *keys, *scratch;
    target kept, dropped;
    bool drops; /* what is dropped is wanted */
} selection;

/* Room for all pairs on both sides: the kernel may write as many as it reads. */
static bool selection_start(rill__run *run, const rill__part *part, bool drops, selection *s) {
    *s = (selection){.kernels = rill__select_kernels_get(),
                     .shape = run->shape,
                     .part = part,
                     .drops = drops};
    size_t bytes = part->n * rill__key_bytes(s->shape.type);
    s->keys = rill__run_memory(run, bytes);
    s->scratch = rill__run_memory(run, bytes);
    if (!s->keys || !s->scratch) return false;
    if (!target_take(run, part->n, &s->kept)) return false;
    if (drops && !target_take(run, part->n, &s->dropped)) return false;
    s->kernels->keys(s->shape.type, part->val, part->n, 0, rill__key_none(s->shape.type), s->keys);
    return true;
}

/* Appends the pairs [from, to) whose key is in [low, high). */
static void append(const selection *s, uint64_t from, uint64_t to, uint64_t low, uint64_t high,
                   target *t) {
    if (from == to || low >= high) return;
    unsigned width = s->shape.index_bytes;
    size_t size = rill__type_size(s->shape.type);
    t->n += s->kernels->keep(s->shape, (const char *)s->part->idx + from * width,
                             (const char *)s->part->val + from * size, to - from, low, high,
                             t->idx + t->n * width, t->val + t->n * size);
}

/* The position behind the ties-th key in [from, to) that is this one; there are more. */
static uint64_t behind_tie(const selection *s, uint64_t from, uint64_t key, uint64_t ties) {
    const uint32_t *narrow = s->keys;
    const uint64_t *wide = s->keys;
    bool is_wide = rill__key_bytes(s->shape.type) == 8;
    uint64_t at = from;
    for (; ties; at++)
        ties -= (is_wide ? wide[at] : narrow[at]) == key;
    return at;
}

/* Takes the pairs [from, to) apart. */
static void selection_split(selection *s, uint64_t from, uint64_t to, uint64_t k) {
    rill_type type = s->shape.type;
    uint64_t n = to - from, none = rill__key_none(type);
    uint64_t key = 0, above = none, cut = to; /* before cut the key itself is kept as well */
    if (!k) {
        key = above = none;
    } else if (n > k) {
        const char *keys = (const char *)s->keys + from * rill__key_bytes(type);
        rill__kth kth = s->kernels->kth(type, keys, n, k, s->scratch);
        key = kth.key;
        above = rill__key_above(type, key);
        if (kth.above + kth.equal > k) cut = behind_tie(s, from, key, k - kth.above);
    }
    append(s, from, cut, key, none, &s->kept);
    append(s, cut, to, above, none, &s->kept);
    if (!s->drops) return;
    append(s, from, cut, 0, key, &s->dropped);
    append(s, cut, to, 0, above, &s->dropped);
}

void rill__part_topk(rill__run *run, const rill__part *part, uint64_t k, rill__part *kept,
                     rill__part *dropped) {
    rill__part whole = *part; /* kept may be part */
    if (dropped) *dropped = rill__part_empty(part->first, part->range);
    *kept = whole;
    if (whole.n <= k) return;
    selection s;
    if (!selection_start(run, &whole, dropped != NULL, &s)) {
        *kept = rill__part_empty(whole.first, whole.range);
        return;
    }
    selection_split(&s, 0, whole.n, k);
    *kept = target_part(&s.kept, &whole);
    if (dropped) *dropped = target_part(&s.dropped, &whole);
}

/* ---- the same in blocks of the index space ------------------------------------------------ */

/* Where the pairs of block i end that start at from. */
static uint64_t block_end(const rill__run *run, const rill__part *part, uint64_t from, int i) {
    uint64_t bound = rill__block_bound(run->feedback, run->dim, run->size, i + 1);
    return rill__index_lower_bound(run->shape.index_bytes, part->idx, from, part->n, bound);
}

void rill__part_topk_blocks(rill__run *run, const rill__part *part, int first, int end, uint64_t k,
                            rill__part *kept, rill__part *dropped) {
    rill__part whole = *part;
    int ranks = run->size;
    if (dropped) *dropped = rill__part_empty(part->first, part->range);
    *kept = whole;
    bool over = false;
    uint64_t at = 0;
    for (int i = first; i < end && !over; i++) {
        uint64_t next = block_end(run, &whole, at, i);
        over = next - at > rill__block_quota(k, ranks, i);
        at = next;
    }
    if (!over) return;
    selection s;
    if (!selection_start(run, &whole, dropped != NULL, &s)) {
        *kept = rill__part_empty(whole.first, whole.range);
        return;
    }
    at = 0;
    for (int i = first; i < end; i++) {
        uint64_t next = block_end(run, &whole, at, i);
        selection_split(&s, at, next, rill__block_quota(k, ranks, i));
        at = next;
    }
    *kept = target_part(&s.kept, &whole);
    if (dropped) *dropped = target_part(&s.dropped, &whole);
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
    if (!into->n) {
        into->n = from->n;
        into->idx = from->idx;
        into->val = from->val;
        return;
    }
    target sum;
    if (!target_take(run, into->n + from->n, &sum)) return;
    sum.n = rill__kernels_get()->merge(run->shape, run->op, rill__part_pairs(into),
                                       rill__part_pairs(from), sum.idx, sum.val);
    *into = target_part(&sum, into);
}
