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

/* Publishes what this tile has, the same in all threads: before anything that tiles above need
 * not wait for. */
static __device__ __forceinline__ void ordered_tell(const ordered &o, u32 tile, u64 counts) {
    const u64 PART = 1ull << 62, WHOLE = 2ull << 62;
    if (threadIdx.x == 0) *(volatile u64 *)(o.word + tile) = (tile ? PART : WHOLE) | counts;
}

/* What the tiles below have together. A step looks at 128 of them: how many a step covers in a
 * round trip through memory bounds the rate of tiles. By the first warp. */
static __device__ __forceinline__ u64 ordered_sum(const ordered &o, u32 tile) {
    enum { WORDS = 4 }; /* of a lane */
    const u64 WHOLE = 2ull << 62, COUNTS = (1ull << 62) - 1;
    volatile u64 *word = o.word;
    u64 sum = 0; /* of this lane */
    bool found = false;
    for (long long at = (long long)tile - 1 - lane_id(); !found; at -= 32 * WORDS) {
        u64 seen[WORDS];
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            seen[i] = at >= 32 * i ? word[at - 32 * i] : WHOLE;
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            if (found) break;
            while (__any_sync(RILL_FULL, !(seen[i] >> 62)))
                seen[i] = at >= 32 * i ? word[at - 32 * i] : WHOLE;
            const u32 whole = __ballot_sync(RILL_FULL, seen[i] >> 62 == 2);
            const u32 nearer = whole ? whole ^ (whole - 1) : RILL_FULL; /* and the nearest whole */
            if (nearer >> lane_id() & 1) sum += seen[i] & COUNTS;
            found = whole != 0;
        }
    }
    for (int by = 16; by; by /= 2)
        sum += __shfl_xor_sync(RILL_FULL, sum, by);
    return sum;
}

/* What the tiles below have together; counts: as told. All threads. */
static __device__ __forceinline__ u64 ordered_told(const ordered &o, ordered_room &room, u32 tile,
                                                   u64 counts) {
    const u64 WHOLE = 2ull << 62;
    if (threadIdx.x < 32) {
        const u64 before = tile ? ordered_sum(o, tile) : 0;
        if (threadIdx.x == 0) {
            *(volatile u64 *)(o.word + tile) = WHOLE | (before + counts);
            room.before = before;
        }
    }
    __syncthreads();
    return room.before;
}
/* Both at once. */
static __device__ __forceinline__ u64 ordered_before(const ordered &o, ordered_room &room, u32 tile,
                                                     u64 counts) {
    ordered_tell(o, tile, counts);
    return ordered_told(o, room, tile, counts);
}

static __device__ __forceinline__ u64 two_counts(u32 a, u32 b) { return (u64)a << 31 | b; }
static __device__ __forceinline__ u32 first_count(u64 counts) {
    return (u32)(counts >> 31 & 0x7fffffffu);
}
static __device__ __forceinline__ u32 second_count(u64 counts) {
    return (u32)(counts & 0x7fffffffu);
}

#endif
