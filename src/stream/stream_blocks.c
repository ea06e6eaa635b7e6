/* The block-sparse form of streams: contents in, conversions from and to the other forms, union.
 *
 * Idea. Entries that come in blocks, such as the rows of an embedding, are stored and sent as dense
 *   blocks with one number each, so that an index costs 1/block per entry and sums are dense ones.
 * Source. OmniReduce (Fei et al., SIGCOMM 2021).
 * Memory. 8 bytes a block, and all entries of the stored blocks. */
#include "stream/blocks.h"

#include <stdlib.h>
#include <string.h>

rill_status rill__stream_reserve_blocks(rill_stream *s, uint64_t block, uint64_t n,
                                        uint64_t entries) {
    size_t idx_bytes, val_bytes;
    if (!rill__size_mul(n, sizeof(uint64_t), &idx_bytes) ||
        !rill__size_mul(entries, rill__type_size(s->type), &val_bytes))
        return rill__fail(RILL_ERR_MEMORY, "out of memory: %llu blocks", (unsigned long long)n);
    RILL_TRY(rill__buffer_reserve(&s->idx, idx_bytes));
    RILL_TRY(rill__buffer_reserve(&s->val, val_bytes));
    s->form = RILL__BLOCKS;
    s->block = block;
    s->nnz = entries;
    return RILL_OK;
}

/* ---- contents in ----------------------------------------------------------------------------- */

typedef struct given {
    uint64_t number, position;
} given;

static int by_number(const void *a, const void *b) {
    const given *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static uint64_t *numbers_of(const rill_stream *s) { return s->idx.data; }

static void set_sorted(rill_stream *s, uint64_t n, const uint64_t *blocks, const void *values) {
    memcpy(s->idx.data, blocks, n * sizeof *blocks);
    memcpy(s->val.data, values, s->nnz * rill__type_size(s->type));
}

/* Blocks of the same number are summed in the order given. */
static rill_status set_unsorted(rill_stream *s, uint64_t block, uint64_t n, const uint64_t *blocks,
                                const void *values) {
    size_t size = rill__type_size(s->type);
    given *order = rill__malloc(n * sizeof *order);
    const void **src = rill__malloc(n * sizeof *src);
    rill_status status = order && src ? RILL_OK
                                      : rill__fail(RILL_ERR_MEMORY, "out of memory: %llu blocks",
                                                   (unsigned long long)n);
    uint64_t distinct = 0;
    if (status == RILL_OK) {
        for (uint64_t i = 0; i < n; i++)
            order[i] = (given){blocks[i], i};
        qsort(order, n, sizeof *order, by_number);
        for (uint64_t i = 0; i < n; i++)
            distinct += i == 0 || order[i].number != order[i - 1].number;
        status = rill__stream_reserve_blocks(s, block, distinct,
                                             rill__block_entries(block, distinct,
                                                                 order[n - 1].number, s->dim));
    }
    for (uint64_t i = 0, at = 0; status == RILL_OK && i < n; at++) {
        uint64_t number = order[i].number;
        int same = 0;
        for (; i < n && order[i].number == number; i++)
            src[same++] = (const char *)values + order[i].position * block * size;
        numbers_of(s)[at] = number;
        rill__blocks_combine(rill__stream_space(s)->stream, s->type, RILL_SUM, same, src,
                             rill__block_extent(block, number, s->dim),
                             (char *)s->val.data + at * block * size);
    }
    free(src);
    free(order);
    return status;
}

static rill_status check_blocks(const rill_stream *s, uint64_t block, uint64_t n,
                                const uint64_t *blocks, bool *sorted) {
    uint64_t have = rill__blocks_in(s->dim, block);
    *sorted = true;
    for (uint64_t i = 0; i < n; i++) {
        if (blocks[i] >= have)
            return rill__fail(RILL_ERR_RANGE,
                              "rill_stream_set_blocks: blocks[%llu] = %llu is not below %llu, the "
                              "blocks of %llu entries in dimension %llu",
                              (unsigned long long)i, (unsigned long long)blocks[i],
                              (unsigned long long)have, (unsigned long long)block,
                              (unsigned long long)s->dim);
        if (i && blocks[i] <= blocks[i - 1]) *sorted = false;
    }
    return RILL_OK;
}

rill_status rill_stream_set_blocks(rill_stream *s, uint64_t block, uint64_t n,
                                   const uint64_t *blocks, const void *values) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_set_blocks: stream is NULL");
    if (!block) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_set_blocks: block = 0");
    if (n && !blocks)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_set_blocks: blocks is NULL");
    if (n && !values)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_set_blocks: values is NULL");
    if (rill__stream_is_foreign(s))
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "rill_stream_set_blocks: the stream lies in memory '%s'; set one of the "
                          "host, and copy it",
                          s->space->name);
    bool sorted;
    RILL_TRY(check_blocks(s, block, n, blocks, &sorted));
    if (n > INT32_MAX && !sorted)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "rill_stream_set_blocks: %llu blocks must be sorted and unique",
                          (unsigned long long)n);
    if (sorted) {
        uint64_t last = n ? blocks[n - 1] : 0;
        RILL_TRY(
            rill__stream_reserve_blocks(s, block, n, rill__block_entries(block, n, last, s->dim)));
        if (n) set_sorted(s, n, blocks, values);
    } else {
        RILL_TRY(set_unsorted(s, block, n, blocks, values));
    }
    memset(s->fill, 0, sizeof s->fill);
    return RILL_OK;
}

/* ---- conversions ----------------------------------------------------------------------------- */

/* Blocks that have one of the pairs; numbers may be NULL. */
static uint64_t blocks_of_pairs(const rill__pairs *p, unsigned index_bytes, uint64_t block,
                                uint64_t dim, uint64_t *numbers) {
    uint64_t count = 0, end = 0;
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t index = rill__index_at(index_bytes, p->idx, i);
        if (index < end) continue;
        uint64_t number = index / block;
        end = number * block + rill__block_extent(block, number, dim);
        if (numbers) numbers[count] = number;
        count++;
    }
    return count;
}

static rill_status from_pairs(rill_stream *to, const rill__pairs *p, uint64_t block,
                              const void *fill) {
    rill__shape shape = rill__stream_shape(to);
    size_t size = rill__type_size(to->type);
    uint64_t blocks = blocks_of_pairs(p, shape.index_bytes, block, to->dim, NULL), entries = 0;
    if (blocks) {
        uint64_t last = rill__index_at(shape.index_bytes, p->idx, p->n - 1) / block;
        entries = rill__block_entries(block, blocks, last, to->dim);
    }
    RILL_TRY(rill__stream_reserve_blocks(to, block, blocks, entries));
    blocks_of_pairs(p, shape.index_bytes, block, to->dim, numbers_of(to));
    if (entries)
        rill__assign_fill(rill__stream_space(to)->stream, to->type, to->val.data, entries, fill);
    for (uint64_t i = 0, b = 0; i < p->n; b++) {
        uint64_t first = numbers_of(to)[b] * block;
        uint64_t extent = rill__block_extent(block, numbers_of(to)[b], to->dim), from = i;
        while (i < p->n && rill__index_at(shape.index_bytes, p->idx, i) - first < extent)
            i++;
        rill__pairs inside = {i - from, (const char *)p->idx + from * shape.index_bytes,
                              (const char *)p->val + from * size};
        rill__assign_pairs(shape, (char *)to->val.data + b * block * size, first, inside);
    }
    return RILL_OK;
}

static bool block_has_entry(const rill_stream *from, uint64_t block, uint64_t number) {
    const char *values = from->val.data;
    return rill__blocks_any(rill__stream_space(from)->stream, from->type,
                            values + number * block * rill__type_size(from->type),
                            rill__block_extent(block, number, from->dim), from->fill);
}

static rill_status from_dense(rill_stream *to, const rill_stream *from, uint64_t block,
                              const void *fill) {
    const rill__kernels *k = rill__stream_space(from)->stream;
    size_t size = rill__type_size(to->type);
    uint64_t have = rill__blocks_in(from->dim, block), blocks = 0;
    RILL_TRY(rill__buffer_reserve(&to->idx, have * sizeof(uint64_t)));
    for (uint64_t i = 0; i < have; i++)
        if (block_has_entry(from, block, i)) numbers_of(to)[blocks++] = i;
    uint64_t last = blocks ? numbers_of(to)[blocks - 1] : 0;
    RILL_TRY(rill__stream_reserve_blocks(to, block, blocks,
                                         rill__block_entries(block, blocks, last, to->dim)));
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t number = numbers_of(to)[i];
        k->replace(to->type, (char *)to->val.data + i * block * size,
                   (const char *)from->val.data + number * block * size,
                   rill__block_extent(block, number, to->dim), from->fill, fill);
    }
    return RILL_OK;
}

/* The entries of a block-sparse or dense stream in the spare memory of another. */
static rill_status spare_pairs(rill_stream *to, const rill_stream *from, rill__pairs *pairs) {
    rill__shape shape = rill__stream_shape(from);
    size_t idx_bytes, val_bytes;
    if (!rill__size_mul(from->nnz, shape.index_bytes, &idx_bytes) ||
        !rill__size_mul(from->nnz, rill__type_size(from->type), &val_bytes))
        return rill__fail(RILL_ERR_MEMORY, "out of memory: %llu pairs",
                          (unsigned long long)from->nnz);
    RILL_TRY(rill__buffer_reserve(&to->spare_idx, idx_bytes));
    RILL_TRY(rill__buffer_reserve(&to->spare_val, val_bytes));
    *pairs = (rill__pairs){0, to->spare_idx.data, to->spare_val.data};
    if (!from->nnz) return RILL_OK;
    rill__part part = rill__stream_part(from);
    if (from->form == RILL__BLOCKS)
        pairs->n = rill__blocks_compact(shape, &part, from->fill, to->spare_idx.data,
                                        to->spare_val.data);
    else
        pairs->n = rill__part_space(&part)->stream->compact(shape, from->val.data, 0, from->dim,
                                                            from->fill, from->dim,
                                                            to->spare_idx.data, to->spare_val.data);
    return RILL_OK;
}

static rill_status same_blocks(rill_stream *to, const rill_stream *from, const void *fill) {
    uint64_t blocks = rill__blocks_in(from->nnz, from->block);
    RILL_TRY(rill__stream_reserve_blocks(to, from->block, blocks, from->nnz));
    if (!blocks) return RILL_OK;
    memcpy(to->idx.data, from->idx.data, blocks * sizeof(uint64_t));
    rill__stream_space(from)->stream->replace(to->type, to->val.data, from->val.data, from->nnz,
                                              from->fill, fill);
    return RILL_OK;
}

rill_status rill__stream_convert(rill_stream *to, const rill_stream *from, uint64_t block,
                                 const void *fill) {
    rill_status status;
    rill__pairs pairs = rill__stream_pairs(from);
    if (block && from->form == RILL__DENSE) {
        status = from_dense(to, from, block, fill);
    } else if (block && from->form == RILL__BLOCKS && from->block == block) {
        status = same_blocks(to, from, fill);
    } else {
        if (from->form != RILL__SPARSE) RILL_TRY(spare_pairs(to, from, &pairs));
        if (block) {
            status = from_pairs(to, &pairs, block, fill);
        } else if (from->form == RILL__SPARSE) {
            status = rill_stream_copy(to, from);
        } else {
            rill__stream_take_spare(to);
            to->form = RILL__SPARSE;
            to->nnz = pairs.n;
            status = RILL_OK;
        }
    }
    memcpy(to->fill, fill, rill__type_size(to->type));
    return status;
}

rill_status rill_stream_to_blocks(rill_stream *s, uint64_t block) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_to_blocks: stream is NULL");
    if (!block) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_to_blocks: block = 0");
    if (s->form == RILL__BLOCKS && s->block == block) return RILL_OK;
    rill_stream to;
    if (rill__stream_is_foreign(s)) {
        rill_status done = rill__stream_fetch(s, &to);
        if (done == RILL_OK) done = rill_stream_to_blocks(&to, block);
        return rill__stream_put_back(s, &to, done);
    }
    rill__stream_init(&to, s->type, s->dim);
    to.idx = s->spare_idx;
    to.val = s->spare_val;
    rill_status status = rill__stream_convert(&to, s, block, s->fill);
    s->spare_idx = to.idx;
    s->spare_val = to.val;
    to.idx = to.val = (rill__buffer){.data = NULL};
    if (status == RILL_OK) {
        rill__stream_take_spare(s);
        s->form = RILL__BLOCKS;
        s->block = block;
        s->nnz = to.nnz;
    }
    rill__stream_release(&to);
    return status;
}

/* ---- union ----------------------------------------------------------------------------------- */

rill_status rill__stream_concat_blocks(rill_stream *into, const rill_stream *from, bool *disjoint) {
    size_t size = rill__type_size(into->type);
    uint64_t block = into->block, entries = into->nnz + from->nnz, i = 0, j = 0, at = 0;
    uint64_t n = rill__blocks_in(into->nnz, block), m = rill__blocks_in(from->nnz, block);
    const uint64_t *a = numbers_of(into), *b = numbers_of(from);
    *disjoint = false;
    while (i < n && j < m) {
        if (a[i] == b[j]) return RILL_OK;
        if (a[i] < b[j]) i++;
        else j++;
    }
    *disjoint = true;
    RILL_TRY(rill__buffer_reserve(&into->spare_idx, (n + m) * sizeof(uint64_t)));
    RILL_TRY(rill__buffer_reserve(&into->spare_val, entries * size));
    for (i = j = 0; i < n || j < m; at++) {
        bool left = j == m || (i < n && a[i] < b[j]);
        const rill_stream *source = left ? into : from;
        uint64_t position = left ? i++ : j++, number = numbers_of(source)[position];
        ((uint64_t *)into->spare_idx.data)[at] = number;
        memcpy((char *)into->spare_val.data + at * block * size,
               (const char *)source->val.data + position * block * size,
               rill__block_extent(block, number, into->dim) * size);
    }
    rill__stream_take_spare(into);
    into->nnz = entries;
    return RILL_OK;
}

/* ---- views ----------------------------------------------------------------------------------- */

uint64_t rill_stream_block(const rill_stream *s) {
    return s && s->form == RILL__BLOCKS ? s->block : 0;
}

const uint64_t *rill_stream_blocks(const rill_stream *s, uint64_t *n) {
    bool blocks = s && s->form == RILL__BLOCKS;
    if (n) *n = blocks ? rill__blocks_in(s->nnz, s->block) : 0;
    return blocks ? s->idx.data : NULL;
}

const char *rill__stream_broken_blocks(const rill_stream *s) {
    if (!s->block) return "blocks of no entries";
    uint64_t blocks = rill__blocks_in(s->nnz, s->block), have = rill__blocks_in(s->dim, s->block);
    if (!blocks) return NULL;
    if (!s->idx.data) return "blocks, but no numbers";
    if (s->idx.capacity / sizeof(uint64_t) < blocks) return "block numbers exceed their memory";
    uint64_t at = rill__stream_space(s)->stream->check(8, s->idx.data, blocks, 0, have);
    if (at < blocks)
        return numbers_of(s)[at] >= have ? "a block number is outside of the dimension"
                                         : "block numbers are not strictly ascending";
    return s->nnz == rill__block_entries(s->block, blocks, numbers_of(s)[blocks - 1], s->dim)
               ? NULL
               : "entries do not fit the blocks";
}
