/* The rows of the allgather table. */
#ifndef RILL_COLL_ALLGATHER_H
#define RILL_COLL_ALLGATHER_H

#include "coll/run.h"

extern const rill__algorithm rill__allgather_shared, rill__allgather_direct, rill__allgather_bruck,
    rill__allgather_ring;

#endif
