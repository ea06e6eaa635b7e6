/* gaussian: a threshold from mean and standard deviation, as if the entries were normal.
 *
 * Idea: one pass (which also adds the gradient) gives the moments; the threshold t is that of
 * P(|X| >= t) = k / dim for X ~ N(mean, sigma). A sample tells how many it would select; if that
 * may not be 3k/4 to 5k/4, the threshold is adjusted to what the sample says. Should the pass that
 * selects find less than 3k/4, all entries compete in one more; if it finds more than 5k/4, or
 * competition was open, the k largest of what it selected are kept, which needs no further pass.
 * Source: Gaussian-k (Shi et al., 2019), with the count made certain.
 * Restriction: the count lies within the bounds if that many entries are not 0. With NaN or
 * infinity in the data there are no moments, and the selection is that of topk.
 * Memory: up to 1.9 k pairs; 16 bytes per 64K entries. Cost: two reads of N (fused: one more write
 * and read), and one more in the rare case that the sample misleads. */
#include "select/select.h"

#include <math.h>

enum { CHUNK = 1 << 16 };

typedef struct sums {
    rill__source source;
    double *sums; /* two per chunk, so that they do not depend on the number of threads */
} sums;

static rill_status moments_work(rill__slice *p, const void *context) {
    const sums *c = context;
    const rill_selector *s = p->selector;
    for (uint64_t at = p->first, end = p->first + p->n; at < end; at += CHUNK) {
        double *total = c->sums + 2 * (at / CHUNK), part[2];
        total[0] = total[1] = 0;
        /* Smaller steps inside, so that what was added is still in L1. */
        uint64_t stop = rill__min_u64(end, at + CHUNK);
        for (uint64_t i = at; i < stop; i += RILL__SELECT_CHUNK) {
            uint64_t n = rill__min_u64(stop - i, RILL__SELECT_CHUNK);
            rill__slice_add(p, c->source, i, n);
            s->kernels->moments(s->shape.type, (const char *)c->source.dense + i * s->size, n,
                                part);
            total[0] += part[0];
            total[1] += part[1];
        }
    }
    return RILL_OK;
}

static double tail(double t, double mean, double sigma) {
    return 0.5 * (erfc((t - mean) / (sigma * sqrt(2))) + erfc((t + mean) / (sigma * sqrt(2))));
}

/* The magnitude that a share of N(mean, sigma) reaches. */
static double quantile(double share, double mean, double sigma) {
    double low = 0, high = fabs(mean) + 40 * sigma;
    if (!(sigma > 0)) return fabs(mean);
    for (int i = 0; i < 60; i++) {
        double middle = 0.5 * (low + high);
        if (tail(middle, mean, sigma) > share) low = middle;
        else high = middle;
    }
    return low;
}

/* Sum and sum of squares; adds the gradient. */
static rill_status total_moments(rill_selector *s, rill__source *source, rill_stream *out,
                                 double total[2]) {
    uint64_t chunks = s->dim / CHUNK + 1;
    RILL_TRY(rill__buffer_reserve(&s->work, chunks * 2 * sizeof(double)));
    sums c = {*source, s->work.data};
    rill__slices_split(s, CHUNK, out);
    RILL_TRY(rill__slices_run(s, moments_work, &c));
    source->gradient = NULL;
    total[0] = total[1] = 0;
    for (uint64_t i = 0; i * CHUNK < s->dim; i++) {
        total[0] += c.sums[2 * i];
        total[1] += c.sums[2 * i + 1];
    }
    return RILL_OK;
}

/* *key stays if the sample has about the right number from it on. Else it becomes that of a rank
 * which leaves the count above 3k/4 with a margin of four standard deviations, or 1. */
static rill_status adjust(rill_selector *s, const rill__source *source, uint64_t *key) {
    uint64_t n;
    RILL_TRY(rill__sample_take(s, source, &n));
    double mean = (double)s->k / (double)s->dim * (double)n;
    double deviation = n == s->dim ? 0 : 1 + sqrt(mean);
    double count = (double)s->kernels->keys(s->shape.type, s->sample.data, n, *key, UINT64_MAX,
                                            s->work.data);
    if (count >= 0.75 * mean + 2 * deviation && count <= 1.25 * mean) return RILL_OK;
    double rank = ceil(fmax(mean, 0.75 * mean + 4 * deviation));
    *key = 1;
    if (rank < (double)n)
        *key = s->kernels->kth(s->shape.type, s->addend.data, n, (uint64_t)rank, s->work.data).key;
    return RILL_OK;
}

static rill_status select_gaussian(rill_selector *s, rill__source source, rill_stream *out) {
    double total[2];
    RILL_TRY(total_moments(s, &source, out, total));
    double mean = total[0] / (double)s->dim, variance = total[1] / (double)s->dim - mean * mean;
    if (!isfinite(mean) || !isfinite(variance)) return rill__topk(s, source, s->k, out, NULL);

    double level = quantile((double)s->k / (double)s->dim, mean, sqrt(fmax(variance, 0)));
    uint64_t key = rill__key_from(s->shape.type, level);
    uint64_t least = s->k - s->k / 4, most = s->k + s->k / 4; /* 3k/4 rounded up, 5k/4 down */
    RILL_TRY(adjust(s, &source, &key));
    /* From the limit on a part's count is not exact, but then it is too many in any case. */
    rill__scan scan = {.source = source,
                       .key = rill__max_u64(1, key),
                       .limit = most + 1,
                       .expect = rill__min_u64(s->dim, most + 2 * RILL__SELECT_CHUNK)};
    RILL_TRY(rill__scan_run(s, &scan, out));
    if (rill__slices_count(s) < least && scan.key > 1) {
        rill__scan_undo(s, &scan);
        scan.key = 1;
        RILL_TRY(rill__scan_run(s, &scan, out));
    }
    if (rill__slices_count(s) > most) RILL_TRY(rill__scan_cut(s, &scan, s->k, NULL));
    return rill__slices_join(s, out);
}

const rill__select_method rill__select_gaussian = {
    .name = "gaussian",
    .description = "a threshold from mean and deviation; 3k/4 to 5k/4 entries",
    .needs_share = true,
    .select = select_gaussian,
};
