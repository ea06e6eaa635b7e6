/* Parts from rank to rank: through shared memory where both are on one host and it has room, else
 * by message. Either way a message comes, which carries the sender's statistics and failure. Values
 * go as they are. */
#ifndef RILL_COLL_PATTERNS_HOST_PARTS_H
#define RILL_COLL_PATTERNS_HOST_PARTS_H

#include "coll/run.h"

/* Where a part lies in shared memory (req/shared.h). */
enum { RILL__HOST_WORDS = 5 };

/* A part of a rank of this host, until it is given back. */
typedef struct rill__host_part {
    rill__part part;
    bool shared;
    int place;
    uint64_t words[RILL__HOST_WORDS];
} rill__host_part;

/* Whose places they are: of the ranks of this host, or of all. */
typedef enum rill__circle { RILL__THIS_HOST, RILL__ALL_RANKS } rill__circle;

/* The part to the ranks at places [from, to), but this one. */
rill_status rill__host_give(rill__run *, rill__circle, int from, int to, int lane,
                            const rill__part *);
/* The same where the rank at place from + i needs range i alone of the to - from equal ranges: by
 * message, it gets no more. */
rill_status rill__host_give_ranges(rill__run *, rill__circle, int from, int to, int lane,
                                   const rill__part *);

/* What the rank at that place gives: its entries of the range, which is all or one that it has been
 * given for, not yet checked. A failure is recorded, and gives an empty part. The header is the
 * message's. */
rill_status rill__host_take(rill__run *, rill__circle, int place, int lane, uint64_t first,
                            uint64_t range, rill__host_part *, rill__header *);
/* A part in shared memory is checked as a message is, but not when it is taken: by this, or while
 * it is copied (rill__finish_unchecked). A failure is recorded, and leaves an empty part. */
void rill__host_check(rill__run *, rill__host_part *);
void rill__host_release(rill__run *, const rill__host_part *);

#endif
