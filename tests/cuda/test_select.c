/* Selection on the device against rill's own selectors, and the step with a residual. */
#include "test_cuda.h"
#include "test_selected.h"

static const rill_type types[] = {RILL_F32, RILL_F16, RILL_BF16};

static void topk_device(const selection *s, uint64_t k, rill__cuda_select *call) {
    call->workspace_bytes = cuda->topk_workspace((int)s->type, s->n, k);
    call->workspace = cuda_new(call->workspace_bytes);
    CUDA(cuda->topk(call, k, cuda_stream));
}

static void topk_case(rill_type type, enum data kind, uint64_t n, uint64_t k, enum form form,
                      bool guards) {
    selection s = {.type = type, .n = n, .form = form, .guards = guards, .kind = kind, .room = k};
    selection_begin(&s);
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = "topk";
    o.k = k;
    selection_host(&s, &o, 1);
    rill__cuda_select call = selection_call(&s);
    topk_device(&s, k, &call);
    selection_end(&s, &call, "topk k %llu", (unsigned long long)k);
}

/* Sizes around vectors, rows, segments and the sample's boundaries. */
static void topk_sizes(void) {
    static const uint64_t sizes[] = {1,    2,    3,    4,    5,     7,     8,     9,     31,   127,
                                     128,  129,  255,  256,  257,   511,   513,   1023,  1025, 4095,
                                     4097, 6143, 6144, 6145, 12287, 12289, 20000, 65535, 65541};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int form = 0; form < FORMS; form++) {
                uint64_t n = sizes[i];
                topk_case(types[t], NORMAL, n, 1, (enum form)form, false);
                topk_case(types[t], TIES, n, n / 3 + 1, (enum form)form, false);
                if (n < 3000 && (!cuda_few || t == 0))
                    topk_case(types[t], SPARSE, n, n, (enum form)form, true);
            }
}

/* few: one number of entries for each kind of data and form, since an emulated device takes
 * long. */
static void topk_data(uint64_t n, bool few) {
    const uint64_t ks[] = {n / 100, 1, n / 1000 + 1, n / 10, n - 1};
    for (size_t t = 0; t < 3; t++)
        for (int kind = 0; kind < DATA; kind++)
            for (int form = 0; form < FORMS; form++)
                for (size_t i = 0; i < (few ? 1 : 5); i++)
                    if (!few || t == 0 || (kind + form) % 3 == 0)
                        topk_case(types[t], (enum data)kind, n, ks[i], (enum form)form,
                                  form == ADDED && (kind + i) % 2);
}

/* The room that is promised, whatever the size. */
static void topk_room(void) {
    for (uint64_t n = 1; n < 1000000000; n = n * 3 + 1)
        for (uint64_t k = 1; k <= n; k = k * 10 + 1)
            for (size_t t = 0; t < 3; t++) {
                size_t bytes = cuda->topk_workspace((int)types[t], n, k);
                cuda_case(bytes && bytes <= n / 2 + 16 * k + (256 << 10),
                          "topk takes %zu bytes for %llu of %llu", bytes, (unsigned long long)k,
                          (unsigned long long)n);
            }
}

/* Few of few values: a bound that the sample gives has many candidates for its room. */
static void topk_small(void) {
    for (size_t t = 0; t < 3; t++)
        for (uint64_t n = 200; n < 9000; n += n / 3 + 7)
            for (uint64_t k = 2; k < n; k = k * 3 + 1)
                for (int form = 0; form < FORMS; form++)
                    topk_case(types[t], NORMAL, n, k, (enum form)form, false);
}

void test_topk(void) {
    topk_small();
    topk_room();
    topk_sizes();
    topk_data(20011, cuda_few);
    topk_data(200003, cuda_few); /* here the sample is a part */
    if (cuda_few) return;
    topk_data(3000001, true);
    topk_case(RILL_F32, NORMAL, 133500000, 1335000, DENSE, false);
    topk_case(RILL_F32, CLUSTERED, 30000001, 300000, ADDED, true);
    topk_case(RILL_F32, CONSTANT, 30000001, 300000, ADDED, false);
}
