/* Inside of rill_stream: for the collectives, which build and take apart streams. */
#ifndef RILL_STREAM_STREAM_H
#define RILL_STREAM_STREAM_H

#include "stream/pairs.h"

/* BLOCKS: sorted unique numbers of blocks, and all entries of those; an entry equal to the fill
 * counts as absent, as in the dense form. */
typedef enum rill__form {
    RILL__SPARSE = 0,
    RILL__DENSE = 1,
    RILL__BLOCKS = 2,
    RILL__BITS = 3, /* of parts only: a bit for each index, and the values of those that are set */
} rill__form;

struct rill_stream {
    rill_type type;
    unsigned index_bytes; /* 4 for dim <= 2^32, else 8 */
    rill__form form;
    const rill__space *space; /* that idx, val and the spare ones lie in; NULL: the host's */
    uint64_t dim;
    uint64_t nnz;                               /* sparse: pairs; dense: dim; blocks: entries */
    uint64_t block;                             /* blocks only: entries of one; else 0 */
    unsigned char fill[8];                      /* one value of the type */
    rill__buffer idx;                           /* sparse: index_bytes each; blocks: 8 bytes each */
    rill__buffer val;                           /* nnz values */
    rill__buffer spare_idx, spare_val, scratch; /* of the last sum, kept for the next */
};

static inline rill__shape rill__stream_shape(const rill_stream *s) {
    return (rill__shape){s->type, s->index_bytes};
}
static inline const rill__space *rill__stream_space(const rill_stream *s) {
    return s->space ? s->space : rill__host();
}
static inline rill__pairs rill__stream_pairs(const rill_stream *s) {
    return (rill__pairs){s->nnz, s->idx.data, s->val.data};
}
static inline unsigned rill__index_bytes(uint64_t dim) { return dim <= UINT64_C(1) << 32 ? 4 : 8; }

/* Entries above which the dense form is cheaper; measured, see docs/results/planner.md. */
uint64_t rill__dense_switch(rill_type, uint64_t dim);

void rill__neutral(const rill_op *, rill_type, void *value);

/* A stack or member object instead of rill_stream_create. */
void rill__stream_init(rill_stream *, rill_type, uint64_t dim);
void rill__stream_init_in(rill_stream *, const rill__space *, rill_type, uint64_t dim);
rill_status rill__stream_create_in(const rill__space *, rill_type, uint64_t dim, rill_stream **out);
void rill__stream_release(rill_stream *);
/* Exchanges what they hold; of one type and dimension, in one memory. */
void rill__stream_exchange(rill_stream *, rill_stream *);
/* Exchanges the array just written to spare_idx/spare_val with the current one. */
void rill__stream_take_spare(rill_stream *);
rill_status rill__stream_reserve_pairs(rill_stream *, uint64_t nnz); /* becomes sparse, empty */
rill_status rill__stream_reserve_dense(rill_stream *); /* becomes dense, values not set */

/* ---- streams whose entries cannot be touched here (stream_staged.c) ---- */

static inline bool rill__stream_is_foreign(const rill_stream *s) {
    return s->space && !s->space->is_host;
}
/* copy = s, on the host. To be released, also after a failure: rill__stream_put_back does both. */
rill_status rill__stream_fetch(const rill_stream *s, rill_stream *copy);
/* s = copy, unless status is a failure; the copy is released. Returns the first failure. */
rill_status rill__stream_put_back(rill_stream *s, rill_stream *copy, rill_status status);
/* *host = s, or, where that is foreign, temp, a copy of it; temp is to be released. */
rill_status rill__stream_on_host(const rill_stream *s, rill_stream *temp, const rill_stream **host);
/* Contents from and to arrays in the stream's space; a dense vector where idx is NULL. */
rill_status rill__stream_set_foreign(rill_stream *, uint64_t n, unsigned index_bytes,
                                     const void *idx, const void *val);
rill_status rill__stream_get_foreign(const rill_stream *, void *dense);

/* to = from, both dense, with another fill. */
rill_status rill__stream_refill(rill_stream *to, const rill_stream *from, const void *fill);
bool rill__value_equal(rill_type, const void *a, const void *b); /* as numbers; NaN equals NaN */

#endif
