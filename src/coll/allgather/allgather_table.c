/* The allgather algorithms. */
#include "coll/allgather/allgather.h"
#include "coll/coll.h"

const rill__algorithm *const rill__allgather_table[] = {
    &rill__allgather_direct,
    &rill__allgather_bruck,
    &rill__allgather_ring,
    &rill__allgather_shared,
    NULL,
};
