/* Parts: borrowed views of an index range of a vector, in any form, and sums of them. The
 * collectives take streams apart into parts, send parts, sum parts, and put parts together again.
 *
 * In a dense part, and in the blocks of a block-sparse one, an entry equal to the operation's
 * neutral element is an absent one. */
#ifndef RILL_STREAM_PART_H
#define RILL_STREAM_PART_H

#include "stream/stream.h"

typedef struct rill__part {
    rill__form form;
    uint64_t first, range; /* all indices lie in [first, first + range) */
    uint64_t n;      /* sparse: pairs; dense: range; blocks: entries of the blocks; bits: set */
    const void *idx; /* sparse: indices; blocks: numbers of 8 bytes; absolute. Bits: words of 64 */
    const void *val;
    /* blocks: entries of one; first is a multiple, the end too or the dimension. Bits: words; those
     * that are missing are 0 */
    uint64_t block;
    const rill__space *space; /* that idx and val lie in; NULL: the host's */
} rill__part;

/* A part with its own memory. */
typedef struct rill__piece {
    rill__part part;
    rill__buffer idx, val;
    rill__buffer list; /* of a sum of many parts */
} rill__piece;

void rill__piece_free(rill__piece *);

static inline const rill__space *rill__part_space(const rill__part *p) {
    return p->space ? p->space : rill__host();
}
/* That of the first part that tells; parts that are used together lie in one. */
const rill__space *rill__parts_space(int n, const rill__part *);

static inline rill__pairs rill__part_pairs(const rill__part *p) {
    return (rill__pairs){p->n, p->idx, p->val};
}

/* The part of a part that lies in [first, first + range), which it must contain; of blocks: whole
 * ones. */
rill__part rill__part_slice(rill__shape, const rill__part *, uint64_t first, uint64_t range);
static inline rill__part rill__stream_part(const rill_stream *s) {
    uint64_t block = s->form == RILL__BLOCKS ? s->block : 0;
    return (rill__part){s->form, 0, s->dim, s->nnz, s->idx.data, s->val.data, block, s->space};
}

/* out = in[0] op in[1] op ...: every input lies in [first, first + range). Blocks if all
 * inputs are, of one size; dense if an input is or forms differ, or where the dense form is
 * cheaper; force_dense makes it so. scratch is kept by the caller. */
rill_status rill__sum_parts(rill__shape, const rill_op *, uint64_t first, uint64_t range, int n,
                            const rill__part *in, bool force_dense, rill__buffer *scratch,
                            rill__piece *out);

/* The same of two lists of pairs that lie on the host, for which out has room, and whose sum stays
 * sparse: what small calls have. in: lower and upper. Returns the entries of out. */
uint64_t rill__sum_few(const rill__space *host, rill__shape, const rill_op *, uint64_t range,
                       const rill__pairs *const in[2], rill__piece *out);

/* Most bytes that such a sum asks for, where the parts have so many pairs together. */
typedef struct rill__sum_bytes {
    size_t idx, val, scratch;
} rill__sum_bytes;
rill__sum_bytes rill__sum_room(rill__shape, uint64_t range, int n, uint64_t pairs);

/* out = the parts, whose ranges follow each other from 0 to dim; absent entries stand for *fill.
 * Dense where the total of entries is above the switch; blocks if a part is, and none sparse.
 * check: indices of pairs may be out of order or range, which is a failure; the stream then has
 * some of them, or none. from: the part to begin with, where ranks that read the same should not
 * all read the same part at once. */
rill_status rill__stream_assemble(rill_stream *out, const void *fill, int n, const rill__part *in,
                                  bool check, int from);

/* out = one part of the whole dimension, in the part's form. */
rill_status rill__stream_set_part(rill_stream *out, const void *fill, const rill__part *);

/* Takes over the memory of a piece that covers the whole dimension. */
void rill__stream_adopt(rill_stream *out, const void *fill, rill__piece *);

/* 16-bit values to f32 and back, n of them. */
void rill__values_widen(rill_type, float *to, const uint16_t *from, uint64_t n);
void rill__values_narrow(rill_type, uint16_t *to, const float *from, uint64_t n);

/* An empty sparse part. */
static inline rill__part rill__part_empty(uint64_t first, uint64_t range) {
    return (rill__part){RILL__SPARSE, first, range, 0, NULL, NULL, 0, NULL};
}

#endif
