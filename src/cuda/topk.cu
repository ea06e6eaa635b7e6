/* topk: the k entries of largest magnitude, exactly; alone, or fused with a residual.
 *
 * Idea: as select/select_topk.c, one read of the data. A sample of 1 in 256 values bounds the
 * k-th largest key from both sides. The scan reads every value once (fused: reads the gradient,
 * reads and writes the residual) and stages the pairs from the lower bound on; those from the
 * upper bound on are surely selected, and cleared at once. The k-th is searched among the few
 * keys in between, by histograms. Then the staged pairs are written to their places.
 * Memory: pairs are staged in pages of 128 or 256, drawn from a pool as warps need them, so that
 * data whose large values lie close together takes no more than data where they don't: 0.5 bytes
 * a value and 16 bytes for each of k in all, and 256 KiB. When the sample misleads, exact bins
 * of all values replace it and the scan is done again; where the candidates do not fit then
 * either (ties), the k-th comes from histograms of all values, and two more passes count and
 * write.
 * Result: as on the host; min(k, entries that are not 0), ties to the lower index, NaN is the
 * largest.
 * Cost: five launches; 1 read of n (fused: 2 and a write), 24 bytes for each candidate; at worst
 * 6 reads more. */
#include "topk_parts.cuh"

#include <cmath>

/* ---- the sample ----------------------------------------------------------------------------- */

struct sample_task {
    topk_task t;
    /* In the sample, from the largest. low_rank past it: take all; high_rank 0: nothing is sure. */
    u32 low_rank, high_rank;
};

template <class T>
static __device__ __forceinline__ void sample_bounds(const sample_task &s, u32 *warps) {
    const u32 PER = SAMPLE_BINS / SAMPLERS, top = SAMPLE_BINS - PER * (threadIdx.x + 1);
    const int SHIFT = T::KEY_BITS - SAMPLE_BITS;
    u32 count[PER], sum = 0, total;
#pragma unroll
    for (u32 i = 0; i < PER; i++)
        sum += count[i] = __ldcg(s.t.sample + top + i);
    u32 c = block_prefix(sum, warps, &total) - sum;
    if (threadIdx.x == 0) {
        if (s.low_rank > total) s.t.state->tlo = 1;
        if (s.high_rank == 0 || s.high_rank > total) s.t.state->thi = T::NONE;
    }
#pragma unroll
    for (u32 i = PER; i-- > 0;) {
        if (s.low_rank > c && s.low_rank - c <= count[i])
            s.t.state->tlo = max_u32(1, (top + i) << SHIFT);
        if (s.high_rank > c && s.high_rank - c <= count[i]) {
            u32 thi = (top + i + 1) << SHIFT;
            s.t.state->thi = thi > T::NAN_KEY ? (u32)T::NONE : thi;
        }
        c += count[i];
    }
}

struct sample_room {
    u32 warps[SAMPLERS / 32], last;
};

/* Counts in shared memory first: straight to global memory took 0.1 ms more. Two counts of 16
 * bits share a word: a block has at most 8,192 values. */
template <class T, int FORM>
__global__ void __launch_bounds__(SAMPLERS) sample_kernel(sample_task s) {
    RILL_SHARED(sample_room, room);
    RILL_SHARED_DYNAMIC(u32, bins);
    const topk_task &t = s.t;
    const u32 group = blockIdx.x * SAMPLERS + threadIdx.x;
    const int SHIFT = T::KEY_BITS - SAMPLE_BITS;
    uint4 v = make_uint4(0, 0, 0, 0);
    u32 bad = 0;
    if (group < t.sample_groups) {
        u32 jitter = (u32)(rill__hd_mix(group + 1) >> 32) % t.sample_stride;
        size_t at = (size_t)group * t.sample_stride + jitter;
        v = __ldg((const uint4 *)(FORM == 0 ? t.dense : t.residual) + at);
        if (FORM == 2) add_row<T>(v, __ldg((const uint4 *)t.gradient + at), T::PER, t.guards, bad);
    }
    for (u32 i = threadIdx.x; i < SAMPLE_BINS / 2; i += SAMPLERS)
        bins[i] = 0;
    __syncthreads();
    if (group < t.sample_groups)
#pragma unroll
        for (int j = 0; j < T::PER; j++) {
            u32 bin = key_of<T>(bits_at<T>(v, j)) >> SHIFT;
            atomicAdd(&bins[bin >> 1], bin & 1 ? 65536u : 1u);
        }
    __syncthreads();
    for (u32 i = threadIdx.x; i < SAMPLE_BINS / 2; i += SAMPLERS) {
        u32 two = bins[i];
        if (two & 65535) atomicAdd(&t.sample[2 * i], two & 65535);
        if (two >> 16) atomicAdd(&t.sample[2 * i + 1], two >> 16);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) room.last = atomicAdd(&t.state->blocks_done, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!room.last) return;
    __threadfence();
    sample_bounds<T>(s, room.warps);
}

/* ---- the scan ------------------------------------------------------------------------------- */

template <class T, int FORM, int UNROLL>
__global__ void __launch_bounds__(SCANNERS) scan_kernel(topk_task t) {
    const u32 segment = (blockIdx.x * SCANNERS + threadIdx.x) >> 5;
    if (segment >= t.segments) return;
    const u32 tlo = __ldcg(&t.state->tlo), thi = __ldcg(&t.state->thi);
    if (lane_id() == 0) t.above[segment] = t.equal[segment] = 0;
    /* In vain; but a residual must get its gradient. The whole warp sees the same. */
    if (FORM == 0 && __any_sync(RILL_FULL, __ldcg(&t.state->overflow) != 0)) return;
    scan_segment<T, FORM, UNROLL>(t, segment, tlo, thi);
}

/* ---- the k-th, and where the segments' pairs go -------------------------------------------- */

struct finish_room {
    u32 bins[LEVEL_BINS];
    bin_room find;
    u32 above, equal;
};

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

/* The key of this rank among the window's, and its rank among the equal ones. */
template <class T>
static __device__ u32 search_window(const topk_task &t, finish_room &room, u32 tlo, u32 thi,
                                    u32 &rank) {
    const u32 total = min_u32(t.state->window_pages, t.max_window) * shape<T>::PAGE;
    u32 low = tlo, width = min_u32(thi, T::NAN_KEY + 1) - tlo;
    int bits = width > 1 ? 32 - __clz((int)(width - 1)) : 0;
    int shift = bits > LEVEL_BITS ? bits - LEVEL_BITS : 0;
    for (int level = 0;; level++) {
        u32 *bins = t.level + level * LEVEL_BINS;
        for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
            room.bins[i] = 0;
        __syncthreads();
        for (u32 i = blockIdx.x * FINISHERS + threadIdx.x; i < total; i += gridDim.x * FINISHERS) {
            u32 d = t.window[i] - low;
            if (t.window[i] && d < width) atomicAdd(&room.bins[d >> shift], 1u);
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
            if (room.bins[i]) atomicAdd(&bins[i], room.bins[i]);
        __threadfence();
        rill__grid_sync();
        low += find_bin(bins, rank, room.find) << shift;
        width = 1u << shift;
        if (shift == 0) return low;
        shift = shift > LEVEL_BITS ? shift - LEVEL_BITS : 0;
    }
}

/* False: the staged pairs don't have the result. All blocks agree. */
template <class T> static __device__ bool finish(const topk_task &t, finish_room &room) {
    const topk_state *state = t.state;
    const u32 tlo = __ldcg(&state->tlo), thi = __ldcg(&state->thi);
    const u64 found = __ldcg(&state->found), sure = __ldcg(&state->sure);
    if (__ldcg(&state->overflow) || sure > t.k || (found < t.k && tlo > 1)) return false;
    u32 key = tlo - 1, ties = 0;
    if (found > t.k) {
        ties = t.k - (u32)sure;
        if (ties) key = search_window<T>(t, room, tlo, thi, ties);
        else key = thi - 1;
    }
    const u32 PAGE = shape<T>::PAGE, pages = min_u32(state->window_pages, t.max_window);
    for (u32 page = (blockIdx.x * FINISHERS + threadIdx.x) >> 5; page < pages;
         page += gridDim.x * (FINISHERS / 32)) {
        u32 above = 0, equal = 0, owner = t.window_owner[page];
        for (u32 i = lane_id(); i < PAGE; i += 32) {
            u32 x = t.window[page * PAGE + i];
            above += x && x > key;
            equal += x && x == key;
        }
        above = __reduce_add_sync(RILL_FULL, above);
        equal = __reduce_add_sync(RILL_FULL, equal);
        if (lane_id() == 0) {
            if (above) atomicAdd(&t.above[owner], above);
            if (equal) atomicAdd(&t.equal[owner], equal);
        }
    }
    for (u32 s = blockIdx.x * FINISHERS + threadIdx.x; s < t.segments; s += gridDim.x * FINISHERS)
        if (t.staged[s] != t.windowed[s]) atomicAdd(&t.above[s], t.staged[s] - t.windowed[s]);
    __threadfence();
    rill__grid_sync();
    place_segments(t, room, key, ties, min_u32((u32)found, t.k));
    return true;
}

template <class T> __global__ void __launch_bounds__(FINISHERS, 2) finish_kernel(topk_task t) {
    RILL_SHARED(finish_room, room);
    if (!finish<T>(t, room) && blockIdx.x == 0 && threadIdx.x == 0) t.state->failed = 1;
}

/* ---- output --------------------------------------------------------------------------------- */

/* Where a warp writes the selected of the pairs that it sees in order. */
struct writer {
    u32 at, equal, key, ties;
};
template <class T>
static __device__ __forceinline__ bool write_pair(const topk_task &t, writer &w, bool in, u32 index,
                                                  u32 bits) {
    u32 key = key_of<T>(bits), below = lanes_below();
    bool tie = in && key == w.key, take = in && key > w.key;
    u32 mask = __ballot_sync(RILL_FULL, tie);
    take = take || (tie && w.equal + __popc(mask & below) < w.ties);
    w.equal += __popc(mask);
    mask = __ballot_sync(RILL_FULL, take);
    if (take) {
        u32 to = w.at + __popc(mask & below);
        t.idx[to] = index;
        ((typename T::word *)t.val)[to] = (typename T::word)bits;
    }
    w.at += __popc(mask);
    return take;
}

template <class T, int FORM>
static __device__ __forceinline__ void write_segment(const topk_task &t, u32 segment) {
    const u32 PAGE = shape<T>::PAGE, thi = __ldcg(&t.state->thi);
    writer w = {t.above[segment], t.equal[segment], __ldcg(&t.state->key), __ldcg(&t.state->ties)};
    int page = t.head[segment];
    for (u32 left = t.staged[segment]; left;) {
        const u32 have = min_u32(left, PAGE);
        const uint2 *from = t.page + (size_t)page * PAGE;
        uint2 q[T::PER];
        int next = t.page_next[page];
#pragma unroll
        for (int u = 0; u < T::PER; u++) {
            u32 i = u * 32 + lane_id();
            q[u] = i < have ? __ldcs(from + i) : make_uint2(0, 0);
        }
#pragma unroll
        for (int u = 0; u < T::PER; u++) {
            bool take = write_pair<T>(t, w, u * 32 + lane_id() < have, q[u].x, q[u].y);
            if (FORM && take && (q[u].y & T::MAGNITUDE) < thi)
                ((typename T::word *)t.residual)[q[u].x] = 0;
        }
        left -= have;
        page = next;
    }
}

template <class T, int FORM> __global__ void __launch_bounds__(SCANNERS) write_kernel(topk_task t) {
    const u32 segment = (blockIdx.x * SCANNERS + threadIdx.x) >> 5;
    if (segment >= t.segments || __ldcg(&t.state->failed)) return;
    write_segment<T, FORM>(t, segment);
}

#include "topk_again.cuh"

/* ---- launches ------------------------------------------------------------------------------- */

/* How many segments: enough for every warp of the device, but rows for each to fill its pages. */
static void plan_segments(u32 n, u32 row, u32 sms, topk_task *t) {
    u32 rows = n / row + (n % row != 0), most = sms * 32 * 4;
    t->rows = (u32)div_up(rows, most) > 48 ? (u32)div_up(rows, most) : 48;
    t->segments = (u32)div_up(rows, t->rows);
}

static size_t plan(int type, u64 n, u64 k, u32 sms, char *base, topk_task *t) {
    const u32 per = type == RILL__CUDA_F32 ? 4 : 8, row = 32 * per;
    carver c = {base, 0};
    plan_segments((u32)n, row, sms, t);
    t->state = c.take<topk_state>(1); /* state, sample and level are zeroed together */
    t->sample = c.take<u32>(SAMPLE_BINS);
    t->level = c.take<u32>(LEVELS * LEVEL_BINS);
    t->head = c.take<int>(t->segments);
    t->staged = c.take<u32>(t->segments);
    t->windowed = c.take<u32>(t->segments);
    t->above = c.take<u32>(t->segments);
    t->equal = c.take<u32>(t->segments);
    t->block_above = c.take<u32>(2 * sms);
    t->block_equal = c.take<u32>(2 * sms);
    /* A quarter of the room for the keys between the bounds, the rest for pairs. */
    size_t room = (size_t)(n / 2 + 16 * k), fixed = 24 * (size_t)t->segments;
    room = room > fixed ? room - fixed : 0;
    t->max_window = (u32)(room / 4 / (4 * row + 4));
    t->max_pages = (u32)(room / 4 * 3 / (8 * row + 4));
    if (t->max_window < 1) t->max_window = 1;
    if (t->max_pages < 1) t->max_pages = 1;
    t->page_next = c.take<int>(t->max_pages);
    t->window_owner = c.take<u32>(t->max_window);
    t->page = c.take<uint2>((u64)t->max_pages * row);
    t->window = c.take<u32>((u64)t->max_window * row);
    return c.used;
}

#define MARGIN 6.0 /* standard deviations; vectors of neighbours are less than independent values */

static sample_task plan_sample(int type, const topk_task &t) {
    const u32 per = type == RILL__CUDA_F32 ? 4 : 8, vectors = t.n / per;
    sample_task s = {t, 1, 0};
    u32 least = vectors < 16384 ? vectors : 16384;
    s.t.sample_groups = vectors / 256 > least ? vectors / 256 : least;
    s.t.sample_stride = s.t.sample_groups ? vectors / s.t.sample_groups : 1;
    double all = (double)s.t.sample_groups * per, share = (double)t.k / t.n, mean = all * share;
    double margin = MARGIN * sqrt(mean * (1 - share)) + 4;
    double low = ceil(mean + margin), high = floor(mean - margin);
    s.low_rank = low < 4294967295.0 ? (u32)low : 0xffffffffu;
    s.high_rank = high >= 1 ? (u32)high : 0;
    return s;
}

template <class T, int FORM> static int run(const topk_task &t, u32 sms, void *stream) {
    const int UNROLL = FORM == 2 ? 4 : 8;
    const size_t bins = SAMPLE_BINS / 2 * sizeof(u32);
    sample_task s = plan_sample(T::TYPE, t);
    u32 samplers = (u32)div_up(s.t.sample_groups, SAMPLERS), scanners = (u32)div_up(t.segments, 8);
    topk_task task = s.t;
    size_t zeroed = (size_t)((char *)(t.level + LEVELS * LEVEL_BINS) - (char *)t.state);
    RILL_CUDA_TRY(rill__cuda_zero(t.state, zeroed, stream));
    RILL_CUDA_TRY(rill__cuda_shared_limit((const void *)sample_kernel<T, FORM>, bins));
    RILL_CUDA_TRY(launch_any(sample_kernel<T, FORM>, s, samplers ? samplers : 1, SAMPLERS, bins,
                             stream, false));
    RILL_CUDA_TRY(launch(scan_kernel<T, FORM, UNROLL>, task, scanners, SCANNERS, stream));
    RILL_CUDA_TRY(launch_any(finish_kernel<T>, task, 2 * sms, FINISHERS, 0, stream, true));
    RILL_CUDA_TRY(launch(write_kernel<T, FORM>, task, scanners, SCANNERS, stream));
    return launch_any(again_kernel<T, FORM>, task, 2 * sms, FINISHERS, 0, stream, true);
}

template <class T> static int run_form(const topk_task &t, u32 sms, void *stream) {
    if (t.gradient) return run<T, 2>(t, sms, stream);
    return t.residual ? run<T, 1>(t, sms, stream) : run<T, 0>(t, sms, stream);
}

size_t rill__cuda_topk_workspace(int type, uint64_t n, uint64_t k) {
    topk_task t;
    u32 sms;
    if (n > RILL__CUDA_MOST || rill__cuda_sms(&sms)) return 0;
    return plan(type, n, k < n ? k : n, sms, NULL, &t);
}

int rill__cuda_topk(const rill__cuda_select *s, uint64_t k, void *stream) {
    topk_task t = {};
    u32 sms;
    if (s->n > RILL__CUDA_MOST) return RILL_CUDA_INVALID;
    if (k > s->n) k = s->n;
    if (!k) return rill__cuda_zero_found(s, stream);
    RILL_CUDA_TRY(rill__cuda_sms(&sms));
    t.dense = s->dense;
    t.residual = s->residual;
    t.gradient = s->gradient;
    t.n = (u32)s->n;
    t.k = (u32)k;
    t.idx = s->idx;
    t.val = s->val;
    t.result = s->found;
    t.guards = s->guards;
    if (plan(s->type, s->n, k, sms, (char *)s->workspace, &t) > s->workspace_bytes)
        return RILL_CUDA_INVALID;
    switch (s->type) {
    case RILL__CUDA_F32: return run_form<f32>(t, sms, stream);
    case RILL__CUDA_F16: return run_form<f16>(t, sms, stream);
    case RILL__CUDA_BF16: return run_form<bf16>(t, sms, stream);
    default: return RILL_CUDA_INVALID;
    }
}
