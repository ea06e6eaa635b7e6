/* The way down a binomial tree: one encoded parcel goes to the children, the child with the most
 * ranks below it first. A large parcel goes to one after the other: sent to all at once, they would
 * share the link, and the child that has the longest way before it would get its last byte as late
 * as the one that has none.
 *
 * Cost: ceil(log2 P) (latency + bytes byte), where all at once takes up to log2(P) / 2 times the
 * second term. */
#ifndef RILL_COLL_PATTERNS_FAN_OUT_H
#define RILL_COLL_PATTERNS_FAN_OUT_H

#include "coll/run.h"

/* place is this rank's in the tree whose root is rank root and has place 0. *distance starts as the
 * distance to the parent (of the root: over the number of ranks), and holds the state. RILL_OK: all
 * are on their way. */
rill_status rill__fan_out(rill__run *, int root, int place, int *distance, int lane,
                          rill__parcel *);

#endif
