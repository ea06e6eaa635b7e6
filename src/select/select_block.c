/* block: all entries of the blocks with the largest L2 norm.
 *
 * Idea: one pass (which also adds the gradient) sums the squares of each block in double; the norms
 * are few, and the exact selection among them works on their bits as it does on magnitudes. Then
 * only the chosen blocks are read again.
 * Source: S2 Reducer (Ge et al., 2022), 1/32 of the blocks.
 * Restriction: max(1, round(blocks * density)) blocks, where density is k / dim if k is given; ties
 * go to the lower block, NaN is the largest norm. Entries that are 0 are left out, as are blocks
 * whose squares sum to 0. A block is at most 2^31.
 * Memory: a double per block, and the pairs. Cost: one read of N (fused: two reads and a write) and
 * one of what is selected. */
#include "select/select.h"

#include <math.h>

typedef struct blocks {
    rill__source source;
    double *norm; /* squared; later 1 for the chosen, else 0 */
} blocks;

static rill_status norm_work(rill__slice *p, const void *context) {
    const blocks *b = context;
    const rill_selector *s = p->selector;
    double sums[2];
    for (uint64_t at = p->first, end = p->first + p->n; at < end; at += s->block) {
        uint64_t n = rill__min_u64(end - at, s->block);
        rill__slice_add(p, b->source, at, n);
        s->kernels->moments(s->shape.type, (const char *)b->source.dense + at * s->size, n, sums);
        b->norm[at / s->block] = sums[1];
    }
    return RILL_OK;
}

static rill_status take_work(rill__slice *p, const void *context) {
    const blocks *b = context;
    const rill_selector *s = p->selector;
    uint32_t offsets[RILL__SELECT_CHUNK + RILL__SLACK / sizeof(uint32_t)];
    for (uint64_t start = p->first, end = p->first + p->n; start < end; start += s->block) {
        if (b->norm[start / s->block] == 0) continue;
        uint64_t stop = rill__min_u64(end, start + s->block);
        for (uint64_t at = start; at < stop; at += RILL__SELECT_CHUNK) {
            uint64_t n = rill__min_u64(stop - at, RILL__SELECT_CHUNK);
            uint64_t found = s->kernels->filter(s->shape.type,
                                                (const char *)b->source.dense + at * s->size, n, 1,
                                                0, offsets);
            RILL_TRY(rill__slice_room(p, found));
            rill__slice_take(p, b->source, at, found, offsets);
        }
    }
    return RILL_OK;
}

/* Norms become marks. Returns how many blocks are chosen. */
static uint64_t choose(const rill_selector *s, double *norm, uint64_t n, uint64_t want,
                       uint64_t *keys) {
    const rill_selector as_f64 = {.shape = {RILL_F64, 4}, .size = 8};
    uint64_t live = s->kernels->keys(RILL_F64, norm, n, 1, UINT64_MAX, keys), chosen = 0;
    rill__kth kth = {1, 0, 0}; /* all that are not 0 */
    uint64_t ties = live;
    if (live > want) {
        kth = s->kernels->kth(RILL_F64, keys, live, want, keys);
        ties = want - kth.above;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t key = rill__key_at(&as_f64, norm, i);
        bool take = key > kth.key || (key == kth.key && ties);
        ties -= key == kth.key && take;
        norm[i] = take;
        chosen += take;
    }
    return chosen;
}

static rill_status select_block(rill_selector *s, rill__source source, rill_stream *out) {
    uint64_t n = s->dim / s->block + (s->dim % s->block != 0);
    uint64_t want = rill__max_u64(1, (uint64_t)floor(s->density * (double)n + 0.5));
    RILL_TRY(rill__buffer_reserve(&s->work, n * sizeof(double)));
    RILL_TRY(rill__buffer_reserve(&s->sample, n * sizeof(uint64_t)));
    blocks b = {source, s->work.data};
    rill__slices_split(s, s->block, out);
    RILL_TRY(rill__slices_run(s, norm_work, &b));
    uint64_t chosen = choose(s, b.norm, n, want, s->sample.data);
    RILL_TRY(rill__slice_room(&s->slices[0], rill__min_u64(s->slices[0].n, chosen * s->block)));
    RILL_TRY(rill__slices_run(s, take_work, &b));
    return rill__slices_join(s, out);
}

static rill__pick ask_block(const rill_selector *s, uint64_t *room) {
    uint64_t n = s->dim / s->block + (s->dim % s->block != 0);
    uint64_t want = rill__max_u64(1, (uint64_t)floor(s->density * (double)n + 0.5));
    *room = rill__min_u64(want * s->block, s->dim);
    return (rill__pick){.kind = RILL__PICK_BLOCK, .k = want, .group = s->block};
}

const rill__select_method rill__select_block = {
    .name = "block",
    .description = "the blocks with the largest L2 norm",
    .select = select_block,
    .ask = ask_block,
    .ahead = RILL__AHEAD,
};
