#ifndef RILL_COLL_ALLREDUCE_ALLREDUCE_H
#define RILL_COLL_ALLREDUCE_ALLREDUCE_H

#include "coll/run.h"

extern const rill__algorithm rill__allreduce_dense, rill__allreduce_recursive_double,
    rill__allreduce_split_allgather, rill__allreduce_dsar, rill__allreduce_ring,
    rill__allreduce_allgather, rill__allreduce_block, rill__allreduce_hier,
    rill__allreduce_recursive_halving;

#endif
