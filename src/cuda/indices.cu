/* Ascending indices in few bits: bitpack and Elias-Fano; the twins are codec/codec_bitpack.c and
 * codec_elias_fano.c.
 *
 * bitpack: a warp has a block of 128 gaps; where its bits go is found by look-back
 * (ordered.cuh). The way back looks back twice: for the bytes of the blocks, then for the
 * indices.
 * Elias-Fano: the bits of all indices are set at once, in a buffer of zeros; the way back counts
 * the ones before each word of the bitmap by look-back. Decoders touch nothing outside of the
 * arrays that they are given, whatever the message. Cost: bound by launches at the sizes of
 * interest. */
#include "bits.cuh"
#include "ordered.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, BLOCK = 128, PER = BLOCK / 32 };

/* ---- bitpack -------------------------------------------------------------------------------- */

struct pack_task {
    const u32 *idx;
    u64 count, first, blocks, tiles;
    unsigned char *widths, *gaps;
    uint64_t *bytes;
    ordered order;
};
struct pack_room {
    ordered_room order;
    u32 gap[WARPS][BLOCK];
    u32 size[WARPS];
};

__global__ void __launch_bounds__(THREADS) pack_kernel(pack_task t) {
    RILL_SHARED(pack_room, room);
    const u32 tile = ordered_next(t.order, room.order), warp = threadIdx.x >> 5, lane = lane_id();
    const u64 block = (u64)tile * WARPS + warp;
    const u32 n = block >= t.blocks                 ? 0
                  : t.count - block * BLOCK < BLOCK ? (u32)(t.count - block * BLOCK)
                                                    : (u32)BLOCK;
    u32 any = 0, all = 0, before = 0;
    for (u32 j = lane; j < n; j += 32) {
        u64 i = block * BLOCK + j, next = i ? (u64)t.idx[i - 1] + 1 : t.first;
        u32 gap = (u32)(t.idx[i] - next);
        room.gap[warp][j] = gap;
        any |= gap;
    }
    const u32 width = width_of(__reduce_or_sync(RILL_FULL, any)), size = (n * width + 7) / 8;
    if (lane == 0) {
        room.size[warp] = size;
        if (n) t.widths[block] = (unsigned char)width;
    }
    __syncthreads();
    for (u32 w = 0; w < WARPS; w++) {
        before += w < warp ? room.size[w] : 0;
        all += room.size[w];
    }
    const u64 at = ordered_before(t.order, room.order, tile, all);
    if (tile == t.tiles - 1 && threadIdx.x == 0) *t.bytes = t.blocks + at + all;
    unsigned char *out = t.gaps + at + before;
    for (u32 b = lane; b < size; b += 32) {
        u32 byte = 0;
        for (u32 j = 8 * b / width; j < n && j * width < 8 * b + 8; j++) {
            int shift = (int)(j * width) - (int)(8 * b);
            byte |= shift >= 0 ? room.gap[warp][j] << shift : room.gap[warp][j] >> -shift;
        }
        out[b] = (unsigned char)byte;
    }
}

static size_t pack_tiles(u64 count) { return (size_t)div_up(div_up(count, BLOCK), WARPS); }

/* Decoding has offsets of blocks and a second order. */
size_t rill__cuda_bitpack_workspace(uint64_t count) {
    return 2 * ordered_bytes(pack_tiles(count)) + (size_t)(div_up(count, BLOCK) * 8 + 256);
}
int rill__cuda_bitpack(const uint32_t *idx, uint64_t count, uint64_t first, void *out,
                       uint64_t *bytes, void *workspace, void *stream) {
    const u64 blocks = div_up(count, BLOCK);
    carver c = {(char *)workspace, 0};
    pack_task t = {idx,
                   count,
                   first,
                   blocks,
                   pack_tiles(count),
                   (unsigned char *)out,
                   (unsigned char *)out + blocks,
                   bytes,
                   {}};
    if (!count) return rill__cuda_zero(bytes, sizeof *bytes, stream);
    t.order = ordered_carve(c, t.tiles);
    RILL_CUDA_TRY(rill__cuda_zero(workspace, c.used, stream));
    return launch(pack_kernel, t, t.tiles, THREADS, stream);
}

struct unpack_task {
    const unsigned char *in;
    u64 in_bytes, count, first, range, blocks, tiles;
    u32 *idx, *wrong;
    u64 *offset; /* of blocks, in bytes */
    ordered sizes, sums;
};
struct unpack_room {
    ordered_room order;
    u32 size[WARPS];
    u64 sum[WARPS];
};

static __device__ __forceinline__ u32 block_length(u64 count, u64 block) {
    u64 at = block * BLOCK;
    return at >= count ? 0 : count - at < BLOCK ? (u32)(count - at) : (u32)BLOCK;
}

__global__ void __launch_bounds__(THREADS) unpack_kernel(unpack_task t) {
    RILL_SHARED(unpack_room, room);
    const u32 tile = ordered_next(t.sizes, room.order), warp = threadIdx.x >> 5, lane = lane_id();
    const u64 block = (u64)tile * WARPS + warp;
    const u32 n = block_length(t.count, block);
    u32 width = n && block < t.in_bytes ? t.in[block] : 0, bad = width > 32;
    width = min_u32(width, 32);
    u32 all = 0, before = 0;
    if (lane == 0) room.size[warp] = (n * width + 7) / 8;
    __syncthreads();
    for (u32 w = 0; w < WARPS; w++) {
        before += w < warp ? room.size[w] : 0;
        all += room.size[w];
    }
    const u64 at = t.blocks + ordered_before(t.sizes, room.order, tile, all) + before;
    bad |= at + (n * width + 7) / 8 > t.in_bytes;
    u64 sum = 0, gap[PER];
    for (u32 j = 0; j < PER; j++) { /* a lane's gaps follow each other */
        u32 i = lane * PER + j;
        gap[j] = i < n ? bits_from(t.in, t.in_bytes, 8 * at + (u64)i * width, width) + 1ull : 0;
        sum += gap[j];
    }
    u64 up_to = sum;
    for (u32 by = 1; by < 32; by *= 2) {
        u64 y = __shfl_up_sync(RILL_FULL, up_to, by);
        if (lane >= by) up_to += y;
    }
    __syncthreads();
    if (lane == 31) room.sum[warp] = up_to;
    __syncthreads();
    u64 sum_before = 0, sum_all = 0;
    for (u32 w = 0; w < WARPS; w++) {
        sum_before += w < warp ? room.sum[w] : 0;
        sum_all += room.sum[w];
    }
    /* An index past 2^61 is wrong in any case; sums stop there, so that the words don't
     * overflow. */
    const u64 MOST = 1ull << 40;
    u64 index = ordered_before(t.sums, room.order, tile, sum_all) + sum_before + up_to - sum;
    for (u32 j = 0; j < PER; j++) {
        u32 i = lane * PER + j;
        index += gap[j];
        if (i >= n) continue;
        bad |= index > t.range || index > MOST;
        t.idx[block * BLOCK + i] = (u32)(t.first + index - 1);
    }
    if (__any_sync(RILL_FULL, (int)bad) && lane == 0) atomicAdd(t.wrong, 1u);
}

int rill__cuda_bitunpack(const void *in, size_t in_bytes, uint64_t count, uint64_t first,
                         uint64_t range, uint32_t *idx, uint32_t *wrong, void *workspace,
                         void *stream) {
    unpack_task t = {(const unsigned char *)in, in_bytes, count, first, range, div_up(count, BLOCK),
                     pack_tiles(count),         idx,      wrong, NULL,  {},    {}};
    carver c = {(char *)workspace, 0};
    t.sizes = ordered_carve(c, t.tiles);
    t.sums = ordered_carve(c, t.tiles);
    RILL_CUDA_TRY(rill__cuda_zero(wrong, sizeof *wrong, stream));
    RILL_CUDA_TRY(rill__cuda_zero(workspace, c.used, stream));
    return launch(unpack_kernel, t, t.tiles, THREADS, stream);
}

/* ---- Elias-Fano ----------------------------------------------------------------------------- */

struct fano_task {
    const u32 *idx;
    u32 *out; /* zeros */
    u64 count, first;
    uint64_t *bytes;
};

__global__ void __launch_bounds__(THREADS) fano_kernel(fano_task t) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    const u64 last = t.idx[t.count - 1] - t.first - (t.count - 1);
    const u32 low = rill__hd_best_low(t.count, last);
    const u64 high = 8 * (1 + (t.count * low + 7) / 8); /* where the bitmap starts */
    if (i >= t.count) return;
    if (i == 0) {
        set_bits_at(t.out, 0, 8, low);
        *t.bytes = high / 8 + ((last >> low) + t.count - 1) / 8 + 1;
    }
    u32 x = (u32)(t.idx[i] - t.first - i), mask = low < 32 ? (1u << low) - 1 : ~0u;
    set_bits_at(t.out, 8 + i * low, low, x & mask);
    set_bits_at(t.out, high + (low < 32 ? x >> low : 0) + i, 1, 1);
}

/* As bound in codec_elias_fano.c. */
static size_t fano_bound(u64 count, u64 range) {
    u64 span = range > count ? range - count : 0;
    u32 low = rill__hd_best_low(count, span);
    return (size_t)(1 + (count + count * low + (span >> low) + 14) / 8);
}

int rill__cuda_elias_fano(const uint32_t *idx, uint64_t count, uint64_t first, uint64_t range,
                          void *out, uint64_t *bytes, void *, void *stream) {
    fano_task t = {idx, (u32 *)out, count, first, bytes};
    if (!count) return rill__cuda_zero(bytes, sizeof *bytes, stream);
    RILL_CUDA_TRY(rill__cuda_zero(out, (fano_bound(count, range) + 7) / 8 * 8, stream));
    return launch(fano_kernel, t, div_up(count, THREADS), THREADS, stream);
}

enum { FANO_WORDS = 4 }; /* of 32 bits, for a thread */
struct unfano_task {
    const unsigned char *in;
    u64 in_bytes, count, first, range, tiles;
    u32 *idx, *wrong;
    ordered order;
};
struct unfano_room {
    ordered_room order;
    u32 warps[WARPS];
};

__global__ void __launch_bounds__(THREADS) unfano_kernel(unfano_task t) {
    RILL_SHARED(unfano_room, room);
    const u32 tile = ordered_next(t.order, room.order), lane = lane_id();
    const u32 low = min_u32(t.in[0], 32);
    const u64 start = 1 + (t.count * low + 7) / 8, most = t.range - t.count;
    const u64 word = ((u64)tile * THREADS + threadIdx.x) * FANO_WORDS;
    u32 bits[FANO_WORDS], ones = 0, total, bad = t.in[0] > 32;
    for (u32 w = 0; w < FANO_WORDS; w++) {
        bits[w] = 0;
        for (u32 b = 0; b < 4; b++) {
            u64 at = start + 4 * (word + w) + b;
            if (at < t.in_bytes) bits[w] |= (u32)t.in[at] << 8 * b;
        }
        ones += __popc(bits[w]);
    }
    u32 up_to = block_prefix(ones, room.warps, &total);
    const u64 before = ordered_before(t.order, room.order, tile, total);
    if (tile == t.tiles - 1 && threadIdx.x == 0) bad |= before + total != t.count;
    u64 i = before + up_to - ones;
    for (u32 w = 0; w < FANO_WORDS; w++)
        for (u32 left = bits[w]; left; left &= left - 1, i++) {
            u64 position = 32 * (word + w) + (31u - (u32)__clz((int)(left & (0u - left))));
            if (i >= t.count) {
                bad = 1;
                break;
            }
            u64 x = (position - i) << low | bits_from(t.in, t.in_bytes, 8 + i * low, low);
            bad |= x > most;
            t.idx[i] = (u32)(t.first + x + i);
        }
    if (__any_sync(RILL_FULL, (int)bad) && lane == 0) atomicAdd(t.wrong, 1u);
}
/* Indices must ascend: low parts may fall. */
__global__ void __launch_bounds__(THREADS) ascend_kernel(unfano_task t) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x + 1;
    bool bad = i < t.count && t.idx[i] <= t.idx[i - 1];
    if (__any_sync(RILL_FULL, bad) && lane_id() == 0) atomicAdd(t.wrong, 1u);
}

/* A message has zeros behind its indices. */
static u64 padded_bound(u64 count, u64 range) { return (fano_bound(count, range) + 7) / 8 * 8; }
static u64 fano_tiles(u64 bytes) { return div_up(bytes, 4ull * FANO_WORDS * THREADS); }
size_t rill__cuda_elias_fano_workspace(uint64_t count, uint64_t range) {
    return count ? ordered_bytes(fano_tiles(padded_bound(count, range))) : 0;
}
int rill__cuda_elias_fano_decode(const void *in, size_t in_bytes, uint64_t count, uint64_t first,
                                 uint64_t range, uint32_t *idx, uint32_t *wrong, void *workspace,
                                 void *stream) {
    unfano_task t = {(const unsigned char *)in, in_bytes, count, first, range, 0, idx, wrong, {}};
    carver c = {(char *)workspace, 0};
    if (!count) return rill__cuda_zero(wrong, sizeof *wrong, stream);
    if (!in_bytes || count > range || in_bytes > padded_bound(count, range))
        return RILL_CUDA_INVALID;
    t.tiles = fano_tiles(in_bytes); /* the bitmap is a part of them */
    t.order = ordered_carve(c, t.tiles);
    RILL_CUDA_TRY(rill__cuda_zero(wrong, sizeof *wrong, stream));
    RILL_CUDA_TRY(rill__cuda_zero(workspace, c.used, stream));
    RILL_CUDA_TRY(rill__cuda_zero(idx, (size_t)count * 4, stream));
    RILL_CUDA_TRY(launch(unfano_kernel, t, t.tiles, THREADS, stream));
    return launch(ascend_kernel, t, div_up(count, THREADS), THREADS, stream);
}

RILL_CUDA_ONE_OF_FILE(indices, (pack_kernel))
