#ifndef RILL_COLL_REDUCE_SCATTER_REDUCE_SCATTER_H
#define RILL_COLL_REDUCE_SCATTER_REDUCE_SCATTER_H

#include "coll/patterns/split.h"

extern const rill__algorithm rill__reduce_scatter_split, rill__reduce_scatter_ring;

/* Ends a reduce-scatter: out has the piece, and the caller learns the range. */
rill_status rill__finish_range(rill_request *, const rill__split *, const rill__part *);

#endif
