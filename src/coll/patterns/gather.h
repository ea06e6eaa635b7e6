/* All ranks get one message of every rank, forwarded as it was encoded: no decoding in between, and
 * the same bytes everywhere.
 *
 *   DIRECT  each rank sends to all others: P-1 messages in one round, nothing is copied
 *   BRUCK   ceil(log2 P) rounds; later messages bundle what was received (Bruck et al. 1997)
 *   RING    P-1 rounds to the right neighbour, nothing is copied
 *
 * Memory: the P messages. Bytes per rank in every case: those of the P-1 other messages. */
#ifndef RILL_COLL_PATTERNS_GATHER_H
#define RILL_COLL_PATTERNS_GATHER_H

#include "coll/patterns/collect.h"

typedef enum rill__gather_kind { RILL__DIRECT, RILL__BRUCK, RILL__RING } rill__gather_kind;

typedef struct rill__gather {
    rill__gather_kind kind;
    rill__group group;
    int round;
    bool sent;
    rill__collect collect;   /* DIRECT */
    rill__message *messages; /* of rank (or place) i; form FAILED where none came */
    rill__parcel **parcels;  /* RING: that hold them */
    rill__parcel *mine;
} rill__gather;

/* The kind that the constants favour, for messages of that many bytes. */
rill__gather_kind rill__gather_choose(const rill__problem *, double bytes);
double rill__gather_estimate(const rill__problem *, rill__gather_kind, double bytes);

rill_status rill__gather_start(rill__run *, rill__gather *, rill__gather_kind, rill__parcel *mine);
/* The same among some ranks. */
rill_status rill__gather_start_among(rill__run *, rill__gather *, const rill__group *,
                                     rill__gather_kind, rill__parcel *mine);
rill_status rill__gather_step(rill__run *, rill__gather *);

/* The parts of all messages, in the order of ranks, into room for P. */
void rill__gather_parts(rill__run *, const rill__gather *, rill__part *);

#endif
