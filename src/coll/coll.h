/* The algorithms of all collectives, for those who choose one. */
#ifndef RILL_COLL_COLL_H
#define RILL_COLL_COLL_H

#include "coll/run.h"

/* Tables: NULL past the end, or for an unknown name. */
const rill__algorithm *rill__algorithm_at(rill_collective, int i);
const rill__algorithm *rill__algorithm_named(rill_collective, const char *name);
/* The one that hands the sum to MPI. */
const rill__algorithm *rill__algorithm_of_mpi(rill_collective);
extern const rill__algorithm *const rill__allreduce_table[];
extern const rill__algorithm *const rill__reduce_table[];
extern const rill__algorithm *const rill__reduce_scatter_table[];
extern const rill__algorithm *const rill__allgather_table[];
extern const rill__algorithm *const rill__bcast_table[];
extern const rill__algorithm *const rill__topk_table[];
enum { RILL__TABLES = RILL_COLLECTIVES + 1 };

#endif
