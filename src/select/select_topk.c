/* topk: the k entries of largest magnitude, exactly.
 *
 * Idea: a sample bounds the k-th largest magnitude from below and from above. One pass takes all
 * entries from the lower bound on, in order; those from the upper bound on are surely among the
 * result, so only the few keys in between are searched for the k-th, and one more pass over the
 * pairs found (not the vector) drops the rest. The sample decides about time, never about the
 * result: should fewer than k entries be found, a second pass takes all that are not 0, and the
 * scan bounds what it holds by itself (select_scan.c), which also covers data with many ties.
 *
 * Fused: the pass adds the gradient and clears what it takes; the few that the cut drops are put
 * back. So it stays one pass over gradient and residual.
 *
 * Source: sampled selection after Floyd and Rivest, CACM 18 (1975); sampled thresholds for
 * gradients: Lin et al., ICLR 2018, made exact here.
 * Restriction: none. Result: min(k, entries that are not 0); ties go to the lower index; a NaN is
 * the largest. Memory: up to 1.5 k pairs and k keys. Cost: one read of N, 64K entries sampled,
 * 2 ns per pair. */
#include "select/select.h"

#include <math.h>
#include <string.h>

/* Up to SMALL entries all are sampled, and the bounds are exact. */
enum { SMALL = 8192, LEAST_SAMPLE = 4096, MOST_SAMPLE = 65536, SAMPLE_SHARE = 256, LINE = 64 };
#define MARGIN 4.0 /* standard deviations; a miss costs one more pass */
#define MOST_MARGIN 64.0

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Whole cache lines, evenly spread with a jitter, so that a period in the data does no harm. */
static uint64_t copy_sample(const rill_selector *s, const void *from, void *to) {
    uint64_t line = LINE / s->size;
    if (s->dim <= SMALL) {
        memcpy(to, from, s->dim * s->size);
        return s->dim;
    }
    uint64_t want = rill__min_u64(MOST_SAMPLE, rill__max_u64(LEAST_SAMPLE, s->dim / SAMPLE_SHARE));
    uint64_t lines = want / line, stride = s->dim / lines;
    for (uint64_t i = 0; i < lines; i++) {
        uint64_t at = i * stride + mix(i + 1) % (stride - line + 1);
        memcpy((char *)to + i * LINE, (const char *)from + at * s->size, LINE);
    }
    return lines * line;
}

rill_status rill__sample_take(rill_selector *s, const rill__source *source, uint64_t *n) {
    const rill__select_kernels *kernels = s->kernels;
    rill_type type = s->shape.type;
    size_t room = (size_t)MOST_SAMPLE * rill__max_u64(s->size, rill__key_bytes(type));
    RILL_TRY(rill__buffer_reserve(&s->sample, room));
    RILL_TRY(rill__buffer_reserve(&s->addend, room));
    RILL_TRY(rill__buffer_reserve(&s->work, room));
    *n = copy_sample(s, source->dense, s->sample.data);
    if (source->gradient) {
        copy_sample(s, source->gradient, s->addend.data);
        bool skipped;
        kernels->add_filter(type, s->sample.data, s->addend.data, *n, rill__key_none(type), 0,
                            s->work.data, s->guards ? &skipped : NULL);
    }
    kernels->keys(type, s->sample.data, *n, 0, UINT64_MAX, s->addend.data);
    return RILL_OK;
}

static rill_status guess(rill_selector *s, uint64_t k, rill__scan *scan) {
    const rill__select_kernels *kernels = s->kernels;
    rill_type type = s->shape.type;
    uint64_t n;
    RILL_TRY(rill__sample_take(s, &scan->source, &n));
    void *keys = s->addend.data, *scratch = s->work.data;
    double share = (double)k / (double)s->dim, mean = share * (double)n;
    double margin = s->dim <= SMALL ? 0 : s->margin * (1 + sqrt(mean * (1 - share)));
    double low_rank = ceil(mean + margin), high_rank = floor(mean - margin);
    if (s->dim <= SMALL) low_rank = high_rank = (double)k;
    scan->expect = rill__min_u64(s->dim, (uint64_t)(low_rank / (double)n * (double)s->dim * 1.05) +
                                             2 * RILL__SELECT_CHUNK);
    scan->key = 1;
    scan->high = UINT64_MAX;
    if (low_rank >= (double)n) return RILL_OK;
    uint64_t low = kernels->kth(type, keys, n, (uint64_t)low_rank, scratch).key;
    if (low == 0) return RILL_OK;
    scan->key = low;
    if (high_rank < 1) return RILL_OK;
    n = kernels->keys(type, s->sample.data, n, low, UINT64_MAX, scratch);
    scan->high = kernels->kth(type, scratch, n, (uint64_t)high_rank, scratch).key + 1;
    return RILL_OK;
}

rill_status rill__topk(rill_selector *s, rill__source source, uint64_t k, rill_stream *out,
                       uint64_t *least) {
    rill__scan scan = {.source = source, .key = 1, .expect = s->dim};
    k = rill__min_u64(k, s->dim);
    if (s->margin == 0) s->margin = MARGIN;
    if (k < s->dim) {
        scan.limit = k;
        RILL_TRY(guess(s, k, &scan));
    }
    RILL_TRY(rill__scan_run(s, &scan, out));
    uint64_t found = rill__slices_count(s);
    if (found < k && scan.key > 1) {
        rill__scan_undo(s, &scan);
        s->margin = fmin(2 * s->margin, MOST_MARGIN); /* this data's samples mislead */
        scan.key = 1;
        scan.high = 0;
        scan.source.gradient = NULL; /* it has been added */
        RILL_TRY(rill__scan_run(s, &scan, out));
        found = rill__slices_count(s);
    }
    if (least) *least = 0;
    if (found > k || (least && found))
        RILL_TRY(rill__scan_cut(s, &scan, rill__min_u64(k, found), least));
    return rill__slices_join(s, out);
}

static rill_status select_topk(rill_selector *s, rill__source source, rill_stream *out) {
    return rill__topk(s, source, s->k, out, NULL);
}

static rill__pick ask_topk(const rill_selector *s, uint64_t *room) {
    *room = s->k;
    return (rill__pick){.kind = RILL__PICK_TOPK, .k = s->k};
}

const rill__select_method rill__select_topk = {
    .name = "topk",
    .description = "the k largest magnitudes, exactly",
    .needs_share = true,
    .select = select_topk,
    .ask = ask_topk,
    .ahead = RILL__AHEAD,
};
