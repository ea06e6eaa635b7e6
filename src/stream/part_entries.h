/* What the algorithms do with the entries of parts that host code can touch: look at some, take
 * them apart, put them elsewhere. Parts are of pairs, unless a function says otherwise. Where a
 * function writes to idx and val, these are arrays of ours, with slack. */
#ifndef RILL_STREAM_PART_ENTRIES_H
#define RILL_STREAM_PART_ENTRIES_H

#include "stream/part.h"

/* ---- looking ---- */
/* Index of entry i; of blocks: the number of block i. */
uint64_t rill__part_index(rill__shape, const rill__part *, uint64_t i);
uint64_t rill__part_below(rill__shape, const rill__part *, uint64_t index); /* entries below it */
/* The entries [from, to), in the smallest range that holds them. */
rill__part rill__part_entries(rill__shape, const rill__part *, uint64_t from, uint64_t to);
/* idx and val, either of which may be NULL, = n entries from number from on. */
void rill__part_load(rill__shape, const rill__part *, uint64_t from, uint64_t n, uint64_t *idx,
                     double *val);
/* val[i] = the value at the index of entry from + i of where, 0 for those that are absent. *at:
 * entries that lie before; advanced. */
void rill__part_load_at(rill__shape, const rill__part *, uint64_t *at, const rill__part *where,
                        uint64_t from, uint64_t n, double *val);
/* Sets the bit of each block of so many indices that has an entry. */
void rill__part_mark(rill__shape, const rill__part *, uint64_t block, uint64_t *bits);
/* Whether indices ascend and lie in the part's range. */
bool rill__part_is_sound(rill__shape, const rill__part *);

/* ---- writing ---- */
/* to = a copy of a part of any form, in memory for its indices and values: rill__part_room. */
typedef struct rill__part_bytes {
    size_t idx, val;
} rill__part_bytes;
rill__part_bytes rill__part_room(rill__shape, const rill__part *);
void rill__part_copy_to(rill__shape, const rill__part *, void *idx, void *val, rill__part *to);
/* The same without the values, which are still to be written to val. */
void rill__part_frame_to(rill__shape, const rill__part *, void *idx, void *val, rill__part *to);
/* idx and val from number at on = the entries. */
void rill__part_append_to(rill__shape, const rill__part *, void *idx, void *val, uint64_t at);
/* The entries of a dense part that differ from fill; returns how many. */
uint64_t rill__part_compact_to(rill__shape, const rill__part *, const void *fill, void *idx,
                               void *val);
/* dense[0..range) = fill, and the entries. */
void rill__part_fill_to(rill__shape, const rill__part *, const void *fill, void *dense);
/* The union of two, combined as a op b; returns the count. */
uint64_t rill__part_merge_to(rill__shape, const rill_op *, const rill__part *a, const rill__part *b,
                             void *idx, void *val);
/* val = a - b for parts of any form with the same entries, rounded to the type. */
void rill__part_subtract_to(rill_type, const rill__part *a, const rill__part *b, void *val);
/* piece = the union of n parts of a range, and values of equal indices summed. pairs: room for n.
 */
rill_status rill__parts_unite(rill__shape, uint64_t first, uint64_t range, int n,
                              const rill__part *, rill__pairs *pairs, rill__buffer *scratch,
                              rill__piece *);

/* val[at + i] = x[i], rounded to the type. */
void rill__values_put(rill_type, void *val, uint64_t at, uint64_t n, const double *x);
void rill__values_get(rill_type, const void *val, uint64_t at, uint64_t n, double *x);
/* upper = lower op upper, for n values in any memory of the host, without slack. */
void rill__values_combine(rill_type, const rill_op *, const void *lower, void *upper, uint64_t n);
/* out = lower op upper, which may be out; arrays of ours, or parts of them. */
void rill__values_combine_to(rill_type, const rill_op *, void *out, const void *lower,
                             const void *upper, uint64_t n);
/* idx = the indices of all blocks whose bit is set, in order. */
void rill__indices_of_blocks(unsigned index_bytes, uint64_t words, const uint64_t *bits,
                             uint64_t block, uint64_t dim, void *idx);

#endif
