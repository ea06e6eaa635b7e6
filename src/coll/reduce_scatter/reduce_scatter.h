#ifndef RILL_COLL_REDUCE_SCATTER_REDUCE_SCATTER_H
#define RILL_COLL_REDUCE_SCATTER_REDUCE_SCATTER_H

#include "coll/run.h"

extern const rill__algorithm rill__reduce_scatter_split, rill__reduce_scatter_ring,
    rill__reduce_scatter_shared, rill__reduce_scatter_recursive_halving;

#endif
