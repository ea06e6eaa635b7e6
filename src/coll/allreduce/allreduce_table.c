/* The allreduce algorithms. One row each; nothing else knows that they exist. */
#include "coll/allreduce/allreduce.h"
#include "coll/coll.h"

const rill__algorithm *const rill__allreduce_table[] = {
    &rill__allreduce_dense,
    &rill__allreduce_recursive_double,
    &rill__allreduce_split_allgather,
    &rill__allreduce_dsar,
    &rill__allreduce_ring,
    &rill__allreduce_allgather,
    &rill__allreduce_block,
    &rill__allreduce_hier,
    &rill__allreduce_recursive_halving,
#ifdef RILL_TEST_ALLREDUCES /* rows of a test, which compiles this file itself */
    RILL_TEST_ALLREDUCES
#endif
        NULL,
};
