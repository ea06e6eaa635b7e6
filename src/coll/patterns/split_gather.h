/* Split by index range to owners, sum there, gather the sums: what split_allgather, dsar, block and
 * recursive_halving share. */
#ifndef RILL_COLL_PATTERNS_SPLIT_GATHER_H
#define RILL_COLL_PATTERNS_SPLIT_GATHER_H

#include "coll/patterns/gather.h"
#include "coll/patterns/halves_sum.h"
#include "coll/patterns/split.h"

typedef struct rill__split_gather {
    bool begun, gathering;
    bool dense;     /* owners' sums are */
    bool by_halves; /* the split is; set by the caller after begin */
    rill__gather_kind kind;
    rill__coding exact; /* of a split that keeps values as they are */
    rill__coding sums;  /* of the gather */
    rill__split split;
    rill__halves_sum halves;
    rill__gather gather;
} rill__split_gather;

/* Expected bytes of an owner's sum, and the gather of all, coded and decoded. dense: sums are. */
double rill__owned_bytes(const rill__problem *, bool dense);
double rill__owners_gather_estimate(const rill__problem *, bool dense);

/* Once a call, among the ranks of split.group, each with split.input; the problem is that of the
 * group. Owners' sums are dense when asked (then value_bits is for their phase, unless for all). */
void rill__split_gather_begin(rill__run *, rill__split_gather *, const rill__problem *, bool dense);
rill_status rill__split_gather_step(rill__run *, rill__split_gather *);
/* The first half: my range of the sum is then in run->piece[0]. */
rill_status rill__split_sum_step(rill__run *, rill__split *, bool dense);

#endif
