/* 64 of 4,096 with 2 bits: against a plain version, whose choice is that of rill's bucket
 * selection. */
#include "test_cuda.h"

#include "cuda/cuda_math.h"
#include "select/select.h"

enum { CHUNK = RILL__CUDA_CHUNK, KEEP = RILL__CUDA_CHUNK_KEEP, WORDS = RILL__CUDA_CHUNK_WORDS };

/* Codes the selected entries of a chunk, and adds what is lost to residual, which is 0 there. */
static void encode(const uint32_t *idx, const float *val, uint64_t count, uint64_t base,
                   float *residual, uint32_t *out) {
    float scale = 0;
    memset(out, 0, WORDS * 4);
    for (uint64_t i = 0; i < count; i++)
        if (!(fabsf(val[i]) <= scale))
            scale = isnan(val[i]) ? rill__hd_float(0x7f800001u) : fabsf(val[i]);
    memcpy(out + 28, &scale, 4);
    for (uint64_t i = 0; i < KEEP && count; i++) {
        bool there = i < count;
        uint64_t e = there ? i : count - 1, bit = 12 * i, index = idx[e] - base;
        uint64_t word = index << bit % 32;
        out[bit / 32] |= (uint32_t)word;
        if (bit % 32 > 20) out[bit / 32 + 1] |= (uint32_t)(word >> 32);
        if (!there) continue;
        int outer = rill__hd_chunk_outer(fabsf(val[e]), scale);
        float level = rill__hd_chunk_level(outer, scale);
        out[24 + i / 32 * 2] |= (uint32_t)(signbit(val[e]) != 0) << i % 32;
        out[25 + i / 32 * 2] |= (uint32_t)outer << i % 32;
        residual[idx[e]] = signbit(val[e]) ? val[e] + level : val[e] - level;
    }
}

static void host_step(float *residual, const float *gradient, uint64_t n, uint32_t *out) {
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    rill_selector *selector;
    rill_stream *kept;
    o.method = "bucket";
    o.bucket = CHUNK;
    /* The selector cuts its bucket to the dimension. */
    o.density = n < CHUNK ? fmin(1, (double)KEEP / (double)n) : (double)KEEP / CHUNK;
    if (rill_selector_create(RILL_F32, n, &o, &selector) || rill_stream_create(RILL_F32, n, &kept))
        abort();
    selector->guards = true;
    if (rill_select_residual(selector, gradient, residual, kept)) abort();
    const uint32_t *idx = rill_stream_indices32(kept);
    const float *val = rill_stream_values(kept);
    uint64_t at = 0, count = rill_stream_nnz(kept);
    for (uint64_t base = 0; base < n; base += CHUNK, out += WORDS) {
        uint64_t first = at;
        while (at < count && idx[at] < base + CHUNK)
            at++;
        encode(idx + first, val + first, at - first, base, residual, out);
    }
    rill_stream_free(&kept);
    rill_selector_free(&selector);
}

static void host_decode(const uint32_t *in, uint64_t n, float *dense) {
    for (uint64_t base = 0; base < n; base += CHUNK, in += WORDS) {
        float scale = rill__hd_float(in[28]);
        uint32_t before = 0;
        for (uint32_t i = 0; i < KEEP && scale != 0; i++) {
            uint64_t bit = 12 * i, two = in[bit / 32] | (uint64_t)in[bit / 32 + 1] << 32;
            uint32_t index = (uint32_t)(two >> bit % 32) & (CHUNK - 1);
            if (i && index <= before) break;
            before = index;
            float level = rill__hd_chunk_level((int)(in[25 + i / 32 * 2] >> i % 32 & 1), scale);
            dense[base + index] += in[24 + i / 32 * 2] >> i % 32 & 1 ? -level : level;
        }
    }
}

static void chunk_case(enum data kind, uint64_t n) {
    uint64_t chunks = (n + CHUNK - 1) / CHUNK, bad, expected_bad = 0, where = 0;
    size_t bytes = n * 4, coded = chunks * WORDS * 4;
    float *r = malloc(bytes), *g = malloc(bytes), *got = malloc(bytes);
    uint32_t *out = calloc(1, coded), *code = malloc(coded);
    data_fill(kind == SPECIAL ? NORMAL : kind, RILL_F32, n, 1, r); /* a residual is finite */
    data_fill(kind, RILL_F32, n, 2, g);
    for (uint64_t i = 0; i < n; i++)
        expected_bad += !isfinite(r[i] + g[i]);
    float *d_r = cuda_upload(r, bytes), *d_g = cuda_upload(g, bytes);
    uint32_t *d_out = cuda_new(coded);
    uint64_t *d_bad = cuda_new(8);
    host_step(r, g, n, out);
    CUDA(cuda->chunk(d_r, d_g, n, d_out, d_bad, cuda_stream));
    cuda_download(got, d_r, bytes);
    cuda_download(code, d_out, coded);
    cuda_download(&bad, d_bad, 8);
    bool same = memcmp(code, out, coded) == 0;
    for (uint64_t i = 0; i < chunks * WORDS && !same; i++)
        if (code[i] != out[i]) {
            where = i;
            break;
        }
    cuda_case(same && bad == expected_bad,
              "chunk of %s n %llu: word %llu of chunk %llu is %x, not %x; %llu not finite",
              data_names[kind], (unsigned long long)n, (unsigned long long)where % WORDS,
              (unsigned long long)where / WORDS, code[where], out[where], (unsigned long long)bad);
    cuda_case(same_values(RILL_F32, got, r, n, &where),
              "chunk of %s n %llu: residual at %llu: %g, not %g", data_names[kind],
              (unsigned long long)n, (unsigned long long)where, (double)got[where],
              (double)r[where]);

    for (int add = 0; add < 2; add++) {
        if (add) memcpy(r, g, bytes);
        else memset(r, 0, bytes);
        host_decode(out, n, r);
        CUDA(cuda->chunk_decode(d_out, n, add, d_g, cuda_stream));
        cuda_download(got, d_g, bytes);
        cuda_case(same_values(RILL_F32, got, r, n, &where),
                  "chunk_decode of %s n %llu, add %d: at %llu", data_names[kind],
                  (unsigned long long)n, add, (unsigned long long)where);
        CUDA(cuda->copy(d_g, g, bytes, cuda_stream));
        CUDA(cuda->stream_wait(cuda_stream));
    }
    cuda_free(d_r);
    cuda_free(d_g);
    cuda_free(d_out);
    cuda_free(d_bad);
    free(r);
    free(g);
    free(got);
    free(out);
    free(code);
}

void test_chunk(void) {
    static const uint64_t sizes[] = {1, 3, 5, 63, 64, 65, 4095, 4096, 4097, 8191, 40000};
    for (int kind = 0; kind < DATA; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            chunk_case((enum data)kind, sizes[i]);
    if (!cuda_few) chunk_case(NORMAL, 12400003);
}
