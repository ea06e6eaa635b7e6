/* Values in few bits: QSGD and 16-bit floats, and the norm in a fixed tree. The twins are
 * codec/value_qsgd.c and value_portable.h.
 *
 * quantize: a block of 128 threads has a bucket of 1,024 values in shared memory; a thread makes
 * one block of Philox, which has the random bits of 8 values. Cost: a read of the values, a
 * write of the codes. */
#include "device.cuh"

enum { QUANTIZERS = 128, THREADS = 256, BUCKET = (int)RILL_HD_BUCKET, GROUP = 64 };

/* ---- quantize ------------------------------------------------------------------------------- */

struct quant_task {
    rill__cuda_quant q;
    const float *values;
    u64 n, buckets;
    u32 *units;
    u32 *levels; /* aligned to 4 bytes */
};
struct quant_room {
    float x[BUCKET];
    signed char level[BUCKET];
    double sum[16];
    u32 most, finite_most;
};

/* Values of the bucket: those that are not finite, and those past the end, count as 0. */
static __device__ __forceinline__ void load_bucket(const quant_task &t, quant_room &room,
                                                   u64 base) {
    if (threadIdx.x == 0) room.most = room.finite_most = 0;
    __syncthreads();
    u32 most = 0, finite = 0;
    for (u32 i = threadIdx.x; i < BUCKET; i += QUANTIZERS) {
        float x = base + i < t.n ? __ldg(t.values + base + i) : 0.0f;
        u32 magnitude = rill__hd_bits(x) & 0x7fffffffu;
        bool special = magnitude >= 0x7f800000u;
        most = max_u32(most, magnitude);
        finite = max_u32(finite, special ? 0 : magnitude);
        room.x[i] = special ? 0.0f : x;
    }
    atomicMax(&room.most, __reduce_max_sync(RILL_FULL, most));
    atomicMax(&room.finite_most, __reduce_max_sync(RILL_FULL, finite));
    __syncthreads();
}
/* The Euclidean norm, in the host's order. */
static __device__ __forceinline__ double norm_of_bucket(quant_room &room) {
    if (threadIdx.x < 16) {
        double sum = 0;
        for (u32 i = threadIdx.x; i < BUCKET; i += 16)
            sum += (double)room.x[i] * (double)room.x[i];
        room.sum[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (u32 w = 8; w; w /= 2)
            for (u32 j = 0; j < w; j++)
                room.sum[j] += room.sum[j + w];
    __syncthreads();
    return sqrt(room.sum[0]);
}
/* Levels of the 8 values whose random bits are in one block of Philox. */
static __device__ __forceinline__ void quantize_eight(const quant_task &t, quant_room &room,
                                                      u64 bucket, float before, float factor,
                                                      int most) {
    const u32 group = threadIdx.x / 8, j = threadIdx.x % 8;
    const u64 number = 8 * (bucket * (BUCKET / GROUP) + group) + j;
    u32 c[4] = {(u32)number, (u32)(number >> 32), t.q.high[0], t.q.high[1]};
    rill__hd_philox(t.q.key[0], t.q.key[1], 7, c);
#pragma unroll
    for (u32 e = 0; e < 8; e++) { /* word e / 2, its half e % 2 */
        u32 word = e / 2, at = group * GROUP + word / 2 * 32 + e % 2 * 16 + 2 * j + word % 2;
        u32 random = c[word] >> 16 * (e % 2) & 0xffffu;
        room.level[at] = (signed char)rill__hd_quant_level(room.x[at] * before, factor, random,
                                                           most);
    }
}

/* Packs the levels of a bucket of n values. */
static __device__ __forceinline__ void pack_levels(const signed char *level, int bits, u32 n,
                                                   u32 *out) {
    const u32 bytes = (u32)rill__hd_quant_bytes(bits, n), per = 8 / bits, mask = (1u << bits) - 1;
    for (u32 w = threadIdx.x; 4 * w < bytes; w += QUANTIZERS) {
        u32 word = 0;
        for (u32 i = 0; i < 4 * per; i++)
            word |= ((u32)level[w * 4 * per + i] & mask) << i * bits;
        if (4 * w + 4 <= bytes) out[w] = word;
        else
            for (u32 b = 4 * w; b < bytes; b++)
                ((unsigned char *)out)[b] = (unsigned char)(word >> 8 * (b % 4));
    }
}

__global__ void __launch_bounds__(QUANTIZERS) quantize_kernel(quant_task t) {
    RILL_SHARED(quant_room, room);
    const u64 bucket = blockIdx.x, base = bucket * BUCKET;
    const int bits = t.q.bits;
    load_bucket(t, room, base);
    const bool special = room.most >= 0x7f800000u;
    int most = rill__hd_quant_levels(bits);
    if (special && bits > 2) most--;
    double norm = t.q.l2 ? norm_of_bucket(room) : (double)rill__hd_float(room.finite_most);
    float unit = rill__hd_quant_unit(norm, most);
    float before = unit < rill__hd_float(0x0d800000u) ? rill__hd_float(0x5f800000u)
                                                      : 1.0f; /* 2^-100, 2^64 */
    float factor = unit > 0.0f ? 65536.0f / (unit * before) : 0.0f;
    quantize_eight(t, room, bucket, before, factor, most);
    __syncthreads();
    if (special) {
        for (u32 i = threadIdx.x; i < BUCKET && base + i < t.n; i += QUANTIZERS) {
            float x = t.values[base + i];
            if ((rill__hd_bits(x) & 0x7fffffffu) >= 0x7f800000u)
                room.level[i] = (signed char)rill__hd_quant_special(x, bits);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) t.units[bucket] = rill__hd_bits(special ? -unit : unit);
    const u32 n = t.n - base < BUCKET ? (u32)(t.n - base) : (u32)BUCKET;
    pack_levels(room.level, bits, n, t.levels + bucket * (BUCKET / 32) * bits);
}

/* ---- to nearest, for error feedback ---------------------------------------------------------- */

struct fit_room {
    quant_room quant; /* level: the best so far */
    signed char tried[BUCKET];
    double both[16];
    float own[16];
    double best;
    float fitted;
    u32 better;
};

/* One unit: levels to nearest, and the sums over them in the host's order. */
static __device__ __forceinline__ void try_unit(fit_room &room, float unit, int most) {
    const float factor = 1.0f / unit, limit = (float)most;
    for (u32 i = threadIdx.x; i < BUCKET; i += QUANTIZERS) {
        float y = room.quant.x[i] * factor;
        y = y > limit ? limit : y;
        room.tried[i] = (signed char)rill__hd_quant_rint(y < -limit ? -limit : y);
    }
    __syncthreads();
    if (threadIdx.x < 16) {
        double both = 0;
        float own = 0;
        for (u32 i = threadIdx.x; i < BUCKET; i += 16) {
            float y = (float)room.tried[i];
            both += (double)room.quant.x[i] * (double)y;
            own += y * y;
        }
        room.both[threadIdx.x] = both;
        room.own[threadIdx.x] = own;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double both = 0, own = 0;
        for (u32 j = 0; j < 16; j++) {
            both += room.both[j];
            own += (double)room.own[j];
        }
        double gain = own > 0 ? both * (both / own) : 0;
        room.better = gain > room.best;
        if (room.better) {
            room.best = gain;
            room.fitted = (float)(both / own);
        }
    }
    __syncthreads();
}

__global__ void __launch_bounds__(QUANTIZERS) fit_kernel(quant_task t) {
    RILL_SHARED(fit_room, room);
    const u64 bucket = blockIdx.x, base = bucket * BUCKET;
    const int bits = t.q.bits, most = rill__hd_quant_levels(bits);
    load_bucket(t, room.quant, base);
    const float largest = rill__hd_float(
        room.quant.most); /* not a number, or infinite: left alone */
    if (!(largest >= rill__hd_float(0x0d800000u) && largest <= rill__hd_float(0x71800000u))) return;
    if (threadIdx.x == 0) {
        room.best = 0;
        room.fitted = 0;
    }
    for (u32 i = threadIdx.x; i < BUCKET; i += QUANTIZERS)
        room.quant.level[i] = 0;
    __syncthreads();
    float unit = rill__hd_quant_unit((double)largest, most);
    for (int tries = bits == 8 ? 1 : 10; tries; tries--, unit *= 0.70710678f) {
        try_unit(room, unit, most);
        if (!room.better) break;
        for (u32 i = threadIdx.x; i < BUCKET; i += QUANTIZERS)
            room.quant.level[i] = room.tried[i];
        __syncthreads();
    }
    const float fitted = room.fitted;
    if (!(fitted > 0 && fitted * (float)most <= rill__hd_float(0x7f7fffffu))) return;
    if (threadIdx.x == 0) t.units[bucket] = rill__hd_bits(fitted);
    const u32 n = t.n - base < BUCKET ? (u32)(t.n - base) : (u32)BUCKET;
    pack_levels(room.quant.level, bits, n, t.levels + bucket * (BUCKET / 32) * bits);
}

/* ---- dequantize ----------------------------------------------------------------------------- */

struct dequant_task {
    int bits;
    const u32 *units;
    const signed char *levels;
    u64 n;
    float *values;
    const u32 *idx;
};
enum { STORE, ADD, SCATTER };

template <int BITS, int WHAT>
__global__ void __launch_bounds__(THREADS) dequantize_kernel(dequant_task t) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= t.n) return;
    const u32 per = 8 / BITS, half = 1u << (BITS - 1);
    u32 code = (u32)(unsigned char)t.levels[i / per] >> BITS * (u32)(i % per) & ((1u << BITS) - 1);
    int level = (int)(code ^ half) - (int)half;
    float v = rill__hd_quant_value(level, rill__hd_float(__ldg(t.units + i / BUCKET)), BITS);
    if (WHAT == STORE) t.values[i] = v;
    else if (WHAT == ADD) t.values[i] += v;
    else t.values[t.idx[i]] += v;
}

static bool known_bits(int bits) { return bits == 8 || bits == 4 || bits == 2; }

size_t rill__cuda_qsgd_bytes(int bits, uint64_t n) {
    return (size_t)(4 * div_up(n, BUCKET) + rill__hd_quant_bytes(bits, n));
}
int rill__cuda_quantize(const rill__cuda_quant *q, const float *values, uint64_t n, void *out,
                        void *stream) {
    const u64 buckets = div_up(n, BUCKET);
    quant_task t = {*q, values, n, buckets, (u32 *)out, (u32 *)out + buckets};
    if (!known_bits(q->bits)) return RILL_CUDA_INVALID;
    return launch(quantize_kernel, t, buckets, QUANTIZERS, stream);
}
int rill__cuda_quantize_fit(int bits, const float *exact, uint64_t n, void *encoded, void *stream) {
    const u64 buckets = div_up(n, BUCKET);
    quant_task t = {{{0, 0}, {0, 0}, bits, 0}, exact, n, buckets, (u32 *)encoded,
                    (u32 *)encoded + buckets};
    if (!known_bits(bits)) return RILL_CUDA_INVALID;
    return launch(fit_kernel, t, buckets, QUANTIZERS, stream);
}
template <int WHAT>
static int dequantize(int bits, const void *in, u64 n, const u32 *idx, float *values,
                      void *stream) {
    const u32 *units = (const u32 *)in;
    dequant_task t = {bits, units,  (const signed char *)(units + div_up(n, BUCKET)),
                      n,    values, idx};
    const u64 blocks = div_up(n, THREADS);
    if (bits == 8) return launch(dequantize_kernel<8, WHAT>, t, blocks, THREADS, stream);
    if (bits == 4) return launch(dequantize_kernel<4, WHAT>, t, blocks, THREADS, stream);
    if (bits == 2) return launch(dequantize_kernel<2, WHAT>, t, blocks, THREADS, stream);
    return RILL_CUDA_INVALID;
}
int rill__cuda_dequantize(int bits, const void *in, uint64_t n, int add, float *values,
                          void *stream) {
    return add ? dequantize<ADD>(bits, in, n, NULL, values, stream)
               : dequantize<STORE>(bits, in, n, NULL, values, stream);
}
int rill__cuda_dequantize_scatter_add(int bits, const void *in, uint64_t n, const uint32_t *idx,
                                      float *dense, void *stream) {
    return dequantize<SCATTER>(bits, in, n, idx, dense, stream);
}

/* ---- conversion ----------------------------------------------------------------------------- */

struct convert_task {
    const void *in;
    void *out;
    u64 n;
};
template <class T, int TO>
__global__ void __launch_bounds__(THREADS) convert_kernel(convert_task t) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= t.n) return;
    if (TO) ((float *)t.out)[i] = T::to_float(((const typename T::word *)t.in)[i]);
    else ((typename T::word *)t.out)[i] = (typename T::word)T::from_float(((const float *)t.in)[i]);
}
template <int TO> __global__ void __launch_bounds__(THREADS) convert_wide_kernel(convert_task t) {
    const u64 i = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (i >= t.n) return;
    if (TO) ((float *)t.out)[i] = (float)((const double *)t.in)[i];
    else ((double *)t.out)[i] = (double)((const float *)t.in)[i];
}
template <int TO> static int convert(int type, const convert_task &t, void *stream) {
    const u64 blocks = div_up(t.n, THREADS);
    switch (type) {
    case RILL__CUDA_F32: return launch(convert_kernel<f32, TO>, t, blocks, THREADS, stream);
    case RILL__CUDA_F64: return launch(convert_wide_kernel<TO>, t, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(convert_kernel<f16, TO>, t, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(convert_kernel<bf16, TO>, t, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}
int rill__cuda_to_f32(int type, const void *in, uint64_t n, float *out, void *stream) {
    convert_task t = {in, out, n};
    return convert<1>(type, t, stream);
}
int rill__cuda_from_f32(int type, const float *in, uint64_t n, void *out, void *stream) {
    convert_task t = {in, out, n};
    return convert<0>(type, t, stream);
}

/* ---- norm ----------------------------------------------------------------------------------- */

struct tree_task {
    const void *from;
    u64 n;
    double *out; /* one a tile */
};
struct tree_room {
    double lane[RILL_HD_LANES];
};
struct doubles {}; /* sums of tiles: not squared */
struct f64 {};
template <class T> struct tree_value {
    static __device__ __forceinline__ double at(const void *from, u64 i) {
        double x = (double)T::to_float(((const typename T::word *)from)[i]);
        return x * x;
    }
};
template <> struct tree_value<f64> {
    static __device__ __forceinline__ double at(const void *from, u64 i) {
        double x = ((const double *)from)[i];
        return x * x;
    }
};
template <> struct tree_value<doubles> {
    static __device__ __forceinline__ double at(const void *from, u64 i) {
        return ((const double *)from)[i];
    }
};
template <class T> __global__ void __launch_bounds__(THREADS) tree_kernel(tree_task t) {
    RILL_SHARED(tree_room, room);
    const u64 base = (u64)blockIdx.x * RILL_HD_TILE;
    double sum = 0;
#pragma unroll
    for (u32 i = threadIdx.x; i < RILL_HD_TILE; i += RILL_HD_LANES)
        if (base + i < t.n) sum += tree_value<T>::at(t.from, base + i);
    room.lane[threadIdx.x] = sum;
    __syncthreads();
    for (u32 half = RILL_HD_LANES / 2; half; half /= 2) {
        if (threadIdx.x < half) room.lane[threadIdx.x] += room.lane[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) t.out[blockIdx.x] = room.lane[0];
}

size_t rill__cuda_norm2_workspace(uint64_t n) {
    u64 tiles = div_up(n, RILL_HD_TILE);
    return (size_t)(tiles + div_up(tiles, RILL_HD_TILE) + 2) * 8;
}
int rill__cuda_norm2(int type, const void *from, uint64_t n, double *sum, void *workspace,
                     void *stream) {
    u64 tiles = div_up(n, RILL_HD_TILE);
    double *level[2] = {(double *)workspace, (double *)workspace + tiles + 1};
    if (!n) return rill__cuda_zero(sum, sizeof *sum, stream);
    tree_task t = {from, n, tiles > 1 ? level[0] : sum};
    switch (type) {
    case RILL__CUDA_F32: RILL_CUDA_TRY(launch(tree_kernel<f32>, t, tiles, THREADS, stream)); break;
    case RILL__CUDA_F64: RILL_CUDA_TRY(launch(tree_kernel<f64>, t, tiles, THREADS, stream)); break;
    case RILL__CUDA_F16: RILL_CUDA_TRY(launch(tree_kernel<f16>, t, tiles, THREADS, stream)); break;
    case RILL__CUDA_BF16:
        RILL_CUDA_TRY(launch(tree_kernel<bf16>, t, tiles, THREADS, stream));
        break;
    default: return RILL_CUDA_INVALID;
    }
    for (int i = 0; tiles > 1; i ^= 1) {
        tree_task next = {level[i], tiles, NULL};
        tiles = div_up(tiles, RILL_HD_TILE);
        next.out = tiles > 1 ? level[i ^ 1] : sum;
        RILL_CUDA_TRY(launch(tree_kernel<doubles>, next, tiles, THREADS, stream));
    }
    return 0;
}

RILL_CUDA_ONE_OF_FILE(values, (quantize_kernel))
