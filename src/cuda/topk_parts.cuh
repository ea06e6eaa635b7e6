/* Parts of topk.cu: what its kernels share. The idea is told there. */
#ifndef RILL_CUDA_TOPK_PARTS_CUH
#define RILL_CUDA_TOPK_PARTS_CUH

#include "device.cuh"

enum {
    SAMPLE_BITS = 15, /* bins of the sample: exponent and 7 bits of an f32; all of a 16-bit key */
    SAMPLE_BINS = 1 << SAMPLE_BITS,
    LEVEL_BITS = 12, /* bins of a level of the search for the k-th */
    LEVEL_BINS = 1 << LEVEL_BITS,
    LEVELS = 3,
    SAMPLERS = 1024, /* threads of a block that samples */
    SCANNERS = 256,
    FINISHERS = 512,
    NO_PAGE = -1
};

/* Found by the first kernels for the later ones. Keys from tlo on are staged; those from thi on
 * are surely selected. */
struct topk_state {
    u32 tlo, thi;
    u32 blocks_done;
    u32 pages, window_pages; /* asked for: more than there are means overflow */
    u32 overflow;
    u32 failed;    /* the sample misled, or there are too many candidates */
    u32 key, ties; /* selected: keys above key, and the first `ties` equal to it */
    u64 found, sure, nonfinite;
};

/* A segment is a range of rows that a warp scans; a row is a vector of 16 bytes for each lane.
 * Candidates go to pages of a row's size: pairs to those of the segment, which form a chain;
 * keys in [tlo, thi) also to window pages, in any order. */
struct topk_task {
    const void *dense; /* NULL: residual */
    void *residual;
    const void *gradient;
    u32 n, k;
    u32 *idx;
    void *val;
    rill__cuda_found *result;
    int guards;

    u32 segments, rows; /* rows of one */
    u32 max_pages, max_window;
    topk_state *state;
    u32 *sample;            /* SAMPLE_BINS; zero between calls of the sampling kernel's blocks */
    u32 *level;             /* LEVELS * LEVEL_BINS */
    uint2 *page;            /* (index, bits) */
    int *page_next;         /* of each page */
    u32 *window;            /* keys; 0: none */
    u32 *window_owner;      /* segment of a window page */
    int *head;              /* of a segment's chain */
    u32 *staged, *windowed; /* pairs of a segment; those below thi */
    u32 *above, *equal;     /* of a segment: selected for sure, and ties */
    u32 *block_above, *block_equal;
    u32 sample_groups, sample_stride; /* vectors */
};

template <class T> struct shape {
    enum { ROW = 32 * T::PER, PAGE = ROW };
};

/* ---- the scan ------------------------------------------------------------------------------- */

/* Where a warp writes next in a chain of pages. */
struct chain {
    u32 at, room; /* the next entry, and how many are left in its page */
    int page;
    u32 count;
};

/* The place of the warp's i-th new entry, once `fresh` is there. */
static __device__ __forceinline__ u32 chain_place(const chain &c, u32 fresh, u32 i) {
    return i < c.room ? c.at + i : fresh + (i - c.room);
}
static __device__ __forceinline__ void chain_advance(chain &c, u32 fresh, u32 page_size, u32 add) {
    if (add > c.room) {
        c.at = fresh + (add - c.room);
        c.room = page_size - (add - c.room);
    } else {
        c.at += add;
        c.room -= add;
    }
    c.count += add;
}
/* A new page for the whole warp, or NO_PAGE. */
static __device__ __forceinline__ int take_page(u32 *counter, u32 most, u32 *overflow) {
    u32 page = 0;
    if (lane_id() == 0) {
        page = atomicAdd(counter, 1u);
        if (page >= most) *overflow = 1;
    }
    page = __shfl_sync(RILL_FULL, page, 0);
    return page < most ? (int)page : NO_PAGE;
}

struct scanner {
    chain pairs, keys;
    u32 bad;
    bool ok; /* all candidates so far are staged */
};

/* Stages the candidates of a row: lane holds the values from index on, `have` of them. */
template <class T>
static __device__ __forceinline__ void stage_row(const topk_task &t, u32 segment, const uint4 &v,
                                                 u32 index, u32 have, u32 tlo, u32 thi,
                                                 scanner &s) {
    const u32 PAGE = shape<T>::PAGE;
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < T::PER; j++)
        if ((u32)j < have) most = max_u32(most, bits_at<T>(v, j) & T::MAGNITUDE);
    if (!s.ok || !__any_sync(RILL_FULL, most >= tlo)) return;
    /* Candidates, and above them those of the window, in one sum over the lanes: shuffles are
     * cheaper than the population counts that ballots would need. */
    u32 both = 0;
#pragma unroll
    for (int j = 0; j < T::PER; j++) {
        u32 key = bits_at<T>(v, j) & T::MAGNITUDE;
        if ((u32)j < have && key >= tlo) both += key < thi ? 0x10001u : 1u;
    }
    const u32 up_to = warp_prefix(both), all = __shfl_sync(RILL_FULL, up_to, 31);
    u32 before = (up_to - both) & 0xffffu, add = all & 0xffffu;
    u32 window_before = (up_to - both) >> 16, window_add = all >> 16;
    u32 fresh = 0, window_fresh = 0;
    if (add > s.pairs.room) {
        int page = take_page(&t.state->pages, t.max_pages, &t.state->overflow);
        if (page == NO_PAGE) {
            s.ok = false;
            return;
        }
        if (lane_id() == 0) {
            if (s.pairs.page == NO_PAGE) t.head[segment] = page;
            else t.page_next[s.pairs.page] = page;
            t.page_next[page] = NO_PAGE;
        }
        s.pairs.page = page;
        fresh = (u32)page * PAGE;
    }
    if (window_add > s.keys.room) {
        int page = take_page(&t.state->window_pages, t.max_window, &t.state->overflow);
        if (page == NO_PAGE) {
            s.ok = false;
            return;
        }
        if (lane_id() == 0) t.window_owner[page] = segment;
        window_fresh = (u32)page * PAGE;
        for (u32 i = lane_id(); i < PAGE; i += 32)
            t.window[window_fresh + i] = 0;
        __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < T::PER; j++) {
        u32 bits = bits_at<T>(v, j), key = bits & T::MAGNITUDE;
        if ((u32)j >= have || key < tlo) continue;
        t.page[chain_place(s.pairs, fresh, before++)] = make_uint2(index + j, bits);
        if (key < thi)
            t.window[chain_place(s.keys, window_fresh, window_before++)] = key_of<T>(bits);
    }
    chain_advance(s.pairs, fresh, PAGE, add);
    chain_advance(s.keys, window_fresh, PAGE, window_add);
}

/* v = v + gradient where that is allowed. */
template <class T>
static __device__ __forceinline__ void add_row(uint4 &v, const uint4 &g, u32 have, int guards,
                                               u32 &bad) {
#pragma unroll
    for (int j = 0; j < T::PER; j++) {
        if ((u32)j >= have) continue;
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

/* The rest of a segment, row by row, with the vector's end. */
template <class T, int FORM>
static __device__ void scan_tail(const topk_task &t, u32 segment, u32 row, u32 end, u32 tlo,
                                 u32 thi, scanner &s) {
    for (; row < end; row++) {
        u32 index = row * shape<T>::ROW + lane_id() * T::PER;
        u32 have = index < t.n ? min_u32(T::PER, t.n - index) : 0;
        uint4 v = load_some<T>(FORM == 0 ? t.dense : t.residual, index, have);
        if (FORM == 2) add_row<T>(v, load_some<T>(t.gradient, index, have), have, t.guards, s.bad);
        stage_row<T>(t, segment, v, index, have, tlo, thi, s);
        if (FORM == 2 || (FORM == 1 && s.ok))
            store_some<T>(t.residual, index, have, s.ok ? without<T>(v, thi) : v);
    }
}

/* One segment. FORM: 0 reads dense; 1 clears residual; 2 adds the gradient first. What is not
 * staged is not cleared. */
template <class T, int FORM, int UNROLL>
static __device__ __forceinline__ void scan_segment(const topk_task &t, u32 segment, u32 tlo,
                                                    u32 thi) {
    const u32 ROW = shape<T>::ROW, lane = lane_id();
    const u32 rows = t.n / ROW + (t.n % ROW != 0), whole = t.n / ROW;
    u32 row = min_u32(segment * t.rows, rows), end = min_u32(row + t.rows, rows);
    const u32 last = min_u32(end, whole);
    scanner s = {{0, 0, NO_PAGE, 0}, {0, 0, NO_PAGE, 0}, 0, true};
    if (lane == 0) t.head[segment] = NO_PAGE;
    for (; row + UNROLL <= last; row += UNROLL) {
        uint4 v[UNROLL], g[UNROLL];
        const size_t at = (size_t)row * 32 + lane;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            v[u] = __ldcs((const uint4 *)(FORM == 0 ? t.dense : t.residual) + at + u * 32);
            if (FORM == 2) g[u] = __ldcs((const uint4 *)t.gradient + at + u * 32);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (FORM == 2) add_row<T>(v[u], g[u], T::PER, t.guards, s.bad);
            u32 had = s.pairs.count;
            stage_row<T>(t, segment, v[u], (row + u) * ROW + lane * T::PER, T::PER, tlo, thi, s);
            if (FORM == 2 || (FORM == 1 && s.ok && s.pairs.count != had))
                __stcs((uint4 *)t.residual + at + u * 32, s.ok ? without<T>(v[u], thi) : v[u]);
        }
    }
    scan_tail<T, FORM>(t, segment, row, end, tlo, thi, s);
    if (FORM == 2) {
        u32 bad = __reduce_add_sync(RILL_FULL, s.bad);
        if (lane == 0 && bad) atomicAdd(&t.state->nonfinite, (u64)bad);
    }
    if (lane == 0) {
        t.staged[segment] = s.pairs.count;
        t.windowed[segment] = s.keys.count;
        atomicAdd(&t.state->found, (u64)s.pairs.count);
        atomicAdd(&t.state->sure, (u64)(s.pairs.count - s.keys.count));
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
