/* A codec is a file and a row. A toy takes the way of all others: from its name in an option to a
 * message, and into the planner's estimates. Nothing else knows of it. The table of this program
 * has its row behind those of the library. */
#include "../support/unit.h"

#include "../toy/codec_vbyte.c"

#define RILL_TEST_CODECS &toy_codec_vbyte,
#include "codec/codec_table.c"

#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "plan/plan.h"
#include "req/message.h"

enum { DIM = 1 << 20, N = 5000, RANGE = 2 * DIM, RANKS = 8 };

static void test_in_the_table(void **state) {
    (void)state;
    const char *text = NULL;
    assert_ptr_equal(rill__index_codec_by_name("vbyte"), &toy_codec_vbyte);
    assert_ptr_equal(rill__index_codec_by_id(200), &toy_codec_vbyte);
    assert_string_equal(rill_codec_at(COUNT - 1, &text), "vbyte");
    assert_string_equal(text, toy_codec_vbyte.description);
    assert_null(rill_codec_at(COUNT, NULL));
    /* It is not the smallest of many, and so not taken for what it saves. */
    for (uint64_t n = 9; n < DIM; n *= 3)
        assert_ptr_not_equal(rill__index_codec_choose(4, n, DIM), &toy_codec_vbyte);
}

static uint32_t *make_indices(void) {
    uint32_t *idx = rill__aligned_alloc(N * sizeof *idx);
    assert_non_null(idx);
    uint64_t random = 1;
    uint32_t index = 0;
    for (uint32_t i = 0; i < N; index++) { /* each with the same probability, until there are N */
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        if ((random >> 33) % (DIM / N) == 0) idx[i++] = index;
    }
    assert_true(index <= RANGE);
    return idx;
}

static void test_public_calls(void **state) {
    (void)state;
    uint32_t *idx = make_indices(), *back = make_indices();
    size_t bound = 0, size = 0;
    assert_int_equal(rill_indices_bound("vbyte", 4, N, RANGE, &bound), RILL_OK);
    uint8_t *bytes = rill__aligned_alloc(bound);
    assert_non_null(bytes);
    assert_int_equal(rill_indices_encode("vbyte", 4, idx, N, 0, RANGE, bytes, &size), RILL_OK);
    assert_true(size <= bound);
    double expected = toy_codec_vbyte.message_bits(4, N, DIM) / 8;
    assert_true(fabs((double)size / expected - 1) < 0.02);
    memset(back, 0, N * sizeof *back);
    assert_int_equal(rill_indices_decode("vbyte", 4, bytes, size, N, 0, RANGE, back), RILL_OK);
    assert_memory_equal(idx, back, N * sizeof *idx);
    assert_int_equal(rill_indices_decode("vbyte", 4, bytes, size - 1, N, 0, RANGE, back),
                     RILL_ERR_MESSAGE);
    assert_int_equal(rill_indices_decode("vbyte", 4, bytes, size, N, 0, DIM / 2, back),
                     RILL_ERR_MESSAGE);
    free(bytes);
    free(back);
    free(idx);
}

static void test_in_a_message(void **state) {
    (void)state;
    uint32_t *idx = make_indices();
    float *val = rill__aligned_alloc(N * sizeof *val);
    assert_non_null(val);
    for (int i = 0; i < N; i++)
        val[i] = (float)i;
    rill__shape shape = {.type = RILL_F32, .index_bytes = 4};
    rill__coding coding = {.index = &toy_codec_vbyte, .value = &rill__value_raw};
    rill__part part = {RILL__SPARSE, 0, RANGE, N, idx, val, 0, NULL}, got;
    char *bytes = rill__aligned_alloc(rill__message_bound(shape, &coding, &part));
    assert_non_null(bytes);
    rill__header h = {.magic = RILL__MAGIC, .version = RILL__VERSION, .dim = RANGE};
    size_t size = rill__message_encode(&h, shape, &coding, &part, bytes);
    rill__message message;
    assert_int_equal(rill__message_parse(bytes, size, RILL__SEAL, NULL, false, &message), RILL_OK);
    assert_int_equal(message.header.index_codec, 200);
    void *room = rill__aligned_alloc(rill__message_room(&message));
    assert_non_null(room);
    assert_int_equal(rill__message_part(&message, room, &got), RILL_OK);
    assert_int_equal(got.n, N);
    assert_memory_equal(got.idx, idx, N * sizeof *idx);
    assert_memory_equal(got.val, val, N * sizeof *val);
    free(room);
    free(bytes);
    free(val);
    free(idx);
}

/* The planner takes it where it is the fastest: where bytes cost nothing, and coding does. */
static void test_in_estimates(void **state) {
    (void)state;
    rill__planner planner = {.hosts = RANKS, .most_per_host = 1};
    rill__constants *c = &planner.profile.constants;
    rill__constants_default(c, RANKS, 1, 1);
    rill__constants_network(c, &(rill__network){.latency = 25e-6,
                                                .rate = 1e8}); /* where bytes count */
    rill__settings settings = {.partition = RILL__UNIFORM};
    rill__observed seen = {.known = true, .nnz_sum = N * RANKS, .nnz_max = N};
    rill__problem p = rill__plan_problem(&planner, &settings, RILL_ALLREDUCE, RANKS, DIM, RILL_F32,
                                         RILL_SUM, &seen);
    rill__problem way = p;
    rill__plan_way(&planner, &settings, &rill__allreduce_split_allgather, &way);
    assert_ptr_not_equal(way.codec, &toy_codec_vbyte);
    c->byte = c->mpi_byte = 0;
    c->pack = 1e-12;
    c->fano = c->bits = 1e-9;
    way = p;
    rill__plan_way(&planner, &settings, &rill__allreduce_split_allgather, &way);
    assert_ptr_equal(way.codec, &toy_codec_vbyte);
    double bits = toy_codec_vbyte.bits(4, (double)N / DIM);
    assert_true(bits > 8 && bits < 16);
    assert_true(rill__pairs_bytes(&way, N, DIM) == N * (bits / 8 + 4));
    /* By name, as a user asks for it. */
    rill_plan_query q = RILL_PLAN_QUERY_INIT;
    rill_plan_row rows[16];
    int n = 0;
    q.ranks = RANKS, q.dim = DIM, q.nnz = N, q.codec = "vbyte", q.profile = "none";
    assert_int_equal(rill_plan(&q, rows, 16, &n), RILL_OK);
    bool found = false;
    for (int i = 0; i < n; i++)
        found |= rows[i].codec && strcmp(rows[i].codec, "vbyte") == 0;
    assert_true(found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_the_table),
        cmocka_unit_test(test_public_calls),
        cmocka_unit_test(test_in_a_message),
        cmocka_unit_test(test_in_estimates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
