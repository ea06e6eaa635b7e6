/* Tries of C that ranks without other work make before they are asked for. train_ahead.c. */
#ifndef RILL_TRAIN_TRAIN_AHEAD_H
#define RILL_TRAIN_TRAIN_AHEAD_H

#include <stdbool.h>

enum { RILL__TRY_STEPS = 20, RILL__MOST_AHEAD = 8, RILL__TRIES_KEPT = 64 };
enum { RILL__TRY_NUMBERS = 3 + RILL__TRY_STEPS };

/* What a try has found, over all its splits. */
typedef struct rill__try {
    double C, decay;
    const char *scale; /* may be NULL */
    /* Sums of losses, splits that could be trained, losses at the start; then losses by step. */
    double number[RILL__TRY_NUMBERS];
} rill__try;

typedef struct rill__ahead {
    rill__try made[RILL__TRIES_KEPT];
    int n;
} rill__ahead;

/* NULL: it was not made. */
const rill__try *rill__ahead_find(const rill__ahead *, double C, double decay, const char *scale);
void rill__ahead_keep(rill__ahead *, const rill__try *);
/* C, and after it the values that may be asked for next, `most` at most and 1 at least; returns how
 * many. by: the factor of a walk from `middle`, the best so far, that C is a step of; 0: it is
 * where walks begin. refines: values between steps may follow. */
int rill__ahead_plan(double C, double middle, double by, bool refines, int most, double *out);

#endif
