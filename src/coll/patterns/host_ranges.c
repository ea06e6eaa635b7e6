#include "coll/patterns/host_ranges.h"
#include "coll/cost.h"
#include "stream/part_entries.h"

#include <math.h>
#include <string.h>

/* Indices of a range, at least. */
enum { LEAST_RANGE = 16384 };

enum { GIVING, SUMMING, COLLECTING };

int rill__host_ranges_of(uint64_t dim, int most) {
    return (int)rill__max_u64(1, rill__min_u64(dim / LEAST_RANGE, (uint64_t)most));
}

/* ---- costs ---------------------------------------------------------------------------------- */

/* All ranks of a host tell all others at once: each such note takes the time of so many messages
 * that come one by one (8 and 16 ranks on 16 cores: tests/unit/test_learn_records.c; 4 ranks of two
 * cores). */
#define NOTES 3
/* Contributions are in the caches of other processors, which shows where a sum is little work: of
 * two, and of dense ones. Without it two ranks would take `hier` for calls of full_host.jsonl where
 * `recursive_double` is faster (tests/unit/test_full_host.c). */
#define ELSEWHERE 1.25

rill__host_way rill__host_way_of(const rill__problem *p, rill__circle circle) {
    const rill__constants *c = p->c;
    if (circle == RILL__ALL_RANKS && p->hosts > 1) return (rill__host_way){c->latency, c->byte};
    /* In shared memory bytes are copied once, and only the word about them is a message. */
    return (rill__host_way){c->host_latency, p->hosts > 1 || p->shares ? 0 : c->host_byte};
}

double rill__host_bytes(const rill__problem *p, double pairs) {
    double value = (double)rill__type_size(p->type);
    return fmin(pairs * (p->index_bytes + value), (double)p->dim * value);
}

/* Inputs above the switch to dense are read as they lie, as pairs. That was fast where there are
 * more than two, the caches hold the vector, and as pairs they take no more than dense: half of
 * 393,216 entries on 8 and 16 ranks (bench/results/learn.jsonl), half of 2^16 to 393,216 on 4.
 * Elsewhere `hier` took 1.1 to 1.6 times as long as `dense` (docs/results/planner.md). */
static bool is_heavy(const rill__problem *p) {
    double value = (double)rill__type_size(p->type), dense = (double)p->dim * value;
    return p->nnz_max > (double)rill__dense_switch(p->type, p->dim) &&
           (p->ranks == 2 || dense >= RILL__HUGE || p->nnz_max * (p->index_bytes + value) > dense);
}

static double sum_estimate(const rill__problem *p, int ranges) {
    double range = (double)p->dim / ranges, entries = p->ranks * p->nnz / ranges;
    if (is_heavy(p)) return rill__prepare_estimate(p) + entries * p->c->sum;
    if (p->ranks == 2) return ELSEWHERE * entries * p->c->merge;
    double sum = rill__sum_estimate(p, p->ranks, entries, range);
    double limit = (double)rill__dense_switch(p->type, p->dim) / ranges;
    if (rill__expected_union(p, p->ranks) / ranges <= limit) return sum;
    double dense = entries * p->c->scatter + range * p->value_cost * p->c->dense_add;
    return ELSEWHERE * fmin(sum, dense);
}

double rill__host_ranges_estimate(const rill__problem *p, int ranges, int reader) {
    const rill__constants *c = p->c;
    int ranks = p->ranks;
    rill__host_way w = rill__host_way_of(p, RILL__ALL_RANKS);
    double own = rill__host_bytes(p, p->nnz_max), all = rill__host_bytes(p, p->result);
    double others = fmax(ranks - 2, 0) * NOTES * c->message;
    double time = c->overhead + rill__turn_estimate(p) / ranges;
    time += w.latency + others + own * (c->copy + w.byte);
    time += sum_estimate(p, ranges);
    if (reader == RILL__READ_BY_NONE) return time;
    time += w.latency + (reader == RILL__READ_BY_ALL ? others : 0) + all / ranges * c->copy;
    return time + all * (2 * c->copy + w.byte);
}

/* ---- parts ---------------------------------------------------------------------------------- */

static uint64_t first_of(const rill__run *run, const rill__host_ranges *x, int i) {
    return rill__host_ranges_first(run->dim, x, i);
}

static uint64_t range_of(const rill__run *run, const rill__host_ranges *x, int i) {
    return first_of(run, x, i + 1) - first_of(run, x, i);
}

/* The statistics of what came. Those of ranks come with their inputs; who sums nothing learns them
 * of the first who does. */
static void hear(rill__run *run, rill__host_ranges *x, int place, bool inputs,
                 const rill__header *header) {
    if (header->form == RILL__M_FAILED) return;
    if (inputs) rill__run_count(run, header);
    else if (x->me >= x->ranges && place == 0) rill__run_count_anew(run, header, 0);
    if (place == 0) memcpy(x->fill, &header->fill, sizeof x->fill);
}

/* The parts of the n ranks at the first places, this one's being own: of its range where they are
 * inputs, else of theirs. */
static rill_status take_parts(rill__run *run, rill__host_ranges *x, int n, int lane,
                              const rill__part *own, bool inputs) {
    if (!x->taken) {
        x->taken = rill__run_alloc(run, (size_t)n, sizeof *x->taken);
        x->parts = rill__run_alloc(run, (size_t)n, sizeof *x->parts);
        if (!x->taken || !x->parts) return RILL_ERR_MEMORY;
    }
    for (; x->received < n; x->received++) {
        int i = x->received, range = inputs ? x->me : i;
        if (i == x->me) {
            x->parts[i] = *own;
            continue;
        }
        rill__header header;
        rill_status status = rill__host_take(run, x->circle, i, lane, first_of(run, x, range),
                                             range_of(run, x, range), &x->taken[i], &header);
        if (status != RILL_OK) return status;
        hear(run, x, i, inputs, &header);
        if (inputs || !x->ends) rill__host_check(run, &x->taken[i]);
        x->parts[i] = x->taken[i].part;
    }
    return RILL_OK;
}

void rill__host_ranges_release(rill__run *run, rill__host_ranges *x) {
    for (int i = 0; i < x->received; i++)
        rill__host_release(run, &x->taken[i]);
    x->taken = NULL;
    x->received = 0;
}

rill_status rill__host_ranges_finish(rill__run *run, rill__host_ranges *x) {
    rill_status status = rill__finish_unchecked(run, x->ranges, x->parts, x->me % x->ranges);
    rill__host_ranges_release(run, x);
    return status;
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* Entries of which no two have an index: as many as in all parts. */
static rill_status unite(rill__run *run, const rill__host_ranges *x, uint64_t first,
                         uint64_t range) {
    uint64_t total = 0;
    rill__piece *piece = &run->piece[1];
    for (int i = 0; i < x->n; i++) {
        if (x->parts[i].form != RILL__SPARSE)
            return rill__fail(RILL_ERR_MESSAGE, "rank %d sent no pairs", i);
        total += x->parts[i].n;
    }
    rill__pairs *pairs = rill__run_alloc(run, (size_t)x->n, sizeof *pairs);
    if (!pairs) return RILL_OK;
    RILL_TRY(
        rill__parts_unite(run->shape, first, range, x->n, x->parts, pairs, &run->scratch, piece));
    if (piece->part.n == total) return RILL_OK;
    return rill__fail(RILL_ERR_OVERLAP, "rill_%s: %llu indices are on more than one rank",
                      rill_collective_name(run->problem->collective),
                      (unsigned long long)(total - piece->part.n));
}

static rill_status sum_range(rill__run *run, rill__host_ranges *x) {
    uint64_t first = first_of(run, x, x->me), range = range_of(run, x, x->me);
    rill__part own = rill__part_slice(run->shape, run->input, first, range);
    rill_status status = take_parts(run, x, x->n, RILL__LANE_A, &own, true);
    if (status != RILL_OK) return status;
    if (!x->unites) {
        rill__run_sum(run, first, range, x->n, x->parts, false, &run->piece[1]);
    } else if (!rill__run_failed(run)) {
        status = unite(run, x, first, range);
        if (status != RILL_OK) rill__run_fail(run, status);
    }
    if (rill__run_failed(run)) run->piece[1].part = rill__part_empty(first, range);
    rill__host_ranges_release(run, x);
    return RILL_OK;
}

static rill_status give_sum(rill__run *run, const rill__host_ranges *x) {
    if (x->reader == RILL__READ_BY_NONE) return RILL_OK;
    int from = x->reader == RILL__READ_BY_ALL ? 0 : x->reader;
    int to = x->reader == RILL__READ_BY_ALL ? x->n : x->reader + 1;
    return rill__host_give(run, x->circle, from, to, RILL__LANE_B, &run->piece[1].part);
}

rill_status rill__host_ranges_step(rill__run *run, rill__host_ranges *x) {
    rill_status status;
    bool sums = x->me < x->ranges;
    if (x->stage == GIVING) {
        RILL_TRY(rill__host_give_ranges(run, x->circle, 0, x->ranges, RILL__LANE_A, run->input));
        x->stage = sums ? SUMMING : COLLECTING;
    }
    if (x->stage == SUMMING) {
        status = sum_range(run, x);
        if (status != RILL_OK) return status;
        RILL_TRY(give_sum(run, x));
        x->stage = COLLECTING;
    }
    if (x->reader != RILL__READ_BY_ALL && x->reader != x->me) return RILL_OK;
    return take_parts(run, x, x->ranges, RILL__LANE_B, &run->piece[1].part, false);
}
