/* Sums: scalar against plain references, every other instruction set against scalar, bit by bit. */
#include "test_kernels.h"

static void try_merge(rill__shape shape, set x, set y) {
    size_t size = rill_type_size(shape.type);
    uint64_t most = x.n + y.n;
    rill__pairs a = pairs_of(shape, x, true), b = pairs_of(shape, y, true);
    void *want_idx = array_new(most * shape.index_bytes);
    char *want_val = array_new(most * size);
    for (unsigned o = 0; o < OPS; o++) {
        uint64_t want = reference_merge(shape, op_at(o), a, b, want_idx, want_val);
        for (int k = 0; k < isa_count; k++) {
            void *idx = array_new(most * shape.index_bytes);
            char *val = array_new(most * size);
            assert_int_equal(isas[k]->merge(shape, op_at(o), a, b, idx, val), want);
            same_pairs(shape, op_at(o), want, idx, val, want_idx, want_val, isas[k]->isa);
            array_check(idx, most * shape.index_bytes);
            array_check(val, most * size);
            free(idx);
            free(val);
        }
    }
    pairs_free(a);
    pairs_free(b);
    free(want_idx);
    free(want_val);
}

static void try_merge_sets(rill__shape shape, set x, set y) {
    try_merge(shape, x, y);
    try_merge(shape, y, x);
    free(x.x);
    free(y.x);
}

static void test_merge_patterns(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 200};
    for (unsigned s = 0; s < SHAPES; s++) {
        uint64_t top = shapes[s].index_bytes == 4 ? UINT32_MAX : UINT64_MAX;
        uint64_t base = shapes[s].index_bytes == 4 ? 1000 : (UINT64_C(1) << 33) + 5;
        for (unsigned i = 0; i < 16; i++) {
            uint64_t n = lengths[i];
            for (unsigned j = 0; j < 16; j++) {
                uint64_t m = lengths[j];
                try_merge(shapes[s], (set){0, NULL}, (set){0, NULL});
                try_merge_sets(shapes[s], set_regular(n, base, 2), set_regular(m, base + 1, 2));
                try_merge_sets(shapes[s], set_regular(n, base, 1), set_regular(m, base, 1));
                try_merge_sets(shapes[s], set_regular(n, base, 1), set_regular(m, base + n, 1));
                try_merge_sets(shapes[s], set_regular(n, top - (n - 1), 1),
                               set_regular(m, top - (m - 1), 1));
            }
            try_merge_sets(shapes[s], set_regular(n, 0, 3), set_random(900, 0, 700));
        }
        /* The span that the SIMD keys hold, and gaps around it. */
        uint64_t span = UINT64_C(1) << 27;
        for (uint64_t step = span - 2; step <= span + 1; step++)
            try_merge_sets(shapes[s], set_regular(30, 7, step), set_regular(30, 7, span - 1));
        try_merge_sets(shapes[s], set_regular(31, 0, span), set_random(5000, 0, UINT32_MAX));
    }
}

static void test_merge_random(void **state) {
    (void)state;
    static const uint64_t ranges[] = {20, 300, 4000, 1 << 20, UINT32_MAX};
    for (int round = 0; round < 1200; round++) {
        rill__shape shape = shapes[rnd() % SHAPES];
        uint64_t range = ranges[rnd() % 5], first = rnd() % (UINT32_MAX - range + 1);
        if (shape.index_bytes == 8) first = round % 3 ? UINT64_C(1) << 33 : rnd() >> 1;
        if (shape.index_bytes == 8 && round % 7 == 0) range = UINT64_C(1) << 45;
        uint64_t n = rnd() % (rnd() % 4 ? 80 : 1500), m = rnd() % (rnd() % 4 ? 80 : 1500);
        try_merge_sets(shape, set_random(n, first, range), set_random(m, first, range));
    }
}

/* The dense result of sum_tiles: the pairs of the sparse one, and the neutral element elsewhere.
 */
static void try_tiles_dense(const rill__kernels *kernels, rill__shape shape, const rill_op *op,
                            int n, const rill__pairs *in, uint64_t first, uint64_t range,
                            rill__pairs want, void *workspace) {
    size_t size = rill_type_size(shape.type);
    char *dense = array_new(range * size), *expected = array_new(range * size);
    for (uint64_t i = 0; i < range; i++)
        rill__value_store(shape.type, expected + i * size, op->neutral);
    for (uint64_t i = 0; i < want.n; i++) {
        uint64_t x = index_at(shape.index_bytes, want.idx, i) - first;
        memcpy(expected + x * size, (const char *)want.val + i * size, size);
    }
    memset(dense, 0x5a, range * size);
    assert_int_equal(kernels->sum_tiles(shape, op, first, range, n, in, NULL, dense, workspace),
                     want.n);
    for (uint64_t i = 0; i < range; i++)
        assert_true(same_value(shape.type, op, dense + i * size, expected + i * size));
    array_check(dense, range * size);
    free(dense);
    free(expected);
}

/* Sums of n random inputs: sum_tiles of every instruction set against scalar, and rill__sum_pairs
 * with both, on exactly summable values, against a chain of reference merges. */
static void try_tiles(rill__shape shape, const rill_op *op, int n, uint64_t each, uint64_t first,
                      uint64_t range, bool special) {
    size_t size = rill_type_size(shape.type);
    rill__pairs *in = malloc((size_t)n * sizeof *in + 1);
    uint64_t most = 0;
    for (int i = 0; i < n; i++) {
        set s = set_random(i % 5 == 4 ? 0 : each, first, range);
        in[i] = pairs_of(shape, s, special);
        free(s.x);
        most += in[i].n;
    }
    void *want_idx = array_new(most * shape.index_bytes), *other_idx = array_new(most * 8);
    char *want_val = array_new(most * size), *other_val = array_new(most * size);
    char *workspace = array_new(rill__tiles_workspace(shape));
    uint64_t want = 0, room = rill__min_u64(range, most);
    for (int i = 0; i < n; i++) {
        rill__pairs so_far = {want, other_idx, other_val};
        want = reference_merge(shape, op, so_far, in[i], want_idx, want_val);
        memcpy(other_idx, want_idx, want * shape.index_bytes);
        memcpy(other_val, want_val, want * size);
    }
    /* A chain of merges rounds 16-bit values each time, tiles once: only scalar is comparable. */
    bool small = !special && op->kind == RILL__SUM && shape.type == RILL_F16 && n < 10;
    bool exact = small || size > 2 || op->kind == RILL__MIN || op->kind == RILL__MAX ||
                 op->kind == RILL__USER;
    for (int k = 0; k < isa_count; k++) {
        void *idx = array_new(room * shape.index_bytes);
        char *val = array_new(room * size);
        uint64_t count = isas[k]->sum_tiles(shape, op, first, range, n, in, idx, val, workspace);
        assert_int_equal(count, want);
        if (k == 0 && !exact) memcpy(want_val, val, want * size);
        same_pairs(shape, op, want, idx, val, want_idx, want_val, isas[k]->isa);
        array_check(idx, room * shape.index_bytes);
        array_check(val, room * size);
        array_check(workspace, rill__tiles_workspace(shape));
        if (range <= 1 << 20)
            try_tiles_dense(isas[k], shape, op, n, in, first, range, (rill__pairs){count, idx, val},
                            workspace);
        free(idx);
        free(val);
        if (special || op->kind == RILL__PROD || !exact) continue;
        rill__buffer scratch = {.data = NULL};
        idx = array_new(most * shape.index_bytes);
        val = array_new(most * size);
        uint64_t spread[] = {range, UINT64_C(1) << 31}; /* the latter makes it take the tree */
        for (int r = 0; r < 2; r++) {
            assert_int_equal(rill__sum_pairs(isas[k], shape, op, first, spread[r], n, in, &scratch,
                                             idx, val, &count),
                             RILL_OK);
            assert_int_equal(count, want);
            same_pairs(shape, op, want, idx, val, want_idx, want_val, isas[k]->isa);
            array_check(idx, most * shape.index_bytes);
            array_check(val, most * size);
        }
        rill__buffer_free(&scratch);
        free(idx);
        free(val);
    }
    for (int i = 0; i < n; i++)
        pairs_free(in[i]);
    free(in);
    free(want_idx);
    free(want_val);
    free(other_idx);
    free(other_val);
    free(workspace);
}

static void test_tiles(void **state) {
    (void)state;
    static const int counts[] = {0, 1, 2, 3, 5, 8, 17};
    for (unsigned s = 0; s < SHAPES; s++) {
        uint64_t base = shapes[s].index_bytes == 4 ? 12345 : (UINT64_C(1) << 34) + 77;
        uint64_t top = shapes[s].index_bytes == 4 ? UINT32_MAX - 9999 : UINT64_MAX - 9999;
        for (unsigned o = 0; o < OPS; o++) {
            for (unsigned c = 0; c < 7; c++) {
                bool special = c % 2;
                try_tiles(shapes[s], op_at(o), counts[c], 300, base, 1000, special);
                try_tiles(shapes[s], op_at(o), counts[c], 40, base, 63, !special);
                try_tiles(shapes[s], op_at(o), counts[c], 700, base, 200000, special);
                try_tiles(shapes[s], op_at(o), counts[c], 1500, top, 9999, !special);
                try_tiles(shapes[s], op_at(o), counts[c], 20, 3, 1u << 30, special);
            }
            try_tiles(shapes[s], op_at(o), 5, 30000, base, 150000, false);
        }
        try_tiles(shapes[s], RILL_SUM, 300, 50, base, 30000, false); /* more than cursors */
        try_tiles(shapes[s], RILL_MIN, 300, 50, base, 30000, true);
    }
}

static void test_scatter_combine(void **state) {
    (void)state;
    for (int round = 0; round < 400; round++) {
        rill__shape shape = shapes[rnd() % SHAPES];
        const rill_op *op = op_at((unsigned)(rnd() % OPS));
        size_t size = rill_type_size(shape.type);
        uint64_t range = 1 + rnd() % 300, first = shape.index_bytes == 4 ? 99 : UINT64_C(1) << 35;
        set s = set_random(rnd() % (2 * range), first, range);
        rill__pairs p = pairs_of(shape, s, true);
        char *lower = array_new(range * size), *upper = array_new(range * size);
        char *want = array_new(range * size), *got = array_new(range * size);
        for (uint64_t i = 0; i < range; i++) {
            value_random(shape.type, lower + i * size, true);
            value_random(shape.type, upper + i * size, true);
        }
        for (int k = 0; k < isa_count; k++) {
            memcpy(want, lower, range * size);
            memcpy(got, lower, range * size);
            for (uint64_t i = 0; i < s.n; i++)
                join(shape.type, op, want + (s.x[i] - first) * size, (const char *)p.val + i * size,
                     want + (s.x[i] - first) * size);
            isas[k]->scatter(shape, op, got, first, p);
            for (uint64_t i = 0; i < range; i++)
                assert_true(same_value(shape.type, op, got + i * size, want + i * size));

            /* Into a new array, over lower, over upper; and nothing behind the end is written. */
            for (uint64_t i = 0; i < range; i++)
                join(shape.type, op, lower + i * size, upper + i * size, want + i * size);
            for (int alias = 0; alias < 3; alias++) {
                const char *a = alias == 1 ? got : lower, *b = alias == 2 ? got : upper;
                slack_mark(got, range * size);
                if (alias) memcpy(got, alias == 1 ? lower : upper, range * size);
                isas[k]->combine(shape.type, op, got, a, b, range);
                for (uint64_t i = 0; i < range; i++)
                    assert_true(same_value(shape.type, op, got + i * size, want + i * size));
                slack_check(got, range * size);
            }
        }
        pairs_free(p);
        free(s.x);
        free(lower);
        free(upper);
        free(want);
        free(got);
    }
}

static int run(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge_patterns),
        cmocka_unit_test(test_merge_random),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_scatter_combine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_with_isas(run); }
