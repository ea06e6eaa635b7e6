/* The global threshold of oktopk: found from histograms, then steered.
 *
 * Idea. The key of a value is its bits without the sign, which order as the magnitudes do (see
 * space/select_kernels.h). A histogram over the upper 10 bits of the keys of all owned sums, added
 * over the ranks, tells in which bin the k-th largest lies; a second one over the next 10 bits of
 * that bin's keys tells it to 1 in 2^12 of the magnitude (f32), and so on until the bin has no more
 * than k / 64 keys or one value. Every round is an agreement on 1024 words, whatever k and P are.
 *
 * Between evaluations the threshold is steered. Owners hold the sums that did not pass, too, and
 * count at some thresholds above and below the one in use; the counts travel with the shares. So
 * after the step all know which threshold would have been right for it, by interpolation, take a
 * part of that correction, and the trend of the corrections (steps are not alike: residuals grow at
 * first). A count that is off by a quarter has the threshold found anew in the next step. Only + -
 * * / are used, so that all ranks get the same bits. */
#include "coll/topk/topk_oktopk.h"

#include <math.h>
#include <string.h>

/* Shares of an error that one step makes good, since counts vary by themselves too: of the
 * threshold, and of its trend. */
#define GAIN 0.4
#define TREND_GAIN 0.35
#define MOST_TREND 1.25
/* A bin of k / CLOSE keys need not be looked into. */
enum { CLOSE = 64 };

/* ---- keys ----------------------------------------------------------------------------------- */

double rill__level_of_key(rill_type type, uint64_t key) {
    uint64_t bits = rill__min_u64(key, rill__key_nan(type) - 1); /* infinity */
    return rill__value_load(type, &bits);
}

uint64_t rill__level_key(rill_type type, double level) {
    uint64_t bits = 0;
    rill__value_store(type, &bits, level);
    return rill__max_u64(1, bits);
}

void rill__level_cut(rill__shape shape, rill__share *s, uint64_t key) {
    rill__part part = rill__share_part(s);
    s->n = rill__part_keep_to(shape, &part, key, s->idx, s->val);
}

/* ---- more than k, then k -------------------------------------------------------------------- */

uint64_t rill__level_aim(uint64_t k, bool skewed) { return skewed ? k : k + k / 3; }

rill_status rill__level_cut_parts(rill__run *run, int n, rill__part *parts, uint64_t k) {
    rill__shape shape = run->shape;
    uint64_t total = 0;
    for (int i = 0; i < n; i++)
        total += parts[i].n;
    if (total <= k) return RILL_OK;
    void *keys = rill__run_memory(run, total * rill__key_bytes(shape.type));
    if (!keys) return RILL_ERR_MEMORY;
    uint64_t key = rill__parts_kth_key(shape, n, parts, k, keys);
    for (int i = 0; i < n; i++) {
        void *idx = rill__run_memory(run, parts[i].n * shape.index_bytes);
        void *val = rill__run_memory(run, parts[i].n * rill__type_size(shape.type));
        if (!idx || !val) return RILL_ERR_MEMORY;
        parts[i].n = rill__part_keep_to(shape, &parts[i], key, idx, val);
        parts[i].idx = idx;
        parts[i].val = val;
    }
    return RILL_OK;
}

/* ---- evaluation ----------------------------------------------------------------------------- */

static int lower_shift(int shift) {
    return shift > RILL__LEVEL_BITS ? shift - RILL__LEVEL_BITS : 0;
}

static void count_bins(rill_type type, const rill__share *s, rill__level_search *search) {
    int low = lower_shift(search->shift);
    memset(search->bins, 0, RILL__LEVEL_BINS * sizeof *search->bins);
    rill__part part = rill__share_part(s);
    rill__part_count_bins(type, &part, search->prefix, search->shift, low, RILL__LEVEL_BINS - 1,
                          search->bins);
    rill__agree_start(&search->agree, 0, search->bins, RILL__LEVEL_BINS);
}

/* Goes into the bin where the k-th largest is; true: near enough, and found is the key. */
static bool narrow(rill__level_search *search, uint64_t k) {
    int low = lower_shift(search->shift), width = search->shift - low;
    uint64_t bin = UINT64_C(1) << width;
    uint64_t over = search->above, in = 0;
    while (bin > 0 && over + in < k) {
        over += in;
        in = search->bins[--bin];
    }
    if (over + in < k) { /* only in the first histogram: there are fewer than k in all */
        search->found = over + in ? 1 : 0;
        return true;
    }
    uint64_t edge = (search->prefix << width | bin) << low;
    search->above = over;
    search->prefix = search->prefix << width | bin;
    search->shift = low;
    if (low && in > k / CLOSE) return false;
    bool leave = over && k - over < over + in - k; /* without the bin the count is nearer to k */
    search->found = rill__max_u64(1, leave ? edge + (UINT64_C(1) << low) : edge);
    return true;
}

rill_status rill__level_find(rill__run *run, rill__level_search *search, const rill__share *s,
                             uint64_t k, uint64_t *key) {
    rill_type type = run->shape.type;
    if (!search->bins) {
        search->bins = rill__run_alloc(run, RILL__LEVEL_BINS, sizeof *search->bins);
        if (!search->bins) return RILL_ERR_MEMORY;
        search->shift = (int)rill__type_size(type) * 8 - 1;
        count_bins(type, s, search);
    }
    for (;;) {
        rill_status status = rill__run_agree(run, &search->agree);
        if (status != RILL_OK) return status;
        if (rill__run_failed(run) || narrow(search, k)) break;
        count_bins(type, s, search);
    }
    *key = search->found;
    return RILL_OK;
}

/* ---- steering ------------------------------------------------------------------------------- */

/* Thresholds that a step counts at besides its own, as multiples of it; ascending. */
static const double marks[RILL__LEVEL_MARKS] = {1 / 1.25, 1 / 1.05, 1, 1.05, 1.25};

_Static_assert((int)RILL__LEVEL_MARKS == (int)RILL__COUNTED_KEYS, "all marks at once");

void rill__level_counts(rill_type type, const rill__share *s, double value, uint64_t *counts) {
    uint64_t keys[RILL__LEVEL_MARKS];
    for (int m = 0; m < RILL__LEVEL_MARKS; m++)
        keys[m] = rill__level_key(type, value * marks[m]);
    rill__part part = rill__share_part(s);
    rill__part_count_from(type, &part, keys, counts);
}

void rill__level_pack(const uint64_t *counts, uint64_t words[2]) {
    uint64_t c[RILL__LEVEL_MARKS];
    for (int m = 0; m < RILL__LEVEL_MARKS; m++)
        c[m] = rill__min_u64(counts[m], UINT32_MAX);
    words[0] = c[0] << 32 | c[1];
    words[1] = c[3] << 32 | c[4];
}

void rill__level_unpack(const uint64_t words[2], uint64_t *counts) {
    counts[0] += words[0] >> 32;
    counts[1] += words[0] & UINT32_MAX;
    counts[3] += words[1] >> 32;
    counts[4] += words[1] & UINT32_MAX;
}

/* The multiple of the threshold that k would have passed, on the line through the marks. */
static double right_multiple(const uint64_t *counts, uint64_t k) {
    if (counts[0] <= k) return marks[0];
    for (int m = 1; m < RILL__LEVEL_MARKS; m++) {
        if (counts[m] > k) continue;
        double share = (double)(counts[m - 1] - k) / (double)(counts[m - 1] - counts[m]);
        return marks[m - 1] + share * (marks[m] - marks[m - 1]);
    }
    return marks[RILL__LEVEL_MARKS - 1];
}

static double bounded_trend(double trend) { return fmin(fmax(trend, 1 / MOST_TREND), MOST_TREND); }

void rill__level_steer(rill__level *l, uint64_t k, const uint64_t *counts) {
    double error = right_multiple(counts, k) - 1;
    l->trend = bounded_trend(l->trend * (1 + TREND_GAIN * error));
    l->value *= (1 + GAIN * error) * l->trend;
}

void rill__level_set(rill__level *l, double value) {
    if (l->value > 0 && l->value < INFINITY && value > 0 && value < INFINITY)
        l->trend = bounded_trend(l->trend * (1 + TREND_GAIN * (value / l->value - 1)));
    else l->trend = 1;
    l->value = value;
}

bool rill__level_is_off(uint64_t k, uint64_t aim, uint64_t count) {
    double excess = (double)count - (double)aim;
    return (count > aim + k / 2 || count < k - k / 4) && excess * excess > 16 * (double)k;
}
