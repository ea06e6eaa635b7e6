/* Split by index range to owners, sum there, gather the sums: what split_allgather and dsar share. */
#ifndef RILL_COLL_PATTERNS_SPLIT_GATHER_H
#define RILL_COLL_PATTERNS_SPLIT_GATHER_H

#include "coll/patterns/gather.h"
#include "coll/patterns/split.h"

typedef struct rill__split_gather {
    bool gathering;
    rill__split split;
    rill__gather gather;
} rill__split_gather;

/* Among the ranks of split.group, each with request->input. Owners' sums are dense when asked (then value_bits is for their phase, unless for all); a sum takes about owned_bytes (as all ranks agree). */
rill_status rill__split_gather_step(rill_request *, rill__split_gather *, bool dense,
                                    double owned_bytes);
/* The first half: my range of the sum is then in request->piece[0]. */
rill_status rill__split_sum_step(rill_request *, rill__split *, bool dense);

#endif
