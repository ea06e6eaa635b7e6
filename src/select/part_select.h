/* Selection among the pairs of parts, by the keys of their values (space/select_kernels.h), for
 * algorithms that select between two hops. Ties go to the lower index, a NaN counts as the largest.
 */
#ifndef RILL_SELECT_PART_SELECT_H
#define RILL_SELECT_PART_SELECT_H

#include "stream/part.h"

/* Pairs taken apart: those that are kept, and those that are dropped where these are wanted. The
 * caller gives the memory: room for n keys twice, and for n pairs on each side. */
typedef struct rill__part_split {
    rill__shape shape;
    const rill__part *part;
    void *keys, *scratch;
    void *kept_idx, *kept_val;
    void *dropped_idx, *dropped_val; /* NULL: not wanted */
    uint64_t kept, dropped;          /* so far */
} rill__part_split;

size_t rill__part_split_keys(rill__shape, const rill__part *); /* bytes of the keys */
void rill__part_split_start(rill__part_split *);               /* with all but the counts set */
/* Takes the pairs [from, to) apart, which follow those before: the k largest are kept. */
void rill__part_split_range(rill__part_split *, uint64_t from, uint64_t to, uint64_t k);

/* The pairs with at least this key; idx and val may be the part's own. Returns how many. */
uint64_t rill__part_keep_to(rill__shape, const rill__part *, uint64_t key, void *idx, void *val);
/* The k-th largest key of all pairs of n parts, more than k. keys has room for all. */
uint64_t rill__parts_kth_key(rill__shape, int n, const rill__part *, uint64_t k, void *keys);
/* bins[key >> low & mask] += 1 for each value that is not 0 and whose key starts with prefix: key
 * >> high == prefix. */
void rill__part_count_bins(rill_type, const rill__part *, uint64_t prefix, int high, int low,
                           uint64_t mask, uint64_t *bins);
/* counts[m] = values with at least key m. */
enum { RILL__COUNTED_KEYS = 5 };
void rill__part_count_from(rill_type, const rill__part *, const uint64_t *keys, uint64_t *counts);

#endif
