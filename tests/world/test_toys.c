/* The schedules of test_world.c, which walk the tables, where these have the rows of a toy
 * algorithm and a toy codec too: who is a file and a row keeps all promises, those about failures
 * among them. */
#include "../toy/allreduce_star.c"
#include "../toy/codec_vbyte.c"

#define RILL_TEST_ALLREDUCES &toy_allreduce_star,
#include "coll/allreduce/allreduce_table.c"

#define RILL_TEST_CODECS &toy_codec_vbyte,
#include "codec/codec_table.c"

#include "test_world.c"
