/* Loops over dense vectors and pairs against space/host_dense.c and host_pairs.c. */
#include "test_cuda.h"

#include "space/space.h"

static const uint64_t sizes[] = {1,    3,    4,    7,    8,    9,    31,   255,   1023,
                                 1024, 1025, 4095, 4096, 4097, 8191, 8193, 12288, 40001};

enum loop { ADD, ADD_GUARDED, DECAY, SCALE, DIVIDE, LOOPS };

static void host_loop(enum loop what, rill_type type, void *into, const void *from, uint64_t n) {
    switch (what) {
    case ADD: rill__dense_add(rill__host(), type, into, from, n); break;
    case ADD_GUARDED: rill__dense_add_finite(rill__host(), type, into, from, n); break;
    case DECAY: rill__dense_decay_add(rill__host(), type, into, 0.9, from, n); break;
    case SCALE: rill__dense_scale(rill__host(), type, into, 0.7, from, n); break;
    default: rill__dense_divide(rill__host(), type, into, from, 3.0, n);
    }
}
static void device_loop(enum loop what, int type, void *into, const void *from, uint64_t n,
                        uint64_t *bad) {
    switch (what) {
    case ADD: CUDA(cuda->add(type, into, from, n, 0, NULL, cuda_stream)); break;
    case ADD_GUARDED: CUDA(cuda->add(type, into, from, n, 1, bad, cuda_stream)); break;
    case DECAY: CUDA(cuda->decay_add(type, into, 0.9, from, n, cuda_stream)); break;
    case SCALE: CUDA(cuda->scale(type, into, 0.7, from, n, cuda_stream)); break;
    default: CUDA(cuda->divide(type, into, from, 3.0, n, cuda_stream));
    }
}

static void loop_case(enum loop what, rill_type type, enum data kind, uint64_t n) {
    static const char *const names[] = {"add", "guarded add", "decay_add", "scale", "divide"};
    size_t bytes = n * value_size(type);
    void *into = malloc(bytes), *from = malloc(bytes), *got = malloc(bytes), *sum = malloc(bytes);
    uint64_t where = 0, bad = 0, expected = 0;
    data_fill(kind, type, n, 1, into);
    data_fill(kind, type, n, 2, from);
    void *d_into = cuda_upload(into, bytes), *d_from = cuda_upload(from, bytes);
    uint64_t *d_bad = cuda_new(sizeof bad);
    memcpy(sum, into, bytes);
    rill__dense_add(rill__host(), type, sum, from, n);
    for (uint64_t i = 0; i < n; i++)
        expected += !isfinite(value_load(type, sum, i));
    host_loop(what, type, into, from, n);
    device_loop(what, (int)type, d_into, d_from, n, d_bad);
    cuda_download(got, d_into, bytes);
    cuda_download(&bad, d_bad, sizeof bad);
    bool ok = same_values(type, got, into, n, &where);
    ok = ok && (what != ADD_GUARDED || bad == expected);
    cuda_case(ok, "%s of %s %s n %llu at %llu", names[what], rill_type_name(type), data_names[kind],
              (unsigned long long)n, (unsigned long long)where);
    cuda_free(d_into);
    cuda_free(d_from);
    cuda_free(d_bad);
    free(into);
    free(from);
    free(got);
    free(sum);
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static uint64_t draw_indices(uint64_t n, double density, uint32_t *idx) {
    rng r = rng_make(5, n);
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        if (rng_unit(&r) < density) idx[count++] = (uint32_t)i;
    return count;
}

static void pairs_case(rill_type type, uint64_t n, double density) {
    size_t size = value_size(type), bytes = n * size;
    uint32_t *idx = malloc(n * 4);
    char *val = malloc(bytes), *dense = malloc(bytes), *expected = malloc(bytes),
         *got = malloc(bytes);
    uint64_t count = draw_indices(n, density, idx), where = 0;
    data_fill(SPECIAL, type, n, 3, val);
    data_fill(NORMAL, type, n, 4, dense);
    uint32_t *d_idx = cuda_upload(idx, count * 4);
    void *d_val = cuda_upload(val, count * size), *d_dense = cuda_upload(dense, bytes);
    void *work = cuda_new(cuda->update_workspace(n));

    CUDA(cuda->scatter_add((int)type, d_dense, d_idx, d_val, count, cuda_stream));
    memcpy(expected, dense, bytes);
    for (uint64_t i = 0; i < count; i++)
        rill__dense_add(rill__host(), type, expected + idx[i] * size, val + i * size, 1);
    cuda_download(got, d_dense, bytes);
    cuda_case(same_values(type, got, expected, n, &where), "scatter_add of %s n %llu at %llu",
              rill_type_name(type), (unsigned long long)n, (unsigned long long)where);

    CUDA(cuda->update((int)type, d_dense, n, d_idx, d_val, count, work, cuda_stream));
    rill__dense_write(rill__host(), (rill__shape){type, 4}, expected, 0, n,
                      (rill__pairs){count, idx, val});
    cuda_download(got, d_dense, bytes);
    cuda_case(memcmp(got, expected, bytes) == 0, "update of %s n %llu, %llu pairs",
              rill_type_name(type), (unsigned long long)n, (unsigned long long)count);

    CUDA(cuda->fill(d_val, 0, count * size, cuda_stream));
    CUDA(cuda->gather((int)type, d_dense, d_idx, count, d_val, cuda_stream));
    cuda_download(got, d_val, count * size);
    cuda_case(memcmp(got, val, count * size) == 0, "gather of %s n %llu", rill_type_name(type),
              (unsigned long long)n);

    CUDA(cuda->fill(d_dense, 0, bytes, cuda_stream));
    CUDA(cuda->scatter((int)type, d_dense, d_idx, d_val, count, cuda_stream));
    cuda_download(got, d_dense, bytes);
    cuda_case(memcmp(got, expected, bytes) == 0, "scatter of %s n %llu", rill_type_name(type),
              (unsigned long long)n);
    cuda_free(d_idx);
    cuda_free(d_val);
    cuda_free(d_dense);
    cuda_free(work);
    free(idx);
    free(val);
    free(dense);
    free(expected);
    free(got);
}

/* Pairs at every third index, a mask at every other: given back outside of it, cleared inside. */
static void where_case(rill_type type, uint64_t n) {
    size_t size = value_size(type), bytes = n * size;
    uint64_t count = 0, masked = 0, where = 0;
    uint32_t *idx = malloc(n * 4), *mask = malloc(n * 4);
    char *val = malloc(bytes), *expected = malloc(bytes), *got = malloc(bytes);
    for (uint64_t i = 0; i < n; i++) {
        if (i % 3 == 1) idx[count++] = (uint32_t)i;
        if (i % 2) mask[masked++] = (uint32_t)i;
    }
    data_fill(NORMAL, type, n, 6, val);
    data_fill(SPECIAL, type, n, 7, expected);
    void *d_idx = cuda_upload(idx, count * 4), *d_mask = cuda_upload(mask, masked * 4);
    void *d_val = cuda_upload(val, count * size), *d_dense = cuda_upload(expected, bytes);
    for (int inside = 0; inside < 2; inside++) {
        CUDA(cuda->scatter_add_where((int)type, d_dense, d_idx, d_val, count, d_mask, masked,
                                     inside, cuda_stream));
        for (uint64_t i = 0; i < count; i++)
            if ((idx[i] % 2 == 1) == inside)
                rill__dense_add(rill__host(), type, expected + idx[i] * size, val + i * size, 1);
        cuda_download(got, d_dense, bytes);
        cuda_case(same_values(type, got, expected, n, &where), "scatter_add_where of %s n %llu, %d",
                  rill_type_name(type), (unsigned long long)n, inside);
    }
    CUDA(cuda->clear_where((int)type, d_dense, d_idx, count, d_mask, masked, 1, cuda_stream));
    for (uint64_t i = 0; i < count; i++)
        if (idx[i] % 2) memset(expected + idx[i] * size, 0, size);
    cuda_download(got, d_dense, bytes);
    cuda_case(same_values(type, got, expected, n, &where), "clear_where of %s n %llu",
              rill_type_name(type), (unsigned long long)n);
    cuda_free(d_idx);
    cuda_free(d_mask);
    cuda_free(d_val);
    cuda_free(d_dense);
    free(idx);
    free(mask);
    free(val);
    free(expected);
    free(got);
}

void test_dense(void) {
    for (size_t t = 0; t < TYPE_COUNT; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (int what = 0; what < LOOPS; what++) {
                loop_case((enum loop)what, test_types[t], SPECIAL, sizes[i]);
                loop_case((enum loop)what, test_types[t], i % 2 ? SUBNORMAL : HEAVY, sizes[i]);
            }
            where_case(test_types[t], sizes[i]);
            pairs_case(test_types[t], sizes[i], 0.01);
            pairs_case(test_types[t], sizes[i], i % 2 ? 1.0 : 0.3);
        }
    pairs_case(RILL_F32, 100000, 0.0);
}
