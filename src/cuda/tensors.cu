/* A vector in pieces: tensors of any alignment, one after the other, which are not copied together.
 *
 * The list travels in the kernel's arguments, so nothing is allocated for it. Blocks take tiles of
 * the vector; who has found the tensor that a tile begins in walks on from there. The twins are
 * those of the same loops over one vector (space/host_dense.c, space/host_finite.c). */
#include "finite.cuh"

enum { THREADS = 256, EACH = 8, TILE = THREADS * EACH };
static const u64 MOST_BLOCKS = 1 << 16;

struct tensors_task {
    rill__cuda_tensors t;
    void *vector;
    u64 *count;
    rill__cuda_pairs pairs;
    int guards;
};

/* The tensor that has that entry of the vector. */
static __device__ __forceinline__ u32 tensor_of(const rill__cuda_tensors &t, u64 index) {
    u32 low = 0, high = (u32)t.n;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (t.first[middle] <= index) low = middle;
        else high = middle;
    }
    return low;
}
/* visit(tensor, its entry, the vector's) for all that this thread has. */
template <class F>
static __device__ __forceinline__ void walk(const rill__cuda_tensors &t, F visit) {
    const u64 end = t.first[t.n];
    for (u64 at = t.first[0] + (u64)blockIdx.x * TILE; at < end; at += (u64)gridDim.x * TILE) {
        u32 k = tensor_of(t, at);
        for (u32 j = 0; j < EACH; j++) {
            const u64 i = at + j * THREADS + threadIdx.x;
            if (i >= end) break;
            while (i >= t.first[k + 1])
                k++;
            visit((void *)t.at[k], i - t.first[k], i);
        }
    }
}

template <class T> __global__ void __launch_bounds__(THREADS) add_kernel(tensors_task a) {
    typedef typename T::real R;
    u32 count = 0;
    walk(a.t, [&](const void *tensor, u64 entry, u64 i) {
        const R y = T::load(a.vector, i) + T::load(tensor, entry);
        const bool odd = !is_finite(T::round(y));
        if (!a.guards || !odd) T::store(a.vector, i, y);
        count += odd;
    });
    if (!a.count) return;
    count = __reduce_add_sync(RILL_FULL, count);
    if (lane_id() == 0 && count) atomicAdd(a.count, (u64)count);
}
template <class T> __global__ void __launch_bounds__(THREADS) subtract_kernel(tensors_task a) {
    if (a.pairs.reply && !a.pairs.reply->undo) return;
    walk(a.t, [&](const void *tensor, u64 entry, u64 i) {
        T::store(a.vector, i, less_finite<T>(T::load(a.vector, i), T::load(tensor, entry)));
    });
}
template <class W> __global__ void __launch_bounds__(THREADS) blank_kernel(tensors_task a) {
    const rill__cuda_reply *r = a.pairs.reply;
    const W bits = r && r->nan ? (W)r->bits : 0;
    walk(a.t, [&](void *tensor, u64 entry, u64) { ((W *)tensor)[entry] = bits; });
}
template <class W> __global__ void __launch_bounds__(THREADS) put_kernel(tensors_task a) {
    const rill__cuda_reply *r = a.pairs.reply;
    const u32 *idx = a.pairs.idx;
    const W *val = (const W *)a.pairs.val;
    u64 n = a.pairs.n;
    if (r) {
        n = r->nan ? 0 : r->n;
        idx = r->dense ? NULL : (const u32 *)((const char *)a.pairs.inbox + r->idx);
        val = (const W *)((const char *)a.pairs.inbox + r->val);
    }
    const u64 first = a.t.first[0], end = a.t.first[a.t.n];
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < n; i += (u64)gridDim.x * THREADS) {
        const u64 index = idx ? idx[i] : i;
        if (index < first || index >= end) continue;
        const u32 k = tensor_of(a.t, index);
        ((W *)a.t.at[k])[index - a.t.first[k]] = val[i];
    }
}

/* ---- launches ------------------------------------------------------------------------------- */

static u64 blocks_for(u64 n, u64 each) {
    u64 blocks = div_up(n, each);
    return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}
static u64 tiles_of(const rill__cuda_tensors &t) {
    return blocks_for(t.first[t.n] - t.first[0], TILE);
}
static tensors_task task_of(const rill__cuda_tensors *t, void *vector) {
    tensors_task a = {};
    a.t = *t;
    a.vector = vector;
    return a;
}

int rill__cuda_tensors_add(int type, void *residual, const rill__cuda_tensors *t, int guards,
                           uint64_t *nonfinite, void *stream) {
    tensors_task a = task_of(t, residual);
    a.guards = guards;
    a.count = (u64 *)nonfinite;
    const u64 blocks = tiles_of(*t);
    switch (type) {
    case RILL__CUDA_F32: return launch(add_kernel<narrow<f32>>, a, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(add_kernel<f64>, a, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(add_kernel<narrow<f16>>, a, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(add_kernel<narrow<bf16>>, a, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

int rill__cuda_tensors_subtract(int type, void *residual, const rill__cuda_tensors *t,
                                const rill__cuda_reply *reply, void *stream) {
    tensors_task a = task_of(t, residual);
    a.pairs.reply = reply;
    const u64 blocks = tiles_of(*t);
    switch (type) {
    case RILL__CUDA_F32: return launch(subtract_kernel<narrow<f32>>, a, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(subtract_kernel<f64>, a, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(subtract_kernel<narrow<f16>>, a, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(subtract_kernel<narrow<bf16>>, a, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

template <class W> static int write(const tensors_task &a, void *stream) {
    RILL_CUDA_TRY(launch(blank_kernel<W>, a, tiles_of(a.t), THREADS, stream));
    return launch(put_kernel<W>, a, blocks_for(a.pairs.n, THREADS), THREADS, stream);
}
int rill__cuda_tensors_write(int type, const rill__cuda_tensors *t, const rill__cuda_pairs *pairs,
                             void *stream) {
    tensors_task a = task_of(t, NULL);
    a.pairs = *pairs;
    switch (type) {
    case RILL__CUDA_F32: return write<u32>(a, stream);
    case RILL__CUDA_F64: return write<u64>(a, stream);
    case RILL__CUDA_F16:
    case RILL__CUDA_BF16: return write<uint16_t>(a, stream);
    default: return RILL_CUDA_INVALID;
    }
}

RILL_CUDA_ONE_OF_FILE(tensors, (blank_kernel<u32>))
