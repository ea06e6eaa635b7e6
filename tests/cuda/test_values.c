/* QSGD, 16-bit floats and norms on the device against the library's codecs and the tree of
 * cuda_math.h. */
#include "test_cuda.h"

#include "codec/value_codec.h"
#include "cuda/cuda_math.h"
#include "space/space.h"

static const uint64_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 63, 65, 1023, 1024, 1025, 2047, 4100, 10001};

static void quant_case(int bits, bool l2, enum data kind, uint64_t n) {
    const rill__value_codec *codec = rill__value_codec_for_bits(RILL_F32, bits);
    rill__quant_key key = {UINT64_C(0xfedcba9876543210), n, 3, 7};
    rill__quant_stream stream = rill__quant_stream_make(&key);
    rill__cuda_quant q = {{stream.key[0], stream.key[1]},
                          {stream.high[0], stream.high[1]},
                          bits,
                          l2};
    size_t coded = codec->bound(RILL_F32, n), used;
    float *x = malloc(n * 4 + RILL__SLACK), *y = malloc(n * 4 + RILL__SLACK), *got = malloc(n * 4);
    uint8_t *expected = malloc(coded + RILL__SLACK), *code = malloc(coded);
    uint64_t where = 0;
    data_fill(kind, RILL_F32, n, 1, x);
    codec->encode(RILL_F32, x, n, &key, l2 ? RILL__SCALE_L2 : RILL__SCALE_MAX, expected);
    float *d_x = cuda_upload(x, n * 4);
    void *d_code = cuda_new(coded);
    cuda_case(cuda->qsgd_bytes(bits, n) == coded, "qsgd%d bytes of %llu", bits,
              (unsigned long long)n);
    CUDA(cuda->quantize(&q, d_x, n, d_code, cuda_stream));
    cuda_download(code, d_code, coded);
    cuda_case(memcmp(code, expected, coded) == 0, "quantize %d bits%s of %s n %llu", bits,
              l2 ? " L2" : "", data_names[kind], (unsigned long long)n);
    for (int add = 0; add < 2; add++) {
        if (add) {
            memcpy(y, x, n * 4);
            if (codec->decode_add(expected, coded, n, y, &used)) abort();
        } else if (codec->decode(RILL_F32, expected, coded, n, y, &used)) abort();
        CUDA(cuda->dequantize(bits, d_code, n, add, d_x, cuda_stream));
        cuda_download(got, d_x, n * 4);
        cuda_case(same_values(RILL_F32, got, y, n, &where),
                  "dequantize %d bits of %s n %llu, add %d: at %llu", bits, data_names[kind],
                  (unsigned long long)n, add, (unsigned long long)where);
        CUDA(cuda->copy(d_x, x, n * 4, cuda_stream));
        CUDA(cuda->stream_wait(cuda_stream));
    }
    uint8_t *fitted = malloc(coded + RILL__SLACK);
    void *d_fitted = cuda_upload(expected, coded);
    memcpy(fitted, expected, coded);
    codec->fit(RILL_F32, x, n, fitted);
    CUDA(cuda->quantize_fit(bits, d_x, n, d_fitted, cuda_stream));
    cuda_download(code, d_fitted, coded);
    cuda_case(memcmp(code, fitted, coded) == 0, "quantize_fit %d bits of %s n %llu", bits,
              data_names[kind], (unsigned long long)n);
    cuda_free(d_fitted);
    free(fitted);
    /* Every other entry of a dense vector. */
    uint32_t *idx = malloc(n * 4);
    float *dense = calloc(2 * n, 4), *all = malloc(8 * n);
    for (uint64_t i = 0; i < n; i++) {
        idx[i] = (uint32_t)(2 * i);
        dense[2 * i] = dense[2 * i + 1] = x[i];
    }
    float *d_dense = cuda_upload(dense, 8 * n);
    uint32_t *d_idx = cuda_upload(idx, 4 * n);
    CUDA(cuda->dequantize_scatter_add(bits, d_code, n, d_idx, d_dense, cuda_stream));
    for (uint64_t i = 0; i < n; i++)
        dense[2 * i] = y[i];
    cuda_download(all, d_dense, 8 * n);
    cuda_case(same_values(RILL_F32, all, dense, 2 * n, &where),
              "dequantize_scatter_add %d bits of %s n %llu", bits, data_names[kind],
              (unsigned long long)n);
    cuda_free(d_x);
    cuda_free(d_code);
    cuda_free(d_dense);
    cuda_free(d_idx);
    free(x);
    free(y);
    free(got);
    free(expected);
    free(code);
    free(idx);
    free(dense);
    free(all);
}

static void convert_case(rill_type type, enum data kind, uint64_t n) {
    const rill__codec_kernels *kernels = rill__host()->codec;
    size_t size = value_size(type);
    void *x = malloc(n * size + RILL__SLACK), *back = malloc(n * size + RILL__SLACK),
         *got = malloc(n * 8);
    float *wide = malloc(n * 4 + RILL__SLACK);
    uint64_t where = 0;
    data_fill(kind, type, n, 1, x);
    kernels->to_f32(type, x, n, wide);
    void *d_x = cuda_upload(x, n * size);
    float *d_wide = cuda_new(n * 4);
    CUDA(cuda->to_f32((int)type, d_x, n, d_wide, cuda_stream));
    cuda_download(got, d_wide, n * 4);
    cuda_case(same_values(RILL_F32, got, wide, n, &where), "to_f32 of %s %s n %llu at %llu",
              rill_type_name(type), data_names[kind], (unsigned long long)n,
              (unsigned long long)where);
    data_fill(kind, RILL_F32, n, 2, wide);
    kernels->from_f32(type, wide, n, back);
    CUDA(cuda->copy(d_wide, wide, n * 4, cuda_stream));
    CUDA(cuda->from_f32((int)type, d_wide, n, d_x, cuda_stream));
    cuda_download(got, d_x, n * size);
    cuda_case(same_values(type, got, back, n, &where), "from_f32 to %s %s n %llu at %llu",
              rill_type_name(type), data_names[kind], (unsigned long long)n,
              (unsigned long long)where);
    cuda_free(d_x);
    cuda_free(d_wide);
    free(x);
    free(back);
    free(got);
    free(wide);
}

static double host_norm2(rill_type type, const void *x, uint64_t n) {
    uint64_t tiles = (n + RILL_HD_TILE - 1) / RILL_HD_TILE;
    double *sums = malloc((tiles + 1) * 8), sum;
    for (uint64_t t = 0; t < tiles; t++) {
        double lane[RILL_HD_LANES] = {0};
        for (uint64_t i = t * RILL_HD_TILE; i < n && i < (t + 1) * RILL_HD_TILE; i++) {
            double v = value_load(type, x, i);
            lane[i % RILL_HD_LANES] += v * v;
        }
        sums[t] = rill__hd_tree_tile(lane);
    }
    sum = rill__hd_tree_sum(sums, tiles);
    free(sums);
    return sum;
}

static void norm_case(rill_type type, enum data kind, uint64_t n, double limit) {
    size_t bytes = n * value_size(type);
    char *x = malloc(bytes), *expected = malloc(bytes), *got = malloc(bytes);
    data_fill(kind, type, n, 1, x);
    void *d_x = cuda_upload(x, bytes), *d_y = cuda_new(bytes),
         *work = cuda_new(cuda->norm2_workspace(n));
    double *d_sum = cuda_new(8), sum, host = host_norm2(type, x, n);
    uint64_t where = 0;
    CUDA(cuda->norm2((int)type, d_x, n, d_sum, work, cuda_stream));
    cuda_download(&sum, d_sum, 8);
    cuda_case(same_values(RILL_F64, &sum, &host, 1, NULL), "norm2 of %s %s n %llu: %a, not %a",
              rill_type_name(type), data_names[kind], (unsigned long long)n, sum, host);
    double norm = sqrt(host), factor = norm > limit ? limit / norm : 1.0;
    CUDA(cuda->clip((int)type, d_y, limit, d_sum, d_x, n, cuda_stream));
    for (uint64_t i = 0; i < n; i++) {
        double v = value_load(type, x, i);
        value_store(type, expected, i,
                    type == RILL_F64 ? factor * v : (double)((float)factor * (float)v));
    }
    cuda_download(got, d_y, bytes);
    cuda_case(same_values(type, got, expected, n, &where), "clip of %s %s n %llu at %llu",
              rill_type_name(type), data_names[kind], (unsigned long long)n,
              (unsigned long long)where);
    cuda_free(d_x);
    cuda_free(d_y);
    cuda_free(work);
    cuda_free(d_sum);
    free(x);
    free(expected);
    free(got);
}

void test_values(void) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int bits = 2; bits <= 8; bits *= 2)
            for (int kind = 0; kind < CLUSTERED; kind++)
                quant_case(bits, kind % 2, (enum data)kind, sizes[i]);
        for (size_t t = 0; t < TYPE_COUNT; t++) {
            convert_case(test_types[t], SPECIAL, sizes[i]);
            convert_case(test_types[t], SUBNORMAL, sizes[i]);
            convert_case(test_types[t], HEAVY, sizes[i]);
            norm_case(test_types[t], i % 2 ? HEAVY : NORMAL, sizes[i], 1.0);
            norm_case(test_types[t], SUBNORMAL, sizes[i], 1.0);
        }
    }
    for (int bits = 2; bits <= 8; bits *= 2)
        quant_case(bits, true, SPECIAL, 3000);
    norm_case(RILL_F32, HEAVY, 300001, 2.0);
    if (!cuda_few) norm_case(RILL_F32, NORMAL, 20000003, 2.0); /* three levels */
}
