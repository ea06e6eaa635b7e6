/* Fitting the constants of the cost model to measured calls. */
#ifndef RILL_PLAN_FIT_H
#define RILL_PLAN_FIT_H

#include "plan/plan.h"

typedef struct rill__sample {
    const rill__algorithm *algorithm;
    rill__problem problem; /* codec, value bits and partition as they were */
    double seconds;
} rill__sample;

enum { RILL__FITTED = RILL__CONSTANTS - 1 }; /* all but the last: doubt is not a time */
static inline double *rill__constant_at(rill__constants *c, int i) {
    return (double *)((char *)c + rill__constant_table[i].offset);
}
/* a x = b for a symmetric positive definite a, by Cholesky; both are overwritten, x is b. */
void rill__fit_solve(double a[RILL__FITTED][RILL__FITTED], double b[RILL__FITTED]);

/* Seconds of the sample by the model with these constants. */
double rill__fit_time(const rill__sample *, const rill__constants *);
/* c: where to start, and what constants stay close to that the samples say nothing about. Returns
 * the median of |model / measured - 1|; NaN: out of memory. */
double rill__fit(const rill__sample *, int n, rill__constants *c);
double rill__fit_error(const rill__sample *, int n, const rill__constants *); /* that median */

/* sample.c: what measurements are made of. */
typedef struct rill__place {
    uint64_t dim;
    double density;
} rill__place;
enum { RILL__PLACES = 23 };
/* Small ones first, so that a slow network ends with those that it has time for; and first a few
 * all over the range. */
extern const rill__place rill__places[RILL__PLACES];
static inline uint64_t rill__place_entries(const rill__place *at) {
    return rill__max_u64(1, (uint64_t)((double)at->dim * at->density));
}
/* About nnz entries of dim, each index as likely as another; at most so many. Returns how many. */
uint64_t rill__sample_entries(uint64_t seed, uint64_t dim, uint64_t nnz, uint64_t most,
                              uint32_t *idx, float *val);
/* Another order in each round, the same on all ranks: who always came after a dense sum would
 * always find empty caches. */
void rill__sample_order(int *order, int n, int round);
double rill__sample_median(double *values, int n); /* which get sorted; n is not 0 */

#endif
