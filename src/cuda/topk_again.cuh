/* Part of topk.cu: the k-th from all values, where the sample misled or ties are too many to be
 * staged. One cooperative kernel that returns at once when there is nothing to do.
 *
 * A pass counts all keys in bins. Ties are what makes most candidates, so it also counts what is
 * above and equal to one key near the lower bound: where that is the k-th, it is found. Else the
 * keys of the k-th's bin are listed, where they fit, or two more passes have the levels below.
 * Then one pass counts what each segment has and one writes. */

/* What lies in a segment of the data, row by row, several rows in flight. FN(v, index, have) for
 * each. */
template <class T, class FN>
static __device__ __forceinline__ void each_row(const topk_task &t, const void *from, u32 segment,
                                                FN fn) {
    enum { FLIGHT = 4, ROW = 32 * T::PER };
    const bool whole = segment < t.n >> t.segment_bits;
    for (u32 row = 0; row < (1u << t.segment_bits) / ROW; row += FLIGHT) {
        const u32 first = (segment << t.segment_bits) + row * ROW + lane_id() * T::PER;
        uint4 v[FLIGHT];
        load_rows<T, FLIGHT>(from, first, t.n, whole, v);
#pragma unroll
        for (u32 u = 0; u < FLIGHT; u++) {
            const u32 i = first + u * ROW;
            fn(v[u], i, whole ? (u32)T::PER : i < t.n ? min_u32(T::PER, t.n - i) : 0);
        }
    }
}

/* Staged pairs go back where they were cleared. */
template <class T>
static __device__ __forceinline__ void restore_segment(const topk_task &t, u32 segment) {
    each_staged(t, t.runs[segment], [&](u32 at, bool in) {
        if (in) ((typename T::word *)t.residual)[t.page[at].x] = (typename T::word)t.page[at].y;
    });
}

/* One level of bins of all keys in [low, low + width), keys of 0 left out. A warp whose values
 * all fall in one bin counts them at once: else constant data would wait for one address. GUESS:
 * also what is above and equal to guess. */
template <class T, bool GUESS>
static __device__ void count_level(const topk_task &t, finish_room &room, const void *from, u32 low,
                                   u32 width, int shift, u32 guess) {
    u32 above = 0, equal = 0;
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
                if (GUESS) {
                    above += in && key > guess;
                    equal += in && key == guess;
                }
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
    if (GUESS) {
        above = __reduce_add_sync(RILL_FULL, above);
        equal = __reduce_add_sync(RILL_FULL, equal);
        if (lane_id() == 0 && above) atomicAdd(&t.state->above, (u64)above);
        if (lane_id() == 0 && equal) atomicAdd(&t.state->equal, (u64)equal);
    }
    __syncthreads();
}

/* To the bins of all blocks; then all have them. */
static __device__ __forceinline__ void share_bins(const finish_room &room, u32 *bins) {
    for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
        if (room.bins[i]) atomicAdd(&bins[i], room.bins[i]);
    __threadfence();
    rill__grid_sync();
}

/* Writes `have` keys of a warp to the window, where there is room for them. */
static __device__ __forceinline__ void put_listed(const topk_task &t, const u32 *keys, u32 have) {
    u32 at = 0;
    if (lane_id() == 0) at = atomicAdd(&t.state->window, have);
    at = __shfl_sync(RILL_FULL, at, 0);
    __syncwarp();
    for (u32 i = lane_id(); i < have; i += 32)
        t.window[at + i] = keys[i];
    __syncwarp();
}
/* The window becomes all keys in [low, low + width): there is room. */
template <class T>
static __device__ void list_keys(const topk_task &t, finish_room &room, const void *from, u32 low,
                                 u32 width) {
    enum { MOST = LEVEL_BINS / (FINISHERS / 32) }; /* keys that a warp gathers; a row fits */
    u32 *keys = room.bins + (threadIdx.x >> 5) * MOST, count = 0;
    for (u32 s = (blockIdx.x * FINISHERS + threadIdx.x) >> 5; s < t.segments;
         s += gridDim.x * (FINISHERS / 32))
        each_row<T>(t, from, s, [&](const uint4 &v, u32, u32 have) {
            u32 in = 0;
#pragma unroll
            for (int j = 0; j < T::PER; j++) {
                u32 key = key_of<T>(bits_at<T>(v, j));
                in |= (u32)((u32)j < have && key && key >= low && key - low < width) << j;
            }
            if (!__any_sync(RILL_FULL, in != 0)) return;
            const u32 mine = (u32)__popc(in), up_to = warp_prefix(mine),
                      all = __shfl_sync(RILL_FULL, up_to, 31);
            if (count + all > MOST) {
                put_listed(t, keys, count);
                count = 0;
            }
            u32 to = count + up_to - mine;
#pragma unroll
            for (int j = 0; j < T::PER; j++)
                if (in >> j & 1) keys[to++] = key_of<T>(bits_at<T>(v, j));
            count += all;
            __syncwarp();
        });
    put_listed(t, keys, count);
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

/* Positions of segments from their counts. All blocks of a cooperative grid. */
static __device__ void place_segments(const topk_task &t, finish_room &room, u32 key, u32 ties,
                                      u32 count) {
    const u32 per = (t.segments + gridDim.x - 1) / gridDim.x;
    const u32 first = min_u32(blockIdx.x * per, t.segments), end = min_u32(first + per, t.segments);
    u32 above = 0, equal = 0, total;
    for (u32 at = first; at < end; at += FINISHERS) {
        u32 s = at + threadIdx.x;
        u32 a = s < end ? __ldcg(t.above + s) : 0, e = s < end ? __ldcg(t.equal + s) : 0;
        u32 before = above + block_prefix(a, room.find.warps, &total) - a;
        above += total;
        u32 ties_before = equal + block_prefix(e, room.find.warps, &total) - e;
        equal += total;
        if (s < end) {
            t.above[s] = before;
            t.equal[s] = ties_before;
        }
    }
    if (threadIdx.x == 0) {
        t.block_above[blockIdx.x] = above;
        t.block_equal[blockIdx.x] = equal;
        room.above = room.equal = 0;
    }
    __threadfence();
    rill__grid_sync();
    u32 a = 0, e = 0;
    for (u32 i = threadIdx.x; i < blockIdx.x; i += FINISHERS) {
        a += __ldcg(t.block_above + i);
        e += __ldcg(t.block_equal + i);
    }
    a = __reduce_add_sync(RILL_FULL, a);
    e = __reduce_add_sync(RILL_FULL, e);
    if (lane_id() == 0) {
        atomicAdd(&room.above, a);
        atomicAdd(&room.equal, e);
    }
    __syncthreads();
    for (u32 s = first + threadIdx.x; s < end; s += FINISHERS) {
        u32 ties_before = room.equal + t.equal[s];
        t.equal[s] = ties_before;
        t.above[s] += room.above + min_u32(ties_before, ties);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        t.state->key = key;
        t.state->ties = ties;
        t.result->count = count;
        t.result->nonfinite = t.state->nonfinite;
    }
}

/* A pass that counts and one that writes. */
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
            u32 take = 0, tied = 0, most = 0;
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

/* The k-th, by all blocks: false if there are no more than k entries. */
template <class T>
static __device__ bool search_all(const topk_task &t, finish_room &room, const void *from, u32 &key,
                                  u32 &rank) {
    const u32 guess = __ldcg(&t.state->guess);
    int shift = T::KEY_BITS - LEVEL_BITS;
    count_level<T, true>(t, room, from, 0, T::NONE, shift, guess);
    share_bins(room, t.level);
    if (sum_bins(t.level, room) <= t.k) return false;
    const u64 above = __ldcg(&t.state->above), equal = __ldcg(&t.state->equal);
    if (above < t.k && t.k <= above + equal) {
        key = guess;
        rank = t.k - (u32)above;
        return true;
    }
    rank = t.k;
    const u32 bin = find_bin(t.level, rank, room.find), inside = __ldcg(t.level + bin);
    key = bin << shift;
    const bool listed = inside <= t.max_window;
    if (blockIdx.x == 0 && threadIdx.x == 0) t.state->window = 0;
    __threadfence();
    rill__grid_sync();
    if (listed) list_keys<T>(t, room, from, key, 1u << shift);
    for (int level = 1; shift; level++) {
        const u32 width = 1u << shift;
        shift = shift > LEVEL_BITS ? shift - LEVEL_BITS : 0;
        if (listed) count_window(t, room, inside, key, width, shift, blockIdx.x, gridDim.x);
        else count_level<T, false>(t, room, from, key, width, shift, 0);
        share_bins(room, t.level + level * LEVEL_BINS);
        key += find_bin(t.level + level * LEVEL_BINS, rank, room.find) << shift;
    }
    return true;
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
    u32 key = 0, rank = 0, count = t.k;
    if (!search_all<T>(t, room, from, key, rank)) count = sum_bins(t.level, room);
    count_and_write<T, FORM>(t, room, from, key, rank, count);
}
