#ifndef RILL_COLL_REDUCE_REDUCE_H
#define RILL_COLL_REDUCE_REDUCE_H

#include "coll/run.h"

extern const rill__algorithm rill__reduce_tree, rill__reduce_split_gather, rill__reduce_shared;

#endif
