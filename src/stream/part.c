/* Parts, and sums of them. The dense sum goes through the range in blocks that stay in the
 * second-level cache, so that the result is written to memory once however many inputs there are.
 *
 * Memory: result, and for 16-bit types one block of f32. Cost: one pass over inputs and result. */
#include "stream/blocks.h"

#include <string.h>

enum { BLOCK = 32768 }; /* entries of a block: 128 KiB of f32 */

void rill__piece_free(rill__piece *piece) {
    rill__buffer_free(&piece->idx);
    rill__buffer_free(&piece->val);
    rill__buffer_free(&piece->list);
}

const rill__space *rill__parts_space(int n, const rill__part *in) {
    for (int i = 0; i < n; i++)
        if (in[i].space) return in[i].space;
    return rill__host();
}

rill__part rill__part_slice(rill__shape shape, const rill__part *part, uint64_t first,
                            uint64_t range) {
    size_t size = rill__type_size(shape.type);
    if (part->form == RILL__BLOCKS) return rill__blocks_slice(shape.type, part, first, range);
    rill__part slice = {part->form, first, range, range, NULL, NULL, 0, part->space};
    if (part->form == RILL__DENSE) {
        slice.val = (const char *)part->val + (first - part->first) * size;
        return slice;
    }
    if (!part->n) {
        slice.n = 0;
        return slice;
    }
    uint64_t from = rill__index_lower_bound(shape.index_bytes, part->idx, 0, part->n, first);
    uint64_t to = rill__index_lower_bound(shape.index_bytes, part->idx, from, part->n,
                                          first + range);
    slice.n = to - from;
    slice.idx = (const char *)part->idx + from * shape.index_bytes;
    slice.val = (const char *)part->val + from * size;
    return slice;
}

/* ---- dense sum ------------------------------------------------------------------------------- */

static bool accumulates_wide(rill_type type, const rill_op *op) {
    return (type == RILL_F16 || type == RILL_BF16) && op->kind != RILL__USER;
}

void rill__values_widen(rill_type type, float *to, const uint16_t *from, uint64_t n) {
    if (type == RILL_F16)
        for (uint64_t i = 0; i < n; i++)
            to[i] = rill__f16_to_f32(from[i]);
    else
        for (uint64_t i = 0; i < n; i++)
            to[i] = rill__bf16_to_f32(from[i]);
}

void rill__values_narrow(rill_type type, uint16_t *to, const float *from, uint64_t n) {
    if (type == RILL_F16)
        for (uint64_t i = 0; i < n; i++)
            to[i] = rill__f16_from_f32(from[i]);
    else
        for (uint64_t i = 0; i < n; i++)
            to[i] = rill__bf16_from_f32(from[i]);
}

/* Sums of f32 only have such parts. */
static void sum_bits(const rill__kernels *k, const rill__part *in, uint64_t at, uint64_t count,
                     uint64_t *cursor, float *out, bool fresh) {
    uint64_t word = (at - in->first) / 64;
    uint64_t rest = word < in->block ? (in->block - word) * 64 : 0;
    uint64_t n = rill__min_u64(count, rest);
    *cursor += k->add_bits(out, n, (const uint64_t *)in->idx + word,
                           (const float *)in->val + *cursor, fresh);
    if (fresh) memset(out + n, 0, (count - n) * sizeof *out);
}

/* One block [at, at + count) of the dense sum. cursor[i] is how far sparse input i has been read.
 */
static void sum_block(const rill__kernels *k, rill__shape shape, const rill_op *op, uint64_t at,
                      uint64_t count, int n, const rill__part *in, uint64_t *cursor, void *out) {
    size_t size = rill__type_size(shape.type);
    int i = 0;
    if (in[0].form == RILL__DENSE) {
        const void *head = (const char *)in[0].val + (at - in[0].first) * size;
        if (n > 1 && in[1].form == RILL__DENSE) {
            k->combine(shape.type, op, out, head,
                       (const char *)in[1].val + (at - in[1].first) * size, count);
            i = 2;
        } else {
            memcpy(out, head, count * size);
            i = 1;
        }
    } else if (in[0].form == RILL__BITS) {
        sum_bits(k, &in[0], at, count, &cursor[0], out, true);
        i = 1;
    } else {
        unsigned char neutral[8];
        rill__neutral(op, shape.type, neutral);
        rill__assign_fill(k, shape.type, out, count, neutral);
    }
    for (; i < n; i++) {
        if (in[i].form == RILL__DENSE) {
            k->combine(shape.type, op, out, out,
                       (const char *)in[i].val + (at - in[i].first) * size, count);
        } else if (in[i].form == RILL__BITS) {
            sum_bits(k, &in[i], at, count, &cursor[i], out, false);
        } else if (in[i].form == RILL__BLOCKS) {
            uint64_t from = at, m = 0;
            const void *values;
            while (rill__blocks_next(shape.type, &in[i], from + m, at + count, &cursor[i], &from,
                                     &m, &values)) {
                char *to = (char *)out + (from - at) * size;
                k->combine(shape.type, op, to, to, values, m);
            }
        } else if (in[i].n) {
            uint64_t from = cursor[i];
            uint64_t to = rill__index_lower_bound(shape.index_bytes, in[i].idx, from, in[i].n,
                                                  at + count);
            k->scatter(shape, op, out, at,
                       (rill__pairs){to - from, (const char *)in[i].idx + from * shape.index_bytes,
                                     (const char *)in[i].val + from * size});
            cursor[i] = to;
        }
    }
}

/* The same for a 16-bit type, in f32, rounded once. wide holds the sum, values one input's. */
static void sum_block_wide(const rill__kernels *k, rill__shape shape, const rill_op *op,
                           uint64_t at, uint64_t count, int n, const rill__part *in,
                           uint64_t *cursor, float *wide, float *values, uint16_t *out) {
    unsigned char neutral[8];
    rill__neutral(op, RILL_F32, neutral);
    rill__assign_fill(k, RILL_F32, wide, count, neutral);
    for (int i = 0; i < n; i++) {
        const uint16_t *val = in[i].val;
        if (in[i].form == RILL__DENSE) {
            rill__values_widen(shape.type, values, val + (at - in[i].first), count);
            k->combine(RILL_F32, op, wide, wide, values, count);
        } else if (in[i].form == RILL__BLOCKS) {
            uint64_t from = at, m = 0;
            const void *halves;
            while (rill__blocks_next(shape.type, &in[i], from + m, at + count, &cursor[i], &from,
                                     &m, &halves)) {
                rill__values_widen(shape.type, values, halves, m);
                k->combine(RILL_F32, op, wide + (from - at), wide + (from - at), values, m);
            }
        } else if (in[i].n) {
            uint64_t from = cursor[i];
            uint64_t to = rill__index_lower_bound(shape.index_bytes, in[i].idx, from, in[i].n,
                                                  at + count);
            rill__values_widen(shape.type, values, val + from, to - from);
            k->scatter((rill__shape){RILL_F32, shape.index_bytes}, op, wide, at,
                       (rill__pairs){to - from, (const char *)in[i].idx + from * shape.index_bytes,
                                     values});
            cursor[i] = to;
        }
    }
    rill__values_narrow(shape.type, out, wide, count);
}

/* Scratch memory: how far each part has been read; a block of f32. */
static size_t cursor_bytes(int n) { return ((size_t)n * sizeof(uint64_t) + 63) & ~(size_t)63; }
static size_t wide_bytes(uint64_t range) {
    size_t bytes = rill__min_u64(BLOCK, range) * sizeof(float) + RILL__SLACK;
    return (bytes + 63) & ~(size_t)63;
}

static rill_status sum_dense(const rill__kernels *k, rill__shape shape, const rill_op *op,
                             uint64_t first, uint64_t range, int n, const rill__part *in,
                             rill__buffer *scratch, void *out) {
    size_t size = rill__type_size(shape.type);
    bool wide = accumulates_wide(shape.type, op);
    size_t cursors = cursor_bytes(n), floats = wide ? wide_bytes(range) : 0;
    RILL_TRY(rill__buffer_reserve(scratch, cursors + 2 * floats));
    uint64_t *cursor = scratch->data;
    memset(cursor, 0, (size_t)n * sizeof *cursor);
    float *sums = (float *)((char *)scratch->data + cursors);
    float *values = (float *)((char *)scratch->data + cursors + floats);
    for (uint64_t done = 0; done < range; done += BLOCK) {
        uint64_t count = rill__min_u64(BLOCK, range - done);
        char *to = (char *)out + done * size;
        if (wide)
            sum_block_wide(k, shape, op, first + done, count, n, in, cursor, sums, values,
                           (uint16_t *)to);
        else sum_block(k, shape, op, first + done, count, n, in, cursor, to);
    }
    return RILL_OK;
}

/* ---- sums of parts --------------------------------------------------------------------------- */

static rill_status reserve_entries(rill__buffer *buffer, uint64_t n, size_t size) {
    size_t bytes;
    if (!rill__size_mul(n, size, &bytes))
        return rill__fail(RILL_ERR_MEMORY, "out of memory: %llu entries", (unsigned long long)n);
    return rill__buffer_reserve(buffer, bytes);
}

static rill_status densify(const rill__space *space, rill__shape shape, const rill_op *op,
                           rill__buffer *scratch, rill__piece *piece) {
    rill__part *part = &piece->part;
    RILL_TRY(reserve_entries(scratch, part->range, rill__type_size(shape.type)));
    unsigned char neutral[8];
    rill__neutral(op, shape.type, neutral);
    rill__assign_fill(space->stream, shape.type, scratch->data, part->range, neutral);
    rill__assign_pairs(shape, scratch->data, part->first, rill__part_pairs(part));
    rill__buffer sparse_values = piece->val;
    piece->val = *scratch;
    *scratch = sparse_values;
    *part = (rill__part){RILL__DENSE, part->first,     part->range, part->range,
                         NULL,        piece->val.data, 0,           space};
    return RILL_OK;
}

static void set_sparse(const rill__space *space, rill__piece *out, uint64_t first, uint64_t range,
                       uint64_t count) {
    out->part = (rill__part){RILL__SPARSE,  first,         range, count,
                             out->idx.data, out->val.data, 0,     space};
}

/* For a sum that may turn dense: values and scratch change places then, and those of the result
 * take the values' place. Each of the three has room for all, so that none grows after the second
 * call. */
static rill_status reserve_turn(rill__buffer *scratch, rill__piece *out, uint64_t total,
                                uint64_t range, size_t size, size_t workspace) {
    uint64_t most = rill__max_u64(rill__max_u64(total, range), workspace / size + 1);
    RILL_TRY(reserve_entries(scratch, most, size));
    return reserve_entries(&out->val, most, size);
}

/* Where the union will be dense, the dense form is written at once. It holds the same bits: the
 * values that occur are those of the sparse sum. */
static rill_status sum_many(const rill__space *space, rill__shape shape, const rill_op *op,
                            uint64_t first, uint64_t range, int n, const rill__pairs *in,
                            uint64_t total, rill__buffer *scratch, rill__piece *out) {
    const rill__kernels *k = space->stream;
    size_t size = rill__type_size(shape.type);
    uint64_t limit = rill__dense_switch(shape.type, range), count;
    if (total > limit && rill__sum_prefers_tiles(range, n, in) &&
        rill__union_exceeds(shape, first, range, n, in, limit)) {
        RILL_TRY(reserve_entries(&out->val, range, size));
        RILL_TRY(rill__buffer_reserve(scratch, rill__tiles_workspace(shape)));
        if (k->sum_tiles(shape, op, first, range, n, in, NULL, out->val.data, scratch->data) >
            limit) {
            out->part = (rill__part){RILL__DENSE, first,         range, range,
                                     NULL,        out->val.data, 0,     space};
            return RILL_OK;
        }
    }
    RILL_TRY(reserve_entries(&out->idx, total, shape.index_bytes));
    if (total > limit && rill__sum_prefers_tiles(range, n, in))
        RILL_TRY(reserve_turn(scratch, out, total, range, size, rill__tiles_workspace(shape)));
    else RILL_TRY(reserve_entries(&out->val, total, size));
    RILL_TRY(rill__sum_pairs(k, shape, op, first, range, n, in, scratch, out->idx.data,
                             out->val.data, &count));
    set_sparse(space, out, first, range, count);
    return count > limit ? densify(space, shape, op, scratch, out) : RILL_OK;
}

static rill_status sum_two(const rill__space *space, rill__shape shape, const rill_op *op,
                           uint64_t first, uint64_t range, const rill__part *in, uint64_t limit,
                           rill__buffer *scratch, rill__piece *out) {
    size_t size = rill__type_size(shape.type);
    uint64_t total = in[0].n + in[1].n;
    RILL_TRY(reserve_entries(&out->idx, total, shape.index_bytes));
    if (total > limit) RILL_TRY(reserve_turn(scratch, out, total, range, size, 0));
    else RILL_TRY(reserve_entries(&out->val, total, size));
    uint64_t count = space->stream->merge(shape, op, rill__part_pairs(&in[0]),
                                          rill__part_pairs(&in[1]), out->idx.data, out->val.data);
    set_sparse(space, out, first, range, count);
    return count > limit ? densify(space, shape, op, scratch, out) : RILL_OK;
}

rill_status rill__sum_parts(rill__shape shape, const rill_op *op, uint64_t first, uint64_t range,
                            int n, const rill__part *in, bool force_dense, rill__buffer *scratch,
                            rill__piece *out) {
    const rill__space *space = rill__parts_space(n, in);
    size_t size = rill__type_size(shape.type);
    uint64_t limit = rill__dense_switch(shape.type, range), total = 0, most = 0;
    uint64_t block = 0;
    bool dense = force_dense;
    if (n == 2 && !dense && in[0].form == RILL__SPARSE && in[1].form == RILL__SPARSE &&
        rill__max_u64(in[0].n, in[1].n) <= limit)
        return sum_two(space, shape, op, first, range, in, limit, scratch, out);
    for (int i = 0; i < n; i++) {
        if (in[i].form == RILL__BITS && (in[i].first != first || in[i].range != range))
            return rill__fail(RILL_ERR_MESSAGE, "a bitmap has another range than expected");
        if (in[i].form == RILL__DENSE || in[i].form == RILL__BITS) {
            dense = true;
        } else if (in[i].form == RILL__BLOCKS) {
            if (block && block != in[i].block) dense = true;
            block = in[i].block;
        } else {
            total += in[i].n;
            most = rill__max_u64(most, in[i].n);
        }
    }
    if (block && total) dense = true; /* streams convert before: this is for any other mixture */
    if (block && !dense) {
        RILL_TRY(
            rill__blocks_sum(shape.type, op, block, first, range, n, in, scratch, out, &dense));
        if (!dense) return RILL_OK;
    }
    if (dense || most > limit) {
        RILL_TRY(reserve_entries(&out->val, range, size));
        RILL_TRY(sum_dense(space->stream, shape, op, first, range, n, in, scratch, out->val.data));
        out->part = (rill__part){RILL__DENSE, first, range, range, NULL, out->val.data, 0, space};
        return RILL_OK;
    }
    rill__pairs few[64], *pairs = few;
    if (n > 64) {
        RILL_TRY(reserve_entries(&out->list, (uint64_t)n, sizeof *pairs));
        pairs = out->list.data;
    }
    for (int i = 0; i < n; i++)
        pairs[i] = rill__part_pairs(&in[i]);
    return sum_many(space, shape, op, first, range, n, pairs, total, scratch, out);
}

uint64_t rill__sum_few(const rill__space *host, rill__shape shape, const rill_op *op,
                       uint64_t range, const rill__pairs *const in[2], rill__piece *out) {
    uint64_t n = host->stream->merge(shape, op, *in[0], *in[1], out->idx.data, out->val.data);
    set_sparse(host, out, 0, range, n);
    return n;
}

rill__sum_bytes rill__sum_room(rill__shape shape, uint64_t range, int n, uint64_t pairs) {
    size_t size = rill__type_size(shape.type);
    rill__sum_bytes most = {pairs * shape.index_bytes, pairs * size, cursor_bytes(n)};
    if (size == 2) most.scratch += 2 * wide_bytes(range);
    if (n > 2) most.scratch = rill__max_u64(most.scratch, rill__pairs_scratch(shape, n));
    if (pairs > rill__dense_switch(shape.type, range)) {
        most.val = rill__max_u64(rill__max_u64(pairs, range) * size, most.scratch + size);
        most.scratch = most.val;
    }
    return most;
}
