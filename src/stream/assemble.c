/* Streams from parts: what a call ends with. Large results are written past the caches: they would
 * push out what the call still reads, and what is written whole need not be read first. */
#include "stream/blocks.h"
#include "stream/part_entries.h"

#include <string.h>

enum { COUNTED = 64 }; /* entries that are counted at once */
enum {
    CHECKED = 1 << 14
}; /* entries that are checked, and then copied while they are in the caches */
enum { LARGE = 1 << 21 }; /* bytes of a result from which on it is written past the caches */

static void copy(void *to, const void *from, size_t bytes, bool past) {
    if (past) rill__copy_past(to, from, bytes);
    else if (bytes) memcpy(to, from, bytes);
}

static rill_status out_of_order(void) {
    return rill__fail(RILL_ERR_MESSAGE, "an index of a part is out of order or range");
}

/* Pairs to where idx and val are; *n of them, all but those from the first on that is not sound,
 * where they are to be checked. */
static rill_status copy_pairs(rill__shape shape, const rill__part *p, void *idx, void *val,
                              bool past, bool check, uint64_t *n) {
    size_t size = rill__type_size(shape.type), width = shape.index_bytes;
    rill__part next = *p;
    for (*n = 0; *n < p->n; *n += next.n) {
        uint64_t at = *n;
        next.n = check ? rill__min_u64(CHECKED, p->n - at) : p->n;
        next.idx = (const char *)p->idx + at * width;
        next.val = (const char *)p->val + at * size;
        if (check) {
            if (!rill__part_is_sound(shape, &next)) return out_of_order();
            uint64_t last = rill__part_index(shape, &next, next.n - 1);
            next.range -= last + 1 - next.first;
            next.first = last + 1;
        }
        copy((char *)idx + at * width, next.idx, next.n * width, past);
        copy((char *)val + at * size, next.val, next.n * size, past);
    }
    return RILL_OK;
}

void rill__stream_adopt(rill_stream *out, const void *fill, rill__piece *piece) {
    memcpy(out->fill, fill, rill__type_size(out->type));
    out->form = piece->part.form;
    out->nnz = piece->part.n;
    rill__buffer val = out->val;
    out->val = piece->val;
    piece->val = val;
    out->block = piece->part.block;
    if (out->form != RILL__DENSE) {
        rill__buffer idx = out->idx;
        out->idx = piece->idx;
        piece->idx = idx;
    }
}

enum { UNPACKED = 4096 }; /* entries that fit into the nearest cache */

/* Bits and values of f32 to where they go. */
static void unpack(const rill__kernels *k, const rill__part *p, float *to, bool past) {
    float near[UNPACKED];
    uint64_t in_words = rill__min_u64(p->range, p->block * 64);
    const uint64_t *words = p->idx;
    const float *val = p->val;
    for (uint64_t at = 0, n; at < p->range; at += n) {
        n = rill__min_u64(UNPACKED, p->range - at);
        uint64_t covered = at < in_words ? rill__min_u64(n, in_words - at) : 0;
        float *dense = past ? near : to + at;
        val += k->unpack_bits(dense, covered, words + at / 64, val);
        memset(dense + covered, 0, (n - covered) * sizeof *dense);
        if (past) rill__copy_past(to + at, near, n * sizeof *near);
    }
}

static void assemble_dense(rill_stream *out, int n, const rill__part *in) {
    rill__shape shape = rill__stream_shape(out);
    size_t size = rill__type_size(out->type);
    bool past = out->dim * size >= LARGE;
    for (int i = 0; i < n; i++) {
        if (!in[i].range) continue;
        char *to = (char *)out->val.data + in[i].first * size;
        if (in[i].form == RILL__DENSE) {
            copy(to, in[i].val, in[i].range * size, past);
            continue;
        }
        if (in[i].form == RILL__BITS) {
            unpack(rill__stream_space(out)->stream, &in[i], (float *)(void *)to, past);
            continue;
        }
        rill__assign_fill(rill__stream_space(out)->stream, out->type, to, in[i].range, out->fill);
        if (in[i].form == RILL__BLOCKS) rill__blocks_assign(out->type, to, in[i].first, &in[i]);
        else rill__assign_pairs(shape, to, in[i].first, rill__part_pairs(&in[i]));
    }
    if (past) rill__copied_past();
}

/* To pairs; returns how many. */
static uint64_t list_bits(rill__shape shape, const rill__part *p, char *idx, char *val) {
    const uint64_t *words = p->idx;
    uint64_t n = 0;
    for (uint64_t i = 0; i < p->block; i++)
        for (uint64_t word = words[i]; word; word &= word - 1, n++)
            rill__index_put(shape.index_bytes, idx, n,
                            p->first + i * 64 + (unsigned)__builtin_ctzll(word));
    memcpy(val, p->val, n * sizeof(float));
    return n;
}

/* Entries of the parts; of dense ones those that are not absent. */
static uint64_t count_present(const rill_stream *out, int n, const rill__part *in) {
    uint64_t total = 0;
    size_t size = rill__type_size(out->type);
    for (int i = 0; i < n; i++) {
        if (in[i].form != RILL__DENSE) {
            total += in[i].n;
            continue;
        }
        for (uint64_t at = 0; at < in[i].range; at += COUNTED) {
            char idx[COUNTED * 8 + RILL__SLACK], val[COUNTED * 8 + RILL__SLACK];
            uint64_t m = rill__min_u64(COUNTED, in[i].range - at);
            total += rill__part_space(&in[i])->stream->compact(rill__stream_shape(out),
                                                               (const char *)in[i].val + at * size,
                                                               at, m, out->fill, m, idx, val);
        }
    }
    return total;
}

/* Of dense results and of such parts alone: pairs are checked as they are copied. */
static bool are_sound(const rill_stream *out, int n, const rill__part *in) {
    bool sound = true;
    for (int i = 0; i < n; i++)
        if (in[i].form == RILL__SPARSE)
            sound &= rill__part_is_sound(rill__stream_shape(out), &in[i]);
    return sound;
}

/* Parts that are written where the ones before them end. */
static rill_status assemble_pairs(rill_stream *out, int n, const rill__part *in, bool check) {
    size_t size = rill__type_size(out->type);
    rill__shape shape = rill__stream_shape(out);
    uint64_t at = 0, more;
    rill_status status = RILL_OK;
    for (int i = 0; i < n && status == RILL_OK; i++, at += more) {
        char *idx = (char *)out->idx.data + at * shape.index_bytes;
        char *val = (char *)out->val.data + at * size;
        more = 0;
        if (!in[i].n) continue;
        if (in[i].form == RILL__DENSE)
            more = rill__part_space(&in[i])->stream->compact(shape, in[i].val, in[i].first,
                                                             in[i].range, out->fill, in[i].range,
                                                             idx, val);
        else if (in[i].form == RILL__BLOCKS)
            more = rill__blocks_compact(shape, &in[i], out->fill, idx, val);
        else if (in[i].form == RILL__BITS) more = list_bits(shape, &in[i], idx, val);
        else status = copy_pairs(shape, &in[i], idx, val, false, check, &more);
    }
    out->nnz = at;
    return status;
}

/* Parts of pairs alone, whose places are known before: from one of them on, and round. */
static rill_status copy_parts(rill_stream *out, int n, const rill__part *in, uint64_t total,
                              bool check, int from) {
    size_t size = rill__type_size(out->type);
    rill__shape shape = rill__stream_shape(out);
    uint64_t at = 0, done;
    rill_status status = RILL_OK;
    bool past = total * (size + shape.index_bytes) >= LARGE;
    for (int i = 0; i < from; i++)
        at += in[i].n;
    for (int j = 0; j < n && status == RILL_OK; j++) {
        const rill__part *part = &in[(from + j) % n];
        if (part == in) at = 0;
        status = copy_pairs(shape, part, (char *)out->idx.data + at * shape.index_bytes,
                            (char *)out->val.data + at * size, past, check, &done);
        at += part->n;
    }
    if (past) rill__copied_past();
    out->nnz = status == RILL_OK ? total : 0;
    return status;
}

rill_status rill__stream_assemble(rill_stream *out, const void *fill, int n, const rill__part *in,
                                  bool check, int from) {
    uint64_t total = 0, block = 0;
    bool pairs = false, alone = true;
    for (int i = 0; i < n; i++) {
        /* What came in bits was dense, and counts as that: the form must not hang on the way. */
        total += in[i].form == RILL__BITS ? in[i].range : in[i].n;
        if (in[i].form == RILL__BLOCKS) block = in[i].block;
        else pairs |= in[i].form == RILL__SPARSE && in[i].n;
        alone &= in[i].form == RILL__SPARSE;
    }
    bool blocks = block && !pairs;
    memcpy(out->fill, fill, rill__type_size(out->type));
    if (total > (blocks ? rill__blocks_switch(out->type, block, out->dim)
                        : rill__dense_switch(out->type, out->dim))) {
        if (check && !are_sound(out, n, in)) return out_of_order();
        RILL_TRY(rill__stream_reserve_dense(out));
        assemble_dense(out, n, in);
        return RILL_OK;
    }
    if (blocks) return rill__blocks_assemble(out, block, n, in);
    if (total > out->idx.capacity / out->index_bytes ||
        total > out->val.capacity / rill__type_size(out->type))
        total = count_present(out, n, in); /* what is reserved for results of this size will do */
    RILL_TRY(rill__stream_reserve_pairs(out, total));
    return alone ? copy_parts(out, n, in, total, check, from) : assemble_pairs(out, n, in, check);
}

rill_status rill__stream_set_part(rill_stream *out, const void *fill, const rill__part *part) {
    if (part->form == RILL__BITS)
        return rill__fail(RILL_ERR_MESSAGE, "malformed message: a result in bits");
    size_t size = rill__type_size(out->type);
    bool past = part->n * size >= LARGE / 2;
    memcpy(out->fill, fill, size);
    if (part->form == RILL__DENSE) {
        RILL_TRY(rill__stream_reserve_dense(out));
    } else if (part->form == RILL__BLOCKS) {
        uint64_t blocks = rill__blocks_in(part->n, part->block);
        RILL_TRY(rill__stream_reserve_blocks(out, part->block, blocks, part->n));
        if (part->n) memcpy(out->idx.data, part->idx, blocks * sizeof(uint64_t));
    } else {
        RILL_TRY(rill__stream_reserve_pairs(out, part->n));
        copy(out->idx.data, part->idx, part->n * out->index_bytes, past);
    }
    copy(out->val.data, part->val, part->n * size, past);
    if (past) rill__copied_past();
    out->nnz = part->n;
    return RILL_OK;
}
