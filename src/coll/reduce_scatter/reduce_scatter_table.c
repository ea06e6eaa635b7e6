/* The reduce_scatter algorithms. */
#include "coll/coll.h"
#include "coll/reduce_scatter/reduce_scatter.h"

const rill__algorithm *const rill__reduce_scatter_table[] = {
    &rill__reduce_scatter_split,
    &rill__reduce_scatter_ring,
    &rill__reduce_scatter_shared,
    &rill__reduce_scatter_recursive_halving,
    NULL,
};
