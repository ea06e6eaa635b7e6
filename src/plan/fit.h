/* Fitting the constants of the cost model to measured calls. */
#ifndef RILL_PLAN_FIT_H
#define RILL_PLAN_FIT_H

#include "plan/plan.h"

typedef struct rill__sample {
    const rill__algorithm *algorithm;
    rill__problem problem; /* codec, value bits and partition as they were */
    double seconds;
} rill__sample;

/* Seconds of the sample by the model with these constants. */
double rill__fit_time(const rill__sample *, const rill__constants *);
/* c: where to start, and what constants stay close to that the samples say nothing about. Returns the
 * median of |model / measured - 1|. */
double rill__fit(const rill__sample *, int n, rill__constants *c);
double rill__fit_error(const rill__sample *, int n, const rill__constants *); /* that median */

#endif
