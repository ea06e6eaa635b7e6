/* bucket: the k largest magnitudes of every b consecutive entries.
 *
 * Idea: a bucket is small enough for L1, so its exact selection costs no memory traffic, no sample
 * and no second look, and every region of the vector gets its share. The k-th largest of one
 * bucket, less a margin, is the guess for the next: only what reaches it is searched, and the whole
 * bucket if that is less than k.
 * Source: SparCML (Renggli et al., SC 2019), b = 512.
 * Restriction: k of a bucket is max(1, round(b * density)), where density is k / dim if k is given;
 * it holds for a shorter last bucket too. Entries that are 0 are left out. b is at most 2^31.
 * Memory: the pairs, and a bucket of keys and offsets. Cost: one read of N (fused: two reads and a
 * write) and 0.1 us per bucket where the guess holds, 0.5 elsewhere. */
#include "select/select.h"

#include <math.h>

typedef struct buckets {
    rill__source source;
    uint64_t k; /* of a bucket */
} buckets;

/* Keeps the offsets above key and the first `ties` of those equal to it. */
static uint64_t keep_largest(rill_type type, const void *keys, uint64_t key, uint64_t ties,
                             uint64_t n, uint32_t *offsets) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x = type == RILL_F64 ? ((const uint64_t *)keys)[i] : ((const uint32_t *)keys)[i];
        bool tie = x == key && ties;
        ties -= tie;
        offsets[kept] = offsets[i];
        kept += x > key || tie;
    }
    return kept;
}

static void keys_at(const rill_selector *s, const void *x, uint64_t n, const uint32_t *offsets,
                    void *keys) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t key = rill__key_at(s, x, offsets[i]);
        if (s->shape.type == RILL_F64) ((uint64_t *)keys)[i] = key;
        else ((uint32_t *)keys)[i] = (uint32_t)key;
    }
}

/* How far the guess stays below: an eighth of an octave, more for few, whose k-th varies more. */
static uint64_t margin_of(rill_type type, uint64_t k) {
    static const unsigned fraction_bits[] = {
        [RILL_F32] = 23, [RILL_F64] = 52, [RILL_F16] = 10, [RILL_BF16] = 7};
    return UINT64_C(1) << (fraction_bits[type] - (k < 16 ? 2 : 3));
}

static rill_status bucket_work(rill__part *p, const void *context) {
    const buckets *b = context;
    const rill_selector *s = p->selector;
    const rill__select_kernels *kernels = s->kernels;
    rill_type type = s->shape.type;
    uint64_t guess = 1, margin = margin_of(type, b->k);
    size_t key_bytes = rill__key_bytes(type);
    RILL_TRY(rill__buffer_reserve(&p->keys, s->bucket * key_bytes));
    RILL_TRY(rill__buffer_reserve(&p->reject_val, s->bucket * key_bytes));
    RILL_TRY(rill__buffer_reserve(&p->scratch, s->bucket * sizeof(uint32_t)));
    RILL_TRY(rill__part_room(p, (p->n / s->bucket + 1) * rill__min_u64(b->k, s->bucket)));
    uint32_t *offsets = p->scratch.data;
    for (uint64_t at = p->first, end = p->first + p->n; at < end; at += s->bucket) {
        uint64_t n = rill__min_u64(end - at, s->bucket), found;
        const char *x = (const char *)b->source.dense + at * s->size;
        if (b->source.gradient)
            found = kernels->add_filter(type, (char *)b->source.residual + at * s->size,
                                        (const char *)b->source.gradient + at * s->size, n, guess,
                                        0, offsets);
        else found = kernels->filter(type, x, n, guess, 0, offsets);
        bool wrong = found < b->k || found > 3 * b->k + 16;
        if (found < b->k && guess > 1) found = kernels->filter(type, x, n, 1, 0, offsets);
        uint64_t key = 1;
        if (found > b->k) {
            keys_at(s, x, found, offsets, p->keys.data);
            rill__kth kth = kernels->kth(type, p->keys.data, found, b->k, p->reject_val.data);
            found = keep_largest(type, p->keys.data, kth.key, b->k - kth.above, found, offsets);
            key = kth.key;
        }
        if (wrong) guess = key > margin ? key - margin : 1;
        rill__part_take(p, b->source, at, found, offsets);
    }
    return RILL_OK;
}

static rill_status select_bucket(rill_selector *s, rill__source source, rill_stream *out) {
    double k = floor(s->density * (double)s->bucket + 0.5);
    buckets b = {source, rill__max_u64(1, (uint64_t)k)};
    rill__parts_split(s, s->bucket, out);
    RILL_TRY(rill__parts_run(s, bucket_work, &b));
    return rill__parts_join(s, out);
}

const rill__select_method rill__select_bucket = {
    "bucket", "the k largest magnitudes of every b consecutive entries", true, select_bucket};
