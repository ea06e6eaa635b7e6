/* Part of topk.cu: the k-th from all values, where the sample misled or ties are too many to be
 * staged. One cooperative kernel that returns at once when there is nothing to do. */

/* What lies in segment s of the data, row by row, several rows in flight. FN(v, index, have) for
 * each. */
template <class T, class FN>
static __device__ __forceinline__ void each_row(const topk_task &t, const void *from, u32 segment,
                                                FN fn) {
    enum { FLIGHT = 4 };
    const u32 ROW = shape<T>::ROW, rows = t.n / ROW + (t.n % ROW != 0), whole = t.n / ROW;
    u32 row = min_u32(segment * t.rows, rows), end = min_u32(row + t.rows, rows);
    const u32 last = min_u32(end, whole);
    for (; row + FLIGHT <= last; row += FLIGHT) {
        uint4 v[FLIGHT];
#pragma unroll
        for (int u = 0; u < FLIGHT; u++)
            v[u] = ((const uint4 *)from)[(size_t)(row + u) * 32 + lane_id()];
#pragma unroll
        for (int u = 0; u < FLIGHT; u++)
            fn(v[u], (row + u) * ROW + lane_id() * T::PER, T::PER);
    }
    for (; row < end; row++) {
        u32 index = row * ROW + lane_id() * T::PER;
        u32 have = index < t.n ? min_u32(T::PER, t.n - index) : 0;
        fn(load_some<T>(from, index, have), index, have);
    }
}

/* Staged pairs go back where they were cleared. */
template <class T>
static __device__ __forceinline__ void restore_segment(const topk_task &t, u32 segment) {
    const u32 PAGE = shape<T>::PAGE;
    int page = t.head[segment];
    for (u32 left = t.staged[segment]; left;) {
        u32 have = min_u32(left, PAGE);
        for (u32 i = lane_id(); i < have; i += 32) {
            uint2 q = t.page[(size_t)page * PAGE + i];
            ((typename T::word *)t.residual)[q.x] = (typename T::word)q.y;
        }
        left -= have;
        page = t.page_next[page];
    }
}

/* One level of bins of all keys in [low, low + width), keys of 0 left out. A warp whose values
 * all fall in one bin counts them at
 * once: else constant data would wait for one address. */
template <class T>
static __device__ void count_level(const topk_task &t, finish_room &room, const void *from, u32 low,
                                   u32 width, int shift, u32 *bins) {
    for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
        room.bins[i] = 0;
    __syncthreads();
    for (u32 s = (blockIdx.x * FINISHERS + threadIdx.x) >> 5; s < t.segments;
         s += gridDim.x * (FINISHERS / 32))
        each_row<T>(t, from, s, [&](const uint4 &v, u32, u32 have) {
            u32 bin[T::PER], first = ~0u, n = 0;
            bool same = true;
#pragma unroll
            for (int j = 0; j < T::PER; j++) {
                u32 key = key_of<T>(bits_at<T>(v, j)), d = key - low;
                bool in = (u32)j < have && key && key >= low && d < width;
                bin[j] = in ? d >> shift : ~0u;
                first = in && first == ~0u ? bin[j] : first;
                same = same && (!in || bin[j] == first);
                n += in;
            }
            u32 common = __shfl_sync(RILL_FULL, first, 0);
            if (__all_sync(RILL_FULL, same && (first == common || !n))) {
                n = __reduce_add_sync(RILL_FULL, n);
                if (lane_id() == 0 && n && common != ~0u) atomicAdd(&room.bins[common], n);
                return;
            }
#pragma unroll
            for (int j = 0; j < T::PER; j++)
                if (bin[j] != ~0u) atomicAdd(&room.bins[bin[j]], 1u);
        });
    __syncthreads();
    for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
        if (room.bins[i]) atomicAdd(&bins[i], room.bins[i]);
    __threadfence();
    rill__grid_sync();
}

static __device__ u32 sum_bins(const u32 *bins, finish_room &room) {
    u32 sum = 0, total;
    for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
        sum += __ldcg(bins + i);
    block_prefix(sum, room.find.warps, &total);
    return total;
}

/* The scan and all after it, with bounds that are exact. False: too many candidates. */
template <class T, int FORM>
static __device__ bool scan_again(const topk_task &t, finish_room &room, u32 tlo, u32 thi, u32 sure,
                                  u32 window) {
    const u32 PAGE = shape<T>::PAGE;
    if ((sure + window) / PAGE + t.segments >= t.max_pages ||
        window / PAGE + t.segments >= t.max_window)
        return false;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        t.state->tlo = tlo;
        t.state->thi = thi;
        t.state->pages = t.state->window_pages = t.state->overflow = 0;
        t.state->found = t.state->sure = 0;
    }
    for (u32 i = blockIdx.x * FINISHERS + threadIdx.x; i < LEVELS * LEVEL_BINS;
         i += gridDim.x * FINISHERS)
        t.level[i] = 0;
    __threadfence();
    rill__grid_sync();
    for (u32 s = (blockIdx.x * FINISHERS + threadIdx.x) >> 5; s < t.segments;
         s += gridDim.x * (FINISHERS / 32)) {
        if (lane_id() == 0) t.above[s] = t.equal[s] = 0;
        scan_segment<T, FORM, 2>(t, s, tlo, thi);
    }
    __threadfence();
    rill__grid_sync();
    finish<T>(t, room);
    __threadfence();
    rill__grid_sync();
    for (u32 s = (blockIdx.x * FINISHERS + threadIdx.x) >> 5; s < t.segments;
         s += gridDim.x * (FINISHERS / 32))
        write_segment<T, FORM>(t, s);
    return true;
}

/* All levels, then a pass that counts and one that writes. */
template <class T, int FORM>
static __device__ void count_and_write(const topk_task &t, finish_room &room, const void *from,
                                       u32 key, u32 ties, u32 count) {
    const u32 first = (blockIdx.x * FINISHERS + threadIdx.x) >> 5,
              step = gridDim.x * (FINISHERS / 32);
    for (u32 s = first; s < t.segments; s += step) {
        u32 above = 0, equal = 0;
        each_row<T>(t, from, s, [&](const uint4 &v, u32, u32 have) {
#pragma unroll
            for (int j = 0; j < T::PER; j++) {
                u32 x = key_of<T>(bits_at<T>(v, j));
                above += (u32)j < have && x > key;
                equal += (u32)j < have && x == key;
            }
        });
        above = __reduce_add_sync(RILL_FULL, above);
        equal = __reduce_add_sync(RILL_FULL, equal);
        if (lane_id() == 0) {
            t.above[s] = above;
            t.equal[s] = equal;
        }
    }
    __threadfence();
    rill__grid_sync();
    place_segments(t, room, key, ties, count);
    __threadfence();
    rill__grid_sync();
    for (u32 s = first; s < t.segments; s += step) {
        u32 at = t.above[s], equal = t.equal[s];
        each_row<T>(t, from, s, [&](const uint4 &v, u32 index, u32 have) {
            u32 take = 0, tied = 0, below = lanes_below(), most = 0;
#pragma unroll
            for (int j = 0; j < T::PER; j++)
                if ((u32)j < have) most = max_u32(most, key_of<T>(bits_at<T>(v, j)));
            if (!__any_sync(RILL_FULL, have && most >= key && most)) return;
#pragma unroll
            for (int j = 0; j < T::PER; j++)
                tied |= (u32)((u32)j < have && key_of<T>(bits_at<T>(v, j)) == key) << j;
            u32 my = __popc(tied), up_to = warp_prefix(my), rank = equal + up_to - my;
            equal += __shfl_sync(RILL_FULL, up_to, 31);
#pragma unroll
            for (int j = 0; j < T::PER; j++) {
                bool tie = tied >> j & 1;
                take |= (u32)((u32)j < have &&
                              (key_of<T>(bits_at<T>(v, j)) > key || (tie && rank < ties)))
                        << j;
                rank += tie;
            }
            my = __popc(take);
            up_to = warp_prefix(my);
            u32 to = at + up_to - my;
            at += __shfl_sync(RILL_FULL, up_to, 31);
            (void)below;
#pragma unroll
            for (int j = 0; j < T::PER; j++) {
                if (!(take >> j & 1)) continue;
                t.idx[to] = index + j;
                ((typename T::word *)t.val)[to++] = (typename T::word)bits_at<T>(v, j);
                if (FORM) ((typename T::word *)t.residual)[index + j] = 0;
            }
        });
    }
}

template <class T, int FORM>
__global__ void __launch_bounds__(FINISHERS, 2) again_kernel(topk_task t) {
    RILL_SHARED(finish_room, room);
    if (!__ldcg(&t.state->failed)) return;
    const void *from = FORM ? t.residual : t.dense;
    for (u32 i = blockIdx.x * FINISHERS + threadIdx.x; i < LEVELS * LEVEL_BINS;
         i += gridDim.x * FINISHERS)
        t.level[i] = 0;
    if (FORM)
        for (u32 s = (blockIdx.x * FINISHERS + threadIdx.x) >> 5; s < t.segments;
             s += gridDim.x * (FINISHERS / 32))
            restore_segment<T>(t, s);
    __threadfence();
    rill__grid_sync();
    u32 rank = t.k, low = 0, width = T::NONE;
    int shift = T::KEY_BITS - LEVEL_BITS;
    for (int level = 0;; level++) {
        u32 *bins = t.level + level * LEVEL_BINS;
        count_level<T>(t, room, from, low, width, shift, bins);
        if (level == 0) {
            u32 total = sum_bins(bins, room);
            if (total <= t.k) {
                count_and_write<T, FORM>(t, room, from, 0, 0, total);
                return;
            }
        }
        u32 bin = find_bin(bins, rank, room.find), window = __ldcg(bins + bin);
        low += bin << shift;
        width = 1u << shift;
        if (level == 0) {
            u32 high = low + width > T::NAN_KEY ? (u32)T::NONE : low + width;
            if (scan_again < T, FORM ? 1 : 0 > (t, room, max_u32(1, low), high, t.k - rank, window))
                return;
        }
        if (shift == 0) break;
        shift = shift > LEVEL_BITS ? shift - LEVEL_BITS : 0;
    }
    count_and_write<T, FORM>(t, room, from, low, rank, t.k);
}
