/* What else is done with the entries of parts and streams, in whatever space they lie: whoever is
 * above stream/ goes through these, and touches no entry itself. */
#ifndef RILL_STREAM_PART_OPS_H
#define RILL_STREAM_PART_OPS_H

#include "stream/part.h"

/* dense, the whole vector in the part's space, += the entries of the part; of pairs only those that
 * mask and where name. mask is one of pairs; NULL with RILL__EVERYWHERE. */
void rill__part_add_to(rill__shape, const rill__part *, void *dense, const rill__part *mask,
                       rill__where);
/* dense[i] = 0 for each index i of pairs; those in the mask unless it is NULL. */
void rill__part_clear_in(rill__shape, const rill__part *, void *dense, const rill__part *mask);

/* Room for a copy of the part, in the piece's own space. */
rill_status rill__piece_reserve(rill__piece *, rill__shape, const rill__part *);
/* A copy of a part in another space, or the same. */
rill_status rill__piece_copy(rill__piece *, const rill__space *, rill__shape, const rill__part *);
/* An empty piece in a space. */
static inline rill__piece rill__piece_in(const rill__space *space) {
    return (rill__piece){.idx = rill__space_buffer(space), .val = rill__space_buffer(space)};
}

/* The entries of a dense vector on the host whose bits are not all 0, as *found pairs. */
rill_status rill__dense_pairs(rill__shape, const void *dense, uint64_t n, rill__buffer *idx,
                              rill__buffer *val, uint64_t *found);

/* into[0..n) = the entries [first, first + n) of a stream whose fill is 0; *at, 0 at first: where a
 * call for the range that follows goes on. */
void rill__stream_write(const rill_stream *, uint64_t first, uint64_t n, uint64_t *at, void *into);
/* Appends the pairs of part, which counts its indices from first on. There must be room. */
rill_status rill__stream_append(rill_stream *into, const rill_stream *part, uint64_t first);

#endif
