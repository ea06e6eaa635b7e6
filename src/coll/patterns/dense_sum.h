/* The sum of dense arrays by messages of our own, for links that have no MPI: values by an
 * operation, or 64-bit words by OR. All ranks get the same bits, whatever comes first: places are
 * added in an order that does not depend on arrival.
 *
 *   doubling  whole arrays are exchanged in ceil(log2 P) rounds (req/pattern.c); for short ones
 *   direct    each rank gets from all others their part of its range and adds the P parts in the
 *             order of places; the sums are gathered (gather.h); for long ones
 *   pieces    the same between hosts, where ranges are long: piece after piece of all ranges, so
 *             that sums and copies take place while the network brings the next pieces. The order
 *             of the sum, and so every bit of it, is that of direct
 *
 * Messages are words, as those of agreements. A rank that has failed takes part, with messages that
 * say so. A failure that arises late may be known to some ranks only: who goes on agrees first.
 *
 * Memory: the messages, which are 2 arrays (direct), or 2 ceil(log2 P) (doubling); pieces: some
 * 16 MiB, since they are used again, and 16 bytes for each piece.
 * Cost for arrays of b bytes, the lesser of
 *     log2 P (latency + b (byte + 2 copy + 3 dense_add)), more where P folds to a power of 2
 *     latency + (P-2) message + (P-1)/P b (byte + copy + 3 dense_add) + gather(b/P) + b copy */
#ifndef RILL_COLL_PATTERNS_DENSE_SUM_H
#define RILL_COLL_PATTERNS_DENSE_SUM_H

#include "coll/patterns/gather.h"

typedef struct rill__dense_sum {
    /* given, alike on all ranks but for from and to */
    bool words; /* 64-bit words by OR; else values: */
    rill_type type;
    const rill_op *op;
    uint64_t count;
    rill__group group; /* unset: all ranks */
    const void *from;  /* in the memory of the host; not read in a failed call */
    /* Where the sum goes in pieces (rill__dense_sum_in_pieces), sparse ones may be given instead,
     * and what absent entries stand for: dense ones are made piece by piece. */
    const rill__part *sparse;
    const void *fill;
    void *to; /* another array, with slack */
    /* so far */
    int stage, round, sent;
    int pieces;          /* of each range */
    int came, summed;    /* pieces: messages of parts; sums of mine that have left */
    int *parts_of;       /* pieces: parts that came of each place, */
    int *sums_of;        /* and sums */
    bool counted;        /* a part of the sum is in to; else it is in from */
    const void **parts;  /* direct: of my range, by place; pieces: by piece, and by place in it */
    rill__parcel **held; /* pieces: that these are in */
    void *mine;          /* pieces: one of my own sparse ones */
    rill__header heard;  /* statistics of those who came in */
    rill__collect collect;
    rill__gather gather;
} rill__dense_sum;

/* RILL_OK: the sum is in to, or the call has failed. */
rill_status rill__dense_sum_step(rill__run *, rill__dense_sum *);
/* Whether sums of such a problem go in pieces; count, type and group are given by then. */
bool rill__dense_sum_in_pieces(const rill__run *, const rill__dense_sum *);
/* Of arrays of that many bytes, among the problem's ranks. */
double rill__dense_sum_estimate(const rill__problem *, double bytes);

#endif
