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

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    TILE = 32, /* values of a thread; threshold: a bit for each in a word */
    MOST_BUCKET = 4096
};

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

/* The vector of values from i on, of which `have` are there. */
template <class T>
static __device__ __forceinline__ uint4 load_values(const void *from, u64 i, u32 have) {
    const typename T::word *x = (const typename T::word *)from + i;
    if (have == T::PER) return __ldcs((const uint4 *)x);
    uint4 v = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < T::PER; j++)
        if ((u32)j < have) set_bits<T>(v, j, x[j]);
    return v;
}
template <class T>
static __device__ __forceinline__ void store_values(void *to, u64 i, u32 have, const uint4 &v) {
    typename T::word *x = (typename T::word *)to + i;
    if (have == T::PER) {
        __stcs((uint4 *)x, v);
        return;
    }
#pragma unroll
    for (int j = 0; j < T::PER; j++)
        if ((u32)j < have) x[j] = (typename T::word)bits_at<T>(v, j);
}
template <class T> static __device__ __forceinline__ u32 values_from(u64 i, u64 n) {
    return i >= n ? 0 : n - i < T::PER ? (u32)(n - i) : (u32)T::PER;
}
/* COUNT vectors of a lane, one from each row of a warp; where all rows are there, without branches
 * in between, so that all are on their way at once. */
template <class T, int COUNT>
static __device__ __forceinline__ void load_flight(const void *from, u64 i, u64 n, uint4 *v) {
    if (i + ((COUNT - 1) * 32 + 1) * T::PER <= n) {
        const uint4 *x = (const uint4 *)((const typename T::word *)from + i);
#pragma unroll
        for (u32 u = 0; u < COUNT; u++)
            v[u] = __ldcs(x + u * 32);
        return;
    }
#pragma unroll
    for (u32 u = 0; u < COUNT; u++, i += 32 * T::PER)
        v[u] = load_values<T>(from, i, values_from<T>(i, n));
}
/* v = v + gradient where that is allowed; values that are not there are 0 in both. */
template <class T>
static __device__ __forceinline__ void add_values(uint4 &v, const uint4 &g, int guards, u32 &bad) {
#pragma unroll
    for (int j = 0; j < T::PER; j++) {
        u32 old = bits_at<T>(v, j), sum = add_bits<T>(old, bits_at<T>(g, j));
        bool odd = (sum & T::MAGNITUDE) >= T::NAN_KEY - 1;
        bad += odd;
        set_bits<T>(v, j, odd && guards ? old : sum);
    }
}

/* Writes the vector at i to the residual, without what is taken. */
template <class T, int FORM>
static __device__ __forceinline__ void keep_rest(const method_task &t, u64 i, uint4 v, u32 taken) {
#pragma unroll
    for (int j = 0; j < T::PER; j++)
        if (taken >> j & 1) set_bits<T>(v, j, 0);
    if (FORM == 2 || (taken & ((1u << T::PER) - 1)))
        store_values<T>(t.residual, i, values_from<T>(i, t.n), v);
}

/* The residual is written as if all that is taken had room: what has none goes back. So only
 * pairs wait for the tiles below, and no tile above waits for the residual. */
template <class T, int FORM>
__global__ void __launch_bounds__(THREADS) threshold_kernel(method_task t) {
    enum { FLIGHT = TILE / T::PER };
    RILL_SHARED(threshold_room, room);
    const u32 tile = ordered_next(t.order, room.order), warp = threadIdx.x >> 5;
    const u64 base = ((u64)tile * WARPS + warp) * FLIGHT * 32 * T::PER + lane_id() * T::PER;
    uint4 v[FLIGHT], g[FORM == 2 ? FLIGHT : 1];
    u32 taken = 0, counts = 0, bad = 0, before = 0; /* taken: a bit for each value */
    load_flight<T, FLIGHT>(t.dense, base, t.n, v);
    if (FORM == 2) load_flight<T, FLIGHT>(t.gradient, base, t.n, g);
#pragma unroll
    for (u32 u = 0; u < FLIGHT; u++) {
        if (FORM == 2) add_values<T>(v[u], g[u], t.guards, bad);
#pragma unroll
        for (int j = 0; j < T::PER; j++)
            taken |= (u32)((bits_at<T>(v[u], j) & T::MAGNITUDE) >= t.key) << (u * T::PER + j);
    }
    const u32 total = __reduce_add_sync(RILL_FULL, (u32)__popc(taken));
    if (lane_id() == 0) room.warps[warp] = total;
    __syncthreads();
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) {
        before += w < warp ? room.warps[w] : 0;
        counts += room.warps[w];
    }
    ordered_tell(t.order, tile, two_counts(counts, 0));
    if (FORM)
#pragma unroll
        for (u32 u = 0; u < FLIGHT; u++)
            keep_rest<T, FORM>(t, base + u * 32 * T::PER, v[u], taken >> u * T::PER);
    u64 at = first_count(ordered_told(t.order, room.order, tile, two_counts(counts, 0)));
    if (tile == t.tiles - 1 && threadIdx.x == 0) t.found->count = at + counts;
    at += before;
#pragma unroll
    for (u32 u = 0; u < FLIGHT; u++) {
        const u32 mine = taken >> u * T::PER & ((1u << T::PER) - 1);
        if (!__any_sync(RILL_FULL, mine != 0)) continue;
        const u32 up_to = warp_prefix((u32)__popc(mine));
        u64 to = at + up_to - (u32)__popc(mine), i = base + u * 32 * T::PER;
        at += __shfl_sync(RILL_FULL, up_to, 31);
#pragma unroll
        for (int j = 0; j < T::PER; j++) {
            if (!(mine >> j & 1)) continue;
            u32 bits = bits_at<T>(v[u], j);
            if (to < t.room) put_pair<T>(t, to, (u32)i + j, bits);
            else if (FORM) ((typename T::word *)t.residual)[i + j] = (typename T::word)bits;
            to++;
        }
    }
    if (FORM == 2) note_bad(t, bad);
}

/* ---- bucket --------------------------------------------------------------------------------- */

enum { LISTED = 128 }; /* candidates of a bucket that are compared with each other */

struct bucket_room {
    ordered_room order;
    u32 warps[WARPS];
    uint16_t list[WARPS][LISTED];
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

/* A key that at least k lanes' largest reach, k up to 32: no more than the k-th largest key. Its
 * lowest bits do not matter. */
static __device__ __forceinline__ u32 bound_of_bucket(u32 most, u32 k, int top) {
    u32 t = 0;
    for (int bit = top; bit >= 0 && bit > top - 16; bit--) {
        u32 tried = t | 1u << bit;
        if ((u32)__popc(__ballot_sync(RILL_FULL, most >= tried)) >= k) t = tried;
    }
    return max_u32(t, 1);
}

/* The values of a bucket with their gradient, to the residual and as keys to shared memory;
 * returns the largest key of this lane. Buckets of whole vectors are read as such. */
template <class T, int FORM>
static __device__ __forceinline__ u32 load_bucket(const method_task &t, u64 base, u32 n, u32 *keys,
                                                  u32 &live, u32 &bad) {
    enum { AT_ONCE = 4 };
    u32 most = 0;
    if (t.bucket % T::PER || n < t.bucket) {
        for (u32 i = lane_id(); i < n; i += 32) {
            u32 bits = take_value<T, FORM>(t, base + i, bad);
            if (FORM == 2) ((typename T::word *)t.residual)[base + i] = (typename T::word)bits;
            keys[i] = key_of<T>(bits);
            live += keys[i] != 0;
            most = max_u32(most, keys[i]);
        }
        return most;
    }
    for (u32 i0 = lane_id() * T::PER; i0 < n; i0 += AT_ONCE * 32 * T::PER) {
        uint4 v[AT_ONCE], g[FORM == 2 ? AT_ONCE : 1];
        load_flight<T, AT_ONCE>(t.dense, base + i0, base + n, v);
        if (FORM == 2) load_flight<T, AT_ONCE>(t.gradient, base + i0, base + n, g);
#pragma unroll
        for (u32 u = 0; u < AT_ONCE; u++) {
            const u32 i = i0 + u * 32 * T::PER;
            if (i >= n) continue;
            if (FORM == 2) {
                add_values<T>(v[u], g[u], t.guards, bad);
                store_values<T>(t.residual, base + i, T::PER, v[u]);
            }
            uint4 *to = (uint4 *)(keys + i);
#pragma unroll
            for (int q = 0; q < T::PER / 4; q++) {
                uint4 w;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    u32 key = key_of<T>(bits_at<T>(v[u], q * 4 + j));
                    live += key != 0;
                    most = max_u32(most, key);
                    set_word(w, j, key);
                }
                to[q] = w;
            }
        }
    }
    return most;
}

/* Lists the keys from `least` on, in order; returns how many there are, more than LISTED if they
 * are too many. */
static __device__ __forceinline__ u32 list_bucket(const u32 *keys, u32 n, u32 least,
                                                  uint16_t *list) {
    u32 count = 0;
    for (u32 i0 = 0; i0 < n && count <= LISTED; i0 += 32) {
        u32 i = i0 + lane_id(), mask = __ballot_sync(RILL_FULL, i < n && keys[i] >= least);
        u32 to = count + (u32)__popc(mask & lanes_below());
        if ((mask >> lane_id() & 1) && to < LISTED) list[to] = (uint16_t)i;
        count += (u32)__popc(mask);
    }
    __syncwarp();
    return count;
}

template <class T, int FORM>
static __device__ __forceinline__ void give_pair(const method_task &t, u64 to, u64 index) {
    typedef typename T::word word;
    put_pair<T>(t, to, (u32)index, ((const word *)(FORM ? t.residual : t.dense))[index]);
    if (FORM) ((word *)t.residual)[index] = 0;
}

/* Selected of the list: those that fewer than k others precede, by key and then by index. */
template <class T, int FORM>
static __device__ __forceinline__ void give_listed(const method_task &t, const u32 *keys,
                                                   const uint16_t *list, u32 listed, u64 base,
                                                   u64 at) {
    for (u32 c0 = 0; c0 < listed; c0 += 32) {
        const u32 c = c0 + lane_id(), i = c < listed ? list[c] : 0, key = keys[i];
        u32 before = 0;
        for (u32 o = 0; o < listed; o++) {
            u32 other = keys[list[o]];
            before += other > key || (other == key && o < c);
        }
        const bool take = c < listed && before < t.k;
        const u32 mask = __ballot_sync(RILL_FULL, take);
        if (take) give_pair<T, FORM>(t, at + __popc(mask & lanes_below()), base + i);
        at += __popc(mask);
    }
}

template <class T, int FORM>
static __device__ __forceinline__ void give_above(const method_task &t, const u32 *keys, u32 n,
                                                  u32 key, u32 ties, u64 base, u64 at) {
    for (u32 i0 = 0; i0 < n; i0 += 32) {
        u32 i = i0 + lane_id(), x = i < n ? keys[i] : 0, below = lanes_below();
        u32 tied = __ballot_sync(RILL_FULL, ties && x == key && i < n);
        bool take = x > key || ((tied >> lane_id() & 1) && (u32)__popc(tied & below) < ties);
        ties -= min_u32(ties, (u32)__popc(tied));
        u32 mask = __ballot_sync(RILL_FULL, take);
        if (take) give_pair<T, FORM>(t, at + __popc(mask & below), base + i);
        at += __popc(mask);
    }
}

template <class T, int FORM>
__global__ void __launch_bounds__(THREADS) bucket_kernel(method_task t) {
    RILL_SHARED(bucket_room, room);
    RILL_SHARED_DYNAMIC(u32, memory);
    const u32 tile = ordered_next(t.order, room.order), warp = threadIdx.x >> 5;
    const u64 number = (u64)tile * t.warp_buckets + warp, base = number * t.bucket;
    const u32 n = warp < t.warp_buckets && base < t.n
                      ? (u32)(t.n - base < t.bucket ? t.n - base : t.bucket)
                      : 0;
    /* Warps beyond have no part. Each part starts at 16 bytes. */
    u32 *keys = memory + (size_t)warp * ((t.bucket + 3) & ~3u);
    uint16_t *list = room.list[warp];
    u32 bad = 0, live = 0, all = 0, before = 0;
    const u32 most = load_bucket<T, FORM>(t, base, n, keys, live, bad);
    __syncwarp();
    live = __reduce_add_sync(RILL_FULL, live);
    const u32 count = min_u32(live, t.k);
    if (lane_id() == 0) room.warps[warp] = count;
    /* Few of many: a bound leaves little more than k candidates. */
    u32 key = 0, above = live, ties = 0, listed = LISTED + 1;
    if (live > t.k && t.k <= 32)
        listed = list_bucket(keys, n, bound_of_bucket(most, t.k, T::KEY_BITS - 1), list);
    else if (live && live <= t.k) listed = list_bucket(keys, n, 1, list);
    if (live > t.k && listed > LISTED) {
        key = kth_of_bucket(keys, n, t.k, T::KEY_BITS - 1, above);
        ties = t.k - above;
    }
    __syncthreads();
    for (u32 w = 0; w < WARPS; w++) {
        before += w < warp ? room.warps[w] : 0;
        all += room.warps[w];
    }
    u64 at = first_count(ordered_before(t.order, room.order, tile, two_counts(all, 0)));
    if (tile == t.tiles - 1 && threadIdx.x == 0) t.found->count = at + all;
    at += before;
    if (count && listed <= LISTED) give_listed<T, FORM>(t, keys, list, listed, base, at);
    else if (count) give_above<T, FORM>(t, keys, n, key, ties, base, at);
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

size_t rill__cuda_threshold_workspace(int, uint64_t n) {
    return ordered_bytes(div_up(n, (u64)THREADS * TILE));
}
int rill__cuda_threshold(const rill__cuda_select *s, uint32_t key, void *stream) {
    method_task t = task_of(s);
    if (!key) return RILL_CUDA_INVALID;
    t.key = key;
    RILL_CUDA_TRY(order(s, t, div_up(s->n, (u64)THREADS * TILE), stream));
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
    const size_t shared = (size_t)t.warp_buckets * ((bucket + 3) & ~3u) * 4;
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

RILL_CUDA_ONE_OF_FILE(methods, (threshold_kernel<f32, 0>))
