/* Where the shares of the index space lie that each deliver k/P entries.
 *
 * Shares of equal length deliver as many entries from where there is little as from where most of
 * the large ones are: with the weights of an LSTM at one end of a vector and rows of rare words at
 * the other, those that are k/P-th in their share differ by orders of magnitude. So every tau steps
 * the bounds move half way to where each share has as many of the large entries. All ranks have the
 * same result, so they agree without a message: of what was delivered, entries over the highest of
 * the shares' own thresholds were not favoured by the share that they are in, and their positions
 * say how dense the large ones are. Where these are few, the next lower threshold has to do. */
#include "coll/topk/topk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 8 }; /* entries a rank that are enough to go by */

/* From step to step; all zero: shares of equal length. The same on all ranks. */
typedef struct memory {
    uint64_t open; /* a step has begun; still set in the next: it failed, and nothing holds */
    uint64_t age;  /* steps with these bounds */
    uint64_t set;  /* the bounds are */
    uint64_t bounds[];
} memory;

size_t rill__share_memory_size(int ranks) {
    return sizeof(memory) + ((size_t)ranks + 1) * sizeof(uint64_t);
}

uint64_t rill__share_bound(const rill__feedback *f, uint64_t dim, int ranks, int i) {
    const memory *m = f->memory_size ? f->memory.data : NULL;
    return m && m->set ? m->bounds[i] : rill__uniform_bound(dim, i, ranks);
}

void rill__share_memory_open(rill__run *run) {
    memory *m = run->feedback->memory.data;
    if (m->open) memset(m, 0, run->feedback->memory_size);
    rill__run_remembers(run, m, run->feedback->memory_size);
    run->more_memory = m->age + 1 >= run->feedback->options.repartition_interval;
    m->open = 1;
}

/* ---- bounds from a result ----------------------------------------------------------------- */

enum { BATCH = 256 }; /* entries that are looked at together */

/* The least that a share delivered; 0 where it had room for all. */
static double threshold_of(const rill__run *run, const rill__part *share, int b) {
    if (share->n < rill__share_quota(run->feedback->k, run->size, b)) return 0;
    double least = INFINITY, value[BATCH];
    for (uint64_t at = 0; at < share->n; at += BATCH) {
        uint64_t n = rill__min_u64(BATCH, share->n - at);
        rill__part_load(run->shape, share, at, n, NULL, value);
        for (uint64_t i = 0; i < n; i++)
            least = fabs(value[i]) < least ? fabs(value[i]) : least;
    }
    return isfinite(least) ? least : 0;
}

/* wanted[j]: the index of entry j n/P of those n that are at least threshold; returns n. */
static uint64_t positions(const rill__run *run, const rill__part *shares, double threshold,
                          uint64_t n, uint64_t *wanted) {
    int ranks = run->size, next = 0;
    uint64_t found = 0, index[BATCH];
    double value[BATCH];
    for (int b = 0; b < ranks; b++)
        for (uint64_t at = 0, m; at < shares[b].n; at += m) {
            m = rill__min_u64(BATCH, shares[b].n - at);
            rill__part_load(run->shape, &shares[b], at, m, wanted ? index : NULL, value);
            for (uint64_t i = 0; i < m; i++) {
                if (!(fabs(value[i]) >= threshold)) continue;
                for (; wanted && next < ranks && found == rill__uniform_bound(n, next, ranks);
                     next++)
                    wanted[next] = index[i];
                found++;
            }
        }
    return found;
}

static int falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The highest of the shares' thresholds that enough entries are over; their number, or 0. */
static uint64_t common_threshold(rill__run *run, const rill__part *shares, double *threshold) {
    int ranks = run->size;
    double *all = rill__run_alloc(run, (size_t)ranks, sizeof *all);
    if (!all) return 0;
    for (int b = 0; b < ranks; b++)
        all[b] = threshold_of(run, &shares[b], b);
    qsort(all, (size_t)ranks, sizeof *all, falling);
    uint64_t enough = (uint64_t)ranks * SAMPLES;
    int low = 0, high = ranks - 1; /* the answer is at high, or there is none */
    while (low < high) {
        int middle = (low + high) / 2;
        if (positions(run, shares, all[middle], 0, NULL) >= enough) high = middle;
        else low = middle + 1;
    }
    *threshold = all[high];
    uint64_t n = positions(run, shares, *threshold, 0, NULL);
    return n >= enough ? n : 0;
}

/* A share is at least twice as long as what it delivers. */
static void keep_lengths(const rill__run *run, uint64_t *bounds) {
    int ranks = run->size;
    uint64_t k = run->feedback->k;
    for (int i = 1; i < ranks; i++)
        bounds[i] = rill__max_u64(bounds[i],
                                  bounds[i - 1] + 2 * rill__share_quota(k, ranks, i - 1));
    for (int i = ranks - 1; i > 0; i--)
        bounds[i] = rill__min_u64(bounds[i], bounds[i + 1] - 2 * rill__share_quota(k, ranks, i));
}

static void move_bounds(rill__run *run, const rill__part *shares, memory *m) {
    int ranks = run->size;
    uint64_t dim = run->dim, delivered = 0;
    for (int i = 0; i < ranks; i++)
        delivered += rill__share_quota(run->feedback->k, ranks, i);
    if (delivered > dim / 2) return;
    double threshold;
    uint64_t n = common_threshold(run, shares, &threshold);
    if (!n) return;
    uint64_t *wanted = rill__run_alloc(run, (size_t)ranks, sizeof *wanted);
    if (!wanted) return;
    positions(run, shares, threshold, n, wanted);
    for (int i = 1; i < ranks; i++) {
        uint64_t now = rill__share_bound(run->feedback, dim, ranks, i);
        wanted[i] = now / 2 + wanted[i] / 2 + (now & wanted[i] & 1);
    }
    memcpy(m->bounds + 1, wanted + 1, ((size_t)ranks - 1) * sizeof *wanted);
    m->bounds[0] = 0;
    m->bounds[ranks] = dim;
    keep_lengths(run, m->bounds);
    m->set = 1;
}

void rill__share_memory_close(rill__run *run, const rill__part *shares) {
    memory *m = run->feedback->memory.data;
    m->open = 0;
    if (run->problem->partition != RILL__BALANCED || run->size < 2) return;
    if (++m->age < run->feedback->options.repartition_interval) return;
    m->age = 0;
    move_bounds(run, shares, m);
}
