/* Sums of sorted pairs, and sorting them: over the kernels of a space. */
#ifndef RILL_STREAM_PAIRS_H
#define RILL_STREAM_PAIRS_H

#include "space/space.h"

/* P-way union with the better of a tree of merges and sum_tiles, chosen by counts alone (so that
 * a repeated call gives the same bits). Inputs in [first, first + range). Output has room for the
 * sum of counts. scratch is grown as needed and kept by the caller between calls. */
rill_status rill__sum_pairs(const rill__kernels *, rill__shape, const rill_op *, uint64_t first,
                            uint64_t range, int n, const rill__pairs *in, rill__buffer *scratch,
                            void *idx, void *val, uint64_t *count);

/* Whether the union probably has more than limit entries, from stretches of the indices. */
bool rill__union_exceeds(rill__shape, uint64_t first, uint64_t range, int n, const rill__pairs *in,
                         uint64_t limit);
/* Whether rill__sum_pairs would go by tiles, which alone can give a dense result. */
bool rill__sum_prefers_tiles(uint64_t range, int n, const rill__pairs *in);
/* Bytes of scratch memory that the sum of n inputs needs at most. */
size_t rill__pairs_scratch(rill__shape, int n);

/* Sorts n pairs (indices of index_bytes, unsorted, repeats allowed) stably into idx/val and sums
 * equal ones in input order (16-bit types: in f32, rounded once). Inputs do not alias outputs. */
rill_status rill__sort_pairs(rill__shape, uint64_t n, const void *in_idx, const void *in_val,
                             void *idx, void *val, uint64_t *count);

#endif
