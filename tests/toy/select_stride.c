/* stride: a toy that shows what a selection needs: a file such as this, and a row.
 *
 * Idea: the vector is cut into strides of ceil(dim / k) entries, and the largest magnitude of each
 * is selected. Restriction: at most k entries. Ties go to the lower index, NaN is the largest; a
 * stride of zeros gives nothing. Memory: the pairs. Cost: one read of N (fused: two reads and a
 * write). */
#include "select/select.h"

typedef struct strides {
    rill__source source;
    uint64_t length;
} strides;

static rill_status stride_work(rill__slice *p, const void *context) {
    const strides *c = context;
    const rill_selector *s = p->selector;
    RILL_TRY(rill__slice_room(p, p->n / c->length + 1));
    for (uint64_t at = p->first, end = p->first + p->n; at < end;) {
        uint64_t stop = at + rill__min_u64(end - at, c->length), best = at, most = 0;
        rill__slice_add(p, c->source, at, stop - at);
        for (; at < stop; at++) {
            uint64_t key = rill__key_at(s, c->source.dense, at);
            if (key <= most) continue;
            most = key;
            best = at;
        }
        if (most) rill__slice_take(p, c->source, best, 1, &(uint32_t){0});
    }
    return RILL_OK;
}

static rill_status select_stride(rill_selector *s, rill__source source, rill_stream *out) {
    strides c = {source, s->dim / s->k + (s->dim % s->k != 0)};
    rill__slices_split(s, c.length, out); /* whole strides: the result is that of one thread */
    RILL_TRY(rill__slices_run(s, stride_work, &c));
    return rill__slices_join(s, out);
}

extern const rill__select_method toy_select_stride;
const rill__select_method toy_select_stride = {
    .name = "stride",
    .description = "the largest magnitude of each of k strides",
    .needs_share = true,
    .select = select_stride,
};
