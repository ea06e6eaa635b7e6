/* One message from each other rank of a group, in the order in which they come, handed over by
 * place. */
#ifndef RILL_COLL_PATTERNS_COLLECT_H
#define RILL_COLL_PATTERNS_COLLECT_H

#include "coll/run.h"

typedef struct rill__collect {
    rill__group group;
    int lane, received;
    uint64_t few, *many; /* places that have been heard of: up to 64 of them, or more */
} rill__collect;

/* group: unset is all ranks. */
rill_status rill__collect_start(rill__run *, rill__collect *, const rill__group *, int lane);
/* RILL_OK: a message has come, and its place is set; -1: all have. RILL_IN_PROGRESS: none is
 * there. A message of somebody else, or a second one of a rank, is a failure, and is not handed
 * over. */
rill_status rill__collect_next(rill__run *, rill__collect *, rill__received *);

#endif
