/* The algorithms of reducers. One row each; nothing else knows that they exist. */
#include "coll/coll.h"
#include "coll/topk/topk.h"

const rill__algorithm *const rill__topk_table[] = {
    &rill__topk_gtopk, &rill__topk_oktopk, &rill__topk_spardl, &rill__topk_s2, NULL,
};
