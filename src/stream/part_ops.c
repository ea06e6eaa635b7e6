/* Operations on parts and streams in any space; each becomes a few operations of the space. */
#include "stream/part_ops.h"
#include "stream/blocks.h"
#include "stream/part_entries.h"

#include <string.h>

static rill__operation of_blocks(rill__operation_kind kind, rill_type type, const rill__part *p,
                                 void *into) {
    return (rill__operation){.kind = kind,
                             .type = type,
                             .into = into,
                             .pairs = rill__part_pairs(p),
                             .block = p->block,
                             .end = p->first + p->range};
}

void rill__part_add_to(rill__shape shape, const rill__part *p, void *dense, const rill__part *mask,
                       rill__where where) {
    const rill__space *space = rill__part_space(p);
    if (!p->n) return;
    if (p->form == RILL__DENSE) {
        char *from = (char *)dense + p->first * rill__type_size(shape.type);
        rill__dense_add(space, shape.type, from, p->val, p->n);
    } else if (p->form == RILL__BLOCKS) {
        rill__operation o = of_blocks(RILL__DO_ADD_BLOCKS, shape.type, p, dense);
        space->run(space, &o, NULL);
    } else {
        rill__pairs in = mask ? rill__part_pairs(mask) : (rill__pairs){0, NULL, NULL};
        rill__dense_add_pairs(space, shape, dense, rill__part_pairs(p), &in, where);
    }
}

void rill__part_clear_in(rill__shape shape, const rill__part *p, void *dense,
                         const rill__part *mask) {
    rill__pairs in = mask ? rill__part_pairs(mask) : (rill__pairs){0, NULL, NULL};
    rill__dense_clear_pairs(rill__part_space(p), shape, dense, rill__part_pairs(p), &in,
                            mask ? RILL__INSIDE : RILL__EVERYWHERE);
}

rill_status rill__piece_reserve(rill__piece *piece, rill__shape shape, const rill__part *p) {
    rill__part_bytes bytes = rill__part_room(shape, p);
    RILL_TRY(rill__buffer_reserve(&piece->idx, bytes.idx));
    return rill__buffer_reserve(&piece->val, bytes.val);
}

rill_status rill__piece_copy(rill__piece *piece, const rill__space *space, rill__shape shape,
                             const rill__part *p) {
    const rill__space *from = rill__part_space(p);
    rill__part_bytes bytes = rill__part_room(shape, p);
    RILL_TRY(rill__piece_reserve(piece, shape, p));
    RILL_TRY(rill__space_copy(space, piece->idx.data, from, p->idx, bytes.idx));
    RILL_TRY(rill__space_copy(space, piece->val.data, from, p->val, bytes.val));
    piece->part = *p;
    piece->part.idx = piece->idx.data;
    piece->part.val = piece->val.data;
    piece->part.space = space;
    return RILL_OK;
}

/* The blocks from *at on. */
static void write_blocks(const rill_stream *s, uint64_t first, uint64_t n, uint64_t *at,
                         void *into) {
    const rill__space *space = rill__stream_space(s);
    rill__part rest = rill__stream_part(s);
    uint64_t skipped = rill__min_u64(*at * s->block, rest.n);
    rest.n -= skipped;
    rest.idx = (const uint64_t *)rest.idx + *at;
    rest.val = (const char *)rest.val + skipped * rill__type_size(s->type);
    rill__operation o = of_blocks(RILL__DO_WRITE_BLOCKS, s->type, &rest, into);
    o.first = first;
    o.n = n;
    rill__answer answer = {.count = 0};
    space->run(space, &o, &answer);
    *at += answer.count;
}

void rill__stream_write(const rill_stream *s, uint64_t first, uint64_t n, uint64_t *at,
                        void *into) {
    const rill__space *space = rill__stream_space(s);
    size_t size = rill__type_size(s->type);
    if (!n) return;
    if (s->form == RILL__DENSE) {
        rill__do_copy(space, into, (const char *)s->val.data + first * size, n * size);
    } else if (s->form == RILL__BLOCKS) {
        write_blocks(s, first, n, at, into);
    } else if (first == 0 && n == s->dim && *at == 0) { /* all of them: none need be counted */
        space->run(space,
                   &(rill__operation){.kind = RILL__DO_WRITE,
                                      .type = s->type,
                                      .index_bytes = s->index_bytes,
                                      .into = into,
                                      .n = n,
                                      .end = n,
                                      .pairs = rill__stream_pairs(s)},
                   NULL);
        *at = s->nnz;
    } else {
        rill__pairs rest = rill__stream_pairs(s);
        rest.n -= *at;
        rest.idx = (const char *)rest.idx + *at * s->index_bytes;
        rest.val = (const char *)rest.val + *at * size;
        *at += rill__dense_write(space, rill__stream_shape(s), into, first, n, rest);
    }
}

rill_status rill__stream_append(rill_stream *into, const rill_stream *part, uint64_t first) {
    const rill__space *space = rill__stream_space(into);
    size_t size = rill__type_size(into->type);
    uint64_t old = into->nnz, n = old + part->nnz;
    if (into->idx.capacity < n * into->index_bytes || into->val.capacity < n * size)
        return rill__fail(RILL_ERR_STATE, "pairs are more than the room for them");
    into->nnz = n;
    if (!part->nnz) return RILL_OK;
    space->run(space,
               &(rill__operation){.kind = RILL__DO_SHIFT,
                                  .index_bytes = into->index_bytes,
                                  .from_bytes = part->index_bytes,
                                  .into = (char *)into->idx.data + old * into->index_bytes,
                                  .from = part->idx.data,
                                  .n = part->nnz,
                                  .first = first},
               NULL);
    rill__do_copy(space, (char *)into->val.data + old * size, part->val.data, part->nnz * size);
    return RILL_OK;
}

static bool has_bits(const char *value, size_t size) {
    static const char zero[8];
    return memcmp(value, zero, size) != 0;
}

rill_status rill__dense_pairs(rill__shape shape, const void *dense, uint64_t n, rill__buffer *idx,
                              rill__buffer *val, uint64_t *found) {
    size_t size = rill__type_size(shape.type);
    const char *from = dense;
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        count += has_bits(from + i * size, size);
    RILL_TRY(rill__buffer_reserve(idx, count * shape.index_bytes));
    RILL_TRY(rill__buffer_reserve(val, count * size));
    *found = count;
    count = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!has_bits(from + i * size, size)) continue;
        if (shape.index_bytes == 4) ((uint32_t *)idx->data)[count] = (uint32_t)i;
        else ((uint64_t *)idx->data)[count] = i;
        memcpy((char *)val->data + count++ * size, from + i * size, size);
    }
    return RILL_OK;
}
