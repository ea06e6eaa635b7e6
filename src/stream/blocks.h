/* Block-sparse vectors: block i has the entries [i * block, (i + 1) * block), the last of a vector
 * what the dimension leaves of it. Stored blocks are in order of their numbers, so that only the
 * last of them can be cut, and the number of entries tells that of the blocks. */
#ifndef RILL_STREAM_BLOCKS_H
#define RILL_STREAM_BLOCKS_H

#include "stream/part.h"

/* Blocks that hold so many entries, all but the last being whole. */
static inline uint64_t rill__blocks_in(uint64_t entries, uint64_t block) {
    return entries / block + (entries % block != 0);
}
/* Entries of block i of what ends at end. */
static inline uint64_t rill__block_extent(uint64_t block, uint64_t i, uint64_t end) {
    return rill__min_u64(block, end - i * block);
}
/* Entries of n blocks, the last of which has that number. */
static inline uint64_t rill__block_entries(uint64_t block, uint64_t n, uint64_t last,
                                           uint64_t end) {
    return n ? (n - 1) * block + rill__block_extent(block, last, end) : 0;
}
/* Whether a range starts and ends with a block of a vector of that dimension. */
static inline bool rill__blocks_fit(uint64_t block, uint64_t first, uint64_t range, uint64_t dim) {
    return !range || (first % block == 0 && (first + range == dim || range % block == 0));
}

/* The blocks of a range that they fit. */
static inline uint64_t rill__block_range(uint64_t block, uint64_t first, uint64_t range) {
    return range ? rill__blocks_in(first + range, block) - first / block : 0;
}

/* Entries of a range above which the dense form takes fewer bytes. */
uint64_t rill__blocks_switch(rill_type, uint64_t block, uint64_t range);

/* ---- streams (stream_blocks.c) ---- */

/* Becomes block-sparse with n blocks of so many entries together; neither numbers nor values are
 * set. */
rill_status rill__stream_reserve_blocks(rill_stream *, uint64_t block, uint64_t n,
                                        uint64_t entries);
/* to = from, in another form or with another fill: blocks of so many entries, or pairs where block
 * is 0. to has the type and dimension of from, and its own memory. */
rill_status rill__stream_convert(rill_stream *to, const rill_stream *from, uint64_t block,
                                 const void *fill);
/* Union of two streams of the same block size. False: a block is in both, and into is unchanged. */
rill_status rill__stream_concat_blocks(rill_stream *into, const rill_stream *from, bool *disjoint);
/* The first broken invariant of a block-sparse stream, or NULL. */
const char *rill__stream_broken_blocks(const rill_stream *);

/* ---- parts (part_blocks.c) ---- */

rill__part rill__blocks_slice(rill_type, const rill__part *, uint64_t first, uint64_t range);

/* dense[i - first] = value of each stored entry i: exact bounds. */
void rill__blocks_assign(rill_type, void *dense, uint64_t first, const rill__part *);

/* The stored entries that differ from fill, as pairs, for which there is room (with slack). */
uint64_t rill__blocks_compact(rill__shape, const rill__part *, const void *fill, void *idx,
                              void *val);

/* Whether an entry of dense[0..n) differs from fill. */
bool rill__blocks_any(const rill__kernels *, rill_type, const void *dense, uint64_t n,
                      const void *fill);

/* The next stretch of stored entries in [at, end): n values for the entries from *from on; the call
 * after it is with at = *from + *n. cursor is the block to go on with. False: there is no more. */
bool rill__blocks_next(rill_type, const rill__part *, uint64_t at, uint64_t end, uint64_t *cursor,
                       uint64_t *from, uint64_t *n, const void **values);

/* out = src[0] op src[1] op ...: count values; 16-bit types in f32, rounded once. */
void rill__blocks_combine(const rill__kernels *, rill_type, const rill_op *, int n,
                          const void *const *src, uint64_t count, void *out);

/* Sum of parts that are blocks of one size, or empty. *dense: nothing was summed, as the dense form
 * of the sum is smaller. */
rill_status rill__blocks_sum(rill_type, const rill_op *, uint64_t block, uint64_t first,
                             uint64_t range, int n, const rill__part *in, rill__buffer *scratch,
                             rill__piece *out, bool *dense);

/* rill__stream_assemble where the result is block-sparse: parts are blocks of that size, dense or
 * empty. */
rill_status rill__blocks_assemble(rill_stream *out, uint64_t block, int n, const rill__part *in);

#endif
