/* threshold: all entries of at least a given magnitude, or of one that is steered towards k.
 *
 * Idea: with a known threshold selection is a single pass. Every `interval` calls the k-th largest
 * magnitude is found exactly (that call selects exactly k) and becomes the threshold; after each
 * other call it moves by a factor that depends on how far the count was off: 1.01 for 10 %, at most
 * 1.03. A count off by more than a factor of 2 brings the next exact evaluation forward.
 * Source: Ok-Topk (Li and Hoefler, PPoPP 2022).
 * Restriction: the count is k only about. A NaN passes any threshold; entries that are 0 none.
 * Memory: the pairs found. Cost: one read of N, or two reads and a write when fused. */
#include "select/select.h"

#include <math.h>

#define MOST_STEP 1.03
#define GAIN 0.1 /* factor = (count / k) ^ GAIN */

static rill_status pass(rill_selector *s, rill__source source, double level, rill_stream *out) {
    uint64_t key = rill__max_u64(1, rill__key_from(s->shape.type, level));
    uint64_t expect = s->expected + s->expected / 8 + RILL__SELECT_CHUNK;
    rill__scan scan = {.source = source, .key = key, .expect = rill__min_u64(s->dim, expect)};
    RILL_TRY(rill__scan_run(s, &scan, out));
    RILL_TRY(rill__slices_join(s, out));
    s->expected = out->nnz;
    return RILL_OK;
}

static void steer(rill_selector *s, uint64_t count) {
    double ratio = rill__max_u64(1, count) / (double)s->k;
    double factor = pow(ratio, GAIN);
    s->level *= fmin(fmax(factor, 1 / MOST_STEP), MOST_STEP);
    if (ratio > 2 || ratio < 0.5) s->exact_at = s->calls + 1;
}

static rill_status select_threshold(rill_selector *s, rill__source source, rill_stream *out) {
    if (s->threshold > 0) return pass(s, source, s->threshold, out);
    if (s->level == 0 || s->calls >= s->exact_at) {
        uint64_t least;
        RILL_TRY(rill__topk(s, source, s->k, out, &least));
        /* 0 (nothing to select) makes the next call exact as well. */
        s->level = rill__key_value(s->shape.type, least);
        s->exact_at = s->calls + s->interval;
        s->expected = out->nnz;
        return RILL_OK;
    }
    RILL_TRY(pass(s, source, s->level, out));
    steer(s, out->nnz);
    return RILL_OK;
}

const rill__select_method rill__select_threshold = {
    "threshold", "magnitudes from a threshold on, given or steered towards k", false,
    select_threshold};
