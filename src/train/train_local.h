/* Steps that a rank makes alone, and their averages. train_local.c. */
#ifndef RILL_TRAIN_TRAIN_LOCAL_H
#define RILL_TRAIN_TRAIN_LOCAL_H

#include "train/train_exchange.h"
#include "train/train_weights.h"

typedef struct rill__local rill__local;

rill_status rill__local_open(const rill__weights *, rill__local **);
void rill__local_close(rill__local **);
uint64_t rill__local_bytes(const rill__local *);
/* Of n weights: what the exchange's vectors need. */
uint64_t rill__local_dim(const rill__weights *);

/* A step of that rate along this rank's gradient. */
rill_status rill__local_step(rill__local *, rill__weights *, double eta, uint64_t n,
                             const uint32_t *idx, const float *gradient);
/* Whether the next step cannot be made before an average; the same on all ranks. */
bool rill__local_full(const rill__weights *, double eta);
/* All ranks: the same weights everywhere, to the bit. */
rill_status rill__local_average(rill__local *, rill__weights *, rill__exchange *, int ranks);
/* What has changed since the last average is no longer known. */
void rill__local_forget(rill__local *);

#endif
