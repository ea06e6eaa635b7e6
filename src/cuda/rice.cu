/* Ascending indices as rice: the twin is codec/codec_rice.c, which has the layout.
 *
 * A block has a chunk of 1,024 indices. Encoding tries low bits as the host does, each with a sum
 * over the block; where the bytes go is found by look-back (ordered.cuh), and they are put together
 * in shared memory, since chunks meet within a word. A chunk does not say where the next one
 * begins: to decode, the host tells (find_chunks of the codec), which reads the bits in unary for
 * it; then all chunks are decoded at once, and a look-back finds the index before each. Decoders
 * touch nothing outside of the arrays that they are given, whatever the message.
 * Cost: one read of the indices, one write of the bytes; and back. */
#include "bits.cuh"
#include "ordered.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    CHUNK = 1024,
    PER = CHUNK / THREADS,
    /* of a chunk: n low parts of l bits and the unary ones take less than n (l + 3) bits, where n
     * 2^l is below 2^32; and padding */
    ROOM_WORDS = 1024
};

static __device__ __forceinline__ u32 chunk_length(u64 count, u64 chunk) {
    const u64 at = chunk * CHUNK;
    return count - at < CHUNK ? (u32)(count - at) : (u32)CHUNK;
}

/* ---- encode --------------------------------------------------------------------------------- */

struct rice_task {
    const u32 *idx;
    u64 count, first, tiles;
    unsigned char *out;
    uint64_t *bytes;
    ordered order;
};
struct rice_room {
    ordered_room order;
    u32 warps[WARPS];
    u32 words[ROOM_WORDS];
};

/* Bits of a chunk with that many low ones, but for the unary ends. All threads. */
static __device__ __forceinline__ u64 size_with(const u32 *gap, u32 n, u32 low, u32 *warps) {
    u32 high = 0, total;
    for (u32 j = 0; j < PER; j++)
        high += gap[j] >> low;
    block_prefix(high, warps, &total);
    return (u64)total + (u64)n * low;
}

/* As best_low of the host. */
static __device__ __forceinline__ u32 best_low_of(const u32 *gap, u32 n, u32 sum, u32 *warps) {
    const u32 mean = sum / n, start = mean ? width_of(mean) - 1 : 0;
    u32 low = start;
    u64 size = size_with(gap, n, low, warps), other;
    while (low < 31 && (other = size_with(gap, n, low + 1, warps)) < size)
        size = other, low++;
    while (low && low <= start && (other = size_with(gap, n, low - 1, warps)) < size)
        size = other, low--;
    return low;
}

__global__ void __launch_bounds__(THREADS) rice_kernel(rice_task t) {
    RILL_SHARED(rice_room, room);
    const u32 tile = ordered_next(t.order, room.order), n = chunk_length(t.count, tile);
    const u64 base = (u64)tile * CHUNK;
    u32 gap[PER], sum = 0, all, high = 0, high_all;
    for (u32 j = 0; j < PER; j++) { /* a thread's gaps follow each other */
        const u32 i = threadIdx.x * PER + j;
        gap[j] = 0;
        if (i >= n) continue;
        const u64 at = base + i, next = at ? (u64)t.idx[at - 1] + 1 : t.first;
        gap[j] = (u32)(t.idx[at] - next);
        sum += gap[j];
    }
    block_prefix(sum, room.warps, &all);
    const u32 low = best_low_of(gap, n, all, room.warps), mask = (1u << low) - 1;
    for (u32 j = 0; j < PER; j++)
        high += gap[j] >> low;
    u32 at_high = block_prefix(high, room.warps, &high_all) - high;
    const u32 low_bytes = (n * low + 7) / 8, bitmap = 1 + low_bytes;
    const u32 size = bitmap + (high_all + n - 1) / 8 + 1;
    ordered_tell(t.order, tile, size);
    for (u32 w = threadIdx.x; w < ROOM_WORDS; w += THREADS)
        room.words[w] = 0;
    __syncthreads();
    if (threadIdx.x == 0) set_bits_at(room.words, 0, 8, low);
    for (u32 j = 0; j < PER; j++) {
        const u32 i = threadIdx.x * PER + j;
        if (i >= n) continue;
        at_high += gap[j] >> low;
        set_bits_at(room.words, 8 + (u64)i * low, low, gap[j] & mask);
        set_bits_at(room.words, 8 * bitmap + at_high + i, 1, 1);
    }
    const u64 at = ordered_told(t.order, room.order, tile, size);
    if (tile == t.tiles - 1 && threadIdx.x == 0) *t.bytes = at + size;
    for (u32 b = threadIdx.x; b < size; b += THREADS)
        t.out[at + b] = (unsigned char)(room.words[b / 4] >> 8 * (b % 4));
}

size_t rill__cuda_rice_workspace(uint64_t count) { return ordered_bytes(div_up(count, CHUNK)); }

int rill__cuda_rice(const uint32_t *idx, uint64_t count, uint64_t first, void *out, uint64_t *bytes,
                    void *workspace, void *stream) {
    rice_task t = {idx, count, first, div_up(count, CHUNK), (unsigned char *)out, bytes, {}};
    carver c = {(char *)workspace, 0};
    if (!count) return rill__cuda_zero(bytes, sizeof *bytes, stream);
    t.order = ordered_carve(c, t.tiles);
    RILL_CUDA_TRY(rill__cuda_zero(workspace, c.used, stream));
    return launch(rice_kernel, t, t.tiles, THREADS, stream);
}

/* ---- decode --------------------------------------------------------------------------------- */

struct unrice_task {
    const unsigned char *in;
    const uint64_t *chunk; /* where each begins, and the end of the last */
    u64 in_bytes, count, first, range, tiles;
    u32 *idx, *wrong;
    ordered sums;
};
struct unrice_room {
    ordered_room order;
    u32 warps[WARPS];
    u64 sums[WARPS];
    u32 high[CHUNK]; /* of all gaps up to each */
};

/* Sum over the threads of the block up to this one. */
static __device__ __forceinline__ u64 block_prefix_wide(u64 x, u64 *room, u64 *total) {
    const u32 warp = threadIdx.x >> 5;
    u64 up_to = x, before = 0, all = 0;
    for (u32 by = 1; by < 32; by *= 2) {
        u64 y = __shfl_up_sync(RILL_FULL, up_to, by);
        if (lane_id() >= by) up_to += y;
    }
    __syncthreads();
    if (lane_id() == 31) room[warp] = up_to;
    __syncthreads();
    for (u32 w = 0; w < WARPS; w++) {
        before += w < warp ? room[w] : 0;
        all += room[w];
    }
    *total = all;
    return before + up_to;
}

/* The unary parts: from bit 8 start on, of bytes up to end. Returns how many there are. */
static __device__ __forceinline__ u32 read_high(const unrice_task &t, unrice_room &room, u64 start,
                                                u64 end, u32 n) {
    u32 done = 0;
    for (u64 at = start; at < end && done <= n; at += 4 * THREADS) {
        u32 bits = 0, total;
        for (u32 b = 0; b < 4; b++) {
            const u64 from = at + 4 * threadIdx.x + b;
            if (from < end) bits |= (u32)t.in[from] << 8 * b;
        }
        u32 i = done + block_prefix(__popc(bits), room.warps, &total) - __popc(bits);
        const u32 position = (u32)(8 * (at - start)) + 32 * threadIdx.x;
        for (u32 left = bits; left && i < n; left &= left - 1, i++)
            room.high[i] = position + (31u - (u32)__clz((int)(left & (0u - left)))) - i;
        done += total;
    }
    return done;
}

__global__ void __launch_bounds__(THREADS) unrice_kernel(unrice_task t) {
    RILL_SHARED(unrice_room, room);
    const u32 tile = ordered_next(t.sums, room.order), n = chunk_length(t.count, tile);
    const u64 at = t.chunk[tile], end = t.chunk[tile + 1];
    u32 bad = at >= end || end > t.in_bytes, low = bad ? 0 : t.in[at];
    bad |= low > 32;
    low = min_u32(low, 32);
    const u64 start = at + 1 + (n * low + 7) / 8;
    for (u32 i = threadIdx.x; i < CHUNK; i += THREADS)
        room.high[i] = 0;
    __syncthreads();
    bad |= read_high(t, room, start, bad ? 0 : end, n) != n;
    __syncthreads();
    const u64 MOST = 1ull << 33; /* what is further is wrong, and sums stay small */
    u64 gap[PER], sum = 0, all;
    for (u32 j = 0; j < PER; j++) {
        const u32 i = threadIdx.x * PER + j, before = i ? room.high[i - 1] : 0;
        gap[j] = 0;
        if (i >= n) continue;
        const u64 high = (u64)(room.high[i] - before) << low;
        gap[j] = high + bits_from(t.in, t.in_bytes, 8 * (at + 1) + (u64)i * low, low) + 1;
        if (gap[j] > MOST) {
            gap[j] = MOST;
            bad = 1;
        }
        sum += gap[j];
    }
    const u64 up_to = block_prefix_wide(sum, room.sums, &all);
    u64 index = ordered_before(t.sums, room.order, tile, all < MOST ? all : MOST) + up_to - sum;
    for (u32 j = 0; j < PER; j++) {
        const u32 i = threadIdx.x * PER + j;
        index += gap[j];
        if (i >= n) continue;
        bad |= index > t.range;
        t.idx[(u64)tile * CHUNK + i] = (u32)(t.first + index - 1);
    }
    if (__any_sync(RILL_FULL, (int)bad) && lane_id() == 0) atomicAdd(t.wrong, 1u);
}

int rill__cuda_rice_decode(const void *in, size_t in_bytes, const uint64_t *chunk, uint64_t count,
                           uint64_t first, uint64_t range, uint32_t *idx, uint32_t *wrong,
                           void *workspace, void *stream) {
    unrice_task t = {(const unsigned char *)in, chunk, in_bytes, count, first, range,
                     div_up(count, CHUNK),      idx,   wrong,    {}};
    carver c = {(char *)workspace, 0};
    RILL_CUDA_TRY(rill__cuda_zero(wrong, sizeof *wrong, stream));
    if (!count) return 0;
    t.sums = ordered_carve(c, t.tiles);
    RILL_CUDA_TRY(rill__cuda_zero(workspace, c.used, stream));
    return launch(unrice_kernel, t, t.tiles, THREADS, stream);
}

RILL_CUDA_ONE_OF_FILE(rice, (rice_kernel))
