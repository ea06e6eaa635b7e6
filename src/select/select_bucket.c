/* bucket: the k largest magnitudes of every b consecutive entries.
 *
 * Idea: a bucket is small enough for L1, so its exact selection costs no memory traffic, no sample
 * and no second look, and every region of the vector gets its share.
 * Source: SparCML (Renggli et al., SC 2019), b = 512.
 * Restriction: k of a bucket is max(1, round(b * density)), where density is k / dim if k is given;
 * it holds for a shorter last bucket too. Entries that are 0 are left out. b is at most 2^31.
 * Memory: the pairs, and a bucket of keys and offsets. Cost: one read of N (fused: two reads and a
 * write) and about 0.2 us per bucket. */
#include "select/select.h"

#include <math.h>

typedef struct buckets {
    rill__source source;
    uint64_t k; /* of a bucket */
} buckets;

/* Of the entries with this key only the first `ties` stay. */
static uint64_t drop_ties(const rill_selector *s, const void *x, uint64_t key, uint64_t ties,
                          uint64_t n, uint32_t *offsets) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (rill__key_at(s, x, offsets[i]) == key) {
            if (!ties) continue;
            ties--;
        }
        offsets[kept++] = offsets[i];
    }
    return kept;
}

static rill_status bucket_work(rill__part *p, const void *context) {
    const buckets *b = context;
    const rill_selector *s = p->selector;
    const rill__select_kernels *kernels = s->kernels;
    rill_type type = s->shape.type;
    RILL_TRY(rill__buffer_reserve(&p->keys, s->bucket * rill__key_bytes(type)));
    RILL_TRY(rill__buffer_reserve(&p->scratch, s->bucket * sizeof(uint32_t)));
    RILL_TRY(rill__part_room(p, (p->n / s->bucket + 1) * b->k));
    uint32_t *offsets = p->scratch.data;
    for (uint64_t at = p->first, end = p->first + p->n; at < end; at += s->bucket) {
        uint64_t n = rill__min_u64(end - at, s->bucket);
        const char *x = (const char *)b->source.dense + at * s->size;
        if (b->source.gradient)
            kernels->add_filter(type, (char *)b->source.residual + at * s->size,
                                (const char *)b->source.gradient + at * s->size, n,
                                rill__key_none(type), 0, offsets);
        uint64_t live = kernels->keys(type, x, n, 1, UINT64_MAX, p->keys.data), key = 1, found;
        if (live <= b->k) {
            found = kernels->filter(type, x, n, key, 0, offsets);
        } else {
            rill__kth kth = kernels->kth(type, p->keys.data, live, b->k, p->keys.data);
            found = kernels->filter(type, x, n, kth.key, 0, offsets);
            if (found > b->k)
                found = drop_ties(s, x, kth.key, b->k - kth.above, found, offsets);
        }
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
