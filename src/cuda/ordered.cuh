/* Results of tiles in the order of the tiles, in one pass: each tile publishes its count, and
 * finds what is before it in the words of the tiles below (decoupled look-back; Merrill and
 * Garland, 2016). Tiles are dealt out by a ticket, so that all below one have
 * started: none waits for a block that cannot run. */
#ifndef RILL_CUDA_ORDERED_CUH
#define RILL_CUDA_ORDERED_CUH

#include "device.cuh"

/* Zeroed before the launch. Two counts of 31 bits go together in a word. */
struct ordered {
    u32 *ticket;
    u64 *word; /* of each tile: 2 bits of state, then the counts */
};
struct ordered_room {
    u32 tile;
    u64 before;
};

static inline ordered ordered_carve(carver &c, u64 tiles) {
    ordered o;
    o.ticket = c.take<u32>(1);
    o.word = c.take<u64>(tiles);
    return o;
}
static inline size_t ordered_bytes(u64 tiles) {
    return 256 + (size_t)(tiles * 8 + 255) / 256 * 256;
}

/* The tile of this block. All threads. */
static __device__ __forceinline__ u32 ordered_next(const ordered &o, ordered_room &room) {
    __syncthreads();
    if (threadIdx.x == 0) room.tile = atomicAdd(o.ticket, 1u);
    __syncthreads();
    return room.tile;
}

/* What the tiles below have together; counts: of this tile, the same in all threads. All
 * threads. */
static __device__ __forceinline__ u64 ordered_before(const ordered &o, ordered_room &room, u32 tile,
                                                     u64 counts) {
    const u64 PART = 1ull << 62, WHOLE = 2ull << 62, COUNTS = PART - 1;
    if (threadIdx.x < 32) {
        volatile u64 *word = o.word;
        u64 before = 0;
        if (threadIdx.x == 0) word[tile] = (tile ? PART : WHOLE) | counts;
        for (long long at = (long long)tile - 1; at >= 0; at -= 32) {
            long long mine = at - (long long)threadIdx.x;
            u64 seen = mine >= 0 ? word[mine] : WHOLE;
            while (__any_sync(RILL_FULL, !(seen >> 62)))
                seen = mine >= 0 ? word[mine] : WHOLE;
            u32 whole = __ballot_sync(RILL_FULL, (seen >> 62) == 2);
            u32 last = whole ? 31 - __clz((int)(whole & (0u - whole))) : 31;
            u64 sum = threadIdx.x <= last ? seen & COUNTS : 0;
            for (int by = 16; by; by /= 2)
                sum += __shfl_xor_sync(RILL_FULL, sum, by);
            before += sum;
            if (whole) break;
        }
        if (threadIdx.x == 0) {
            word[tile] = WHOLE | (before + counts);
            room.before = before;
        }
    }
    __syncthreads();
    return room.before;
}
static __device__ __forceinline__ u64 two_counts(u32 a, u32 b) { return (u64)a << 31 | b; }
static __device__ __forceinline__ u32 first_count(u64 counts) {
    return (u32)(counts >> 31 & 0x7fffffffu);
}
static __device__ __forceinline__ u32 second_count(u64 counts) {
    return (u32)(counts & 0x7fffffffu);
}

#endif
