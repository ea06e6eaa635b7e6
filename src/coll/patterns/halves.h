/* Messages of a reduce-scatter by halves, for any P.
 *
 * The index space has P shares; share b ends at rank b. In each round, with distances d = the
 * largest power of two below P, then its halves, a rank sends to rank + d, in one message, all
 * shares that it still holds whose offset (share - rank) mod P is d or more, and keeps the rest.
 * What comes from rank - d are the first of the shares that it keeps. After ceil(log2 P) rounds it
 * holds its own share. Source: SparDL (Zhao et al., ICDE 2023), Spar-Reduce-Scatter.
 *
 * The shares that a rank holds follow each other on the ring: one section of the index space, or
 * two where they go on at share 0. What happens to the entries is the algorithm's. */
#ifndef RILL_COLL_PATTERNS_HALVES_H
#define RILL_COLL_PATTERNS_HALVES_H

#include "coll/run.h"

/* Shares [from, to), as a range of the index space. */
typedef struct rill__section {
    int from, to;
    uint64_t first, range;
} rill__section;

typedef struct rill__halves {
    const uint64_t *bounds; /* P + 1, of the shares */
    int distance, held;     /* of this round; shares that this rank holds, its own the first */
    bool sent;              /* this round's message has left */
} rill__halves;

/* What came: a message for each section; none after a failure. */
typedef struct rill__halves_came {
    int from, n;
    rill__section section[2];
    rill__message message[2];
} rill__halves_came;

/* The largest power of two below P; 0 for one rank. */
int rill__halves_distance(int ranks);
void rill__halves_start(const rill__run *, rill__halves *, const uint64_t *bounds);
/* The n shares from the rank's own and offset on; returns how many sections they are. The second
 * is empty where there is one. */
int rill__halves_sections(const rill__run *, const rill__halves *, int offset, int n,
                          rill__section out[2]);
/* Those that leave in this round. */
int rill__halves_leaving(const rill__run *, const rill__halves *, rill__section out[2]);
/* The sections that leave, as encoded. */
rill_status rill__halves_send(rill__run *, rill__halves *, int n, rill__parcel *const parcels[2]);
/* Ends the round: distance is then the next one's, 0 after the last. */
rill_status rill__halves_receive(rill__run *, rill__halves *, rill__halves_came *);

#endif
