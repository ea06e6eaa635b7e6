/* The host's operations on pairs and blocks in dense vectors, with exact bounds. Pairs and masks
 * are sorted by index and are walked side by side. */
#include "space/host.h"

#include <string.h>

#define ASSIGN(value_t, index_t)                                                                   \
    do {                                                                                           \
        value_t *d = dense;                                                                        \
        const value_t *v = p.val;                                                                  \
        const index_t *x = p.idx;                                                                  \
        for (uint64_t i = 0; i < p.n; i++)                                                         \
            d[x[i] - first] = v[i];                                                                \
    } while (0)

void rill__assign_pairs(rill__shape shape, void *dense, uint64_t first, rill__pairs p) {
    bool wide = shape.index_bytes == 8;
    switch (rill__type_size(shape.type)) {
    case 2:
        if (wide) ASSIGN(uint16_t, uint64_t);
        else ASSIGN(uint16_t, uint32_t);
        break;
    case 4:
        if (wide) ASSIGN(uint32_t, uint64_t);
        else ASSIGN(uint32_t, uint32_t);
        break;
    default:
        if (wide) ASSIGN(uint64_t, uint64_t);
        else ASSIGN(uint64_t, uint32_t);
    }
}

void rill__assign_fill(const rill__kernels *k, rill_type type, void *dense, uint64_t n,
                       const void *value) {
    static const unsigned char zero[8];
    size_t size = rill__type_size(type);
    if (memcmp(value, zero, size) == 0) {
        memset(dense, 0, n * size);
        return;
    }
    uint64_t whole = n & ~(uint64_t)63; /* kernels store whole registers */
    k->fill(type, dense, whole, value);
    for (uint64_t i = whole; i < n; i++)
        memcpy((char *)dense + i * size, value, size);
}

/* Zeros and pairs are put together in a small buffer that stays in the cache. */
uint64_t rill__host_write(rill__shape shape, void *into, uint64_t first, uint64_t n,
                          rill__pairs pairs) {
    enum { CHUNK = 16384, LARGE = 1 << 22 }; /* bytes */
    _Alignas(64) char chunk[CHUNK] = {0};
    size_t size = rill__type_size(shape.type);
    uint64_t at = 0, per_chunk = CHUNK / size;
    bool large = n * size >= LARGE;
    for (uint64_t done = 0; done < n; done += per_chunk) {
        uint64_t count = rill__min_u64(per_chunk, n - done), start = at;
        char *to = (char *)into + done * size;
        if (!large) memset(to, 0, count * size);
        char *target = large ? chunk : to;
        uint64_t base = first + done, end = base + count;
        for (; at < pairs.n && rill__index_at(shape.index_bytes, pairs.idx, at) < end; at++)
            memcpy(target + (rill__index_at(shape.index_bytes, pairs.idx, at) - base) * size,
                   (const char *)pairs.val + at * size, size);
        if (!large) continue;
        rill__copy_past(to, chunk, count * size);
        for (uint64_t i = start; i < at; i++)
            memset(chunk + (rill__index_at(shape.index_bytes, pairs.idx, i) - base) * size, 0,
                   size);
    }
    if (large) rill__copied_past();
    return at;
}

void rill__host_write_blocks(const rill__operation *o, rill__answer *answer) {
    size_t size = rill__type_size(o->type);
    const uint64_t *numbers = o->pairs.idx;
    uint64_t blocks = o->pairs.n / o->block + (o->pairs.n % o->block != 0);
    uint64_t at = 0, end = o->first + o->n;
    memset(o->into, 0, o->n * size);
    for (; at < blocks && numbers[at] * o->block < end; at++) {
        uint64_t start = numbers[at] * o->block;
        uint64_t stop = start + rill__min_u64(o->block, o->end - start);
        uint64_t low = rill__max_u64(start, o->first), high = rill__min_u64(stop, end);
        if (low < high)
            memcpy((char *)o->into + (low - o->first) * size,
                   (const char *)o->pairs.val + (at * o->block + low - start) * size,
                   (high - low) * size);
        if (stop > end) break;
    }
    answer->count = at;
}

static inline void add_at(rill_type type, void *dense, uint64_t at, const void *val, uint64_t i) {
    if (type == RILL_F32) {
        ((float *)dense)[at] += ((const float *)val)[i];
        return;
    }
    size_t size = rill__type_size(type);
    char *to = (char *)dense + at * size;
    rill__value_store(type, to,
                      rill__value_load(type, to) +
                          rill__value_load(type, (const char *)val + i * size));
}

/* Whether index at is wanted; *m: how far the mask has been walked. */
static inline bool wanted(const rill__operation *o, uint64_t at, uint64_t *m) {
    if (o->where == RILL__EVERYWHERE) return true;
    while (*m < o->mask.n && rill__index_at(o->index_bytes, o->mask.idx, *m) < at)
        ++*m;
    bool inside = *m < o->mask.n && rill__index_at(o->index_bytes, o->mask.idx, *m) == at;
    return inside == (o->where == RILL__INSIDE);
}

void rill__host_add_pairs(const rill__operation *given) {
    const rill__operation copy = *given, *o = &copy; /* that stores cannot change */
    for (uint64_t i = 0, m = 0; i < o->pairs.n; i++) {
        uint64_t at = rill__index_at(o->index_bytes, o->pairs.idx, i);
        if (wanted(o, at, &m)) add_at(o->type, o->into, at, o->pairs.val, i);
    }
}

void rill__host_clear_pairs(const rill__operation *o) {
    size_t size = rill__type_size(o->type);
    for (uint64_t i = 0, m = 0; i < o->pairs.n; i++) {
        uint64_t at = rill__index_at(o->index_bytes, o->pairs.idx, i);
        if (wanted(o, at, &m)) memset((char *)o->into + at * size, 0, size);
    }
}

void rill__host_add_blocks(const rill__operation *o) {
    size_t size = rill__type_size(o->type);
    const uint64_t *numbers = o->pairs.idx;
    for (uint64_t done = 0, i = 0, n; done < o->pairs.n; i++, done += n) {
        n = rill__min_u64(o->block, o->pairs.n - done);
        rill__host_add(o->type, (char *)o->into + numbers[i] * o->block * size,
                       (const char *)o->pairs.val + done * size, n);
    }
}

void rill__host_shift(const rill__operation *o) {
    for (uint64_t i = 0; i < o->n; i++)
        rill__index_put(o->index_bytes, o->into, i,
                        o->first + rill__index_at(o->from_bytes, o->from, i));
}
