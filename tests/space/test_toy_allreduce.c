/* An algorithm is a file and a row. A toy goes through the whole test of allreduce, which walks the
 * table; the table of this program has the toy's row behind those of the library. */
#include "../toy/allreduce_star.c"

#define RILL_TEST_ALLREDUCES &toy_allreduce_star,
#include "coll/allreduce/allreduce_table.c"

#include "../mpi/test_allreduce.c"
