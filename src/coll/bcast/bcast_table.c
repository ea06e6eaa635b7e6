/* The bcast algorithms. */
#include "coll/bcast/bcast.h"
#include "coll/coll.h"

const rill__algorithm *const rill__bcast_table[] = {&rill__bcast_tree, &rill__bcast_shared, NULL};
