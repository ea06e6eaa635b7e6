/* Parts that are block-sparse: slices, sums block by block, assembly.
 *
 * A sum first unites the numbers of the blocks, which are few, and then adds whole blocks as dense
 * vectors, so that no entry is touched for its index. Lower inputs come first.
 *
 * Memory: the result; on the stack a piece of f32 for 16-bit types. Cost: n compares per block of
 * the result, one pass over the values of inputs and result. */
#include "stream/blocks.h"

#include <string.h>

uint64_t rill__blocks_switch(rill_type type, uint64_t block, uint64_t range) {
    /* n entries take n * size, and 8 bytes a block. */
    unsigned __int128 bytes = (unsigned __int128)rill__type_size(type) * block + 8;
    return range - (uint64_t)((unsigned __int128)range * 8 / bytes);
}

static const uint64_t *numbers_of(const rill__part *p) { return p->idx; }

static uint64_t first_from(const rill__part *p, uint64_t blocks, uint64_t number) {
    uint64_t low = 0, high = blocks;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (numbers_of(p)[mid] < number) low = mid + 1;
        else high = mid;
    }
    return low;
}

rill__part rill__blocks_slice(rill_type type, const rill__part *p, uint64_t first, uint64_t range) {
    rill__part slice = {RILL__BLOCKS, first, range, 0, NULL, NULL, p->block, p->space};
    if (!p->n || !range) return slice;
    uint64_t blocks = rill__blocks_in(p->n, p->block), end = first + range;
    uint64_t from = first_from(p, blocks, first / p->block);
    uint64_t to = first_from(p, blocks, rill__blocks_in(end, p->block));
    if (from == to) return slice;
    slice.n = rill__block_entries(p->block, to - from, numbers_of(p)[to - 1], end);
    slice.idx = numbers_of(p) + from;
    slice.val = (const char *)p->val + from * p->block * rill__type_size(type);
    return slice;
}

bool rill__blocks_next(rill_type type, const rill__part *p, uint64_t at, uint64_t end,
                       uint64_t *cursor, uint64_t *from, uint64_t *n, const void **values) {
    uint64_t blocks = p->n ? rill__blocks_in(p->n, p->block) : 0;
    for (; *cursor < blocks; ++*cursor) {
        uint64_t number = numbers_of(p)[*cursor], start = number * p->block;
        uint64_t stop = start + rill__block_extent(p->block, number, p->first + p->range);
        if (start >= end) return false;
        if (stop <= at) continue;
        *from = rill__max_u64(start, at);
        *n = rill__min_u64(stop, end) - *from;
        *values = (const char *)p->val +
                  (*cursor * p->block + (*from - start)) * rill__type_size(type);
        if (stop <= end) ++*cursor; /* else the rest of it is for the next range */
        return *n > 0;
    }
    return false;
}

void rill__blocks_assign(rill_type type, void *dense, uint64_t first, const rill__part *p) {
    size_t size = rill__type_size(type);
    uint64_t blocks = p->n ? rill__blocks_in(p->n, p->block) : 0;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t number = numbers_of(p)[i];
        memcpy((char *)dense + (number * p->block - first) * size,
               (const char *)p->val + i * p->block * size,
               rill__block_extent(p->block, number, p->first + p->range) * size);
    }
}

uint64_t rill__blocks_compact(rill__shape shape, const rill__part *p, const void *fill, void *idx,
                              void *val) {
    const rill__kernels *k = rill__part_space(p)->stream;
    size_t size = rill__type_size(shape.type);
    uint64_t blocks = p->n ? rill__blocks_in(p->n, p->block) : 0, count = 0;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t number = numbers_of(p)[i];
        uint64_t n = rill__block_extent(p->block, number, p->first + p->range);
        count += k->compact(shape, (const char *)p->val + i * p->block * size, number * p->block, n,
                            fill, n, (char *)idx + count * shape.index_bytes,
                            (char *)val + count * size);
    }
    return count;
}

bool rill__blocks_any(const rill__kernels *k, rill_type type, const void *dense, uint64_t n,
                      const void *fill) {
    /* A limit of 0 makes the kernel stop at the first entry; what it writes lands here. */
    char idx[2 * RILL__SLACK], val[2 * RILL__SLACK];
    return k->compact((rill__shape){type, 4}, dense, 0, n, fill, 0, idx, val) > 0;
}

/* ---- sums ------------------------------------------------------------------------------------ */

enum { PIECE = 1024 }; /* entries that are summed in f32 at a time */

static void combine_wide(const rill__kernels *k, rill_type type, const rill_op *op, int n,
                         const void *const *src, uint64_t count, uint16_t *out) {
    float sum[PIECE + RILL__SLACK / sizeof(float)], next[PIECE + RILL__SLACK / sizeof(float)];
    for (uint64_t at = 0; at < count; at += PIECE) {
        uint64_t m = rill__min_u64(PIECE, count - at);
        rill__values_widen(type, sum, (const uint16_t *)src[0] + at, m);
        for (int i = 1; i < n; i++) {
            rill__values_widen(type, next, (const uint16_t *)src[i] + at, m);
            k->combine(RILL_F32, op, sum, sum, next, m);
        }
        rill__values_narrow(type, out + at, sum, m);
    }
}

void rill__blocks_combine(const rill__kernels *k, rill_type type, const rill_op *op, int n,
                          const void *const *src, uint64_t count, void *out) {
    bool narrow = type == RILL_F16 || type == RILL_BF16;
    if (n == 1) {
        memcpy(out, src[0], count * rill__type_size(type));
    } else if (n > 2 && narrow && op->kind != RILL__USER) {
        combine_wide(k, type, op, n, src, count, out);
    } else {
        k->combine(type, op, out, src[0], src[1], count);
        for (int i = 2; i < n; i++)
            k->combine(type, op, out, out, src[i], count);
    }
}

/* What is left to read of an input. */
typedef struct source {
    const uint64_t *number, *end;
    const char *val;
} source;

static void open_sources(int n, const rill__part *in, source *sources) {
    for (int i = 0; i < n; i++) {
        sources[i] = (source){numbers_of(&in[i]), numbers_of(&in[i]), in[i].val};
        if (in[i].n) sources[i].end += rill__blocks_in(in[i].n, in[i].block);
    }
}

/* The numbers of all inputs, each once. No number is UINT64_MAX, as a dimension is at most that. */
static uint64_t unite(int n, source *sources, uint64_t *numbers) {
    for (uint64_t count = 0;; count++) {
        uint64_t least = UINT64_MAX;
        for (int i = 0; i < n; i++)
            if (sources[i].number < sources[i].end)
                least = rill__min_u64(least, *sources[i].number);
        if (least == UINT64_MAX) return count;
        numbers[count] = least;
        for (int i = 0; i < n; i++)
            if (sources[i].number < sources[i].end && *sources[i].number == least)
                sources[i].number++;
    }
}

static rill_status reserve(rill__buffer *buffer, uint64_t n, size_t size) {
    size_t bytes;
    if (!rill__size_mul(n, size, &bytes))
        return rill__fail(RILL_ERR_MEMORY, "out of memory: %llu entries", (unsigned long long)n);
    return rill__buffer_reserve(buffer, bytes);
}

rill_status rill__blocks_sum(rill_type type, const rill_op *op, uint64_t block, uint64_t first,
                             uint64_t range, int n, const rill__part *in, rill__buffer *scratch,
                             rill__piece *out, bool *dense) {
    size_t size = rill__type_size(type);
    const rill__space *space = rill__parts_space(n, in);
    uint64_t most = 0, end = first + range;
    for (int i = 0; i < n; i++)
        most += in[i].n ? rill__blocks_in(in[i].n, block) : 0;
    RILL_TRY(reserve(&out->idx, most, sizeof(uint64_t)));
    RILL_TRY(reserve(scratch, (uint64_t)n, sizeof(source) + sizeof(void *)));
    source *sources = scratch->data;
    const void **src = (const void **)(sources + n);
    uint64_t *numbers = out->idx.data;
    open_sources(n, in, sources);
    uint64_t blocks = unite(n, sources, numbers);
    uint64_t entries = rill__block_entries(block, blocks, blocks ? numbers[blocks - 1] : 0, end);
    *dense = entries > rill__blocks_switch(type, block, range);
    if (*dense) return RILL_OK;
    RILL_TRY(reserve(&out->val, entries, size));
    open_sources(n, in, sources);
    for (uint64_t b = 0; b < blocks; b++) {
        int found = 0;
        for (int i = 0; i < n; i++) {
            source *s = &sources[i];
            if (s->number == s->end || *s->number != numbers[b]) continue;
            src[found++] = s->val;
            s->val += block * size;
            s->number++;
        }
        rill__blocks_combine(space->stream, type, op, found, src,
                             rill__block_extent(block, numbers[b], end),
                             (char *)out->val.data + b * block * size);
    }
    out->part = (rill__part){RILL__BLOCKS,  first,         range, entries,
                             out->idx.data, out->val.data, block, space};
    return RILL_OK;
}

/* ---- assembly -------------------------------------------------------------------------------- */

/* Appends the blocks of a dense part that have an entry. */
static void append_dense(rill_stream *out, uint64_t *blocks, const rill__part *p) {
    size_t size = rill__type_size(out->type);
    uint64_t last = rill__blocks_in(p->first + p->range, out->block);
    for (uint64_t i = p->first / out->block; i < last; i++) {
        uint64_t n = rill__block_extent(out->block, i, p->first + p->range);
        const char *from = (const char *)p->val + (i * out->block - p->first) * size;
        if (!rill__blocks_any(rill__part_space(p)->stream, out->type, from, n, out->fill)) continue;
        ((uint64_t *)out->idx.data)[*blocks] = i;
        memcpy((char *)out->val.data + *blocks * out->block * size, from, n * size);
        ++*blocks;
    }
}

rill_status rill__blocks_assemble(rill_stream *out, uint64_t block, int n, const rill__part *in) {
    size_t size = rill__type_size(out->type);
    uint64_t entries = 0, blocks = 0, end = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i].n) continue;
        if (in[i].first < end || !rill__blocks_fit(block, in[i].first, in[i].range, out->dim) ||
            (in[i].form == RILL__BLOCKS && in[i].block != block))
            return rill__fail(RILL_ERR_MESSAGE, "part %d is not of the next blocks of %llu entries",
                              i, (unsigned long long)block);
        end = in[i].first + in[i].range;
        entries += in[i].n;
        blocks += rill__blocks_in(in[i].n, block);
    }
    RILL_TRY(rill__stream_reserve_blocks(out, block, blocks, entries));
    blocks = 0;
    for (int i = 0; i < n; i++) {
        if (!in[i].n) continue;
        if (in[i].form == RILL__DENSE) {
            append_dense(out, &blocks, &in[i]);
        } else {
            uint64_t more = rill__blocks_in(in[i].n, block);
            memcpy((uint64_t *)out->idx.data + blocks, in[i].idx, more * sizeof(uint64_t));
            memcpy((char *)out->val.data + blocks * block * size, in[i].val, in[i].n * size);
            blocks += more;
        }
    }
    const uint64_t *numbers = out->idx.data;
    out->nnz = rill__block_entries(block, blocks, blocks ? numbers[blocks - 1] : 0, out->dim);
    return RILL_OK;
}
