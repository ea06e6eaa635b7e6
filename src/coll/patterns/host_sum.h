/* The sum of dense arrays on one host whose ranks can read each other's memory (link/reach.h).
 *
 * Idea. Each rank tells all others where its array lies, and where its result will. It then reads
 * the others' parts of its range, piece by piece, and adds them in the order of ranks, to its range
 * of the result; says that it has; and reads the other ranges where their owners have summed them.
 * The order of the sum, and so every bit, is that of owners who get parts by message
 * (dense_sum.h). Nothing is copied on the way, and pieces are summed while they are in the caches.
 *
 * What is said are messages of the usual kind, in three rounds: they carry failures and statistics,
 * and whoever waits for one sees aborts and deaths. The third says that a rank has read all that it
 * needs: nobody leaves before, as its memory would change. Memory that can't be read any more is of
 * a rank that has left the call by an abort, or is dead: this one waits, for it will hear of it.
 *
 * Memory: a piece.
 * Cost for b bytes: 3 (latency + (P-2) message) + (P-1)/P b (host_byte + 3 dense_add): a byte is
 * read twice by the kernel, which takes half as long as a message of it. */
#ifndef RILL_COLL_PATTERNS_HOST_SUM_H
#define RILL_COLL_PATTERNS_HOST_SUM_H

#include "coll/patterns/collect.h"

typedef struct rill__host_sum {
    /* given, alike on all ranks but for from and to */
    rill_type type;
    const rill_op *op;
    uint64_t count;
    const void *from; /* in the memory of the host; not read in a failed call */
    void *to;         /* another array, with slack */
    /* so far */
    int stage;
    uint64_t (*place)[2]; /* of each rank: where its array and its result lie */
    void *piece;
    uint64_t done;      /* elements of the range that is being read */
    int reading;        /* its owner; -1: none */
    bool waits;         /* for one whose memory can't be read, */
    double since;       /* so long */
    rill__header heard; /* statistics of those who came in */
    rill__collect collect;
} rill__host_sum;

/* Whether sums of arrays of so many bytes go this way, among the problem's ranks. */
static inline bool rill__host_sum_serves(const rill__problem *p, double bytes) {
    return p->read_bytes && p->hosts == 1 && p->ranks > 1 && bytes >= (double)p->read_bytes;
}
/* The same of dense vectors. */
static inline bool rill__host_sum_serves_dense(const rill__problem *p) {
    return rill__host_sum_serves(p, (double)p->dim * (double)rill__type_size(p->type));
}
double rill__host_sum_estimate(const rill__problem *, double bytes);
/* Whether other ranks can read that memory, which is of somebody else: the kernel refuses a
 * device's, say. */
bool rill__host_sum_can_lend(const rill__run *, const void *, size_t bytes);
/* RILL_OK: the sum is in to, or the call has failed. */
rill_status rill__host_sum_step(rill__run *, rill__host_sum *);

#endif
