/* Ring reduce-scatter: P-1 rounds, in each a range goes to the right neighbour, which adds its own
 * entries of that range. The sum of range j starts at rank j+1 and ends at its owner j; the order
 * of the sum is that of the ring.
 *
 * Memory: one message, two partial sums. Bytes: the P-1 partial sums that pass. */
#ifndef RILL_COLL_PATTERNS_RING_H
#define RILL_COLL_PATTERNS_RING_H

#include "coll/patterns/split.h"

typedef struct rill__ring {
    int round;
    bool sent, known;
    rill__split split; /* bounds */
    int last;          /* piece that holds the last partial sum */
} rill__ring;

/* When done, run->piece[ring->last] is the sum of my range. */
rill_status rill__ring_step(rill__run *, rill__ring *);
double rill__ring_estimate(const rill__problem *);

#endif
