/* Pairs and blocks in dense vectors of any alignment, with indices of 4 or 8 bytes; the twins are
 * in space/host_pairs.c. One entry a thread. */
#include "device.cuh"

enum { THREADS = 256 };
static const u64 MOST_BLOCKS = 1 << 20;

struct sparse_task {
    void *into;
    const void *idx, *val;
    u64 count, first, n, block, end;
    u64 *within;
};

static u64 blocks_for(u64 n) {
    u64 blocks = div_up(n, THREADS);
    return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}
static __device__ __forceinline__ u64 first_index() {
    return (u64)blockIdx.x * THREADS + threadIdx.x;
}
static __device__ __forceinline__ u64 all_threads() { return (u64)gridDim.x * THREADS; }
static __device__ __forceinline__ void count_in(u64 *total, u32 count) {
    if (!total) return;
    count = __reduce_add_sync(RILL_FULL, count);
    if (lane_id() == 0 && count) atomicAdd(total, (u64)count);
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Those in [first, first + n); n 0: all. */
template <class W, class I>
__global__ void __launch_bounds__(THREADS) assign_kernel(sparse_task t) {
    u32 within = 0;
    for (u64 i = first_index(); i < t.count; i += all_threads()) {
        u64 at = (u64)((const I *)t.idx)[i] - t.first;
        if (t.n && at >= t.n) continue;
        ((W *)t.into)[at] = ((const W *)t.val)[i];
        within++;
    }
    count_in(t.within, within);
}
template <class I> static int assign(int type, const sparse_task &t, void *stream) {
    const u64 blocks = blocks_for(t.count);
    switch (type) {
    case RILL__CUDA_F32: return launch(assign_kernel<u32, I>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(assign_kernel<u64, I>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16:
    case RILL__CUDA_BF16: return launch(assign_kernel<uint16_t, I>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}
static size_t size_of(int type) {
    return type == RILL__CUDA_F64 ? 8 : type == RILL__CUDA_F32 ? 4 : 2;
}

int rill__cuda_assign(int type, uint32_t index_bytes, void *into, uint64_t first, const void *idx,
                      const void *val, uint64_t count, void *stream) {
    sparse_task t = {into, idx, val, count, first, 0, 0, 0, NULL};
    return index_bytes == 8 ? assign<u64>(type, t, stream) : assign<u32>(type, t, stream);
}
int rill__cuda_write(int type, uint32_t index_bytes, void *into, uint64_t first, uint64_t n,
                     const void *idx, const void *val, uint64_t count, uint64_t *within,
                     void *stream) {
    sparse_task t = {into, idx, val, count, first, n, 0, 0, (u64 *)within};
    if (within) RILL_CUDA_TRY(rill__cuda_zero(within, sizeof *within, stream));
    if (!n) return 0;
    RILL_CUDA_TRY(rill__cuda_zero(into, (size_t)n * size_of(type), stream));
    return index_bytes == 8 ? assign<u64>(type, t, stream) : assign<u32>(type, t, stream);
}

template <class To, class From>
__global__ void __launch_bounds__(THREADS) shift_kernel(sparse_task t) {
    for (u64 i = first_index(); i < t.count; i += all_threads())
        ((To *)t.into)[i] = (To)(t.first + (u64)((const From *)t.idx)[i]);
}
int rill__cuda_shift(uint32_t index_bytes, void *into, uint32_t from_bytes, const void *from,
                     uint64_t first, uint64_t n, void *stream) {
    sparse_task t = {into, from, NULL, n, first, 0, 0, 0, NULL};
    const u64 blocks = blocks_for(n);
    if (index_bytes == 8)
        return from_bytes == 8 ? launch(shift_kernel<u64, u64>, t, blocks, THREADS, stream)
                               : launch(shift_kernel<u64, u32>, t, blocks, THREADS, stream);
    return from_bytes == 8 ? launch(shift_kernel<u32, u64>, t, blocks, THREADS, stream)
                           : launch(shift_kernel<u32, u32>, t, blocks, THREADS, stream);
}

/* ---- blocks --------------------------------------------------------------------------------- */

static __device__ __forceinline__ u64 block_entry(const sparse_task &t, u64 i) {
    u64 b = i / t.block;
    return ((const u64 *)t.idx)[b] * t.block + (i - b * t.block);
}
template <class W> __global__ void __launch_bounds__(THREADS) write_blocks_kernel(sparse_task t) {
    u32 ended = 0;
    const u64 stop = t.first + t.n;
    for (u64 i = first_index(); i < t.count; i += all_threads()) {
        u64 at = block_entry(t, i);
        if (i % t.block == 0) {
            u64 last = t.end - at < t.block ? t.end : at + t.block;
            ended += last <= stop;
        }
        if (at >= t.first && at < stop) ((W *)t.into)[at - t.first] = ((const W *)t.val)[i];
    }
    count_in(t.within, ended);
}
int rill__cuda_write_blocks(int type, void *into, uint64_t first, uint64_t n, uint64_t block,
                            uint64_t end, const uint64_t *numbers, const void *val, uint64_t count,
                            uint64_t *ended, void *stream) {
    sparse_task t = {into, numbers, val, count, first, n, block, end, (u64 *)ended};
    const u64 blocks = blocks_for(count);
    if (ended) RILL_CUDA_TRY(rill__cuda_zero(ended, sizeof *ended, stream));
    if (n) RILL_CUDA_TRY(rill__cuda_zero(into, (size_t)n * size_of(type), stream));
    switch (type) {
    case RILL__CUDA_F32: return launch(write_blocks_kernel<u32>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(write_blocks_kernel<u64>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16:
    case RILL__CUDA_BF16: return launch(write_blocks_kernel<uint16_t>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

template <class T> __global__ void __launch_bounds__(THREADS) add_blocks_kernel(sparse_task t) {
    typedef typename T::word word;
    for (u64 i = first_index(); i < t.count; i += all_threads()) {
        word *at = (word *)t.into + block_entry(t, i);
        *at = (word)add_bits<T>(*at, ((const word *)t.val)[i]);
    }
}
__global__ void __launch_bounds__(THREADS) add_blocks_wide_kernel(sparse_task t) {
    for (u64 i = first_index(); i < t.count; i += all_threads())
        ((double *)t.into)[block_entry(t, i)] += ((const double *)t.val)[i];
}
int rill__cuda_add_blocks(int type, void *into, uint64_t block, const uint64_t *numbers,
                          const void *val, uint64_t count, void *stream) {
    sparse_task t = {into, numbers, val, count, 0, 0, block, 0, NULL};
    const u64 blocks = blocks_for(count);
    switch (type) {
    case RILL__CUDA_F32: return launch(add_blocks_kernel<f32>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(add_blocks_wide_kernel, t, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(add_blocks_kernel<f16>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(add_blocks_kernel<bf16>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

RILL_CUDA_ONE_OF_FILE(sparse, (assign_kernel<u32, u32>))
