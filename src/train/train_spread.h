/* Weights that one rank has, to all. train_spread.c. */
#ifndef RILL_TRAIN_TRAIN_SPREAD_H
#define RILL_TRAIN_TRAIN_SPREAD_H

#include "train/train_team.h"

typedef struct rill__spread rill__spread;

rill_status rill__spread_open(rill__spread **);
/* The rank that tells the others of the next feature. All ranks, which do the same. */
rill_status rill__spread_add(rill__spread *, int owner);
/* All have been added: weights of a feature. */
rill_status rill__spread_ready(rill__spread *, const rill__team *, uint64_t columns);
void rill__spread_close(rill__spread **);
uint64_t rill__spread_bytes(const rill__spread *);

/* All ranks: weights by number, of which each rank has those that it owns, get the others'. bits:
 * those of the features that were added, in words. */
rill_status rill__spread_tell(rill__spread *, rill__team *, const char *codec, const uint64_t *bits,
                              uint64_t words, float *weights);

#endif
