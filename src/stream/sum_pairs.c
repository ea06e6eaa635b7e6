/* Union of P sorted inputs: a tree of 2-way merges, or tiles.
 *
 * The tree costs ceil(log2 P) merges per element and its bandwidth is the cache's: the inputs are
 * cut at common indices into chunks whose whole tree stays in the second-level cache, so that
 * memory is read and written once. Tiles cost the same for every P, plus a scan of all indices of
 * the range. Hence the tree for few inputs of low density, tiles otherwise.
 *
 * Where the union is going to be dense, tiles can write it so: whether it is, is guessed from the
 * indices of a few stretches (rill__union_exceeds).
 *
 * The choice uses counts only; neither cuts nor the size of a tile change the order in which the
 * values of an index are combined, so equal counts give equal bits. */
#include "stream/pairs.h"

#include <string.h>

#define CHUNK_BYTES (512u << 10) /* pairs of all inputs; 128 KiB costs 5-10 % more */
#define CHUNK_PART 256u          /* at least so many of one input, or searching cuts dominates */

/* True if tiles are cheaper. ns per input element at d = total / range, fitted to the table below:
 * tree 0.6 ceil(log2 n), tiles 1.15 + 0.1 / d. Ties within 15 % go to tiles, which lose little
 * where merges are fast and gain where they are not (scalar: 3.2 a level against 3 to 4 in all for
 * unions over 30 %). Measured with f32, 32-bit indices, SUM, uniformly random supports
 * in 16M, minimum of 15 to 2,000 runs, gcc 12 -O3, AVX-512 on Zen 4:
 *     n x pairs    d    tree tiles      n x pairs    d    tree tiles
 *     3 x 1M      0.18  1.25  1.9        16 x 60k    0.06  2.3   2.8
 *     4 x 1M      0.24  1.30  1.65       16 x 160k   0.15  2.4   2.0
 *     4 x 3M      0.72  1.32  1.3        64 x 16k    0.06  3.6   2.9
 *     8 x 160k    0.08  1.8   2.3        64 x 40k    0.15  3.8   2.2
 *     8 x 400k    0.19  1.9   1.8        64 x 160k   0.61  3.8   1.4
 *     8 x 1M      0.48  1.85  1.35 */
static bool prefer_tiles(uint64_t range, int n, uint64_t total) {
    double levels = 32 - __builtin_clz((unsigned)n - 1);
    double tree = 1.15 * 0.6 * levels * (double)total;
    double tiles = 1.15 * (double)total + 0.1 * (double)range;
    return tiles < tree;
}

typedef struct tree {
    const rill__kernels *kernels;
    rill__shape shape;
    const rill_op *op;
    size_t value_bytes;
    rill__pairs *node; /* the inputs of the level being merged */
    char *idx[2], *val[2];
} tree;

/* Merges the nodes of a chunk level by level between the two halves of the scratch memory; the last
 * level writes to idx and val. Returns the count. */
static uint64_t merge_chunk(tree *t, int n, void *idx, void *val) {
    unsigned ib = t->shape.index_bytes;
    size_t vb = t->value_bytes;
    for (int side = 0; n > 2; side = !side) {
        uint64_t at = 0;
        int made = 0;
        for (int i = 0; i < n; i += 2) {
            void *to_idx = t->idx[side] + at * ib, *to_val = t->val[side] + at * vb;
            rill__pairs a = t->node[i];
            if (i + 1 < n) {
                a.n = t->kernels->merge(t->shape, t->op, a, t->node[i + 1], to_idx, to_val);
            } else if (a.n) { /* moves along, as the level after next overwrites where it lies */
                memcpy(to_idx, a.idx, a.n * ib);
                memcpy(to_val, a.val, a.n * vb);
            }
            t->node[made++] = (rill__pairs){a.n, to_idx, to_val};
            at += a.n;
        }
        n = made;
    }
    return t->kernels->merge(t->shape, t->op, t->node[0], t->node[1], idx, val);
}

static uint64_t merge_tree(tree *t, int n, const rill__pairs *in, uint64_t *at, uint64_t part,
                           char *idx, char *val) {
    unsigned ib = t->shape.index_bytes;
    uint64_t count = 0;
    for (bool more = true; more;) {
        /* The cut: no input has more than part pairs below it. */
        uint64_t cut = UINT64_MAX;
        more = false;
        for (int i = 0; i < n; i++) {
            if (in[i].n - at[i] <= part) continue;
            cut = rill__min_u64(cut, rill__index_at(ib, in[i].idx, at[i] + part));
            more = true;
        }
        for (int i = 0; i < n; i++) {
            uint64_t end = rill__min_u64(in[i].n, at[i] + part);
            if (more) end = rill__index_lower_bound(ib, in[i].idx, at[i], end, cut);
            t->node[i] = (rill__pairs){end - at[i], (const char *)in[i].idx + at[i] * ib,
                                       (const char *)in[i].val + at[i] * t->value_bytes};
            at[i] = end;
        }
        count += merge_chunk(t, n, idx + count * ib, val + count * t->value_bytes);
    }
    return count;
}

/* Next piece of the scratch memory, 64-byte aligned and followed by slack. */
static void *carve(char *base, size_t *used, size_t bytes) {
    void *piece = base ? base + *used : NULL;
    *used += (bytes + RILL__SLACK + 63) & ~(size_t)63;
    return piece;
}

/* Lays out the scratch memory; with base NULL it only measures. */
static size_t layout(tree *t, char *base, int n, uint64_t part, rill__pairs **live, uint64_t **at) {
    size_t used = 0, most = (size_t)n * (size_t)part;
    *live = carve(base, &used, (size_t)n * sizeof **live);
    *at = carve(base, &used, (size_t)n * sizeof **at);
    t->node = carve(base, &used, (size_t)n * sizeof *t->node);
    for (int side = 0; side < 2; side++) {
        t->idx[side] = carve(base, &used, most * t->shape.index_bytes);
        t->val[side] = carve(base, &used, most * t->value_bytes);
    }
    return used;
}

/* ---- will the union be dense? ---------------------------------------------------------------- */

/* Stretches, indices of one, and words of its bitmap. The share of what is set is off by 0.2 % (one
 * standard deviation) where indices are spread evenly; a wrong guess costs time, nothing else. */
enum { STRETCHES = 4, STRETCH = 16384, WORDS = STRETCH / 64 };

static uint64_t count_stretch(unsigned index_bytes, uint64_t from, int n, const rill__pairs *in) {
    uint64_t bits[WORDS] = {0}, count = 0;
    for (int i = 0; i < n; i++) {
        uint64_t at = rill__index_lower_bound(index_bytes, in[i].idx, 0, in[i].n, from);
        for (; at < in[i].n; at++) {
            uint64_t k = rill__index_at(index_bytes, in[i].idx, at) - from;
            if (k >= STRETCH) break;
            bits[k / 64] |= UINT64_C(1) << k % 64;
        }
    }
    for (int w = 0; w < WORDS; w++)
        count += (uint64_t)__builtin_popcountll(bits[w]);
    return count;
}

bool rill__union_exceeds(rill__shape shape, uint64_t first, uint64_t range, int n,
                         const rill__pairs *in, uint64_t limit) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < n; i++)
        total += in[i].n;
    if (total <= limit || range < (uint64_t)16 * STRETCHES * STRETCH) return false;
    for (unsigned s = 0; s < STRETCHES; s++)
        seen += count_stretch(shape.index_bytes, first + range / STRETCHES * s, n, in);
    return (double)seen * (double)range > (double)limit * STRETCHES * STRETCH;
}

bool rill__sum_prefers_tiles(uint64_t range, int n, const rill__pairs *in) {
    uint64_t total = 0;
    int live = 0;
    for (int i = 0; i < n; i++) {
        total += in[i].n;
        live += in[i].n != 0;
    }
    return live > 2 && prefer_tiles(range, live, total);
}

/* ---- sum ------------------------------------------------------------------------------------- */

/* Pairs of one input in a chunk. */
static uint64_t part_of_chunk(rill__shape shape, int n) {
    uint64_t chunk = CHUNK_BYTES / (shape.index_bytes + rill__type_size(shape.type));
    return rill__max_u64(chunk / (uint64_t)n, CHUNK_PART);
}

size_t rill__pairs_scratch(rill__shape shape, int n) {
    tree t = {.shape = shape, .value_bytes = rill__type_size(shape.type)};
    rill__pairs *live;
    uint64_t *at;
    return rill__max_u64(rill__tiles_workspace(shape),
                         layout(&t, NULL, n, part_of_chunk(shape, n), &live, &at));
}

rill_status rill__sum_pairs(const rill__kernels *kernels, rill__shape shape, const rill_op *op,
                            uint64_t first, uint64_t range, int n, const rill__pairs *in,
                            rill__buffer *scratch, void *idx, void *val, uint64_t *count) {
    uint64_t total = 0;
    int live_count = 0;
    rill__pairs some[2] = {{0, NULL, NULL}, {0, NULL, NULL}};
    for (int i = 0; i < n; i++) {
        if (!in[i].n) continue;
        total += in[i].n;
        if (live_count < 2) some[live_count] = in[i];
        live_count++;
    }
    size_t value_bytes = rill__type_size(shape.type);
    *count = 0;
    if (live_count == 0) return RILL_OK;
    if (live_count == 1) {
        memcpy(idx, some[0].idx, total * shape.index_bytes);
        memcpy(val, some[0].val, total * value_bytes);
        *count = total;
        return RILL_OK;
    }
    if (live_count == 2) {
        *count = kernels->merge(shape, op, some[0], some[1], idx, val);
        return RILL_OK;
    }
    if (prefer_tiles(range, live_count, total)) {
        RILL_TRY(rill__buffer_reserve(scratch, rill__tiles_workspace(shape)));
        *count = kernels->sum_tiles(shape, op, first, range, n, in, idx, val, scratch->data);
        return RILL_OK;
    }

    tree t = {kernels, shape, op, value_bytes, NULL, {NULL, NULL}, {NULL, NULL}};
    uint64_t part = part_of_chunk(shape, live_count);
    rill__pairs *live;
    uint64_t *at;
    RILL_TRY(rill__buffer_reserve(scratch, layout(&t, NULL, live_count, part, &live, &at)));
    layout(&t, scratch->data, live_count, part, &live, &at);
    int k = 0;
    for (int i = 0; i < n; i++)
        if (in[i].n) live[k++] = in[i];
    memset(at, 0, (size_t)live_count * sizeof *at);
    *count = merge_tree(&t, live_count, live, at, part, idx, val);
    return RILL_OK;
}
