/* Sums of several lists of pairs with ascending indices: no vector as large as the range.
 *
 * A bitmap has a bit for each index that occurs. One pass over it counts the bits before each group
 * of 256, by look-back (ordered.cuh). So the place of an index in the sum is known from eight words
 * of the bitmap and one count, and the lists are added one after the other: the order of sums is
 * the caller's. Sums begin with -0.0, to which any value can be added without a change.
 * Memory: (1 / 8 + 1 / 64) bytes for each index of the range. Cost: a read of the bitmap, and for
 * each entry an atomic, two loads from groups and a sum. */
#include "ordered.cuh"

enum { THREADS = 256, GROUP = 8 /* words of 32 bits */, GROUP_BITS = 32 * GROUP };
static const u64 MOST_BLOCKS = 1 << 20;

struct union_room {
    u32 *bits, *before;
    u64 groups, tiles;
    size_t cleared; /* bytes from the start that begin as zeros */
    ordered order;
};
static union_room carve_union(void *workspace, u64 dim) {
    carver c = {(char *)workspace, 0};
    union_room r = {};
    r.groups = div_up(dim, GROUP_BITS);
    r.tiles = div_up(r.groups, THREADS);
    r.bits = c.take<u32>(r.groups * GROUP);
    r.order = ordered_carve(c, r.tiles);
    r.cleared = c.used;
    r.before = c.take<u32>(r.groups);
    return r;
}

struct union_task {
    u32 *bits, *before;
    u64 groups, tiles, dim, count;
    const u32 *idx;
    const void *val;
    void *sum;
    u32 *out, *wrong;
    uint64_t *total;
    u64 first, range;
    ordered order;
};
static union_task task_of(void *workspace, u64 dim) {
    const union_room r = carve_union(workspace, dim);
    union_task t = {};
    t.bits = r.bits;
    t.before = r.before;
    t.groups = r.groups;
    t.tiles = r.tiles;
    t.dim = dim;
    t.order = r.order;
    return t;
}
static u64 blocks_for(u64 n) {
    u64 blocks = div_up(n, THREADS);
    return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}
static __device__ __forceinline__ u64 first_entry() {
    return (u64)blockIdx.x * THREADS + threadIdx.x;
}
static __device__ __forceinline__ u64 all_threads() { return (u64)gridDim.x * THREADS; }

size_t rill__cuda_union_workspace(uint64_t dim) {
    carver c = {NULL, 0};
    const u64 groups = div_up(dim, GROUP_BITS);
    c.take<u32>(groups * GROUP);
    ordered_carve(c, div_up(groups, THREADS));
    c.take<u32>(groups);
    return c.used;
}
int rill__cuda_union_begin(void *workspace, uint64_t dim, void *stream) {
    return rill__cuda_zero(workspace, carve_union(workspace, dim).cleared, stream);
}

/* ---- which indices occur -------------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS) mark_kernel(union_task t) {
    bool bad = false;
    for (u64 i = first_entry(); i < t.count; i += all_threads()) {
        const u32 index = t.idx[i];
        if (index < t.dim) atomicOr(&t.bits[index / 32], 1u << index % 32);
        else bad = true;
    }
    if (__any_sync(RILL_FULL, bad) && lane_id() == 0) atomicAdd(t.wrong, 1u);
}
int rill__cuda_union_mark(void *workspace, uint64_t dim, const uint32_t *idx, uint64_t count,
                          uint32_t *wrong, void *stream) {
    union_task t = task_of(workspace, dim);
    t.idx = idx;
    t.count = count;
    t.wrong = wrong;
    return launch(mark_kernel, t, blocks_for(count), THREADS, stream);
}

struct count_room {
    ordered_room order;
    u32 warps[THREADS / 32];
};
static __device__ __forceinline__ u32 bits_in(const uint4 &v) {
    return __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
}
__global__ void __launch_bounds__(THREADS) count_kernel(union_task t) {
    RILL_SHARED(count_room, room);
    const u32 tile = ordered_next(t.order, room.order);
    const u64 group = (u64)tile * THREADS + threadIdx.x;
    const uint4 *words = (const uint4 *)t.bits + 2 * group;
    u32 own = group < t.groups ? bits_in(words[0]) + bits_in(words[1]) : 0, all;
    const u32 up_to = block_prefix(own, room.warps, &all);
    const u64 before = ordered_before(t.order, room.order, tile, all);
    if (group < t.groups) t.before[group] = (u32)(before + up_to - own);
    if (tile == t.tiles - 1 && threadIdx.x == 0) *t.total = before + all;
}
int rill__cuda_union_count(void *workspace, uint64_t dim, uint64_t *total, void *stream) {
    union_task t = task_of(workspace, dim);
    t.total = total;
    if (!dim) return rill__cuda_zero(total, sizeof *total, stream);
    return launch(count_kernel, t, t.tiles, THREADS, stream);
}

/* A thread has a group. */
__global__ void __launch_bounds__(THREADS) list_kernel(union_task t) {
    const u64 group = first_entry();
    if (group >= t.groups) return;
    u32 *to = t.out + t.before[group];
    const uint4 *words = (const uint4 *)t.bits + 2 * group;
    for (u32 half = 0; half < 2; half++) {
        const uint4 four = words[half];
        for (int w = 0; w < 4; w++)
            for (u32 left = word_at(four, w); left; left &= left - 1)
                *to++ = (u32)(group * GROUP_BITS + half * 128 + (u32)w * 32) + 31u -
                        (u32)__clz((int)(left & (0u - left)));
    }
}
int rill__cuda_union_list(void *workspace, uint64_t dim, uint32_t *idx, void *stream) {
    union_task t = task_of(workspace, dim);
    t.out = idx;
    return launch(list_kernel, t, div_up(t.groups, THREADS), THREADS, stream);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static __device__ __forceinline__ u32 place_of(const union_task &t, u32 index) {
    const u32 group = index / GROUP_BITS, word = index / 32 % GROUP;
    const uint4 *words = (const uint4 *)t.bits + 2 * (u64)group;
    const uint4 low = words[0], high = words[1];
    u32 place = t.before[group];
#pragma unroll
    for (u32 w = 0; w < GROUP; w++) {
        const u32 bits = word_at(w < 4 ? low : high, (int)(w % 4));
        place += __popc(w < word ? bits : w == word ? bits & ((1u << index % 32) - 1) : 0u);
    }
    return place;
}

/* SUM: what sums are kept in; VAL: what values are. */
template <class SUM, class VAL>
__global__ void __launch_bounds__(THREADS) sum_kernel(union_task t) {
    for (u64 i = first_entry(); i < t.count; i += all_threads()) {
        typename SUM::word *at = (typename SUM::word *)t.sum + place_of(t, t.idx[i]);
        const float value = VAL::to_float(((const typename VAL::word *)t.val)[i]);
        *at = (typename SUM::word)SUM::from_float(SUM::to_float(*at) + value);
    }
}
int rill__cuda_union_sum(int type, int wide, void *workspace, uint64_t dim, const uint32_t *idx,
                         const void *val, uint64_t count, void *sum, void *stream) {
    union_task t = task_of(workspace, dim);
    const u64 blocks = blocks_for(count);
    t.idx = idx;
    t.val = val;
    t.count = count;
    t.sum = sum;
    switch (type) {
    case RILL__CUDA_F32: return launch(sum_kernel<f32, f32>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16:
        return wide ? launch(sum_kernel<f32, f16>, t, blocks, THREADS, stream)
                    : launch(sum_kernel<f16, f16>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16:
        return wide ? launch(sum_kernel<f32, bf16>, t, blocks, THREADS, stream)
                    : launch(sum_kernel<bf16, bf16>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

/* ---- indices as they are -------------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS) take_kernel(union_task t) {
    bool bad = false;
    for (u64 i = first_entry(); i < t.count; i += all_threads()) {
        const u32 index = t.idx[i];
        bad |= index < t.first || index - t.first >= t.range || (i && t.idx[i - 1] >= index);
        t.out[i] = index;
    }
    if (__any_sync(RILL_FULL, bad) && lane_id() == 0) atomicAdd(t.wrong, 1u);
}
int rill__cuda_take_indices(const uint32_t *in, uint64_t count, uint64_t first, uint64_t range,
                            uint32_t *idx, uint32_t *wrong, void *stream) {
    union_task t = {};
    t.idx = in;
    t.count = count;
    t.first = first;
    t.range = range;
    t.out = idx;
    t.wrong = wrong;
    RILL_CUDA_TRY(rill__cuda_zero(wrong, sizeof *wrong, stream));
    return launch(take_kernel, t, blocks_for(count), THREADS, stream);
}

RILL_CUDA_ONE_OF_FILE(union, (mark_kernel))
