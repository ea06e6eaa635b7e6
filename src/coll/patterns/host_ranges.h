/* Sums by ranges through memory that ranks share.
 *
 * Idea. Each rank of a circle puts its entries once where the others can read them. The ranks at
 * the first places sum a range each from there, in the order of places, and put the sum there;
 * whoever wants the sum reads all ranges. Ranks without shared memory, or on other hosts, get the
 * same parts by message: the same order, and so the same bits.
 *
 * Memory. Of shared memory, the contribution and a sum of a range. Else the sum of a range, and the
 * parts that came by message.
 * Cost for n ranks, m ranges, k entries of a rank and K of the sum, h a message within the host:
 *   h + (n-2) message + k pair copy + n k/m sum                      contributions, sums of ranges
 *   + h + (n-2) message + K/m pair copy + K pair 2 copy              where all read the sum,
 * and a reader alone: h + K/m pair copy + K pair 2 copy. Bytes that go by message cost theirs. */
#ifndef RILL_COLL_PATTERNS_HOST_RANGES_H
#define RILL_COLL_PATTERNS_HOST_RANGES_H

#include "coll/patterns/host_parts.h"

/* In the place of the one rank that reads the sum. */
enum { RILL__READ_BY_ALL = -1, RILL__READ_BY_NONE = -2 };

typedef struct rill__host_ranges {
    /* given */
    rill__circle circle;
    int n;       /* ranks of the circle, */
    int me;      /* this one's place, */
    int ranges;  /* of which the first so many sum, */
    int reader;  /* and who reads the sum: a place, or one of the above */
    bool unites; /* an index that two ranks have is a failure */
    bool ends;   /* the sum is the call's result: its parts are checked at the end */
    /* so far */
    int stage, received;
    rill__host_part *taken; /* of each rank, or of each range */
    rill__part *parts;      /* the same; of who reads the sum, its ranges, when all is done */
    unsigned char fill[8];  /* of the rank at the first place, where this one has heard of it */
} rill__host_ranges;

/* Ranges of a dimension, where they need not be one a rank: each has work for a rank. */
int rill__host_ranges_of(uint64_t dim, int most);
static inline uint64_t rill__host_ranges_first(uint64_t dim, const rill__host_ranges *x, int i) {
    return rill__uniform_bound(dim, i, x->ranges);
}

/* Of all ranks, in the order of ranks. */
static inline void rill__host_ranges_begin(const rill__run *run, rill__host_ranges *x, int ranges,
                                           int reader) {
    *x = (rill__host_ranges){.circle = RILL__ALL_RANKS,
                             .n = run->size,
                             .me = run->rank,
                             .ranges = ranges,
                             .reader = reader,
                             .ends = true};
}
/* RILL_OK: this rank's range of the sum is in run->piece[1], if it sums; and of who reads it, all
 * are in parts, until they are given back. */
rill_status rill__host_ranges_step(rill__run *, rill__host_ranges *);
void rill__host_ranges_release(rill__run *, rill__host_ranges *);
/* The same, and the parts are the result. */
rill_status rill__host_ranges_finish(rill__run *, rill__host_ranges *);

/* What a message and a byte of a part cost. */
typedef struct rill__host_way {
    double latency, byte;
} rill__host_way;
rill__host_way rill__host_way_of(const rill__problem *, rill__circle);
/* What n pairs take as they are, at most. */
double rill__host_bytes(const rill__problem *, double pairs);
/* Of all ranks as the circle, with so many ranges; the reader of them is as above. */
double rill__host_ranges_estimate(const rill__problem *, int ranges, int reader);

#endif
