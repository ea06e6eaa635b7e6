/* The k-th largest key comes from counts over an array of keys; then the pairs are taken apart in
 * order. */
#include "select/part_select.h"

#include <string.h>

static const rill__select_kernels *kernels_of(const rill__part *p) {
    return rill__part_space(p)->select;
}

/* ---- the k largest ------------------------------------------------------------------------ */

size_t rill__part_split_keys(rill__shape shape, const rill__part *p) {
    return p->n * rill__key_bytes(shape.type);
}

void rill__part_split_start(rill__part_split *s) {
    rill_type type = s->shape.type;
    s->kept = s->dropped = 0;
    kernels_of(s->part)->keys(type, s->part->val, s->part->n, 0, rill__key_none(type), s->keys);
}

/* Appends the pairs [from, to) whose key is in [low, high); returns how many. */
static uint64_t append(const rill__part_split *s, uint64_t from, uint64_t to, uint64_t low,
                       uint64_t high, void *idx, void *val, uint64_t at) {
    if (from == to || low >= high) return 0;
    unsigned width = s->shape.index_bytes;
    size_t size = rill__type_size(s->shape.type);
    return kernels_of(s->part)->keep(s->shape, (const char *)s->part->idx + from * width,
                                     (const char *)s->part->val + from * size, to - from, low, high,
                                     (char *)idx + at * width, (char *)val + at * size);
}

/* The position behind the ties-th key in [from, to) that is this one; there are more. */
static uint64_t behind_tie(const rill__part_split *s, uint64_t from, uint64_t key, uint64_t ties) {
    const uint32_t *narrow = s->keys;
    const uint64_t *wide = s->keys;
    bool is_wide = rill__key_bytes(s->shape.type) == 8;
    uint64_t at = from;
    for (; ties; at++)
        ties -= (is_wide ? wide[at] : narrow[at]) == key;
    return at;
}

void rill__part_split_range(rill__part_split *s, uint64_t from, uint64_t to, uint64_t k) {
    rill_type type = s->shape.type;
    uint64_t n = to - from, none = rill__key_none(type);
    uint64_t key = 0, above = none, cut = to; /* before cut the key itself is kept as well */
    if (!k) {
        key = above = none;
    } else if (n > k) {
        const char *keys = (const char *)s->keys + from * rill__key_bytes(type);
        rill__kth kth = kernels_of(s->part)->kth(type, keys, n, k, s->scratch);
        key = kth.key;
        above = rill__key_above(type, key);
        if (kth.above + kth.equal > k) cut = behind_tie(s, from, key, k - kth.above);
    }
    s->kept += append(s, from, cut, key, none, s->kept_idx, s->kept_val, s->kept);
    s->kept += append(s, cut, to, above, none, s->kept_idx, s->kept_val, s->kept);
    if (!s->dropped_idx) return;
    s->dropped += append(s, from, cut, 0, key, s->dropped_idx, s->dropped_val, s->dropped);
    s->dropped += append(s, cut, to, 0, above, s->dropped_idx, s->dropped_val, s->dropped);
}

/* ---- thresholds --------------------------------------------------------------------------- */

uint64_t rill__part_keep_to(rill__shape shape, const rill__part *p, uint64_t key, void *idx,
                            void *val) {
    if (!p->n) return 0;
    return kernels_of(p)->keep(shape, p->idx, p->val, p->n, key, rill__key_none(shape.type), idx,
                               val);
}

uint64_t rill__parts_kth_key(rill__shape shape, int n, const rill__part *parts, uint64_t k,
                             void *keys) {
    const rill__select_kernels *kernels = rill__parts_space(n, parts)->select;
    size_t key_bytes = rill__key_bytes(shape.type);
    uint64_t total = 0;
    for (int i = 0; i < n; i++)
        total += kernels->keys(shape.type, parts[i].val, parts[i].n, 0, UINT64_MAX,
                               (char *)keys + total * key_bytes);
    return kernels->kth(shape.type, keys, total, k, keys).key;
}

static inline uint64_t key_at(rill_type type, const void *val, uint64_t i) {
    uint64_t bits;
    switch (rill__type_size(type)) {
    case 2: bits = ((const uint16_t *)val)[i]; break;
    case 4: bits = ((const uint32_t *)val)[i]; break;
    default: bits = ((const uint64_t *)val)[i]; break;
    }
    return rill__min_u64(bits & (rill__key_none(type) - 1), rill__key_nan(type));
}

void rill__part_count_bins(rill_type type, const rill__part *p, uint64_t prefix, int high, int low,
                           uint64_t mask, uint64_t *bins) {
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t key = key_at(type, p->val, i);
        if (key && key >> high == prefix) bins[key >> low & mask]++;
    }
}

/* Lines of values that stay in the nearest cache for all keys; counts fit a lane of 16 bits. */
enum { COUNTED_AT_ONCE = 4096 };

/* Signed, as processors compare: without its sign a value is never below 0. */
#define COUNT(ctype, signed_type)                                                                  \
    do {                                                                                           \
        const ctype *bits = p->val, mask = (ctype)(rill__key_none(type) - 1);                      \
        for (uint64_t from = 0; from < p->n; from += COUNTED_AT_ONCE) {                            \
            uint64_t end = rill__min_u64(p->n, from + COUNTED_AT_ONCE);                            \
            for (int m = 0; m < RILL__COUNTED_KEYS; m++) {                                         \
                signed_type key = (signed_type)keys[m], passed = 0;                                \
                for (uint64_t i = from; i < end; i++)                                              \
                    passed = (signed_type)(passed + ((signed_type)(bits[i] & mask) >= key));       \
                counts[m] += (uint64_t)passed;                                                     \
            }                                                                                      \
        }                                                                                          \
    } while (0)

void rill__part_count_from(rill_type type, const rill__part *p, const uint64_t *keys,
                           uint64_t *counts) {
    memset(counts, 0, RILL__COUNTED_KEYS * sizeof *counts);
    switch (rill__type_size(type)) {
    case 2: COUNT(uint16_t, int16_t); break;
    case 4: COUNT(uint32_t, int32_t); break;
    default: COUNT(uint64_t, int64_t); break;
    }
}
