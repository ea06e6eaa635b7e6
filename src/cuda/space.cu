/* The table of librill_cuda, and the calls that are CUDA's own. With RILL_EMULATE device memory
 * is the host's. */
#include "device.cuh"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#ifdef RILL_EMULATE
int rill__cuda_sms(uint32_t *sms) {
    *sms = emulate::SMS;
    return 0;
}
int rill__cuda_shared_limit(const void *, size_t) { return 0; }
int rill__cuda_zero(void *at, size_t bytes, void *stream) {
    return emulate::fill(at, 0, bytes, stream);
}
static const char *error_text(int error) {
    return error == 2 ? "out of memory" : error ? "error of the emulated device" : "no error";
}
static int devices(int *count) { return *count = emulate::devices(), 0; }
static int device_get(int *device) { return *device = emulate::device_get(), 0; }
static int device_set(int device) { return emulate::device_set(device); }
static int adopt(int device) { return emulate::adopt(device); }
static int device_info(int, rill__cuda_device *d) {
    *d = rill__cuda_device();
    snprintf(d->name, sizeof d->name, "emulated on the host");
    d->multiprocessors = emulate::SMS;
    return 0;
}
using emulate::allocate;
using emulate::allocate_host;
using emulate::allocate_on;
using emulate::copy;
using emulate::device_of;
using emulate::event_create;
using emulate::event_free;
using emulate::fill;
using emulate::memory_used;
using emulate::range_of;
using emulate::release;
using emulate::release_host;
using emulate::release_on;
using emulate::stream_create;
using emulate::stream_free;
static int wait(void *stream) { return emulate::stream_wait(stream); }
static int capturing(void *stream, int *out) { return emulate::stream_capturing(stream, out); }
static int record(void *event, void *stream) { return emulate::event_record(event, stream); }
static int done(void *event, int *out) { return emulate::event_done(event, out); }
static int wait_event(void *stream, void *event) {
    return emulate::stream_wait_event(stream, event);
}
static int load() { return 0; }
static int stream_hold(const uint32_t *word, uint32_t number, void *stream) {
    return emulate::stream_hold(word, number, stream);
}
#define EMULATED 1
#else
#include <cuda.h>

int rill__cuda_sms(uint32_t *sms) {
    int device, count;
    RILL_CUDA_TRY(cudaGetDevice(&device));
    RILL_CUDA_TRY(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    *sms = (uint32_t)count;
    return 0;
}
int rill__cuda_waits_before(int *waits) {
    static std::atomic<int> versions[64]; /* by device: of the code, 80 for 8.0; 0: not known */
    int device;
    RILL_CUDA_TRY(cudaGetDevice(&device));
    int version = device < 64 ? versions[device].load(std::memory_order_relaxed) : 0;
    if (!version) {
        cudaFuncAttributes a;
        RILL_CUDA_TRY(cudaFuncGetAttributes(&a, rill__cuda_one_of_topk()));
        version = a.ptxVersion;
        if (device < 64) versions[device].store(version, std::memory_order_relaxed);
    }
    *waits = version >= 90;
    return 0;
}
int rill__cuda_shared_limit(const void *kernel, size_t bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}
int rill__cuda_zero(void *at, size_t bytes, void *stream) {
    return cudaMemsetAsync(at, 0, bytes, (cudaStream_t)stream);
}
static const char *error_text(int error) { return cudaGetErrorString((cudaError_t)error); }
static int devices(int *count) { return cudaGetDeviceCount(count); }
static int device_get(int *device) { return cudaGetDevice(device); }
static int device_set(int device) { return cudaSetDevice(device); }
/* Else to poll or to allocate would be an error while any thread captures a graph, and would end
 * that. */
static int adopt(int device) {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    RILL_CUDA_TRY(cudaSetDevice(device));
    return cudaThreadExchangeStreamCaptureMode(&mode);
}
static int device_info(int device, rill__cuda_device *d) {
    cudaDeviceProp p;
    RILL_CUDA_TRY(cudaGetDeviceProperties(&p, device));
    snprintf(d->name, sizeof d->name, "%s", p.name);
    d->major = p.major;
    d->minor = p.minor;
    d->multiprocessors = p.multiProcessorCount;
    d->memory = p.totalGlobalMem;
    d->l2 = (size_t)p.l2CacheSize;
    return 0;
}
static int memory_used(size_t *bytes) {
    cudaMemPool_t pool;
    uint64_t used = 0;
    int device;
    RILL_CUDA_TRY(cudaGetDevice(&device));
    RILL_CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool, device));
    RILL_CUDA_TRY(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    *bytes = (size_t)used;
    return 0;
}
static int allocate(size_t bytes, void **at) { return cudaMalloc(at, bytes ? bytes : 1); }
static int release(void *at) { return cudaFree(at); }
/* Freed memory stays in the pool: to give it back would mean to wait. */
static int keep_pool() {
    static bool kept[64];
    int device;
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    RILL_CUDA_TRY(cudaGetDevice(&device));
    if (device < 0 || device >= 64 || kept[device]) return 0;
    RILL_CUDA_TRY(cudaDeviceGetDefaultMemPool(&pool, device));
    RILL_CUDA_TRY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    kept[device] = true;
    return 0;
}
static int allocate_on(size_t bytes, void **at, void *stream) {
    RILL_CUDA_TRY(keep_pool());
    return cudaMallocAsync(at, bytes ? bytes : 1, (cudaStream_t)stream);
}
static int release_on(void *at, void *stream) { return cudaFreeAsync(at, (cudaStream_t)stream); }
static int allocate_host(size_t bytes, void **at) {
    return cudaHostAlloc(at, bytes ? bytes : 1, cudaHostAllocMapped | cudaHostAllocPortable);
}
static int release_host(void *at) { return cudaFreeHost(at); }
static int device_of(const void *pointer, int *device) {
    cudaPointerAttributes a;
    RILL_CUDA_TRY(cudaPointerGetAttributes(&a, pointer));
    bool there = a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
    *device = there ? a.device : -1;
    return 0;
}
static int copy(void *to, const void *from, size_t bytes, void *stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream);
}
static int fill(void *to, int byte, size_t bytes, void *stream) {
    return cudaMemsetAsync(to, byte, bytes, (cudaStream_t)stream);
}
/* Streams share few queues of the device, those of one priority theirs: with the highest, work of
 * ours does not stand behind a user's. */
static int stream_create(void **stream) {
    int least, greatest;
    RILL_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    return cudaStreamCreateWithPriority((cudaStream_t *)stream, cudaStreamNonBlocking, greatest);
}
static int stream_free(void *stream) { return cudaStreamDestroy((cudaStream_t)stream); }
static int wait(void *stream) { return cudaStreamSynchronize((cudaStream_t)stream); }
static int capturing(void *stream, int *out) {
    cudaStreamCaptureStatus status;
    RILL_CUDA_TRY(cudaStreamIsCapturing((cudaStream_t)stream, &status));
    *out = status != cudaStreamCaptureStatusNone;
    return 0;
}
static int event_create(void **event) {
    return cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming);
}
static int event_free(void *event) { return cudaEventDestroy((cudaEvent_t)event); }
static int record(void *event, void *stream) {
    return cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream);
}
static int done(void *event, int *out) {
    cudaError_t status = cudaEventQuery((cudaEvent_t)event);
    *out = status == cudaSuccess;
    return status == cudaErrorNotReady ? 0 : status;
}
static int wait_event(void *stream, void *event) {
    return cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0);
}
/* Calls of the driver are asked for at run time, so that the library loads without one. */
template <class F> static int look_up(const char *name, F *entry) {
    cudaDriverEntryPointQueryResult found;
    void *at = NULL;
    RILL_CUDA_TRY(cudaGetDriverEntryPointByVersion(name, &at, 12040, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    *entry = (F)at;
    return 0;
}
/* The same once for all threads, whichever is first. */
template <class F> static int look_up_once(const char *name, std::atomic<F> &known, F *entry) {
    *entry = known.load(std::memory_order_relaxed);
    if (*entry) return 0;
    RILL_CUDA_TRY(look_up(name, entry));
    known.store(*entry, std::memory_order_relaxed);
    return 0;
}
static int range_of(const void *pointer, const void **start, size_t *bytes) {
    typedef CUresult(CUDAAPI * function)(CUdeviceptr *, size_t *, CUdeviceptr);
    static std::atomic<function> known;
    function address_range;
    CUdeviceptr from = 0;
    RILL_CUDA_TRY(look_up_once("cuMemGetAddressRange", known, &address_range));
    int error = (int)address_range(&from, bytes, (CUdeviceptr)(uintptr_t)pointer);
    *start = (const void *)(uintptr_t)from;
    return error;
}
static int stream_hold(const uint32_t *word, uint32_t number, void *stream) {
    typedef CUresult(CUDAAPI * function)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    static std::atomic<function> known;
    function wait_value;
    RILL_CUDA_TRY(look_up_once("cuStreamWaitValue32", known, &wait_value));
    return (int)wait_value((CUstream)stream, (CUdeviceptr)(uintptr_t)word, number,
                           CU_STREAM_WAIT_VALUE_GEQ);
}
/* CUDA loads a kernel at its first launch, and waits for all streams then. */
static int load() {
    CUresult(CUDAAPI * module_of)(CUmodule *, CUfunction);
    CUresult(CUDAAPI * count_of)(unsigned *, CUmodule);
    CUresult(CUDAAPI * enumerate)(CUfunction *, unsigned, CUmodule);
    CUresult(CUDAAPI * load_one)(CUfunction);
    RILL_CUDA_TRY(look_up("cuFuncGetModule", &module_of));
    RILL_CUDA_TRY(look_up("cuModuleGetFunctionCount", &count_of));
    RILL_CUDA_TRY(look_up("cuModuleEnumerateFunctions", &enumerate));
    RILL_CUDA_TRY(look_up("cuFuncLoad", &load_one));
    const void *one[] = {rill__cuda_one_of_block(),   rill__cuda_one_of_chunk(),
                         rill__cuda_one_of_dense(),   rill__cuda_one_of_finite(),
                         rill__cuda_one_of_indices(), rill__cuda_one_of_mail(),
                         rill__cuda_one_of_methods(), rill__cuda_one_of_rice(),
                         rill__cuda_one_of_sketch(),  rill__cuda_one_of_sparse(),
                         rill__cuda_one_of_tensors(), rill__cuda_one_of_topk(),
                         rill__cuda_one_of_union(),   rill__cuda_one_of_values()};
    for (const void *kernel : one) {
        CUfunction function, all[512];
        CUmodule module;
        unsigned count = 0;
        RILL_CUDA_TRY(cudaGetFuncBySymbol((cudaFunction_t *)&function, kernel));
        RILL_CUDA_TRY((int)module_of(&module, function));
        RILL_CUDA_TRY((int)count_of(&count, module));
        if (count > sizeof all / sizeof *all) return cudaErrorNotSupported;
        RILL_CUDA_TRY((int)enumerate(all, count, module));
        for (unsigned i = 0; i < count; i++)
            RILL_CUDA_TRY((int)load_one(all[i]));
    }
    return 0;
}
#define EMULATED 0
#endif

static rill__cuda_table make_table() {
    rill__cuda_table t = {};
    t.size = sizeof t;
    t.version = RILL__CUDA_VERSION;
    t.emulated = EMULATED;
    t.error_text = error_text;
    t.devices = devices;
    t.device_get = device_get;
    t.device_set = device_set;
    t.adopt = adopt;
    t.device_info = device_info;
    t.memory_used = memory_used;
    t.allocate = allocate;
    t.release = release;
    t.allocate_host = allocate_host;
    t.release_host = release_host;
    t.device_of = device_of;
    t.range_of = range_of;
    t.copy = copy;
    t.fill = fill;
    t.stream_create = stream_create;
    t.stream_free = stream_free;
    t.stream_wait = wait;
    t.stream_capturing = capturing;
    t.event_create = event_create;
    t.event_free = event_free;
    t.event_record = record;
    t.event_done = done;
    t.stream_wait_event = wait_event;
    t.allocate_on = allocate_on;
    t.release_on = release_on;
    t.load = load;
    t.stream_hold = stream_hold;
#define KERNEL(name) t.name = rill__cuda_##name
    KERNEL(topk_workspace);
    KERNEL(topk);
    KERNEL(threshold_workspace);
    KERNEL(threshold);
    KERNEL(bucket_workspace);
    KERNEL(bucket);
    KERNEL(block_workspace);
    KERNEL(block);
    KERNEL(random);
    KERNEL(add);
    KERNEL(chunk);
    KERNEL(chunk_decode);
    KERNEL(update_workspace);
    KERNEL(update);
    KERNEL(scatter);
    KERNEL(scatter_add);
    KERNEL(scatter_add_where);
    KERNEL(clear_where);
    KERNEL(gather);
    KERNEL(decay_add);
    KERNEL(scale);
    KERNEL(divide);
    KERNEL(norm2_workspace);
    KERNEL(norm2);
    KERNEL(clip);
    KERNEL(to_f32);
    KERNEL(from_f32);
    KERNEL(qsgd_bytes);
    KERNEL(quantize);
    KERNEL(quantize_fit);
    KERNEL(dequantize);
    KERNEL(dequantize_scatter_add);
    KERNEL(bitpack_workspace);
    KERNEL(bitpack);
    KERNEL(bitunpack);
    KERNEL(elias_fano_workspace);
    KERNEL(elias_fano);
    KERNEL(elias_fano_decode);
    KERNEL(sketch_add);
    KERNEL(sketch_estimate);
    KERNEL(each);
    KERNEL(decay_add_finite);
    KERNEL(fill_value);
    KERNEL(least_key);
    KERNEL(assign);
    KERNEL(write);
    KERNEL(shift);
    KERNEL(write_blocks);
    KERNEL(add_blocks);
    KERNEL(mail_append);
    KERNEL(mail_send);
    KERNEL(mail_apply);
    KERNEL(mail_done);
    KERNEL(tensors_add);
    KERNEL(tensors_subtract);
    KERNEL(tensors_write);
    KERNEL(rice_workspace);
    KERNEL(rice);
    KERNEL(rice_decode);
    KERNEL(take_indices);
    KERNEL(union_workspace);
    KERNEL(union_begin);
    KERNEL(union_mark);
    KERNEL(union_count);
    KERNEL(union_list);
    KERNEL(union_sum);
#undef KERNEL
    return t;
}

extern "C" __attribute__((visibility("default"))) const rill__cuda_table *
rill__cuda_table_get(void) {
    static const rill__cuda_table table = make_table();
    return &table;
}
