/* The test of reducers, which walks the tables, where these have the rows of three toys. */
#include "../toy/allreduce_star.c"
#include "../toy/codec_vbyte.c"
#include "../toy/select_stride.c"

#define RILL_TEST_ALLREDUCES &toy_allreduce_star,
#include "coll/allreduce/allreduce_table.c"

#define RILL_TEST_CODECS &toy_codec_vbyte,
#include "codec/codec_table.c"

#define RILL_TEST_SELECTIONS &toy_select_stride,
#include "select/select_table.c"

#include "../mpi/test_reducer.c"
