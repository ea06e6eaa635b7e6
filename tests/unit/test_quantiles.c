/* Bounds that even entries and sums at once: ascending, and within what their head comment
 * promises, whatever is frequent and wherever it lies. */
#include "../support/unit.h"

#include "coll/patterns/quantiles.h"

enum { DIM = 1000000, FREQUENT = 3000, RARE = 1000, MOST = 64 * RARE + FREQUENT };

typedef struct scene {
    uint32_t own[FREQUENT + RARE], all[MOST]; /* ascending */
    uint64_t n, of_all;
    rill__spread spread;
} scene;

static int by_index(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static uint64_t sort_unique(uint32_t *idx, uint64_t n) {
    uint64_t kept = 0;
    qsort(idx, n, sizeof *idx, by_index);
    for (uint64_t i = 0; i < n; i++)
        if (!i || idx[i] != idx[i - 1]) idx[kept++] = idx[i];
    return kept;
}

/* Frequent indices that all ranks have, from some place on; each has rare ones of its own anywhere.
 */
static void set_scene(scene *s, int ranks, uint32_t place, uint64_t seed) {
    rng r = rng_make(seed, 1);
    s->n = s->of_all = 0;
    for (uint32_t i = 0; i < FREQUENT; i++)
        s->own[s->n++] = s->all[s->of_all++] = place + i;
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < RARE; i++) {
            uint32_t index = (uint32_t)rng_below(&r, DIM);
            s->all[s->of_all++] = index;
            if (!rank) s->own[s->n++] = index;
        }
    s->n = sort_unique(s->own, s->n);
    s->of_all = sort_unique(s->all, s->of_all);
    s->spread.entries = s->of_all;
    for (int i = 1; i < RILL__SPREAD; i++)
        s->spread.at[i] = s->all[rill__uniform_bound(s->of_all, i, RILL__SPREAD)];
    s->spread.at[0] = 0;
    s->spread.at[RILL__SPREAD] = DIM;
}

static uint64_t fullest(const uint32_t *idx, uint64_t n, const uint64_t *bounds, int ranks) {
    uint64_t most = 0, before = 0;
    for (int i = 1; i <= ranks; i++) {
        uint64_t below = rill__index_lower_bound(4, idx, 0, n, bounds[i]);
        most = rill__max_u64(most, below - before);
        before = below;
    }
    assert_int_equal(before, n);
    return most;
}

static void within_the_promise(void **state) {
    (void)state;
    static const int sizes[] = {2, 3, 8, 32, 64};
    static const uint32_t places[] = {0, 500000, DIM - FREQUENT};
    scene *s = malloc(sizeof *s);
    assert_non_null(s);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes * 3; k++) {
        int ranks = sizes[k / 3];
        uint64_t bounds[65] = {0};
        set_scene(s, ranks, places[k % 3], k);
        rill__part in = {.form = RILL__SPARSE, .range = DIM, .n = s->n, .idx = s->own, .val = NULL};
        rill__mixed_quantiles(&in, 4, &s->spread, ranks, bounds);
        bounds[ranks] = DIM;
        for (int i = 1; i <= ranks; i++)
            assert_true(bounds[i] >= bounds[i - 1] && bounds[i] <= DIM);
        double K = (double)s->of_all, n = (double)s->n, w = 1 / (1 + sqrt(K / n));
        /* Up to the step of the spread, and one entry. */
        double entries = (double)fullest(s->own, s->n, bounds, ranks);
        double sums = (double)fullest(s->all, s->of_all, bounds, ranks);
        assert_true(entries <= n / ranks / w + 2);
        assert_true(sums <= K / ranks / (1 - w) + 2 * K / RILL__SPREAD);
    }
    free(s);
}

/* What one of both would be even in, the other is not. */
static void both_matter(void **state) {
    (void)state;
    enum { RANKS = 32 };
    scene *s = malloc(sizeof *s);
    assert_non_null(s);
    uint64_t mixed[RANKS + 1] = {0}, by_entries[RANKS + 1] = {0}, by_sums[RANKS + 1] = {0};
    set_scene(s, RANKS, 0, 9);
    rill__part in = {.form = RILL__SPARSE, .range = DIM, .n = s->n, .idx = s->own, .val = NULL};
    rill__mixed_quantiles(&in, 4, &s->spread, RANKS, mixed);
    for (int i = 1; i < RANKS; i++) {
        by_entries[i] = s->own[rill__uniform_bound(s->n, i, RANKS)];
        by_sums[i] = s->all[rill__uniform_bound(s->of_all, i, RANKS)];
    }
    mixed[RANKS] = by_entries[RANKS] = by_sums[RANKS] = DIM;
    assert_true(2 * fullest(s->all, s->of_all, mixed, RANKS) <
                fullest(s->all, s->of_all, by_entries, RANKS));
    assert_true(2 * fullest(s->own, s->n, mixed, RANKS) < fullest(s->own, s->n, by_sums, RANKS));
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_the_promise),
        cmocka_unit_test(both_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
