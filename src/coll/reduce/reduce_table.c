/* The reduce algorithms. */
#include "coll/coll.h"
#include "coll/reduce/reduce.h"

const rill__algorithm *const rill__reduce_table[] = {
    &rill__reduce_tree,
    &rill__reduce_split_gather,
    &rill__reduce_shared,
    NULL,
};
