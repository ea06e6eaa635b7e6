/* topk: the k entries of largest magnitude, exactly; alone, or fused with a residual.
 *
 * Idea: as select/select_topk.c, one read of the data. A sample of 1 in 128 values bounds the
 * k-th largest key from both sides. The scan reads every value once (fused: reads the gradient,
 * reads and writes the residual) and stages the pairs from the lower bound on; those from the
 * upper bound on are surely selected, and cleared at once. The keys in between, the window, are
 * counted in bins and listed; a second level of bins has the k-th. Then the staged pairs are
 * written to their places, which each tile finds by looking back (ordered.cuh).
 * Memory: pairs are staged in pages, drawn from a pool as warps need them, so that data whose
 * large values lie close together takes no more than data where they don't: 0.5 bytes a value
 * and 16 bytes for each of k in all, and 256 KiB; where n is large and k at most n / 64, 0.375
 * bytes a value and 2 bytes for each of k. When the sample misleads, or the candidates do
 * not fit (ties), the k-th comes from bins of all values, and two more passes count and write.
 * Result: as on the host; min(k, entries that are not 0), ties to the lower index, NaN is the
 * largest.
 * Cost: five launches; 1 read of n (fused: 2 and a write), 24 bytes for each candidate; at worst
 * 5 reads more. */
#include "topk_parts.cuh"

#include <cmath>

/* ---- the sample ----------------------------------------------------------------------------- */

struct sample_task {
    topk_task t;
    /* In the sample, from the largest. low_rank past it: take all; high_rank 0: nothing is sure. */
    u32 low_rank, high_rank;
    u32 most_staged, most_window; /* in the sample: with more there is no use in staging */
};

/* From the counts of all blocks, by one: a warp sums its part of the bins, those with the ranks
 * in them find the bins. */
template <class T>
static __device__ __forceinline__ void sample_bounds(const sample_task &s, u32 *warps) {
    const u32 PART = SAMPLE_BINS / (SAMPLERS / 32), PER = PART / 32, warp = threadIdx.x >> 5,
              lane = lane_id();
    const int SHIFT = T::KEY_BITS - SAMPLE_BITS;
    const u32 *part = s.t.sample + SAMPLE_BINS - PART * (warp + 1);
    u32 sum = 0;
#pragma unroll
    for (u32 i = 0; i < PER; i++)
        sum += __ldcg(part + i * 32 + lane);
    sum = __reduce_add_sync(RILL_FULL, sum);
    if (lane == 0) warps[warp] = sum;
    __syncthreads();
    u32 c = __reduce_add_sync(RILL_FULL, lane < warp ? warps[lane] : 0);
    const u32 total = __reduce_add_sync(RILL_FULL, warps[lane]), low = s.low_rank,
              high = s.high_rank;
    if (threadIdx.x == 0) {
        if (low > total) s.t.state->tlo = 1;
        if (high == 0 || high > total) s.t.state->thi = T::NONE;
    }
    if (!(low > c && low - c <= sum) && !(high > c && high - c <= sum)) return;
    const u32 top = PART - PER * (lane + 1); /* of this lane's bins, from the top down */
    u32 count[PER], mine = 0;
#pragma unroll
    for (u32 i = 0; i < PER; i += 4) {
        const uint4 q = __ldcg((const uint4 *)(part + top + i));
#pragma unroll
        for (int j = 0; j < 4; j++)
            mine += count[i + j] = word_at(q, j);
    }
    c += warp_prefix(mine) - mine;
#pragma unroll
    for (u32 i = PER; i-- > 0;) {
        const u32 bin = (u32)(part - s.t.sample) + top + i;
        if (low > c && low - c <= count[i]) {
            s.t.state->tlo = max_u32(1, bin << SHIFT);
            const u32 staged = c + (bin ? count[i] : 0); /* the lowest has zeros, which are not */
            if (staged > s.most_staged || (staged > high && staged - high > s.most_window))
                s.t.state->overflow = 1;
        }
        if (high > c && high - c <= count[i])
            s.t.state->thi = (bin + 1) << SHIFT > T::NAN_KEY ? (u32)T::NONE : (bin + 1) << SHIFT;
        c += count[i];
    }
}

struct sample_room {
    u32 warps[SAMPLERS / 32], last;
};

/* Counts in shared memory first: straight to global memory took 0.1 ms more. Two counts of 16
 * bits share a word: a block has at most 16,384 values. */
template <class T, int FORM>
__global__ void __launch_bounds__(SAMPLERS) sample_kernel(sample_task s) {
    RILL_SHARED(sample_room, room);
    RILL_SHARED_DYNAMIC(u32, bins);
    const topk_task &t = s.t;
    const u32 group = blockIdx.x * SAMPLERS + threadIdx.x;
    const int SHIFT = T::KEY_BITS - SAMPLE_BITS;
    uint4 v[2] = {};
    u32 bad = 0;
    if (group < t.sample_groups) {
        u32 jitter = (u32)(rill__hd_mix(group + 1) >> 32) % t.sample_stride;
        const size_t at = 2 * ((size_t)group * t.sample_stride + jitter);
        const uint4 *from = (const uint4 *)(FORM == 0 ? t.dense : t.residual) + at;
        v[0] = __ldg(from);
        v[1] = __ldg(from + 1);
        if (FORM == 2) {
            const uint4 *gradient = (const uint4 *)t.gradient + at;
            const uint4 first = __ldg(gradient), second = __ldg(gradient + 1);
            add_row<T>(v[0], first, t.guards, bad);
            add_row<T>(v[1], second, t.guards, bad);
        }
    }
    for (u32 i = threadIdx.x; i < SAMPLE_BINS / 2; i += SAMPLERS)
        bins[i] = 0;
    __syncthreads();
    if (group < t.sample_groups)
#pragma unroll
        for (int j = 0; j < 2 * T::PER; j++) {
            u32 bin = key_of<T>(bits_at<T>(v[j / T::PER], j % T::PER)) >> SHIFT;
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
    __syncthreads();
    const u32 least = __ldcg(&t.state->tlo) >> SHIFT;
#pragma unroll
    for (int j = 0; j < T::PER; j++) {
        const u32 key = key_of<T>(bits_at<T>(v[0], j));
        if (key >> SHIFT == least) t.state->guess = key; /* any of them */
    }
}

/* ---- the scan ------------------------------------------------------------------------------- */

enum { MOST_BLOCKS = 3 };
template <class T, int FORM> struct scan_shape {
    enum {
        BYTES = LEVEL_BINS * 4 + SCANNERS / 32 * (int)sizeof(typename batch<T, FORM>::room),
        BLOCKS = FORM == 2
                     ? 2
                     : (int)MOST_BLOCKS /* of a multiprocessor; more only wait for each other */
    };
};

template <class T, int FORM>
__global__ void __launch_bounds__(SCANNERS, (scan_shape<T, FORM>::BLOCKS))
    scan_kernel(topk_task t) {
    RILL_SHARED_DYNAMIC(u32, memory);
    scan<T, FORM>(t, (typename batch<T, FORM>::room *)(memory + LEVEL_BINS), memory);
}

/* ---- the k-th ------------------------------------------------------------------------------- */

struct finish_room {
    u32 bins[LEVEL_BINS];
    bin_room find;
    u32 above, equal;
};

static __device__ __forceinline__ void set_kth(const topk_task &t, u32 key, u32 ties) {
    t.state->key = key;
    t.state->ties = ties;
}

/* Counts the window's keys in [low, low + width) in room.bins, this block's part of `parts`. */
static __device__ __forceinline__ void count_window(const topk_task &t, finish_room &room,
                                                    u32 total, u32 low, u32 width, int shift,
                                                    u32 part, u32 parts) {
    for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
        room.bins[i] = 0;
    __syncthreads();
    for (u32 i = part * FINISHERS + threadIdx.x; i < total; i += parts * FINISHERS) {
        u32 d = __ldcg(t.window + i) - low;
        if (d < width) atomicAdd(&room.bins[d >> shift], 1u);
    }
    __syncthreads();
}

/* Levels below the second: few keys are left, and one block counts them. */
static __device__ __forceinline__ void finish_levels(const topk_task &t, finish_room &room,
                                                     u32 total, u32 low, int shift, u32 rank) {
    while (shift) {
        const u32 width = 1u << shift;
        shift = shift > LEVEL_BITS ? shift - LEVEL_BITS : 0;
        count_window(t, room, total, low, width, shift, 0, 1);
        u32 *bins = t.level + 2 * LEVEL_BINS;
        for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
            bins[i] = room.bins[i];
        __threadfence();
        __syncthreads();
        low += find_bin(bins, rank, room.find) << shift;
    }
    if (threadIdx.x == 0) set_kth(t, low, rank);
}

template <class T>
static __device__ __forceinline__ void find_kth(const topk_task &t, finish_room &room) {
    topk_state *state = t.state;
    const u32 tlo = __ldcg(&state->tlo), thi = __ldcg(&state->thi), total = __ldcg(&state->window);
    const u64 found = __ldcg(&state->found), sure = found - total;
    const bool first = blockIdx.x == 0 && threadIdx.x == 0;
    if (__ldcg(&state->overflow) || sure > t.k || (found < t.k && tlo > 1)) {
        if (first) state->failed = 1;
        return;
    }
    if (first) {
        t.result->count = min_u32((u32)found, t.k);
        t.result->nonfinite = __ldcg(&state->nonfinite);
        if (found <= t.k) set_kth(t, tlo - 1, 0);
        else if (sure == t.k) set_kth(t, thi - 1, 0);
    }
    if (found <= t.k || sure == t.k) return;
    u32 rank = t.k - (u32)sure;
    int shift = window_shift<T>(tlo, thi);
    const u32 low = tlo + (find_bin(t.level, rank, room.find) << shift), width = 1u << shift;
    shift = shift > LEVEL_BITS ? shift - LEVEL_BITS : 0;
    count_window(t, room, total, low, width, shift, blockIdx.x, gridDim.x);
    u32 *bins = t.level + LEVEL_BINS;
    for (u32 i = threadIdx.x; i < LEVEL_BINS; i += FINISHERS)
        if (room.bins[i]) atomicAdd(&bins[i], room.bins[i]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) room.above = atomicAdd(&state->ranked, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!room.above) return;
    __threadfence();
    const u32 from = low + (find_bin(bins, rank, room.find) << shift); /* changes rank, too */
    finish_levels(t, room, total, from, shift, rank);
}

template <class T> __global__ void __launch_bounds__(FINISHERS) kth_kernel(topk_task t) {
    RILL_SHARED(finish_room, room);
    wait_before();
    find_kth<T>(t, room);
}

/* ---- output --------------------------------------------------------------------------------- */

/* Where a warp writes the selected of the pairs that it sees in order. */
struct writer {
    u32 at, equal, key, ties;
};
template <class T, int FORM>
static __device__ __forceinline__ void write_pair(const topk_task &t, writer &w, bool in, uint2 q,
                                                  u32 thi) {
    u32 key = key_of<T>(q.y), below = lanes_below();
    bool tie = in && key == w.key, take = in && key > w.key;
    u32 mask = __ballot_sync(RILL_FULL, tie);
    if (mask) {
        take = take || (tie && w.equal + __popc(mask & below) < w.ties);
        w.equal += __popc(mask);
    }
    mask = __ballot_sync(RILL_FULL, take);
    if (take) {
        u32 to = w.at + __popc(mask & below);
        __stcs(t.idx + to, q.x);
        __stcs((typename T::word *)t.val + to, (typename T::word)q.y);
        if (FORM && (q.y & T::MAGNITUDE) < thi) ((typename T::word *)t.residual)[q.x] = 0;
    }
    w.at += __popc(mask);
}

struct write_room {
    ordered_room order;
    u64 warps[SCANNERS / 32];
};

/* What the tiles before this one and the warps before this one have, by the counts of all. */
static __device__ __forceinline__ u64 place_warp(const topk_task &t, write_room &room, u32 tile,
                                                 u32 above, u32 equal) {
    const u32 warp = threadIdx.x >> 5;
    u64 before = 0, all = 0;
    above = __reduce_add_sync(RILL_FULL, above);
    equal = __reduce_add_sync(RILL_FULL, equal);
    if (lane_id() == 0) room.warps[warp] = two_counts(above, equal);
    __syncthreads();
#pragma unroll
    for (u32 w = 0; w < SCANNERS / 32; w++) {
        before += w < warp ? room.warps[w] : 0;
        all += room.warps[w];
    }
    return before + ordered_before(t.order, room.order, tile, all);
}

/* A warp has 2^group_bits segments; where none has too many, their pairs stay in registers
 * between counting and writing. */
template <class T, int FORM> __global__ void __launch_bounds__(SCANNERS) write_kernel(topk_task t) {
    RILL_SHARED(write_room, room);
    wait_before();
    if (__ldcg(&t.state->failed)) return;
    const u32 tile = ordered_next(t.order, room.order), lane = lane_id(),
              group = 1u << t.group_bits;
    const u32 segment = (tile * (SCANNERS / 32) + (threadIdx.x >> 5)) * group + lane;
    const u32 key = __ldcg(&t.state->key), ties = __ldcg(&t.state->ties),
              thi = __ldcg(&t.state->thi);
    const u32 rows = HELD >> t.group_bits; /* of a segment */
    run r = {0, 0, 0};
    if (lane < group && segment < t.segments) r = t.runs[segment];
    const bool held = __reduce_max_sync(RILL_FULL, r.count) <= rows * 32 &&
                      rows * 32 <= t.page_size;
    u32 above = 0, equal = 0;
    uint2 q[HELD];
    u32 here = 0;
    if (held) {
#pragma unroll
        for (u32 u = 0; u < HELD; u++) {
            const u32 owner = u / rows, i = u % rows * 32 + lane;
            const u32 start = __shfl_sync(RILL_FULL, r.start, (int)owner),
                      second = (u32)__shfl_sync(RILL_FULL, r.second, (int)owner),
                      left = t.page_size - (start & (t.page_size - 1));
            const bool in = i < __shfl_sync(RILL_FULL, r.count, (int)owner);
            here |= (u32)in << u;
            q[u] = make_uint2(0, 0);
            if (in)
                q[u] = __ldcs(t.page + (i < left ? start + i : second * t.page_size + i - left));
        }
#pragma unroll
        for (u32 u = 0; u < HELD; u++) {
            above += (here >> u & 1) && key_of<T>(q[u].y) > key;
            equal += (here >> u & 1) && key_of<T>(q[u].y) == key;
        }
    } else
        for (u32 g = 0; g < group; g++) {
            run one = {__shfl_sync(RILL_FULL, r.start, (int)g),
                       __shfl_sync(RILL_FULL, r.count, (int)g), 0};
            each_staged(t, one, [&](u32 at, bool in) {
                u32 x = in ? key_of<T>(t.page[at].y) : 0;
                above += in && x > key;
                equal += in && x == key;
            });
        }
    const u64 before = place_warp(t, room, tile, above, equal);
    writer w = {first_count(before) + min_u32(second_count(before), ties), second_count(before),
                key, ties};
    if (held) {
#pragma unroll
        for (u32 u = 0; u < HELD; u++)
            if (__any_sync(RILL_FULL, here >> u & 1))
                write_pair<T, FORM>(t, w, here >> u & 1, q[u], thi);
        return;
    }
    for (u32 g = 0; g < group; g++) {
        run one = {__shfl_sync(RILL_FULL, r.start, (int)g), __shfl_sync(RILL_FULL, r.count, (int)g),
                   0};
        each_staged(t, one, [&](u32 at, bool in) {
            write_pair<T, FORM>(t, w, in, in ? t.page[at] : make_uint2(0, 0), thi);
        });
    }
}

#include "topk_again.cuh"

/* ---- launches ------------------------------------------------------------------------------- */

/* How many segments a warp writes, and how large pages are: a segment should find its pairs in
 * two, and what the last pages of warps leave free may take a third of the room. */
static void plan_pages(u64 n, u64 k, size_t room, topk_task *t) {
    double mean = 1.08 * (1u << t->segment_bits) * (double)k / (double)n,
           most = mean + 5 * sqrt(mean) + 8;
    u32 least = n >> 25 ? 256 : 64;
    t->group_bits = 4;
    while (t->group_bits && (HELD * 32 >> t->group_bits) < most)
        t->group_bits--;
    t->page_size = 64;
    while ((t->page_size < most || t->page_size < least) && t->page_size < HELD * 32 &&
           (size_t)t->warps * t->page_size * 2 * 16 <= room / 3)
        t->page_size *= 2;
}

/* Of room: few of many values need less. Two pages a warp and 1.5 k pairs there are in any case. */
static size_t enough(u64 n, u64 k, size_t room, size_t fixed, const topk_task *t) {
    const size_t need = (2 * (size_t)t->warps * (8 * t->page_size + 4) + 12 * (size_t)k) / 3 * 4;
    size_t less = (size_t)(n / 8 * 3 + 2 * k);
    less = less > fixed + need ? less - fixed : need;
    return k <= n / 64 && less < room ? less : room;
}

static size_t plan(u64 n, u64 k, u32 sms, char *base, topk_task *t) {
    const u32 warps = sms * MOST_BLOCKS * (SCANNERS / 32);
    carver c = {base, 0};
    const u64 segments = div_up(n, 1u << SEGMENT_BITS_ADDING); /* at most */
    t->segment_bits = t->gradient ? SEGMENT_BITS_ADDING : SEGMENT_BITS;
    t->segments = (u32)div_up(n, 1u << t->segment_bits);
    t->warps = t->segments < warps ? t->segments : warps;
    t->state = c.take<topk_state>(1); /* all up to runs is zeroed together */
    t->sample = c.take<u32>(SAMPLE_BINS);
    t->level = c.take<u32>(LEVELS * LEVEL_BINS);
    t->order = ordered_carve(c, div_up(segments, SCANNERS / 32));
    t->runs = c.take<run>(segments);
    t->zeroed = c.used;
    t->above = c.take<u32>(segments);
    t->equal = c.take<u32>(segments);
    t->block_above = c.take<u32>(2 * sms);
    t->block_equal = c.take<u32>(2 * sms);
    /* A quarter of the room for the keys between the bounds, the rest for pairs. */
    size_t room = (size_t)(n / 2 + 16 * k), fixed = 24 * (size_t)segments;
    room = room > fixed ? room - fixed : 0;
    plan_pages(n, k, room / 4 * 3, t);
    room = enough(n, k, room, fixed, t);
    t->max_window = (u32)(room / 4 / 4);
    t->max_pages = (u32)(room / 4 * 3 / (8 * t->page_size + 4));
    if (t->max_window < KEYS) t->max_window = KEYS;
    if (t->max_pages < 4) t->max_pages = 4;
    if (t->max_pages > 0xffffffffu / t->page_size) t->max_pages = 0xffffffffu / t->page_size;
    t->page_next = c.take<int>(t->max_pages);
    t->page = c.take<uint2>((u64)t->max_pages * t->page_size);
    t->window = c.take<u32>(t->max_window);
    return c.used;
}

#define MARGIN 6.0 /* standard deviations; vectors of neighbours are less than independent values */

static sample_task plan_sample(int type, const topk_task &t) {
    const u32 per = type == RILL__CUDA_F32 ? 8 : 16, pairs = t.n / per; /* of vectors */
    sample_task s = {t, 1, 0, 0, 0};
    u32 least = pairs < 16384 ? pairs : 16384;
    s.t.sample_groups = pairs / SAMPLE_SHARE > least ? pairs / SAMPLE_SHARE : least;
    s.t.sample_stride = s.t.sample_groups ? pairs / s.t.sample_groups : 1;
    double all = (double)s.t.sample_groups * per, share = (double)t.k / t.n, mean = all * share;
    double margin = MARGIN * sqrt(mean * (1 - share)) + 4;
    double low = ceil(mean + margin), high = floor(mean - margin);
    s.low_rank = low < 4294967295.0 ? (u32)low : 0xffffffffu;
    s.high_rank = high >= 1 ? (u32)high : 0;
    s.most_staged = (u32)((double)t.max_pages * t.page_size / t.n * all);
    s.most_window = (u32)((double)t.max_window / t.n * all);
    return s;
}

template <class T, int FORM> static int run_topk(const topk_task &t, u32 sms, void *stream) {
    const size_t bins = SAMPLE_BINS / 2 * sizeof(u32), bytes = scan_shape<T, FORM>::BYTES;
    const u32 warps = SCANNERS / 32, group = warps << t.group_bits;
    sample_task s = plan_sample(T::TYPE, t);
    u32 samplers = (u32)div_up(s.t.sample_groups, SAMPLERS);
    u32 scanners = (u32)div_up(t.segments, warps), most = sms * scan_shape<T, FORM>::BLOCKS;
    if (scanners > most) scanners = most;
    s.t.warps = scanners * warps;
    topk_task task = s.t;
    RILL_CUDA_TRY(rill__cuda_zero(t.state, t.zeroed, stream));
    RILL_CUDA_TRY(rill__cuda_shared_limit((const void *)sample_kernel<T, FORM>, bins));
    RILL_CUDA_TRY(rill__cuda_shared_limit((const void *)scan_kernel<T, FORM>, bytes));
#ifndef RILL_EMULATE /* all blocks that fit */
    RILL_CUDA_TRY(cudaFuncSetAttribute(scan_kernel<T, FORM>,
                                       cudaFuncAttributePreferredSharedMemoryCarveout,
                                       cudaSharedmemCarveoutMaxShared));
#endif
    RILL_CUDA_TRY(launch_any(sample_kernel<T, FORM>, s, samplers ? samplers : 1, SAMPLERS, bins,
                             stream, false));
    RILL_CUDA_TRY(launch_after(scan_kernel<T, FORM>, task, scanners, SCANNERS, bytes, stream));
    RILL_CUDA_TRY(launch_after(kth_kernel<T>, task, sms, FINISHERS, 0, stream));
    RILL_CUDA_TRY(
        launch_after(write_kernel<T, FORM>, task, div_up(t.segments, group), SCANNERS, 0, stream));
    return launch_any(again_kernel<T, FORM>, task, 2 * sms, FINISHERS, 0, stream, true);
}

template <class T> static int run_form(const topk_task &t, u32 sms, void *stream) {
    if (t.gradient) return run_topk<T, 2>(t, sms, stream);
    return t.residual ? run_topk<T, 1>(t, sms, stream) : run_topk<T, 0>(t, sms, stream);
}
size_t rill__cuda_topk_workspace(int, uint64_t n, uint64_t k) {
    topk_task plain = {}, adding = {};
    u32 sms;
    if (n > RILL__CUDA_MOST || rill__cuda_sms(&sms)) return 0;
    adding.gradient = &adding; /* pages differ */
    const size_t a = plan(n, k < n ? k : n, sms, NULL, &plain),
                 b = plan(n, k < n ? k : n, sms, NULL, &adding);
    return a > b ? a : b;
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
    if (plan(s->n, k, sms, (char *)s->workspace, &t) > s->workspace_bytes) return RILL_CUDA_INVALID;
    switch (s->type) {
    case RILL__CUDA_F32: return run_form<f32>(t, sms, stream);
    case RILL__CUDA_F16: return run_form<f16>(t, sms, stream);
    case RILL__CUDA_BF16: return run_form<bf16>(t, sms, stream);
    default: return RILL_CUDA_INVALID;
    }
}

RILL_CUDA_ONE_OF_FILE(topk, (kth_kernel<f32>))
