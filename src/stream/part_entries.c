/* Loops over the entries of parts, for the algorithms. */
#include "stream/part_entries.h"
#include "stream/blocks.h"

#include <string.h>

/* ---- looking ------------------------------------------------------------------------------ */

static unsigned index_width(rill__shape shape, const rill__part *p) {
    return p->form == RILL__BLOCKS ? 8 : shape.index_bytes;
}

uint64_t rill__part_index(rill__shape shape, const rill__part *p, uint64_t i) {
    return rill__index_at(index_width(shape, p), p->idx, i);
}

uint64_t rill__part_below(rill__shape shape, const rill__part *p, uint64_t index) {
    return rill__index_lower_bound(shape.index_bytes, p->idx, 0, p->n, index);
}

rill__part rill__part_entries(rill__shape shape, const rill__part *p, uint64_t from, uint64_t to) {
    if (from == to) return rill__part_empty(0, 0);
    rill__part some = *p;
    some.first = rill__part_index(shape, p, from);
    some.range = rill__part_index(shape, p, to - 1) - some.first + 1;
    some.n = to - from;
    some.idx = (const char *)p->idx + from * shape.index_bytes;
    some.val = (const char *)p->val + from * rill__type_size(shape.type);
    return some;
}

void rill__values_get(rill_type type, const void *val, uint64_t at, uint64_t n, double *x) {
    size_t size = rill__type_size(type);
    const char *from = (const char *)val + at * size;
    for (uint64_t i = 0; i < n; i++)
        x[i] = rill__value_load(type, from + i * size);
}

void rill__values_put(rill_type type, void *val, uint64_t at, uint64_t n, const double *x) {
    size_t size = rill__type_size(type);
    char *to = (char *)val + at * size;
    for (uint64_t i = 0; i < n; i++)
        rill__value_store(type, to + i * size, x[i]);
}

void rill__part_load(rill__shape shape, const rill__part *p, uint64_t from, uint64_t n,
                     uint64_t *idx, double *val) {
    for (uint64_t i = 0; idx && i < n; i++)
        idx[i] = rill__index_at(shape.index_bytes, p->idx, from + i);
    if (val) rill__values_get(shape.type, p->val, from, n, val);
}

void rill__part_load_at(rill__shape shape, const rill__part *p, uint64_t *at,
                        const rill__part *where, uint64_t from, uint64_t n, double *val) {
    size_t size = rill__type_size(shape.type);
    unsigned width = shape.index_bytes;
    for (uint64_t i = 0; i < n; i++) {
        bool there = *at < p->n && rill__index_at(width, p->idx, *at) ==
                                       rill__index_at(width, where->idx, from + i);
        val[i] = there ? rill__value_load(shape.type, (const char *)p->val + *at * size) : 0;
        *at += there;
    }
}

void rill__part_mark(rill__shape shape, const rill__part *p, uint64_t block, uint64_t *bits) {
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t unit = rill__index_at(shape.index_bytes, p->idx, i) / block;
        bits[unit / 64] |= UINT64_C(1) << unit % 64;
    }
}

bool rill__part_is_sound(rill__shape shape, const rill__part *p) {
    const rill__kernels *k = rill__part_space(p)->stream;
    return !p->n || k->check(shape.index_bytes, p->idx, p->n, p->first, p->range) == p->n;
}

/* ---- writing ------------------------------------------------------------------------------ */

rill__part_bytes rill__part_room(rill__shape shape, const rill__part *p) {
    rill__part_bytes bytes = {0, p->n * rill__type_size(shape.type)};
    if (p->form == RILL__SPARSE) bytes.idx = p->n * shape.index_bytes;
    if (p->form == RILL__BLOCKS) bytes.idx = rill__blocks_in(p->n, p->block) * sizeof(uint64_t);
    if (p->form == RILL__BITS) bytes.idx = p->block * sizeof(uint64_t);
    return bytes;
}

void rill__part_frame_to(rill__shape shape, const rill__part *p, void *idx, void *val,
                         rill__part *to) {
    size_t bytes = rill__part_room(shape, p).idx;
    if (bytes) memcpy(idx, p->idx, bytes);
    *to = *p;
    to->idx = idx;
    to->val = val;
}

void rill__part_copy_to(rill__shape shape, const rill__part *p, void *idx, void *val,
                        rill__part *to) {
    size_t bytes = rill__part_room(shape, p).val;
    if (bytes) memcpy(val, p->val, bytes);
    rill__part_frame_to(shape, p, idx, val, to);
}

void rill__part_append_to(rill__shape shape, const rill__part *p, void *idx, void *val,
                          uint64_t at) {
    size_t size = rill__type_size(shape.type);
    if (!p->n) return;
    memcpy((char *)idx + at * shape.index_bytes, p->idx, p->n * shape.index_bytes);
    memcpy((char *)val + at * size, p->val, p->n * size);
}

uint64_t rill__part_compact_to(rill__shape shape, const rill__part *p, const void *fill, void *idx,
                               void *val) {
    return rill__part_space(p)->stream->compact(shape, p->val, p->first, p->range, fill, p->range,
                                                idx, val);
}

void rill__part_fill_to(rill__shape shape, const rill__part *p, const void *fill, void *dense) {
    rill__assign_fill(rill__part_space(p)->stream, shape.type, dense, p->range, fill);
    rill__assign_pairs(shape, dense, p->first, rill__part_pairs(p));
}

uint64_t rill__part_merge_to(rill__shape shape, const rill_op *op, const rill__part *a,
                             const rill__part *b, void *idx, void *val) {
    return rill__part_space(a)->stream->merge(shape, op, rill__part_pairs(a), rill__part_pairs(b),
                                              idx, val);
}

void rill__part_subtract_to(rill_type type, const rill__part *a, const rill__part *b, void *val) {
    if (type == RILL_F32) {
        const float *x = a->val, *y = b->val;
        float *difference = val;
        for (uint64_t i = 0; i < a->n; i++)
            difference[i] = x[i] - y[i];
        return;
    }
    size_t size = rill__type_size(type);
    for (uint64_t i = 0; i < a->n; i++)
        rill__value_store(type, (char *)val + i * size,
                          rill__value_load(type, (const char *)a->val + i * size) -
                              rill__value_load(type, (const char *)b->val + i * size));
}

rill_status rill__parts_unite(rill__shape shape, uint64_t first, uint64_t range, int n,
                              const rill__part *in, rill__pairs *pairs, rill__buffer *scratch,
                              rill__piece *piece) {
    const rill__space *space = rill__parts_space(n, in);
    uint64_t total = 0, count = 0;
    for (int i = 0; i < n; i++) {
        pairs[i] = rill__part_pairs(&in[i]);
        total += in[i].n;
    }
    rill_status status = rill__buffer_reserve(&piece->idx, total * shape.index_bytes);
    if (status == RILL_OK)
        status = rill__buffer_reserve(&piece->val, total * rill__type_size(shape.type));
    if (status == RILL_OK)
        status = rill__sum_pairs(space->stream, shape, RILL_SUM, first, range, n, pairs, scratch,
                                 piece->idx.data, piece->val.data, &count);
    piece->part = (rill__part){RILL__SPARSE,    first,           range, count,
                               piece->idx.data, piece->val.data, 0,     space};
    return status;
}

void rill__values_combine_to(rill_type type, const rill_op *op, void *out, const void *lower,
                             const void *upper, uint64_t n) {
    rill__host()->stream->combine(type, op, out, lower, upper, n);
}

/* Whole registers first, then the rest through a padded copy. */
void rill__values_combine(rill_type type, const rill_op *op, const void *lower, void *upper,
                          uint64_t n) {
    const rill__kernels *k = rill__host()->stream;
    size_t size = rill__type_size(type);
    uint64_t whole = n & ~(uint64_t)63, tail = n - whole;
    k->combine(type, op, upper, lower, upper, whole);
    char low[64 * 8 + RILL__SLACK] = {0}, up[64 * 8 + RILL__SLACK] = {0};
    memcpy(low, (const char *)lower + whole * size, tail * size);
    memcpy(up, (char *)upper + whole * size, tail * size);
    k->combine(type, op, up, low, up, tail);
    memcpy((char *)upper + whole * size, up, tail * size);
}

void rill__indices_of_blocks(unsigned index_bytes, uint64_t words, const uint64_t *bits,
                             uint64_t block, uint64_t dim, void *idx) {
    uint64_t n = 0;
    for (uint64_t w = 0; w < words; w++)
        for (uint64_t rest = bits[w]; rest; rest &= rest - 1) {
            uint64_t unit = w * 64 + (unsigned)__builtin_ctzll(rest), first = unit * block;
            uint64_t end = first + rill__block_extent(block, unit, dim);
            for (uint64_t i = first; i < end; i++, n++)
                rill__index_put(index_bytes, idx, n, i);
        }
}
