/* threshold, bucket and random; the twins are select/select_threshold.c, select_bucket.c and
 * select_random.c. block has its own file.
 *
 * threshold: one pass that adds, takes and clears; pairs come in order by look-back
 * (ordered.cuh).
 * bucket: a warp has a bucket in shared memory and finds its k-th largest key bit by bit.
 * random: k strata, one draw each; the gradient is added before.
 * Memory: 8 bytes for each tile of 4,096 or more. Cost: one read of n (fused: two and a write)
 * and the pairs. */
#include "ordered.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, FLIGHT = 4, MOST_BUCKET = 4096 };

struct method_task {
    const void *dense;
    void *residual;
    const void *gradient;
    u64 n, room;
    u32 *idx;
    void *val;
    rill__cuda_found *found;
    int guards;
    ordered order;
    u64 tiles;
    u32 key;                     /* threshold */
    u32 bucket, k, warp_buckets; /* bucket */
    u64 draws, seed, call;       /* random */
};

static method_task task_of(const rill__cuda_select *s) {
    method_task t = {};
    t.dense = s->residual ? s->residual : s->dense;
    t.residual = s->residual;
    t.gradient = s->gradient;
    t.n = s->n;
    t.room = s->room;
    t.idx = s->idx;
    t.val = s->val;
    t.found = s->found;
    t.guards = s->guards;
    return t;
}

/* Bits of entry i with its gradient, which goes to the residual at once. */
template <class T, int FORM>
static __device__ __forceinline__ u32 take_value(const method_task &t, u64 i, u32 &bad) {
    typedef typename T::word word;
    u32 old = ((const word *)t.dense)[i];
    if (FORM != 2) return old;
    u32 sum = add_bits<T>(old, ((const word *)t.gradient)[i]);
    bool odd = (sum & T::MAGNITUDE) >= T::NAN_KEY - 1;
    bad += odd;
    return odd && t.guards ? old : sum;
}
template <class T>
static __device__ __forceinline__ void put_pair(const method_task &t, u64 to, u32 index, u32 bits) {
    t.idx[to] = index;
    ((typename T::word *)t.val)[to] = (typename T::word)bits;
}
static __device__ __forceinline__ void note_bad(const method_task &t, u32 bad) {
    bad = __reduce_add_sync(RILL_FULL, bad);
    if (lane_id() == 0 && bad) atomicAdd((u64 *)&t.found->nonfinite, (u64)bad);
}

/* ---- threshold ------------------------------------------------------------------------------ */

struct threshold_room {
    ordered_room order;
    u32 warps[WARPS];
};

template <class T, int FORM>
__global__ void __launch_bounds__(THREADS) threshold_kernel(method_task t) {
    RILL_SHARED(threshold_room, room);
    typedef typename T::word word;
    const u32 tile = ordered_next(t.order, room.order), warp = threadIdx.x >> 5;
    const u64 base = ((u64)tile * WARPS + warp) * FLIGHT * 32 * T::PER;
    uint4 v[FLIGHT];
    u32 count[FLIGHT], total = 0, bad = 0, all;
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) {
        u64 i = base + (u64)(u * 32 + lane_id()) * T::PER;
        u32 have = i >= t.n ? 0 : t.n - i < T::PER ? (u32)(t.n - i) : (u32)T::PER;
        v[u] = make_uint4(0, 0, 0, 0);
        if (have == T::PER) v[u] = __ldcs((const uint4 *)((const word *)t.dense + i));
        else
            for (u32 j = 0; j < have; j++)
                set_bits<T>(v[u], (int)j, ((const word *)t.dense)[i + j]);
    }
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) {
        u64 i = base + (u64)(u * 32 + lane_id()) * T::PER;
        u32 have = i >= t.n ? 0 : t.n - i < T::PER ? (u32)(t.n - i) : (u32)T::PER, taken = 0;
#pragma unroll
        for (int j = 0; j < T::PER; j++) {
            if ((u32)j >= have) continue;
            if (FORM == 2) {
                u32 old = bits_at<T>(v[u], j),
                    sum = add_bits<T>(old, ((const word *)t.gradient)[i + j]);
                bool odd = (sum & T::MAGNITUDE) >= T::NAN_KEY - 1;
                bad += odd;
                set_bits<T>(v[u], j, odd && t.guards ? old : sum);
            }
            taken += (bits_at<T>(v[u], j) & T::MAGNITUDE) >= t.key;
        }
        count[u] = taken;
        total += taken;
    }
    total = __reduce_add_sync(RILL_FULL, total);
    if (lane_id() == 0) room.warps[warp] = total;
    __syncthreads();
    u32 before = 0;
    all = 0;
    for (u32 w = 0; w < WARPS; w++) {
        before += w < warp ? room.warps[w] : 0;
        all += room.warps[w];
    }
    u64 at = first_count(ordered_before(t.order, room.order, tile, two_counts(all, 0)));
    if (tile == t.tiles - 1 && threadIdx.x == 0) t.found->count = at + all;
    at += before;
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) {
        u64 i = base + (u64)(u * 32 + lane_id()) * T::PER;
        u32 have = i >= t.n ? 0 : t.n - i < T::PER ? (u32)(t.n - i) : (u32)T::PER;
        u32 up_to = warp_prefix(count[u]);
        u64 to = at + up_to - count[u];
        at += __shfl_sync(RILL_FULL, up_to, 31);
#pragma unroll
        for (int j = 0; j < T::PER; j++) {
            u32 bits = bits_at<T>(v[u], j);
            if ((u32)j >= have || (bits & T::MAGNITUDE) < t.key) continue;
            if (to < t.room) { /* what finds no room stays */
                put_pair<T>(t, to, (u32)i + j, bits);
                set_bits<T>(v[u], j, 0);
            }
            to++;
        }
        if (FORM == 0 || !have || (FORM == 1 && !count[u])) continue;
        if (have == T::PER) __stcs((uint4 *)((word *)t.residual + i), v[u]);
        else
            for (u32 j = 0; j < have; j++)
                ((word *)t.residual)[i + j] = (word)bits_at<T>(v[u], (int)j);
    }
    if (FORM == 2) note_bad(t, bad);
}

/* ---- bucket --------------------------------------------------------------------------------- */

struct bucket_room {
    ordered_room order;
    u32 warps[WARPS];
};

/* The k-th largest of the keys of a warp's bucket, of which more than k are not 0, and how many
 * are above it. */
static __device__ __forceinline__ u32 kth_of_bucket(const u32 *keys, u32 n, u32 k, int top,
                                                    u32 &above) {
    u32 t = 0;
    above = 0;
    for (int bit = top; bit >= 0; bit--) {
        u32 tried = t | 1u << bit, count = 0;
        for (u32 i = lane_id(); i < n; i += 32)
            count += keys[i] >= tried;
        count = __reduce_add_sync(RILL_FULL, count);
        if (count >= k) t = tried;
        else above = count; /* of keys from tried on, and so of those above t in the end */
    }
    return t;
}

template <class T, int FORM>
__global__ void __launch_bounds__(THREADS) bucket_kernel(method_task t) {
    RILL_SHARED(bucket_room, room);
    RILL_SHARED_DYNAMIC(u32, memory);
    typedef typename T::word word;
    const u32 tile = ordered_next(t.order, room.order), warp = threadIdx.x >> 5;
    const u64 number = (u64)tile * t.warp_buckets + warp, base = number * t.bucket;
    const u32 n = warp < t.warp_buckets && base < t.n
                      ? (u32)(t.n - base < t.bucket ? t.n - base : t.bucket)
                      : 0;
    u32 *keys = memory + (size_t)warp * t.bucket; /* warps beyond have no part */
    u32 bad = 0, live = 0, all = 0, before = 0;
    for (u32 i = lane_id(); i < n; i += 32) {
        u32 bits = take_value<T, FORM>(t, base + i, bad);
        if (FORM == 2) ((word *)t.residual)[base + i] = (word)bits;
        keys[i] = key_of<T>(bits);
        live += keys[i] != 0;
    }
    __syncwarp();
    live = __reduce_add_sync(RILL_FULL, live);
    u32 key = 0, above = live, ties = 0, count = live;
    if (live > t.k) {
        key = kth_of_bucket(keys, n, t.k, T::KEY_BITS - 1, above);
        ties = t.k - above;
        count = t.k;
    }
    if (lane_id() == 0) room.warps[warp] = count;
    __syncthreads();
    for (u32 w = 0; w < WARPS; w++) {
        before += w < warp ? room.warps[w] : 0;
        all += room.warps[w];
    }
    u64 at = first_count(ordered_before(t.order, room.order, tile, two_counts(all, 0)));
    if (tile == t.tiles - 1 && threadIdx.x == 0) t.found->count = at + all;
    at += before;
    for (u32 i0 = 0; i0 < n && count; i0 += 32) {
        u32 i = i0 + lane_id(), x = i < n ? keys[i] : 0, below = lanes_below();
        u32 tied = __ballot_sync(RILL_FULL, ties && x == key && i < n);
        bool take = x > key || ((tied >> lane_id() & 1) && (u32)__popc(tied & below) < ties);
        ties -= min_u32(ties, (u32)__popc(tied));
        u32 mask = __ballot_sync(RILL_FULL, take);
        if (take) {
            const void *from = FORM ? t.residual : t.dense;
            put_pair<T>(t, at + __popc(mask & below), (u32)(base + i),
                        ((const word *)from)[base + i]);
            if (FORM) ((word *)t.residual)[base + i] = 0;
        }
        at += __popc(mask);
    }
    if (FORM == 2) note_bad(t, bad);
}

/* ---- random --------------------------------------------------------------------------------- */

template <class T> __global__ void __launch_bounds__(THREADS) random_kernel(method_task t) {
    u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i == 0) t.found->count = t.draws;
    if (i >= t.draws) return;
    u64 length = t.n / t.draws, longer = t.n % t.draws, pair = i / 2;
    u64 start = i * length + (i < longer ? i : longer), size = length + (i < longer);
    u32 c[4] = {(u32)pair, (u32)(pair >> 32), (u32)t.call, (u32)(t.call >> 32)};
    rill__hd_philox((u32)t.seed, (u32)(t.seed >> 32), 10, c);
    u64 random = i & 1 ? (u64)c[3] << 32 | c[2] : (u64)c[1] << 32 | c[0];
    u64 index = start + rill__hd_high_product(random, size);
    put_pair<T>(t, i, (u32)index, ((const typename T::word *)t.dense)[index]);
    if (t.residual) ((typename T::word *)t.residual)[index] = 0;
}

/* ---- launches ------------------------------------------------------------------------------- */

#define RUN_FORM(kernel, T, ...)                                                                   \
    (t.gradient   ? launch_any(kernel<T, 2>, t, __VA_ARGS__)                                       \
     : t.residual ? launch_any(kernel<T, 1>, t, __VA_ARGS__)                                       \
                  : launch_any(kernel<T, 0>, t, __VA_ARGS__))
#define RUN_TYPE(kernel, ...)                                                                      \
    (s->type == RILL__CUDA_F32    ? RUN_FORM(kernel, f32, __VA_ARGS__)                             \
     : s->type == RILL__CUDA_F16  ? RUN_FORM(kernel, f16, __VA_ARGS__)                             \
     : s->type == RILL__CUDA_BF16 ? RUN_FORM(kernel, bf16, __VA_ARGS__)                            \
                                  : RILL_CUDA_INVALID)

static int order(const rill__cuda_select *s, method_task &t, u64 tiles, void *stream) {
    carver c = {(char *)s->workspace, 0};
    t.tiles = tiles;
    t.order = ordered_carve(c, tiles);
    if (s->n > RILL__CUDA_MOST || c.used > s->workspace_bytes) return RILL_CUDA_INVALID;
    RILL_CUDA_TRY(rill__cuda_zero(s->found, sizeof *s->found, stream));
    return rill__cuda_zero(s->workspace, c.used, stream);
}

static u64 threshold_tiles(int type, u64 n) {
    return div_up(n, (u64)THREADS * FLIGHT * (type == RILL__CUDA_F32 ? 4 : 8));
}
size_t rill__cuda_threshold_workspace(int type, uint64_t n) {
    return ordered_bytes(threshold_tiles(type, n));
}
int rill__cuda_threshold(const rill__cuda_select *s, uint32_t key, void *stream) {
    method_task t = task_of(s);
    if (!key) return RILL_CUDA_INVALID;
    t.key = key;
    RILL_CUDA_TRY(order(s, t, threshold_tiles(s->type, s->n), stream));
    return t.tiles ? RUN_TYPE(threshold_kernel, t.tiles, THREADS, 0, stream, false) : 0;
}

static u32 buckets_at_once(u32 bucket) {
    u32 fit = MOST_BUCKET / bucket;
    return fit > WARPS ? (u32)WARPS : fit;
}
size_t rill__cuda_bucket_workspace(int, uint64_t n, uint32_t bucket) {
    return ordered_bytes(bucket ? div_up(n, (u64)bucket * buckets_at_once(bucket)) : 0);
}
int rill__cuda_bucket(const rill__cuda_select *s, uint32_t bucket, uint32_t k, void *stream) {
    method_task t = task_of(s);
    if (!bucket || bucket > MOST_BUCKET || !k) return RILL_CUDA_INVALID;
    t.bucket = bucket;
    t.k = k;
    t.warp_buckets = buckets_at_once(bucket);
    RILL_CUDA_TRY(order(s, t, div_up(s->n, (u64)bucket * t.warp_buckets), stream));
    const size_t shared = (size_t)t.warp_buckets * bucket * 4;
    return t.tiles ? RUN_TYPE(bucket_kernel, t.tiles, THREADS, shared, stream, false) : 0;
}

int rill__cuda_random(const rill__cuda_select *s, uint64_t k, uint64_t seed, uint64_t call,
                      void *stream) {
    method_task t = task_of(s);
    if (s->n > RILL__CUDA_MOST) return RILL_CUDA_INVALID;
    t.draws = k < s->n ? k : s->n;
    t.seed = seed;
    t.call = call;
    RILL_CUDA_TRY(rill__cuda_zero_found(s, stream));
    const u64 blocks = div_up(t.draws, THREADS);
    switch (s->type) {
    case RILL__CUDA_F32: return launch(random_kernel<f32>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(random_kernel<f16>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(random_kernel<bf16>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}
