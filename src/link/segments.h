/* Memory that the ranks of a host share, by POSIX: what `share` of a link is made of. */
#ifndef RILL_LINK_SEGMENTS_H
#define RILL_LINK_SEGMENTS_H

#include "link/hosts.h"
#include "link/link.h"

/* The segments of a host's ranks, as this one has mapped them. All 0: none. */
typedef struct rill__segments {
    int n, place; /* ranks, and this one among them */
    void **at;
    size_t *bytes; /* of addresses */
    int file;      /* of this rank's own */
    uint64_t has;  /* bytes of it that have pages */
} rill__segments;

/* Collective, by the link's allgather: see share in link/link.h. key: the same on all ranks, and of
 * nobody else; 0, 0: nothing is shared. A rank that lacks memory, or a host without room in
 * /dev/shm, is no failure: all ranks of that host share nothing then. */
rill_status rill__segments_open(rill__segments *, rill__link *, const uint64_t key[2],
                                const rill__hosts *, rill__share_bytes, char **segment,
                                size_t *sizes, bool *shared);
bool rill__segments_grow(rill__segments *, uint64_t bytes); /* see grow in link/link.h */
void rill__segments_close(rill__segments *); /* local; fine where nothing is shared */

#endif
