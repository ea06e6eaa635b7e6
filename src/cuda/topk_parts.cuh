/* Parts of topk.cu: what its kernels share, and the scan. The idea is told there. */
#ifndef RILL_CUDA_TOPK_PARTS_CUH
#define RILL_CUDA_TOPK_PARTS_CUH

#include "ordered.cuh"

enum {
    SAMPLE_BITS = 15, /* bins of the sample: exponent and 7 bits of an f32; all of a 16-bit key */
    SAMPLE_BINS = 1 << SAMPLE_BITS,
    SAMPLE_SHARE =
        128,         /* one pair of vectors in this many; one alone would be no cheaper to read */
    LEVEL_BITS = 12, /* bins of a level of the search for the k-th */
    LEVEL_BINS = 1 << LEVEL_BITS,
    LEVELS = 3,
    SAMPLERS = 1024, /* threads of a block that samples */
    SCANNERS = 256,
    FINISHERS = 512,
    SEGMENT_BITS = 12,        /* log2 of the values of a segment */
    SEGMENT_BITS_ADDING = 11, /* with a gradient: reads and writes of a time lie closer together */
    HELD = 16,                /* pairs that a lane holds when they are written to their places */
    KEYS = 128,               /* of the window, gathered by a warp before it writes them */
    NO_PAGE = -1
};

/* Found by the first kernels for the later ones. Keys from tlo on are staged; those from thi on
 * are surely selected; those between form the window. */
struct topk_state {
    u32 tlo, thi;
    u32 blocks_done, ranked; /* of the sample, and of the search for the k-th */
    u32 taken;               /* segments, after the first of each warp */
    u32 pages, window;       /* asked for: more than there are means overflow */
    u32 overflow;
    u32 failed;    /* the sample misled, or there are too many candidates */
    u32 key, ties; /* selected: keys above key, and the first `ties` equal to it */
    u64 found, nonfinite;
    u32 guess;        /* a key near tlo: where most values are the same, that one */
    u64 above, equal; /* of the guess */
};

/* Where the pairs of a segment are: from `start` to the end of its page, then in `second`, and on
 * along page_next. */
struct run {
    u32 start, count;
    int second;
};

struct topk_task {
    const void *dense; /* NULL: residual */
    void *residual;
    const void *gradient;
    u32 n, k;
    u32 *idx;
    void *val;
    rill__cuda_found *result;
    int guards;

    u32 segments, segment_bits; /* log2 of the values of one */
    u32 warps;                  /* that scan */
    u32 max_pages, max_window;
    u32 page_size;  /* pairs; a power of 2 */
    u32 group_bits; /* log2 of the segments that a warp writes to their places at once */
    topk_state *state;
    u32 *sample;    /* SAMPLE_BINS */
    u32 *level;     /* LEVELS * LEVEL_BINS */
    ordered order;  /* of the tiles that are written */
    run *runs;      /* of each segment */
    uint2 *page;    /* (index, bits) */
    int *page_next; /* of each page */
    u32 *window;    /* keys, in any order */
    u32 *above, *equal;
    u32 *block_above, *block_equal;
    u32 sample_groups, sample_stride; /* pairs of vectors */
    size_t zeroed;                    /* bytes from state on, before the first kernel */
};

/* The first level's bins of the window are 2^this wide. */
template <class T> static __device__ __forceinline__ int window_shift(u32 tlo, u32 thi) {
    u32 width = min_u32(thi, T::NAN_KEY + 1) - tlo;
    int bits = width > 1 ? 32 - __clz((int)(width - 1)) : 0;
    return bits > LEVEL_BITS ? bits - LEVEL_BITS : 0;
}

/* ---- vectors -------------------------------------------------------------------------------- */

/* v = v + gradient where that is allowed. */
template <class T>
static __device__ __forceinline__ void add_row(uint4 &v, const uint4 &g, int guards, u32 &bad) {
#pragma unroll
    for (int j = 0; j < T::PER; j++) {
        u32 old = bits_at<T>(v, j), sum = add_bits<T>(old, bits_at<T>(g, j));
        bool odd = (sum & T::MAGNITUDE) >= T::NAN_KEY - 1;
        bad += odd;
        set_bits<T>(v, j, odd && guards ? old : sum);
    }
}
template <class T> static __device__ __forceinline__ uint4 without(uint4 v, u32 thi) {
#pragma unroll
    for (int j = 0; j < T::PER; j++)
        if ((bits_at<T>(v, j) & T::MAGNITUDE) >= thi) set_bits<T>(v, j, 0);
    return v;
}

/* The vector that starts at value i, of which the first `have` are read; the others are 0. */
template <class T>
static __device__ __forceinline__ uint4 load_some(const void *from, u32 i, u32 have) {
    uint4 v = make_uint4(0, 0, 0, 0);
    const typename T::word *x = (const typename T::word *)from + i;
#pragma unroll
    for (int j = 0; j < T::PER; j++)
        if ((u32)j < have) set_bits<T>(v, j, x[j]);
    return v;
}
template <class T>
static __device__ __forceinline__ void store_some(void *to, u32 i, u32 have, const uint4 &v) {
    typename T::word *x = (typename T::word *)to + i;
#pragma unroll
    for (int j = 0; j < T::PER; j++)
        if ((u32)j < have) x[j] = (typename T::word)bits_at<T>(v, j);
}
/* COUNT rows of a warp from value `first` of the lane on; a row has a vector for each lane.
 * whole: all are there; else those past n are 0. */
template <class T, int COUNT>
static __device__ __forceinline__ void load_rows(const void *from, u32 first, u32 n, bool whole,
                                                 uint4 *v) {
    if (whole) {
        const uint4 *x = (const uint4 *)((const typename T::word *)from + first);
#pragma unroll
        for (int u = 0; u < COUNT; u++)
            v[u] = __ldcs(x + u * 32);
        return;
    }
#pragma unroll
    for (int u = 0; u < COUNT; u++) {
        const u32 i = first + u * 32 * T::PER;
        v[u] = load_some<T>(from, i, i < n ? n - i : 0);
    }
}
template <class T, int COUNT>
static __device__ __forceinline__ void store_rows(void *to, u32 first, u32 n, bool whole,
                                                  const uint4 *v) {
    if (whole) {
        uint4 *x = (uint4 *)((typename T::word *)to + first);
#pragma unroll
        for (int u = 0; u < COUNT; u++)
            __stcs(x + u * 32, v[u]);
        return;
    }
#pragma unroll
    for (int u = 0; u < COUNT; u++) {
        const u32 i = first + u * 32 * T::PER;
        store_some<T>(to, i, i < n ? n - i : 0, v[u]);
    }
}

/* ---- the scan ------------------------------------------------------------------------------- */

/* A warp loads a batch of vectors, each lane its own of every row, so that the loads are wide;
 * and looks at it through shared memory, each lane at neighbours: then one sum over the lanes
 * puts all candidates of the batch in order. A vector of padding after each lane's keeps the
 * lanes in different banks. */
template <class T, int FORM> struct batch {
    enum {
        VECTORS = T::PER == 4 && FORM != 2 ? 8 : 4,
        LANE = VECTORS * T::PER, /* values of a lane, at most 32 */
        SIZE = 32 * LANE
    };
    struct room {
        uint4 tile[32 * (VECTORS + 1)];
        uint16_t list[SIZE]; /* places of the candidates in the batch */
        u32 keys[KEYS];
    };
    static __device__ __forceinline__ u32 slot(u32 vector) { return vector + vector / VECTORS; }
    static __device__ __forceinline__ u32 value(const room &r, u32 place) {
        return ((const typename T::word *)r.tile)[place + place / LANE * T::PER];
    }
};

struct scanner {
    u32 tlo, thi;
    int shift;
    u32 at, left; /* the next pair's place, and how many fit in the page */
    int page, next;
    bool asked; /* for the next page: lane 0 has it */
    u32 count;  /* pairs of this segment */
    run now;
    u32 keys; /* that are gathered */
    u32 found, bad;
    bool ok; /* all candidates so far are staged */
};

/* The next number, for lane 0: nobody waits for the answer before it is needed, as the compiler
 * would make the warp do for atomicAdd, or with a limit that it knows. */
static __device__ __forceinline__ u32 ask_number(u32 *counter, u32 limit) {
#ifdef RILL_EMULATE
    (void)limit;
    return atomicAdd(counter, 1u);
#else
    return atomicInc(counter, limit);
#endif
}
/* Asks for the page after this one. */
static __device__ __forceinline__ void ask_page(const topk_task &t, scanner &s) {
    if (lane_id() == 0) s.next = (int)ask_number(&t.state->pages, ~t.page_size);
    s.asked = true;
}
static __device__ __forceinline__ bool turn_page(const topk_task &t, scanner &s) {
    if (!s.asked) ask_page(t, s);
    u32 page = (u32)__shfl_sync(RILL_FULL, s.next, 0);
    s.asked = false;
    if (page >= t.max_pages) {
        if (lane_id() == 0) t.state->overflow = 1;
        return false;
    }
    if (lane_id() == 0 && s.page != NO_PAGE) t.page_next[s.page] = (int)page;
    s.page = (int)page;
    s.at = page * t.page_size;
    s.left = t.page_size;
    if (!s.count) s.now.start = s.at;
    else if (s.now.second == NO_PAGE) s.now.second = (int)page;
    return true;
}

/* Writes the gathered keys of the window. */
static __device__ __forceinline__ void put_keys(const topk_task &t, const u32 *keys, scanner &s) {
    u32 at = 0;
    if (!s.keys) return;
    if (lane_id() == 0) at = atomicAdd(&t.state->window, s.keys);
    at = __shfl_sync(RILL_FULL, at, 0);
    __syncwarp();
    if (at < t.max_window && t.max_window - at >= s.keys)
        for (u32 i = lane_id(); i < s.keys; i += 32)
            t.window[at + i] = keys[i];
    else if (lane_id() == 0) t.state->overflow = 1;
    __syncwarp();
    s.keys = 0;
}

/* Stages the pairs that the list has, of the batch that starts at `first`. */
template <class T, int FORM>
static __device__ __forceinline__ void stage_list(const topk_task &t,
                                                  typename batch<T, FORM>::room &room, u32 *bins,
                                                  u32 first, u32 all, scanner &s) {
    for (u32 done = 0; done < all;) {
        if (!s.left && !turn_page(t, s)) {
            s.ok = false;
            return;
        }
        if (!s.count) s.now.start = s.at;
        const u32 add = min_u32(s.left, all - done);
        for (u32 i0 = 0; i0 < add; i0 += 32) {
            const u32 i = i0 + lane_id();
            const bool in = i < add;
            u32 place = 0, bits = 0;
            if (in) {
                place = room.list[done + i];
                bits = batch<T, FORM>::value(room, place);
                t.page[s.at + i] = make_uint2(first + place, bits);
            }
            const bool sure = (bits & T::MAGNITUDE) >= s.thi;
            if (FORM == 1 && in && sure) ((typename T::word *)t.residual)[first + place] = 0;
            const u32 mask = __ballot_sync(RILL_FULL, in && !sure);
            if (!mask) continue;
            if (in && !sure) {
                u32 key = key_of<T>(bits);
                atomicAdd(&bins[(key - s.tlo) >> s.shift], 1u);
                room.keys[s.keys + __popc(mask & lanes_below())] = key;
            }
            s.keys += __popc(mask);
            if (s.keys > KEYS - 32) put_keys(t, room.keys, s);
        }
        done += add;
        s.at += add;
        s.left -= add;
        s.count += add;
    }
    if (!s.asked && s.left <= t.page_size / 2) ask_page(t, s);
}

template <class T, int FORM>
static __device__ __forceinline__ void stage_batch(const topk_task &t,
                                                   typename batch<T, FORM>::room &room, u32 *bins,
                                                   u32 first, scanner &s) {
    typedef batch<T, FORM> B;
    u32 mask = 0;
#pragma unroll
    for (int i = 0; i < B::VECTORS; i++) {
        const uint4 v = room.tile[lane_id() * (B::VECTORS + 1) + i];
#pragma unroll
        for (int j = 0; j < T::PER; j++)
            if (reaches<T>(bits_at<T>(v, j), s.tlo)) mask |= 1u << (i * T::PER + j);
    }
    if (!__any_sync(RILL_FULL, mask != 0)) return;
    const u32 mine = (u32)__popc(mask), up_to = warp_prefix(mine);
    u32 to = up_to - mine;
    for (; mask; mask &= mask - 1)
        room.list[to++] = (uint16_t)(lane_id() * B::LANE + 31 - __clz((int)(mask & (0u - mask))));
    __syncwarp();
    stage_list<T, FORM>(t, room, bins, first, __shfl_sync(RILL_FULL, up_to, 31), s);
}

template <class T, int FORM> struct loaded {
    uint4 v[batch<T, FORM>::VECTORS], g[FORM == 2 ? batch<T, FORM>::VECTORS : 1];
};
template <class T, int FORM>
static __device__ __forceinline__ void load_batch(const topk_task &t, u32 first, bool whole,
                                                  loaded<T, FORM> &x) {
    first += lane_id() * T::PER;
    load_rows<T, batch<T, FORM>::VECTORS>(FORM == 0 ? t.dense : t.residual, first, t.n, whole, x.v);
    if (FORM == 2) load_rows<T, batch<T, FORM>::VECTORS>(t.gradient, first, t.n, whole, x.g);
}
/* To shared memory; with a gradient the sum, which goes to the residual without what is surely
 * selected. */
template <class T, int FORM>
static __device__ __forceinline__ void settle_batch(const topk_task &t,
                                                    typename batch<T, FORM>::room &room, u32 first,
                                                    bool whole, loaded<T, FORM> &x, scanner &s) {
    const u32 thi = s.ok ? s.thi : ~0u;
#pragma unroll
    for (int i = 0; i < batch<T, FORM>::VECTORS; i++) {
        if (FORM == 2) add_row<T>(x.v[i], x.g[i], t.guards, s.bad);
        room.tile[batch<T, FORM>::slot(i * 32 + lane_id())] = x.v[i];
        x.v[i] = FORM == 2 ? without<T>(x.v[i], thi) : x.v[i];
    }
    if (FORM == 2)
        store_rows<T, batch<T, FORM>::VECTORS>(t.residual, first + lane_id() * T::PER, t.n, whole,
                                               x.v);
}
/* Undoes the clearing of a batch that could not be staged. */
template <class T, int FORM>
static __device__ void restore_batch(const topk_task &t, typename batch<T, FORM>::room &room,
                                     u32 first) {
    for (int i = 0; i < batch<T, FORM>::VECTORS; i++) {
        const u32 at = first + (i * 32 + lane_id()) * T::PER;
        store_some<T>(t.residual, at, at < t.n ? t.n - at : 0,
                      room.tile[batch<T, FORM>::slot(i * 32 + lane_id())]);
    }
}

/* The segments of a warp: first, first + warps and so on; with a gradient, where more is moved,
 * those after the first are asked for: multiprocessors differ in how near memory is. FORM: 0
 * reads dense; 1 clears residual; 2 adds the gradient first. What is not staged is not
 * cleared. */
template <class T, int FORM>
static __device__ __forceinline__ void scan_segments(const topk_task &t,
                                                     typename batch<T, FORM>::room &room, u32 *bins,
                                                     u32 first, scanner &s) {
    typedef batch<T, FORM> B;
    const u32 batches = (1u << t.segment_bits) / B::SIZE, whole = t.n >> t.segment_bits;
    loaded<T, FORM> x;
    u32 segment = first, number = 0, later = 0;
    if (segment >= t.segments) return;
    load_batch<T, FORM>(t, segment << t.segment_bits, segment < whole, x);
    if (FORM == 2 && lane_id() == 0) later = ask_number(&t.state->taken, ~t.page_size);
    ask_page(t, s);
    for (;;) {
        const u32 here = (segment << t.segment_bits) + number * B::SIZE;
        settle_batch<T, FORM>(t, room, here, segment < whole, x, s);
        const bool last = number == batches - 1;
        u32 next = last ? segment + t.warps : segment;
        if (FORM == 2 && last) {
            next = t.warps + __shfl_sync(RILL_FULL, later, 0);
            if (lane_id() == 0) later = ask_number(&t.state->taken, ~t.page_size);
        }
        number = last ? 0 : number + 1;
        if (next < t.segments)
            load_batch<T, FORM>(t, (next << t.segment_bits) + number * B::SIZE, next < whole, x);
        __syncwarp();
        if (s.ok) {
            stage_batch<T, FORM>(t, room, bins, here, s);
            if (FORM == 2 && !s.ok) restore_batch<T, FORM>(t, room, here);
        }
        __syncwarp();
        if (last || !s.ok) {
            s.now.count = s.count;
            if (lane_id() == 0 && s.count) t.runs[segment] = s.now;
            s.found += s.count;
            s.count = 0;
            s.now.second = NO_PAGE;
        }
        if (next >= t.segments || (FORM != 2 && !s.ok)) return;
        segment = next;
    }
}

template <class T, int FORM>
static __device__ __forceinline__ void scan(const topk_task &t,
                                            typename batch<T, FORM>::room *rooms, u32 *bins) {
    const u32 warp = (blockIdx.x * SCANNERS + threadIdx.x) >> 5;
    typename batch<T, FORM>::room &room = rooms[threadIdx.x >> 5];
    scanner s = {};
    for (u32 i = threadIdx.x; i < LEVEL_BINS; i += SCANNERS)
        bins[i] = 0;
    wait_before();
    s.tlo = __ldcg(&t.state->tlo);
    s.thi = __ldcg(&t.state->thi);
    s.shift = window_shift<T>(s.tlo, s.thi);
    s.page = s.now.second = NO_PAGE;
    s.ok = !__ldcg(&t.state->overflow);
    __syncthreads();
    scan_segments<T, FORM>(t, room, bins, warp, s);
    put_keys(t, room.keys, s);
    const u32 bad = FORM == 2 ? __reduce_add_sync(RILL_FULL, s.bad) : 0;
    if (lane_id() == 0) {
        if (bad) atomicAdd(&t.state->nonfinite, (u64)bad);
        if (s.found) atomicAdd(&t.state->found, (u64)s.found);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < LEVEL_BINS; i += SCANNERS)
        if (bins[i]) atomicAdd(&t.level[i], bins[i]);
}

/* What a segment has staged, in order, by a warp: fn(place of the pair, whether there is one). */
template <class FN>
static __device__ __forceinline__ void each_staged(const topk_task &t, const run &r, FN fn) {
    u32 at = r.start, left = r.count;
    int page = (int)(at / t.page_size);
    while (left) {
        u32 have = min_u32(left, t.page_size - (at & (t.page_size - 1)));
        for (u32 i = 0; i < have; i += 32)
            fn(at + i + lane_id(), i + lane_id() < have);
        left -= have;
        if (!left) break;
        page = t.page_next[page];
        at = (u32)page * t.page_size;
    }
}

/* ---- bins ----------------------------------------------------------------------------------- */

/* The bin, from the top, where the counts reach rank; rank becomes the rank inside of it. All
 * threads of a block of FINISHERS call it. Counts up to 2^32 - 1 in all. */
struct bin_room {
    u32 warps[FINISHERS / 32], bin, rank;
};
static __device__ __forceinline__ u32 find_bin(const u32 *bins, u32 &rank, bin_room &room) {
    const u32 PER = LEVEL_BINS / FINISHERS, top = LEVEL_BINS - PER * (threadIdx.x + 1);
    u32 count[PER], sum = 0, total;
#pragma unroll
    for (u32 i = 0; i < PER; i++)
        sum += count[i] = __ldcg(bins + top + i);
    u32 c = block_prefix(sum, room.warps, &total) - sum;
    if (rank > c && rank <= c + sum) {
#pragma unroll
        for (u32 i = PER; i-- > 0;) {
            if (rank > c && rank - c <= count[i]) {
                room.bin = top + i;
                room.rank = rank - c;
            }
            c += count[i];
        }
    }
    __syncthreads();
    rank = room.rank;
    u32 bin = room.bin;
    __syncthreads();
    return bin;
}

#endif
