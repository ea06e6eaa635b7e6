/* Count-sketches against coll/topk/sketch.c. */
#include "test_cuda.h"

#include "coll/topk/sketch.h"

static rill__cuda_sketch plain(const rill__sketch *s) {
    rill__cuda_sketch out = {.rows = s->rows,
                             .wide = s->cell == RILL_F64,
                             .entries = s->entries,
                             .width = s->width,
                             .slots = s->slots,
                             .scale = s->scale};
    for (int j = 0; j < s->rows; j++) {
        out.row[j].step = s->row[j].step;
        out.row[j].start = s->row[j].start;
        out.row[j].sign_factor = s->row[j].sign_factor;
        out.row[j].sign_offset = s->row[j].sign_offset;
    }
    return out;
}

static void sketch_case(rill_type type, uint64_t entries, int rows, double lambda) {
    rill__sketch s;
    rill__sketch_plan(&s, type, entries, rows, lambda, 17, entries);
    rill__cuda_sketch device = plain(&s);
    uint64_t cells = rill__sketch_cells(&s), first = entries / 3, n = entries - first, where = 0;
    size_t size = value_size(type);
    void *values = malloc(entries * size), *expected = calloc(cells, size),
         *got = malloc(cells * size);
    double *median = malloc(8 * n), *mean = malloc(8 * n), *said = malloc(8 * n);
    data_fill(HEAVY, type, entries, 5, values);
    for (uint64_t i = 0; i < entries; i++)
        rill__sketch_add(&s, expected, i, value_load(type, values, i));
    void *d_values = cuda_upload(values, entries * size), *d_cells = cuda_new(cells * size);
    double *d_median = cuda_new(8 * n), *d_mean = cuda_new(8 * n), *d_gap = cuda_new(8 * n);
    CUDA(cuda->fill(d_cells, 0, cells * size, cuda_stream));
    CUDA(cuda->sketch_add(&device, d_values, entries, d_cells, cuda_stream));
    cuda_download(got, d_cells, cells * size);
    cuda_case(same_values(type, got, expected, cells, &where),
              "sketch of %llu %s, %d rows, %g: cell %llu", (unsigned long long)entries,
              rill_type_name(type), rows, lambda, (unsigned long long)where);
    double errors = rill__sketch_estimate(&s, expected, first, n, median, mean), sum = 0;
    CUDA(cuda->sketch_estimate(&device, d_cells, first, n, d_median, d_mean, d_gap, cuda_stream));
    cuda_download(said, d_median, 8 * n);
    cuda_case(same_values(RILL_F64, said, median, n, &where), "median of %llu, %d rows: %llu",
              (unsigned long long)entries, rows, (unsigned long long)where);
    cuda_download(said, d_mean, 8 * n);
    cuda_case(same_values(RILL_F64, said, mean, n, &where), "mean of %llu, %d rows: %llu",
              (unsigned long long)entries, rows, (unsigned long long)where);
    cuda_download(said, d_gap, 8 * n);
    for (uint64_t i = 0; i < n; i++)
        sum += said[i] * said[i];
    sum *= rows == 1 ? 0 : rows % 2 ? 0.53 * rows - 0.2 : rows / 8.0;
    cuda_case(sum == errors, "gaps of %llu, %d rows: %g, not %g", (unsigned long long)entries, rows,
              sum, errors);
    cuda_free(d_values);
    cuda_free(d_cells);
    cuda_free(d_median);
    cuda_free(d_mean);
    cuda_free(d_gap);
    free(values);
    free(expected);
    free(got);
    free(median);
    free(mean);
    free(said);
}

void test_sketch(void) {
    static const uint64_t entries[] = {1, 2, 3, 10, 255, 1000, 5000, 40000};
    static const double lambdas[] = {0.1, 0.5, 1, 4};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        for (int rows = 1; rows <= 15; rows += rows < 5 ? 1 : 5)
            for (size_t l = 0; l < 4; l++)
                sketch_case(i % 2 ? RILL_F64 : RILL_F32, entries[i], rows, lambdas[l]);
}
