/* What estimates take messages for: the dense form above its switch, blocks by their own, bitmaps
 * by their range, and skew in full. Bytes that are sent are held against these by the tests of the
 * algorithms. */
#include "../support/unit.h"

#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/split.h"
#include "plan/plan.h"

enum { DIM = 1 << 20, RANKS = 8 };

static rill__problem problem_at(const rill__planner *planner, double density, double skew,
                                const rill__index_codec *codec) {
    rill__settings settings = {.partition = RILL__UNIFORM};
    uint64_t nnz = (uint64_t)(density * DIM);
    rill__observed seen = {.known = true, .nnz_sum = nnz * RANKS, .nnz_max = nnz, .skew = skew};
    rill__problem p = rill__plan_problem(planner, &settings, RILL_ALLREDUCE, RANKS, DIM, RILL_F32,
                                         RILL_SUM, &seen);
    rill__problem_code(&p, codec, 0);
    return p;
}

static rill__planner make_planner(void) {
    rill__planner planner = {.hosts = 1,
                             .most_per_host = RANKS,
                             .sums_bits = true,
                             .mpi_sums = true};
    rill__constants_default(&planner.profile.constants, 1, 1, 1);
    return planner;
}

static void test_dense_above_switch(void **state) {
    (void)state;
    rill__planner planner = make_planner();
    double limit = (double)rill__dense_switch(RILL_F32, DIM);
    rill__problem p = problem_at(&planner, 0.1, 1, &rill__codec_bitmap);
    assert_true(rill__form_bytes(&p, limit, DIM) == rill__pairs_bytes(&p, limit, DIM));
    assert_true(rill__form_bytes(&p, limit + 1, DIM) == 4.0 * DIM);
    /* A bitmap of that many is smaller than the dense form, but is not how a sum is sent. */
    assert_true(rill__pairs_bytes(&p, limit + 1, DIM) < 4.0 * DIM);
    assert_true(rill__form_bytes(&p, limit / 4 + 1, DIM / 4) == 4.0 * DIM / 4);
    /* An input is sent as bits, where all ranks have kernels for them; not one that is nearly full.
     */
    assert_true(rill__input_bytes(&p, limit, DIM) == rill__pairs_bytes(&p, limit, DIM));
    assert_true(rill__input_bytes(&p, DIM / 2, DIM) == 2.125 * DIM);
    assert_true(rill__input_bytes(&p, 0.9 * DIM, DIM) == 4.0 * DIM);
    p.sums_bits = false;
    assert_true(rill__input_bytes(&p, DIM / 2, DIM) == 4.0 * DIM);
}

static void test_blocks_by_bytes(void **state) {
    (void)state;
    rill__planner planner = make_planner();
    rill__problem p = problem_at(&planner, 0.6, 1, &rill__codec_raw);
    p.index_cost = 0.01;
    assert_true(rill__form_bytes(&p, 0.6 * DIM, DIM) == rill__pairs_bytes(&p, 0.6 * DIM, DIM));
    assert_true(rill__form_bytes(&p, DIM, DIM) == 4.0 * DIM);
}

/* The owner of the fullest range receives its load, also where that is more than a dense vector; a
 * dense input has none. */
static void test_skew_in_full(void **state) {
    (void)state;
    rill__planner planner = make_planner();
    planner.profile.constants.latency = planner.profile.constants.message = 0;
    rill__problem even = problem_at(&planner, 0.1, 1, &rill__codec_raw),
                  uneven = problem_at(&planner, 0.1, RANKS, &rill__codec_raw),
                  dense = problem_at(&planner, 0.5, 1, &rill__codec_raw);
    assert_true(fabs(rill__split_estimate(&uneven) / rill__split_estimate(&even) - RANKS) < 1e-6);
    double bytes = (0.5 * 4 + 0.125) * DIM * (RANKS - 1) / RANKS;
    assert_true(fabs(rill__split_estimate(&dense) / (bytes * (dense.c->byte + dense.transcode)) -
                     1) < 1e-6);
}

static void test_bitmap_costs_its_range(void **state) {
    (void)state;
    rill__planner planner = make_planner();
    rill__problem thin = problem_at(&planner, 0.01, 1, &rill__codec_bitmap),
                  thick = problem_at(&planner, 0.4, 1, &rill__codec_bitmap);
    double per_entry_thin = thin.transcode * rill__pairs_bytes(&thin, thin.nnz, DIM) / thin.nnz,
           per_entry_thick = thick.transcode * rill__pairs_bytes(&thick, thick.nnz, DIM) /
                             thick.nnz;
    assert_true(per_entry_thin > 8 * per_entry_thick);
    /* So that at 1 % another codec is taken, however fast the network. */
    rill__settings none = {.partition = RILL__UNIFORM};
    rill__problem way = thin;
    rill__plan_way(&planner, &none, &rill__allreduce_split_allgather, &way);
    assert_true(way.codec != &rill__codec_bitmap);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_above_switch),
        cmocka_unit_test(test_blocks_by_bytes),
        cmocka_unit_test(test_skew_in_full),
        cmocka_unit_test(test_bitmap_costs_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
