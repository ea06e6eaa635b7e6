/* gaussian: a threshold from mean and standard deviation, as if the entries were normal.
 *
 * Idea: one pass (which also adds the gradient) gives the moments; the threshold t is that of
 * P(|X| >= t) = k / dim for X ~ N(mean, sigma). If it selects less than 3k/4, it is halved, up to
 * ADJUSTMENTS times, and then all entries compete; if it selects more than 5k/4, or competition was
 * open, the k largest of what it selected are kept, which needs no further pass.
 * Source: Gaussian-k (Shi et al., 2019), with the count made certain.
 * Restriction: the count lies within the bounds if that many entries are not 0. With NaN or
 * infinity in the data there are no moments, and the selection is that of topk.
 * Memory: up to 1.9 k pairs; 16 bytes per 64K entries. Cost: two reads of N on normal data
 * (fused: one more write and read), and one more per adjustment. */
#include "select/select.h"

#include <math.h>

enum { CHUNK = 1 << 16, ADJUSTMENTS = 4 };

typedef struct sums {
    rill__source source;
    double *sums; /* two per chunk, so that they do not depend on the number of threads */
} sums;

static rill_status moments_work(rill__part *p, const void *context) {
    const sums *c = context;
    const rill_selector *s = p->selector;
    uint32_t none[RILL__SLACK / sizeof(uint32_t)];
    for (uint64_t at = p->first, end = p->first + p->n; at < end; at += CHUNK) {
        double *total = c->sums + 2 * (at / CHUNK), part[2];
        total[0] = total[1] = 0;
        /* Smaller steps inside, so that what was added is still in L1. */
        uint64_t stop = rill__min_u64(end, at + CHUNK);
        for (uint64_t i = at; i < stop; i += RILL__SELECT_CHUNK) {
            uint64_t n = rill__min_u64(stop - i, RILL__SELECT_CHUNK);
            if (c->source.gradient)
                s->kernels->add_filter(s->shape.type, (char *)c->source.residual + i * s->size,
                                       (const char *)c->source.gradient + i * s->size, n,
                                       rill__key_none(s->shape.type), 0, none);
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

static rill_status select_gaussian(rill_selector *s, rill__source source, rill_stream *out) {
    uint64_t chunks = s->dim / CHUNK + 1;
    RILL_TRY(rill__buffer_reserve(&s->work, chunks * 2 * sizeof(double)));
    sums c = {source, s->work.data};
    rill__parts_split(s, CHUNK, out);
    RILL_TRY(rill__parts_run(s, moments_work, &c));
    source.gradient = NULL;
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i * CHUNK < s->dim; i++) {
        sum += c.sums[2 * i];
        squares += c.sums[2 * i + 1];
    }
    double mean = sum / (double)s->dim, variance = squares / (double)s->dim - mean * mean;
    if (!isfinite(mean) || !isfinite(variance)) return rill__topk(s, source, s->k, out, NULL);

    double level = quantile((double)s->k / (double)s->dim, mean, sqrt(fmax(variance, 0)));
    uint64_t least = s->k - s->k / 4, most = s->k + s->k / 4; /* 3k/4 rounded up, 5k/4 down */
    /* From the limit on a part's count is not exact, but then it is too many in any case. */
    rill__scan scan = {.source = source,
                       .limit = most + 1,
                       .expect = rill__min_u64(s->dim, most + 2 * RILL__SELECT_CHUNK)};
    for (int i = 0;; i++, level *= 0.5) {
        scan.key = i > ADJUSTMENTS ? 1 : rill__max_u64(1, rill__key_from(s->shape.type, level));
        RILL_TRY(rill__scan_run(s, &scan, out));
        if (scan.key == 1 || rill__parts_count(s) >= least) break;
        rill__scan_undo(s, &scan);
    }
    if (rill__parts_count(s) > most) RILL_TRY(rill__scan_cut(s, &scan, s->k, NULL));
    return rill__parts_join(s, out);
}

const rill__select_method rill__select_gaussian = {
    "gaussian", "a threshold from mean and deviation; 3k/4 to 5k/4 entries", true, select_gaussian};
