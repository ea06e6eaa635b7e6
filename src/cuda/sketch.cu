/* Count-sketches; the twin is coll/topk/sketch.c.
 *
 * add: the slots of a cell are a range, and step i + start = slot (mod slots) can be solved for
 * i, as slots are a prime number. So each cell gathers its few entries, in order, and no sum
 * depends on who comes first: the host's bits without sorting.
 * Restriction: slots below 2^32. Cost: a random read for each entry and row; a cell of m entries
 * looks at m^2 numbers. */
#include "device.cuh"

enum { THREADS = 256 };

struct sketch_task {
    rill__cuda_sketch s;
    u64 inverse[RILL__CUDA_SKETCH_ROWS]; /* of the steps */
    const void *values;
    void *cells;
    const void *read;
    u64 first, n;
    double *median, *mean, *gap;
};

static __device__ __forceinline__ u64 cell_of(const rill__cuda_sketch &s, u64 slot) {
    return s.scale ? rill__hd_high_product(slot, s.scale) : slot;
}
static __device__ __forceinline__ double signed_value(const sketch_task &t, int row, u64 i,
                                                      double x) {
    u64 sign = (t.s.row[row].sign_factor * rill__hd_mix(i) + t.s.row[row].sign_offset) >> 63;
    u64 bits;
    memcpy(&bits, &x, 8);
    bits ^= sign << 63;
    memcpy(&x, &bits, 8);
    return x;
}
static __device__ __forceinline__ u64 entry_of(const sketch_task &t, int row, u64 slot) {
    if (!t.s.scale) return slot;
    u64 from_start = slot + t.s.slots - t.s.row[row].start;
    return from_start % t.s.slots * t.inverse[row] % t.s.slots;
}
/* The first slot of a cell: the least s with s * scale >> 64 >= cell. */
static __device__ __forceinline__ u64 first_slot(const rill__cuda_sketch &s, u64 cell) {
    if (!s.scale) return cell;
    u64 slot = (u64)((double)cell / (double)s.width * (double)s.slots);
    while (slot && cell_of(s, slot - 1) >= cell)
        slot--;
    while (slot < s.slots && cell_of(s, slot) < cell)
        slot++;
    return slot;
}

__global__ void __launch_bounds__(THREADS) sketch_add_kernel(sketch_task t) {
    const u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= t.s.width * (u64)t.s.rows) return;
    const int row = (int)(at / t.s.width);
    const u64 cell = at % t.s.width, from = first_slot(t.s, cell);
    u64 to = t.s.scale ? first_slot(t.s, cell + 1) : cell + 1;
    float narrow = t.s.wide ? 0 : ((const float *)t.cells)[at];
    double wide = t.s.wide ? ((const double *)t.cells)[at] : 0;
    for (u64 next = 0;;) { /* the entries in order, each the least that is not below next */
        u64 best = ~0ull;
        for (u64 slot = from; slot < to && slot < t.s.slots; slot++) {
            u64 i = entry_of(t, row, slot);
            if (i >= next && i < t.n && i < best) best = i;
        }
        if (best == ~0ull) break;
        double value = t.s.wide ? ((const double *)t.values)[best]
                                : (double)((const float *)t.values)[best];
        value = signed_value(t, row, best, value);
        narrow += (float)value;
        wide += value;
        next = best + 1;
    }
    if (t.s.wide) ((double *)t.cells)[at] = wide;
    else ((float *)t.cells)[at] = narrow;
}

/* The bits of a double in an integer of the same order. All NaNs are at the upper end. */
static __device__ __forceinline__ long long order_key(double x) {
    if (x != x) return 0x7ff8000000000000;
    long long bits;
    memcpy(&bits, &x, 8);
    return bits < 0 ? bits ^ 0x7fffffffffffffffll : bits;
}
static __device__ __forceinline__ double order_value(long long key) {
    long long bits = key < 0 ? key ^ 0x7fffffffffffffffll : key;
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

__global__ void __launch_bounds__(THREADS) sketch_estimate_kernel(sketch_task t) {
    const u64 e = (u64)blockIdx.x * THREADS + threadIdx.x, i = t.first + e;
    if (e >= t.n) return;
    long long key[RILL__CUDA_SKETCH_ROWS] = {0};
    const int rows = t.s.rows;
    double sum = 0;
    for (int j = 0; j < rows; j++) {
        u64 slot = (t.s.row[j].step * i + t.s.row[j].start) % t.s.slots;
        u64 at = (u64)j * t.s.width + cell_of(t.s, slot);
        double x = t.s.wide ? ((const double *)t.read)[at] : (double)((const float *)t.read)[at];
        x = signed_value(t, j, i, x);
        sum += x;
        long long mine = order_key(x);
        int to = j;
        for (; to > 0 && mine < key[to - 1]; to--)
            key[to] = key[to - 1];
        key[to] = mine;
    }
    const int m = rows / 2;
    double here = order_value(key[m]), gap = 0, median = here;
    if (rows > 1) {
        double before = order_value(key[m - 1]);
        if (rows % 2 == 0) {
            gap = here - before;
            median = (before + here) / 2;
        } else {
            double above = order_value(key[m + 1]) - here;
            gap = here - before;
            gap = gap < above ? gap : above;
        }
    }
    t.mean[e] = sum / rows;
    t.median[e] = median;
    t.gap[e] = gap;
}

/* x with a x = 1 (mod p), p prime. */
static u64 inverse_of(u64 a, u64 p) {
    long long r0 = (long long)p, r1 = (long long)(a % p), x0 = 0, x1 = 1;
    while (r1) {
        long long q = r0 / r1, r = r0 - q * r1, x = x0 - q * x1;
        r0 = r1;
        r1 = r;
        x0 = x1;
        x1 = x;
    }
    return (u64)(x0 < 0 ? x0 + (long long)p : x0);
}
static bool valid(const rill__cuda_sketch *s) {
    return s->rows >= 1 && s->rows <= RILL__CUDA_SKETCH_ROWS && s->slots &&
           s->slots <= 0xffffffffull && s->width;
}

int rill__cuda_sketch_add(const rill__cuda_sketch *s, const void *values, uint64_t n, void *cells,
                          void *stream) {
    sketch_task t = {};
    if (!valid(s) || n > s->entries) return RILL_CUDA_INVALID;
    t.s = *s;
    t.values = values;
    t.cells = cells;
    t.n = n;
    for (int j = 0; j < s->rows && s->scale; j++)
        t.inverse[j] = inverse_of(s->row[j].step, s->slots);
    return launch(sketch_add_kernel, t, div_up(s->width * (u64)s->rows, THREADS), THREADS, stream);
}
int rill__cuda_sketch_estimate(const rill__cuda_sketch *s, const void *cells, uint64_t first,
                               uint64_t n, double *median, double *mean, double *gap,
                               void *stream) {
    sketch_task t = {};
    if (!valid(s) || first + n > s->entries) return RILL_CUDA_INVALID;
    t.s = *s;
    t.read = cells;
    t.first = first;
    t.n = n;
    t.median = median;
    t.mean = mean;
    t.gap = gap;
    return launch(sketch_estimate_kernel, t, div_up(n, THREADS), THREADS, stream);
}

RILL_CUDA_ONE_OF_FILE(sketch, (sketch_add_kernel))
