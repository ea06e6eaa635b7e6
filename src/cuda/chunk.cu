/* chunk: 64 of every 4,096 entries, with 12 bits an index and 2 bits a value, in one pass that
 * also adds the gradient and keeps what is lost in the residual. cuda_space.h has the layout.
 *
 * Idea: a block has a chunk in shared memory; others of the same multiprocessor read theirs
 * meanwhile. (Blocks that stay and read their next chunk ahead were slower: multiprocessors
 * differ in how near memory is.) The 64th largest of the 256 threads'
 * maxima is a lower bound of the 64th largest value, and leaves some 73 candidates; those are
 * ranked in shared memory by comparing each with each. Where more than 256 values reach the
 * bound (ties), the 64th key is found bit by bit. Keys carry the index, so that none are equal
 * and ties go to the lower index.
 * Source: SparseLoCo (2025) has these numbers. Restriction: f32; entries that are 0 are left
 * out.
 * Cost: two reads and a write of n, 116 bytes a chunk. */
#include "device.cuh"

enum {
    CHUNK = RILL__CUDA_CHUNK,
    KEEP = RILL__CUDA_CHUNK_KEEP,
    WORDS = RILL__CUDA_CHUNK_WORDS,
    THREADS = 256,
    PER = CHUNK / THREADS / 4, /* vectors of a thread */
    BLOCKS = 4,                /* of a multiprocessor */
    CANDIDATES = 256,
    BOUND_SHIFT = 17, /* a bound so coarse leaves hardly more candidates */
    NO_INDEX = 0x7fffffff
};

struct chunk_task {
    float *residual;
    const float *gradient;
    u64 n;
    u32 *out;
    u64 *nonfinite;
};

struct chunk_room {
    __align__(16) u32 value[CHUNK]; /* a thread reads what it wrote */
    u32 most[THREADS];
    u64 key[CANDIDATES];
    u64 best[KEEP];                /* from the largest down */
    __align__(16) u32 index[KEEP]; /* of those; past the last: NO_INDEX */
    u32 ordered[KEEP];
    u32 bound, count;
    u32 counts[2];
};

/* Larger is better, and all differ: magnitude, then the lower index; the sign below. */
static __device__ __forceinline__ u64 chunk_key(u32 bits, u32 index) {
    return (u64)key_of<f32>(bits) << 13 | (u64)(CHUNK - 1 - index) << 1 | bits >> 31;
}
static __device__ __forceinline__ u32 index_in(u32 j, u32 c) {
    return 4 * (j * THREADS + threadIdx.x) + c;
}
/* An entry that is not 0. */
static __device__ __forceinline__ bool is_entry(u32 bits) { return (bits & 0x7fffffffu) != 0; }

/* The largest multiple of 2^BOUND_SHIFT that at least KEEP maxima reach, by the first warp: two
 * bits a step. */
static __device__ __forceinline__ void find_bound(chunk_room &room) {
    u32 q[THREADS / 32], t = 0;
    if (threadIdx.x >= 32) return;
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++)
        q[i] = room.most[i * 32 + threadIdx.x];
    for (int s = 29; s >= BOUND_SHIFT; s -= 2) {
        u32 t1 = t + (1u << s), t2 = t + (2u << s), t3 = t + (3u << s), c1 = 0, c2 = 0, c3 = 0;
#pragma unroll
        for (int i = 0; i < THREADS / 32; i++) {
            c1 += q[i] >= t1;
            c2 += q[i] >= t2;
            c3 += q[i] >= t3;
        }
        u32 c = __reduce_add_sync(RILL_FULL, c1 | c2 << 10 | c3 << 20);
        t = (c >> 20) >= KEEP ? t3 : (c >> 10 & 1023) >= KEEP ? t2 : (c & 1023) >= KEEP ? t1 : t;
    }
    if (threadIdx.x == 0) room.bound = max_u32(t, 1);
}

/* Lists the keys of the values that are wanted: wanted(bits, index). */
template <class FN> static __device__ __forceinline__ void collect(chunk_room &room, FN wanted) {
    u32 mask = 0, at = 0;
#pragma unroll
    for (u32 j = 0; j < PER; j++) {
        const uint4 v = *(const uint4 *)(room.value + index_in(j, 0));
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            if (wanted(word_at(v, (int)c), index_in(j, c))) mask |= 1u << (4 * j + c);
    }
    const u32 mine = (u32)__popc(mask), up_to = warp_prefix(mine);
    if (lane_id() == 31 && up_to) at = atomicAdd(&room.count, up_to);
    at = __shfl_sync(RILL_FULL, at, 31) + up_to - mine;
    for (; mask; mask &= mask - 1, at++) {
        const u32 bit = 31 - (u32)__clz((int)(mask & (0u - mask))), i = index_in(bit / 4, bit % 4);
        if (at < CANDIDATES) room.key[at] = chunk_key(room.value[i], i);
    }
}

/* The KEEP-th largest key, bit by bit. At least as many entries are there. */
static __device__ u64 search_keys(chunk_room &room) {
    u64 t = 0;
    for (int bit = 43; bit >= 0; bit--) {
        u64 tried = t | 1ull << bit;
        u32 n = 0;
        if (threadIdx.x == 0) room.counts[bit & 1] = 0;
        __syncthreads();
#pragma unroll
        for (u32 j = 0; j < PER; j++) {
            const uint4 v = *(const uint4 *)(room.value + index_in(j, 0));
#pragma unroll
            for (u32 c = 0; c < 4; c++)
                n += is_entry(word_at(v, (int)c)) &&
                     chunk_key(word_at(v, (int)c), index_in(j, c)) >= tried;
        }
        n = __reduce_add_sync(RILL_FULL, n);
        if (lane_id() == 0 && n) atomicAdd(&room.counts[bit & 1], n);
        __syncthreads();
        if (room.counts[bit & 1] >= KEEP) t = tried;
    }
    return t;
}

/* The largest candidates, in order: each counts those above it, two threads for one where there
 * are enough. */
static __device__ __forceinline__ void rank_candidates(chunk_room &room, u32 found) {
    const bool two = found <= THREADS / 2;
    const u32 by = two ? 2 : 1, mine = threadIdx.x / by;
    if ((threadIdx.x & ~31u) >= found * by) return; /* the whole warp */
    const u64 key = mine < found ? room.key[mine] : ~0ull;
    u32 rank = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x % by; i < found; i += by)
        rank += room.key[i] > key;
    if (two) rank += __shfl_xor_sync(RILL_FULL, rank, 1);
    if (mine >= found || threadIdx.x % by || rank >= KEEP) return;
    room.best[rank] = key;
    room.index[rank] = CHUNK - 1 - ((u32)(key >> 1) & (CHUNK - 1));
}
/* How many of the kept indices are below this one. */
static __device__ __forceinline__ u32 indices_below(const chunk_room &room, u32 index) {
    u32 n = 0;
#pragma unroll
    for (u32 i = 0; i < KEEP / 4; i++) {
        uint4 q = *(const uint4 *)(room.index + 4 * i);
        n += (q.x < index) + (q.y < index) + (q.z < index) + (q.w < index);
    }
    return n;
}

/* Indices and values of the kept entries, in order of the index; found: how many there are. */
static __device__ __forceinline__ void write_chunk(chunk_room &room, u32 found, u32 *out) {
    const u32 tid = threadIdx.x;
    if (tid >= KEEP) return;
    u32 e = room.ordered[tid < found ? tid : found - 1];
    u32 sign = __ballot_sync(RILL_FULL, tid < found && (e >> 13 & 1));
    u32 outer = __ballot_sync(RILL_FULL, tid < found && (e >> 12 & 1));
    if (lane_id() == 0) {
        out[24 + tid / 32 * 2] = sign;
        out[25 + tid / 32 * 2] = outer;
    }
    if (tid >= 24) return;
    u32 word = 0, first = 32 * tid / 12;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        int shift = (int)((first + i) * 12) - (int)(32 * tid);
        if (shift >= 32 || first + i >= KEEP) continue;
        u32 index = room.ordered[min_u32(first + i, found - 1)] & (CHUNK - 1);
        word |= shift >= 0 ? index << shift : index >> -shift;
    }
    out[tid] = word;
}

/* A thread's part of a chunk. */
struct chunk_part {
    uint4 v[PER], g[PER];
};
static __device__ __forceinline__ void load_chunk(const chunk_task &t, u64 base, chunk_part &x) {
    if (base + CHUNK <= t.n) {
#pragma unroll
        for (u32 j = 0; j < PER; j++) {
            x.v[j] = __ldcs((const uint4 *)(t.residual + base + index_in(j, 0)));
            x.g[j] = __ldcs((const uint4 *)(t.gradient + base + index_in(j, 0)));
        }
        return;
    }
#pragma unroll
    for (u32 j = 0; j < PER; j++) {
        const u64 i = base + index_in(j, 0);
        x.v[j] = x.g[j] = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            if (i + c < t.n) {
                set_word(x.v[j], (int)c, rill__hd_bits(t.residual[i + c]));
                set_word(x.g[j], (int)c, rill__hd_bits(t.gradient[i + c]));
            }
    }
}

/* The sum of four values, where it is finite; returns the largest key. */
static __device__ __forceinline__ u32 add_four(uint4 &v, const uint4 &g, u32 &bad) {
    const uint4 old = v;
    u32 most = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        set_word(v, c, add_bits<f32>(word_at(old, c), word_at(g, c)));
        most = max_u32(most, word_at(v, c) & f32::MAGNITUDE);
    }
    if (most < f32::NAN_KEY - 1) return most;
    most = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const bool odd = (word_at(v, c) & f32::MAGNITUDE) >= f32::NAN_KEY - 1;
        bad += odd;
        if (odd) set_word(v, c, word_at(old, c));
        most = max_u32(most, key_of<f32>(word_at(v, c)));
    }
    return most;
}
/* Adds, writes the residual and shared memory; returns the largest key. */
static __device__ __forceinline__ u32 settle_chunk(const chunk_task &t, chunk_room &room, u64 base,
                                                   chunk_part &x, u32 &bad) {
    u32 most = 0;
#pragma unroll
    for (u32 j = 0; j < PER; j++) {
        const u64 i = base + index_in(j, 0);
        most = max_u32(most, add_four(x.v[j], x.g[j], bad));
        *(uint4 *)(room.value + index_in(j, 0)) = x.v[j];
        if (i + 4 <= t.n) *(uint4 *)(t.residual + i) = x.v[j];
        else
#pragma unroll
            for (u32 c = 0; c < 4; c++)
                if (i + c < t.n) t.residual[i + c] = rill__hd_float(word_at(x.v[j], (int)c));
    }
    return most;
}

/* Ranks the largest of the chunk in room.best and room.index; returns how many there are. */
static __device__ __forceinline__ u32 select_chunk(chunk_room &room, u32 most) {
    const u32 tid = threadIdx.x;
    room.most[tid] = most;
    if (tid < KEEP) room.index[tid] = NO_INDEX;
    if (tid == 0) room.count = 0;
    __syncthreads();
    find_bound(room);
    __syncthreads();
    const u32 bound = room.bound;
    collect(room, [&](u32 bits, u32) { return (bits & f32::MAGNITUDE) >= bound; });
    __syncthreads();
    u32 found = room.count;
    if (found > CANDIDATES) {
        const u64 least = search_keys(room);
        __syncthreads();
        if (tid == 0) room.count = 0;
        __syncthreads();
        collect(room, [&](u32 bits, u32 index) {
            return is_entry(bits) && chunk_key(bits, index) >= least;
        });
        __syncthreads();
        found = room.count;
    }
    rank_candidates(room, found);
    __syncthreads();
    return min_u32(found, KEEP);
}

__global__ void __launch_bounds__(THREADS, BLOCKS) chunk_kernel(chunk_task t) {
    RILL_SHARED(chunk_room, room);
    const u32 tid = threadIdx.x;
    const u64 base = (u64)blockIdx.x * CHUNK;
    u32 *out = t.out + (u64)blockIdx.x * WORDS;
    chunk_part x;
    u32 bad = 0;
    load_chunk(t, base, x);
    const u32 most = settle_chunk(t, room, base, x, bad);
    if (t.nonfinite && bad) atomicAdd(t.nonfinite, (u64)bad);
    const u32 kept = select_chunk(room, most);
    const float scale = kept ? rill__hd_float((u32)(room.best[0] >> 13)) : 0.0f;
    if (tid == 0) out[28] = rill__hd_bits(scale);
    if (!kept) {
        if (tid < 28) out[tid] = 0;
        return;
    }
    if (tid < kept) {
        const u64 key = room.best[tid];
        const u32 index = room.index[tid], negative = (u32)key & 1;
        const float magnitude = rill__hd_float((u32)(key >> 13));
        const int outer = rill__hd_chunk_outer(magnitude, scale);
        const float level = rill__hd_chunk_level(outer, scale);
        room.ordered[indices_below(room, index)] = index | (u32)outer << 12 | negative << 13;
        t.residual[base + index] = negative ? -magnitude + level : magnitude - level;
    }
    __syncthreads();
    write_chunk(room, kept, out);
}

int rill__cuda_chunk(float *residual, const float *gradient, uint64_t n, uint32_t *out,
                     uint64_t *nonfinite, void *stream) {
    chunk_task t = {residual, gradient, n, out, (u64 *)nonfinite};
    if (nonfinite) RILL_CUDA_TRY(rill__cuda_zero(nonfinite, sizeof *nonfinite, stream));
    return launch(chunk_kernel, t, div_up(n, CHUNK), THREADS, stream);
}

/* ---- the way back --------------------------------------------------------------------------- */

struct chunk_decode_task {
    const u32 *in;
    u64 n;
    float *dense;
};
struct chunk_decode_room {
    __align__(16) float value[CHUNK];
    u32 index[KEEP];
};

static __device__ __forceinline__ u32 chunk_index(const u32 *in, u32 i) {
    u32 bit = 12 * i, word = in[bit / 32] >> bit % 32;
    if (bit % 32 > 20) word |= in[bit / 32 + 1] << (32 - bit % 32);
    return word & (CHUNK - 1);
}

template <int ADD>
__global__ void __launch_bounds__(THREADS) chunk_decode_kernel(chunk_decode_task t) {
    RILL_SHARED(chunk_decode_room, room);
    const u32 tid = threadIdx.x, *in = t.in + (u64)blockIdx.x * WORDS;
    const u64 base = (u64)blockIdx.x * CHUNK;
    const float scale = rill__hd_float(in[28]);
    if (tid < KEEP) room.index[tid] = chunk_index(in, tid);
    if (!ADD)
        for (u32 i = tid; i < CHUNK; i += THREADS)
            room.value[i] = 0;
    __syncthreads();
    if (tid < KEEP && scale != 0) {
        u32 index = room.index[tid], sign = in[24 + tid / 32 * 2] >> tid % 32 & 1;
        bool there = base + index < t.n && (tid == 0 || index > room.index[tid - 1]);
        float level = rill__hd_chunk_level((int)(in[25 + tid / 32 * 2] >> tid % 32 & 1), scale);
        if (there && ADD) t.dense[base + index] += sign ? -level : level;
        if (there && !ADD) room.value[index] = sign ? -level : level;
    }
    if (ADD) return;
    __syncthreads();
    for (u32 i = 4 * tid; i < CHUNK; i += 4 * THREADS) {
        if (base + i + 4 <= t.n)
            __stcs((uint4 *)(t.dense + base + i), *(const uint4 *)(room.value + i));
        else
            for (u32 c = 0; base + i + c < t.n; c++)
                t.dense[base + i + c] = room.value[i + c];
    }
}

int rill__cuda_chunk_decode(const uint32_t *in, uint64_t n, int add, float *dense, void *stream) {
    chunk_decode_task t = {in, n, dense};
    return launch(add ? chunk_decode_kernel<1> : chunk_decode_kernel<0>, t, div_up(n, CHUNK),
                  THREADS, stream);
}

RILL_CUDA_ONE_OF_FILE(chunk, (chunk_kernel))
