/* Block-sparse streams: contents in and out, every pair of forms under every operation and type
 * against a naive vector, concatenation, slices and sums of parts, malformed input, validation. */
#include "../support/unit.h"

#include "stream/blocks.h"

static rill_op *user_op;

static int make_user_op(void **state) {
    (void)state;
    return rill_op_create("lowest", user_op_fn, NULL, USER_NEUTRAL, 0, &user_op);
}
static int free_user_op(void **state) {
    (void)state;
    return rill_op_free(&user_op);
}

/* Puts the model's entries, whole blocks of them, into the stream; in any order when shuffled. */
static void set_blocks(const model *m, uint64_t block, rill_stream *s, rng *shuffle) {
    rill_type type = rill_stream_type(s);
    uint64_t have = (m->dim + block - 1) / block, n = 0;
    uint64_t *numbers = malloc((have + 1) * sizeof *numbers);
    for (uint64_t b = 0; b < have; b++) {
        int any = 0;
        for (uint64_t i = b * block; i < (b + 1) * block && i < m->dim; i++)
            any |= m->has[i];
        if (any) numbers[n++] = b;
    }
    for (uint64_t i = n; shuffle && i > 1; i--) {
        uint64_t j = rng_below(shuffle, i), swap = numbers[j];
        numbers[j] = numbers[i - 1];
        numbers[i - 1] = swap;
    }
    /* No byte more than is read, so that the sanitizer sees a byte too many. */
    uint64_t values = n * block;
    if (n && numbers[n - 1] == have - 1) values -= have * block - m->dim;
    unsigned char *val = malloc(values * value_size(type) + !values);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < block && i * block + j < values; j++) {
            uint64_t at = numbers[i] * block + j;
            value_store(type, val, i * block + j, at < m->dim ? model_at(m, at) : 99.0);
        }
    assert_ok(rill_stream_set_blocks(s, block, n, numbers, val));
    assert_int_equal(rill_stream_block(s), block);
    free(val);
    free(numbers);
}

/* Ways to make a stream; blocks of 4 and of 7 entries. */
typedef enum recipe {
    PAIRS,
    DENSE,
    BLOCKS,
    BLOCKS_OF_PAIRS,
    BLOCKS_OF_DENSE,
    OTHER_BLOCKS,
    RECIPES
} recipe;

static rill_stream *cook(recipe how, rill_type type, model *m, rng *r) {
    rill_stream *s = unit_stream(type, m->dim);
    if (how == BLOCKS || how == OTHER_BLOCKS)
        set_blocks(m, how == BLOCKS ? 4 : 7, s, rng_below(r, 2) ? r : NULL);
    else assert_ok(model_set_pairs(m, s));
    if (how != PAIRS)
        model_forget_fill(m); /* zeros that were given are absent in the other forms */
    if (how == DENSE || how == BLOCKS_OF_DENSE) assert_ok(rill_stream_to_dense(s));
    if (how == BLOCKS_OF_PAIRS || how == BLOCKS_OF_DENSE) assert_ok(rill_stream_to_blocks(s, 4));
    assert_int_equal(rill_stream_is_dense(s), how == DENSE);
    if (how >= BLOCKS) assert_int_equal(rill_stream_block(s), how == OTHER_BLOCKS ? 7 : 4);
    else assert_int_equal(rill_stream_block(s), 0);
    return s;
}

static void contents_go_in_and_out(void **state) {
    (void)state;
    static const uint64_t dims[] = {1, 6, 64, 1001}, sizes[] = {1, 3, 64, 256, 5000};
    static const double densities[] = {0, 0.01, 0.2, 1};
    rng r = rng_make(20, 0);
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int d = 0; d < 4; d++)
            for (int b = 0; b < 5; b++)
                for (int k = 0; k < 4; k++) {
                    uint64_t dim = dims[d], block = sizes[b], n;
                    model m = model_random(dim, densities[k], OP_SUM, &r, 0);
                    rill_stream *s = unit_stream(test_types[t], dim);
                    set_blocks(&m, block, s, k % 2 ? &r : NULL);
                    assert_model(s, &m);
                    assert_null(rill_stream_indices32(s));
                    assert_null(rill_stream_indices64(s));
                    const uint64_t *numbers = rill_stream_blocks(s, &n);
                    uint64_t entries = n * block;
                    if (n && (numbers[n - 1] + 1) * block > dim)
                        entries -= (numbers[n - 1] + 1) * block - dim;
                    assert_int_equal(rill_stream_nnz(s), entries);
                    assert_ptr_equal(rill_stream_blocks(s, NULL), numbers);
                    /* Through copies and all forms, and back. */
                    rill_stream *c = unit_stream(test_types[t], dim);
                    assert_ok(rill_stream_copy(c, s));
                    assert_int_equal(rill_stream_block(c), block);
                    assert_int_equal(rill_stream_nnz(c), entries);
                    model_forget_fill(&m);
                    for (int turn = 0; turn < 6; turn++) {
                        if (turn % 3 == 0) assert_ok(rill_stream_to_sparse(c));
                        if (turn % 3 == 1) assert_ok(rill_stream_to_dense(c));
                        assert_model(c, &m);
                        assert_int_equal(rill_stream_block(c), turn % 3 == 2 ? block + 1 : 0);
                        assert_ok(rill_stream_to_blocks(c, block + (turn % 3 == 1)));
                        assert_model(c, &m);
                        /* Only blocks that have an entry are left. */
                        uint64_t left, size = rill_stream_block(c);
                        const uint64_t *kept = rill_stream_blocks(c, &left);
                        for (uint64_t i = 0; i < left; i++) {
                            int any = 0;
                            for (uint64_t j = kept[i] * size; j < (kept[i] + 1) * size && j < dim;
                                 j++)
                                any |= m.has[j];
                            assert_true(any);
                        }
                    }
                    assert_ok(rill_stream_clear(s));
                    assert_int_equal(rill_stream_block(s), 0);
                    assert_int_equal(rill_stream_nnz(s), 0);
                    assert_valid(s);
                    rill_stream_free(&s);
                    rill_stream_free(&c);
                    model_free(&m);
                }
}

static void repeated_blocks_are_summed_in_order(void **state) {
    (void)state;
    static const uint64_t numbers[] = {2, 0, 2, 3, 2};
    for (int t = 0; t < TYPE_COUNT; t++) {
        rill_stream *s = unit_stream(test_types[t], 10); /* blocks of 3: the last has one entry */
        double val[15];
        for (uint64_t i = 0; i < 15; i++)
            value_store(test_types[t], val, i, (double)i);
        assert_ok(rill_stream_set_blocks(s, 3, 5, numbers, val));
        assert_valid(s);
        assert_int_equal(rill_stream_nnz(s), 7);
        static const double want[10] = {3, 4, 5, 0, 0, 0, 18, 21, 24, 9};
        double dense[10];
        assert_ok(rill_stream_get_dense(s, dense));
        for (uint64_t i = 0; i < 10; i++)
            assert_true(value_load(test_types[t], dense, i) == want[i]);
        rill_stream_free(&s);
    }
    static const uint64_t same[4] = {1, 1, 1, 1};
    float order[2][3] = {{1e8f, 1.0f, -1e8f}, {1e8f, -1e8f, 1.0f}};
    for (int i = 0; i < 2; i++) {
        rill_stream *s = unit_stream(RILL_F32, 2);
        assert_ok(rill_stream_set_blocks(s, 1, 3, same, order[i]));
        assert_true(((const float *)rill_stream_values(s))[0] == (i ? 1.0f : 0.0f));
        rill_stream_free(&s);
    }
    /* 16-bit ones in f32: 256 + 1 + 1 + 1 is 259, which bf16 rounds to 260. */
    uint16_t ones[4] = {bf16_store(256), bf16_store(1), bf16_store(1), bf16_store(1)};
    rill_stream *s = unit_stream(RILL_BF16, 2);
    assert_ok(rill_stream_set_blocks(s, 1, 4, same, ones));
    assert_true(value_load(RILL_BF16, rill_stream_values(s), 0) == 260.0);
    rill_stream_free(&s);
}

static void bad_arguments(void **state) {
    (void)state;
    uint64_t numbers[3] = {0, 3, 4};
    float val[12] = {0};
    rill_stream *s = unit_stream(RILL_F32, 10);
    assert_ok(rill_stream_set_blocks(s, 3, 2, numbers, val));
    assert_fails(rill_stream_set_blocks(s, 3, 3, numbers, val), RILL_ERR_RANGE, "blocks[2] = 4");
    assert_int_equal(rill_stream_nnz(s), 4); /* unchanged */
    assert_valid(s);
    numbers[0] = UINT64_MAX;
    assert_fails(rill_stream_set_blocks(s, 3, 3, numbers, val), RILL_ERR_RANGE,
                 "18446744073709551615");
    assert_fails(rill_stream_set_blocks(NULL, 3, 1, numbers, val), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_set_blocks(s, 0, 1, numbers, val), RILL_ERR_ARGUMENT, "block = 0");
    assert_fails(rill_stream_set_blocks(s, 3, 1, NULL, val), RILL_ERR_ARGUMENT, "blocks is NULL");
    assert_fails(rill_stream_set_blocks(s, 3, 1, numbers, NULL), RILL_ERR_ARGUMENT, "values");
    assert_fails(rill_stream_to_blocks(NULL, 3), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_stream_to_blocks(s, 0), RILL_ERR_ARGUMENT, "block = 0");
    assert_int_equal(rill_stream_block(NULL), 0);
    assert_null(rill_stream_blocks(NULL, NULL));
    /* No block is a form too: the ranks of a call must agree on the size. */
    assert_ok(rill_stream_set_blocks(s, 5, 0, NULL, NULL));
    assert_int_equal(rill_stream_block(s), 5);
    assert_int_equal(rill_stream_nnz(s), 0);
    assert_valid(s);
    rill_stream_free(&s);
    s = unit_stream(RILL_F64, 0);
    assert_ok(rill_stream_set_blocks(s, 5, 0, NULL, NULL));
    assert_valid(s);
    assert_ok(rill_stream_to_dense(s));
    assert_ok(rill_stream_to_blocks(s, 2));
    assert_int_equal(rill_stream_nnz(s), 0);
    rill_stream_free(&s);
}

static void add_every_pair_of_forms(void **state) {
    (void)state;
    static const uint64_t dims[] = {1, 7, 66, 1001};
    static const double densities[] = {0, 0.01, 0.3, 1};
    rng r = rng_make(21, 0);
    long results[3] = {0, 0, 0};
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < TYPE_COUNT; t++)
            for (int forms = 0; forms < RECIPES * RECIPES; forms++)
                for (int d = 0; d < 4; d++) {
                    test_op o = (test_op)op;
                    recipe left = (recipe)(forms / RECIPES), right = (recipe)(forms % RECIPES);
                    if (left < BLOCKS && right < BLOCKS) continue; /* test_stream_add */
                    model a = model_random(dims[d], densities[rng_below(&r, 4)], o, &r, 0);
                    model b = model_random(dims[d], densities[rng_below(&r, 4)], o, &r, 1);
                    rill_stream *x = cook(left, test_types[t], &a, &r);
                    rill_stream *y = cook(right, test_types[t], &b, &r), *z = NULL;
                    z = unit_stream(test_types[t], dims[d]);
                    const rill_stream *both[2] = {x, y};
                    assert_ok(rill_stream_sum(z, 2, both, op_rill(o, user_op)));
                    assert_ok(rill_stream_add(x, y, op_rill(o, user_op)));
                    assert_model(y, &b); /* from is left alone */
                    model_add(&a, &b, o);
                    assert_model(x, &a);
                    assert_model(z, &a);
                    if (left == BLOCKS && right == BLOCKS_OF_DENSE && !rill_stream_is_dense(x))
                        assert_int_equal(rill_stream_block(x), 4);
                    results[rill_stream_is_dense(x) ? 0 : rill_stream_block(x) ? 1 : 2]++;
                    /* A block-sparse result of another operation has another fill. */
                    assert_ok(rill_stream_add(y, x, op_rill(o, user_op)));
                    model_add(&b, &a, o);
                    assert_model(y, &b);
                    if (o != OP_PROD && o != OP_SUM) {
                        if (left != PAIRS || right != PAIRS) model_forget_fill(&a);
                        assert_ok(rill_stream_to_blocks(x, 5));
                        assert_ok(rill_stream_add(x, x, RILL_SUM));
                        model twice = model_copy(&a);
                        model_add(&twice, &a, OP_SUM);
                        assert_model(x, &twice);
                        model_free(&twice);
                    }
                    rill_stream_free(&x);
                    rill_stream_free(&y);
                    rill_stream_free(&z);
                    model_free(&a);
                    model_free(&b);
                }
    assert_true(results[0] > 0 && results[1] > 0 && results[2] > 0);
}

/* Many at once: 16-bit types round once, blocks are in the order of the inputs. */
static void sums_of_many(void **state) {
    (void)state;
    enum { N = 9 };
    rng r = rng_make(22, 0);
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int mixed = 0; mixed < 3; mixed++)
            for (int turn = 0; turn < 12; turn++) {
                uint64_t dim = 1 + rng_below(&r, 3000);
                rill_stream *in[N], *out = unit_stream(test_types[t], dim);
                model total = model_make(dim);
                for (int i = 0; i < N; i++) {
                    model m = model_random(dim, rng_unit(&r) * 0.02, OP_SUM, &r, 0);
                    recipe how = mixed == 0   ? BLOCKS
                                 : mixed == 1 ? (i % 2 ? BLOCKS : OTHER_BLOCKS)
                                              : (recipe)rng_below(&r, RECIPES);
                    in[i] = cook(how, test_types[t], &m, &r);
                    model_add(&total, &m, OP_SUM);
                    model_free(&m);
                }
                assert_ok(rill_stream_sum(out, N, (const rill_stream *const *)in, RILL_SUM));
                assert_model(out, &total);
                if (mixed == 0 && !rill_stream_is_dense(out))
                    assert_int_equal(rill_stream_block(out), 4);
                for (int i = 0; i < N; i++)
                    rill_stream_free(&in[i]);
                rill_stream_free(&out);
                model_free(&total);
            }
    /* 256 + 1 + 1 + 1 in one block. */
    uint64_t zero = 0;
    rill_stream *in[4], *out = unit_stream(RILL_BF16, 64);
    for (int i = 0; i < 4; i++) {
        uint16_t one[2] = {bf16_store(i ? 1 : 256), 0};
        in[i] = unit_stream(RILL_BF16, 64);
        assert_ok(rill_stream_set_blocks(in[i], 2, 1, &zero, one));
    }
    assert_ok(rill_stream_sum(out, 4, (const rill_stream *const *)in, RILL_SUM));
    assert_int_equal(rill_stream_block(out), 2);
    assert_true(value_load(RILL_BF16, rill_stream_values(out), 0) == 260.0);
    for (int i = 0; i < 4; i++)
        rill_stream_free(&in[i]);
    rill_stream_free(&out);
}

static void concat_every_pair_of_forms(void **state) {
    (void)state;
    rng r = rng_make(23, 0);
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int forms = 0; forms < RECIPES * RECIPES; forms++)
            for (int overlap = 0; overlap < 3; overlap++) {
                recipe left = (recipe)(forms / RECIPES), right = (recipe)(forms % RECIPES);
                uint64_t dim = 50 + rng_below(&r, 500);
                model all = model_random(dim, 0.1, OP_SUM, &r, 0), a = model_make(dim),
                      b = model_make(dim);
                model_forget_fill(&all);
                uint64_t shared = dim;
                for (uint64_t i = 0; i < dim; i++) {
                    /* Disjoint as blocks of 28, or as entries only. */
                    model *m = (overlap ? rng_below(&r, 2) : i / 28 % 2) ? &a : &b;
                    m->has[i] = all.has[i];
                    m->value[i] = all.value[i];
                    if (all.has[i]) shared = i;
                }
                if (overlap == 2 && shared < dim) {
                    a.has[shared] = b.has[shared] = 1;
                    a.value[shared] = b.value[shared] = 3;
                }
                rill_stream *x = cook(left, test_types[t], &a, &r);
                rill_stream *y = cook(right, test_types[t], &b, &r);
                if (overlap == 2 && shared < dim) {
                    assert_fails(rill_stream_concat(x, y), RILL_ERR_OVERLAP, "1 ind");
                    assert_model(x, &a);
                } else {
                    assert_ok(rill_stream_concat(x, y));
                    assert_model(x, &all);
                    if (left >= BLOCKS && !rill_stream_is_dense(x))
                        assert_int_equal(rill_stream_block(x), left == OTHER_BLOCKS ? 7 : 4);
                }
                assert_model(y, &b);
                rill_stream_free(&x);
                rill_stream_free(&y);
                model_free(&all);
                model_free(&a);
                model_free(&b);
            }
}

/* Dimensions that no dense vector has, and blocks larger than they are. */
static void beyond_32_bits(void **state) {
    (void)state;
    static const uint64_t dims[] = {(UINT64_C(1) << 32) + 1, (UINT64_C(1) << 60) + 3, UINT64_MAX};
    for (int d = 0; d < 3; d++) {
        uint64_t dim = dims[d], have = rill__blocks_in(dim, 300), n;
        uint64_t numbers[3] = {have - 1, 7, 0}, tail = dim - (have - 1) * 300;
        float val[900];
        for (int i = 0; i < 900; i++)
            val[i] = (float)(i + 1);
        rill_stream *s = unit_stream(RILL_F32, dim), *o = unit_stream(RILL_F32, dim);
        assert_ok(rill_stream_set_blocks(s, 300, 3, numbers, val));
        assert_valid(s);
        assert_int_equal(rill_stream_nnz(s), 600 + tail);
        assert_int_equal(rill_stream_blocks(s, &n)[2], have - 1);
        assert_int_equal(n, 3);
        assert_ok(rill_stream_copy(o, s));
        assert_ok(rill_stream_add(o, s, RILL_SUM));
        assert_int_equal(rill_stream_nnz(o), 600 + tail);
        assert_true(((const float *)rill_stream_values(o))[600] == 2.0f);
        assert_ok(rill_stream_to_sparse(o));
        assert_valid(o);
        assert_int_equal(rill_stream_nnz(o), 600 + tail);
        assert_int_equal(rill_stream_indices64(o)[599 + tail], dim - 1);
        assert_ok(rill_stream_to_blocks(o, 1000));
        assert_valid(o);
        uint64_t large[1] = {0};
        if (d) /* else it might just fit into memory */
            assert_fails(rill_stream_set_blocks(s, UINT64_MAX, 1, large, val), RILL_ERR_MEMORY, "");
        rill_stream_free(&s);
        rill_stream_free(&o);
    }
    rill_stream *s = unit_stream(RILL_F64, 3); /* the block is larger than the dimension */
    uint64_t zero = 0;
    double val[3] = {1, 2, 3}, dense[3];
    assert_ok(rill_stream_set_blocks(s, UINT64_MAX, 1, &zero, val));
    assert_valid(s);
    assert_int_equal(rill_stream_nnz(s), 3);
    assert_ok(rill_stream_add(s, s, RILL_SUM));
    assert_ok(rill_stream_get_dense(s, dense));
    assert_true(dense[0] == 2 && dense[1] == 4 && dense[2] == 6);
    rill_stream_free(&s);
}

/* What the collectives do with parts: a slice at every bound, sums and assembly with dense ones. */
static void parts_are_cut_and_put_together(void **state) {
    (void)state;
    rng r = rng_make(24, 0);
    for (int turn = 0; turn < 200; turn++) {
        rill_type type = test_types[turn % TYPE_COUNT];
        uint64_t dim = 1 + rng_below(&r, 400), block = 1 + rng_below(&r, 20), have;
        have = rill__blocks_in(dim, block);
        model m = model_random(dim, rng_unit(&r) * 0.3, OP_SUM, &r, 0);
        rill_stream *s = unit_stream(type, dim), *out = unit_stream(type, dim);
        set_blocks(&m, block, s, NULL);
        model_forget_fill(&m);
        rill__part whole = rill__stream_part(s), parts[5];
        rill__piece dense[5] = {0};
        rill__buffer scratch = {.data = NULL};
        uint64_t bounds[6] = {0, 0, 0, 0, 0, have};
        for (int i = 1; i < 5; i++)
            bounds[i] = bounds[i - 1] + rng_below(&r, have - bounds[i - 1] + 1);
        uint64_t entries = 0;
        for (int i = 0; i < 5; i++) {
            uint64_t first = rill__min_u64(bounds[i] * block, dim);
            uint64_t range = rill__min_u64(bounds[i + 1] * block, dim) - first;
            parts[i] = rill__part_slice(rill__stream_shape(s), &whole, first, range);
            assert_int_equal(parts[i].block, block);
            entries += parts[i].n;
            if (rng_below(&r, 4) || !range) continue;
            assert_ok(rill__sum_parts(rill__stream_shape(s), RILL_SUM, first, range, 1, &parts[i],
                                      true, &scratch, &dense[i]));
            parts[i] = dense[i].part;
            assert_int_equal(parts[i].form, RILL__DENSE);
        }
        assert_int_equal(entries, rill_stream_nnz(s));
        unsigned char fill[8] = {0};
        assert_ok(rill__stream_assemble(out, fill, 5, parts, false, 0));
        assert_model(out, &m);
        if (!rill_stream_is_dense(out)) assert_int_equal(rill_stream_block(out), block);
        for (int i = 0; i < 5; i++)
            rill__piece_free(&dense[i]);
        rill__buffer_free(&scratch);
        rill_stream_free(&s);
        rill_stream_free(&out);
        model_free(&m);
    }
}

/* Parts of a message that do not follow each other are an error, whatever they are. */
static void parts_out_of_order_are_refused(void **state) {
    (void)state;
    rill_stream *out = unit_stream(RILL_F32, 10);
    uint64_t last = 2, first = 0;
    float *val = rill__aligned_alloc(64);
    memset(val, 0, 64);
    unsigned char fill[8] = {0};
    rill__part parts[2] = {{RILL__BLOCKS, 8, 2, 2, &last, val, 4, NULL},
                           {RILL__BLOCKS, 0, 8, 4, &first, val, 4, NULL}};
    assert_fails(rill__stream_assemble(out, fill, 2, parts, false, 0), RILL_ERR_MESSAGE, "part 1");
    parts[0] = (rill__part){RILL__BLOCKS, 0, 3, 3, &first, val, 3, NULL};
    parts[1] = (rill__part){RILL__BLOCKS, 4, 4, 4, &first, val, 4, NULL};
    assert_fails(rill__stream_assemble(out, fill, 2, parts, false, 0), RILL_ERR_MESSAGE, "part 0");
    free(val);
    rill_stream_free(&out);
}

static void validate_names_the_broken_invariant(void **state) {
    (void)state;
    rill_stream *s = unit_stream(RILL_F32, 10);
    uint64_t numbers[2] = {1, 3};
    float val[6] = {0};
    const char *reason = NULL;
    assert_ok(rill_stream_set_blocks(s, 3, 2, numbers, val));
    assert_ok(rill_stream_validate(s, &reason));
    uint64_t *inner = s->idx.data;
#define BROKEN(change, text)                                                                       \
    do {                                                                                           \
        rill_stream kept = *s;                                                                     \
        uint64_t kept_numbers[2] = {inner[0], inner[1]};                                           \
        change;                                                                                    \
        assert_int_equal(rill_stream_validate(s, &reason), RILL_ERR_STATE);                        \
        assert_non_null(strstr(reason, text));                                                     \
        *s = kept;                                                                                 \
        memcpy(inner, kept_numbers, sizeof kept_numbers);                                          \
        assert_ok(rill_stream_validate(s, &reason));                                               \
    } while (0)
    BROKEN(inner[1] = 1, "ascending");
    BROKEN(inner[0] = 3, "ascending");
    BROKEN(inner[1] = 4, "outside");
    BROKEN(inner[1] = UINT64_MAX, "outside");
    BROKEN(inner[1] = 2, "entries do not fit");
    BROKEN(s->nnz = 5, "entries do not fit");
    BROKEN((s->nnz = 3, inner[0] = 3), "entries do not fit");
    BROKEN(s->block = 0, "no entries");
    BROKEN(s->nnz = 11, "more entries");
    BROKEN(s->idx.capacity = 8, "exceed");
    BROKEN(s->idx.data = NULL, "no numbers");
    BROKEN(s->val.data = NULL, "no values");
    BROKEN(s->form = (rill__form)3, "form");
#undef BROKEN
    rill_stream_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_go_in_and_out),
        cmocka_unit_test(repeated_blocks_are_summed_in_order),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(add_every_pair_of_forms),
        cmocka_unit_test(sums_of_many),
        cmocka_unit_test(concat_every_pair_of_forms),
        cmocka_unit_test(beyond_32_bits),
        cmocka_unit_test(parts_are_cut_and_put_together),
        cmocka_unit_test(parts_out_of_order_are_refused),
        cmocka_unit_test(validate_names_the_broken_invariant),
    };
    return cmocka_run_group_tests(tests, make_user_op, free_user_op);
}
