/* threshold: all entries of at least a given magnitude, or of one that is steered so that k pass.
 *
 * Idea: with a known threshold selection is a single pass. Every `interval` calls the k-th largest
 * magnitude is found exactly (that call selects exactly k); in between the threshold of the last
 * call is used again, steered. It aims at 1.4 k entries, of which the k largest are kept: the cut
 * works on the pairs found, not on the vector, it tells the threshold that would have been right,
 * and how steep the tail is there, so that the next one can be set without guessing. Down at once,
 * for entries that did not pass cannot be had back without another pass, up by a part, for steps
 * differ by chance. If fewer than k pass, they are the result, and the threshold falls by what a
 * tail of usual steepness asks for; if fewer than k / 2, the next call evaluates exactly. Source:
 * Ok-Topk (Li and Hoefler, PPoPP 2022), which reuses thresholds without the cut. Restriction: at
 * most k, at times a little less; with a given threshold all that reach it. A NaN passes any
 * threshold; entries that are 0 none. Memory: the pairs found, up to 2.3 k. Cost: one read of N, or
 * two reads and a write when fused, and about 2 ns per pair. */
#include "select/select.h"

#include <math.h>

#define AIM 1.4   /* times k: counts of mini-batches vary by 20 % and more */
#define RISE 0.15 /* share of a rise that is taken */
#define RUNAWAY                                                                                    \
    3.0              /* times k, by the usual steepness: the data has moved on, and an exact
                        evaluation is cheaper */
#define STEEPNESS 10 /* -d log(count) / d log(threshold), where it is not measured */

static rill_status run(rill_selector *s, rill__scan *scan, double level, rill_stream *out) {
    scan->key = rill__max_u64(1, rill__key_from(s->shape.type, level));
    scan->expect = rill__min_u64(s->dim, s->expected + s->expected / 8 + RILL__SELECT_CHUNK);
    RILL_TRY(rill__scan_run(s, scan, out));
    s->expected = rill__slices_count(s);
    return RILL_OK;
}

static rill_status select_given(rill_selector *s, rill__source source, rill_stream *out) {
    RILL_TRY(run(s, &(rill__scan){.source = source}, s->threshold, out));
    return rill__slices_join(s, out);
}

/* ---- steering ----------------------------------------------------------------------------- */

/* Entries from which on a count is not exact any more: a scan may have left some out. */
static uint64_t limit_of(const rill_selector *s) { return s->k + s->k / 2; }

/* By how much the threshold must be below the right one. passed: entries that passed, over k;
 * right: the right threshold, over the one that was used. */
static double lowered(double passed, double right, bool many) {
    bool measured = !many && passed > 1.05 && right > 1;
    double steepness = measured ? log(passed) / log(right) : STEEPNESS;
    return pow(AIM, -1 / fmin(fmax(steepness, 3), 50));
}

/* More than k have passed; least: the smallest key of the k largest. From the limit on their number
 * says nothing, as it depends on how the scan went. */
static void steer_many(rill_selector *s, uint64_t found, uint64_t least) {
    bool many = found >= limit_of(s);
    s->expected = many ? limit_of(s) : found;
    double right = rill__key_value(s->shape.type, least) / s->level;
    double passed = (double)s->expected / (double)s->k;
    double factor = right * lowered(passed, right, many);
    s->level *= factor > 1 ? pow(factor, RISE) : factor;
    if (many && right > pow(RUNAWAY, 1.0 / STEEPNESS)) s->exact_at = s->calls + 1;
}

static void steer_few(rill_selector *s, uint64_t found) {
    double passed = rill__max_u64(1, found) / (double)s->k;
    s->expected = found;
    s->level *= pow(passed / AIM, 1.0 / STEEPNESS);
    if (passed < 0.5) s->exact_at = s->calls + 1;
}

/* After an exact evaluation. 0 (nothing to select) makes the next call exact as well. */
static void steer_anew(rill_selector *s, uint64_t found, uint64_t least) {
    s->level = rill__key_value(s->shape.type, least) * pow(AIM, -1.0 / STEEPNESS);
    s->exact_at = s->calls + s->interval;
    s->expected = found;
}

static bool is_steered(const rill_selector *s) { return s->level != 0 && s->calls < s->exact_at; }

/* ---- on the host -------------------------------------------------------------------------- */

static rill_status select_steered(rill_selector *s, rill__source source, rill_stream *out) {
    rill__scan scan = {.source = source, .limit = limit_of(s)};
    uint64_t least;
    /* Fewer than k are above this, most likely: the cut need not look at those. */
    scan.high = rill__key_from(s->shape.type, s->level * pow(AIM, 2.0 / STEEPNESS));
    RILL_TRY(run(s, &scan, s->level, out));
    if (s->expected > s->k) {
        RILL_TRY(rill__scan_cut(s, &scan, s->k, &least));
        steer_many(s, s->expected, least);
    } else {
        steer_few(s, s->expected);
    }
    return rill__slices_join(s, out);
}

static rill_status select_exactly(rill_selector *s, rill__source source, rill_stream *out) {
    uint64_t least;
    RILL_TRY(rill__topk(s, source, s->k, out, &least));
    steer_anew(s, out->nnz, least);
    return RILL_OK;
}

static rill_status select_threshold(rill_selector *s, rill__source source, rill_stream *out) {
    if (s->threshold > 0) return select_given(s, source, out);
    return is_steered(s) ? select_steered(s, source, out) : select_exactly(s, source, out);
}

/* ---- where the space picks ---------------------------------------------------------------- */

/* Puts back what was taken. */
static void untake(rill_selector *s, rill__source source, rill_stream *out) {
    if (source.residual && out->nnz)
        s->space->run(s->space,
                      &(rill__operation){.kind = RILL__DO_ASSIGN,
                                         .type = s->shape.type,
                                         .index_bytes = s->shape.index_bytes,
                                         .into = source.residual,
                                         .pairs = rill__stream_pairs(out)},
                      NULL);
    out->nnz = 0;
}

/* All from the level on; where they are more than the room, none. */
static rill_status pick_from(rill_selector *s, rill__source source, double level, uint64_t room,
                             rill_stream *out, rill__picked *found) {
    rill__pick p = {.kind = RILL__PICK_THRESHOLD,
                    .key = rill__max_u64(1, rill__key_from(s->shape.type, level))};
    RILL_TRY(rill__pick_run(s, source, &p, room, out, found));
    if (found->count > room) untake(s, source, out);
    return RILL_OK;
}

static rill_status pick_given(rill_selector *s, rill__source source, rill_stream *out) {
    rill__picked found;
    uint64_t room = rill__min_u64(s->dim, s->expected + s->expected / 8 + RILL__SELECT_CHUNK);
    RILL_TRY(pick_from(s, source, s->threshold, room, out, &found));
    s->expected = found.count;
    if (found.count <= room) return RILL_OK;
    source.gradient = NULL; /* it has been added */
    return pick_from(s, source, s->threshold, found.count, out, &found);
}

static rill_status pick_exactly(rill_selector *s, rill__source source, rill_stream *out,
                                rill__picked *found) {
    rill__pick p = {.kind = RILL__PICK_TOPK, .k = s->k, .wants_least = true};
    return rill__pick_run(s, source, &p, s->k, out, found);
}

static rill_status pick_steered(rill_selector *s, rill__source source, rill_stream *out) {
    rill__picked found;
    rill__pick p = {.kind = RILL__PICK_STEERED,
                    .key = rill__max_u64(1, rill__key_from(s->shape.type, s->level)),
                    .k = s->k,
                    .limit = rill__min_u64(s->dim, limit_of(s))};
    RILL_TRY(rill__pick_run(s, source, &p, s->k, out, &found));
    uint64_t passed = found.count;
    if (passed <= s->k) {
        steer_few(s, passed);
        return RILL_OK;
    }
    source.gradient = NULL; /* it has been added */
    if (passed > p.limit) RILL_TRY(pick_exactly(s, source, out, &found));
    steer_many(s, passed, found.least);
    return RILL_OK;
}

static rill_status pick_threshold(rill_selector *s, rill__source source, rill_stream *out) {
    rill__picked found;
    if (s->threshold > 0) return pick_given(s, source, out);
    if (is_steered(s)) return pick_steered(s, source, out);
    RILL_TRY(pick_exactly(s, source, out, &found));
    steer_anew(s, found.count, found.least);
    return RILL_OK;
}

/* ---- ahead: reducers, whose threshold is steered ------------------------------------------- */

/* Those that pass, and the k largest of them where they are more: the k largest of all that pass.
 */
static rill__pick ask_threshold(const rill_selector *s, uint64_t *room) {
    uint64_t key = rill__max_u64(1, rill__key_from(s->shape.type, s->level));
    *room = s->k;
    return (rill__pick){.kind = RILL__PICK_TOPK, .k = s->k, .key = is_steered(s) ? key : 0};
}

static void note_threshold(rill_selector *s, const rill__picked *found, uint64_t passed,
                           uint64_t above) {
    if (!is_steered(s)) steer_anew(s, found->count, found->least);
    else if (passed + above <= s->k) steer_few(s, passed + above);
    else steer_many(s, passed + above, found->least);
}

const rill__select_method rill__select_threshold = {
    .name = "threshold",
    .description = "magnitudes from a threshold on, given or steered towards k",
    .select = select_threshold,
    .ask = ask_threshold,
    .ahead = RILL__AHEAD_IN_TURN,
    .pick = pick_threshold,
    .note = note_threshold,
};
