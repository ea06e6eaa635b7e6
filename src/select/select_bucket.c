/* bucket: the k largest magnitudes of every b consecutive entries.
 *
 * Idea: a bucket is small enough for L1, so its exact selection costs no memory traffic, no sample
 * and no second look, and every region of the vector gets its share. The k-th largest of one
 * bucket, less a margin, is the guess for the next: only what reaches it is searched, and the whole
 * bucket if that is less than k. Should far more than k reach it, the bucket is filtered again from
 * the k-th largest of a sample of them on; and where fewer than k are above a key, the others are
 * ties, of which the first ones are taken as they stand.
 * Source: SparCML (Renggli et al., SC 2019), b = 512.
 * Restriction: k of a bucket is max(1, round(b * density)), where density is k / dim if k is given;
 * it holds for a shorter last bucket too. Entries that are 0 are left out. b is at most 2^31.
 * Memory: the pairs, and a bucket of keys and offsets. Cost: one read of N (fused: two reads and a
 * write) and about 0.1 us per bucket of 512. */
#include "select/select.h"

#include <math.h>
#include <string.h>

typedef struct buckets {
    rill__source source;
    uint64_t k; /* of a bucket */
} buckets;

/* Keeps the offsets above key and the first `ties` of those equal to it. */
static void keep_largest(rill_type type, const void *keys, uint64_t key, uint64_t ties, uint64_t n,
                         uint32_t *offsets) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x = type == RILL_F64 ? ((const uint64_t *)keys)[i] : ((const uint32_t *)keys)[i];
        bool tie = x == key && ties;
        ties -= tie;
        offsets[kept] = offsets[i];
        kept += x > key || tie;
    }
}

#define KEYS_AT(bits_t, key_t)                                                                     \
    for (uint64_t i = 0; i < n; i++)                                                               \
    ((key_t *)keys)[i] = (key_t)rill__min_u64(((const bits_t *)x)[offsets[i * step]] & magnitude,  \
                                              nan)

/* Keys of every step-th of the offsets, n in all. */
static void keys_at(rill_type type, const void *x, uint64_t n, uint64_t step,
                    const uint32_t *offsets, void *keys) {
    uint64_t nan = rill__key_nan(type), magnitude = rill__key_none(type) - 1;
    switch (rill__type_size(type)) {
    case 2: KEYS_AT(uint16_t, uint32_t); break;
    case 4: KEYS_AT(uint32_t, uint32_t); break;
    default: KEYS_AT(uint64_t, uint64_t);
    }
}

/* How far the guess stays below: an eighth of an octave, more for few, whose k-th varies more. */
static uint64_t margin_of(rill_type type, uint64_t k) {
    static const unsigned fraction_bits[] = {
        [RILL_F32] = 23, [RILL_F64] = 52, [RILL_F16] = 10, [RILL_BF16] = 7};
    return UINT64_C(1) << (fraction_bits[type] - (k < 16 ? 2 : 3));
}

/* A bucket and what its search needs. */
typedef struct search {
    const rill__select_kernels *kernels;
    rill_type type;
    const void *x;
    uint64_t n, k;
    void *keys, *scratch;
    uint32_t *offsets, *above; /* room for a bucket each */
    uint64_t key;              /* the k-th largest, once found */
    bool ties;                 /* it has more than one */
} search;

static uint64_t filter_from(const search *s, uint64_t key, uint32_t *offsets) {
    return s->kernels->filter(s->type, s->x, s->n, key, 0, offsets);
}

/* Fewer than k are above the key of the other offsets: the first of those, up to the last that is
 * needed, and the rest of the larger ones. */
static void take_ties(search *s, uint64_t larger) {
    uint64_t ties = s->k - larger, i = 0, seen = 0;
    for (; ties; i++) {
        bool tie = seen == larger || s->above[seen] != s->offsets[i];
        ties -= tie;
        seen += !tie;
    }
    memcpy(s->offsets + i, s->above + seen, (larger - seen) * sizeof *s->above);
}

/* Picks the k largest of the found > k offsets, which are all that there are from key on. */
static void pick(search *s, uint64_t found, uint64_t key) {
    const uint64_t few = 2 * s->k + 16, sample = 2 * s->k + 8;
    while (found > few) {
        uint64_t next = rill__key_above(s->type, key), larger = filter_from(s, next, s->above);
        if (larger < s->k) {
            take_ties(s, larger);
            s->key = key;
            s->ties = true;
            return;
        }
        uint32_t *swap = s->offsets;
        s->offsets = s->above;
        s->above = swap;
        found = larger;
        key = next;
        if (found <= few) break;
        keys_at(s->type, s->x, sample, found / sample, s->offsets, s->keys);
        key = s->kernels->kth(s->type, s->keys, sample, s->k, s->scratch).key;
        found = filter_from(s, key, s->offsets);
    }
    keys_at(s->type, s->x, found, 1, s->offsets, s->keys);
    rill__kth kth = s->kernels->kth(s->type, s->keys, found, s->k, s->scratch);
    keep_largest(s->type, s->keys, kth.key, s->k - kth.above, found, s->offsets);
    s->key = kth.key;
}

static rill_status search_make(rill__slice *p, const buckets *b, search *s) {
    const rill_selector *selector = p->selector;
    rill_type type = selector->shape.type;
    size_t keys = selector->bucket * rill__key_bytes(type), room = selector->bucket * 4;
    RILL_TRY(rill__buffer_reserve(&p->keys, keys));
    RILL_TRY(rill__buffer_reserve(&p->reject_val, keys));
    RILL_TRY(rill__buffer_reserve(&p->scratch, room));
    RILL_TRY(rill__buffer_reserve(&p->reject_idx, room));
    *s = (search){.kernels = selector->kernels,
                  .type = type,
                  .k = b->k,
                  .keys = p->keys.data,
                  .scratch = p->reject_val.data,
                  .offsets = p->scratch.data,
                  .above = p->reject_idx.data};
    return RILL_OK;
}

static rill_status bucket_work(rill__slice *p, const void *context) {
    const buckets *b = context;
    const rill_selector *selector = p->selector;
    unsigned size = selector->size;
    uint64_t guess = 1, margin = margin_of(selector->shape.type, b->k);
    search s;
    RILL_TRY(search_make(p, b, &s));
    RILL_TRY(
        rill__slice_room(p, (p->n / selector->bucket + 1) * rill__min_u64(b->k, selector->bucket)));
    for (uint64_t at = p->first, end = p->first + p->n; at < end; at += s.n) {
        uint64_t found, from = guess;
        s.n = rill__min_u64(end - at, selector->bucket);
        s.x = (const char *)b->source.dense + at * size;
        s.key = 1;
        s.ties = false;
        if (b->source.gradient)
            found = s.kernels->add_filter(s.type, (char *)b->source.residual + at * size,
                                          (const char *)b->source.gradient + at * size, s.n, guess,
                                          0, s.offsets, rill__slice_guard(p));
        else found = filter_from(&s, guess, s.offsets);
        p->added += s.n;
        bool wrong = found < b->k || found > 3 * b->k + 16;
        if (found < b->k && guess > 1) found = filter_from(&s, from = 1, s.offsets);
        if (found > b->k) {
            pick(&s, found, from);
            found = b->k;
        }
        /* The k-th of data with many ties is likely that of the next bucket too. */
        if (wrong) guess = s.ties ? s.key : s.key > margin ? s.key - margin : 1;
        rill__slice_take(p, b->source, at, found, s.offsets);
    }
    return RILL_OK;
}

static rill_status select_bucket(rill_selector *s, rill__source source, rill_stream *out) {
    double k = floor(s->density * (double)s->bucket + 0.5);
    buckets b = {source, rill__max_u64(1, (uint64_t)k)};
    rill__slices_split(s, s->bucket, out);
    RILL_TRY(rill__slices_run(s, bucket_work, &b));
    return rill__slices_join(s, out);
}

static rill__pick ask_bucket(const rill_selector *s, uint64_t *room) {
    uint64_t k = rill__max_u64(1, (uint64_t)floor(s->density * (double)s->bucket + 0.5));
    uint64_t n = s->dim / s->bucket + (s->dim % s->bucket != 0);
    *room = rill__min_u64(n * k, s->dim);
    return (rill__pick){.kind = RILL__PICK_BUCKET, .k = k, .group = s->bucket};
}

const rill__select_method rill__select_bucket = {
    .name = "bucket",
    .description = "the k largest magnitudes of every b consecutive entries",
    .needs_share = true,
    .select = select_bucket,
    .ask = ask_bucket,
    .ahead = RILL__AHEAD,
};
