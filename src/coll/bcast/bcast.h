/* The rows of the bcast table. */
#ifndef RILL_COLL_BCAST_H
#define RILL_COLL_BCAST_H

#include "coll/run.h"

extern const rill__algorithm rill__bcast_tree, rill__bcast_shared;

#endif
