/* The rest of what a space does with dense vectors: loops whose values may not be finite, and
 * those for arrays of any alignment. One value a thread; the twins are space/host_dense.c and
 * space/host_finite.c. */
#include "finite.cuh"

enum { THREADS = 256, CHUNK = 1024 /* of space/host_finite.c */ };
static const u64 MOST_BLOCKS = 1 << 20;

struct each_task {
    void *into;
    const void *from;
    double factor;
    u64 n;
    u64 *count;
    u64 bits; /* of a value */
};

/* ---- loops ---------------------------------------------------------------------------------- */

template <class T, int OP>
static __device__ __forceinline__ void each_one(const each_task &t, u64 i, u32 &count) {
    typedef typename T::real R;
    const R factor = (R)t.factor;
    if (OP == RILL__CUDA_DROP_NONFINITE) { /* others keep their bits */
        bool odd = !is_finite(T::load(t.into, i));
        if (odd) ((typename T::word *)t.into)[i] = 0;
        count += odd;
        return;
    }
    const R x = T::load(t.from, i);
    if (OP == RILL__CUDA_COUNT_NONFINITE) {
        count += !is_finite(x);
    } else if (OP == RILL__CUDA_DIVIDE || OP == RILL__CUDA_SCALE) {
        const R y = OP == RILL__CUDA_DIVIDE ? x / factor : factor * x;
        T::store(t.into, i, y);
        count += !is_finite(T::round(y));
    } else if (OP == RILL__CUDA_ADD || OP == RILL__CUDA_ADD_GUARDED) {
        const R y = T::load(t.into, i) + x;
        const bool odd = !is_finite(T::round(y));
        if (OP == RILL__CUDA_ADD || !odd) T::store(t.into, i, y);
        count += odd;
    } else if (OP == RILL__CUDA_DECAY_ADD) {
        T::store(t.into, i, factor * T::load(t.into, i) + x);
    } else if (OP == RILL__CUDA_ADD_SCALED) {
        T::store(t.into, i, T::load(t.into, i) + factor * x);
    } else if (OP == RILL__CUDA_SUBTRACT_FINITE) {
        T::store(t.into, i, less_finite<T>(T::load(t.into, i), x));
    } else { /* UNDECAY */
        T::store(t.into, i, less_finite<T>(T::load(t.into, i), x) / factor);
    }
}
template <class T, int OP> __global__ void __launch_bounds__(THREADS) each_kernel(each_task t) {
    u32 count = 0;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < t.n; i += (u64)gridDim.x * THREADS)
        each_one<T, OP>(t, i, count);
    if (!t.count) return;
    count = __reduce_add_sync(RILL_FULL, count);
    if (lane_id() == 0 && count) atomicAdd(t.count, (u64)count);
}
static u64 blocks_for(u64 n) {
    u64 blocks = div_up(n, THREADS);
    return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}
template <int OP> static int each(int type, const each_task &t, void *stream) {
    const u64 blocks = blocks_for(t.n);
    switch (type) {
    case RILL__CUDA_F32: return launch(each_kernel<narrow<f32>, OP>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(each_kernel<f64, OP>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(each_kernel<narrow<f16>, OP>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(each_kernel<narrow<bf16>, OP>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}
#define EACH(op)                                                                                   \
    case op: return each<op>(type, t, stream)
int rill__cuda_each(int op, int type, void *into, const void *from, double factor, uint64_t n,
                    uint64_t *count, void *stream) {
    each_task t = {into, from, factor, n, (u64 *)count, 0};
    if (count) RILL_CUDA_TRY(rill__cuda_zero(count, sizeof *count, stream));
    switch (op) {
        EACH(RILL__CUDA_ADD);
        EACH(RILL__CUDA_ADD_GUARDED);
        EACH(RILL__CUDA_DECAY_ADD);
        EACH(RILL__CUDA_ADD_SCALED);
        EACH(RILL__CUDA_SCALE);
        EACH(RILL__CUDA_DIVIDE);
        EACH(RILL__CUDA_COUNT_NONFINITE);
        EACH(RILL__CUDA_DROP_NONFINITE);
        EACH(RILL__CUDA_SUBTRACT_FINITE);
        EACH(RILL__CUDA_UNDECAY);
    default: return RILL_CUDA_INVALID;
    }
}

/* ---- fill ----------------------------------------------------------------------------------- */

template <class W> __global__ void __launch_bounds__(THREADS) fill_kernel(each_task t) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < t.n; i += (u64)gridDim.x * THREADS)
        ((W *)t.into)[i] = (W)t.bits;
}
int rill__cuda_fill_value(int type, void *into, uint64_t bits, uint64_t n, void *stream) {
    each_task t = {into, NULL, 0, n, NULL, bits};
    const u64 blocks = blocks_for(n);
    switch (type) {
    case RILL__CUDA_F32: return launch(fill_kernel<u32>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(fill_kernel<u64>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16:
    case RILL__CUDA_BF16: return launch(fill_kernel<uint16_t>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

/* ---- momentum that is left alone by values that are not finite ------------------------------ */

/* count: how many values in front of the first bad one's chunk; n where none is bad. */
template <class T> __global__ void __launch_bounds__(THREADS) first_bad_kernel(each_task t) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < t.n; i += (u64)gridDim.x * THREADS)
        if (!is_finite(T::load(t.from, i))) atomicMin(t.count, i / CHUNK * CHUNK);
}
/* The host has decayed what is in front of that chunk before it sees it, and undoes it. */
template <class T> __global__ void __launch_bounds__(THREADS) decay_finite_kernel(each_task t) {
    typedef typename T::real R;
    const R factor = (R)t.factor;
    const u64 end = *t.count;
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < end; i += (u64)gridDim.x * THREADS) {
        const R x = T::load(t.from, i);
        R y = factor * T::load(t.into, i) + x;
        if (end < t.n) y = less_finite<T>(T::round(y), x) / factor;
        T::store(t.into, i, y);
    }
}
template <class T> static int decay_finite(const each_task &t, void *stream) {
    const u64 blocks = blocks_for(t.n);
    each_task start = {t.count, NULL, 0, 1, NULL, t.n};
    RILL_CUDA_TRY(launch(fill_kernel<u64>, start, 1, THREADS, stream));
    RILL_CUDA_TRY(launch(first_bad_kernel<T>, t, blocks, THREADS, stream));
    return launch(decay_finite_kernel<T>, t, blocks, THREADS, stream);
}
int rill__cuda_decay_add_finite(int type, void *into, double factor, const void *from, uint64_t n,
                                uint64_t *good, void *stream) {
    each_task t = {into, from, factor, n, (u64 *)good, 0};
    switch (type) {
    case RILL__CUDA_F32: return decay_finite<narrow<f32>>(t, stream);
    case RILL__CUDA_F64: return decay_finite<f64>(t, stream);
    case RILL__CUDA_F16: return decay_finite<narrow<f16>>(t, stream);
    case RILL__CUDA_BF16: return decay_finite<narrow<bf16>>(t, stream);
    default: return RILL_CUDA_INVALID;
    }
}

/* ---- keys ----------------------------------------------------------------------------------- */

template <class T> __global__ void __launch_bounds__(THREADS) least_kernel(each_task t) {
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < t.n; i += (u64)gridDim.x * THREADS)
        atomicMin(t.count, (u64)key_of<T>(((const typename T::word *)t.from)[i]));
}
int rill__cuda_least_key(int type, const void *values, uint64_t n, uint64_t *key, void *stream) {
    each_task t = {NULL, values, 0, n, (u64 *)key, 0}, start = {key, NULL, 0, 1, NULL, ~(u64)0};
    const u64 blocks = blocks_for(n);
    RILL_CUDA_TRY(launch(fill_kernel<u64>, start, 1, THREADS, stream));
    switch (type) {
    case RILL__CUDA_F32: return launch(least_kernel<f32>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(least_kernel<f16>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(least_kernel<bf16>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

RILL_CUDA_ONE_OF_FILE(finite, (each_kernel<f64, 0>))
