/* Loops over dense vectors, and pairs to and from them; the twins are space/host_dense.c and
 * space/host_pairs.c. All are bound by memory.
 *
 * update: zeros and pairs in one write of every line. Where each tile's pairs start is found
 * first, by the pairs themselves; then each tile is put together in shared memory. Cost: a write
 * of n, 12 bytes for each pair, 4 for each tile. */
#include "device.cuh"

enum { THREADS = 256, FLIGHT = 4 };

/* ---- loops ---------------------------------------------------------------------------------- */

enum loop_op { ADD, DECAY_ADD, SCALE, DIVIDE, CLIP };
struct loop_task {
    void *into;
    const void *from;
    u64 n;
    double factor;
    int guards;
    u64 *nonfinite;
    const double *sum; /* of squares: CLIP */
};

/* As space/host_dense.c: 16-bit types in f32, products rounded before they are added. */
template <int OP, class F> static __device__ __forceinline__ F loop_value(F old, F x, F factor) {
    return OP == ADD         ? old + x
           : OP == DECAY_ADD ? factor * old + x
           : OP == DIVIDE    ? x / factor
                             : factor * x;
}
/* Clipping: factor is the limit of the norm. */
template <int OP> static __device__ __forceinline__ double loop_factor(const loop_task &t) {
    if (OP != CLIP) return t.factor;
    double norm = sqrt(*t.sum);
    return norm > t.factor ? t.factor / norm : 1.0;
}
template <class T, int OP>
static __device__ __forceinline__ uint4 loop_vector(const loop_task &t, float factor, uint4 old,
                                                    const uint4 &x, u32 have, u32 &bad) {
#pragma unroll
    for (int j = 0; j < T::PER; j++) {
        u32 before = bits_at<T>(old, j);
        u32 y = T::from_float(
            loop_value<OP>(T::to_float(before), T::to_float(bits_at<T>(x, j)), factor));
        bool odd = OP == ADD && (y & T::MAGNITUDE) >= T::NAN_KEY - 1 && (u32)j < have;
        bad += odd;
        set_bits<T>(old, j, odd && t.guards ? before : y);
    }
    return old;
}

template <class T, int OP> __global__ void __launch_bounds__(THREADS) loop_kernel(loop_task t) {
    const u64 vectors = t.n / T::PER, at = (u64)blockIdx.x * THREADS * FLIGHT + threadIdx.x;
    const uint4 zero = make_uint4(0, 0, 0, 0);
    uint4 *into = (uint4 *)t.into;
    const uint4 *from = (const uint4 *)t.from;
    const float factor = (float)loop_factor<OP>(t);
    uint4 old[FLIGHT], x[FLIGHT];
    u32 bad = 0;
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) {
        u64 i = at + u * THREADS;
        x[u] = i < vectors ? __ldcs(from + i) : zero;
        old[u] = i < vectors && OP <= DECAY_ADD ? __ldcs(into + i) : zero;
    }
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) {
        u64 i = at + u * THREADS;
        if (i < vectors) __stcs(into + i, loop_vector<T, OP>(t, factor, old[u], x[u], T::PER, bad));
    }
    u64 tail = vectors * T::PER + threadIdx.x;
    if (blockIdx.x == 0 && tail < t.n) {
        typename T::word *to = (typename T::word *)t.into + tail;
        uint4 a = zero, b = zero;
        if (OP <= DECAY_ADD) set_bits<T>(a, 0, *to);
        set_bits<T>(b, 0, ((const typename T::word *)t.from)[tail]);
        *to = (typename T::word)bits_at<T>(loop_vector<T, OP>(t, factor, a, b, 1, bad), 0);
    }
    if (OP != ADD || !t.nonfinite) return;
    bad = __reduce_add_sync(RILL_FULL, bad);
    if (lane_id() == 0 && bad) atomicAdd(t.nonfinite, (u64)bad);
}

template <int OP> __global__ void __launch_bounds__(THREADS) loop_wide_kernel(loop_task t) {
    const u64 at = (u64)blockIdx.x * THREADS * FLIGHT + threadIdx.x;
    const double factor = loop_factor<OP>(t);
    u32 bad = 0;
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) {
        u64 i = at + u * THREADS;
        if (i >= t.n) continue;
        double *to = (double *)t.into + i, old = OP <= DECAY_ADD ? *to : 0;
        double y = loop_value<OP>(old, ((const double *)t.from)[i], factor);
        bool odd = OP == ADD && !(y - y == 0);
        bad += odd;
        *to = odd && t.guards ? old : y;
    }
    if (OP != ADD || !t.nonfinite) return;
    bad = __reduce_add_sync(RILL_FULL, bad);
    if (lane_id() == 0 && bad) atomicAdd(t.nonfinite, (u64)bad);
}

template <int OP> static int loop(int type, const loop_task &t, void *stream) {
    if (t.nonfinite) RILL_CUDA_TRY(rill__cuda_zero(t.nonfinite, sizeof *t.nonfinite, stream));
    const u64 per = type == RILL__CUDA_F32 ? 4 : type == RILL__CUDA_F64 ? 1 : 8;
    const u64 blocks = div_up(t.n, per * THREADS * FLIGHT);
    switch (type) {
    case RILL__CUDA_F32: return launch(loop_kernel<f32, OP>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(loop_wide_kernel<OP>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(loop_kernel<f16, OP>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(loop_kernel<bf16, OP>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

int rill__cuda_add(int type, void *residual, const void *gradient, uint64_t n, int guards,
                   uint64_t *nonfinite, void *stream) {
    loop_task t = {residual, gradient, n, 1, guards, (u64 *)nonfinite, NULL};
    return loop<ADD>(type, t, stream);
}
int rill__cuda_decay_add(int type, void *into, double factor, const void *from, uint64_t n,
                         void *stream) {
    loop_task t = {into, from, n, factor, 0, NULL, NULL};
    return loop<DECAY_ADD>(type, t, stream);
}
int rill__cuda_scale(int type, void *into, double factor, const void *from, uint64_t n,
                     void *stream) {
    loop_task t = {into, from, n, factor, 0, NULL, NULL};
    return loop<SCALE>(type, t, stream);
}
int rill__cuda_divide(int type, void *into, const void *from, double divisor, uint64_t n,
                      void *stream) {
    loop_task t = {into, from, n, divisor, 0, NULL, NULL};
    return loop<DIVIDE>(type, t, stream);
}

int rill__cuda_clip(int type, void *into, double limit, const double *sum, const void *from,
                    uint64_t n, void *stream) {
    loop_task t = {into, from, n, limit, 0, NULL, sum};
    return loop<CLIP>(type, t, stream);
}

int rill__cuda_zero_found(const rill__cuda_select *s, void *stream) {
    RILL_CUDA_TRY(rill__cuda_zero(s->found, sizeof *s->found, stream));
    if (!s->gradient) return 0;
    return rill__cuda_add(s->type, s->residual, s->gradient, s->n, s->guards, &s->found->nonfinite,
                          stream);
}

/* ---- pairs ---------------------------------------------------------------------------------- */

struct pairs_task {
    void *dense;
    const u32 *idx;
    void *val;
    u64 count, n;
    u32 *start; /* of tiles, and one more */
    u64 tiles;
    const u32 *mask;
    u64 masked;
    int inside;
};

enum { SET, SUM, GET };
template <class W, class T, int WHAT>
__global__ void __launch_bounds__(THREADS) pairs_kernel(pairs_task t) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= t.count) return;
    W *at = (W *)t.dense + t.idx[i], *val = (W *)t.val + i;
    if (WHAT == SET) *at = *val;
    else if (WHAT == GET) *val = *at;
    else *at = (W)add_bits<T>((u32)*at, (u32)*val);
}
__global__ void __launch_bounds__(THREADS) pairs_add_wide_kernel(pairs_task t) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i < t.count) ((double *)t.dense)[t.idx[i]] += ((const double *)t.val)[i];
}

/* Feedback: what was not delivered goes back, and momentum that was is forgotten. */
static __device__ __forceinline__ bool is_meant(const pairs_task &t, u32 index) {
    u64 low = 0, high = t.masked;
    while (low < high) {
        u64 middle = low + (high - low) / 2;
        if (t.mask[middle] < index) low = middle + 1;
        else high = middle;
    }
    return (low < t.masked && t.mask[low] == index) == (t.inside != 0);
}
template <class T> __global__ void __launch_bounds__(THREADS) where_kernel(pairs_task t) {
    typedef typename T::word word;
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= t.count || !is_meant(t, t.idx[i])) return;
    word *at = (word *)t.dense + t.idx[i];
    *at = t.val ? (word)add_bits<T>(*at, ((const word *)t.val)[i]) : (word)0;
}
__global__ void __launch_bounds__(THREADS) where_wide_kernel(pairs_task t) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= t.count || !is_meant(t, t.idx[i])) return;
    double *at = (double *)t.dense + t.idx[i];
    *at = t.val ? *at + ((const double *)t.val)[i] : 0.0;
}

template <int WHAT> static int pairs(int type, const pairs_task &t, void *stream) {
    const u64 blocks = div_up(t.count, THREADS);
    switch (type) {
    case RILL__CUDA_F32:
        return launch(pairs_kernel<uint32_t, f32, WHAT>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64:
        if (WHAT == SUM) return launch(pairs_add_wide_kernel, t, blocks, THREADS, stream);
        return launch(pairs_kernel < u64, f32, WHAT == SUM ? SET : WHAT >, t, blocks, THREADS,
                      stream);
    case RILL__CUDA_F16:
        return launch(pairs_kernel<uint16_t, f16, WHAT>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16:
        return launch(pairs_kernel<uint16_t, bf16, WHAT>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}
int rill__cuda_scatter(int type, void *dense, const uint32_t *idx, const void *val, uint64_t count,
                       void *stream) {
    pairs_task t = {dense, idx, (void *)val, count, 0, NULL, 0, NULL, 0, 0};
    return pairs<SET>(type, t, stream);
}
int rill__cuda_scatter_add(int type, void *dense, const uint32_t *idx, const void *val,
                           uint64_t count, void *stream) {
    pairs_task t = {dense, idx, (void *)val, count, 0, NULL, 0, NULL, 0, 0};
    return pairs<SUM>(type, t, stream);
}
int rill__cuda_scatter_add_where(int type, void *dense, const uint32_t *idx, const void *val,
                                 uint64_t count, const uint32_t *mask, uint64_t masked, int inside,
                                 void *stream) {
    pairs_task t = {dense, idx, (void *)val, count, 0, NULL, 0, mask, masked, inside};
    const u64 blocks = div_up(count, THREADS);
    switch (type) {
    case RILL__CUDA_F32: return launch(where_kernel<f32>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(where_wide_kernel, t, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(where_kernel<f16>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(where_kernel<bf16>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}
int rill__cuda_clear_where(int type, void *dense, const uint32_t *idx, uint64_t count,
                           const uint32_t *mask, uint64_t masked, int inside, void *stream) {
    return rill__cuda_scatter_add_where(type, dense, idx, NULL, count, mask, masked, inside,
                                        stream);
}
int rill__cuda_gather(int type, const void *dense, const uint32_t *idx, uint64_t count, void *val,
                      void *stream) {
    pairs_task t = {(void *)dense, idx, val, count, 0, NULL, 0, NULL, 0, 0};
    return pairs<GET>(type, t, stream);
}

/* ---- update --------------------------------------------------------------------------------- */

enum { TILE_LOG = 12, TILE = 1 << TILE_LOG }; /* entries */

__global__ void __launch_bounds__(THREADS) starts_kernel(pairs_task t) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i > t.count) return;
    u64 tile = i < t.count ? t.idx[i] >> TILE_LOG : t.tiles;
    for (u64 before = i ? (u64)(t.idx[i - 1] >> TILE_LOG) + 1 : 0; before <= tile; before++)
        t.start[before] = (u32)i;
}

template <class W> struct tile_room { __align__(16) W value[TILE]; };
template <class W> __global__ void __launch_bounds__(THREADS) tiles_kernel(pairs_task t) {
    typedef tile_room<W> room_type;
    RILL_SHARED(room_type, room);
    const u64 base = (u64)blockIdx.x << TILE_LOG;
    const u32 first = t.start[blockIdx.x], end = t.start[blockIdx.x + 1];
    const u32 VECTORS = TILE * sizeof(W) / 16, PER = 16 / sizeof(W);
    uint4 *vector = (uint4 *)room.value;
#pragma unroll
    for (u32 i = threadIdx.x; i < VECTORS; i += THREADS)
        vector[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    for (u32 i = first + threadIdx.x; i < end; i += THREADS)
        room.value[t.idx[i] & (TILE - 1)] = ((const W *)t.val)[i];
    __syncthreads();
#pragma unroll
    for (u32 i = threadIdx.x; i < VECTORS; i += THREADS) {
        u64 at = base + i * PER;
        if (at + PER <= t.n) __stcs((uint4 *)((W *)t.dense + at), vector[i]);
        else
            for (u32 j = 0; at + j < t.n; j++)
                ((W *)t.dense)[at + j] = room.value[i * PER + j];
    }
}

static u64 tiles_of(u64 n) { return div_up(n, TILE); }
size_t rill__cuda_update_workspace(uint64_t n) { return (size_t)(tiles_of(n) + 1) * 4; }

int rill__cuda_update(int type, void *dense, uint64_t n, const uint32_t *idx, const void *val,
                      uint64_t count, void *workspace, void *stream) {
    pairs_task t = {dense, idx, (void *)val, count, n, (u32 *)workspace, tiles_of(n), NULL, 0, 0};
    if (n > RILL__CUDA_MOST || count > n) return RILL_CUDA_INVALID;
    RILL_CUDA_TRY(launch(starts_kernel, t, count / THREADS + 1, THREADS, stream));
    switch (type) {
    case RILL__CUDA_F32: return launch(tiles_kernel<uint32_t>, t, t.tiles, THREADS, stream);
    case RILL__CUDA_F64: return launch(tiles_kernel<u64>, t, t.tiles, THREADS, stream);
    case RILL__CUDA_F16:
    case RILL__CUDA_BF16: return launch(tiles_kernel<uint16_t>, t, t.tiles, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

RILL_CUDA_ONE_OF_FILE(dense, (loop_kernel<f32, 0>))
