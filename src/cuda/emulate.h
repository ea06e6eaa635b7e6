/* A GPU for machines that have none: what the kernels of this folder use of CUDA, on one core of
 * the host.
 *
 * Every thread of a block is a fiber. It runs until it waits for its warp, its block or
 * (cooperative launches) the grid; then the next one runs. So results, barriers and the
 * arithmetic are those of the kernels, while speed and races inside of a warp are not.
 * RILL_EMULATE_ORDER=1 runs blocks and threads backwards: a missing barrier or a result that
 * depends on the order shows up as a difference. Included by device.cuh where RILL_EMULATE is
 * defined; tests only. */
#ifndef RILL_CUDA_EMULATE_H
#define RILL_CUDA_EMULATE_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __align__(n) __attribute__((aligned(n)))

struct uint2 {
    unsigned x, y;
};
struct __align__(16) uint4 {
    unsigned x, y, z, w;
};
static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return uint4{x, y, z, w};
}

namespace emulate {
struct place {
    unsigned x;
};
enum { WARP = 32, ARENA = 1 << 20, SMS = 2 };

/* All that wait here go on together; with values, each sees those of all. */
struct barrier {
    unsigned arrived, generation;
    uint64_t value[WARP], seen[WARP];
};
struct fiber;
extern fiber *now;
extern place thread_index, block_index, block_size, grid_size;

unsigned lane();
void meet_warp(uint64_t value); /* afterwards warp_seen has the values of all lanes */
const uint64_t *warp_seen();
void meet_block();
void meet_grid();
void *arena();         /* shared memory of the block */
void *arena_dynamic(); /* its dynamic part */
size_t arena_place(size_t bytes);

typedef void body(const void *context);
int run(body *, const void *context, unsigned grid, unsigned block, bool cooperative);

template <class A> struct call {
    void (*kernel)(A);
    A arguments;
    static void run(const void *context) {
        const call *c = (const call *)context;
        c->kernel(c->arguments);
    }
};

/* Tag differs for every declaration, so that each has its place. */
template <class T, class Tag> T &shared(Tag) {
    static size_t offset = arena_place(sizeof(T));
    return *(T *)((char *)arena() + offset);
}

template <class T> T from_word(uint64_t word) {
    T x;
    memcpy(&x, &word, sizeof x);
    return x;
}
template <class T> uint64_t to_word(T x) {
    uint64_t word = 0;
    memcpy(&word, &x, sizeof x);
    return word;
}
} // namespace emulate

#define threadIdx (emulate::thread_index)
#define blockIdx (emulate::block_index)
#define blockDim (emulate::block_size)
#define gridDim (emulate::grid_size)
#define RILL_SHARED(type, name) type &name = emulate::shared<type>([] {})
#define RILL_SHARED_DYNAMIC(type, name) type *name = (type *)emulate::arena_dynamic()

static inline void __syncthreads() { emulate::meet_block(); }
static inline void __syncwarp() { emulate::meet_warp(0); }
static inline void __threadfence() {}
static inline void __threadfence_system() { __sync_synchronize(); }
static inline void rill__grid_sync() { emulate::meet_grid(); }

static inline unsigned __ballot_sync(unsigned, int predicate) {
    emulate::meet_warp(predicate != 0);
    unsigned mask = 0;
    for (int i = 0; i < 32; i++)
        mask |= (unsigned)(emulate::warp_seen()[i] & 1) << i;
    return mask;
}
static inline int __any_sync(unsigned m, int predicate) { return __ballot_sync(m, predicate) != 0; }
static inline int __all_sync(unsigned m, int predicate) {
    return __ballot_sync(m, predicate) == ~0u;
}
template <class T> T __shfl_sync(unsigned, T x, int from) {
    emulate::meet_warp(emulate::to_word(x));
    return emulate::from_word<T>(emulate::warp_seen()[from & 31]);
}
template <class T> T __shfl_up_sync(unsigned, T x, unsigned by) {
    emulate::meet_warp(emulate::to_word(x));
    unsigned lane = emulate::lane();
    return emulate::from_word<T>(emulate::warp_seen()[lane >= by ? lane - by : lane]);
}
template <class T> T __shfl_down_sync(unsigned, T x, unsigned by) {
    emulate::meet_warp(emulate::to_word(x));
    unsigned lane = emulate::lane();
    return emulate::from_word<T>(emulate::warp_seen()[lane + by < 32 ? lane + by : lane]);
}
template <class T> T __shfl_xor_sync(unsigned, T x, int by) {
    emulate::meet_warp(emulate::to_word(x));
    return emulate::from_word<T>(emulate::warp_seen()[emulate::lane() ^ by]);
}
static inline unsigned __reduce_add_sync(unsigned, unsigned x) {
    emulate::meet_warp(x);
    unsigned sum = 0;
    for (int i = 0; i < 32; i++)
        sum += (unsigned)emulate::warp_seen()[i];
    return sum;
}
static inline unsigned __reduce_max_sync(unsigned, unsigned x) {
    emulate::meet_warp(x);
    unsigned most = 0;
    for (int i = 0; i < 32; i++)
        if ((unsigned)emulate::warp_seen()[i] > most) most = (unsigned)emulate::warp_seen()[i];
    return most;
}
static inline unsigned __reduce_or_sync(unsigned, unsigned x) {
    emulate::meet_warp(x);
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
        all |= (unsigned)emulate::warp_seen()[i];
    return all;
}

template <class T> T atomicAdd(T *at, T x) {
    T old = *at;
    *at = old + x;
    return old;
}
template <class T> T atomicOr(T *at, T x) {
    T old = *at;
    *at = old | x;
    return old;
}
template <class T> T atomicMax(T *at, T x) {
    T old = *at;
    if (x > old) *at = x;
    return old;
}
template <class T> T atomicMin(T *at, T x) {
    T old = *at;
    if (x < old) *at = x;
    return old;
}
template <class T> T __ldg(const T *at) { return *at; }
template <class T> T __ldcs(const T *at) { return *at; }
template <class T> T __ldcg(const T *at) { return *at; }
template <class T> void __stcs(T *at, T x) { *at = x; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }

#endif
