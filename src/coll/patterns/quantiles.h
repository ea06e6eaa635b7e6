/* Bounds of a split that even both of its halves: what an owner receives, and what it sends.
 *
 * Ranges with as many entries of the inputs each are uneven in the sums, where some indices are
 * everybody's and others one rank's: with the features of text the fullest sum had 2.3 times the
 * mean, and the gathering took as much longer. Ranges that are even in the sums have an owner for
 * all that is frequent, which receives most of the inputs.
 *
 * Idea. Quantiles of w F_in + (1 - w) F_sum, F being shares of the entries below an index; the last
 * result stands for the sum. With k entries a rank and K of the sum, no owner receives more than k
 * / w or sends more than K / (1 - w) to each other, so that the worse of receiving all, k / w + K,
 * and sending all, k + K / (1 - w), is least at w = 1 / (1 + sqrt(K / k)): k + K + sqrt(k K),
 * whatever the data. Cost: O((P + RILL__SPREAD) log n), for n entries of this rank. */
#ifndef RILL_COLL_PATTERNS_QUANTILES_H
#define RILL_COLL_PATTERNS_QUANTILES_H

#include "coll/run.h"

/* bounds[1 .. size - 1], ascending, of a sparse part that is not empty. */
void rill__mixed_quantiles(const rill__part *, unsigned index_bytes, const rill__spread *, int size,
                           uint64_t *bounds);

#endif
