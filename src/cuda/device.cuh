/* What every kernel file starts with: CUDA or its emulation, types by their bits, warps, and
 * launches.
 *
 * A kernel takes one struct, by value. Launches go to the caller's stream, allocate nothing and
 * wait for nothing. */
#ifndef RILL_CUDA_DEVICE_CUH
#define RILL_CUDA_DEVICE_CUH

#ifdef RILL_EMULATE
#include "emulate.h"
#include "emulate_queue.h"
#else
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#define RILL_SHARED(type, name) __shared__ type name
#define RILL_SHARED_DYNAMIC(type, name)                                                            \
    extern __shared__ __align__(16) unsigned char rill__dynamic[];                                 \
    type *name = (type *)rill__dynamic
static __device__ __forceinline__ void rill__grid_sync() { cooperative_groups::this_grid().sync(); }
#endif

#include "cuda_math.h"
#include "kernels.h"

typedef uint32_t u32;
typedef unsigned long long u64; /* what atomicAdd takes */

#define RILL_FULL 0xffffffffu

/* ---- types ---------------------------------------------------------------------------------- */

/* bits: of one value, in 32 bits. A vector is 16 bytes; its values are in order. */
struct f32 {
    typedef uint32_t word;
    enum { PER = 4, TYPE = RILL__CUDA_F32 };
    static constexpr u32 MAGNITUDE = 0x7fffffffu, NAN_KEY = 0x7f800001u, NONE = 0x80000000u;
    enum { KEY_BITS = 31 };
    static __host__ __device__ __forceinline__ float to_float(u32 b) { return rill__hd_float(b); }
    static __host__ __device__ __forceinline__ u32 from_float(float x) { return rill__hd_bits(x); }
};
struct f16 {
    typedef uint16_t word;
    enum { PER = 8, TYPE = RILL__CUDA_F16 };
    static constexpr u32 MAGNITUDE = 0x7fffu, NAN_KEY = 0x7c01u, NONE = 0x8000u;
    enum { KEY_BITS = 15 };
    static __host__ __device__ __forceinline__ float to_float(u32 b) {
        return rill__hd_f16_to_f32((uint16_t)b);
    }
    static __host__ __device__ __forceinline__ u32 from_float(float x) {
        return rill__hd_f16_from_f32(x);
    }
};
struct bf16 {
    typedef uint16_t word;
    enum { PER = 8, TYPE = RILL__CUDA_BF16 };
    static constexpr u32 MAGNITUDE = 0x7fffu, NAN_KEY = 0x7f81u, NONE = 0x8000u;
    enum { KEY_BITS = 15 };
    static __host__ __device__ __forceinline__ float to_float(u32 b) {
        return rill__hd_bf16_to_f32((uint16_t)b);
    }
    static __host__ __device__ __forceinline__ u32 from_float(float x) {
        return rill__hd_bf16_from_f32(x);
    }
};

template <class T> static __device__ __forceinline__ u32 key_of(u32 bits) {
    u32 key = bits & T::MAGNITUDE;
    return key < T::NAN_KEY ? key : T::NAN_KEY;
}
/* Whether the magnitude is least or more; NaN is. */
template <class T> static __device__ __forceinline__ bool reaches(u32 bits, u32 least) {
    return (bits & T::MAGNITUDE) >= least;
}
template <> __device__ __forceinline__ bool reaches<f32>(u32 bits, u32 least) {
    return !(fabsf(rill__hd_float(bits)) < rill__hd_float(least)); /* one instruction */
}
template <class T> static __device__ __forceinline__ u32 add_bits(u32 a, u32 b) {
    return T::from_float(T::to_float(a) + T::to_float(b));
}

/* i is a constant wherever this is used, after unrolling. */
static __device__ __forceinline__ u32 word_at(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
static __device__ __forceinline__ void set_word(uint4 &v, int i, u32 word) {
    if (i == 0) v.x = word;
    else if (i == 1) v.y = word;
    else if (i == 2) v.z = word;
    else v.w = word;
}
template <class T> static __device__ __forceinline__ u32 bits_at(const uint4 &v, int j) {
    if (T::PER == 4) return word_at(v, j);
    return word_at(v, j / 2) >> (j & 1) * 16 & 0xffffu;
}
template <class T> static __device__ __forceinline__ void set_bits(uint4 &v, int j, u32 bits) {
    if (T::PER == 4) {
        set_word(v, j, bits);
        return;
    }
    int shift = (j & 1) * 16;
    set_word(v, j / 2, (word_at(v, j / 2) & ~(0xffffu << shift)) | bits << shift);
}

/* ---- warps ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ u32 lane_id() { return threadIdx.x & 31; }
static __device__ __forceinline__ u32 lanes_below() { return (1u << lane_id()) - 1; }
static __device__ __forceinline__ u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
static __device__ __forceinline__ u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }

/* Sum over the lanes up to this one. */
static __device__ __forceinline__ u32 warp_prefix(u32 x) {
    for (u32 by = 1; by < 32; by *= 2) {
        u32 y = __shfl_up_sync(RILL_FULL, x, by);
        if (lane_id() >= by) x += y;
    }
    return x;
}

/* Sum over the threads of a block up to this one; *total: over all. room: a word a warp. */
static __device__ __forceinline__ u32 block_prefix(u32 x, u32 *room, u32 *total) {
    u32 sum = warp_prefix(x), warp = threadIdx.x >> 5, before = 0, all = 0;
    __syncthreads();
    if (lane_id() == 31) room[warp] = sum;
    __syncthreads();
    for (u32 i = 0; i < blockDim.x >> 5; i++) {
        before += i < warp ? room[i] : 0;
        all += room[i];
    }
    *total = all;
    return sum + before;
}

/* ---- launches ------------------------------------------------------------------------------- */

#define RILL_CUDA_TRY(expression)                                                                  \
    do {                                                                                           \
        int rill__error = (expression);                                                            \
        if (rill__error) return rill__error;                                                       \
    } while (0)

template <class A>
static int launch_any(void (*kernel)(A), const A &arguments, u64 grid, u32 block, size_t shared,
                      void *stream, bool cooperative) {
#ifdef RILL_EMULATE
    (void)shared;
    emulate::call<A> call = {kernel, arguments};
    return emulate::enqueue(stream, [=] {
        return emulate::run(emulate::call<A>::run, &call, (unsigned)grid, block, cooperative);
    });
#else
    A copy = arguments;
    void *list[] = {&copy};
    dim3 blocks((unsigned)grid), threads(block);
    if (grid > 0x7fffffffu) return cudaErrorInvalidConfiguration;
    return cooperative ? cudaLaunchCooperativeKernel((const void *)kernel, blocks, threads, list,
                                                     shared, (cudaStream_t)stream)
                       : cudaLaunchKernel((const void *)kernel, blocks, threads, list, shared,
                                          (cudaStream_t)stream);
#endif
}
template <class A>
static int launch(void (*kernel)(A), const A &arguments, u64 grid, u32 block, void *stream) {
    return grid ? launch_any(kernel, arguments, grid, block, 0, stream, false) : 0;
}

/* A kernel that may start before the one before it on the stream has ended: it calls wait_before
 * before it reads what that one writes. All blocks of it do. */
template <class A>
static int launch_after(void (*kernel)(A), const A &arguments, u64 grid, u32 block, size_t shared,
                        void *stream) {
#ifndef RILL_EMULATE
    int waits = 0;
    RILL_CUDA_TRY(rill__cuda_waits_before(&waits));
    if (waits) {
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3((unsigned)grid);
        config.blockDim = dim3(block);
        config.dynamicSmemBytes = shared;
        config.stream = (cudaStream_t)stream;
        config.attrs = &early;
        config.numAttrs = 1;
        return cudaLaunchKernelEx(&config, kernel, arguments);
    }
#endif
    return launch_any(kernel, arguments, grid, block, shared, stream, false);
}
static __device__ __forceinline__ void wait_before() {
#if !defined(RILL_EMULATE) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

enum { RILL_CUDA_INVALID = 1 }; /* cudaErrorInvalidValue */

static inline u64 div_up(u64 a, u64 b) { return a / b + (a % b != 0); }

/* Parts of a workspace, each aligned to 256 bytes. base NULL: only counts. */
struct carver {
    char *base;
    size_t used;
    template <class P> P *take(u64 n) {
        P *at = (P *)(base + used);
        used += (size_t)((n * sizeof(P) + 255) / 256 * 256);
        return base ? at : NULL;
    }
};

#endif
