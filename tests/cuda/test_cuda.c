/* test_cuda LIBRARY [PART...]: every kernel of a librill_cuda against its twin on the host, to
 * the bit. LIBRARY is librill_cuda.so, or the same kernels emulated on the host. Without a GPU
 * it says so, and skips. */
#include "test_cuda.h"

#include <dlfcn.h>

const rill__cuda_table *cuda;
void *cuda_stream;
bool cuda_few;
unsigned cuda_passed, cuda_failed;

bool cuda_case(bool ok, const char *format, ...) {
    if (ok) {
        cuda_passed++;
        return true;
    }
    if (++cuda_failed > 40) return false;
    va_list list;
    va_start(list, format);
    printf("FAILED: ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
    return false;
}

void cuda_must(int error, const char *what) {
    if (!error) return;
    printf("%s: %s\n%u passed, %u failed\n", what, cuda->error_text(error), cuda_passed,
           cuda_failed + 1);
    exit(1);
}

/* ---- memory --------------------------------------------------------------------------------- */

enum { GUARD = 1024, MARK = 0x5a };
typedef struct block {
    void *base;
    size_t bytes;
} block;
static block blocks[64];

void *cuda_new(size_t bytes) {
    size_t i = 0;
    while (i < 64 && blocks[i].base)
        i++;
    if (i == 64) abort();
    CUDA(cuda->allocate(bytes + 2 * GUARD, &blocks[i].base));
    CUDA(cuda->fill(blocks[i].base, MARK, bytes + 2 * GUARD, cuda_stream));
    blocks[i].bytes = bytes;
    return (char *)blocks[i].base + GUARD;
}

void *cuda_upload(const void *from, size_t bytes) {
    void *to = cuda_new(bytes);
    CUDA(cuda->copy(to, from, bytes, cuda_stream));
    CUDA(cuda->stream_wait(cuda_stream));
    return to;
}

void cuda_download(void *to, const void *from, size_t bytes) {
    CUDA(cuda->copy(to, from, bytes, cuda_stream));
    CUDA(cuda->stream_wait(cuda_stream));
}

void cuda_free(void *at) {
    if (!at) return;
    for (size_t i = 0; i < 64; i++) {
        if ((char *)blocks[i].base + GUARD != (char *)at) continue;
        unsigned char edge[2 * GUARD];
        bool whole = true;
        cuda_download(edge, blocks[i].base, GUARD);
        cuda_download(edge + GUARD, (char *)at + blocks[i].bytes, GUARD);
        for (size_t j = 0; j < sizeof edge; j++)
            whole = whole && edge[j] == MARK;
        cuda_case(whole, "a kernel wrote outside of an array of %zu bytes", blocks[i].bytes);
        CUDA(cuda->release(blocks[i].base));
        blocks[i].base = NULL;
        return;
    }
    abort();
}

/* ---- data ----------------------------------------------------------------------------------- */

/* Whether topk's sample on the device reads value i. */
static bool sampled(rill_type type, uint64_t n, uint64_t i) {
    uint64_t per = 32 / value_size(type), pairs = n / per; /* of vectors */
    uint64_t groups = pairs / 128 > 16384 ? pairs / 128 : pairs < 16384 ? pairs : 16384;
    if (!groups) return false;
    uint64_t stride = pairs / groups, group = i / per / stride, x = group + 1;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    return group < groups && i / per == group * stride + (x >> 32) % stride;
}

void data_fill(enum data kind, rill_type type, uint64_t n, uint64_t seed, void *values) {
    data_make(kind, type, n, seed, sampled, values);
}

bool same_values(rill_type type, const void *a, const void *b, uint64_t n, uint64_t *where) {
    size_t size = value_size(type);
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0) continue;
        if (isnan(value_load(type, a, i)) && isnan(value_load(type, b, i))) continue;
        if (where) *where = i;
        return false;
    }
    return true;
}

/* ---- main ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {{"topk", test_topk},       {"dense", test_dense},    {"chunk", test_chunk},
             {"methods", test_methods}, {"values", test_values},  {"indices", test_indices},
             {"sketch", test_sketch},   {"tensors", test_tensors}};

static bool wanted(int argc, char **argv, const char *name) {
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return argc <= 2;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2) {
        printf("usage: test_cuda LIBRARY [PART...]\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n0 passed, 1 failed\n", dlerror());
        return 1;
    }
    const rill__cuda_table *(*get)(void);
    *(void **)&get = dlsym(library, RILL__CUDA_SYMBOL);
    if (!get || (cuda = get())->version != RILL__CUDA_VERSION || cuda->size != sizeof *cuda) {
        printf("%s has no table of this version\n0 passed, 1 failed\n", argv[1]);
        return 1;
    }
    cuda_few = cuda->emulated || getenv("RILL_TEST_FEW");
    int count = 0, error = cuda->devices(&count);
    if (error || !count) {
        printf("skipped: there is no GPU (%s)\n0 passed, 0 failed\n", cuda->error_text(error));
        return 77;
    }
    rill__cuda_device device;
    CUDA(cuda->device_info(0, &device));
    printf("device: %s, %d multiprocessors\n", device.name, device.multiprocessors);
    CUDA(cuda->stream_create(&cuda_stream));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!wanted(argc, argv, parts[i].name)) continue;
        unsigned passed = cuda_passed, failed = cuda_failed;
        parts[i].run();
        printf("%s: %u passed, %u failed\n", parts[i].name, cuda_passed - passed,
               cuda_failed - failed);
    }
    CUDA(cuda->stream_free(cuda_stream));
    printf("%u passed, %u failed\n", cuda_passed, cuda_failed);
    return cuda_failed != 0;
}
