/* Streams in device memory, and every operation of the space against the host's. */
#include "device.h"

#include "space/space.h"

/* ---- streams -------------------------------------------------------------------------------- */

static void test_stream(rill_type type, uint64_t dim) {
    enum { N = 300 };
    check_case("stream of %s[%llu]", rill_type_name(type), (unsigned long long)dim);
    uint64_t idx[N];
    double values[N];
    rill_stream *host, *there, *back;
    CHECK_OK(rill_stream_create(type, dim, &host));
    CHECK_OK(rill_stream_create(type, dim, &back));
    CHECK_OK(rill_stream_create_in(RILL_CUDA, -1, type, dim, &there));
    for (uint64_t i = 0; i < N; i++) {
        idx[i] = (i * 7919) % (dim < 2000 ? dim : 2000) + (dim > 2000 ? dim - 2000 : 0);
        value_store(type, values, i, (double)(i + 1));
    }
    void *d_idx = device_new(idx, sizeof idx), *d_values = device_new(values, sizeof values);
    CHECK_OK(rill_stream_set_pairs64(host, N, idx, values));
    CHECK_OK(rill_stream_set_pairs64(there, N, d_idx, d_values));
    CHECK_OK(rill_stream_validate(there, NULL));
    CHECK_OK(rill_stream_add(host, host, RILL_SUM));
    CHECK_OK(rill_stream_add(there, there, RILL_SUM));
    CHECK_OK(rill_stream_copy(back, there));
    CHECK(rill_stream_nnz(back) == rill_stream_nnz(host));
    CHECK(same_values(type, rill_stream_values(host), rill_stream_values(back),
                      rill_stream_nnz(host)));
    if (dim <= 10000) {
        size_t bytes = dim * value_size(type);
        void *dense = malloc(bytes), *d_dense = device_new(NULL, bytes);
        CHECK_OK(rill_stream_get_dense(host, dense));
        CHECK_OK(rill_stream_get_dense(there, d_dense));
        CHECK(same_there(type, dense, d_dense, dim));
        CHECK_OK(rill_stream_set_dense(there, d_dense));
        CHECK_OK(rill_stream_to_dense(there));
        CHECK_OK(rill_stream_get_dense(there, d_dense));
        CHECK(same_there(type, dense, d_dense, dim));
        free(dense);
        device_free(d_dense);
    }
    device_free(d_idx);
    device_free(d_values);
    CHECK_OK(rill_stream_free(&host));
    CHECK_OK(rill_stream_free(&back));
    CHECK_OK(rill_stream_free(&there));
}

/* ---- operations ----------------------------------------------------------------------------- */

enum { MOST = 9000 };
typedef struct arrays {
    void *host, *there; /* both start behind an aligned address */
    void *host_block, *there_block;
    size_t bytes;
} arrays;

static arrays make(const void *from, size_t bytes, size_t skip) {
    arrays a = {.host_block = malloc(bytes + skip + 128),
                .there_block = device_new(NULL, bytes + skip),
                .bytes = bytes};
    a.host = (char *)a.host_block + skip;
    a.there = (char *)a.there_block + skip;
    memcpy(a.host, from, bytes);
    device_put(a.there, from, bytes);
    return a;
}
static void drop(arrays *a) {
    free(a->host_block);
    device_free(a->there_block);
}

static void *special_values(rill_type type, uint64_t n, uint64_t seed, int wild) {
    rng r = rng_make(seed, n);
    void *values = malloc((n + 1) * 8);
    for (uint64_t i = 0; i < n; i++) {
        double x = rng_unit(&r) * 4 - 2;
        uint64_t what = rng_below(&r, 500);
        if (wild && what == 0) x = (double)NAN;
        if (wild && what == 1) x = (double)-INFINITY;
        if (wild && what == 2) x = 3e38;
        if (what == 3) x = 0;
        value_store(type, values, i, x);
    }
    return values;
}

static void compare_answers(const rill__operation *o, rill__answer a, rill__answer b) {
    switch (o->kind) {
    case RILL__DO_NORM:
        CHECK(memcmp(&a.real, &b.real, 8) == 0 || (isnan(a.real) && isnan(b.real)));
        break;
    case RILL__DO_DROP_NONFINITE:
    case RILL__DO_WRITE:
    case RILL__DO_WRITE_BLOCKS: CHECK(a.count == b.count); break;
    case RILL__DO_IS_FINITE:
    case RILL__DO_ADD_FINITE:
    case RILL__DO_DECAY_ADD_FINITE:
    case RILL__DO_DIVIDE_FINITE: CHECK(a.yes == b.yes); break;
    default: break;
    }
}

static void test_dense_operation(const rill__space *space, rill__operation_kind kind,
                                 rill_type type, uint64_t n, size_t skip, int wild) {
    check_case("operation %d of %s[%llu] + %zu bytes%s", (int)kind, rill_type_name(type),
               (unsigned long long)n, skip, wild ? ", not finite" : "");
    size_t size = value_size(type), bytes = n * size;
    void *x = special_values(type, n, 1, wild == 2), *y = special_values(type, n, 2, wild);
    arrays into = make(x, bytes, skip), from = make(y, bytes, skip);
    rill__operation o = {.kind = kind, .type = type, .n = n, .factor = 0.9};
    uint64_t seven = 0;
    value_store(type, &seven, 0, 7);
    memcpy(o.value, &seven, sizeof seven);
    if (kind == RILL__DO_COPY || kind == RILL__DO_CLEAR) o.n = bytes;
    rill__operation there = o;
    o.into = into.host;
    o.from = from.host;
    there.into = into.there;
    there.from = from.there;
    rill__answer a = {.count = 0}, b = {.count = 0};
    bool asks = kind >= RILL__DO_NORM;
    rill__host()->run(rill__host(), &o, &a);
    space->run(space, &there, asks ? &b : NULL);
    CHECK_OK(space->wait(space));
    compare_answers(&o, a, b);
    CHECK(same_there(type, into.host, into.there, n));
    CHECK(same_there(type, from.host, from.there, n));
    drop(&into);
    drop(&from);
    free(x);
    free(y);
}

/* Pairs at every third index of [first, first + n), and some outside of it where it is a range. */
static void test_pairs_operation(const rill__space *space, rill__operation_kind kind,
                                 rill_type type, unsigned width, rill__where where, uint64_t n,
                                 uint64_t first, size_t skip) {
    check_case("operation %d of %s[%llu] pairs of %u bytes, where %d, first %llu", (int)kind,
               rill_type_name(type), (unsigned long long)n, width, (int)where,
               (unsigned long long)first);
    size_t size = value_size(type), bytes = n * size;
    bool ranged = kind == RILL__DO_WRITE;
    uint64_t end = first + n + (ranged ? 50 : 0), base = kind >= RILL__DO_ADD_PAIRS ? 0 : first;
    uint64_t count = 0, masked = 0, *idx = malloc(16 * (n + 100)), *mask = malloc(16 * (n + 100));
    for (uint64_t i = base; i < end - first + base; i++) {
        if (i % 3 == 1) rill__index_put(width, idx, count++, i);
        if (i % 2) rill__index_put(width, mask, masked++, i);
    }
    void *x = special_values(type, n, 3, 1), *v = special_values(type, count, 4, 0);
    arrays into = make(x, bytes, skip), pairs = make(idx, count * width, 0);
    arrays val = make(v, count * size, 0), masks = make(mask, masked * width, 0);
    rill__operation o = {.kind = kind,
                         .type = type,
                         .index_bytes = width,
                         .where = where,
                         .n = kind == RILL__DO_ASSIGN || kind >= RILL__DO_ADD_PAIRS ? 0 : n,
                         .first = kind >= RILL__DO_ADD_PAIRS ? 0 : first};
    rill__operation there = o;
    o.into = into.host;
    o.pairs = (rill__pairs){count, pairs.host, val.host};
    o.mask = (rill__pairs){masked, masks.host, NULL};
    there.into = into.there;
    there.pairs = (rill__pairs){count, pairs.there, val.there};
    there.mask = (rill__pairs){masked, masks.there, NULL};
    rill__answer a = {.count = 0}, b = {.count = 0};
    rill__host()->run(rill__host(), &o, &a);
    space->run(space, &there, ranged ? &b : NULL);
    CHECK_OK(space->wait(space));
    if (ranged) CHECK(a.count == b.count);
    CHECK(same_there(type, into.host, into.there, n));
    drop(&into);
    drop(&pairs);
    drop(&val);
    drop(&masks);
    free(idx);
    free(mask);
    free(x);
    free(v);
}

static void test_blocks(const rill__space *space, rill__operation_kind kind, rill_type type,
                        uint64_t dim, uint64_t block) {
    check_case("operation %d of %s[%llu] in blocks of %llu", (int)kind, rill_type_name(type),
               (unsigned long long)dim, (unsigned long long)block);
    size_t size = value_size(type);
    uint64_t blocks = dim / block + (dim % block != 0), numbers[MOST], chosen = 0, count = 0;
    for (uint64_t i = 0; i < blocks; i++)
        if (i % 3 != 1 || i + 1 == blocks) {
            numbers[chosen++] = i;
            count += i + 1 == blocks && dim % block ? dim % block : block;
        }
    void *x = special_values(type, dim, 5, 1), *v = special_values(type, count, 6, 0);
    arrays into = make(x, dim * size, 0), idx = make(numbers, chosen * 8, 0);
    arrays val = make(v, count * size, 0);
    bool writes = kind == RILL__DO_WRITE_BLOCKS;
    rill__operation o = {.kind = kind,
                         .type = type,
                         .block = block,
                         .end = dim,
                         .first = writes ? dim / 7 : 0,
                         .n = writes ? dim / 2 : 0};
    rill__operation there = o;
    o.into = into.host;
    o.pairs = (rill__pairs){count, idx.host, val.host};
    there.into = into.there;
    there.pairs = (rill__pairs){count, idx.there, val.there};
    rill__answer a = {.count = 0}, b = {.count = 0};
    rill__host()->run(rill__host(), &o, &a);
    space->run(space, &there, writes ? &b : NULL);
    CHECK_OK(space->wait(space));
    if (writes) CHECK(a.count == b.count);
    CHECK(same_there(type, into.host, into.there, dim));
    drop(&into);
    drop(&idx);
    drop(&val);
    free(x);
    free(v);
}

static void test_shift(const rill__space *space, unsigned to, unsigned from) {
    enum { N = 1000 };
    uint64_t idx[N], out[N] = {0};
    check_case("shift from %u to %u bytes", from, to);
    for (uint64_t i = 0; i < N; i++)
        rill__index_put(from, idx, i, 3 * i);
    arrays in = make(idx, sizeof idx, 0), got = make(out, sizeof out, 0);
    rill__operation o = {.kind = RILL__DO_SHIFT,
                         .index_bytes = to,
                         .from_bytes = from,
                         .first = 77,
                         .n = N,
                         .into = got.host,
                         .from = in.host};
    rill__host()->run(rill__host(), &o, NULL);
    o.into = got.there;
    o.from = in.there;
    space->run(space, &o, NULL);
    CHECK_OK(space->wait(space));
    CHECK(same_there(RILL_F64, got.host, got.there, N));
    drop(&in);
    drop(&got);
}

static void test_operations(void) {
    static const uint64_t sizes[] = {1, 7, 255, 1024, 2049, 8191};
    const rill__space *space;
    CHECK_OK(rill__space_open("test", RILL_CUDA, 0, &space));
    for (size_t t = 0; t < TYPE_COUNT; t++) {
        rill_type type = test_types[t];
        for (size_t i = 0; i < 6; i++) {
            size_t skip = i % 2 * value_size(type);
            for (int kind = 0; kind < RILL__DO_ASSIGN; kind++)
                for (int wild = 0; wild < 3; wild++)
                    test_dense_operation(space, (rill__operation_kind)kind, type, sizes[i], skip,
                                         wild);
            for (unsigned width = 4; width <= 8; width += 4) {
                test_pairs_operation(space, RILL__DO_ASSIGN, type, width, RILL__EVERYWHERE,
                                     sizes[i], 100, skip);
                test_pairs_operation(space, RILL__DO_WRITE, type, width, RILL__EVERYWHERE, sizes[i],
                                     100, skip);
            }
            for (int where = 0; where < 3; where++) {
                test_pairs_operation(space, RILL__DO_ADD_PAIRS, type, 4, (rill__where)where,
                                     sizes[i], 0, skip);
                test_pairs_operation(space, RILL__DO_CLEAR_PAIRS, type, 4, (rill__where)where,
                                     sizes[i], 0, skip);
            }
            for (uint64_t block = 1; block <= sizes[i] && block <= 256; block *= 16) {
                test_blocks(space, RILL__DO_WRITE_BLOCKS, type, sizes[i], block);
                test_blocks(space, RILL__DO_ADD_BLOCKS, type, sizes[i], block);
            }
        }
        test_dense_operation(space, RILL__DO_NORM, type, UINT64_C(70001), 0, 0);
    }
    for (unsigned to = 4; to <= 8; to += 4)
        for (unsigned from = 4; from <= 8; from += 4)
            test_shift(space, to, from);
    rill__space_close(space);
}

/* A copy of more than the lanes hold. */
static void test_copies(void) {
    const rill__space *space;
    size_t bytes = (9 << 20) + 13;
    char *from = malloc(bytes), *back = calloc(1, bytes), *there = device_new(NULL, bytes);
    check_case("copies");
    for (size_t i = 0; i < bytes; i++)
        from[i] = (char)(i * 31 + (i >> 12));
    CHECK_OK(rill__space_open("test", RILL_CUDA, 0, &space));
    CHECK_OK(space->copy_in(space, there, from, bytes));
    CHECK_OK(space->copy_out(space, back, there, bytes));
    CHECK(memcmp(from, back, bytes) == 0);
    rill__space_close(space);
    device_free(there);
    free(from);
    free(back);
}

/* What is one vector: in one allocation, and aligned. */
static void test_one(void) {
    enum { BYTES = 4096 };
    const rill__space *space;
    char *there = device_new(NULL, BYTES), *next = device_new(NULL, BYTES), here[64];
    check_case("vectors in one allocation");
    CHECK_OK(rill__space_open("test", RILL_CUDA, 0, &space));
    const rill__space_tensors *t = space->tensors;
    CHECK(t->is_one(space, there, BYTES));
    CHECK(t->is_one(space, there + 64, BYTES - 64));
    CHECK(t->is_one(space, there + 64, 0));
    CHECK(!t->is_one(space, there + 4, 8));
    CHECK(!t->is_one(space, there + 4, 0));
    char *low = there < next ? there : next, *high = there < next ? next : there;
    CHECK(!t->is_one(space, low, (size_t)(high - low) + BYTES));
    CHECK(!t->is_one(space, low, SIZE_MAX / 2));
    if (!getenv("RILL_TEST_FEW")) /* of the host; sanitizers report that CUDA does not know it */
        CHECK(!t->is_one(space, (char *)(((uintptr_t)here + 15) / 16 * 16), 32));
    CHECK_OK(space->wait(space));
    rill__space_close(space);
    device_free(there);
    device_free(next);
}

void test_spaces(void) {
    for (size_t t = 0; t < TYPE_COUNT; t++) {
        test_stream(test_types[t], 500);
        test_stream(test_types[t], 9999);
        test_stream(test_types[t], UINT64_C(1) << 40);
    }
    test_operations();
    test_copies();
    test_one();
}
