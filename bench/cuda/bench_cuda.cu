/* bench_cuda LIBRARY [REPS]: times the kernels of librill_cuda on a GPU, with what bounds them
 * in the same run: one read, an axpy, a memset. One JSON record a case, medians of device time
 * between events. scripts: bench/cuda/run */
#include "../../src/cuda/cuda_space.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <vector>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        int error_ = (call);                                                                       \
        if (error_) {                                                                              \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString((cudaError_t)error_));           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const rill__cuda_table *table;
static cudaStream_t stream;
static int reps = 31;
static const char *device_name;

/* ---- data and limits ------------------------------------------------------------------------ */

static __device__ unsigned mix32(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}
enum kind { GAUSS, CUBE, TIES, CLUSTERED, CONSTANT, FOOLING };
static const char *const kind_names[] = {"gauss",     "cube",     "ties",
                                         "clustered", "constant", "fooling"};

/* fooling: what the sample reads is small, all else large. */
static __device__ bool sampled(unsigned long long n, unsigned long long i) {
    unsigned long long pairs = n / 8, groups = pairs / 128 > 16384 ? pairs / 128 : 16384;
    unsigned long long stride = pairs / groups, group = i / 8 / stride, x = group + 1;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    x ^= x >> 31;
    return group < groups && i / 8 == group * stride + (unsigned)(x >> 32) % (unsigned)stride;
}
static __global__ void make_data(float *x, unsigned long long n, unsigned seed, int kind) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += step) {
        unsigned a = mix32((unsigned)(2 * i) + seed * 0x9e3779b9u),
                 b = mix32(((unsigned)(2 * i) + 1) ^ (seed * 0x85ebca6bu + 77));
        float u = (a + 1.0f) * 2.3283064e-10f;
        float v = sqrtf(-2.0f * logf(fminf(u, 1.0f))) * cosf(b * 1.4629180e-9f);
        if (kind == CUBE) v = v * v * v;
        if (kind == TIES) v = rintf(v * 4) * 0.25f;
        if (kind == CLUSTERED && i / (n / 20 + 1) == 7) v *= 100;
        if (kind == CONSTANT) v = 0.5f;
        if (kind == FOOLING && sampled(n, i)) v *= 1e-3f;
        x[i] = v;
    }
}
static __global__ void __launch_bounds__(512) read_all(const float4 *x, unsigned n4, float *out) {
    float s = 0;
    unsigned step = gridDim.x * 512, i = blockIdx.x * 512 + threadIdx.x;
    for (; i + 3 * step < n4; i += 4 * step) {
        float4 a = __ldcs(x + i), b = __ldcs(x + i + step), c = __ldcs(x + i + 2 * step),
               d = __ldcs(x + i + 3 * step);
        s += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w + c.x + c.y + c.z + c.w + d.x + d.y +
             d.z + d.w;
    }
    for (; i < n4; i += step)
        s += x[i].x + x[i].y + x[i].z + x[i].w;
    if (s == 1.2345f) *out = s; /* never, but the compiler cannot know */
}

/* ---- measuring ------------------------------------------------------------------------------ */

struct times {
    double median, p25, p75;
};
/* before: what is not measured */
template <class F, class B> static times measure_after(B before, F run) {
    cudaEvent_t a, b;
    std::vector<double> ms;
    MUST(cudaEventCreate(&a));
    MUST(cudaEventCreate(&b));
    for (int i = 0; i < 3 + reps; i++) {
        before();
        MUST(cudaEventRecord(a, stream));
        run();
        MUST(cudaEventRecord(b, stream));
        MUST(cudaEventSynchronize(b));
        float t;
        MUST(cudaEventElapsedTime(&t, a, b));
        if (i >= 3) ms.push_back(t);
    }
    MUST(cudaGetLastError());
    MUST(cudaEventDestroy(a));
    MUST(cudaEventDestroy(b));
    std::sort(ms.begin(), ms.end());
    size_t n = ms.size();
    return {(ms[(n - 1) / 2] + ms[n / 2]) / 2, ms[n / 4], ms[n * 3 / 4]};
}
template <class F> static times measure(F run) {
    return measure_after([] {}, run);
}
static void record(const char *kernel, const char *data, unsigned long long n, unsigned long long k,
                   size_t scratch, double goal, times t) {
    printf("{\"kernel\":\"%s\",\"data\":\"%s\",\"n\":%llu,\"k\":%llu,\"median_ms\":%.5f,\"p25_ms\":"
           "%.5f,"
           "\"p75_ms\":%.5f,\"reps\":%d,\"scratch_bytes_a_value\":%.4f,\"goal_ms\":%.3f,\"met\":%s,"
           "\"device\":\"%s\"}\n",
           kernel, data, n, k, t.median, t.p25, t.p75, reps, (double)scratch / (double)n, goal,
           goal > 0 ? (t.median <= goal ? "true" : "false") : "null", device_name);
    fflush(stdout);
}
template <class P> static P *fresh(size_t bytes) {
    void *at;
    MUST(cudaMalloc(&at, bytes + 256));
    return (P *)at;
}
static void fill(float *x, unsigned long long n, unsigned seed, int kind) {
    make_data<<<2048, 256, 0, stream>>>(x, n, seed, kind);
    MUST(cudaGetLastError());
}

/* ---- cases ---------------------------------------------------------------------------------- */

static double topk_goal(int kind, double density) {
    if (kind >= TIES && kind != CLUSTERED) return 1.0;
    return density == 0.001 ? 0.22 : density == 0.01 ? 0.24 : 0.36;
}

static void bench_topk(unsigned long long n) {
    float *x = fresh<float>(n * 4), *unused = fresh<float>(4);
    unsigned long long most = n / 10;
    rill__cuda_select s = {};
    s.type = RILL__CUDA_F32;
    s.n = n;
    s.dense = x;
    s.idx = fresh<uint32_t>(most * 4);
    s.val = fresh<float>(most * 4);
    s.room = most;
    s.found = fresh<rill__cuda_found>(sizeof *s.found);
    size_t room = table->topk_workspace(RILL__CUDA_F32, n, most);
    s.workspace = fresh<char>(room);
    for (int kind = GAUSS; kind <= FOOLING; kind++) {
        fill(x, n, 11u + (unsigned)kind, kind);
        for (double density : {0.001, 0.01, 0.1}) {
            unsigned long long k = (unsigned long long)((double)n * density);
            s.workspace_bytes = table->topk_workspace(RILL__CUDA_F32, n, k);
            times t = measure([&] { MUST(table->topk(&s, k, stream)); });
            rill__cuda_found found;
            MUST(cudaMemcpy(&found, s.found, sizeof found, cudaMemcpyDeviceToHost));
            if (found.count != k)
                fprintf(stderr, "topk found %llu of %llu\n", (unsigned long long)found.count, k);
            record("topk", kind_names[kind], n, k, s.workspace_bytes, topk_goal(kind, density), t);
        }
    }
    for (unsigned blocks : {2u, 4u})
        record("limit: one read", "cube", n, blocks, 0, 0, measure([&] {
                   read_all<<<132 * blocks, 512, 0, stream>>>((float4 *)x, (unsigned)(n / 4),
                                                              unused);
               }));
    for (void *p : {(void *)x, (void *)unused, (void *)s.idx, s.val, (void *)s.found, s.workspace})
        MUST(cudaFree(p));
}

/* Codes of what a step of 1 % sends. */
static void bench_codes(const uint32_t *idx, const float *val, unsigned long long n,
                        unsigned long long k, void *workspace, size_t room) {
    char *out = fresh<char>(k * 8);
    uint64_t *bytes = fresh<uint64_t>(8);
    rill__cuda_quant q = {{1, 2}, {3, 4}, 4, 0};
    if (table->bitpack_workspace(k) > room || table->elias_fano_workspace(k, n) > room) exit(1);
    record("quantize, 4 bits", "gauss", k, k, 0, 0,
           measure([&] { MUST(table->quantize(&q, val, k, out, stream)); }));
    record("quantize_fit, 4 bits", "gauss", k, k, 0, 0,
           measure([&] { MUST(table->quantize_fit(4, val, k, out, stream)); }));
    record("bitpack", "gauss", k, k, table->bitpack_workspace(k), 0,
           measure([&] { MUST(table->bitpack(idx, k, 0, out, bytes, workspace, stream)); }));
    record("elias_fano", "gauss", k, k, table->elias_fano_workspace(k, n), 0,
           measure([&] { MUST(table->elias_fano(idx, k, 0, n, out, bytes, workspace, stream)); }));
    MUST(cudaFree(out));
    MUST(cudaFree(bytes));
}

/* Where the chunks of 1,024 indices begin in a rice code, as codec/codec_rice.c finds it. */
static std::vector<uint64_t> chunks_of(const std::vector<unsigned char> &code,
                                       unsigned long long k) {
    std::vector<uint64_t> chunk;
    size_t at = 0;
    for (unsigned long long i = 0; i < k; i += 1024) {
        size_t n = k - i < 1024 ? (size_t)(k - i) : 1024;
        chunk.push_back(at);
        at += 1 + (n * code[at] + 7) / 8;
        for (size_t ones = 0; ones < n && at < code.size(); at++)
            ones += (size_t)__builtin_popcount(code[at]);
    }
    chunk.push_back(at);
    return chunk;
}

/* The way back of what k indices of n are coded in. */
static void bench_decodes(const uint32_t *idx, unsigned long long n, unsigned long long k) {
    size_t room = table->rice_workspace(k) + table->bitpack_workspace(k) +
                  table->elias_fano_workspace(k, n);
    char *code = fresh<char>(k * 8), *workspace = fresh<char>(room);
    uint64_t *bytes = fresh<uint64_t>(8), used;
    uint32_t *back = fresh<uint32_t>(k * 4), *wrong = fresh<uint32_t>(4);
    auto size = [&] {
        MUST(cudaStreamSynchronize(stream));
        MUST(cudaMemcpy(&used, bytes, 8, cudaMemcpyDeviceToHost));
        return (size_t)used;
    };
    MUST(table->bitpack(idx, k, 0, code, bytes, workspace, stream));
    size_t in = size();
    record("bitpack, back", "gauss", k, k, 0, 0, measure([&] {
               MUST(table->bitunpack(code, in, k, 0, n, back, wrong, workspace, stream));
           }));
    MUST(table->elias_fano(idx, k, 0, n, code, bytes, workspace, stream));
    in = size();
    record("elias_fano, back", "gauss", k, k, 0, 0, measure([&] {
               MUST(table->elias_fano_decode(code, in, k, 0, n, back, wrong, workspace, stream));
           }));
    record("rice", "gauss", k, k, table->rice_workspace(k), 0,
           measure([&] { MUST(table->rice(idx, k, 0, code, bytes, workspace, stream)); }));
    in = size();
    std::vector<unsigned char> host(in);
    MUST(cudaMemcpy(host.data(), code, in, cudaMemcpyDeviceToHost));
    std::vector<uint64_t> chunk = chunks_of(host, k);
    uint64_t *there = fresh<uint64_t>(chunk.size() * 8);
    MUST(cudaMemcpy(there, chunk.data(), chunk.size() * 8, cudaMemcpyHostToDevice));
    record("rice, back", "gauss", k, k, 0, 0, measure([&] {
               MUST(table->rice_decode(code, in, there, k, 0, n, back, wrong, workspace, stream));
           }));
    uint32_t is_wrong;
    MUST(cudaMemcpy(&is_wrong, wrong, 4, cudaMemcpyDeviceToHost));
    if (is_wrong) fprintf(stderr, "rice does not come back\n");
    for (void *p : {(void *)code, (void *)workspace, (void *)bytes, (void *)back, (void *)wrong,
                    (void *)there})
        MUST(cudaFree(p));
}

/* Sums of lists of k of n, decoded. */
static void bench_sums(float *g, rill__cuda_select s, unsigned long long n, unsigned long long k) {
    enum { MOST = 8 };
    uint32_t *idx = fresh<uint32_t>(MOST * k * 4), *all = fresh<uint32_t>(MOST * k * 4);
    float *val = fresh<float>(MOST * k * 4), *sum = fresh<float>(MOST * k * 4);
    size_t room = table->union_workspace(n);
    char *workspace = fresh<char>(room);
    uint64_t *total = fresh<uint64_t>(8), entries;
    uint32_t *wrong = fresh<uint32_t>(4);
    MUST(cudaMemset(wrong, 0, 4));
    for (unsigned i = 0; i < MOST; i++) {
        fill(g, n, 61u + i, GAUSS);
        s.idx = idx + i * k;
        s.val = val + i * k;
        MUST(table->topk(&s, k, stream));
    }
    for (unsigned lists : {2u, 4u, 8u}) {
        char name[64];
        snprintf(name, sizeof name, "sum of %u lists", lists);
        record(name, "gauss", n, k, room, 0, measure([&] {
                   MUST(table->union_begin(workspace, n, stream));
                   MUST(table->union_mark(workspace, n, idx, lists * k, wrong, stream));
                   MUST(table->union_count(workspace, n, total, stream));
                   MUST(table->union_list(workspace, n, all, stream));
                   MUST(table->fill_value(RILL__CUDA_F32, sum, 0x80000000u, lists * k, stream));
                   for (unsigned i = 0; i < lists; i++)
                       MUST(table->union_sum(RILL__CUDA_F32, 0, workspace, n, idx + i * k,
                                             val + i * k, k, sum, stream));
               }));
        MUST(cudaMemcpy(&entries, total, 8, cudaMemcpyDeviceToHost));
        if (entries < k || entries > lists * k) fprintf(stderr, "a union is wrong\n");
    }
    for (void *p : {(void *)idx, (void *)all, (void *)val, (void *)sum, (void *)workspace,
                    (void *)total, (void *)wrong})
        MUST(cudaFree(p));
}

/* From a residual of zeros each time: else what is taken would grow. */
static void bench_threshold(rill__cuda_select s, unsigned long long n) {
    const uint32_t key = 0x40266666u; /* 2.6: 0.93 % of a normal distribution */
    rill__cuda_found found;
    s.workspace_bytes = table->threshold_workspace(RILL__CUDA_F32, n);
    times t = measure_after([&] { MUST(cudaMemsetAsync(s.residual, 0, n * 4, stream)); },
                            [&] { MUST(table->threshold(&s, key, stream)); });
    MUST(cudaMemcpy(&found, s.found, sizeof found, cudaMemcpyDeviceToHost));
    record("residual + threshold", "gauss", n, found.count, s.workspace_bytes, 0.45, t);
    s.dense = s.gradient;
    s.residual = NULL;
    s.gradient = NULL;
    t = measure([&] { MUST(table->threshold(&s, key, stream)); });
    record("threshold", "gauss", n, found.count, s.workspace_bytes, 0, t);
}

static void bench_step(unsigned long long n) {
    float *g = fresh<float>(n * 4), *r = fresh<float>(n * 4);
    unsigned long long k = n / 100, chunks = (n + RILL__CUDA_CHUNK - 1) / RILL__CUDA_CHUNK;
    rill__cuda_select s = {};
    s.type = RILL__CUDA_F32;
    s.n = n;
    s.residual = r;
    s.gradient = g;
    s.guards = 1;
    s.room = k;
    s.idx = fresh<uint32_t>(k * 4);
    s.val = fresh<float>(k * 4);
    s.found = fresh<rill__cuda_found>(sizeof *s.found);
    s.workspace_bytes = table->topk_workspace(RILL__CUDA_F32, n, k);
    s.workspace = fresh<char>(s.workspace_bytes);
    for (int kind : {GAUSS, CUBE, CLUSTERED}) {
        fill(g, n, 31u, kind);
        MUST(cudaMemsetAsync(r, 0, n * 4, stream));
        record("residual + topk", kind_names[kind], n, k, s.workspace_bytes, 0.49,
               measure([&] { MUST(table->topk(&s, k, stream)); }));
    }
    uint32_t *out = fresh<uint32_t>(chunks * RILL__CUDA_CHUNK_WORDS * 4);
    uint64_t *bad = fresh<uint64_t>(8);
    for (int kind : {GAUSS, CUBE, CLUSTERED}) {
        fill(g, n, 41u, kind);
        MUST(cudaMemsetAsync(r, 0, n * 4, stream));
        record("residual + 64 of 4096, 2 bits", kind_names[kind], n, chunks * 64, 0, 0.42,
               measure([&] { MUST(table->chunk(r, g, n, out, bad, stream)); }));
    }
    record("64 of 4096 decode", "clustered", n, chunks * 64, 0, 0,
           measure([&] { MUST(table->chunk_decode(out, n, 0, r, stream)); }));

    fill(g, n, 51u, GAUSS);
    rill__cuda_select plain = s;
    plain.residual = NULL;
    plain.gradient = NULL;
    plain.dense = g;
    MUST(table->topk(&plain, k, stream));
    size_t room = table->update_workspace(n);
    record("update from pairs", "gauss", n, k, room, 0.14, measure([&] {
               MUST(table->update(RILL__CUDA_F32, r, n, s.idx, s.val, k, s.workspace, stream));
           }));
    record("limit: memset", "", n, 0, 0, 0,
           measure([&] { MUST(cudaMemsetAsync(r, 0, n * 4, stream)); }));
    record("limit: axpy", "gauss", n, 0, 0, 0,
           measure([&] { MUST(table->add(RILL__CUDA_F32, r, g, n, 0, NULL, stream)); }));
    record("limit: copy", "gauss", n, 0, 0, 0,
           measure([&] { MUST(cudaMemcpyAsync(r, g, n * 4, cudaMemcpyDeviceToDevice, stream)); }));
    bench_codes(s.idx, (const float *)s.val, n, k, s.workspace, s.workspace_bytes);
    bench_decodes(s.idx, n, k);
    plain.workspace_bytes = s.workspace_bytes;
    bench_sums(g, plain, n, k);
    fill(g, n, 51u, GAUSS);
    bench_threshold(s, n);
    MUST(cudaMemsetAsync(r, 0, n * 4, stream));
    s.workspace_bytes = table->bucket_workspace(RILL__CUDA_F32, n, 512);
    MUST(cudaFree(s.idx));
    MUST(cudaFree(s.val));
    s.room = (n / 512 + 1) * 5;
    s.idx = fresh<uint32_t>(s.room * 4);
    s.val = fresh<float>(s.room * 4);
    record("residual + 5 of 512", "gauss", n, s.room, s.workspace_bytes, 0,
           measure([&] { MUST(table->bucket(&s, 512, 5, stream)); }));
    for (void *p : {(void *)g, (void *)r, (void *)s.idx, s.val, (void *)s.found, s.workspace,
                    (void *)out, (void *)bad})
        MUST(cudaFree(p));
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) {
        fprintf(stderr, "usage: bench_cuda LIBRARY [REPS]; %s\n", argc > 1 ? dlerror() : "");
        return 2;
    }
    if (argc > 2) reps = atoi(argv[2]);
    const rill__cuda_table *(*get)(void);
    *(void **)&get = dlsym(library, RILL__CUDA_SYMBOL);
    if (!get || (table = get())->version != RILL__CUDA_VERSION) return 2;
    int count = 0;
    if (cudaGetDeviceCount(&count) || !count) {
        fprintf(stderr, "skipped: there is no GPU\n");
        return 77;
    }
    static rill__cuda_device device;
    MUST(table->device_info(0, &device));
    device_name = device.name;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    bench_topk(133500000);
    bench_step(124000000);
    return 0;
}
