/* Memory that the ranks of a host share, where the link has some: a segment of each rank.
 *
 * A rank copies a part into an area of its own segment and tells the others by message where it
 * lies; they read it in place. An area has a count of those who have yet to read it, and is free
 * when it is 0: nobody waits for that. A segment that is too small grows, which the others need not
 * know: they have addresses for all that it may become. Where there is no room all the same
 * (readers are late, a failed call left an area behind, the host has no more to give, nothing is
 * shared), the part goes by message instead. */
#ifndef RILL_REQ_SHARED_H
#define RILL_REQ_SHARED_H

#include "link/hosts.h"
#include "req/mail.h"
#include "stream/part.h"

/* Areas of a rank that may be in use at once. */
enum { RILL__SHARED_AREAS = 64 };

typedef struct rill__shared {
    rill__link *link; /* whose memory it is */
    int n;            /* ranks with a segment; 0: nothing is shared */
    char **segment;   /* of each rank of this host, by its place */
    size_t *bytes;    /* of each */
    char *own;        /* this rank's, */
    size_t most;      /* bytes, */
    size_t has;       /* of which so many may be used, */
    size_t boxes;     /* after those for mail, */
    size_t denied;    /* and so many could not be had; 0: it was never so */
    /* Areas of this rank, the oldest first, one after the other in a circle. */
    struct {
        size_t at, end;
    } areas[RILL__SHARED_AREAS];
    int oldest, used;
    rill__mail mail; /* boxes lie before the areas */
} rill__shared;

/* Collective. bytes: of each rank's segment, at most. It begins small and grows when a part asks
 * for it, as far as the machine has memory to give. mail: the most bytes of a message that may go
 * by mail; 0: none. Where nothing is shared, which is no failure, everything goes by message. */
rill_status rill__shared_create(rill__shared *, rill__link *, const rill__hosts *, uint64_t bytes,
                                uint64_t mail);
void rill__shared_free(rill__shared *); /* collective */

/* Whether parts may lie there. */
static inline bool rill__shared_has_areas(const rill__shared *s) { return s->n && s->most; }

/* Where a part lies, as words of a message. */
enum { RILL__SHARED_WORDS = 5 };
/* Copies the part to an area that so many ranks will read. False: there is no room. */
bool rill__shared_put(rill__shared *, rill__shape, const rill__part *, int readers,
                      uint64_t words[RILL__SHARED_WORDS]);
/* The part in the segment of the rank at that place, checked to lie inside of it. */
rill_status rill__shared_get(rill__shared *, int place, rill__shape, uint64_t dim,
                             const uint64_t words[RILL__SHARED_WORDS], rill__part *);
/* This rank has read what was got by these words. */
void rill__shared_release(rill__shared *, int place, const uint64_t words[RILL__SHARED_WORDS]);

#endif
