/* The sum of all ranks' entries of each share, at the rank that owns it, by halves (halves.h):
 * ceil(log2 P) messages of a rank, where split.h has P-1.
 *
 * A section is summed when it leaves, and the own share at the end: so each entry that comes is
 * read once. The order of a sum is that of the rounds, which is a fixed tree.
 *
 * Memory: the messages received, and the section that leaves. */
#ifndef RILL_COLL_PATTERNS_HALVES_SUM_H
#define RILL_COLL_PATTERNS_HALVES_SUM_H

#include "coll/patterns/halves.h"
#include "coll/patterns/split.h"

typedef struct rill__halves_sum {
    bool counts; /* set before the first step: nothing after it brings all ranks' statistics */
    bool begun, summed;
    rill__halves halves;
    rill__coding coding;
    rill__part *parts; /* the input, then what came, as it came */
    int n;
    rill__agree agree; /* on statistics */
} rill__halves_sum;

/* RILL_OK: the own share's sum is in run->piece[0]. The shares are the ranges of the split. */
rill_status rill__halves_sum_step(rill__run *, rill__halves_sum *, rill__split *);
/* With its sums. */
double rill__halves_sum_estimate(const rill__problem *, bool counts);

#endif
