/* Steps whose exchange the host does while the stream waits for it: the pairs go out to page-locked
 * memory, and what comes back is applied from there. Everything is queued before any of it is
 * known; so kernels have as many blocks as there may be work, and find out in the reply what there
 * is. The twins are reduce/feedback.c, reduce/undo.c and what they call.
 *
 * Cost: the pairs cross the bus once each way; a write of the update. */
#include "finite.cuh"

enum { THREADS = 256, BLOCKS_EACH = 8 };

struct append_task {
    const rill__cuda_found *found;
    const u32 *idx;
    const void *val;
    u64 first, room;
    u32 *to_idx;
    void *to_val;
    rill__cuda_found *total;
};

static __device__ __forceinline__ u64 first_index() {
    return (u64)blockIdx.x * THREADS + threadIdx.x;
}
static __device__ __forceinline__ u64 all_threads() { return (u64)gridDim.x * THREADS; }
static __device__ __forceinline__ u64 min_u64(u64 a, u64 b) { return a < b ? a : b; }
static __device__ __forceinline__ u64 own_count(const rill__cuda_mail &m) {
    return min_u64(m.found->count, m.room);
}
template <class P> static __device__ __forceinline__ const P *in_box(const void *box, u64 offset) {
    return (const P *)((const char *)box + offset);
}

/* ---- out ------------------------------------------------------------------------------------ */

template <class W> __global__ void __launch_bounds__(THREADS) append_kernel(append_task t) {
    const u64 at = t.total->count, count = t.found->count;
    for (u64 i = first_index(); i < count && at + i < t.room; i += all_threads()) {
        t.to_idx[at + i] = (u32)(t.first + t.idx[i]);
        ((W *)t.to_val)[at + i] = ((const W *)t.val)[i];
    }
}
__global__ void __launch_bounds__(THREADS) total_kernel(append_task t) {
    if (threadIdx.x) return;
    t.total->count += t.found->count;
    t.total->nonfinite += t.found->nonfinite;
}
template <class W> __global__ void __launch_bounds__(THREADS) pack_kernel(rill__cuda_mail m) {
    const u64 count = own_count(m);
    for (u64 i = first_index(); i < count; i += all_threads()) {
        m.out_idx[i] = m.idx[i];
        ((W *)m.out_val)[i] = ((const W *)m.val)[i];
    }
}
__global__ void __launch_bounds__(THREADS) unseen_kernel(rill__cuda_mail m) {
    if (threadIdx.x) return;
    m.seen->least = ~(u64)0;
    m.seen->above = 0;
}
/* Keys fit into 32 bits. */
template <class T> __global__ void __launch_bounds__(THREADS) seen_kernel(rill__cuda_mail m) {
    typedef typename T::word word;
    const u64 count = own_count(m);
    u32 below = 0, above = 0; /* of all ones: so that the largest is the smallest key */
    for (u64 i = first_index(); i < count; i += all_threads())
        below = max_u32(below, ~key_of<T>(((const word *)m.val)[i]));
    for (u64 i = first_index(); m.floor && i < m.n; i += all_threads())
        above += key_of<T>(((const word *)m.residual)[i]) >= m.floor;
    below = __reduce_max_sync(RILL_FULL, below);
    above = __reduce_add_sync(RILL_FULL, above);
    if (lane_id()) return;
    if (below) atomicMin((u64 *)&m.seen->least, (u64)~below);
    if (above) atomicAdd((u64 *)&m.seen->above, (u64)above);
}
__global__ void __launch_bounds__(THREADS) ready_kernel(rill__cuda_mail m) {
    if (threadIdx.x) return;
    if (m.seen) {
        m.letter->least = m.seen->least;
        m.letter->above = m.seen->above;
    }
    m.letter->found.count = own_count(m);
    m.letter->found.nonfinite = m.found->nonfinite + (m.refused ? *m.refused : 0);
    __threadfence_system(); /* these, and what earlier kernels have written */
    *(volatile u32 *)&m.letter->ready = m.number;
}

/* ---- back ----------------------------------------------------------------------------------- */

/* One read over the bus for all kernels that follow. */
__global__ void __launch_bounds__(THREADS) reply_kernel(rill__cuda_mail m) {
    const volatile u32 *from = (const volatile u32 *)&m.letter->reply;
    for (u32 i = threadIdx.x; i < sizeof(rill__cuda_reply) / 4; i += THREADS)
        ((u32 *)m.reply)[i] = from[i];
}
__global__ void __launch_bounds__(THREADS) mask_kernel(rill__cuda_mail m) {
    const u64 n = m.reply->dense ? 0 : m.reply->n;
    if (n > m.mask_room) return;
    const u32 *from = in_box<u32>(m.inbox, m.reply->idx);
    for (u64 i = first_index(); i < n; i += all_threads())
        m.mask[i] = from[i];
}
/* Whether the index is one of the result's, which ascend. */
static __device__ __forceinline__ bool is_delivered(const rill__cuda_mail &m, u32 index) {
    const u64 n = m.reply->n;
    const u32 *mask = m.mask && n <= m.mask_room ? m.mask : in_box<u32>(m.inbox, m.reply->idx);
    u64 low = 0, high = n;
    while (low < high) {
        u64 middle = low + (high - low) / 2;
        if (mask[middle] < index) low = middle + 1;
        else high = middle;
    }
    return low < n && mask[low] == index;
}
template <class T>
static __device__ __forceinline__ void give(const rill__cuda_mail &m, u64 index, u32 bits) {
    typename T::word *at = (typename T::word *)m.residual + index;
    *at = (typename T::word)add_bits<T>(*at, bits);
}
template <class T> __global__ void __launch_bounds__(THREADS) own_kernel(rill__cuda_mail m) {
    const u32 which = m.reply->own;
    if (which == RILL__CUDA_OWN_NONE && !m.floor) return;
    const u64 count = own_count(m);
    for (u64 i = first_index(); i < count; i += all_threads()) {
        const u32 bits = ((const typename T::word *)m.val)[i];
        if (key_of<T>(bits) >= m.floor) { /* else it was not sent */
            if (which == RILL__CUDA_OWN_NONE) continue;
            if (which == RILL__CUDA_OWN_OUTSIDE && is_delivered(m, m.idx[i])) continue;
        }
        give<T>(m, m.idx[i], bits);
    }
}
template <class T> __global__ void __launch_bounds__(THREADS) undo_kernel(rill__cuda_mail m) {
    typedef narrow<T> N;
    if (!m.reply->undo) return;
    for (u64 i = first_index(); i < m.n; i += all_threads())
        N::store(m.residual, i, less_finite<N>(N::load(m.residual, i), N::load(m.gradient, i)));
}
/* The update is 0 before. */
template <class W> __global__ void __launch_bounds__(THREADS) result_kernel(rill__cuda_mail m) {
    const rill__cuda_reply r = *m.reply;
    const W *val = in_box<W>(m.inbox, r.val);
    const u32 *idx = in_box<u32>(m.inbox, r.idx);
    W *update = (W *)m.update;
    const u64 n = r.nan ? m.n : r.n;
    for (u64 i = first_index(); i < n; i += all_threads()) {
        if (r.nan) update[i] = (W)r.bits;
        else if (r.dense) update[i] = val[i];
        else update[idx[i]] = val[i];
    }
}
/* One part after the other: an index may be in several, and sums depend on the order. */
template <class T> __global__ void __launch_bounds__(THREADS) parts_kernel(rill__cuda_mail m) {
    const u32 parts = m.reply->parts;
    const bool inside = m.reply->inside;
    for (u32 p = 0; p < parts; p++) {
        const rill__cuda_part part = in_box<rill__cuda_part>(m.inbox, m.reply->list)[p];
        const u32 *idx = in_box<u32>(m.inbox, part.idx);
        const typename T::word *val = in_box<typename T::word>(m.inbox, part.val);
        for (u64 i = first_index(); i < part.n; i += all_threads()) {
            const u64 index = part.dense ? part.first + i : idx[i];
            if (inside && !part.dense && !is_delivered(m, (u32)index)) continue;
            give<T>(m, index, val[i]);
        }
        if (p + 1 < parts) rill__grid_sync();
    }
}

__global__ void __launch_bounds__(THREADS) done_kernel(rill__cuda_mail m) {
    if (threadIdx.x) return;
    __threadfence_system();
    *(volatile u32 *)&m.letter->done = m.number;
}

/* ---- launches ------------------------------------------------------------------------------- */

/* Blocks of a loop over up to n. */
static int blocks_for(u64 n, u64 *blocks) {
    u32 sms;
    RILL_CUDA_TRY(rill__cuda_sms(&sms));
    const u64 most = (u64)sms * BLOCKS_EACH, need = div_up(n, THREADS);
    *blocks = need < most ? need : most;
    return 0;
}

int rill__cuda_mail_append(const rill__cuda_mail *m, const rill__cuda_found *found,
                           const uint32_t *idx, const void *val, uint64_t first,
                           rill__cuda_found *total, void *stream) {
    append_task t = {found, idx, val, first, m->room, (u32 *)m->idx, (void *)m->val, total};
    u64 blocks;
    RILL_CUDA_TRY(blocks_for(m->room, &blocks));
    if (m->type == RILL__CUDA_F32)
        RILL_CUDA_TRY(launch(append_kernel<u32>, t, blocks, THREADS, stream));
    else RILL_CUDA_TRY(launch(append_kernel<uint16_t>, t, blocks, THREADS, stream));
    return launch(total_kernel, t, 1, THREADS, stream);
}

static int see(const rill__cuda_mail &m, void *stream) {
    u64 blocks;
    RILL_CUDA_TRY(blocks_for(m.n, &blocks));
    RILL_CUDA_TRY(launch(unseen_kernel, m, 1, THREADS, stream));
    switch (m.type) {
    case RILL__CUDA_F32: return launch(seen_kernel<f32>, m, blocks, THREADS, stream);
    case RILL__CUDA_F16: return launch(seen_kernel<f16>, m, blocks, THREADS, stream);
    case RILL__CUDA_BF16: return launch(seen_kernel<bf16>, m, blocks, THREADS, stream);
    default: return RILL_CUDA_INVALID;
    }
}

int rill__cuda_mail_send(const rill__cuda_mail *m, void *stream) {
    u64 blocks;
    RILL_CUDA_TRY(blocks_for(m->room, &blocks));
    if (m->seen) RILL_CUDA_TRY(see(*m, stream));
    if (m->type == RILL__CUDA_F32)
        RILL_CUDA_TRY(launch(pack_kernel<u32>, *m, blocks, THREADS, stream));
    else RILL_CUDA_TRY(launch(pack_kernel<uint16_t>, *m, blocks, THREADS, stream));
    return launch(ready_kernel, *m, 1, THREADS, stream);
}

/* Own pairs go back before the gradient is taken out again; both before the update, which may be
 * the gradient. */
template <class T> static int apply(const rill__cuda_mail &m, void *stream) {
    typedef typename T::word word;
    u64 own, result, dense;
    u32 sms;
    RILL_CUDA_TRY(rill__cuda_sms(&sms));
    RILL_CUDA_TRY(blocks_for(m.room, &own));
    RILL_CUDA_TRY(blocks_for(m.most, &result));
    RILL_CUDA_TRY(blocks_for(m.n, &dense));
    RILL_CUDA_TRY(launch(reply_kernel, m, 1, THREADS, stream));
    if (m.mask) RILL_CUDA_TRY(launch(mask_kernel, m, result, THREADS, stream));
    if (m.residual) RILL_CUDA_TRY(launch(own_kernel<T>, m, own, THREADS, stream));
    if (m.residual && m.gradient && m.undoes)
        RILL_CUDA_TRY(launch(undo_kernel<T>, m, dense, THREADS, stream));
    if (m.update) {
        RILL_CUDA_TRY(rill__cuda_zero(m.update, (size_t)m.n * sizeof(word), stream));
        RILL_CUDA_TRY(launch(result_kernel<word>, m, dense, THREADS, stream));
    }
    if (!m.residual || !m.returns) return 0;
    return launch_any(parts_kernel<T>, m, sms, THREADS, 0, stream, true);
}
int rill__cuda_mail_apply(const rill__cuda_mail *m, void *stream) {
    switch (m->type) {
    case RILL__CUDA_F32: return apply<f32>(*m, stream);
    case RILL__CUDA_F16: return apply<f16>(*m, stream);
    case RILL__CUDA_BF16: return apply<bf16>(*m, stream);
    default: return RILL_CUDA_INVALID;
    }
}

int rill__cuda_mail_done(const rill__cuda_mail *m, void *stream) {
    return launch(done_kernel, *m, 1, THREADS, stream);
}

RILL_CUDA_ONE_OF_FILE(mail, (own_kernel<f32>))
