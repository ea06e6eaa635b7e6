/* threshold, bucket, block and random against rill's selectors. */
#include "test_selected.h"

#include "select/select.h"

static const rill_type types[] = {RILL_F32, RILL_F16, RILL_BF16};
static const uint64_t sizes[] = {1, 7, 9, 511, 512, 513, 4095, 4096, 4097, 8193, 20011, 70001};

static void threshold_case(rill_type type, enum data kind, uint64_t n, double level, enum form form,
                           bool guards) {
    selection s = {.type = type, .n = n, .form = form, .guards = guards, .kind = kind, .room = n};
    selection_begin(&s);
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = "threshold";
    o.threshold = level;
    selection_host(&s, &o, 1);
    rill__cuda_select call = selection_call(&s);
    call.workspace_bytes = cuda->threshold_workspace((int)type, n);
    call.workspace = cuda_new(call.workspace_bytes);
    uint32_t key = (uint32_t)rill__key_from(type, level);
    CUDA(cuda->threshold(&call, key ? key : 1, cuda_stream));
    selection_end(&s, &call, "threshold %g", level);
}

static void bucket_case(rill_type type, enum data kind, uint64_t n, uint32_t bucket, uint32_t k,
                        enum form form, bool guards) {
    if (bucket > n) bucket = (uint32_t)n;
    if (k > bucket) k = bucket;
    selection s = {.type = type, .n = n, .form = form, .guards = guards, .kind = kind};
    s.room = (n + bucket - 1) / bucket * k;
    selection_begin(&s);
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = "bucket";
    o.bucket = bucket;
    o.density = (double)k / bucket;
    selection_host(&s, &o, 1);
    rill__cuda_select call = selection_call(&s);
    call.workspace_bytes = cuda->bucket_workspace((int)type, n, bucket);
    call.workspace = cuda_new(call.workspace_bytes);
    CUDA(cuda->bucket(&call, bucket, k, cuda_stream));
    selection_end(&s, &call, "%u of %u", k, bucket);
}

static void random_case(rill_type type, uint64_t n, uint64_t k, enum form form, bool guards) {
    if (k > n) k = n;
    selection s = {
        .type = type, .n = n, .form = form, .guards = guards, .kind = SPECIAL, .room = k};
    selection_begin(&s);
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = "random";
    o.k = k;
    o.seed = UINT64_C(0x123456789abcdef);
    selection_host(&s, &o, 3);
    rill__cuda_select call = selection_call(&s);
    CUDA(cuda->random(&call, k, o.seed, 2, cuda_stream));
    selection_end(&s, &call, "random %llu", (unsigned long long)k);
}

static void block_case(rill_type type, enum data kind, uint64_t n, uint64_t block, double density,
                       enum form form, bool guards) {
    uint64_t blocks = (n + block - 1) / block;
    uint64_t want = (uint64_t)floor(density * (double)blocks + 0.5);
    if (!want) want = 1;
    selection s = {.type = type, .n = n, .form = form, .guards = guards, .kind = kind, .room = n};
    selection_begin(&s);
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = "block";
    o.block = block;
    o.density = density;
    selection_host(&s, &o, 1);
    rill__cuda_select call = selection_call(&s);
    call.workspace_bytes = cuda->block_workspace((int)type, n, block);
    call.workspace = cuda_new(call.workspace_bytes);
    CUDA(cuda->block(&call, block, want, cuda_stream));
    selection_end(&s, &call, "%llu blocks of %llu", (unsigned long long)want,
                  (unsigned long long)block);
}

void test_methods(void) {
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int form = 0; form < FORMS; form++) {
                enum form f = (enum form)form;
                bool guards = form == ADDED && i % 2;
                enum data kind = (enum data)((i + t + (size_t)form) % DATA);
                threshold_case(types[t], SPECIAL, sizes[i], 1.5, f, guards);
                threshold_case(types[t], kind, sizes[i], 0.25, f, guards);
                bucket_case(types[t], SPECIAL, sizes[i], 512, 5, f, guards);
                bucket_case(types[t], kind, sizes[i], i % 2 ? 4096 : 100, 64, f, guards);
                random_case(types[t], sizes[i], sizes[i] / 7 + 1, f, guards);
                if (cuda->block) {
                    block_case(types[t], SPECIAL, sizes[i], 256, 0.1, f, guards);
                    block_case(types[t], kind, sizes[i], 37, 0.3, f, guards);
                }
            }
    for (int kind = 0; kind < DATA; kind++)
        bucket_case(RILL_F32, (enum data)kind, 5000, 512, 5, ADDED, false);
}
