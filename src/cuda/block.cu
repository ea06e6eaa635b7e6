/* block: all entries of the blocks with the largest L2 norm; the twin is select/select_block.c.
 *
 * Idea: one pass adds the gradient and sums the squares of each block, in 16 lanes as the host
 * does. The norms are few: their k-th largest is found by six histograms of 11 bits, a launch
 * each. The chosen blocks are listed in order by look-back, and each is then read again by one
 * thread block.
 * Memory: 12 bytes a block, and 8 for each 256 of them. Cost: one read of n (fused: two and a
 * write), and one of what is selected. */
#include "ordered.cuh"

enum { THREADS = 256, LANES = 16, LEVEL_BITS = 11, BINS = 1 << LEVEL_BITS, LEVELS = 6 };

struct block_state {
    u64 low;  /* keys of the search: from low on */
    u64 rank; /* in them, from the largest */
    u64 live; /* norms that are not 0 */
    u32 done, chosen;
    u32 take_all;
};
struct block_task {
    const void *dense;
    void *residual;
    const void *gradient;
    u64 n, room, block, blocks, want;
    u32 *idx;
    void *val;
    rill__cuda_found *found;
    int guards, level;
    double *norm;
    u32 *list;
    u32 *bins; /* LEVELS * BINS */
    block_state *state;
    ordered lists, entries;
};

static __device__ __forceinline__ u64 norm_key(double x) {
    u64 bits;
    memcpy(&bits, &x, 8);
    bits &= 0x7fffffffffffffffull;
    return bits < 0x7ff0000000000001ull ? bits : 0x7ff0000000000001ull;
}

/* ---- norms ---------------------------------------------------------------------------------- */

template <class T, int FORM> __global__ void __launch_bounds__(THREADS) norms_kernel(block_task t) {
    typedef typename T::word word;
    const u64 number = ((u64)blockIdx.x * THREADS + threadIdx.x) / LANES;
    const u32 lane = threadIdx.x % LANES;
    const u64 first = number * t.block, end = first + t.block < t.n ? first + t.block : t.n;
    double square = 0;
    u32 bad = 0;
    if (number < t.blocks)
        for (u64 i = first + lane; i < end; i += LANES) {
            u32 bits = ((const word *)t.dense)[i];
            if (FORM == 2) {
                u32 sum = add_bits<T>(bits, ((const word *)t.gradient)[i]);
                bool odd = (sum & T::MAGNITUDE) >= T::NAN_KEY - 1;
                bad += odd;
                bits = odd && t.guards ? bits : sum;
                ((word *)t.residual)[i] = (word)bits;
            }
            double x = (double)T::to_float(bits);
            square += x * x;
        }
    for (int half = LANES / 2; half; half /= 2)
        square += __shfl_down_sync(RILL_FULL, square, half);
    if (number < t.blocks && lane == 0) t.norm[number] = square;
    if (FORM != 2) return;
    bad = __reduce_add_sync(RILL_FULL, bad);
    if (lane_id() == 0 && bad) atomicAdd((u64 *)&t.found->nonfinite, (u64)bad);
}

/* ---- the choice ----------------------------------------------------------------------------- */

struct level_room {
    u32 bins[BINS], warps[THREADS / 32], last;
};

/* Keys have 63 bits: levels of 11, and the last of 8. */
static __device__ __forceinline__ int level_shift(int level) {
    int shift = 63 - LEVEL_BITS * (level + 1);
    return shift > 0 ? shift : 0;
}

__global__ void __launch_bounds__(THREADS) level_kernel(block_task t) {
    RILL_SHARED(level_room, room);
    u32 *bins = t.bins + t.level * BINS;
    const u64 low = t.level ? t.state->low : 0;
    const int shift = level_shift(t.level), above = t.level ? level_shift(t.level - 1) : 63;
    if (t.level && t.state->take_all) return;
    for (u32 i = threadIdx.x; i < BINS; i += THREADS)
        room.bins[i] = 0;
    __syncthreads();
    for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < t.blocks;
         i += (u64)gridDim.x * THREADS) {
        u64 key = norm_key(t.norm[i]);
        if (key && key >= low && (key - low) >> above == 0)
            atomicAdd(&room.bins[(key - low) >> shift], 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < BINS; i += THREADS)
        if (room.bins[i]) atomicAdd(&bins[i], room.bins[i]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        room.last = atomicAdd(&t.state->done, 1u) == gridDim.x * (t.level + 1) - 1;
    __syncthreads();
    if (!room.last) return;
    __threadfence();
    const u32 PER = BINS / THREADS, top = BINS - PER * (threadIdx.x + 1);
    const u64 rank = t.level ? t.state->rank : t.want;
    u32 count[PER], sum = 0, total;
    for (u32 i = 0; i < PER; i++)
        sum += count[i] = __ldcg(bins + top + i);
    u64 c = block_prefix(sum, room.warps, &total) - sum;
    if (t.level == 0 && threadIdx.x == 0) {
        t.state->live = total;
        t.state->take_all = total <= t.want;
    }
    for (u32 i = PER; i-- > 0;) {
        if (rank > c && rank - c <= count[i]) {
            t.state->low = low + ((u64)(top + i) << shift);
            t.state->rank = rank - c;
        }
        c += count[i];
    }
}

struct list_room {
    ordered_room order;
    u32 warps[THREADS / 32];
};

/* Numbers of the chosen blocks, in order: those above the key, and the first `rank` equal to it. */
__global__ void __launch_bounds__(THREADS) list_kernel(block_task t) {
    RILL_SHARED(list_room, room);
    const u32 tile = ordered_next(t.lists, room.order);
    const u64 i = (u64)tile * THREADS + threadIdx.x;
    const bool all = t.state->take_all;
    const u64 key = i < t.blocks ? norm_key(t.norm[i]) : 0, least = all ? 0 : t.state->low;
    const u32 ties = all ? 0 : (u32)t.state->rank;
    bool above = key > least, equal = !all && key && key == least;
    u32 n_above, n_equal;
    u32 a = block_prefix(above, room.warps, &n_above),
        e = block_prefix(equal, room.warps, &n_equal);
    u64 before = ordered_before(t.lists, room.order, tile, two_counts(n_above, n_equal));
    u32 above_before = first_count(before) + a - above,
        equal_before = second_count(before) + e - equal;
    if (above || (equal && equal_before < ties))
        t.list[above_before + min_u32(equal_before, ties)] = (u32)i;
    if (i == t.blocks - 1)
        t.state->chosen = above_before + above + min_u32(equal_before + equal, ties);
}

/* ---- entries -------------------------------------------------------------------------------- */

template <class T, int FORM>
__global__ void __launch_bounds__(THREADS) entries_kernel(block_task t) {
    RILL_SHARED(list_room, room);
    typedef typename T::word word;
    const u32 tile = ordered_next(t.entries, room.order), chosen = t.state->chosen;
    if (tile >= chosen) return;
    const u64 first = t.list[tile] * t.block, end = first + t.block < t.n ? first + t.block : t.n;
    const word *from = (const word *)t.dense;
    u32 count = 0, total, unused;
    for (u64 i = first + threadIdx.x; i < end; i += THREADS)
        count += (from[i] & T::MAGNITUDE) != 0;
    block_prefix(count, room.warps, &total);
    u64 at = first_count(ordered_before(t.entries, room.order, tile, two_counts(total, 0)));
    if (tile == chosen - 1 && threadIdx.x == 0) t.found->count = at + total;
    for (u64 start = first; start < end; start += THREADS) {
        u64 i = start + threadIdx.x;
        u32 bits = i < end ? from[i] : 0, take = (bits & T::MAGNITUDE) != 0;
        u64 to = at + block_prefix(take, room.warps, &unused) - take;
        at += unused;
        if (!take || to >= t.room) continue;
        t.idx[to] = (u32)i;
        ((word *)t.val)[to] = (word)bits;
        if (FORM) ((word *)t.residual)[i] = 0;
    }
}

/* ---- launches ------------------------------------------------------------------------------- */

static size_t plan(u64 n, u64 block, char *base, block_task *t) {
    carver c = {base, 0};
    t->blocks = div_up(n, block);
    t->state = c.take<block_state>(1); /* zeroed up to the norms */
    t->bins = c.take<u32>(LEVELS * BINS);
    t->lists = ordered_carve(c, div_up(t->blocks, THREADS));
    t->entries = ordered_carve(c, t->blocks);
    t->norm = c.take<double>(t->blocks);
    t->list = c.take<u32>(t->blocks);
    return c.used;
}
size_t rill__cuda_block_workspace(int, uint64_t n, uint64_t block) {
    block_task t;
    return block ? plan(n, block, NULL, &t) : 0;
}

template <class T, int FORM> static int run(block_task t, u32 sms, void *stream) {
    const u64 tiles = div_up(t.blocks, THREADS);
    RILL_CUDA_TRY(
        launch(norms_kernel<T, FORM>, t, div_up(t.blocks * LANES, THREADS), THREADS, stream));
    for (t.level = 0; t.level < LEVELS; t.level++)
        RILL_CUDA_TRY(launch(level_kernel, t, tiles < 2 * sms ? tiles : 2 * sms, THREADS, stream));
    RILL_CUDA_TRY(launch(list_kernel, t, tiles, THREADS, stream));
    const u64 most = t.want < t.blocks ? t.want : t.blocks;
    return launch(entries_kernel<T, FORM>, t, most, THREADS, stream);
}
template <class T> static int run_form(const block_task &t, u32 sms, void *stream) {
    if (t.gradient) return run<T, 2>(t, sms, stream);
    return t.residual ? run<T, 1>(t, sms, stream) : run<T, 0>(t, sms, stream);
}

int rill__cuda_block(const rill__cuda_select *s, uint64_t block, uint64_t want, void *stream) {
    block_task t = {};
    u32 sms;
    if (!block || !want || s->n > RILL__CUDA_MOST) return RILL_CUDA_INVALID;
    RILL_CUDA_TRY(rill__cuda_sms(&sms));
    RILL_CUDA_TRY(rill__cuda_zero(s->found, sizeof *s->found, stream));
    if (!s->n) return 0;
    t.dense = s->residual ? s->residual : s->dense;
    t.residual = s->residual;
    t.gradient = s->gradient;
    t.n = s->n;
    t.room = s->room;
    t.block = block;
    t.want = want;
    t.idx = s->idx;
    t.val = s->val;
    t.found = s->found;
    t.guards = s->guards;
    if (plan(s->n, block, (char *)s->workspace, &t) > s->workspace_bytes) return RILL_CUDA_INVALID;
    RILL_CUDA_TRY(rill__cuda_zero(t.state, (size_t)((char *)t.norm - (char *)t.state), stream));
    switch (s->type) {
    case RILL__CUDA_F32: return run_form<f32>(t, sms, stream);
    case RILL__CUDA_F16: return run_form<f16>(t, sms, stream);
    case RILL__CUDA_BF16: return run_form<bf16>(t, sms, stream);
    default: return RILL_CUDA_INVALID;
    }
}

RILL_CUDA_ONE_OF_FILE(block, (norms_kernel<f32, 0>))
